"""Finding where each sample is right, chunk by chunk, with the engine that fits the logits."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, get_args

import numpy as np

from ..core.array import Array, check_shape, is_torch, usable_cores
from ..core.choices import Kind
from ..core.counts import Counts, check_labels, resolve
from ..core.errors import LevelheadError, check_choice
from ..core.warnings import warn
from ..rules.direction import Direction
from ..show.progress import RowProgress
from .chunks import read_chunks
from .crossing import TabulatedRule
from .intervals import find_intervals
from .top_k import Pieces, find_pieces

Engine = Literal["auto", "numpy", "torch"]
_MANY_NUMBERS = 1 << 26  # N times K, from which on threads share the rows


def check_samples(
    logits: Array, labels: Array, counts: Counts, names: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels [N] and counts [K] that fit logits [N, K], checked; the logits' numbers are not read here."""
    check_shape(logits.shape, len(labels))
    n = resolve(counts, logits.shape[1], names=names)
    found = check_labels(labels, len(n))
    if len(found) != len(logits):
        raise LevelheadError(f"expected one label per row of logits, got {len(found)} labels and {len(logits)} rows")
    return found, n


def find_right(
    logits: Array,
    labels: np.ndarray,
    rule: Direction,
    range: tuple[float, float],
    k: int = 1,
    *,
    kind: Kind = "logits",
    engine: Engine = "auto",
    progress: RowProgress | None = None,
) -> Pieces:
    """Return (sample [M], lo [M], hi [M]): the intervals of gamma on which each sample is among the first k."""
    if not (isinstance(k, int | np.integer) and 1 <= k < len(rule.ratios)):
        raise LevelheadError(f"expected a whole number from 1 to {len(rule.ratios) - 1}, got {k}", parameter="k")
    single = k == 1 and rule.bias is None
    engine = _choose_engine(engine, logits) if single else "numpy"
    if engine == "torch":
        from .intervals_torch import find_intervals_torch

        lo, hi = find_intervals_torch(logits, labels, rule, range, kind=kind, progress=progress)
        return np.arange(len(labels)), lo, hi
    table, pieces = None, []
    threads = usable_cores() if np.prod(logits.shape) >= _MANY_NUMBERS else 1
    for first, chunk in read_chunks(logits, kind=kind, progress=progress):
        rows, sample = slice(first, first + len(chunk)), np.arange(len(chunk))
        if not single:
            sample, lo, hi = find_pieces(chunk, labels[rows], rule, range, k)
        else:
            table = table or TabulatedRule.of(rule, range, chunk.dtype)
            lo, hi = _find_in_parts(chunk, labels[rows], rule, table, threads)
        pieces.append((sample + first, lo, hi))
    sample, lo, hi = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return sample, lo, hi


def _find_in_parts(
    chunk: np.ndarray, labels: np.ndarray, rule: Direction, table: TabulatedRule, threads: int
) -> Iterable[np.ndarray]:
    """Return lo and hi of a chunk, a part of its rows in each thread."""
    if threads == 1:
        return find_intervals(chunk, labels, rule, table)
    with ThreadPoolExecutor(threads) as pool:
        parts = np.array_split(chunk, threads), np.array_split(labels, threads)
        found = list(pool.map(lambda x, y: find_intervals(x, y, rule, table), *parts))
    return (np.concatenate(ends) for ends in zip(*found, strict=True))


def _choose_engine(engine: Engine, logits: Array) -> Engine:
    """Return the engine; `auto` is torch for a tensor on an accelerator, or else numpy."""
    if engine == "numba":
        warn("engine 'numba' is gone and runs 'numpy'; levelhead 0.2 refuses it", DeprecationWarning)
        engine = "numpy"
    check_choice("engine", engine, get_args(Engine))
    if engine == "torch" and not is_torch(logits):
        raise LevelheadError("'torch' needs a tensor, got an array; use 'numpy'", parameter="engine")
    if engine != "auto":
        return engine
    return "torch" if is_torch(logits) and logits.device.type not in ("cpu", "mps") else "numpy"  # mps: no float64
