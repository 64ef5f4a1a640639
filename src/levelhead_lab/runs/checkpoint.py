"""Checkpoints: a State as one safetensors file, written whole or not at all, with its checksum in its name.

    checkpoint-<epoch>-<step>-<first 16 hex digits of its sha256>.safetensors

`epoch` is the one to resume with, counted from 0, and `step` the steps already taken in it: 0 at the
end of the epoch before. With six digits each, names sort by age. The tensors are `weights/<name>`,
`momentum/<name>`, `mean/<name>` (of averaged weights; none unless the recipe averages) and `seen`.

A rename is atomic, but not everything below it is: a disk may lose what it said it had written, and
people copy folders. So a checkpoint is read only if its bytes have the checksum in its name, and the
last two are kept: where the newest is damaged, the one before it still serves.
"""

import errno
import hashlib
import re
from pathlib import Path

from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from levelhead.support import atomic
from levelhead.support.errors import LevelheadError

from ..lab.train import State

_NAME = re.compile(r"checkpoint-(\d+)-(\d+)-([0-9a-f]{16})\.safetensors")


def write(folder: Path, state: State) -> Path:
    """Write a checkpoint, then remove all but the last two. If that fails, earlier checkpoints are kept.

    Args:
        folder: of the run.
        state: with its tensors on the host.

    Returns:
        The file.

    Raises:
        OSError: if it cannot be written; the message says what is kept and how to resume.
    """
    # safetensors takes contiguous tensors only, which those of a channels-last network are not.
    tensors = {f"weights/{name}": tensor.contiguous() for name, tensor in state.weights.items()}
    tensors |= {f"momentum/{name}": tensor.contiguous() for name, tensor in state.momentum.items()}
    tensors |= {f"mean/{name}": tensor.contiguous() for name, tensor in state.mean.items()}
    content = to_bytes({**tensors, "seen": state.seen})
    path = (
        folder / f"checkpoint-{state.epoch:06d}-{state.step:06d}-{_checksum(content)}.safetensors"
    )
    # For a moment the disk holds three: the oldest goes only when the new one is whole.
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
    """Read a checkpoint.

    Args:
        path: one of `checkpoints_in`, whose name has epoch, step and checksum.

    Raises:
        LevelheadError: if a byte of it has changed.
    """
    epoch, step, checksum = _NAME.fullmatch(path.name).groups()  # type: ignore[union-attr]
    content = path.read_bytes()
    if _checksum(content) != checksum:
        raise LevelheadError(
            f"{path}: damaged, its checksum is {_checksum(content)}, not {checksum} as in its name"
        )
    tensors = from_bytes(content)
    return State(
        epoch=int(epoch),
        step=int(step),
        weights=_with_prefix(tensors, "weights/"),
        momentum=_with_prefix(tensors, "momentum/"),
        seen=tensors["seen"],
        mean=_with_prefix(tensors, "mean/"),
    )


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose name begins so, by the rest of their name."""
    parts = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            parts[name.removeprefix(prefix)] = tensor
    return parts


def latest(folder: Path, *, mid_epoch: bool = True) -> tuple[State | None, list[str]]:
    """Return the newest intact State, and a line on each newer checkpoint that is damaged.

    Args:
        folder: of the run.
        mid_epoch: whether a State from inside an epoch will do.

    Returns:
        The State, or None if there is no checkpoint that will do; and the lines.

    Raises:
        LevelheadError: if there are checkpoints and all are damaged: training from the start would
            throw away, without a word, what someone may still be able to restore.
    """
    damaged: list[str] = []
    for path in checkpoints_in(folder):
        try:
            state = read(path)
        except ValueError as error:
            damaged.append(str(error))
            continue
        if mid_epoch or not state.step:
            return state, damaged
    # Some may be intact and only inside an epoch: then None, and the caller says so.
    if damaged and len(damaged) == len(checkpoints_in(folder)):
        raise LevelheadError(
            f"{folder}: every checkpoint is damaged ({len(damaged)}: {damaged[0]}); move the folder away to train again"
        )
    return None, damaged


def remove_newer(folder: Path, state: State | None) -> None:
    """Remove the checkpoints that are newer than a State, or all if it is None.

    A damaged one would otherwise stay the newest, and `write` would keep it in place of a good one.

    Args:
        folder: of the run, whose lock is held.
        state: the one that is resumed from.
    """
    for path in checkpoints_in(folder):
        epoch, step, _ = _NAME.fullmatch(path.name).groups()  # type: ignore[union-attr]
        if state is None or (int(epoch), int(step)) > (state.epoch, state.step):
            path.unlink()


def epochs_kept(folder: Path) -> int:
    """Return how many whole epochs the newest checkpoint has, by its name; 0 if there is none."""
    checkpoints = checkpoints_in(folder)
    if not checkpoints:
        return 0
    return int(checkpoints[0].name.split("-")[1])


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the files of checkpoints, newest first; neither half-written files nor others."""
    return sorted(
        (path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name)), reverse=True
    )


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
