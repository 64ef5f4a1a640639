"""How the norms of weight vectors go with counts."""

import numpy as np

from .array import Array, to_numpy
from .counts import Counts, resolve
from .head import Head


def norm_follows_count(head: Head, counts: Counts) -> float:
    """Return the rank correlation (Spearman) of weight norms with counts.

    It is near 1 under SGD on a long tail, and near 0 or negative where scaling by counts is not what the head needs. It
    is NaN if all counts are equal, or if all norms are, up to rounding, as after WVN.

    >>> norm_follows_count(Head(np.array([[3.0, 4.0], [0.0, 1.0]])), [90, 10])
    1.0
    """
    n, norms = resolve(counts, head.classes, names=head.names), to_numpy(head.norms)
    if n.min() == n.max() or np.ptp(norms) <= 1e-4 * norms.max():
        return float("nan")
    return rank_correlation(norms, n)


def rank_correlation(a: Array, b: Array) -> float:
    """Return Spearman's correlation; equal values share the mean of their ranks. NaN if either side is all equal.

    >>> rank_correlation(np.array([1, 2, 30]), np.array([9, 8, 1]))
    -1.0
    """
    ranks = _ranks(to_numpy(a)), _ranks(to_numpy(b))
    return float("nan") if min(map(np.ptp, ranks)) == 0 else float(np.round(np.corrcoef(*ranks)[0, 1], 12))


def _ranks(x: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
