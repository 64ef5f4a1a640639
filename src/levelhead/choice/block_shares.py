"""Predicted shares over gamma, and how far they are from a prior, of many resamples at once."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.array import SCRATCH, usable_cores
from ..path.envelope import Envelope
from ..path.grid import SAME_VALUE, Grid
from .possible import possible_by_shares
from .replicate_groups import Groups

TABLE_NUMBERS = 1 << 18  # numbers of a table that stays in the cache
MANY = 4  # changes that are summed at once: numpy takes about as long to begin a sum as to add so many


@dataclass(frozen=True, eq=False)
class BlockShares:
    """The mismatch of predicted shares on some intervals, for a block of replicates.

    Args:
        mismatch: of what, on which grid.
        likely: the first and the last interval on which the choice is likely to fall.
    """

    mismatch: Any
    likely: tuple[int, int]

    def add(self, values: np.ndarray, mass: np.ndarray, guide: np.ndarray) -> np.ndarray:
        """Return values [B, G] plus `guide` [B] times the mismatch; infinite where that cannot be the lowest.

        Args:
            values, guide: the rest of the criterion; the weight of the mismatch.
            mass: [B, M], weights of the samples, which sum to 1.
        """
        first, last = self.likely
        while True:
            part = values[:, first : last + 1] + guide[:, None] * self.between(first, last, mass)
            open_still = values <= part.min(axis=1, keepdims=True) + 2 * SAME_VALUE
            open_still[:, first : last + 1] = False
            outside = np.flatnonzero(open_still.any(axis=0))
            if not len(outside):
                break
            first, last = min(first, int(outside[0])), max(last, int(outside[-1]))
        found = np.full_like(values, np.inf)
        found[:, first : last + 1] = part
        return found

    def between(self, first: int, last: int, mass: np.ndarray) -> np.ndarray:
        """Return the mismatch on the intervals from `first` to `last`, [B, ...]; the masses [B, M] sum to 1."""
        by_start, opens, classes, samples, signs, cells, sizes, by_bin, runs, bins = self._steps(first, last)
        off = np.tile(-self.mismatch.prior, (len(mass), 1))
        start = mass.take(by_start, axis=1, out=SCRATCH.table("start", (len(mass), len(by_start))), mode="clip")
        off[:, classes] += np.add.reduceat(start, opens, axis=1)
        found = np.zeros((len(mass), last - first + 1))
        found[:, 0] = np.abs(off).sum(axis=1)
        if len(samples):
            some = np.flatnonzero(sizes)
            heads = (np.cumsum(sizes) - sizes)[some]
            moves = mass.take(samples, axis=1, out=SCRATCH.table("moves", (len(mass), len(samples))), mode="clip")
            moves *= signs
            steps, moved = (SCRATCH.table(name, (len(mass), len(by_bin))) for name in ("steps", "moved"))
            if cells is not None:
                moves = np.add.reduceat(moves, cells, axis=1)
            np.cumsum(moves, axis=1, out=steps)
            before = np.where(heads > 0, steps[:, heads - 1], 0.0)
            steps += np.repeat(off[:, some] - before, sizes[some], axis=1)  # how far off a class is after each change
            np.abs(steps, out=steps)
            np.subtract(steps[:, 1:], steps[:, :-1], out=moved[:, 1:])
            moved[:, heads] = steps[:, heads] - np.abs(off[:, some])
            moved.take(by_bin, axis=1, out=steps, mode="clip")
            found[:, bins - first] += np.add.reduceat(steps, runs, axis=1)
        np.cumsum(found, axis=1, out=found)
        found /= 2
        return found

    def _steps(self, first: int, last: int) -> tuple[np.ndarray, ...]:
        """Return the samples by their prediction on the interval `first`, and every change up to `last`; remembered.

        Changes of one class on one interval are summed at once if they are many.
        """
        known = self.__dict__.setdefault("_known", {})
        if (first, last) not in known:
            changes, grid = self.mismatch.changes, self.mismatch.grid
            start = changes.predictions(grid.middles[first])
            by_start = np.argsort(start, kind="stable")
            classes, opens = np.unique(start[by_start], return_index=True)
            order, signed, sizes, _ = changes.by_class
            bins = grid.bins(changes.gamma)[order]
            kept = np.flatnonzero((bins > first) & (bins <= last))
            changed, bins = np.repeat(np.arange(len(sizes)), sizes)[kept], bins[kept]
            lost, sample = np.divmod(signed[kept], len(start))
            new = (np.diff(changed, prepend=-1) != 0) | (np.diff(bins, prepend=-1) != 0)
            cells = np.flatnonzero(new) if MANY * new.sum() < len(new) else None
            if cells is not None:
                changed, bins = changed[cells], bins[cells]
            by_bin = np.argsort(bins, kind="stable")
            unique, runs = np.unique(bins[by_bin], return_index=True)
            size = np.bincount(changed, minlength=len(sizes))
            known[first, last] = (
                *(by_start, opens, classes, sample, np.where(lost, -1.0, 1.0)),
                *(cells, size, by_bin, runs, unique),
            )
        return known[first, last]


def choose_by_shares(mismatch: Any, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the gamma that each of n resamples chooses by the mismatch of shares alone, [n].

    Args:
        mismatch: a ShareMismatch, of samples that weigh the same.
        n, rng: how many; a generator.
    """
    changes, (first, last) = mismatch.changes, possible_by_shares(mismatch)
    groups, few = group_predictions(changes, mismatch.grid, first, last)
    grid, whole = Grid(mismatch.grid.edges[first : last + 2]), last - first + 1 == len(mismatch.grid.middles)
    shares = BlockShares(replace(mismatch, changes=few, grid=grid), (0, last - first))
    size = max(1, min(64, TABLE_NUMBERS // len(groups.sizes)))
    sizes = [min(size, n - first) for first in range(0, n, size)]

    def choose(count: int, seed: int) -> np.ndarray:
        mass = groups.draw(count, np.random.Generator(np.random.SFC64(seed)))
        mass /= len(changes.start)
        return grid.choose_rows(shares.between(*shares.likely, mass), prefer_zero=whole)

    with ThreadPoolExecutor(usable_cores()) as pool:
        found = list(pool.map(choose, sizes, rng.integers(1 << 63, size=len(sizes)).tolist()))
    return np.concatenate([np.zeros(0), *found])


def group_predictions(changes: Envelope, grid: Grid, first: int, last: int) -> tuple[Groups, Envelope]:
    """Return samples without a label in groups of those that are predicted alike on some intervals, and their changes.

    Args:
        changes, grid: the predictions over gamma; the intervals.
        first, last: the first and the last interval that counts.

    Returns:
        The groups, and the changes on these intervals with groups in place of samples.
    """
    some = changes.between(*grid.middles[[first, last]])
    groups = Groups.of(np.zeros(len(some.start), np.int64), [some.start], changing(some))
    return groups, group_changes(some, groups)


def changing(changes: Envelope) -> np.ndarray:
    """Return which samples have a change, [N] bool."""
    found = np.zeros(len(changes.start), bool)
    found[changes.sample] = True
    return found


def group_changes(changes: Envelope, groups: Groups) -> Envelope:
    """Return the changes with groups in place of samples."""
    return replace(changes, start=changes.start[groups.first], sample=groups.member[changes.sample])
