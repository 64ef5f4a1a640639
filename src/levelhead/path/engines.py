"""Finding where each sample is right, chunk by chunk, with the engine that fits the logits."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, get_args
from warnings import warn

import numpy as np

from ..core.array import Array, is_torch, to_numpy, usable_cores
from ..core.choices import Kind
from ..core.counts import check_labels
from ..core.errors import LevelheadError, check_choice
from ..rules.direction import Direction
from ..show.progress import RowProgress
from .chunks import read_chunks
from .intervals import TabulatedRule, find_intervals, shard_intervals
from .top_k import Pieces, find_pieces

Engine = Literal["auto", "numpy", "torch"]
Intervals = tuple[np.ndarray, np.ndarray]  # lo [N], hi [N]
_MANY_NUMBERS = 1 << 26  # N times K, from which on threads share the rows


def find_right(
    logits: Array,
    labels: np.ndarray,
    rule: Direction,
    range: tuple[float, float],
    k: int = 1,
    *,
    kind: Kind = "logits",
    engine: Engine = "auto",
    shard: tuple[Any, Any] | None = None,
    progress: RowProgress | None = None,
) -> Pieces:
    """Return (sample [M], lo [M], hi [M]): the intervals of gamma on which each sample is among the first k.

    The engine `auto` is torch for a tensor on an accelerator, or else numpy.
    """
    if not (isinstance(k, int | np.integer) and 1 <= k < len(rule.ratios)):
        raise LevelheadError(f"expected a whole number from 1 to {len(rule.ratios) - 1}, got {k}", parameter="k")
    single = k == 1 and rule.bias is None
    engine = _choose_engine(engine, logits) if single and shard is None else "numpy"
    if engine == "torch":
        from .intervals_torch import find_intervals_torch

        lo, hi = find_intervals_torch(logits, labels, rule, range, kind=kind, progress=progress)
        return np.arange(len(labels)), lo, hi
    if shard is not None and not single:
        raise LevelheadError(
            "shards are merged for top-1 without a kept bias; give the logits of all classes", parameter="shard"
        )
    table, pieces = None, []
    threads = usable_cores() if np.prod(logits.shape) >= _MANY_NUMBERS else 1
    classes, true = (None, None) if shard is None else _check_shard(shard, logits, len(rule.ratios))
    for first, chunk in read_chunks(logits, kind=kind, whole=shard is None, progress=progress):
        rows, sample = slice(first, first + len(chunk)), np.arange(len(chunk))
        if not single:
            sample, lo, hi = find_pieces(chunk, labels[rows], rule, range, k)
        elif classes is not None and true is not None:
            lo, hi = shard_intervals(chunk, labels[rows], rule, range, classes, true[rows])
        else:
            table = table or TabulatedRule.of(rule, range, chunk.dtype)
            lo, hi = _find_in_parts(chunk, labels[rows], rule, table, threads)
        pieces.append((sample + first, lo, hi))
    sample, lo, hi = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return sample, lo, hi


def _find_in_parts(
    chunk: np.ndarray, labels: np.ndarray, rule: Direction, table: TabulatedRule, threads: int
) -> Intervals:
    """Return lo and hi of a chunk, a part of its rows in each thread."""
    if threads == 1:
        return find_intervals(chunk, labels, rule, table)
    rows = np.array_split(np.arange(len(chunk)), threads)
    parts = [slice(some[0], some[-1] + 1) for some in rows if len(some)]
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda part: find_intervals(chunk[part], labels[part], rule, table), parts))
    lo, hi = (np.concatenate(ends) for ends in zip(*found, strict=True))
    return lo, hi


def _check_shard(shard: tuple[Any, Any], logits: Array, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (classes [k], true [N]) that fit logits [N, k]."""
    if len(shard) != 2:
        raise LevelheadError(f"expected (classes, true), got {len(shard)} values", parameter="shard")
    classes, true = check_labels(shard[0], size), to_numpy(shard[1])
    if logits.ndim != 2 or classes.shape + true.shape != (logits.shape[1], len(logits)):
        raise LevelheadError(
            f"expected [{len(true)}, {len(classes)}], one column per class of the shard and one row "
            f"per true logit, got shape {list(logits.shape)}",
            parameter="logits",
        )
    return classes, true


def _choose_engine(engine: Engine, logits: Array) -> Engine:
    if engine == "numba":
        warn("engine 'numba' is gone and runs 'numpy'; levelhead 0.2 refuses it", DeprecationWarning, stacklevel=4)
        engine = "numpy"
    check_choice("engine", engine, get_args(Engine))
    if engine == "torch" and not is_torch(logits):
        raise LevelheadError("'torch' needs a tensor, got an array; use 'numpy'", parameter="engine")
    if engine != "auto":
        return engine
    if is_torch(logits) and logits.device.type not in ("cpu", "mps"):  # mps has no float64
        return "torch"
    return "numpy"
