"""How scores depend on one strength, a `Direction`, and where two classes have the same score on it.

The score of class k at gamma is ``l_k r_k^gamma`` (or ``l_k + gamma log r_k``). No logit changes its sign, and where
two logits have the same sign, the logarithms of their scores are straight lines in gamma. So "y comes before k" holds
on a half-line, and y wins on the intersection of K - 1 half-lines, which is an interval ``[lo, hi]``.

**Ties.** One rule holds for the path, the envelope, the objective and the choice. At the very gamma at which scores are
equal, the first of these classes wins, as in numpy's argmax; between such gammas no scores are equal. At 0, scores are
the logits, compared as they are. Elsewhere two scores are equal at the float nearest to their crossing, and a crossing
within 1e-13 of a multiple of 1/64000 is that multiple (see `snap`). An open end is stored as the next float inside, so
the sample is right if and only if ``lo <= gamma <= hi``. A sample that is never right has lo > hi. What is chosen
(`Curve.plateau`, `Curve.middle`) is 0, or a gamma away from every change. There an argmax of the adjusted logits in
float64 gives the same predictions, unless the logits are so large that float64 loses what gamma adds to them.

A crossing is right to about three units in its last place, given the float64 slopes. The engines numpy and
top-k compute it by the same operations of numpy; torch may differ in the last bits. `bench/trust/exact_numbers.py`
compares all engines with exact arithmetic.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Direction:
    """The scores of the K classes as a function of gamma: ``l_k r_k^gamma`` or, if added, ``l_k + gamma log r_k``."""

    name: str  # of the rule
    ratios: np.ndarray  # [K], r above
    multiplies: bool = True
    bias: np.ndarray | None = (
        None  # [K], of ``(l_k - b_k) r_k^gamma + b_k``; None if it is scaled too, or not there
    )

    @property
    def slopes(self) -> np.ndarray:
        """Slopes ``a_k = log r_k``, [K]. Equal ratios have equal slopes, to the bit."""
        return np.log(self.ratios)

    @np.errstate(over="ignore")  # of masked scores, which stay the lowest
    def scores(self, logits: np.ndarray, gamma: float | np.ndarray) -> np.ndarray:
        """Return scores [N, K] of logits [N, K] in float64, at one gamma or at one per row ([N, 1])."""
        wide = logits.astype(np.float64)
        if not self.multiplies:
            return wide + gamma * self.slopes
        if self.bias is None:
            return wide * self.ratios**gamma
        return (wide - self.bias) * self.ratios**gamma + self.bias

    def affine(self, gamma: float) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return by what logits are multiplied and what is added then, [K] each, at gamma; None for nothing."""
        scale = self.ratios**gamma if self.multiplies else None
        if scale is None:
            return None, gamma * self.slopes
        return scale, None if self.bias is None else (1 - scale) * self.bias


NEVER = (np.inf, -np.inf)
NEAR_ONE, FAR_FROM_ONE = (
    1 / 16,
    700.0,
)  # a logarithm of a quotient within or beyond these is computed otherwise
SMALLEST = float(np.nextafter(0, 1))


def winning_range(
    true: np.ndarray, other: np.ndarray, rise: np.ndarray, first: np.ndarray, *, multiplies: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each pair of float64 logits, the half-line ``[lo, hi]`` on which `true` comes before `other`."""
    # `rise` is the slope of `other` less that of `true`, and `first` whether `true` wins a tie, by its smaller index.
    at = crossing(true, other, rise, multiplies=multiplies)
    # The steeper line is ahead above the crossing. Of two negative scores, the one that grows faster in size is behind;
    # two scores that cross have the same sign.
    below = (
        (rise > 0) == (true > 0) if multiplies else rise > 0
    )  # y wins below the crossing, or above it
    fixed = np.nonzero(~np.isfinite(at))  # no crossing: equal slopes, opposite signs, a zero
    # At the crossing itself scores are equal, and the smaller index wins. If that is not y, its half-line is open: it
    # is the closed one that ends at the next float inside.
    at = np.where(first, at, np.nextafter(at, np.where(below, -np.inf, np.inf)))
    lo, hi = np.where(below, -np.inf, at), np.where(below, at, np.inf)
    leads = (true[fixed] > other[fixed]) | ((true[fixed] == other[fixed]) & first[fixed])
    lo[fixed], hi[fixed] = np.where(leads, -np.inf, NEVER[0]), np.where(leads, np.inf, NEVER[1])
    return lo, hi


def intersect(lo: np.ndarray, hi: np.ndarray, low: Any, high: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of each interval [lo, hi] within [low, high]."""
    lo, hi = np.maximum(lo, low), np.minimum(hi, high)
    return np.where(lo > hi, NEVER[0], lo), np.where(lo > hi, NEVER[1], hi)


def crossing(
    true: np.ndarray, other: np.ndarray, rise: np.ndarray, *, multiplies: bool
) -> np.ndarray:
    """Return the gamma at which two classes have the same score; not finite if there is none, or every gamma is one."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        if multiplies:  # the same bits for either of the two
            steeper = rise > 0
            return snap(
                log_ratio(np.where(steeper, true, other), np.where(steeper, other, true))
                / np.abs(rise)
            )
        at = snap((true - other) / rise)
        unequal = np.nonzero((at == 0) & (true != other))  # the quotient underflows: not a tie at 0
        at[unequal] = np.copysign(SMALLEST, at[unequal])
        return at


def snap(gamma: np.ndarray) -> np.ndarray:
    """Return gamma, or the multiple of 1/64000 that it misses only by rounding."""
    # log 125 / log 5 is 3 in mathematics and 3.0000000000000004 in floats. Without this, the last bits of two
    # logarithms would miss a tie at a round number such as 0.5, 0.1 or 3.
    scaled = gamma * 64000
    near = np.rint(scaled)
    off = np.abs(scaled - near)
    few = np.nonzero(off < 1e-4)
    snapped = gamma.copy()
    snapped[few] = np.where(off[few] <= 1e-13 * np.abs(near[few]), near[few] / 64000, gamma[few])
    return snapped


def log_ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return ``log(a / b)`` to its last bits: 0 only where a = b, not finite where signs differ or one is 0."""
    # Where a / b is near 1, most of its bits are lost; where it is very large or small, it overflows or is denormal.
    gap = np.log(a / b)
    size = np.abs(gap)
    inexact = np.nonzero((size < NEAR_ONE) | (size > FAR_FROM_ONE))
    if len(inexact[0]):
        x, y, near = a[inexact], b[inexact], size[inexact] < 1
        apart = np.where((x < 0) == (y < 0), np.log(np.abs(x)) - np.log(np.abs(y)), np.nan)
        gap[inexact] = np.where(near, np.log1p(np.where(near, (x - y) / y, 0.0)), apart)
    return gap


def fine_steps(classes: int) -> int:
    """Return in how many steps a fine table covers the range: of half a million numbers in all."""
    return min(1024, max(64, (1 << 19) // classes))


@dataclass(frozen=True, eq=False)
class TabulatedRule:
    """A rule at evenly spaced gammas, in the precision of the logits, with bounds on the rounding of scores."""

    gammas: np.ndarray
    moves: np.ndarray  # [., K], factors of the logits or what is added; divided by the largest, so that none overflows
    relative: float
    absolute: float
    apply: np.ufunc  # makes a score of a logit and a move

    @staticmethod
    def of(
        rule: Direction, range: tuple[float, float], dtype: Any, *, fine: bool = False
    ) -> "TabulatedRule":
        """Tabulate a rule for logits of one dtype, at 65 gammas; or finely, at up to 1025 in half a million numbers."""
        steps = fine_steps(len(rule.ratios)) if fine else 64
        gammas, kind = np.linspace(*range, steps + 1), np.finfo(dtype)
        moves = gammas[:, None] * rule.slopes
        moves -= moves.max(axis=1, keepdims=True)
        absolute = kind.tiny if rule.multiplies else 64 * kind.eps * np.abs(moves).max()
        if (
            moves.min() > -16
        ):  # what rounding of it moves its exponential is then a small part of the bounds
            moves = moves.astype(dtype)
        moves = (np.exp(moves) if rule.multiplies else moves).astype(dtype, copy=False)
        return TabulatedRule(
            gammas, moves, 64 * kind.eps, absolute, np.multiply if rule.multiplies else np.add
        )

    def positions(self, gamma: np.ndarray) -> np.ndarray:
        """Return where each gamma lies in the table: a whole number is an index, a fraction lies between two."""
        return (
            (gamma - self.gammas[0]) / (self.gammas[-1] - self.gammas[0]) * (len(self.gammas) - 1)
        )

    def margin(self, own: np.ndarray) -> np.ndarray:
        """Return how far below y's own score [n] another can be and still be ahead of it without rounding."""
        return np.abs(own) * own.dtype.type(self.relative) + own.dtype.type(self.absolute)
