"""Checkpoints: a State as one safetensors file that is there whole or not at all, its checksum in its name."""

from __future__ import annotations

import errno
import hashlib
import re
from pathlib import Path

from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

from ..core import atomic
from ..lab.train import State
from ..core.errors import LevelheadError

KEPT = 2
_NAME = re.compile(r"checkpoint-(\d+)-(\d+)-([0-9a-f]{16})\.safetensors")


def write(folder: Path, state: State) -> Path:
    """Write a checkpoint, then remove all but the last two. On failure those that were there are still there."""
    tensors = {f"weights/{name}": tensor.contiguous() for name, tensor in state.weights.items()}
    tensors |= {f"momentum/{name}": tensor.contiguous() for name, tensor in state.momentum.items()}
    content = bytes_of({**tensors, "seen": state.seen})
    path = folder / f"checkpoint-{state.epoch:06d}-{state.step:06d}-{_sum(content)}.safetensors"
    try:
        atomic.write(path, content)
    except OSError as error:
        last = found(folder)
        kept = f"the last good checkpoint, {last[0].name}, is still there" if last else "there is no earlier one"
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        raise OSError(f"{folder}: cannot write a checkpoint, {reason}; {kept}; make room and run the same command "
                      f"again to go on") from error
    for old in found(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def read(path: Path) -> State:
    """A checkpoint's State; a ValueError if a byte of it has changed."""
    epoch, step, checksum = _NAME.fullmatch(path.name).groups()  # type: ignore[union-attr]
    content = path.read_bytes()
    if _sum(content) != checksum:
        raise LevelheadError(f"{path}: damaged, its checksum is {_sum(content)}, not the {checksum} of its name")
    tensors = tensors_of(content)
    seen = tensors.pop("seen")
    parts: dict[str, dict[str, Tensor]] = {"weights": {}, "momentum": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = tensor
    return State(int(epoch), int(step), parts["weights"], parts["momentum"], seen)


def latest(folder: Path, *, inside: bool = True) -> tuple[State | None, list[str]]:
    """The newest State that is whole, and a line on each newer one that is not. An error if none is whole.

    Without `inside`, of those at the end of an epoch.
    """
    damaged: list[str] = []
    for path in found(folder):
        try:
            state = read(path)
        except ValueError as error:
            damaged.append(str(error))
            continue
        if inside or not state.step:
            return state, damaged
    if damaged and len(damaged) == len(found(folder)):
        raise LevelheadError(f"{folder}: every checkpoint is damaged ({len(damaged)}: {damaged[0]}); move the folder away "
                         f"to train from the start")
    return None, damaged


def drop_beyond(folder: Path, state: State | None) -> None:
    """Remove the checkpoints that are newer than a State; all of them if there is none."""
    for path in found(folder):
        epoch, step, _ = _NAME.fullmatch(path.name).groups()  # type: ignore[union-attr]
        if state is None or (int(epoch), int(step)) > (state.epoch, state.step):
            path.unlink()


def epochs(folder: Path) -> int:
    """How many epochs the newest checkpoint is after."""
    return next((int(path.name.split("-")[1]) for path in found(folder)), 0)


def found(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    return sorted((path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name)), reverse=True)


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
