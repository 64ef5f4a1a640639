"""One judge: predictions before and after, on samples that no fit has seen, and what they gain.

`Outcomes` count how often a sample of each class was predicted one thing before and another after. They
add up over chunks, files and machines, and hold all that is needed: the tables before and after, the gain,
and its standard error by the influence of each sample on the metric.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .evidence import Evidence
from .metrics import Slopes, Tables
from .samples import Goal

_UNSEEN = 0.75  # samples of each class that gain or lose as much as one can, beside those seen
_BLOCK = 256  # classes whose slopes are found at once


@dataclass(frozen=True, eq=False)
class Outcomes:
    """How often samples of a class were predicted one class before and one after.

    Args:
        true, before, after: [M], the classes of each combination that occurs.
        times: [M], how often it does.
        classes: K.

    >>> part = Outcomes.of(np.array([0, 1, 1]), np.array([0, 0, 0]), np.array([0, 1, 1]), 2)
    >>> both = part + part
    >>> both.true, both.before, both.after, both.times
    (array([0, 1]), array([0, 0]), array([0, 1]), array([2, 4]))
    """

    true: np.ndarray
    before: np.ndarray
    after: np.ndarray
    times: np.ndarray
    classes: int

    @staticmethod
    def of(labels: np.ndarray, before: np.ndarray, after: np.ndarray, classes: int) -> Outcomes:
        """Count predictions [N] of samples with labels [N]."""
        keys = np.sort((labels.astype(np.int64) * classes + before) * classes + after)
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        return _ungroup(keys[first], np.diff(first, append=len(keys)), classes)

    def __add__(self, other: Outcomes) -> Outcomes:
        keys, which = np.unique(np.concatenate([self._keys, other._keys]), return_inverse=True)
        times = np.bincount(which, np.concatenate([self.times, other.times]), len(keys))
        return _ungroup(keys, times.astype(np.int64), self.classes)

    @property
    def _keys(self) -> np.ndarray:
        return (self.true * self.classes + self.before) * self.classes + self.after

    @property
    def n(self) -> int:
        """How many samples there are."""
        return int(self.times.sum())

    @property
    def sizes(self) -> np.ndarray:
        """How many samples each class has, [K]."""
        return np.bincount(self.true, self.times, self.classes)

    @property
    def changed(self) -> int:
        """How many samples are predicted another class than before."""
        return int(self.times[self.before != self.after].sum())

    def tables(self, goal: Goal, predicted: np.ndarray) -> Tables:
        """Return the tables of `before` or `after`, as a goal weighs them."""
        mass = self.times.astype(np.float64)
        if goal.target is not None:
            mass = mass * (goal.target / np.maximum(self.sizes, 1))[self.true]
        return Tables.of(self.true, predicted, self.classes, mass, goal.cost)


def _ungroup(keys: np.ndarray, times: np.ndarray, classes: int) -> Outcomes:
    """Return the outcomes of keys ``(true K + before) K + after`` that ascend."""
    rest, after = np.divmod(keys, classes)
    true, before = np.divmod(rest, classes)
    return Outcomes(true, before, after, times, classes)


def judge(outcomes: Outcomes, goal: Goal, level: float = 0.95) -> Evidence:
    """Compare predictions before and after by a goal's metric."""
    before = outcomes.tables(goal, outcomes.before)
    after = outcomes.tables(goal, outcomes.after)
    gain, error = 0.0, 0.0
    if outcomes.changed:
        gain = float(goal.loss(before) - goal.loss(after))
        error = standard_error(outcomes, goal, before, after)
    return Evidence(goal.metric, before, after, gain, error, outcomes.changed, outcomes.n, level)


def standard_error(outcomes: Outcomes, goal: Goal, before: Tables, after: Tables) -> float:
    """Return the standard error of a gain, by what each sample does to both losses.

    A sample moves a loss by its slopes in the tables, so the difference of both is a sum over the
    samples, whose variance within each class is known. Few samples that agree do not make a class
    certain: each is taken to have `_UNSEEN` more that gain or lose as much as one of it can.
    """
    mass = np.ones(outcomes.classes)
    if goal.target is not None:
        mass = goal.target / np.maximum(outcomes.sizes, 1)
    moves = np.zeros(len(outcomes.true))
    most = np.zeros(outcomes.classes)
    for tables, predicted, sign in ((before, outcomes.before, 1), (after, outcomes.after, -1)):
        slopes = find_slopes(goal, tables)
        moves += sign * moves_by(slopes, outcomes.true, predicted, goal.cost)
        most += largest_turn(slopes, goal.cost) / 2
    moves *= mass[outcomes.true]
    most *= mass
    sizes = outcomes.sizes
    sums = np.bincount(outcomes.true, outcomes.times * moves, outcomes.classes)
    squares = np.bincount(outcomes.true, outcomes.times * moves**2, outcomes.classes)
    more = sizes + _UNSEEN
    variance = (squares + _UNSEEN * most**2) / more - (sums / more) ** 2
    return float(np.sqrt((sizes * variance).sum()))


def moves_by(
    slopes: Slopes, true: np.ndarray, predicted: np.ndarray, cost: np.ndarray | None
) -> np.ndarray:
    """Return what one more sample of these classes, predicted so, does to a loss, [M]."""
    moves = slopes.right[true] * (true == predicted) + slopes.predicted[predicted]
    moves = moves + slopes.sizes[true]
    if cost is not None:
        moves = moves + slopes.paid * cost[true, predicted]
    return moves


def largest_turn(slopes: Slopes, cost: np.ndarray | None) -> np.ndarray:
    """Return how much a loss falls if a sample of each class turns from wrong to right, [K]."""
    turn = np.abs(slopes.right + slopes.predicted - slopes.predicted.mean())
    if cost is not None:
        turn = turn + slopes.paid * (cost.max(axis=1) - np.diag(cost))
    return turn


def find_slopes(goal: Goal, tables: Tables) -> Slopes:
    """Return the slopes of a goal's loss; by small steps in each entry where no formula is known."""
    if goal.metric.slopes is not None:
        return goal.metric.slopes(tables)
    classes = len(tables.sizes)
    step = 1e-4 * max(float(tables.sizes.sum()) / classes, 1e-12)
    here = float(goal.loss(tables))
    slopes_of = {
        "right": np.zeros(classes),
        "predicted": np.zeros(classes),
        "sizes": np.zeros(classes),
    }
    for name, slopes in slopes_of.items():
        for first in range(0, classes, _BLOCK):
            block = np.arange(first, min(first + _BLOCK, classes))
            fields = {
                field: np.repeat(getattr(tables, field)[None], len(block), axis=0)
                for field in slopes_of
            }
            fields[name][np.arange(len(block)), block] += step
            paid = None
            if tables.paid is not None:
                paid = np.full(len(block), tables.paid)
            slopes[block] = (goal.loss(Tables(**fields, paid=paid)) - here) / step
    absent = tables.sizes <= 0  # a first sample of a class is no small step
    for slopes in slopes_of.values():
        slopes[absent] = 0.0
    of_paid = 0.0
    if tables.paid is not None:
        small = 1e-6 * max(float(abs(tables.paid)), 1.0)
        more = Tables(tables.right, tables.predicted, tables.sizes, tables.paid + small)
        of_paid = (float(goal.loss(more)) - here) / small
    return Slopes(slopes_of["right"], slopes_of["predicted"], slopes_of["sizes"], of_paid)
