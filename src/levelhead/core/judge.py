"""One judge: predictions before and after, on samples that no fit has seen, and what they gain.

`Outcomes` count how often a sample of each class was predicted one thing before and another after. They
add up over chunks, files and machines, and hold all that is needed. The road through this file:

1. `Outcomes.of(labels, before, after, K)`: predictions [N] become at most K^3 combinations with counts, of which
   no more than N occur.
2. `Outcomes.tables`: the `Tables` [K] of either side, weighted as the goal weighs samples.
3. `judge`: the gain is the goal's loss before, less that after. Where no prediction differs it is exactly 0.
4. `standard_error`: how far the gain would move with other samples, by what each sample does to both losses.
   That needs the slopes of the loss in the tables (`find_slopes`): in closed form, or by small steps.

Before and after are judged on the same samples. Those that are predicted alike on both sides hardly count, so that
the gain is known better than either loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .evidence import Evidence
from .goal import Goal
from .metrics import Metric, Slopes, Tables, find_metric

_UNSEEN = 0.75  # samples of each class that gain or lose as much as one can, beside those seen
_UNSEEN_RIGHT = 0.1  # of these, where a metric bends: a class that was never right is rarely right
_BLOCK = 256  # classes whose slopes are found at once


@dataclass(frozen=True, eq=False)
class Outcomes:
    """How often samples of a class were predicted one class before and one after.

    Args:
        true, before, after: [M], the classes of each combination that occurs, in ascending order.
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
        """Count predictions [N] of samples with labels [N].

        Args:
            labels: [N], the true classes.
            before, after: [N], the classes predicted by the model as it is, and adjusted.
            classes: K.
        """
        # Each combination is one whole number: sorted, equal ones stand together.
        keys = np.sort((labels.astype(np.int64) * classes + before) * classes + after)
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        return _ungroup(keys[first], np.diff(first, append=len(keys)), classes)

    def __add__(self, other: Outcomes) -> Outcomes:
        """Return the outcomes of the samples of both."""
        keys, which = np.unique(np.concatenate([self._keys, other._keys]), return_inverse=True)
        times = np.bincount(which, np.concatenate([self.times, other.times]), len(keys))
        return _ungroup(keys, times.astype(np.int64), self.classes)

    @property
    def _keys(self) -> np.ndarray:
        """A number for each combination, [M], ascending; `_ungroup` takes them apart again."""
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
        """Return the tables of predictions, as a goal weighs them.

        Args:
            goal: what the tables are for.
            predicted: [M], `before` or `after`.
        """
        mass = self.times.astype(np.float64)
        if goal.target is not None:
            # Toward a target, the samples of a class weigh its share together.
            mass = mass * (goal.target / np.maximum(self.sizes, 1))[self.true]
        return Tables.of(self.true, predicted, self.classes, mass, goal.cost)


def _ungroup(keys: np.ndarray, times: np.ndarray, classes: int) -> Outcomes:
    """Return the outcomes of keys ``(true K + before) K + after`` that ascend."""
    rest, after = np.divmod(keys, classes)
    true, before = np.divmod(rest, classes)
    return Outcomes(true, before, after, times, classes)


def judge(outcomes: Outcomes, goal: Goal, level: float = 0.95) -> Evidence:
    """Compare predictions before and after by a goal's metric.

    Args:
        outcomes: of samples that were predicted by fits which have not seen them.
        goal: with its metric, and its cost and target for these classes (`Goal.on`).
        level: of the interval of the gain.

    Returns:
        The tables of both, ``gain = loss(before) - loss(after)``, and its standard error.

    >>> labels = np.array([0] * 30 + [1] * 30)
    >>> rare_missed = np.array([0] * 45 + [1] * 15)  # half of the second class is missed
    >>> evidence = judge(Outcomes.of(labels, rare_missed, labels, 2), Goal("balanced_error"))
    >>> evidence.gain, evidence.verdict
    (0.25, 'better')
    """
    before = outcomes.tables(goal, outcomes.before)
    after = outcomes.tables(goal, outcomes.after)
    gain = 0.0
    error = 0.0
    if outcomes.changed:
        gain = float(goal.loss(before) - goal.loss(after))
        error = standard_error(outcomes, goal, before, after)
    return Evidence(goal.metric, before, after, gain, error, outcomes.changed, outcomes.n, level)


class JudgedBy(NamedTuple):
    """How samples are judged that a choice was not made on."""

    metric: Metric
    level: float  # of the interval
    notes: tuple[str, ...]  # what is not as it was for the choice, in words


def judged_by(evidence: Evidence | None, default: str) -> JudgedBy:
    """Return how other samples are judged: as those of the choice were, as far as it keeps that.

    A cost matrix is no part of what a choice keeps, nor is the formula of a metric of one's own in a file.

    Args:
        evidence: of the choice; None if it has none.
        default: the name of the metric that is taken where that of the choice cannot be.
    """
    instead = find_metric(default)
    if evidence is None:
        return JudgedBy(instead, 0.95, ())
    if evidence.after.paid is not None:
        reason = "costs are not kept with a choice"
    elif not evidence.metric.is_known:
        reason = f"the metric {evidence.metric.name} is not known here"
    else:
        return JudgedBy(evidence.metric, evidence.level, ())
    note = f"{reason}, so these samples are judged by {instead.title}"
    return JudgedBy(instead, evidence.level, (note,))


def standard_error(outcomes: Outcomes, goal: Goal, before: Tables, after: Tables) -> float:
    """Return the standard error of a gain, by what each sample does to both losses.

    A sample moves a loss by its slopes in the tables, so the difference of both is a sum over the
    samples, whose variance within each class is known. Few samples that agree do not make a class
    certain: each is taken to have `_UNSEEN` more that gain or lose as much as one of it can.

    A metric without slopes in closed form may bend: G-mean is 0 as long as one class is never right,
    and then rises steeply. Its slopes are taken with the unseen samples, a few of them right, and how
    much another gain that would be counts as an error too.

    Args:
        outcomes: the predictions.
        goal: what they are judged by.
        before, after: the tables [K] of the predictions, weighted as the goal does.
    """
    sizes = outcomes.sizes
    gain = float(goal.loss(before) - goal.loss(after))
    if goal.metric.slopes is None:
        before = with_unseen(before, sizes)
        after = with_unseen(after, sizes)
    off = float(goal.loss(before) - goal.loss(after)) - gain

    # What one sample of each combination does to the gain, [M], and what one of each class could do
    # at most, [K]: the mean of both sides, as it is the turn of one prediction.
    moves = np.zeros(len(outcomes.true))
    most = np.zeros(outcomes.classes)
    for tables, predicted, sign in ((before, outcomes.before, 1), (after, outcomes.after, -1)):
        slopes = find_slopes(goal, tables)
        moves += sign * moves_by(slopes, outcomes.true, predicted, goal.cost)
        most += largest_turn(slopes, goal.cost) / 2

    # Slopes are per unit of the tables; toward a target, a sample is a part of such a unit.
    mass = np.ones(outcomes.classes)
    if goal.target is not None:
        mass = goal.target / np.maximum(outcomes.sizes, 1)
    moves *= mass[outcomes.true]
    most *= mass

    # The variance of one sample's move within each class, the unseen ones counted with mean 0; the
    # gain is a sum over the samples of all classes, which are drawn class by class.
    sums = np.bincount(outcomes.true, outcomes.times * moves, outcomes.classes)
    squares = np.bincount(outcomes.true, outcomes.times * moves**2, outcomes.classes)
    more = sizes + _UNSEEN
    variance = (squares + _UNSEEN * most**2) / more - (sums / more) ** 2
    error = np.sqrt((sizes * variance).sum())
    return float(np.hypot(error, off))


def with_unseen(tables: Tables, sizes: np.ndarray) -> Tables:
    """Return tables [K] with `_UNSEEN` more samples of each class that has one, `_UNSEEN_RIGHT` of them right.

    Args:
        tables: in samples or, toward a target, in shares.
        sizes: [K], the samples of each class.
    """
    more = _UNSEEN * tables.sizes / np.maximum(sizes, 1)
    return Tables(
        tables.right + _UNSEEN_RIGHT * more,
        tables.predicted + more,
        tables.sizes + more,
        tables.paid,
    )


def moves_by(
    slopes: Slopes, true: np.ndarray, predicted: np.ndarray, cost: np.ndarray | None
) -> np.ndarray:
    """Return what one more sample of each combination does to a loss, [M].

    Args:
        slopes: of the loss in its tables.
        true, predicted: [M], the classes of each combination.
        cost: [K, K], row true, column predicted; None without one.
    """
    moves = slopes.right[true] * (true == predicted) + slopes.predicted[predicted]
    moves = moves + slopes.sizes[true]
    if cost is not None:
        moves = moves + slopes.paid * cost[true, predicted]
    return moves


def largest_turn(slopes: Slopes, cost: np.ndarray | None) -> np.ndarray:
    """Return how much a loss falls if a sample of each class turns from wrong to right, [K].

    The wrong class is not known: its slope is taken to be the mean of all, its cost the largest.
    """
    turn = np.abs(slopes.right + slopes.predicted - slopes.predicted.mean())
    if cost is not None:
        turn = turn + slopes.paid * (cost.max(axis=1) - np.diag(cost))
    return turn


def find_slopes(goal: Goal, tables: Tables) -> Slopes:
    """Return the slopes of a goal's loss at tables [K]: by its formula, or else by small steps."""
    if goal.metric.slopes is not None:
        return goal.metric.slopes(tables)
    here = float(goal.loss(tables))
    of_paid = 0.0
    if tables.paid is not None:
        step = 1e-6 * max(float(abs(tables.paid)), 1.0)
        dearer = Tables(tables.right, tables.predicted, tables.sizes, tables.paid + step)
        of_paid = (float(goal.loss(dearer)) - here) / step
    return Slopes(
        right=_slopes_by_steps(goal, tables, "right", here),
        predicted=_slopes_by_steps(goal, tables, "predicted", here),
        sizes=_slopes_by_steps(goal, tables, "sizes", here),
        paid=of_paid,
    )


def _slopes_by_steps(goal: Goal, tables: Tables, column: str, here: float) -> np.ndarray:
    """Return how the loss moves by a small step in each entry of one column of the tables, [K].

    Args:
        goal: whose loss it is.
        tables: [K].
        column: `right`, `predicted` or `sizes`.
        here: the loss of the tables as they are.
    """
    classes = len(tables.sizes)
    step = 1e-4 * max(float(tables.sizes.sum()) / classes, 1e-12)
    slopes = np.zeros(classes)
    # A table for each class, of which one entry is moved: in blocks, as they are K times as large.
    for first in range(0, classes, _BLOCK):
        block = np.arange(first, min(first + _BLOCK, classes))
        moved = {
            name: np.repeat(getattr(tables, name)[None], len(block), axis=0)
            for name in ("right", "predicted", "sizes")
        }
        moved[column][np.arange(len(block)), block] += step
        paid = None
        if tables.paid is not None:
            paid = np.full(len(block), tables.paid)
        slopes[block] = (goal.loss(Tables(**moved, paid=paid)) - here) / step
    slopes[tables.sizes <= 0] = 0.0  # a first sample of a class is no small step
    return slopes
