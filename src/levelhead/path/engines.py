"""Every change of every prediction, found where the logits are: on the host, or on a GPU."""

from __future__ import annotations

from ..support.arrays import Array, is_torch
from ..support.progress import RowProgress
from ..support.types import Kind
from .direction import Direction
from .envelope import Envelope
from .walk import TINY, compute_envelope


def find_changes(
    logits: Array,
    direction: Direction,
    range: tuple[float, float],
    *,
    kind: Kind = "logits",
    progress: RowProgress | None = None,
) -> Envelope:
    """Return every change of every prediction of logits [N, K] over a range of gammas.

    Args:
        logits: an array, a memory-mapped file, or a tensor, which is worked on where it is.
        direction: how scores depend on gamma.
        range: from and to.
        kind: of `probabilities`, the logarithms are moved.
        progress: called with (rows done, rows in all).
    """
    if _is_on_accelerator(logits) and not _needs_host(logits, direction):
        from .walk_torch import walk_on_device

        return walk_on_device(logits, direction, range, kind=kind, progress=progress)
    return compute_envelope(logits, direction, range, kind=kind, progress=progress)


def _is_on_accelerator(logits: Array) -> bool:
    return is_torch(logits) and logits.device.type not in ("cpu", "mps")  # mps has no float64


def _needs_host(logits: Array, direction: Direction) -> bool:
    """Return whether logits are so near 0 that their crossings have few bits: see `walk_enlarged`."""
    if direction.multiplies or logits.element_size() <= 4:
        return False
    return bool(((logits != 0) & (logits.abs() < TINY)).any())
