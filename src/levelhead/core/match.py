"""Shares matched without labels: what is added, or how far to go, until predictions come as often as they should.

**Offsets.** The sum ``sum_i log sum_k exp(z_ik + c_k) - N sum_k target_k c_k`` is convex, and where its slope is 0,
the mean softmax of ``z + c`` is the target. Where training counts are known, c is held near the shift that they ask
for, as if by `_HELD` samples of each class: with few samples, that shift is the better guess. `match_means` takes
Newton's steps on that sum.

**A strength.** Every change of a prediction along the exact path is known, and so is the share of samples that would
have to be predicted otherwise (`Envelope.mismatch`). `match_strength` takes the strength at which that is least.
"""

from __future__ import annotations

import numpy as np

from ..path.direction import Direction
from ..path.engines import find_changes
from ..support.logits import log_softmax

_HELD = 5.0  # samples of each class by which offsets are held near the shift of the counts
_STEPS = 200  # the most that Newton takes
_MOST_CLASSES = 512  # of which the curvature [K, K] is solved; of more, its diagonal has to do
_LEAST_SHARE = 1e-3  # of a class, as a part of 1 / K: a share of 0 would ask for an offset of -inf


def match_means(scores: np.ndarray, target: np.ndarray, counts: np.ndarray | None) -> np.ndarray:
    """Return the offsets [K] at which the mean softmax is the target; that of the first class is 0.

    By Newton's method with halved steps. The curvature ``diag(sum_i p_i) - sum_i p_i p_i'`` is singular, as a
    constant added to all offsets changes nothing: a small hold makes one answer of many. Beyond 512
    classes only its diagonal is used, which is an upper bound of it: more steps, but each costs N K.

    Args:
        scores: [N, K] in float64.
        target: [K], which sums to 1.
        counts: [K], of the training; None if they are not known.

    >>> scores = np.log([[0.8, 0.2], [0.6, 0.4], [0.4, 0.6]])
    >>> offset = match_means(scores, np.array([0.5, 0.5]), None)
    >>> np.exp(log_softmax(scores + offset)).mean(axis=0).round(3)
    array([0.5, 0.5])
    """
    classes = scores.shape[1]
    target = np.maximum(target, _LEAST_SHARE / classes)
    target = target / target.sum()

    # c is what is added beyond the start: the shift that the counts ask for, or nothing.
    start = np.zeros(classes)
    held = 1e-3  # of a sample: enough that there is one answer
    if counts is not None:
        start = np.log(target / counts)
        held = _HELD
    mass = len(scores) * target
    logs = log_softmax(scores + start)

    def value(c: np.ndarray) -> float:
        """Return the sum of the module's formula, with what holds c near 0."""
        moved = logs + c
        top = moved.max(axis=1)
        log_totals = top + np.log(np.exp(moved - top[:, None]).sum(axis=1))
        return float(log_totals.sum() - mass @ c + held * (c @ c) / 2)

    # From no offsets beyond the start, downhill.
    c = np.zeros(classes)
    here = value(c)
    for _ in range(_STEPS):
        # What the model predicts on average, against what it should; to a millionth of the samples.
        shares = np.exp(log_softmax(logs + c))
        expected = shares.sum(axis=0)
        gradient = expected - mass + held * c
        if np.abs(gradient).max() < 1e-6 * len(scores):
            break
        if classes <= _MOST_CLASSES:
            curvature = np.diag(expected + held) - shares.T @ shares
            step = np.linalg.solve(curvature, gradient)
        else:
            step = gradient / (expected + held)
        # Half of the step, as long as the sum falls by less than its slope promises (Armijo).
        slope = float(gradient @ step)
        size = 1.0
        while value(c - size * step) > here - 1e-4 * size * slope and size > 1e-6:
            size /= 2
        c = c - size * step
        here = value(c)
    offset = start + c
    return offset - offset[0]


def match_strength(
    scores: np.ndarray, direction: Direction, reach: tuple[float, float], shares: np.ndarray
) -> float:
    """Return the strength at which predicted shares are nearest to those wanted.

    Nearest by half the sum of ``|share_k - wanted_k|``, over every strength at which a prediction changes.

    Args:
        scores: [N, K] in float64.
        direction: how scores depend on the strength.
        reach: the strengths to try, from and to.
        shares: [K], how often each class is to be predicted.

    Returns:
        The middle of the widest stretch of nearest ones; 0 if no strength changes anything.

    >>> scores = np.array([[2.0, 0.0], [2.0, 1.0], [2.0, 1.5]])
    >>> shift = Direction("shift", np.exp([0.0, 1.0]), multiplies=False)
    >>> round(match_strength(scores, shift, (0.0, 4.0), np.array([1 / 3, 2 / 3])), 3)
    1.5
    """
    curve = find_changes(scores, direction, reach).mismatch(shares)
    if curve.plateau_at_zero() is not None:
        return 0.0
    return curve.middle(curve.plateau())
