"""What `tune_labels` is given, checked once: scores, labels, the goal and counts.

Each function takes one argument in all the forms that users have it in and returns arrays, [N, K] for each
sample and label, or [K] for each label; or it raises a LevelheadError that names the argument, what was
expected and what came. Nobody after them checks again. The page calls them as well, for samples that a choice
is only judged on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core.class_names import as_mapping, in_order
from ..core.class_names import title as class_title
from ..core.counts import Counts
from ..core.goal import Goal, check_cost, check_floors
from ..core.metrics import Metric
from ..core.probabilities import logit_of_probabilities
from ..support.arrays import Array, described, to_numpy
from ..support.errors import Advice, LevelheadError, check_choice, named
from ..support.logits import LARGEST_PROBABILITY, check_finite_rows, look_like_sigmoids
from ..support.types import Kind

DEFAULT_METRIC = "macro_f1"


def check_label_table(labels: Array) -> np.ndarray:
    """Return labels [N, K] as bool, after checking that they are 0 or 1.

    Args:
        labels: an array, a tensor or lists of rows; whole numbers, floats or bools.

    Raises:
        LevelheadError: one value per sample (then they are classes, for `tune`), rows of different
            lengths, or a number that is neither 0 nor 1, with its place.

    >>> check_label_table([[1, 0], [1.0, 1.0]])
    array([[ True, False],
           [ True,  True]])
    """
    with named("labels"):
        table = to_numpy(labels)
        if table.ndim == 1:
            expected = "expected 0 or 1 for each label of each sample, [N, K]"
            got = f"got one value per sample, [{len(table)}]"
            instead = "if they are classes, of which each sample has one, use lh.tune"
            raise LevelheadError(f"{expected}, {got}; {instead}")
        if table.ndim != 2 or 0 in table.shape:
            raise LevelheadError(f"expected 0 or 1 [N, K], got shape {list(table.shape)}")
        if table.dtype.kind not in "biuf":
            raise LevelheadError(f"expected 0 or 1, got {described(table)}")
        wrong = (table != 0) & (table != 1)
        if wrong.any():
            raise LevelheadError(f"expected 0 or 1, got {_first(table, wrong)}")
    return table.astype(bool)


def check_label_scores(logits: Array, truth: np.ndarray, kind: Kind) -> np.ndarray:
    """Return logits [N, K] of sigmoids in float64; of probabilities, ``log p / (1 - p)``.

    Args:
        logits: [N, K], before the sigmoid, or after it.
        truth: [N, K], whose shape they must have.
        kind: what they are. Numbers that could only be the other kind are refused.

    Raises:
        LevelheadError: another shape, no numbers, NaN or infinities, or another kind.
    """
    check_choice("kind", kind, ("logits", "probabilities"))
    scores = to_numpy(logits)
    if scores.dtype.kind not in "fiu":
        raise LevelheadError(f"expected numbers, got {described(scores)}", parameter="logits")
    if scores.shape != truth.shape:
        expected = f"expected one score for each of the labels, {list(truth.shape)}"
        raise LevelheadError(f"{expected}, got shape {list(scores.shape)}", parameter="logits")
    scores = scores.astype(np.float64)
    check_finite_rows(scores)
    if kind == "probabilities":
        outside = (scores < 0) | (scores > LARGEST_PROBABILITY)
        if outside.any():
            advice = Advice("kind", "logits", "if these are logits")
            expected = "expected probabilities, from 0 to 1"
            raise LevelheadError(f"{expected}, got {_first(scores, outside)}", advice=advice)
        return logit_of_probabilities(scores)
    if look_like_sigmoids(scores):
        advice = Advice("kind", "probabilities", "if they come after the sigmoid")
        got = "got what looks like probabilities: all are from 0 to 1"
        raise LevelheadError(f"expected logits, {got}", advice=advice)
    return scores


class LabelGoal(NamedTuple):
    """What the choice of each label is to be good at: a `Goal` for K labels, checked."""

    metric: Metric  # of two classes, without and with the label
    costs: np.ndarray | None  # [K, 2, 2], row true, column decided, where the metric is a cost
    floors: np.ndarray  # [K], the least recall of the positives; 0 for none
    certainty: float  # how likely each floor is to hold on new samples


def check_label_goal(goal: Goal, truth: np.ndarray, names: Sequence[str] | None) -> LabelGoal:
    """Return a goal for labels [N, K].

    Args:
        goal: whose costs are [2, 2] for all labels, or [K, 2, 2].
        truth: the labels.
        names: of the labels, where they are known.

    Raises:
        LevelheadError: costs of another shape, below 0, or less for an error than for a right decision;
            floors that are no recalls, or for a label that no sample here has.
    """
    positives = truth.sum(axis=0)
    floors = np.zeros(len(positives))
    if goal.floors is not None:
        floors = np.nan_to_num(check_floors(goal.floors, positives, names))
    costs = None
    if goal.cost is not None:
        costs = _check_costs(goal.cost, len(positives))
    return LabelGoal(goal.metric.for_labels(), costs, floors, goal.certainty)


def _check_costs(cost: Array, labels: int) -> np.ndarray:
    """Return a cost matrix for each of K labels, [K, 2, 2], each by the rules of two classes.

    Args:
        cost: [2, 2] for all labels or [K, 2, 2], row true, column decided; one may be a data frame.
        labels: K.
    """
    matrices = to_numpy(cost)
    if matrices.shape == (2, 2):
        return np.stack([check_cost(cost, 2)] * labels)
    if matrices.shape != (labels, 2, 2):
        expected = f"expected numbers [2, 2] or [{labels}, 2, 2], row true, column predicted"
        raise LevelheadError(f"{expected}, got shape {list(matrices.shape)}", parameter="cost")
    return np.stack([check_cost(matrix, 2) for matrix in matrices])


def check_label_counts(
    counts: Counts | None, truth: np.ndarray, names: Sequence[str] | None
) -> np.ndarray:
    """Return how many training samples have each label, [K].

    They decide nothing: thresholds follow from the samples alone. They are kept in the result, where
    pictures put labels in their order.

    Args:
        counts: [K], {label: samples}, training labels [M, K] to be counted, or None, which counts
            those given here.
        truth: labels [N, K].
        names: of the labels.
    """
    size = truth.shape[1]
    mapping = as_mapping(counts, size)
    if counts is None:
        values = truth
    elif mapping is not None:
        values = in_order(mapping, size, names)
    else:
        values = to_numpy(counts)
    # A table is of labels, which are counted; a row is of counts.
    if values.ndim == 2 and values.shape[1] == size:
        return check_label_table(values).sum(axis=0).astype(np.float64)
    if values.shape != (size,) or values.dtype.kind not in "iuf":
        expected = f"expected {size}, the training samples that have each label"
        raise LevelheadError(f"{expected}, got {described(values)}", parameter="counts")
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        expected = f"expected 0 or more samples of {class_title(int(bad[0]), names)}"
        raise LevelheadError(f"{expected}, got {values[bad[0]]:g}", parameter="counts")
    return values.astype(np.float64)


def _first(values: np.ndarray, wrong: np.ndarray) -> str:
    """Return the first value that is wrong, with its place."""
    row, column = np.argwhere(wrong)[0]
    return f"{values[row, column]:g} in row {row}, column {column}"
