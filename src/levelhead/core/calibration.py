"""The temperature at which scores are calibrated, wherever they are.

``softmax(scores / T + offset)`` has the least log loss at one T. The loss is followed over log T, and
its slope is ``sum_i w_i (z_i[y_i] - E_i[z])`` with ``z = scores / T`` and E the mean by the softmax.
"""

from __future__ import annotations

import numpy as np

from ..support.arrays import Array, is_torch, like, to_numpy, widen
from ..support.backend import column, row_max, row_sum
from ..support.logits import raise_masked

_MOST_NUMBERS = 1 << 18  # that a temperature is fitted on: it is then known to some hundredths
_MOST_ROWS = 20_000
_REACH = 7.0  # of log T, below and above the spread of the scores
_STEPS = 50


def fit_temperature(
    scores: Array,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    offset: np.ndarray | float = 0.0,
    *,
    held: float = 0.0,
) -> float:
    """Return the T of least log loss of ``scores / T + offset``.

    Args:
        scores: [N, K], of which at most about a million numbers are used.
        labels: [N].
        weights: [N], of the samples, of mean 1; 1 each if None.
        offset: [K], what is added to the calibrated scores.
        held: as if by so many samples, log T is held near 0.

    >>> logits = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    >>> round(fit_temperature(logits, np.array([0, 0, 1])), 3)  # 2 / log 2
    2.885
    """
    rows = some_rows(*scores.shape)
    if len(rows) < len(labels):
        scores, labels = scores[rows], labels[rows]
        weights = None if weights is None else weights[rows]
    if is_torch(scores):
        scores = widen(scores)
    else:
        scores = raise_masked(widen(np.asarray(scores)))
    scores = scores - row_max(scores)
    if is_torch(scores):
        scores = _raise_masked_tensor(scores)
    own = to_numpy(column(scores, labels)).astype(np.float64)
    if weights is None:
        mass = np.ones(len(labels))
    else:
        mass = np.asarray(weights, np.float64)
    if not mass.any():
        return 1.0
    added = like(np.zeros(scores.shape[1]) + offset, scores)

    def look(log_t: float) -> tuple[float, float]:
        """Return the slope of the loss over log T, and its own slope."""
        z = scores * float(np.exp(-log_t))
        odds = z + added
        odds -= row_max(odds)
        if is_torch(odds):
            odds = odds.exp_()
        else:
            odds = np.exp(odds, out=odds)
        total = row_sum(odds)
        odds *= z
        mean = to_numpy(row_sum(odds) / total)[:, 0].astype(np.float64)
        odds *= z
        square = to_numpy(row_sum(odds) / total)[:, 0].astype(np.float64)
        slope = float(mass @ (own * np.exp(-log_t) - mean))
        bend = float(mass @ (square - mean**2)) - slope
        return slope + held * log_t, bend + held

    size = float(to_numpy((scores * scores).mean())) ** 0.5
    middle = 0.0
    if np.isfinite(size) and size > 0:
        middle = float(np.log(size))
    low, high = middle - _REACH, middle + _REACH
    if held:
        low, high = min(low, -_REACH), max(high, _REACH)
    # Newton's steps, at most by 1, and within what is known to hold the minimum: a step that leaves
    # it is a halving instead.
    at = min(max(0.0 if held else middle, low), high)
    for _ in range(_STEPS):
        slope, bend = look(at)
        if slope > 0:
            high = at
        else:
            low = at
        step = -slope / bend if bend > 0 else -np.sign(slope)
        there = at + float(np.clip(step, -1, 1))
        if not low < there < high:
            there = (low + high) / 2
        if abs(there - at) < 1e-4:
            return float(np.exp(there))
        at = there
    return float(np.exp(at))


def some_rows(n: int, classes: int) -> np.ndarray:
    """Return as many of n rows as a temperature needs, ascending: all, or some drawn by lot."""
    most = min(_MOST_ROWS, max(500, _MOST_NUMBERS // classes))
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def _raise_masked_tensor(scores: Array) -> Array:
    """Return scores [N, K], 0 at most, of which masked ones do not set the scale (`raise_masked`)."""
    below = -scores[scores < 0]
    if not len(below):
        return scores
    usual = float(below.median())
    if float(below.max()) <= 1e4 * usual:
        return scores
    return scores.clamp(min=-10 * usual)
