"""Step functions of gamma, known at every breakpoint.

An error over gamma is such a function: it changes only where a prediction does. `accumulate` makes
a `Curve` of its changes, `Curve.plateau` finds where it is lowest, and `Curve.middle` the gamma to
choose there. The middle of a wide stretch, and not its first gamma: a choice at the edge of a change is decided
by rounding, and by the one sample that changes there.

`ascending` and `stable_order` are two sorts that the path spends much of its time in, written so that numpy
can use its fastest ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..support.errors import LevelheadError

# A stretch of gammas narrower than this is between two changes that nobody can choose between: adjusted
# logits, rounded to float64, need not show that one comes before the other.
SLIVER = 1e-9


@dataclass(frozen=True, eq=False)
class Curve:
    """A step function: values[i] holds from gammas[i] to just before gammas[i + 1].

    Args:
        gammas: [B], the breakpoints, ascending; the first is where the curve begins.
        values: [B].
        end: up to which the last value holds, inclusive.

    >>> curve = Curve(np.array([0.0, 0.5, 1.5]), np.array([0.3, 0.1, 0.2]), 2.0)
    >>> curve.at([0.4, 0.5]), curve.plateau(), curve.middle(curve.plateau())
    (array([0.3, 0.1]), (0.5, 1.5), 1.0)
    """

    gammas: np.ndarray
    values: np.ndarray
    end: float

    def at(self, gamma: float | np.ndarray | list[float]) -> np.ndarray | float:
        """Return the value at one gamma, or the values at many.

        Args:
            gamma: within [gammas[0], end]. At a breakpoint, the value from there on.

        Returns:
            A float of one gamma, an array of the same shape of many.

        Raises:
            LevelheadError: a gamma outside of the range: nothing is known there.
        """
        where = np.asarray(gamma, np.float64)
        if np.any((where < self.gammas[0]) | (where > self.end)) or np.isnan(where).any():
            bounds = f"[{self.gammas[0]:g}, {self.end:g}]"
            raise LevelheadError(
                f"expected a value within {bounds}, got {gamma}", parameter="gamma"
            )
        values = self.values[np.searchsorted(self.gammas, where, side="right") - 1]
        if values.ndim == 0:
            return float(values)
        return values

    def plateau(self, tolerance: float = 1e-12) -> tuple[float, float]:
        """Return the widest stretch (a, b) on which the curve is lowest; of equals, the first.

        Values as close as the tolerance count as equal: they may be sums of the same terms in another
        order. A sliver, narrower than 1e-9, is not taken for its value unless 0 is in it: rounding of
        scores, and not gamma, would decide which side of its ends one is on. At 0, scores are the
        logits themselves.

        Args:
            tolerance: how far above the lowest value a step still counts as lowest.
        """
        lowest = self._lowest(tolerance)
        widest = int(np.argmax(lowest.stop - lowest.start))
        return float(lowest.start[widest]), float(lowest.stop[widest])

    def plateau_at_zero(self, tolerance: float = 1e-12) -> tuple[float, float] | None:
        """Return the stretch around 0 if the curve is flat but for slivers; None if it is not.

        Then no gamma is better than the model as it is, and 0 should be chosen: the middle of a flat
        range would change predictions for nothing.
        """
        lowest = self._lowest(tolerance)
        around = np.flatnonzero((lowest.start <= 0) & (lowest.stop > 0))
        if not lowest.flat or not len(around):
            return None
        return float(lowest.start[around[0]]), float(lowest.stop[around[0]])

    def middle(self, plateau: tuple[float, float]) -> float:
        """Return the gamma to choose on a plateau: its middle, or 0 on a sliver around 0.

        A plateau may hold breakpoints of its own, where changes cancel. The choice keeps away from
        these, too.
        """
        a, b = plateau
        if b - a <= SLIVER:
            if a <= 0 < b:
                return 0.0
            return a
        middle = a + (b - a) / 2
        first = np.searchsorted(self.gammas, a, side="right")
        inside = self.gammas[first : np.searchsorted(self.gammas, b)]
        if not len(inside) or np.abs(inside - middle).min() > SLIVER / 2:
            return middle
        # Changes at the middle cancel, unless rounding parts them: the middle of the widest stretch
        # between two changes is away from all of them.
        edges = np.concatenate([[a], inside, [b]])
        widest = int(np.argmax(np.diff(edges)))
        return float(edges[widest] + (edges[widest + 1] - edges[widest]) / 2)

    def _lowest(self, tolerance: float) -> _Stretches:
        """Return the stretches on which the curve is within the tolerance of its lowest value.

        Steps are grouped into runs of low ones. A run of slivers alone is left out, unless there is
        nothing else: a curve of infinities but for slivers, as floors that are hardly met make it.
        """
        ends = np.append(self.gammas[1:], self.end)
        # Steps that count: those that are no slivers, and the one that holds 0.
        counts = (ends - self.gammas > SLIVER) | ((self.gammas <= 0) & (ends > 0))
        if not np.isfinite(self.values[counts]).any():
            counts[:] = True  # a narrow range, or floors that only slivers meet
        low = self.values <= self.values[counts].min() + tolerance
        # A stretch opens where a low step follows one that is not, and closes before such a one.
        first = np.flatnonzero(low & ~np.append(False, low[:-1]))
        last = np.flatnonzero(low & ~np.append(low[1:], False))
        if len(first):  # stretches of more than slivers
            kept = np.add.reduceat(low & counts, first) > 0
            first = first[kept]
            last = last[kept]
        return _Stretches(self.gammas[first], ends[last], bool(low[counts].all()))

    def complement(self) -> Curve:
        """Return ``1 - self``: errors from accuracies."""
        return Curve(self.gammas, 1 - self.values, self.end)


@dataclass(frozen=True, eq=False)
class _Stretches:
    """Where a curve is lowest."""

    start: np.ndarray  # [S]
    stop: np.ndarray  # [S]
    flat: bool  # whether no part of the curve but slivers is higher


def accumulate(
    start: float, gammas: np.ndarray, steps: np.ndarray, range: tuple[float, float]
) -> Curve:
    """Return the curve that begins at `start` and changes by steps[i] at gammas[i], which ascend.

    Several steps at one gamma become one breakpoint: between them the curve was never anything.

    Args:
        start: the value at the start of the range.
        gammas: [E], ascending, within the range.
        steps: [E], by how much the value changes at each.
        range: from and to; the first breakpoint is the start of it.

    >>> accumulate(0.5, np.array([0.2, 0.2, 1.0]), np.array([0.1, -0.3, 0.2]), (0.0, 2.0)).gammas
    array([0. , 0.2, 1. ])
    """
    at = np.concatenate([range[:1], gammas])
    totals = np.cumsum(np.concatenate([[start], steps]))
    same = at[1:] == at[:-1]
    if same.any():
        last = np.append(~same, True)  # of several steps at one gamma
        at = at[last]
        totals = totals[last]
    return Curve(at, totals, range[1])


def ascending(gammas: np.ndarray) -> np.ndarray:
    """Return np.argsort(gammas, kind="stable"), in a third of the time.

    numpy sorts plain integers much faster than it finds a stable order. So value and position are packed
    into one integer, sorted, and the position is unpacked. That is exact unless two values differ only
    in the bits that the position has taken, which is checked at the end.

    Args:
        gammas: [E], finite float64.
    """
    # Floats are ordered as the integers of their bits are; of negative ones, all bits but the sign are
    # turned. Adding 0 makes 0 of -0.
    bits = (gammas + 0.0).view(np.int64)
    whole = bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
    # The last bits of each are replaced by its position, so that a plain sort of numbers says where
    # each came from. If two differ in those bits only, that may not be their order.
    taken = (1 << len(gammas).bit_length()) - 1
    order = np.sort(whole & ~taken | np.arange(len(gammas))) & taken
    ordered = gammas[order]
    if (ordered[1:] >= ordered[:-1]).all():
        return order
    return np.argsort(gammas, kind="stable")


def stable_order(values: np.ndarray) -> np.ndarray:
    """Return np.argsort(values, kind="stable") of whole numbers from 0 on, in less time.

    Classes are such numbers: fewer than 65,536 of them go through numpy's radix sort of 16 bits, in time
    that grows with the length alone; more are packed with their position as in `ascending`.
    """
    most = int(values.max(initial=0))
    if most < 1 << 16:  # these are sorted by radix
        return np.argsort(values.astype(np.uint16, copy=False), kind="stable")
    bits = len(values).bit_length()
    if most >> (63 - bits):  # no room for the position beside the number
        return np.argsort(values, kind="stable")
    return np.sort(values.astype(np.int64) << bits | np.arange(len(values))) & ((1 << bits) - 1)
