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
        if kind != "logits" or part.dtype.kind != "f":
            part = check_logits(part, kind=kind)
        elif first == 0:
            check_logits(part[:1000])
        _check_finite(part, first)
        yield first, part
        if progress is not None:
            progress(min(first + step, total), total)


def _check_finite(logits: np.ndarray, first: int) -> None:
    """One pass over [n, K]: the sum of a row is not finite if a term of it is not, nor if it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = logits @ np.ones(logits.shape[1], logits.dtype)
    for row in np.flatnonzero(~np.isfinite(sums)):
        if not np.isfinite(logits[row]).all():
            raise ValueError(f"the logits hold NaN or infinite values, first in row {first + row}")
