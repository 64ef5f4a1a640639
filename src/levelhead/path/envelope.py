"""Predictions along the whole path: every change of every prediction (`envelope_walk.py`), and shares of classes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..core.curve import Curve, accumulate

_EVENT = ("sample", "gamma", "new_class", "old_class")  # the fields that describe a change


@dataclass(eq=False)
class Envelope:
    """Every change of every prediction over a range of gammas; at gamma[e], that for sample[e] gets a new class."""

    start: np.ndarray  # [N], the class predicted at the start of the range
    sample: np.ndarray  # [E], as all that follow, sorted by gamma
    gamma: np.ndarray
    new_class: np.ndarray
    old_class: np.ndarray
    classes: int  # K
    range: tuple[float, float]

    def predictions(self, gamma: float) -> np.ndarray:
        """Return the class predicted at gamma, [N]."""
        found = self.start.copy()
        upto = np.searchsorted(self.gamma, gamma, side="right")
        found[self.sample[:upto]] = self.new_class[:upto]  # in order of gamma, so the last assignment wins
        return found

    def joined(self, others: Sequence["Envelope"]) -> "Envelope":
        """Return the envelope of these samples and then those of others."""
        every = [self, *others]
        offsets = np.cumsum([0, *(len(part.start) for part in every[:-1])])
        sample = [part.sample + offset for part, offset in zip(every, offsets, strict=True)]
        gamma, new, old = (np.concatenate([getattr(part, name) for part in every]) for name in _EVENT[1:])
        # A stable sort keeps the changes of one sample, which come from one part, in their order.
        order = np.argsort(gamma, kind="stable")
        events = dict(zip(_EVENT, (each[order] for each in (np.concatenate(sample), gamma, new, old)), strict=True))
        return replace(self, start=np.concatenate([part.start for part in every]), **events)

    def within(self, range: tuple[float, float]) -> "Envelope":
        """Return the envelope over a part of the range."""
        return replace(self.between(*range), range=range)

    def between(self, low: float, high: float) -> "Envelope":
        """Return the changes after `low` and up to `high`, from what is predicted at `low`."""
        begin, end = np.searchsorted(self.gamma, [low, high], side="right")
        return replace(self, start=self.predictions(low), **{name: getattr(self, name)[begin:end] for name in _EVENT})

    def shares(self, gamma: float, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the share of each class among the predictions at gamma, [K]. Samples weigh `weights` [N]."""
        return np.bincount(self.predictions(gamma), self._weights(weights), self.classes)

    def mismatch(self, target: np.ndarray | None = None, weights: np.ndarray | None = None) -> Curve:
        """Return half the sum of ``|share - target|`` over gamma. The target [K] sums to 1, and is uniform if None."""
        start, gammas, steps = self.mismatch_steps(target, weights)
        order = np.argsort(gammas)
        return accumulate(start, gammas[order], steps[order], self.range)

    def mismatch_steps(
        self, target: np.ndarray | None = None, weights: np.ndarray | None = None
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the mismatch at the start of the range, and the gamma and size of each step; their order is fixed."""
        # A gain or a loss moves only its own class's term of the sum, and the changes of a class, in order, give its
        # share after each. So no table of changes by classes is needed.
        target = np.full(self.classes, 1 / self.classes) if target is None else np.asarray(target, np.float64)
        weight = self._weights(weights)
        off = np.bincount(self.start, weight, self.classes) - target  # share - target of each class at the start
        order, signed, sizes, opens = self.by_class
        # One cumulative sum over the changes of all classes, one class after another. Less its value where a class
        # opens, and plus what that class was off at the start, it says how far off the class is after each change.
        steps = np.empty(len(signed) + 1)
        steps[0] = 0.0
        np.cumsum(np.concatenate([weight, -weight])[signed], out=steps[1:])
        steps[1:] += np.repeat(off - steps[opens], sizes)
        # The mismatch moves by the differences of the distances. The first of a class is from its start, and not from
        # the last change of the class before it.
        np.abs(steps, out=steps)
        before, had = steps[opens[sizes > 0]], np.abs(off[sizes > 0])
        steps = np.diff(steps)
        steps[opens[sizes > 0]] += before - had
        return float(np.abs(off).sum() / 2), self.gamma[order], steps / 2

    def _weights(self, weights: np.ndarray | None) -> np.ndarray:
        n = len(self.start)
        return np.full(n, 1 / n) if weights is None else np.asarray(weights, np.float64) / np.sum(weights)

    @cached_property
    def by_class(self) -> tuple[np.ndarray, ...]:
        """Gains and losses of samples, by class and then by gamma, sorted once for all weights: the change of each, its
        place in the weights followed by the negated weights, and for each class how many and which is the first."""
        changed, n, changes = np.concatenate([self.new_class, self.old_class]), len(self.start), len(self.gamma)
        narrow = changed.astype(np.uint16) if self.classes <= 1 << 16 else changed  # 16 bits are sorted by radix
        # The gain and the loss of a change stand next to each other, in the order of the changes, which is that of
        # gamma: a stable sort by class then leaves every class's changes in the order of gamma.
        order = np.argsort(np.stack([narrow[:changes], narrow[changes:]], axis=1).reshape(-1), kind="stable")
        order, lost = np.divmod(order, 2)  # a gain and a loss of a class at one gamma may come in any order
        sizes = np.bincount(changed, minlength=self.classes)
        return order, self.sample[order] + n * lost, sizes, np.cumsum(sizes) - sizes

    def take(self, rows: np.ndarray) -> "Envelope":
        """Return the changes of some samples, rows [n] in ascending order. What is sorted is not sorted again."""
        position = np.full(len(self.start), -1)
        position[rows] = np.arange(len(rows))
        place = position[self.sample]
        kept = place >= 0
        events = {name: getattr(self, name)[kept] for name in _EVENT} | {"sample": place[kept]}
        found = replace(self, start=self.start[rows], **events)
        # What is left of a sorted order is sorted: the gains and losses of the kept changes, with each change's number
        # among the kept ones (how many are kept up to it, less one) and each sample's place among the rows.
        order, signed, sizes, _ = self.by_class
        some = kept[order]
        lost = signed[some] >= len(self.start)
        left = np.bincount(np.repeat(np.arange(self.classes), sizes)[some], minlength=self.classes)
        order = (np.cumsum(kept) - 1)[order[some]]
        found.by_class = order, found.sample[order] + len(rows) * lost, left, np.cumsum(left) - left
        return found
