"""Samples that replicates cannot tell apart, drawn together.

A replicate draws the samples of each stratum with replacement. Where several samples of a stratum are the same for all
that is computed, only how often they are drawn together counts, and that is binomial. So a large group costs one number
instead of one per sample, and every replicate has the same distribution as if its samples were drawn one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.array import SCRATCH

LARGE_GROUP = 16  # a group of so many samples is drawn as one number, which takes about as long as to draw so many
MOST_SAMPLES = 0.5  # if at least this share of the samples is in such groups


@dataclass(frozen=True, eq=False)
class Groups:
    """Samples in groups, stratum by stratum.

    Args:
        member: [N], the group of each sample; groups of one stratum follow each other.
        first, sizes: [M], a sample of each group, and how many it has.
        stratum: [M], the stratum of each group, from 0 on, ascending.
    """

    member: np.ndarray
    first: np.ndarray
    sizes: np.ndarray
    stratum: np.ndarray

    @staticmethod
    def of(strata: np.ndarray, keys: Sequence[np.ndarray], alone: np.ndarray) -> "Groups":
        """Return samples of one stratum and equal keys as one group, those `alone` [N] as groups of their own.

        Args:
            strata: [N], whole numbers from 0 on.
            keys: whole numbers from 0 on, [N] each.

        >>> groups = Groups.of(np.array([0, 1, 0, 0]), [np.array([5, 5, 5, 5])], np.array([False, False, False, True]))
        >>> groups.member, groups.sizes
        (array([0, 2, 0, 1]), array([2, 1, 1]))
        """
        key = strata.astype(np.int64)
        for other in (*keys, alone):
            key = key * (int(other.max(initial=0)) + 1) + other
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        opens = np.flatnonzero((np.diff(ordered, prepend=-1) != 0) | alone[order])
        sizes = np.diff(opens, append=len(order))
        member = np.empty(len(order), np.int64)
        member[order] = np.repeat(np.arange(len(opens)), sizes)
        return Groups(member, order[opens], sizes, strata[order[opens]])

    def draw(self, n: int, rng: np.random.Generator, name: str = "times") -> np.ndarray:
        """Return how often a sample of each group is drawn, [n, M]; every stratum keeps its size.

        The table is that of this name, which the next call of the thread fills anew.
        """
        large, chances, group, bounds, members = self._plan
        found = SCRATCH.table(name, (n, len(self.sizes)))
        counts = rng.multinomial(np.broadcast_to(self._totals, (n, len(self._totals))), chances) if len(group) else None
        most = int(self._totals.sum())
        room = SCRATCH.table("uniform", (most,)), *(SCRATCH.table(x, (most,), np.int64) for x in ("index", "members"))
        for row in range(n):
            span, start = self._places if counts is None else (np.repeat(x, counts[row, :, -1]) for x in bounds)
            uniform, index, group_of = room if len(span) == most else [table[: len(span)] for table in room]
            rng.random(out=uniform)
            uniform *= span
            np.copyto(index, uniform, casting="unsafe")
            index += start
            if members is not None:
                index = members.take(index, out=group_of, mode="clip")
            found[row] = np.bincount(index, minlength=len(self.sizes))
        if counts is not None:
            found[:, group] = counts[:, large[0], large[1]]
        return found

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of places of the stratum of each draw, and the first of them, if no group is large."""
        span, start = self._plan[3]
        return np.repeat(span, self._totals), np.repeat(start, self._totals)

    @cached_property
    def _totals(self) -> np.ndarray:
        """How many samples each stratum has."""
        return np.bincount(self.stratum, self.sizes).astype(np.int64)

    @cached_property
    def _plan(self) -> tuple:
        """The place of each large group in a table of chances, that table, which groups these are; for all others, the
        number of places of each stratum and the first, and the group of each place if it has another number."""
        strata, is_large = len(self._totals), self.sizes >= LARGE_GROUP
        is_large &= self.sizes[is_large].sum() >= MOST_SAMPLES * self.sizes.sum()
        group, rest = np.flatnonzero(is_large), np.flatnonzero(~is_large)
        row = self.stratum[group]
        column = np.arange(len(row)) - np.searchsorted(row, row)
        chances = np.zeros((strata, int(column.max(initial=-1)) + 2))
        chances[row, column] = self.sizes[group] / self._totals[row]
        spans = np.bincount(self.stratum[rest], self.sizes[rest], strata)
        chances[:, -1] = spans / np.maximum(self._totals, 1)
        bounds = spans, (np.cumsum(spans) - spans).astype(np.int64)
        members = np.repeat(rest, self.sizes[rest])
        same = np.array_equal(members, np.arange(len(self.sizes)))
        return (row, column), chances, group, bounds, None if same else members
