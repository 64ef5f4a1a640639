"""Logits, a chunk at a time: from an array, a memory-mapped file larger than memory, or a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ._array import is_torch, to_numpy
from .measure import Kind, check_logits

Progress = Callable[[int, int], None]  # rows done, rows in all


def chunks(
    logits: Any, *, kind: Kind = "logits", size: int = 1 << 22, progress: Progress | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, checked logits [n, K]) with about `size` numbers each."""
    if getattr(logits, "ndim", None) != 2:
        logits = check_logits(logits, kind=kind)  # says what is wrong, or makes an array of a list
        kind = "logits"
    total, step = len(logits), max(1, size // max(1, logits.shape[1]))
    for first in range(0, total, step):
        part = logits[first : first + step]
        part = to_numpy(part) if is_torch(part) else np.asarray(part)
        yield first, check_logits(part, kind=kind) if first == 0 or not _plain(part, kind) else part
        if progress is not None:
            progress(min(first + step, total), total)


def _plain(logits: np.ndarray, kind: Kind) -> bool:
    """Finite logits, seen in one pass: a sum is not finite if a term is not."""
    return kind == "logits" and logits.dtype.kind == "f" and bool(np.isfinite(logits @ np.ones(logits.shape[1], logits.dtype)).all())
