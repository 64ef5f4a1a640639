"""What `tune_labels` is given, checked once: scores, labels, costs, floors and counts.

Each function takes one argument in all the forms that users have it in and returns one array, [N, K] for each
sample and label, or [K] for each label; or it raises a LevelheadError that names the argument, what was
expected and what came. Nobody after them checks again. The page calls them as well, for samples that a choice
is only judged on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..core.class_names import as_mapping, find_classes, in_order
from ..core.class_names import title as class_title
from ..core.counts import Counts
from ..core.goal import Goal, check_cost
from ..core.metrics import COST, Metric, find_metric
from ..core.probabilities import logit_of_probabilities
from ..support.arrays import Array, described, to_numpy
from ..support.errors import Advice, LevelheadError, check_choice, named, reported_as
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


def check_label_metric(
    metric: str | Metric, cost: Array | None, labels: int
) -> tuple[Metric, np.ndarray | None]:
    """Return the metric of a label, and the cost matrix of each, [K, 2, 2], where there are costs.

    Args:
        metric: its name, or a `Metric`; with costs, the default gives way to them.
        cost: [2, 2] for all labels or [K, 2, 2], row true, column predicted; None for none.
        labels: K.

    Raises:
        LevelheadError: an unknown metric, costs beside another metric than the default, or costs of
            another shape, below 0, or less for an error than for a right decision.
    """
    if isinstance(metric, Goal):
        reason = "expected a metric, got a Goal, which is of classes"
        instead = "pass its metric, cost and floors one by one"
        raise LevelheadError(f"{reason}; {instead}", parameter="metric")
    asked = find_metric(metric)
    # Costs are a metric of their own. Next to the default, that is what is meant.
    if cost is not None and asked.name == DEFAULT_METRIC:
        asked = find_metric(COST)
    of_label = Goal(asked, cost=cost).metric.for_labels()  # refuses costs beside another metric
    if cost is None:
        return of_label, None
    # Every matrix by the rules of a cost matrix of two classes; one may be a data frame with titles.
    matrices = to_numpy(cost)
    if matrices.shape == (2, 2):
        return of_label, np.stack([check_cost(cost, 2)] * labels)
    if matrices.shape != (labels, 2, 2):
        expected = f"expected numbers [2, 2] or [{labels}, 2, 2], row true, column predicted"
        raise LevelheadError(f"{expected}, got shape {list(matrices.shape)}", parameter="cost")
    return of_label, np.stack([check_cost(matrix, 2) for matrix in matrices])


def check_label_floors(
    floors: float | Sequence[float] | Mapping[str, float] | None,
    certainty: float,
    truth: np.ndarray,
    names: Sequence[str] | None,
) -> np.ndarray:
    """Return the least recall of the positives of each label, [K]; 0 for none.

    Args:
        floors: a recall for all labels, one for each, {label: recall}, or None.
        certainty: how likely each is to hold on new samples.
        truth: labels [N, K].
        names: of the labels.

    Raises:
        LevelheadError: an unknown label, a recall outside of 0 to 1, or a floor for a label that no
            sample here has: nothing could be said about its recall; or no certainty that a `Goal` takes.
    """
    Goal(certainty=certainty)  # which refuses what is no such probability
    size = truth.shape[1]
    least = np.zeros(size)
    if floors is None:
        return least
    has_positives = truth.any(axis=0)
    mapping = as_mapping(floors)
    unclear = f"expected a recall, or a recall for each label, got {floors!r}"
    with named("floors"):
        with reported_as(unclear, TypeError, ValueError):
            if mapping is not None:
                # Labels by position or name; those that are not named have no floor.
                where = find_classes(mapping, size, names, what="floor")
                least[where] = [float(value) for value in mapping.values()]
            else:
                values = to_numpy(floors).astype(np.float64)
                if values.shape not in ((), (size,)):
                    expected = f"expected a recall, or one for each of {size} labels"
                    raise LevelheadError(f"{expected}, got {values.size}")
                # A floor for all is one for those that have it in any sample.
                if values.ndim:
                    least[:] = values
                else:
                    least[:] = np.where(has_positives, values, 0.0)
        outside = least[~((least >= 0) & (least <= 1))]
        if len(outside):
            raise LevelheadError(f"expected recalls from 0 to 1, got {outside[0]:g}")
        unknown = np.flatnonzero((least > 0) & ~has_positives)
        if len(unknown):
            reason = "has no positive sample here, so its recall is not known; leave out its floor"
            raise LevelheadError(f"{class_title(int(unknown[0]), names)} {reason}")
    return least


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
