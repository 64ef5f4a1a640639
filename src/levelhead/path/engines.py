"""Every change of every prediction, found where the logits are: on the host, or on a GPU.

`find_changes` is the one door to this room. It looks at where the logits are and calls one of two engines:
walk.py with numpy and a few threads, or walk_torch.py with torch operations and, where it is installed, a
Triton kernel. They find the same changes, at gammas that may differ in the last bits. walk_torch.py, which
imports torch, is loaded only for tensors that are on an accelerator.
"""

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

    Raises:
        LevelheadError: logits that are not finite, or of another kind than said.

    >>> import numpy as np
    >>> changes = find_changes(
    ...     np.array([[4.0, 2.0], [4.0, 1.0]]), Direction("rescale", np.array([1.0, 4.0])), (0.0, 2.0)
    ... )
    >>> changes.start, changes.sample, changes.gamma
    (array([0, 0]), array([0, 1]), array([0.5, 1. ]))
    """
    if _is_on_accelerator(logits) and not _needs_host(logits, direction):
        from .walk_torch import walk_on_device

        return walk_on_device(logits, direction, range, kind=kind, progress=progress)
    return compute_envelope(logits, direction, range, kind=kind, progress=progress)


def _is_on_accelerator(logits: Array) -> bool:
    return is_torch(logits) and logits.device.type not in ("cpu", "mps")  # mps has no float64


def _needs_host(logits: Array, direction: Direction) -> bool:
    """Return whether logits are so near 0 that their crossings have few bits: see `walk_enlarged`.

    Only float64 holds such logits, and only a direction that adds divides their difference. The GPU has no
    walk for them, as no model makes them.
    """
    if direction.multiplies or logits.element_size() <= 4:
        return False
    return bool(((logits != 0) & (logits.abs() < TINY)).any())
