"""Logits, a chunk at a time: from an array, a memory-mapped file larger than memory, or a tensor."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..core.array import is_torch, to_numpy
from ..core.errors import LevelheadError
from ..core.measure import Kind, check_logits
from ..show.progress import RowProgress


def chunks(
    logits: Any, *, kind: Kind = "logits", size: int = 1 << 22, check: bool = True, whole: bool = True,
    progress: RowProgress | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, logits [n, K]) with about `size` numbers each, all finite unless the caller will see to that.

    Probabilities are refused, unless the columns are not the `whole` set of classes: then no sum of them tells.

    Of a memory-mapped file no more than one chunk stays in memory: its pages are given back as soon as it is done with.
    """
    if getattr(logits, "ndim", None) != 2:
        logits, kind = check_logits(logits, kind=kind), "logits"  # says what is wrong, or makes an array of a list
    total, step = len(logits), max(1, size // max(1, logits.shape[1]))
    for first in range(0, total, step):
        part = logits[first : first + step]
        part = to_numpy(part) if is_torch(part) else np.asarray(part)
        if kind != "logits" or part.dtype.kind != "f":
            part = check_logits(part, kind=kind, first=first)
        elif first == 0 and whole and part.shape[1] > 1:
            check_logits(part[:100])
        if check:
            check_rows(part, first)
        yield first, part
        _give_back(logits)
        if progress is not None:
            progress(min(first + step, total), total)


def check_rows(logits: np.ndarray, first: int) -> None:
    """One pass over [n, K]: a sum is not finite if a term of it is not (or if it overflows: then all are looked at)."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.einsum("ij->", logits)):  # twice as quick as logits.sum(), which rounds better
            return
    finite = np.isfinite(logits).all(axis=1)
    if not finite.all():
        raise LevelheadError(f"the logits hold NaN or infinite values, first in row {first + int(np.argmin(finite))}")


def _give_back(logits: Any) -> None:
    """Drop the pages of a file mapped for reading or sharing; they are read again where they are needed again."""
    if isinstance(logits, np.memmap) and logits.mode in ("r", "r+") and logits._mmap is not None:  # pyright: ignore
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if advice is not None:
            logits._mmap.madvise(advice)  # pyright: ignore
