"""Reading logits chunk by chunk: from an array, a tensor, or a memory-mapped file larger than memory."""

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from ..core.array import CheckedLogits, check_finite_rows, check_logits, is_torch, to_numpy
from ..core.choices import Kind
from ..core.errors import LevelheadError
from ..show.progress import RowProgress


def read_chunks(
    logits: Any, *, kind: Kind = "logits", size: int = 1 << 22, check: bool = True, progress: RowProgress | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, logits [n, K]) of each chunk of about `size` numbers, with logarithms of probabilities.

    No more than one chunk of a memory-mapped file stays in memory. `check` is whether all values must be finite.
    """
    if getattr(logits, "ndim", None) != 2:
        logits, kind = check_logits(logits, kind=kind), "logits"  # raises, or turns a list into an array
    total, step = len(logits), max(1, size // max(1, logits.shape[1]))
    for first in range(0, total, step):
        part = logits[first : first + step]
        if isinstance(logits, CheckedLogits):
            part = np.asarray(part)
            yield first, part.astype(np.float32) if part.dtype == np.float16 else part  # sums of float16 overflow
            if progress is not None:
                progress(min(first + step, total), total)
            continue
        _check_not_shorter(logits)
        part = to_numpy(part) if is_torch(part) else np.asarray(part)
        part = part.astype(np.float32) if part.dtype == np.float16 else part  # sums of float16 overflow
        if kind != "logits" or part.dtype.kind != "f":
            part = check_logits(part, kind=kind, first=first)
        elif first == 0 and part.shape[1] > 1:
            check_logits(part[:100])
        if check:
            check_finite_rows(part, first)
        yield first, part
        file = logits._mmap if isinstance(logits, np.memmap) and logits.mode in ("r", "r+") else None  # pyright: ignore
        if file is not None and hasattr(mmap, "MADV_DONTNEED"):  # drop its pages; the system reads them again if needed
            file.madvise(mmap.MADV_DONTNEED)
        if progress is not None:
            progress(min(first + step, total), total)


def _check_not_shorter(values: Any) -> None:
    """Check that a memory-mapped file is still as long as its map: reading what is gone would end the process."""
    if isinstance(values, np.memmap) and isinstance(values.base, mmap.mmap) and values.filename is not None:
        with suppress(FileNotFoundError):  # its name is gone, its content is not
            if os.stat(values.filename).st_size < values.offset + values.nbytes:
                shorter = "became shorter while it was read; try again when nothing writes to it"
                raise LevelheadError(f"{values.filename}: {shorter}")
