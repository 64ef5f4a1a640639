"""For each sample, the one interval of gammas at which its class wins.

The score of class k at gamma is ``l_k r_k^gamma`` (or ``l_k + gamma log r_k``). No logit changes sign, and of two
logits of one sign the logarithms of the scores are straight lines in gamma: so "y comes before k" holds on a half-line,
and y wins on the intersection of K - 1 half-lines, an interval ``[lo, hi]``.

Ends are exact: a tie goes to the first class, as argmax has it, and an end that is open is given as the next float
inside, so that the sample is right if and only if ``lo <= gamma <= hi``. A sample that is never right has lo > hi.
"""

from __future__ import annotations

import numpy as np

from .rule import Rule

NEVER = (np.inf, -np.inf)


def wins(
    true: np.ndarray, other: np.ndarray, rise: np.ndarray, first: np.ndarray, *, multiplies: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The half-line ``[lo, hi]`` on which a logit `true` comes before a logit `other`, pair by pair.

    Args:
        true, other: the two logits, float64.
        rise: slope of `other` minus slope of `true`, ``a_k - a_y``.
        first: whether `true` wins a tie, being of the smaller class index.
        multiplies: the rule's kind.

    >>> wins(np.array([4.0]), np.array([2.0]), np.log([4.0]), np.array([True]), multiplies=True)
    (array([-inf]), array([0.5]))
    """
    if multiplies:
        sign = np.sign(true)
        apart = sign != np.sign(other)
        with np.errstate(invalid="ignore"):
            gap, rise = sign * _log_ratio(np.abs(true), np.abs(other)), sign * rise
    else:
        apart, gap = np.zeros(np.shape(true), bool), true - other
    with np.errstate(divide="ignore", invalid="ignore"):
        at = snap(gap / rise)
    lo = np.where(rise < 0, np.where(first, at, np.nextafter(at, np.inf)), -np.inf)
    hi = np.where(rise > 0, np.where(first, at, np.nextafter(at, -np.inf)), np.inf)
    fixed = apart | (rise == 0)
    loses = fixed & np.where(apart, true < other, (gap < 0) | ((gap == 0) & ~first))
    lo, hi = np.where(fixed, -np.inf, lo), np.where(fixed, np.inf, hi)
    return np.where(loses, np.inf, lo), np.where(loses, -np.inf, hi)


def snap(gamma: np.ndarray) -> np.ndarray:
    """gamma, or the multiple of 1/64000 that it misses by rounding alone.

    log 125 / log 5 is 3 in mathematics and 3.0000000000000004 in floats: a tie made on purpose, at 0.5 or 0.1 or 3,
    would be missed by the last bits of two logarithms.
    """
    near = np.rint(gamma * 64000) / 64000
    return np.where(np.abs(gamma - near) <= 1e-13 * np.abs(near), near, gamma)


def intervals(
    logits: np.ndarray, labels: np.ndarray, rule: Rule, range: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """lo [N] and hi [N] of one chunk of logits [N, K]."""
    wide, classes = logits.astype(np.float64), np.arange(logits.shape[1])
    true = np.take_along_axis(wide, labels[:, None], axis=1)
    lo, hi = wins(np.broadcast_to(true, wide.shape), wide, rule.slopes - rule.slopes[labels][:, None],
                  labels[:, None] <= classes, multiplies=rule.multiplies)
    lo, hi = np.maximum(lo.max(axis=1), range[0]), np.minimum(hi.min(axis=1), range[1])
    return np.where(lo > hi, np.inf, lo), np.where(lo > hi, -np.inf, hi)


def _log_ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``log(a / b)`` of magnitudes, to the last bits even where a and b are nearly equal; 0 where both are 0."""
    small, large = np.minimum(a, b), np.maximum(a, b)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = np.log1p((large - small) / small)
        if not np.isfinite(size).all():
            size = np.where(np.isfinite(size), size, np.log(large) - np.log(small))
    return np.where(large == small, 0.0, np.where(a >= b, size, -size))
