"""Changes of what is right and what is predicted, class by class.

A change of a prediction moves the totals of two classes only. Sorted by class and then by gamma, the changes of a class
give what is right and what is predicted after each by one cumulative sum. So no table of changes by classes is needed,
and any weighting of the samples costs a gather.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .envelope import Envelope


class Totals(NamedTuple):
    """Weights per class, [K], or after each change, [S]: of the right samples, of the predictions, of the samples."""

    right: np.ndarray
    predicted: np.ndarray
    true: np.ndarray


@dataclass(frozen=True, eq=False)
class ClassChanges:
    """Every change of what is right or predicted in a class, sorted by class and then by gamma.

    Args:
        labels, right_first: [N], true classes; whether each sample is right at the start of the range.
        predicted_first: [N], the class predicted there; None if only right and wrong are known.
        gamma, sample, classes: [S], of each change.
        right, predicted: [S], +1, 0 or -1: what `sample` adds to the right and to the predicted of its class there.
        sizes: [K], how many changes each class has.
    """

    labels: np.ndarray
    right_first: np.ndarray
    predicted_first: np.ndarray | None
    gamma: np.ndarray
    sample: np.ndarray
    classes: np.ndarray
    right: np.ndarray
    predicted: np.ndarray
    sizes: np.ndarray

    @staticmethod
    def of_events(labels: np.ndarray, events: tuple[np.ndarray, ...], classes: int) -> "ClassChanges":
        """Return the changes of `GammaPath.events`."""
        start, gamma, sign, sample = events
        first = np.zeros(len(labels), bool)
        first[start] = True
        order = _by_class(labels[sample], classes)
        changed = labels[sample][order]
        return ClassChanges(
            labels=labels,
            right_first=first,
            predicted_first=None,
            gamma=gamma[order],
            sample=sample[order],
            classes=changed,
            right=sign[order],
            predicted=np.zeros(len(order)),
            sizes=np.bincount(changed, minlength=classes),
        )

    @staticmethod
    def of_envelope(labels: np.ndarray, changes: Envelope) -> "ClassChanges":
        """Return the changes of an envelope: each is one of the new class and one of the old."""
        changed = np.stack([changes.old_class, changes.new_class], axis=1).reshape(-1)
        order = _by_class(changed, changes.classes)
        changed, sample = changed[order], changes.sample[order // 2]
        sign = np.where(order % 2, 1.0, -1.0)
        return ClassChanges(
            labels=labels,
            right_first=changes.start == labels,
            predicted_first=changes.start,
            gamma=changes.gamma[order // 2],
            sample=sample,
            classes=changed,
            predicted=sign,
            right=sign * (labels[sample] == changed),
            sizes=np.bincount(changed, minlength=changes.classes),
        )

    def first(self, weights: np.ndarray) -> Totals:
        """Return the totals of each class at the start of the range, [K]."""
        return count_totals(self.labels, self.right_first, self.predicted_first, weights, len(self.sizes))

    def after(self, weights: np.ndarray, first: Totals) -> Totals:
        """Return the totals of its class after each change, [S]."""
        mass = weights[self.sample]
        right, predicted = (
            self._running(change * mass) + start[self.classes]
            for change, start in ((self.right, first.right), (self.predicted, first.predicted))
        )
        return Totals(right, predicted, first.true[self.classes])

    def steps(self, first: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return by how much each change moves a term that is `first` [K] and then `after` [S]."""
        steps = after.copy()
        steps[1:] -= after[:-1]
        some = self.sizes > 0
        steps[self.opens[some]] = after[self.opens[some]] - first[some]
        return steps

    @cached_property
    def opens(self) -> np.ndarray:
        """The first change of each class, [K]."""
        return np.cumsum(self.sizes) - self.sizes

    def _running(self, values: np.ndarray) -> np.ndarray:
        """Return the cumulative sum of values [S] within each class."""
        total = np.concatenate([[0.0], np.cumsum(values)])
        return total[1:] - np.repeat(total[self.opens], self.sizes)


def count_totals(
    labels: np.ndarray, right: np.ndarray, predicted: np.ndarray | None, weights: np.ndarray, classes: int
) -> Totals:
    """Return the totals of each class, [K], given true classes, whether samples are right, and what is predicted."""
    return Totals(
        np.bincount(labels, weights * right, classes),
        np.zeros(classes) if predicted is None else np.bincount(predicted, weights, classes),
        np.bincount(labels, weights, classes),
    )


def _by_class(changed: np.ndarray, classes: int) -> np.ndarray:
    """Return the order of changes by class, in their order within a class; 16 bits are sorted by radix."""
    return np.argsort(changed.astype(np.uint16) if classes <= 1 << 16 else changed, kind="stable")
