"""The choice of gamma on many resamples at once: tables of replicates by samples, a block of replicates at a time.

The error of a replicate is known on every interval first. No interval can be chosen whose error alone exceeds the whole
criterion of another, so shares are followed only where the choice can fall, which is most often a small part of the
range. All choices are the same as if each replicate were chosen by itself.
"""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .grid import SAME_VALUE

_Objective = Any  # an Objective: its module imports this one
_BLOCK = 1 << 18  # numbers of a table that stays in the cache


class _Room(threading.local):
    """Tables of a thread, used block after block: fresh memory costs more than what is done with it."""

    def table(self, name: str, shape: tuple[int, ...], kind: type = np.float64) -> np.ndarray:
        """Return an array of that shape, with whatever it holds; the one of the same name before is lost."""
        size, known = int(np.prod(shape)), self.__dict__.get(name)
        if known is None or len(known) < size:
            known = self.__dict__[name] = np.empty(size, kind)
        return known[:size].reshape(shape)


_ROOM = _Room()


class Block(NamedTuple):
    """Some replicates: what each chooses, its error there, and its loss at 0 and at the real gamma, [B] each."""

    gammas: np.ndarray
    errors: np.ndarray
    at_zero: np.ndarray
    at_gamma: np.ndarray


@dataclass(frozen=True, eq=False)
class ResampledChoice:
    """The choice repeated on samples drawn with replacement, each class by itself.

    Args:
        objective: what is minimized, on a grid of at most a thousand intervals or so.
        gamma, strength: what was chosen on all samples; how much the mismatch of shares counts.
    """

    objective: _Objective
    gamma: float
    strength: float

    def blocks(self, n: int, rng: np.random.Generator) -> Iterator[Block]:
        """Yield n replicates, in blocks that threads work on; the seed alone decides what is drawn."""
        size = max(1, min(256, _BLOCK // len(self.order)))
        sizes = [min(size, n - first) for first in range(0, n, size)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            yield from pool.map(self._draw_block, sizes, rng.integers(1 << 63, size=len(sizes)).tolist())

    def _draw_block(self, n: int, seed: int) -> Block:
        rng = np.random.Generator(np.random.SFC64(seed))
        times, objective = self.draw(n, rng), self.objective
        others = len(objective.changes.start) if objective.unlabelled and objective.changes is not None else 0
        free = _draw(np.zeros(others, np.int64), np.full(others, others), n, rng, "free") if others else None
        if self.whole:
            gammas, errors = self.choose(times, free)
            at_zero, at_gamma = 1 - (times @ self._right_weights).T
        else:
            own = np.empty_like(times)
            own[:, self.order] = times
            each = [objective.error(row) for row in own]
            gammas = np.empty(n)
            for i, (error, row) in enumerate(zip(each, own, strict=True)):
                other = None if free is None else free[i]
                values = objective.values(error, row, unlabelled_times=other, strength=self.strength)
                gammas[i], _ = objective.grid.choose(values)
            errors = np.array(each)
            at_zero, at_gamma = (np.array([loss(row) for row in own]) for loss in self._losses)
        at = np.searchsorted(objective.grid.edges[1:-1], gammas, side="right")
        return Block(gammas, errors[np.arange(n), at], at_zero, at_gamma)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return how often each sample is drawn, [n, N], in the order of `order`; each class keeps its size."""
        return _draw(*self._spans, n, rng)

    def choose(self, times: np.ndarray, free: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the gamma that each replicate chooses, [B], and its error on each interval, [B, G].

        Args:
            times: [B, N], how often each sample counts, in the order of `order`.
            free: [B, M], the same of the unlabelled samples, in their own order.
        """
        objective, grid = self.objective, self.objective.grid
        mass = np.multiply(times, self._weights, out=_ROOM.table("mass", times.shape))
        errors = self._errors(mass)
        guided = objective.mismatch is not None and self.strength > 0
        values = errors
        if objective.pull is not None or guided:
            s = self._standard_errors(grid.choose_rows(errors, prefer_zero=False), times)
            if objective.pull is not None:
                values = errors + np.outer(s, objective.pull.values(grid.middles, 1.0))
            if guided:
                mass = mass if free is None else free / free.shape[1]
                values = self._shares.add(values, mass, np.minimum(1.0, self.strength * s))
        return grid.choose_rows(values), errors

    @cached_property
    def whole(self) -> bool:
        """Whether the metric is an error without floors, and each sample is right on one interval."""
        objective = self.objective
        path = objective.path
        single = len(path.sample) == len(path.labels) and bool((path.sample == np.arange(len(path.labels))).all())
        return objective.metric in ("error", "balanced_error") and objective.floors is None and single

    @cached_property
    def order(self) -> np.ndarray:
        """The samples, class by class, and within a class by what is predicted where the choice is likely, [N]."""
        objective = self.objective
        labels = objective.path.labels
        if not self.whole or objective.mismatch is None or objective.unlabelled:
            return np.argsort(labels, kind="stable")
        return np.lexsort((objective.changes.predictions(objective.grid.middles[self._likely[0]]), labels))

    @cached_property
    def _groups(self) -> tuple[np.ndarray, np.ndarray]:
        """The first sample of each class that has one, in that order, and how many it has."""
        sizes = np.bincount(self.objective.path.labels)
        return (np.cumsum(sizes) - sizes)[sizes > 0], sizes[sizes > 0]

    @cached_property
    def _spans(self) -> tuple[np.ndarray, np.ndarray]:
        """For each sample, the first of its class and how many that has, [N]."""
        opens, sizes = self._groups
        return np.repeat(opens, sizes), np.repeat(sizes, sizes)

    @cached_property
    def _weights(self) -> np.ndarray:
        return self.objective.weights[self.order]

    @cached_property
    def _losses(self) -> tuple[Any, Any]:
        return self.objective.fixed_loss(0.0), self.objective.fixed_loss(self.gamma)

    @cached_property
    def _right_weights(self) -> np.ndarray:
        right = [self.objective.path.right(gamma)[self.order] for gamma in (0.0, self.gamma)]
        return np.stack(right, axis=1) * self._weights[:, None]

    @cached_property
    def _events(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Who is right at the start; sample and sign of each change; the first change and the number of each bin."""
        start, gammas, sign, sample = self.objective.path.events
        place = np.empty_like(self.order)
        place[self.order] = np.arange(len(place))
        right = np.zeros(len(place))
        right[place[start]] = 1.0
        bins = self.objective.grid.bins(gammas)
        kept = int(np.searchsorted(bins, len(self.objective.grid.middles)))
        bins, opens = np.unique(bins[:kept], return_index=True)
        return right, place[sample[:kept]], sign[:kept], opens, bins

    def _errors(self, mass: np.ndarray) -> np.ndarray:
        """Return the error on each interval, [B, G], of samples that weigh `mass` [B, N]."""
        right, sample, sign, opens, bins = self._events
        found = np.zeros((len(mass), len(self.objective.grid.middles)))
        if len(bins):
            room = _ROOM.table("changes", (len(mass), len(sample)))
            changes = mass.take(sample, axis=1, out=room, mode="clip")  # all within bounds: "clip" avoids a copy
            changes *= sign
            found[:, bins] = np.add.reduceat(changes, opens, axis=1)
        found[:, 0] += mass @ right
        return 1 - np.cumsum(found, axis=1, out=found)

    def _standard_errors(self, gammas: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return `Objective.standard_error` of each replicate at its own gamma, [B]."""
        path, (opens, sizes) = self.objective.path, self._groups
        lo, hi = self._ends
        right, other = (_ROOM.table(name, times.shape, np.bool_) for name in ("right", "other"))
        np.less_equal(lo, gammas[:, None], out=right)
        right &= np.less_equal(gammas[:, None], hi, out=other)
        counted = np.multiply(times, right, out=_ROOM.table("counted", times.shape))
        accuracy = (np.add.reduceat(counted, opens, axis=1) + 1) / (sizes + 2)
        prior = self.objective.prior[path.labels[self.order[opens]]]
        return np.sqrt((accuracy * (1 - accuracy)) @ (prior**2 / (sizes + 2)))

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        return self.objective.path.lo[self.order], self.objective.path.hi[self.order]

    @cached_property
    def _shares(self) -> "BlockShares":
        return BlockShares(self.objective.mismatch, self._likely, None if self.objective.unlabelled else self.order)

    @cached_property
    def _likely(self) -> tuple[int, int]:
        """The first and the last interval on which replicates will choose, by the criterion on all samples."""
        objective, error = self.objective, self.objective.error()
        alone = error if objective.pull is None else objective.values(error, strength=0.0)
        slack = 2 * objective.standard_error(self.gamma)
        likely = np.flatnonzero(alone <= objective.values(error, strength=self.strength).min() + slack)
        return int(likely[0]), int(likely[-1])


@dataclass(frozen=True, eq=False)
class BlockShares:
    """The mismatch of predicted shares on some intervals, for a block of replicates.

    Args:
        mismatch: of what, on which grid.
        likely: the first and the last interval on which the choice is likely to fall.
        order: [M], the order in which samples are given; their own if None.
    """

    mismatch: Any
    likely: tuple[int, int]
    order: np.ndarray | None = None

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
        same, by_start, opens, classes, samples, signs, sizes, by_bin, runs, bins = self._steps(first, last)
        off = np.tile(-self.mismatch.prior, (len(mass), 1))
        alike = np.add.reduceat(mass, same, axis=1).take(by_start, axis=1)
        off[:, classes] += np.add.reduceat(alike, opens, axis=1)
        found = np.zeros((len(mass), last - first + 1))
        found[:, 0] = np.abs(off).sum(axis=1)
        if len(samples):
            some = np.flatnonzero(sizes)
            heads = (np.cumsum(sizes) - sizes)[some]
            steps, moved = (_ROOM.table(name, (len(mass), len(samples))) for name in ("steps", "moved"))
            mass.take(samples, axis=1, out=steps, mode="clip")
            steps *= signs
            np.cumsum(steps, axis=1, out=steps)
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
        """Return runs of equal predictions on the interval `first`, and every change up to `last`; remembered."""
        known = self.__dict__.setdefault("_known", {})
        if (first, last) not in known:
            changes, grid = self.mismatch.changes, self.mismatch.grid
            place, start = np.arange(len(changes.start)), changes.predictions(grid.middles[first])
            if self.order is not None:
                place[self.order], start = np.arange(len(place)), start[self.order]
            same = np.flatnonzero(np.diff(start, prepend=-1))  # where a run of equal predictions begins
            by_start = np.argsort(start[same], kind="stable")
            classes, opens = np.unique(start[same][by_start], return_index=True)
            order, signed, sizes, _ = changes.by_class
            bins = grid.bins(changes.gamma)[order]
            kept = np.flatnonzero((bins > first) & (bins <= last))
            changed = np.repeat(np.arange(len(sizes)), sizes)[kept]
            lost, sample = np.divmod(signed[kept], len(place))
            by_bin = np.argsort(bins[kept], kind="stable")
            unique, runs = np.unique(bins[kept][by_bin], return_index=True)
            size = np.bincount(changed, minlength=len(sizes))
            ends = place[sample], np.where(lost, -1.0, 1.0), size, by_bin, runs, unique
            known[first, last] = same, by_start, opens, classes, *ends
        return known[first, last]


def choose_by_shares(mismatch: Any, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the gamma that each of n resamples chooses by the mismatch of shares alone, [n].

    Args:
        mismatch: a ShareMismatch, of samples that weigh the same.
        n, rng: how many; a generator.
    """
    samples, intervals = len(mismatch.changes.start), len(mismatch.grid.middles)
    order = np.argsort(mismatch.changes.predictions(mismatch.grid.middles[0]), kind="stable")
    shares, size = BlockShares(mismatch, (0, intervals - 1), order), max(1, min(256, _BLOCK // samples))
    sizes = [min(size, n - first) for first in range(0, n, size)]

    def choose(count: int, seed: int) -> np.ndarray:
        first, span = np.zeros(samples, np.int64), np.full(samples, samples)
        mass = _draw(first, span, count, np.random.Generator(np.random.SFC64(seed)))
        mass /= samples
        return mismatch.grid.choose_rows(shares.between(*shares.likely, mass))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(choose, sizes, rng.integers(1 << 63, size=len(sizes)).tolist()))
    return np.concatenate([np.zeros(0), *found])


def _draw(first: np.ndarray, sizes: np.ndarray, n: int, rng: np.random.Generator, name: str = "times") -> np.ndarray:
    """Return how often each sample is drawn, [n, N]: each draw is of the `sizes` samples from `first` on, [N] each.

    The table is that of this name, which the next call fills anew.
    """
    found = rng.random(out=_ROOM.table(name, (n, len(first))))
    found *= sizes
    index = _ROOM.table("index", found.shape, np.int64)
    np.copyto(index, found, casting="unsafe")
    for row in range(n):
        index[row] += first
        found[row] = np.bincount(index[row], minlength=len(first))
    return found
