"""Logits read in chunks: from an array, a tensor, or a memory-mapped file larger than the memory.

A mapped file is a promise: its pages are read when they are touched, and stay in memory as long as
there is room. So before each chunk it is checked that the file has not become shorter, and after
each its pages are given back.

`read_chunks` is for logits, and checks them on the way; `read_rows` is for any array, as it is.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from .arrays import Array, is_torch, to_numpy
from .errors import LevelheadError
from .logits import check_logits, lower_masked
from .progress import RowProgress
from .types import Kind


def read_chunks(
    logits: Array,
    *,
    kind: Kind = "logits",
    size: int = 1 << 22,
    progress: RowProgress | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, logits [n, K]) of each chunk of about `size` numbers.

    Of a memory-mapped file, no more than one chunk stays in memory.

    Args:
        logits: [N, K]: an array, a tensor on any device, or a memory-mapped file.
        kind: of `probabilities`, the logarithms are yielded.
        size: of a chunk, in numbers: 4 million, or 32 MB of float64.
        progress: called with (rows done, rows in all).

    Raises:
        LevelheadError: as `check_logits` does, with the number of the row in all of the logits; or
            the file became shorter.

    >>> [(first, part.shape) for first, part in read_chunks(-np.eye(5), size=10)]
    [(0, (2, 5)), (2, (2, 5)), (4, (1, 5))]
    """
    if getattr(logits, "ndim", None) != 2:
        logits = check_logits(logits, kind=kind)  # raises, or turns a list into an array
        kind = "logits"
    # Only what has two axes gets here: slices of it are taken, so that nothing large is copied.
    rows = len(logits)
    step = max(1, size // max(1, logits.shape[1]))
    for first in range(0, rows, step):
        _check_not_shorter(logits)
        part = logits[first : first + step]
        if is_torch(part):
            part = to_numpy(part)
        else:
            part = np.asarray(part)
        if part.dtype == np.float16:
            part = part.astype(np.float32)  # sums of float16 overflow
        if kind != "logits" or part.dtype.kind != "f":
            part = check_logits(part, kind=kind, first=first)
        elif first == 0 and part.shape[1] > 1:
            # What looks like probabilities is refused by the first rows.
            check_logits(part[:1000])
        yield first, lower_masked(part, first)
        _forget(logits)
        if progress is not None:
            progress(min(first + step, rows), rows)


def read_rows(values: np.ndarray, size: int = 1 << 20) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, rows) of an array, as they are, about `size` numbers at a time.

    Of a memory-mapped file, no more than that stays in memory.
    """
    # Whole rows, at least one, however wide they are.
    step = max(1, size // max(1, values[:1].size))
    for first in range(0, len(values), step):
        _check_not_shorter(values)
        yield first, np.asarray(values[first : first + step])
        _forget(values)


def _check_not_shorter(values: Array) -> None:
    """Raise LevelheadError if a mapped file became shorter.

    To read a page that is gone ends the process (SIGBUS). The check leaves a moment between itself
    and the reading, which no check could close; it is for files that somebody writes again.
    """
    if not isinstance(values, np.memmap) or not isinstance(values.base, mmap.mmap):
        return
    if values.filename is None:
        return
    with suppress(FileNotFoundError):  # its name is gone, its content is not
        if os.stat(values.filename).st_size < values.offset + values.nbytes:
            shorter = "became shorter while it was read; try again when nothing writes to it"
            raise LevelheadError(f"{values.filename}: {shorter}")


def _forget(values: Array) -> None:
    """Drop the pages of a mapped file from memory; the system reads them again if they are needed.

    Left to itself, the system would drop them only when memory is short, after those of others.
    """
    if not isinstance(values, np.memmap) or values.mode not in ("r", "r+"):
        return
    file = values._mmap  # pyright: ignore
    if file is not None and hasattr(mmap, "MADV_DONTNEED"):
        file.madvise(mmap.MADV_DONTNEED)
