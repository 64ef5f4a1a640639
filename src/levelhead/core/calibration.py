"""The temperature at which scores are calibrated, wherever they are.

Networks are usually too sure: their log loss is least where scores are divided by a number T above 1. A fit by
log loss needs that T, as an offset means the more, the smaller scores are. So does whoever wants probabilities
of adjusted scores (`Tuned.temperature`).

``softmax(scores / T + offset)`` has the least log loss at one T. The loss is followed over log T, and
its slope is ``sum_i w_i (z_i[y_i] - E_i[z])`` with ``z = scores / T`` and E the mean by the softmax; the slope
of that is ``sum_i w_i Var_i[z]``, less the slope itself. `fit_temperature` takes Newton's steps by these two
within a bracket (`_minimize`), each one pass over the scores; of very many rows, over some (`some_rows`).

Reference: Guo et al., On Calibration of Modern Neural Networks, 2017.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..support.arrays import Array, is_torch, like, to_numpy, widen
from ..support.backend import column, row_max, row_sum
from ..support.logits import raise_masked, usual_distance

_MOST_NUMBERS = 1 << 18  # that a temperature is fitted on: it is then known to some hundredths
_MOST_ROWS = 20_000
_REACH = 7.0  # of log T, below and above the spread of the scores
_STEPS = 50  # the most that Newton takes
# How far apart the two largest logits of a sample usually are, from and to.
_OF_LOGITS = (0.1, 20.0)
_FARTHEST = 20.0  # of log T, where it is held: scores of another scale yet are next to nothing
_ENOUGH = 1e-4  # of log T: nearer than that it need not be known


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
        scores: [N, K], an array, or a tensor on any device. Of very many, some rows are used.
        labels: [N].
        weights: [N], of the samples, of mean 1; 1 each if None.
        offset: [K], what is added to the calibrated scores.
        held: as if by so many samples, log T is held near 0; where the scores are too small or too large
            for logits, as cosines and distances are, near what makes them such. With few samples that
            are all right, the best T would be 0; this keeps it at a size that more could confirm.

    Returns:
        T, above 0; 1 if no sample weighs anything.

    >>> logits = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    >>> round(fit_temperature(logits, np.array([0, 0, 1])), 3)  # 2 / log 2
    2.885
    """
    if weights is None:
        weights = np.ones(len(labels))
    rows = some_rows(*scores.shape)
    if len(rows) < len(labels):
        scores = scores[rows]
        labels = labels[rows]
        weights = weights[rows]
    mass = np.asarray(weights, np.float64)
    scores = widen(scores)
    true_scores = to_numpy(column(scores, labels))
    # A masked score, near -inf, must not set the scale of the others. A sample whose own class is
    # masked is wrong at any T, and would have it without end.
    scores = raise_masked(scores)
    mass = np.where(to_numpy(column(scores, labels)) == true_scores, mass, 0.0)
    if not mass.any():
        return 1.0

    # The largest score of a sample is 0, so that no exponential overflows at any T.
    scores = scores - row_max(scores)
    true_scores = to_numpy(column(scores, labels)).astype(np.float64)
    added = like(np.zeros(scores.shape[1]) + offset, scores)
    # Where log T is held: at 0 for logits, and where the scores have quite another scale, at that.
    usual = usual_distance(scores)
    near = 0.0
    if usual > 0:
        near = float(np.clip(np.log(usual / np.clip(usual, *_OF_LOGITS)), -_FARTHEST, _FARTHEST))

    def slopes_at(log_t: float) -> tuple[float, float]:
        """Return the slope of the loss over log T, and its own slope."""
        z = scores * float(np.exp(-log_t))
        # One table [N, K] is written over again and again: odds, odds z, odds z^2.
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
        slope = float(mass @ (true_scores * np.exp(-log_t) - mean))
        bend = float(mass @ (square - mean**2)) - slope
        return slope + held * (log_t - near), bend + held

    # T is looked for around the usual size of a score; and around where it is held.
    size = float(to_numpy((scores * scores).mean())) ** 0.5
    middle = 0.0
    if np.isfinite(size) and size > 0:
        middle = float(np.log(size))
    low = middle - _REACH
    high = middle + _REACH
    # Masks that are not so far that they were raised may make up all of that size.
    if 0 < usual < size / 100:
        low = float(np.log(usual)) - _REACH
    start = middle
    if held:
        low = min(low, near - _REACH)
        high = max(high, near + _REACH)
        start = near
    return float(np.exp(_minimize(slopes_at, low, high, start)))


def _minimize(
    slopes_at: Callable[[float], tuple[float, float]], low: float, high: float, start: float
) -> float:
    """Return where a function of one minimum has it, by Newton's steps within a bracket.

    Newton alone may leap out of any range where the function is nearly flat, which it is far from the
    minimum; halving alone takes a pass over the scores for each bit.

    Args:
        slopes_at: returns the slope of the function at a place, and the slope of that.
        low, high: what is taken to hold the minimum.
        start: where to begin.
    """
    at = min(max(start, low), high)
    for _ in range(_STEPS):
        slope, bend = slopes_at(at)
        if slope > 0:
            high = at
        else:
            low = at
        # A step of at most 1; where the function bends the other way, one downhill.
        step = -float(np.sign(slope))
        if bend > 0:
            step = -slope / bend
        there = at + float(np.clip(step, -1, 1))
        # A step that leaves the bracket is a halving instead.
        if not low < there < high:
            there = (low + high) / 2
        if abs(there - at) < _ENOUGH:
            return there
        at = there
    return at


def some_rows(n: int, classes: int) -> np.ndarray:
    """Return as many of n rows as a temperature needs, ascending: all, or some drawn by lot.

    Always the same ones for the same n and K, so that results repeat.

    >>> len(some_rows(1000, 10)), len(some_rows(1_000_000, 10)), len(some_rows(1_000_000, 1000))
    (1000, 20000, 500)
    """
    most = min(_MOST_ROWS, max(500, _MOST_NUMBERS // classes))
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))
