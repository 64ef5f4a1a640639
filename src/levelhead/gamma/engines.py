"""Where each sample is right, whatever the logits are and wherever they lie: the engine that fits, chunk by chunk."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from ..core.array import Array, is_torch, to_numpy
from ..core.counts import check_labels
from ..core.errors import LevelheadError
from ..core.measure import Kind
from ..show.progress import RowProgress
from .chunks import check_rows, chunks
from .intervals import Table, intervals, shard_intervals
from .rule import Rule
from .top_k import Pieces, right_pieces

Engine = Literal["auto", "numpy", "numba", "torch"]
LARGE = 1 << 28  # numbers, from which compiling pays even the first time


def solve(
    logits: Array, labels: np.ndarray, rule: Rule, range: tuple[float, float], k: int = 1, *, kind: Kind = "logits",
    engine: Engine = "auto", shard: tuple[Any, Any] | None = None, progress: RowProgress | None = None,
) -> Pieces:
    """(sample [M], lo [M], hi [M]): the intervals of gamma on which each sample is among the first k.

    Args:
        engine: `numpy`; `numba` (the extra `fast`); `torch`, on the tensor's own device; `auto` takes torch for one on
            an accelerator, numba, if installed, from 2^28 numbers on, and numpy else. All give the same.
        shard: (classes [k], true [N]) if the columns are some classes only: which, and the true class's logits.
    """
    single = k == 1 and rule.bias is None
    engine = _choose(engine, logits) if single and shard is None else "numpy"
    if engine == "torch":
        from .intervals_torch import intervals as on_device

        lo, hi = on_device(logits, labels, rule, range, kind=kind, progress=progress)
        return np.arange(len(labels)), lo, hi
    if engine == "numba":
        from .intervals_numba import intervals as one_block
    else:
        one_block = intervals
    table, pieces = None, []
    whole = shard is None
    classes, true = (None, None) if shard is None else _check_shard(shard, logits, len(rule.ratios))
    for first, chunk in chunks(logits, kind=kind, check=engine != "numba", whole=whole, progress=progress):
        rows = slice(first, first + len(chunk))
        if not single:
            sample, lo, hi = right_pieces(chunk, labels[rows], rule, range, k)
        elif classes is not None and true is not None:
            sample = np.arange(len(chunk))
            lo, hi = shard_intervals(chunk, labels[rows], rule, range, classes, true[rows])
        else:
            table = table or Table.of(rule, range, chunk.dtype)
            sample, (lo, hi) = np.arange(len(chunk)), one_block(chunk, labels[rows], rule, table)
            if engine == "numba" and np.isnan(hi).any():
                check_rows(chunk, first)  # which says where
        pieces.append((sample + first, lo, hi))
    sample, lo, hi = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return sample, lo, hi


def _check_shard(shard: tuple[Any, Any], logits: Array, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(classes [k], true [N]), that fit logits [N, k]."""
    if len(shard) != 2:
        raise LevelheadError(f"expected shard=(classes, true), got {len(shard)} things")
    classes, true = check_labels(shard[0], size), to_numpy(shard[1])
    if logits.ndim != 2 or classes.shape + true.shape != (logits.shape[1], len(logits)):
        raise LevelheadError(f"expected logits [{len(true)}, {len(classes)}], a column per class of the shard, a row per "
                         f"true logit, got shape {list(logits.shape)}")
    return classes, true


def _choose(engine: Engine, logits: Array) -> Engine:
    if engine not in ("auto", "numpy", "numba", "torch"):
        raise LevelheadError(f"expected engine='auto', 'numpy', 'numba' or 'torch', got {engine!r}")
    if engine == "torch" and not is_torch(logits):
        raise LevelheadError("engine='torch' takes a torch tensor, got an array; use engine='numpy'")
    if engine == "numba" and find_spec("numba") is None:
        raise LevelheadError("engine='numba' needs numba: pip install 'levelhead[fast]'")
    if engine != "auto":
        return engine
    if is_torch(logits) and logits.device.type not in ("cpu", "mps"):  # mps has no float64
        return "torch"
    return "numba" if np.prod(logits.shape) >= LARGE and find_spec("numba") is not None else "numpy"
