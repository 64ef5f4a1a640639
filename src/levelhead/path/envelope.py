"""`Envelope`: what is predicted at the start of a range of gammas, and every change of it.

It is what the engines return, and all that the rest of the library needs to know of a path: N classes and E
changes, however many gammas are asked about later. E is no more than a few N: of the networks that come with
the package, at least 95 of 100 samples change once or not at all over gammas from 0 to 2. Whatever is counted
along gamma is a sum over the changes; `mismatch` is one such sum, which needs no labels. Those that need labels
are in core/gamma_path.py and core/one_strength.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .curve import Curve, accumulate, stable_order


@dataclass(frozen=True, eq=False)
class Envelope:
    """Every change of every prediction over a range of gammas.

    At gamma[e], the prediction for sample[e] changes from old_class[e] to new_class[e].

    The changes of one sample follow each other: the new class of one is the old class of the next, and
    the old class of the first is its `start`.

    Args:
        start: [N], the class predicted at the start of the range.
        sample, gamma, new_class, old_class: [E], ascending by gamma. A change holds from its gamma on,
            inclusive.
        classes: K.
        range: from and to.

    >>> changes = Envelope(
    ...     start=np.array([0, 0]),
    ...     sample=np.array([1]),
    ...     gamma=np.array([0.5]),
    ...     new_class=np.array([1]),
    ...     old_class=np.array([0]),
    ...     classes=2,
    ...     range=(0.0, 2.0),
    ... )
    >>> changes.predictions(0.4), changes.predictions(0.5)
    (array([0, 0]), array([0, 1]))
    >>> changes.mismatch().at([0.4, 0.5])
    array([0.5, 0. ])
    """

    start: np.ndarray
    sample: np.ndarray
    gamma: np.ndarray
    new_class: np.ndarray
    old_class: np.ndarray
    classes: int
    range: tuple[float, float]

    def predictions(self, gamma: float) -> np.ndarray:
        """Return the class predicted at gamma, [N], for a gamma within the range."""
        predicted = self.start.copy()
        upto = np.searchsorted(self.gamma, gamma, side="right")
        # In the order of gamma, so that of several changes of a sample the last assignment stays.
        predicted[self.sample[:upto]] = self.new_class[:upto]
        return predicted

    def mismatch(self, target: np.ndarray | None = None) -> Curve:
        """Return half the sum of ``|share_k - target_k|`` over gamma.

        That is the share of samples that would have to be predicted otherwise for each class to have
        its share: what `tune_unlabelled` makes as small as possible.

        Args:
            target: [K], which sums to 1; uniform if None.

        Returns:
            A curve with values from 0 to 1.
        """
        if target is None:
            target = np.full(self.classes, 1 / self.classes)
        n = len(self.start)
        surplus = np.bincount(self.start, minlength=self.classes) / n - target  # at the start
        # A change is a sample that one class gains and another loses: each moves only the term of its
        # own class. The two stand next to each other, in the order of gamma, which a stable sort by
        # class keeps within every class. So no table of changes by classes is needed.
        moved = np.empty(2 * len(self.sample), np.int64)
        moved[::2] = self.new_class
        moved[1::2] = self.old_class
        order = stable_order(moved)
        by_class = moved[order]
        steps = np.where(order % 2 == 0, 1 / n, -1 / n)
        # The surplus of a class after each of its steps: a sum over all steps, less what it was where
        # the class opens, plus what the class began with.
        sums = np.cumsum(steps)
        sizes = np.bincount(by_class, minlength=self.classes)
        opens = np.cumsum(sizes) - sizes
        before_class = np.append(0.0, sums)[opens]
        after = sums + np.repeat(surplus - before_class, sizes)
        before = np.append(0.0, after[:-1])
        present = sizes > 0
        before[opens[present]] = surplus[present]
        change = (np.abs(after) - np.abs(before)) / 2
        # From classes back to the order of the changes.
        change_of = np.empty(len(order))
        change_of[order] = change
        at_start = float(np.abs(surplus).sum() / 2)
        return accumulate(at_start, self.gamma, change_of[::2] + change_of[1::2], self.range)
