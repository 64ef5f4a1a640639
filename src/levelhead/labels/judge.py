"""What decisions on several labels are worth.

It is the gain of each label, their mean, and how certain that is.

Every label is two classes, the samples without it and those with it, so that `Tables` [K, 2] and
every `Metric` serve as they are. `judge_decisions` compares two decisions on the same samples; `judge_labels`
does so for a choice and samples that it was not made on.

It is the counterpart of core/judge.py, with one difference that matters: there a sample has one class, and
classes are drawn by themselves, so that their variances add up. Here a sample has all K labels at once, and what
it does to them is not independent. So influences are added up over the labels of a sample before they are
squared.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..core.evidence import Evidence
from ..core.judge import judged_by
from ..core.metrics import Metric, Tables
from ..core.tuned import Tuned
from .check import DEFAULT_METRIC


def judge_labels(tuned: Tuned, scores: np.ndarray, truth: np.ndarray) -> Tuned:
    """Return a choice with the evidence of samples that it was not made on.

    Nothing is fitted here: the offsets are those of the choice, and so all N samples judge it, without
    folds. A metric of costs cannot be asked again, as costs are no part of a tuned.json.

    Args:
        tuned: what `tune_labels` returned.
        scores: [N, K], as `check_label_scores` returns them.
        truth: [N, K], as `check_label_table` does.

    Returns:
        The same choice with other evidence and, where costs are not known, one warning more.
    """
    by = judged_by(tuned.evidence, DEFAULT_METRIC)
    after = tuned.adjustment.scores(scores) > 0
    evidence = judge_decisions(truth, scores > 0, after, by.metric.for_labels(), None, by.level)
    return replace(tuned, evidence=evidence, warnings=(*tuned.warnings, *by.notes))


def has_both(truth: np.ndarray) -> np.ndarray:
    """Return which labels have samples with them and samples without, [K] bool, of labels [N, K].

    Of others no threshold is better than another, and recall or precision is not known.
    """
    positives = truth.sum(axis=0)
    return (positives > 0) & (positives < len(truth))


def judge_decisions(
    truth: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    metric: Metric,
    costs: np.ndarray | None,
    level: float,
) -> Evidence:
    """Compare decisions [N, K] before and after, label by label, and average over the labels.

    ``gain = mean over labels of loss_before - loss_after``.

    Args:
        truth: [N, K] bool, which samples have which labels.
        before, after: [N, K] bool, what is decided.
        metric: a loss of two classes, without and with the label.
        costs: [K, 2, 2], row true, column decided, where the metric is a cost.
        level: of the interval.

    Returns:
        The mean gain of the labels that have samples with them and without, and its standard error
        by the influence of each sample. Its n counts decisions, N K of them, and so does `changed`.
    """
    tables_before = _count(truth, before, costs)
    tables_after = _count(truth, after, costs)
    usable = np.flatnonzero(has_both(truth))
    gain = metric.losses(tables_before[usable]) - metric.losses(tables_after[usable])
    usable_costs = None
    if costs is not None:
        usable_costs = costs[usable]
    # What a sample does to the gain of each label, by whether it has the label and what is decided.
    moves_before = _moves(metric, tables_before[usable], usable_costs)
    moves_after = _moves(metric, tables_after[usable], usable_costs)
    every = np.arange(len(usable))
    true = truth[:, usable].astype(np.int64)
    moved = moves_before[every, true, before[:, usable].astype(np.int64)]
    moved = moved - moves_after[every, true, after[:, usable].astype(np.int64)]
    # A sample counts in all its labels at once, and its labels are alike: its influences are added
    # up over the labels before they are squared.
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
    """Return tables [K, 2] of decisions [N, K], of the samples without each label and with it.

    Args:
        truth, decided: [N, K] bool.
        costs: [K, 2, 2], row true, column decided; None without.
    """
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

    Two classes have but four kinds of samples, so no slopes are needed. They would not do:
    Matthews' correlation of a label that is never predicted has none.
    """
    here = metric.losses(tables)
    moves = np.empty((len(here), 2, 2))
    for true in (0, 1):
        for decided in (0, 1):
            # One more sample of this kind, in every column of the tables that counts it.
            right = tables.right.copy()
            right[:, true] += true == decided
            predicted = tables.predicted.copy()
            predicted[:, decided] += 1
            sizes = tables.sizes.copy()
            sizes[:, true] += 1
            paid = None
            if costs is not None and tables.paid is not None:
                paid = tables.paid + costs[:, true, decided]
            moves[:, true, decided] = metric.losses(Tables(right, predicted, sizes, paid)) - here
    return moves


def _turns(moves: np.ndarray) -> np.ndarray:
    """Return how much a loss moves if a sample turns from wrong to right, [K, 2].

    Of samples without the label, and of those with it: the most that one sample can gain or lose.

    Args:
        moves: [K, 2, 2], as `_moves` returns them.
    """
    without = np.abs(moves[:, 0, 1] - moves[:, 0, 0])
    with_it = np.abs(moves[:, 1, 0] - moves[:, 1, 1])
    return np.stack([without, with_it], axis=1)
