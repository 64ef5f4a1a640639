"""Weights of samples, given, drawn or dealt into folds; and the grid of gammas on which their curves are compared."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..path.curve import SLIVER, Curve, ascending, stable_order
from ..support.arrays import Array, to_numpy
from ..support.errors import LevelheadError

STRENGTH = 20.0  # of ``min(1, 20 s)``, by which a mismatch of shares counts in a choice
SAME_VALUE = 1e-10  # values closer than this are equal: they differ by rounding


@dataclass(frozen=True, eq=False)
class Grid:
    """Intervals of gamma, of which each holds its first edge. Step functions are evaluated in the middle of each."""

    edges: np.ndarray  # [G + 1], ascending; if every event is one, values are exact everywhere (ties: `direction.py`)

    @staticmethod
    def between(events: np.ndarray, range: tuple[float, float], most: int | None = None) -> "Grid":
        """Return the intervals between all events or, if those are more than `most`, as many of equal width."""
        low, high = range
        inside = np.sort(
            events[(events > low) & (events <= high)], kind="stable"
        )  # of a few sorted parts
        inside = inside[np.append(True, inside[1:] != inside[:-1])] if len(inside) else inside
        if most is None or len(inside) < most:
            return Grid(np.concatenate([[low], inside, [high]]))
        even = np.linspace(low, high, most + 1)
        # Scores that tie at 0 change next to it: 0 is then an interval by itself.
        tied = low <= 0 < high and (np.abs(events) <= SLIVER).any()
        return Grid(np.unique(np.append(even, [0.0, np.nextafter(0.0, 1.0)])) if tied else even)

    @cached_property
    def middles(self) -> np.ndarray:
        """The middle of each interval, [G]: its first edge, if no other float is in it."""
        middles = (self.edges[1:] + self.edges[:-1]) / 2
        return np.where(middles < self.edges[1:], middles, self.edges[:-1])

    @cached_property
    def wide(self) -> np.ndarray:
        """Whether an interval can be chosen by itself, [G]: slivers cannot, but for the one that holds 0."""
        begins, ends = self.edges[:-1], self.edges[1:]
        return (ends - begins > SLIVER) | ((begins <= 0) & (ends > 0))

    def part(self, first: int, n: int) -> "Grid":
        """Return n of the intervals, from the first on."""
        return Grid(self.edges[first : first + n + 1])

    def bins(self, gammas: np.ndarray) -> np.ndarray:
        """Return the first interval by whose middle each event has happened; the gammas ascend."""
        if len(gammas) >= max(1, len(self.middles) - 1):
            opened = np.cumsum(np.append(gammas[0] > self.edges[0], gammas[1:] != gammas[:-1]))
            if opened[-1] == len(self.middles) - 1 and (self.edges[opened] == gammas).all():
                return opened  # the intervals are those between the gammas
        if len(gammas) < len(self.middles):
            return np.searchsorted(self.middles, gammas)
        upto = np.searchsorted(gammas, self.middles, side="right")
        return np.repeat(np.arange(len(upto) + 1), np.diff(upto, prepend=0, append=len(gammas)))

    def accumulate(self, start: float, bins: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return the values [G] of a step function that begins at `start`."""
        return add_up(start, bins, steps, len(self.edges) - 1)

    def curve(self, values: np.ndarray) -> Curve:
        """Return values [G] as a curve."""
        return Curve(self.edges[:-1], values, float(self.edges[-1]))

    def choose(
        self, values: np.ndarray, *, prefer_zero: bool = True
    ) -> tuple[float, tuple[float, float]]:
        """Return gamma and the widest plateau on which values [G] are lowest: its middle, or 0 if all are equal."""
        curve = self.curve(values)
        unchanged = curve.plateau_at_zero(SAME_VALUE) if prefer_zero else None
        if unchanged is not None:
            return 0.0, unchanged
        plateau = curve.plateau(SAME_VALUE)
        return curve.middle(plateau), plateau

    def lowest(self, values: np.ndarray) -> int:
        """Return the interval of the lowest of values [G] that can be chosen by itself, or of all if none can."""
        return int(np.argmin(np.where(self.wide, values, np.inf) if self.wide.any() else values))

    def choose_rows(self, values: np.ndarray, *, prefer_zero: bool = True) -> np.ndarray:
        """Return the gamma that `choose` gives for each row of values [B, G]; or the middle of each widest plateau."""
        begins, ends, wide = self.edges[:-1], self.edges[1:], self.wide
        least = values[:, wide].min(axis=1, initial=np.inf)
        if not np.isfinite(least).all():  # only slivers can be chosen
            return np.array([self.choose(row, prefer_zero=prefer_zero)[0] for row in values])
        # Stretches of low intervals, row by row: each begins where the one before is not low, and stops likewise. Of a
        # row's stretches that hold a wide interval, the widest is taken, and of equal ones the first.
        low = np.zeros((len(values), len(begins) + 2), bool)
        np.less_equal(values, least[:, None] + SAME_VALUE, out=low[:, 1:-1])
        row, start = np.nonzero(low[:, 1:-1] & ~low[:, :-2])
        stop = np.nonzero(low[:, 1:-1] & ~low[:, 2:])[1]
        known = np.concatenate([[0], np.cumsum(wide)])
        width = np.where(known[stop + 1] > known[start], ends[stop] - begins[start], -1.0)
        order = np.lexsort((start, -width, row))
        widest = order[np.searchsorted(row, np.arange(len(values)))]  # the rows stay in their order
        a, b = begins[start[widest]], ends[stop[widest]]
        found = np.where(b - a > SLIVER, a + (b - a) / 2, np.where((a <= 0) & (b > 0), 0.0, a))
        last = np.searchsorted(self.edges, found)
        for side in (
            last - 1,
            np.minimum(last, len(ends)),
        ):  # where a change may be at the very middle
            edge = self.edges[np.maximum(side, 0)]
            for i in np.flatnonzero((a < edge) & (edge < b) & (np.abs(edge - found) <= SLIVER / 2)):
                found[i] = self.curve(values[i]).middle((float(a[i]), float(b[i])))
        if prefer_zero and self.edges[0] <= 0 < self.edges[-1]:
            found[low[:, 1:-1][:, wide].all(axis=1)] = 0.0
        return found


def check_weights(weights: Array, size: int) -> np.ndarray:
    """Return the weights of the samples, [N], in float64."""
    masses = to_numpy(weights)
    if masses.shape != (size,) or masses.dtype.kind not in "fiub":
        got = f"{masses.dtype} of shape {list(masses.shape)}"
        raise LevelheadError(
            f"expected numbers [{size}], one per sample, got {got}", parameter="weights"
        )
    if not np.isfinite(masses).all() or (masses < 0).any() or not masses.any():
        raise LevelheadError(
            "expected finite numbers, none negative and not all 0", parameter="weights"
        )
    return masses.astype(np.float64)


def check_replicates(bootstrap: int, level: float) -> None:
    """Check the number of replicates and the level of the intervals that they give."""
    if isinstance(bootstrap, bool) or not isinstance(bootstrap, int | np.integer) or bootstrap < 0:
        raise LevelheadError(
            f"expected a number of replicates, 0 or more, got {bootstrap}", parameter="bootstrap"
        )
    if not 0 < level < 1:
        raise LevelheadError(f"expected a number between 0 and 1, got {level}", parameter="level")


def quantiles(values: np.ndarray, level: float) -> tuple[float, float] | None:
    """Return the interval that holds this share of the values; None if there are none."""
    if len(values) == 0:
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def class_mean_coefficients(
    labels: np.ndarray, weights: np.ndarray, shares: np.ndarray
) -> np.ndarray:
    """Return the coefficients [N] of a mean of class accuracies, weighted by shares [K], over the classes present."""
    totals = np.bincount(labels, weights, len(shares))
    share = np.where(totals == 0, 0.0, shares)
    each = np.divide(share / share.sum(), totals, out=np.zeros_like(share), where=totals > 0)
    return weights * each[labels]


def class_variance(change: np.ndarray, labels: np.ndarray, size: int, more: int) -> np.ndarray:
    """Return the variance of each class's mean change, [K], with `more` samples of +1 and as many of -1 in each."""
    n = np.maximum(np.bincount(labels, minlength=size) + 2 * more, 1)
    total, square = (np.bincount(labels, values, size) for values in (change, change**2))
    return ((square + 2 * more) / n - (total / n) ** 2) / n


def draw_resamples(
    labels: np.ndarray, n: int, rng: np.random.Generator, *, stratified: bool = True
) -> Iterator[np.ndarray]:
    """Yield n times how often each sample is drawn with replacement, [N]. Each class keeps its size if stratified."""
    # Sorted by class, the samples of a class are neighbors: a place within the class is its first place plus a uniform
    # number times its size, and the places of all samples are drawn in one call.
    order = np.argsort(labels, kind="stable") if stratified else np.arange(len(labels))
    group = labels[order] if stratified else np.zeros(len(labels), np.int64)
    size = np.bincount(group)
    first, size = (np.cumsum(size) - size)[group], size[group]
    for _ in range(n):
        times = np.empty(len(labels))
        times[order] = np.bincount(
            first + (rng.random(len(labels)) * size).astype(np.int64), minlength=len(labels)
        )
        yield times


FOLDS = 5  # into which samples are dealt to judge what is fitted on the others


def draw_folds(labels: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Return the fold of each sample, [N]: each class in a random order, dealt out from a random fold on."""
    order = ascending(rng.random(len(labels)))
    order = order[stable_order(labels[order])]
    sizes, found = np.bincount(labels), np.empty(len(labels), np.int64)
    begins = rng.integers(folds, size=len(sizes)) - (
        np.cumsum(sizes) - sizes
    )  # less the first place of each class
    found[order] = (np.arange(len(labels)) + np.repeat(begins, sizes)) % folds
    return found


def add_up(start: float, bins: np.ndarray, steps: np.ndarray, cells: int) -> np.ndarray:
    """Return the values [G] of a step function that begins at `start`, and has moved by each step from its bin on."""
    return start + np.cumsum(np.bincount(bins, steps, cells + 1)[:cells])
