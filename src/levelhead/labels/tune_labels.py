"""Several labels per sample: one exact threshold for each, chosen on held-out samples.

1. What was given is checked, once (`check.py`).
2. Each label gets the best of all its thresholds: without each of three folds, and on all samples.
3. Every sample is decided as the model is, and by thresholds that were fitted without it.
4. Both are judged by the metric, label by label, and the gains are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..core.adjustment import Adjustment
from ..core.class_names import listed
from ..core.counts import Counts
from ..core.doubts import Doubt, doubt_training_rows, issue_warnings
from ..core.evidence import Evidence
from ..core.floors import holds_with
from ..core.metrics import Metric, Tables
from ..core.rules import Offsets
from ..core.samples import FOLDS, deal
from ..core.tune import check_level
from ..core.tuned import Floor, Tuned
from ..support.arrays import Array, to_numpy
from ..support.errors import LevelheadError
from ..support.progress import StageProgress
from ..support.types import Kind
from ..support.warnings import MissingClassWarning
from .check import (
    DEFAULT_METRIC,
    check_label_counts,
    check_label_floors,
    check_label_metric,
    check_label_scores,
    check_label_table,
)
from .cuts import Cuts


def tune_labels(
    logits: Array,
    labels: Array,
    counts: Counts | None = None,
    *,
    metric: str | Metric = DEFAULT_METRIC,
    cost: Array | None = None,
    floors: float | Sequence[float] | Mapping[str, float] | None = None,
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
    between two of its logits, and the offset is the middle of the best ones. A label is moved whatever
    its own gain: to leave those in doubt alone did worse on new samples.

    Args:
        logits: [N, K] of samples the model was not trained on, before the sigmoid.
        labels: [N, K], 1 where a sample has the label, else 0. A label without a positive or without a
            negative sample is named in a warning and left alone.
        counts: training samples that have each label, for the record; None counts those given here.
        metric: of each label, of which the mean is taken: `macro_f1` (the F1 of the positives);
            `balanced_error`, which takes any number of false alarms for a rare label that is found; or
            any other name or `Metric`, of two classes: without and with the label.
        cost: [2, 2] or [K, 2, 2], row true, column predicted: the metric is then the mean cost.
        floors: least recall of the positives: a number for all labels, one for each, or
            {label: recall}.
        kind: `probabilities` if they come after the sigmoid.
        chosen_on, level, rng, training, names, progress: as in `tune`; names are of the labels.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((400, 2)) < [0.5, 0.1]
    >>> tuned = tune_labels(2 * labels - [1.0, 3.0] + rng.normal(size=(400, 2)), labels)
    >>> tuned.adjustment.offset.round(2), tuned.verdict
    (array([0.05, 1.2 ]), 'better')
    """
    check_level(level)
    truth = check_label_table(labels)
    size = truth.shape[1]
    of_label, costs = check_label_metric(metric, cost, size)
    if names is not None and len(names) != size:
        raise LevelheadError(f"expected {size}, one per label, got {len(names)}", parameter="names")
    scores = check_label_scores(logits, truth, kind)
    least = check_label_floors(floors, truth, names)
    positives = check_label_counts(counts, truth, names)
    usable = has_both(truth)
    if not usable.any():
        expected = "expected a label with positive and negative samples, got none"
        raise LevelheadError(expected, parameter="labels")
    generator = np.random.default_rng(rng)
    offset = np.zeros(size)
    before = scores > 0
    after = before.copy()
    for done, k in enumerate(np.flatnonzero(usable).tolist()):
        matrix = None if costs is None else costs[k]
        fit = _fit_label(scores[:, k], truth[:, k], of_label, matrix, least[k], generator)
        offset[k] = fit.offset
        after[:, k] = fit.decided
        if progress is not None:
            progress("fit", done + 1, int(usable.sum()))
    if not offset.any():  # nothing will change, whatever a part of the samples would choose
        after = before
    warnings = issue_warnings(
        [
            doubt_training_rows(to_numpy(logits), training),
            _doubt_missing_labels(truth, names),
        ]
    )
    return Tuned(
        rule=Offsets.name,
        adjustment=Adjustment.adding(offset),
        evidence=_judge(truth, before, after, of_label, costs, level),
        counts=tuple(positives.tolist()),
        counted=counts is None,
        names=None if names is None else tuple(map(str, names)),
        kind=kind,
        chosen_on=chosen_on,
        n=len(truth),
        floors=_floors(scores, truth, offset, least),
        warnings=warnings,
        task="multilabel",
    )


def judge_labels(tuned: Tuned, scores: np.ndarray, truth: np.ndarray) -> Tuned:
    """Return a choice with the evidence of samples that it was not made on.

    Args:
        tuned: what `tune_labels` returned.
        scores: [N, K], as `check_label_scores` returns them.
        truth: [N, K], as `check_label_table` does.
    """
    metric: str | Metric = DEFAULT_METRIC
    level = 0.95
    warnings = tuned.warnings
    if tuned.evidence is not None:
        level = tuned.evidence.level
        if tuned.evidence.after.paid is None:
            metric = tuned.evidence.metric
        else:
            note = f"costs are not kept with a choice, so these samples are judged by {metric}"
            warnings = (*warnings, note)
    of_label, _ = check_label_metric(metric, None, tuned.classes)
    after = tuned.adjustment.scores(scores) > 0
    evidence = _judge(truth, scores > 0, after, of_label, None, level)
    return replace(tuned, evidence=evidence, warnings=warnings)


def has_both(truth: np.ndarray) -> np.ndarray:
    """Return which labels have samples with them and samples without, [K], of labels [N, K]."""
    positives = truth.sum(axis=0)
    return (positives > 0) & (positives < len(truth))


# ---- The fit of one label ----------------------------------------------------------------------


class _LabelFit(NamedTuple):
    """What was chosen for a label, and what is decided by choices that have not seen the sample."""

    offset: float
    decided: np.ndarray  # [N] bool


def _fit_label(
    logits: np.ndarray,
    positive: np.ndarray,
    metric: Metric,
    cost: np.ndarray | None,
    floor: float,
    rng: np.random.Generator,
) -> _LabelFit:
    """Choose the offset of one label, on all samples [N] and without each fold.

    A label that is best as it is on all samples is judged by what the folds choose, too: whether it is
    left alone is a part of the choice.
    """
    fold = deal(positive.astype(np.int64), rng)
    order = np.argsort(-logits, kind="stable")
    ordered = logits[order]
    ordered_positive = positive[order]
    ordered_fold = fold[order]
    offset = Cuts.of_sorted(ordered, ordered_positive, cost).best_offset(metric, floor)
    decided = logits > 0
    for f in range(FOLDS):
        held = fold == f
        kept = ordered_fold != f  # what is left of a sorted order is sorted
        kept_positive = ordered_positive[kept]
        if not held.any() or not kept_positive.any() or kept_positive.all():
            continue  # nothing to decide, or nothing to choose by
        cuts = Cuts.of_sorted(ordered[kept], kept_positive, cost)
        decided[held] = logits[held] + cuts.best_offset(metric, floor) > 0
    return _LabelFit(offset, decided)


def _floors(
    scores: np.ndarray, truth: np.ndarray, offset: np.ndarray, least: np.ndarray
) -> tuple[Floor, ...]:
    """Return each floor that was asked for, with the probability that it holds."""
    floors = []
    for k in np.flatnonzero(least > 0).tolist():
        own = scores[truth[:, k], k]
        right = int((own + offset[k] > 0).sum())
        floors.append(
            Floor(
                index=k,
                least=float(least[k]),
                probability=float(holds_with(right, len(own), float(least[k]))),
                held_before=bool((own > 0).mean() >= least[k]),
            )
        )
    return tuple(floors)


def _doubt_missing_labels(truth: np.ndarray, names: Sequence[str] | None) -> Doubt:
    """Doubt labels that no sample has, or every one."""
    absent = []
    for k in np.flatnonzero(~has_both(truth)).tolist():
        shown = str(k) if names is None else f"{k} ({names[k]})"
        absent.append(f"{shown} (no negative)" if truth[:, k].any() else shown)
    if not absent:
        return None
    return MissingClassWarning(f"no positive sample here of label {listed(absent)}: left alone")


# ---- What it is worth --------------------------------------------------------------------------


def _judge(
    truth: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    metric: Metric,
    costs: np.ndarray | None,
    level: float,
) -> Evidence:
    """Compare decisions [N, K] before and after, label by label, and average over the labels."""
    tables_before = _count(truth, before, costs)
    tables_after = _count(truth, after, costs)
    usable = np.flatnonzero(has_both(truth))
    gain = metric.loss(tables_before[usable]) - metric.loss(tables_after[usable])
    # What a sample does to the gain of each label, by whether it has the label and what is decided.
    moves_before = _moves(metric, tables_before[usable], None if costs is None else costs[usable])
    moves_after = _moves(metric, tables_after[usable], None if costs is None else costs[usable])
    every = np.arange(len(usable))
    true = truth[:, usable].astype(np.int64)
    moved = moves_before[every, true, before[:, usable].astype(np.int64)]
    moved = moved - moves_after[every, true, after[:, usable].astype(np.int64)]
    # A sample counts in all its labels at once, and its labels are alike: its influences are added up
    # over the labels before they are squared.
    influence = moved.sum(axis=1)
    variance = ((influence - influence.mean()) ** 2).sum()
    # Few samples that agree do not make a label certain: those without it, and those with it, are
    # taken to have one more that gains as much as a sample can, and one that loses as much.
    turns = (_turns(moves_before) + _turns(moves_after)) / 2
    turns[(before == after)[:, usable].all(axis=0)] = 0.0  # these gain nothing for certain
    sizes = tables_before.sizes[usable]
    variance += (2 * turns**2 * sizes / (sizes + 2)).sum()
    return Evidence(
        metric=metric,
        before=tables_before,
        after=tables_after,
        gain=float(gain.mean()),
        standard_error=float(np.sqrt(variance)) / len(usable),
        changed=int((before != after).sum()),
        n=before.size,
        level=level,
    )


def _count(truth: np.ndarray, decided: np.ndarray, costs: np.ndarray | None) -> Tables:
    """Return tables [K, 2] of decisions [N, K], of the samples without each label and with it."""
    sizes = np.stack([(~truth).sum(axis=0), truth.sum(axis=0)], axis=1).astype(np.float64)
    hits = (truth & decided).sum(axis=0)
    rejections = (~truth & ~decided).sum(axis=0)
    right = np.stack([rejections, hits], axis=1).astype(np.float64)
    predicted = np.stack([(~decided).sum(axis=0), decided.sum(axis=0)], axis=1).astype(np.float64)
    paid = None
    if costs is not None:
        wrong = sizes - right
        paid = right[:, 0] * costs[:, 0, 0] + wrong[:, 0] * costs[:, 0, 1]
        paid = paid + right[:, 1] * costs[:, 1, 1] + wrong[:, 1] * costs[:, 1, 0]
    return Tables(right, predicted, sizes, paid)


def _moves(metric: Metric, tables: Tables, costs: np.ndarray | None) -> np.ndarray:
    """Return what one more sample does to the loss of each label, [K, 2, 2]: true, then decided.

    Two classes have but four kinds of samples, so no slopes are needed. They would not do: Matthews'
    correlation of a label that is never predicted has none.
    """
    here = metric.loss(tables)
    moves = np.empty((len(here), 2, 2))
    for true in (0, 1):
        for decided in (0, 1):
            one = np.zeros((3, 2))
            one[0, true] = true == decided
            one[1, decided] = 1
            one[2, true] = 1
            paid = None
            if costs is not None and tables.paid is not None:
                paid = tables.paid + costs[:, true, decided]
            more = Tables(
                tables.right + one[0], tables.predicted + one[1], tables.sizes + one[2], paid
            )
            moves[:, true, decided] = metric.loss(more) - here
    return moves


def _turns(moves: np.ndarray) -> np.ndarray:
    """Return how much a loss moves if a sample turns from wrong to right, without and with it, [K, 2]."""
    without = np.abs(moves[:, 0, 1] - moves[:, 0, 0])
    with_it = np.abs(moves[:, 1, 0] - moves[:, 1, 1])
    return np.stack([without, with_it], axis=1)
