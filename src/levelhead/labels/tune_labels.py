"""Several labels per sample: one exact threshold for each, chosen on held-out samples.

1. What was given is checked, once (`check.py`).
2. Each label gets the best of all its thresholds: without each of three folds, and on all samples.
3. Every sample is decided as the model is, and by thresholds that were fitted without it.
4. Both are judged by the metric, label by label, and the gains are averaged (`judge.py`).

Step 2 is `_fit_label` for one label after the other: scores [N], sorted once, give the cuts of all samples and, as
a part of a sorted order is sorted, those without each fold. Folds are dealt anew for each label, so that each
has its share of the few positives. The thresholds on all samples are what is chosen; those without a fold only
say what such a choice is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core.adjustment import Adjustment
from ..core.arguments import check_chosen_on, check_level
from ..core.class_names import as_names, check_titles, listed, names_of_columns
from ..core.counts import Counts
from ..core.doubts import Doubt, doubt_training_rows, issue_warnings
from ..core.floors import holds_with, needed_right
from ..core.goal import Goal
from ..core.metrics import Metric
from ..core.rules import Offsets
from ..core.samples import FOLDS, deal
from ..core.tuned import Floor, Tuned
from ..support.arrays import Array, to_numpy
from ..support.errors import LevelheadError, named
from ..support.progress import StageProgress
from ..support.types import Kind
from ..support.warnings import MissingClassWarning
from .check import (
    DEFAULT_METRIC,
    check_label_counts,
    check_label_goal,
    check_label_scores,
    check_label_table,
)
from .cuts import Cuts
from .judge import has_both, judge_decisions


def tune_labels(
    logits: Array,
    labels: Array,
    counts: Counts | None = None,
    *,
    metric: str | Metric | Goal = DEFAULT_METRIC,
    chosen_on: str = "held-out",
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    training: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    progress: StageProgress | None = None,
) -> Tuned:
    """Choose, for each label of a multi-label model, what to add to its logit.

    A label is predicted where ``logit_k + offset_k > 0``. Its metric is computed at every threshold
    between two of its logits, and the offset is the middle of the best ones. A label is moved
    whatever its own gain: to leave those in doubt alone did worse on new samples.

    Args:
        logits: [N, K] of samples the model was not trained on, before the sigmoid.
        labels: [N, K], 1 where a sample has the label, else 0. A label without a positive or without
            a negative sample is named in a warning and left alone.
        counts: training samples that have each label, for the record; None counts those given here.
        metric: of each label, of which the mean is taken: `macro_f1` (the F1 of the positives);
            `balanced_error`, which takes any number of false alarms for a rare label that is found;
            or any other name or `Metric`, of two classes: without and with the label. Or a `Goal`, as
            ``Goal("macro_f1", floors={"cat": 0.9})``: its floors are of the recall of the positives.
        kind: `probabilities` if they come after the sigmoid.
        chosen_on, level, rng, training, names, progress: as in `tune`; names are of the labels, and
            titles of a data frame's columns say them as well.

    Returns:
        A `Tuned` of the task `multilabel`: its adjustment adds an offset to each label, and
        ``tuned.apply(logits) > 0`` are the decisions.

    Raises:
        LevelheadError: an argument that is not as above, or no label that has both positive and
            negative samples.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((400, 2)) < [0.5, 0.1]
    >>> tuned = tune_labels(2 * labels - [1.0, 3.0] + rng.normal(size=(400, 2)), labels)
    >>> tuned.adjustment.offset.round(2), tuned.verdict
    (array([0.05, 1.2 ]), 'better')
    """
    # What was given, checked.
    level = check_level(level)
    check_chosen_on(chosen_on)
    truth = check_label_table(labels)
    size = truth.shape[1]
    scores = check_label_scores(logits, truth, kind)
    label_names = _names_of_labels(logits, labels, counts, names)
    if label_names is not None:
        label_names = tuple(as_names(label_names, size))
    goal = check_label_goal(Goal.of(metric), truth, label_names)
    asked = [_LabelFloor(recall, goal.certainty) for recall in goal.floors.tolist()]
    positives = check_label_counts(counts, truth, label_names)
    usable = has_both(truth)
    if not usable.any():
        expected = "expected a label with positive and negative samples, got none"
        raise LevelheadError(expected, parameter="labels")

    # A threshold for each label; what is decided by those that have not seen the sample.
    generator = np.random.default_rng(rng)
    offset = np.zeros(size)
    before = scores > 0
    after = before.copy()
    for done, k in enumerate(np.flatnonzero(usable).tolist()):
        cost_matrix = None
        if goal.costs is not None:
            # In units of the largest: losses closer than 1e-10 are taken for equal.
            cost_matrix = goal.costs[k] / max(float(goal.costs.max()), 1e-300)
        fit = _fit_label(scores[:, k], truth[:, k], goal.metric, cost_matrix, asked[k], generator)
        offset[k] = fit.offset
        after[:, k] = fit.decided
        if progress is not None:
            progress("fit", done + 1, int(usable.sum()))
    # Choices of the folds may differ from 0 by chance; what is judged is the choice on all samples.
    if not offset.any():  # nothing will change, whatever a part of the samples would choose
        after = before

    # What speaks against it, what it is worth, and where it comes from.
    doubts = [
        doubt_training_rows(to_numpy(logits), training),
        _doubt_missing_labels(truth, label_names),
    ]
    return Tuned(
        rule=Offsets.name,
        adjustment=Adjustment.adding(offset),
        evidence=judge_decisions(truth, before, after, goal.metric, goal.costs, level),
        counts=tuple(positives.tolist()),
        counted=counts is None,
        names=label_names,
        kind=kind,
        chosen_on=chosen_on,
        n=len(truth),
        floors=_floors(scores, truth, offset, asked),
        warnings=issue_warnings(doubts),
        task="multilabel",
    )


def _names_of_labels(
    logits: Array, labels: Array, counts: Counts | None, names: Sequence[str] | None
) -> Sequence[str] | None:
    """Return the names of the labels: those given, or those that titles of columns say, or None.

    Raises:
        LevelheadError: two of the tables, or one and the names, have the labels in different orders.
    """
    if names is not None:
        names = as_names(names)
    tables = {"logits": logits, "labels": labels, "counts": counts}
    found = []
    for parameter, table in tables.items():
        with named(parameter):
            found.append(names_of_columns(table, counts, names))
    known = [label_names for label_names in found if label_names is not None]
    # Each table by what the others are titled with.
    for parameter, table in tables.items():
        with named(parameter):
            for label_names in known:
                check_titles(table, label_names)
    if not known:
        return None
    return known[0]


class _LabelFloor(NamedTuple):
    """The least recall of a label, and how likely that is to hold on new samples.

    A floor puts the threshold just below one of n positives. Where m are then right, the recall on new samples is
    spread as Beta(m, n - m + 1), as an order statistic is. That is what core/floors.py says of m - 1 right of
    n - 1: the positive that the threshold hangs on is left out.
    """

    least: float  # 0 for none
    certainty: float

    def need(self, positives: int) -> int:
        """Return how many positives must be right, of n of them."""
        if self.least == 0:
            return 0
        others = np.array([positives - 1])
        return 1 + int(needed_right(np.array([self.least]), others, self.certainty)[0])

    def probability(self, right: int, positives: int) -> float:
        """Return how likely the floor is to hold on new samples, where so many of n positives are right."""
        return float(holds_with(max(right - 1, 0), positives - 1, self.least))


class _LabelFit(NamedTuple):
    """What was chosen for a label, and what is decided by choices that have not seen the sample."""

    offset: float  # added to its logit; 0 leaves it as it is
    decided: np.ndarray  # [N] bool, each by a threshold that was chosen without the sample


def _fit_label(
    logits: np.ndarray,
    positive: np.ndarray,
    metric: Metric,
    cost: np.ndarray | None,
    floor: _LabelFloor,
    rng: np.random.Generator,
) -> _LabelFit:
    """Choose the offset of one label, on all samples [N] and without each fold.

    A label that is best as it is on all samples is judged by what the folds choose, too: whether it
    is left alone is a part of the choice.

    Args:
        logits: [N], of this label.
        positive: [N] bool, which samples have it.
        metric: a loss of two classes.
        cost: [2, 2], where the metric is a cost.
        floor: the least recall of the positives.
        rng: deals the folds.
    """
    # Two classes are dealt, so that every fold has its share of the positives.
    fold = deal(positive.astype(np.int64), rng)
    order = np.argsort(-logits, kind="stable")
    ordered = logits[order]
    ordered_positive = positive[order]
    ordered_fold = fold[order]
    cuts = Cuts.of_sorted(ordered, ordered_positive, cost)
    offset = cuts.best_offset(metric, floor.need(int(positive.sum())))
    decided = logits > 0
    for f in range(FOLDS):
        held = fold == f
        kept = ordered_fold != f  # what is left of a sorted order is sorted
        kept_positive = ordered_positive[kept]
        if not held.any() or not kept_positive.any() or kept_positive.all():
            continue  # nothing to decide, or nothing to choose by
        cuts = Cuts.of_sorted(ordered[kept], kept_positive, cost)
        without = cuts.best_offset(metric, floor.need(int(kept_positive.sum())))
        decided[held] = logits[held] + without > 0
    return _LabelFit(offset, decided)


def _floors(
    scores: np.ndarray, truth: np.ndarray, offset: np.ndarray, asked: Sequence[_LabelFloor]
) -> tuple[Floor, ...]:
    """Return each floor that was asked for, with the probability that it holds.

    By the decisions of the chosen offsets on all samples: where a threshold was chosen, the floor is met
    there, mostly with a margin.

    Args:
        scores, truth: [N, K] each.
        offset: [K], what was chosen.
        asked: a floor for each label.
    """
    floors = []
    for k, floor in enumerate(asked):
        if floor.least == 0:
            continue
        positive_scores = scores[truth[:, k], k]
        # Of the positives alone: a recall does not depend on the others.
        right = int((positive_scores + offset[k] > 0).sum())
        floors.append(
            Floor(
                index=k,
                least=floor.least,
                probability=floor.probability(right, len(positive_scores)),
                held_before=bool((positive_scores > 0).mean() >= floor.least),
            )
        )
    return tuple(floors)


def _doubt_missing_labels(truth: np.ndarray, names: Sequence[str] | None) -> Doubt:
    """Doubt labels that no sample has, or every one: they are left alone, and in no mean."""
    absent = []
    for k in np.flatnonzero(~has_both(truth)).tolist():
        # Which it is, and what it lacks: a positive, unless said otherwise.
        label = str(k)
        if names is not None:
            label = f"{k} ({names[k]})"
        if truth[:, k].any():
            label = f"{label} (no negative)"
        absent.append(label)
    if not absent:
        return None
    return MissingClassWarning(f"no positive sample here of label {listed(absent)}: left alone")
