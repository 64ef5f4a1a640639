"""How scores depend on one strength, a `Direction`, and where two classes have the same score on it.

The score of class k at gamma is ``l_k r_k^gamma`` (or ``l_k + gamma log r_k``). No logit changes its
sign, and where two logits have the same sign, the logarithms of their scores are straight lines in
gamma. So two classes change their order at one gamma at most: their *crossing*.

**Ties.** One rule holds for the path and for every choice on it. At the very gamma at which scores are
equal, the first of these classes wins, as in numpy's argmax; between such gammas no scores are equal. At
0, scores are the logits, compared as they are. Elsewhere two scores are equal at the float nearest to
their crossing, and a crossing within 1e-13 of a multiple of 1/64000 is that multiple (see `snap`). A class
that loses the tie wins from the next float on. What is chosen (`Curve.plateau`, `Curve.middle`) is 0, or a
gamma away from every change. There an argmax of the adjusted logits in float64 gives the same predictions,
unless the logits are so large that float64 loses what gamma adds to them.

A crossing is right to about three units in its last place, given the float64 slopes; that of a GPU may
differ in the last bits. `bench/trust/exact_numbers.py` compares all of them with exact arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# A logarithm of a quotient that is nearer to 0, or farther from it, is computed in another way.
NEAR_ONE = 1 / 16
FAR_FROM_ONE = 700.0
SMALLEST = float(np.nextafter(0, 1))
STEPS = 128  # of a table: more would tell few lines more apart, and take longer to make


@dataclass(frozen=True, eq=False)
class Direction:
    """The scores of K classes as a function of gamma.

    ``l_k r_k^gamma`` or, if it adds, ``l_k + gamma log r_k``.

    It is all that the path knows of a rule: rescale is ``r_k = n_max / n_k``, tau is ``1 / ||w_k||``, shift
    is the ratios of rescale, added by their logarithms.

    Args:
        name: of the rule.
        ratios: [K], r above, all positive.
        multiplies: whether scores are multiplied, and not added to.

    >>> Direction("rescale", np.array([1.0, 4.0])).scores(np.array([[3.0, 2.0]]), 0.5)
    array([[3., 4.]])
    """

    name: str
    ratios: np.ndarray
    multiplies: bool = True

    @property
    def slopes(self) -> np.ndarray:
        """Slopes ``a_k = log r_k``, [K]. Equal ratios have equal slopes, to the bit."""
        return np.log(self.ratios)

    @np.errstate(over="ignore")  # of masked scores, which stay the lowest
    def scores(self, logits: np.ndarray, gamma: float | np.ndarray) -> np.ndarray:
        """Return scores [N, K] in float64, at one gamma or at one per row, [N, 1].

        The plain formula. The engines do not use it, as they must not overflow; it is what they are
        compared with.
        """
        wide = logits.astype(np.float64)
        if self.multiplies:
            return wide * self.ratios**gamma
        return wide + gamma * self.slopes


def comes_before(
    own: np.ndarray,
    other: np.ndarray,
    rise: np.ndarray,
    first: np.ndarray,
    gamma: float,
    *,
    multiplies: bool,
) -> np.ndarray:
    """Return whether a class comes before another one at gamma, for pairs of float64 logits.

    Scores are not compared, as their rounding would decide near a tie. Gamma is compared with the
    crossing of the two lines instead, which is known to its last bits.

    Args:
        own, other: logits of the two classes, [P].
        rise: slope of the other class less that of the own, [P].
        first: whether the own class has the smaller index, and so wins a tie, [P].
        gamma: where.
        multiplies: as that of the `Direction`.
    """
    at = crossing(own, other, rise, multiplies=multiplies)
    # The steeper line is ahead above the crossing. Of two negative scores, the one that grows faster
    # in size is behind; two scores that cross have the same sign.
    if multiplies:
        leads_below = (rise > 0) == (own > 0)
    else:
        leads_below = rise > 0
    before = np.where(leads_below, gamma < at, gamma > at) | (first & (gamma == at))
    # No crossing, as of equal slopes, opposite signs or a zero: logits decide for every gamma.
    always = (own > other) | ((own == other) & first)
    return np.where(np.isfinite(at), before, always)


def crossing(
    own: np.ndarray, other: np.ndarray, rise: np.ndarray, *, multiplies: bool
) -> np.ndarray:
    """Return the gamma at which two classes have the same score, as in `comes_before`.

    ``log(own / other) / rise`` where scores are multiplied, ``(own - other) / rise`` where they are added
    to; to its last bits, and the same whichever of the two classes is the own one.

    Args:
        own, other, rise, multiplies: as in `comes_before`, [P] each.

    Returns:
        [P]; not finite if there is no such gamma, or if every gamma is one.

    >>> crossing(np.array([4.0]), np.array([2.0]), np.log([4.0]), multiplies=True)  # 4 = 2 * 4^(1/2)
    array([0.5])
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        if multiplies:
            # own r^gamma = other (r e^rise)^gamma at log(own / other) / rise. The steeper class is
            # always the denominator, so that either of the two gets the same bits.
            steeper = rise > 0
            above = np.where(steeper, own, other)
            below = np.where(steeper, other, own)
            return snap(log_ratio(above, below) / np.abs(rise))
        at = snap((own - other) / rise)
        # Where the quotient underflows, it is not a tie at 0.
        unequal = np.nonzero((at == 0) & (own != other))
        at[unequal] = np.copysign(SMALLEST, at[unequal])
        return at


def snap(gamma: np.ndarray) -> np.ndarray:
    """Return gamma, or the multiple of 1/64000 that it misses only by rounding.

    64000 is 2^9 5^3, so that all gammas of up to three decimals, and halves, quarters and so on down to
    1/512, are such multiples: the round numbers that people type and counts in round ratios tie at.
    """
    # log 125 / log 5 is 3 in mathematics and 3.0000000000000004 in floats. Without this, the last
    # bits of two logarithms would miss a tie at a round number such as 0.5, 0.1 or 3.
    scaled = gamma * 64000
    near = np.rint(scaled)
    off = np.abs(scaled - near)
    # Most are not near a multiple: the exact test is for the few that are.
    few = np.nonzero(off < 1e-4)
    snapped = gamma.copy()
    snapped[few] = np.where(off[few] <= 1e-13 * np.abs(near[few]), near[few] / 64000, gamma[few])
    return snapped


def log_ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return ``log(a / b)`` to its last bits.

    It is 0 only where a = b, and not finite where signs differ or one of them is 0.

    Args:
        a, b: [P] each, in float64, of any size and sign.
    """
    gap = np.log(a / b)
    size = np.abs(gap)
    # Where a / b is near 1, most of the bits of its logarithm are lost: log1p keeps them. Where it is
    # very large or small, it overflows or is denormal: the difference of two logarithms is not.
    inexact = np.nonzero((size < NEAR_ONE) | (size > FAR_FROM_ONE))
    if len(inexact[0]):
        x = a[inexact]
        y = b[inexact]
        near = size[inexact] < 1
        same_sign = (x < 0) == (y < 0)
        far_apart = np.where(same_sign, np.log(np.abs(x)) - np.log(np.abs(y)), np.nan)
        close = np.log1p(np.where(near, (x - y) / y, 0.0))
        gap[inexact] = np.where(near, close, far_apart)
    return gap


@dataclass(frozen=True, eq=False)
class MoveTable:
    """A direction at evenly spaced gammas, in the precision of the logits, with bounds on rounding.

    `reach.py` asks for all scores of a row at one gamma of its own. Powers for each row would cost more
    than all else; a row of this table, and a margin for what that and float32 miss, will do.

    Args:
        gammas: [G].
        moves: [G, K], factors of the logits, the largest of each gamma 1; or what is added to them,
            the largest 0. So no score overflows, and the order of scores stays.
        relative, absolute: how far rounding moves a score, by its size and beside that.
        apply: the ufunc that makes a score of a logit and a move.
    """

    gammas: np.ndarray
    moves: np.ndarray
    relative: float
    absolute: float
    apply: np.ufunc

    @staticmethod
    def of(direction: Direction, range: tuple[float, float], dtype: type[np.floating]) -> MoveTable:
        """Tabulate a direction over a range, for logits of one dtype.

        Args:
            direction: how scores depend on gamma.
            range: from and to, both of which are in the table.
            dtype: of the logits, in which scores will be computed.
        """
        precision = np.finfo(dtype)
        gammas = np.linspace(*range, STEPS + 1)
        moves = gammas[:, None] * direction.slopes
        # The same for all classes changes no order: the largest becomes 0, so that its factor is 1.
        moves -= moves.max(axis=1, keepdims=True)
        # A product is off by a part of itself; a sum also by a part of what is added.
        if direction.multiplies:
            absolute = precision.tiny
        else:
            absolute = 64 * precision.eps * np.abs(moves).max()
        if moves.min() > -16:
            # Rounded now, an exponent moves its exponential by a small part of the bound only.
            moves = moves.astype(dtype)
        if direction.multiplies:
            moves = np.exp(moves)
            apply = np.multiply
        else:
            apply = np.add
        moves = moves.astype(dtype, copy=False)
        return MoveTable(gammas, moves, float(64 * precision.eps), float(absolute), apply)

    def positions(self, gamma: np.ndarray) -> np.ndarray:
        """Return where each gamma lies: a whole number is an index, a fraction between two."""
        low = self.gammas[0]
        high = self.gammas[-1]
        return (gamma - low) / (high - low) * (len(self.gammas) - 1)

    def margin(self, score: np.ndarray) -> np.ndarray:
        """Return how far below a score [n] another can be and still, unrounded, be ahead of it.

        It errs on the wide side: a line that is kept for nothing costs a little time, one that is
        dropped wrongly would be a wrong prediction.
        """
        kind = score.dtype.type
        return np.abs(score) * kind(self.relative) + kind(self.absolute)
