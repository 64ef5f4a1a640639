"""Checkpoints: a State as one safetensors file, written whole or not at all, with its checksum in its name."""

import errno
import hashlib
import re
from pathlib import Path

from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from levelhead.support import atomic
from levelhead.support.errors import LevelheadError

from ..lab.train import State

_NAME = re.compile(r"checkpoint-(\d+)-(\d+)-([0-9a-f]{16})\.safetensors")


def write(folder: Path, state: State) -> Path:
    """Write a checkpoint, then remove all but the last two. If that fails, earlier checkpoints are kept."""
    tensors = {f"weights/{name}": tensor.contiguous() for name, tensor in state.weights.items()}
    tensors |= {f"momentum/{name}": tensor.contiguous() for name, tensor in state.momentum.items()}
    tensors |= {f"mean/{name}": tensor.contiguous() for name, tensor in state.mean.items()}
    content = to_bytes({**tensors, "seen": state.seen})
    path = (
        folder / f"checkpoint-{state.epoch:06d}-{state.step:06d}-{_checksum(content)}.safetensors"
    )
    try:
        atomic.write(path, content)
    except OSError as error:
        earlier = checkpoints_in(folder)
        kept = "there is no earlier one"
        if earlier:
            kept = f"the last good checkpoint, {earlier[0].name}, is kept"
        reason = "the disk is full"
        if error.errno != errno.ENOSPC:
            reason = error.strerror
        raise OSError(
            f"{folder}: cannot write a checkpoint, {reason}; {kept}; make room and run the same command again to resume"
        ) from error
    for old in checkpoints_in(folder)[2:]:
        old.unlink(missing_ok=True)
    return path


def read(path: Path) -> State:
    """Read a checkpoint; raise LevelheadError if a byte of it has changed."""
    epoch, step, checksum = _NAME.fullmatch(path.name).groups()  # type: ignore[union-attr]
    content = path.read_bytes()
    if _checksum(content) != checksum:
        raise LevelheadError(
            f"{path}: damaged, its checksum is {_checksum(content)}, not {checksum} as in its name"
        )
    tensors = from_bytes(content)
    weights, momentum, mean = (
        {
            name.removeprefix(part): tensor
            for name, tensor in tensors.items()
            if name.startswith(part)
        }
        for part in ("weights/", "momentum/", "mean/")
    )
    return State(int(epoch), int(step), weights, momentum, tensors["seen"], mean)


def latest(folder: Path, *, mid_epoch: bool = True) -> tuple[State | None, list[str]]:
    """Return the newest intact State, here of any step or only of epochs' ends, and a line on each damaged one."""
    damaged: list[str] = []
    for path in checkpoints_in(folder):
        try:
            state = read(path)
        except ValueError as error:
            damaged.append(str(error))
            continue
        if mid_epoch or not state.step:
            return state, damaged
    if damaged and len(damaged) == len(checkpoints_in(folder)):
        raise LevelheadError(
            f"{folder}: every checkpoint is damaged ({len(damaged)}: {damaged[0]}); move the folder away to train again"
        )
    return None, damaged


def remove_newer(folder: Path, state: State | None) -> None:
    for path in checkpoints_in(folder):
        epoch, step, _ = _NAME.fullmatch(path.name).groups()  # type: ignore[union-attr]
        if state is None or (int(epoch), int(step)) > (state.epoch, state.step):
            path.unlink()


def epochs_kept(folder: Path) -> int:
    return next((int(path.name.split("-")[1]) for path in checkpoints_in(folder)), 0)


def checkpoints_in(folder: Path) -> list[Path]:
    return sorted(
        (path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name)), reverse=True
    )


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
