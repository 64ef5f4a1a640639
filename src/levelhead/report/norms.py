"""Norms of the weight vectors of a head: against counts, and over the epochs of training.

The paper's observation, on the reader's own model: plain training gives frequent classes long weight
vectors (`norms_chart`, rings), a rule that multiplies takes that back (dots), and over the epochs one
sees it come about, or not come about under WVN (`training_chart`, of `norm_history`). A rule that
only adds changes no norm, so then there is no first chart.

Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from ..show.style import short
from ..support.errors import LevelheadError
from .subject import Subject
from .svg import WIDE, Drawing, Plane, change_mark, log_ticks, nice_ticks

MOST_LINES = 12  # classes whose norms are drawn over the epochs: six colors, each also dashed


def norms_chart(subject: Subject) -> Drawing | None:
    """Draw weight norms against counts, before and after; None if no norm changes.

    None also where head or counts are not known, or where two classes share one row of the head.
    """
    head = subject.head
    adjustment = subject.tuned.adjustment
    if head is None or subject.counts is None or not adjustment.multiplies:
        return None
    if head.classes != subject.classes:
        return None
    before = np.asarray(head.norms, np.float64)
    after = before * adjustment.scale

    # Both axes are logarithmic, so a class without a weight has no place on them. Nor has one that is
    # left alone, whose count is not its own.
    has_norm = before > 0
    if subject.tuned.background is not None:
        has_norm[subject.tuned.background] = False
    if not has_norm.any():
        return None
    shown = np.flatnonzero(has_norm)
    return Drawing.of(partial(_norms_of, subject, subject.counts, shown, before, after))


def _norms_of(
    subject: Subject,
    counts: np.ndarray,
    shown: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    width: float,
) -> Markup:
    """Draw the norms of some classes against their counts.

    Args:
        subject: has the names.
        counts: [K], training samples.
        shown: indices of the classes to draw.
        before, after: norms [K].
        width: of the picture.
    """
    # A little room at each end, so that no mark lies on the frame.
    log_counts = np.log10(counts)
    log_before = np.log10(before[shown])
    log_after = np.log10(after[shown])
    lowest = min(float(log_before.min()), float(log_after.min()))
    highest = max(float(log_before.max()), float(log_after.max()))
    x_range = (float(log_counts.min()) - 0.05, float(log_counts.max()) + 0.05)
    y_range = (lowest - 0.05, highest + 0.05)

    plane = Plane(width, 320, 60, 52, x_range, y_range)
    parts = [plane.grid(log_ticks(*y_range), lambda tick: f"{10**tick:.3g}")]
    parts += [plane.below(tick, f"{10**tick:,.0f}") for tick in log_ticks(*x_range)]
    for i, was, now in zip(shown.tolist(), log_before, log_after, strict=True):
        title = f"{subject.name(i)}: {before[i]:.3g} to {after[i]:.3g}"
        x = plane.x(float(log_counts[i]))
        parts.append(change_mark(x, plane.y(was), plane.y(now), radius=4, title=title))
    across = "training samples of the class; both axes logarithmic"
    parts.append(plane.titles(across, "norm of the weight vector"))
    return plane.picture("Norm of each weight vector against its count", *parts)


class NormLine(NamedTuple):
    """The norm of one class over the epochs of training."""

    title: str  # its name and its count
    color: str  # classes of page.css, for a color and a dash
    sign: str  # stands for the line in the key: also dashed if it is
    norms: np.ndarray  # [E], after each epoch


class NormHistory(NamedTuple):
    """Norms over the epochs of training, of classes from the most frequent to the rarest."""

    epochs: np.ndarray  # [E]
    lines: list[NormLine]


def norm_history(subject: Subject) -> NormHistory | None:
    """Return the norms of up to `MOST_LINES` classes; None if the log does not have two epochs of them.

    Raises:
        LevelheadError: a record whose norms are no K finite numbers: the log was changed by hand, or
            is that of another run.
    """
    records = [record for record in subject.log if record.get("norms") is not None]
    if len(records) < 2 or subject.counts is None:
        return None

    # The log is a file, and may hold anything.
    try:
        norms = np.array([record["norms"] for record in records], np.float64)
    except (TypeError, ValueError):
        norms = np.zeros(0)
    if norms.shape != (len(records), subject.classes) or not np.isfinite(norms).all():
        reason = f"expected {subject.classes} norms in each record of an epoch"
        raise LevelheadError(reason, parameter="log")

    # Records that do not say their epoch are numbered from 1.
    epochs = [float(record.get("epoch", i + 1)) for i, record in enumerate(records)]

    # Of many classes, some at equal distances of rank, with the first and the last.
    counts = subject.counts.copy()
    if subject.tuned.background is not None:
        counts[subject.tuned.background] = np.inf  # it comes first, as it is no rare one
    order = np.argsort(-counts, kind="stable")
    ranks = np.linspace(0, len(order) - 1, min(MOST_LINES, len(order)))
    chosen = order[np.unique(ranks.round().astype(int))]
    lines = []
    for position, i in enumerate(chosen):
        count = f"{counts[i]:,.0f}"
        if i == subject.tuned.background:
            count = "left alone"
        title = f"{short(subject.name(i), 24)} ({count})"
        color = f"line-{position % 6} dash-{position // 6}"
        sign = "━┅"[position // 6]
        lines.append(NormLine(title, color, sign, norms[:, i]))
    return NormHistory(np.array(epochs), lines)


def training_chart(history: NormHistory, width: float = WIDE) -> Markup:
    """Draw the norms of some classes over the epochs, from 0, where a vector would have no direction.

    Args:
        history: the norms.
        width: of the picture.
    """
    highest = max(float(line.norms.max()) for line in history.lines)
    x_range = (float(history.epochs.min()), float(history.epochs.max()))
    y_range = (0.0, 1.05 * highest or 1.0)
    plane = Plane(width, 320, 52, 52, x_range, y_range)
    parts = [plane.grid(nice_ticks(*y_range), "{:g}".format)]
    parts += [plane.below(tick, f"{tick:g}") for tick in nice_ticks(*x_range)]
    parts += [plane.line(history.epochs, line.norms, line.color) for line in history.lines]
    parts.append(plane.titles("epoch", "norm of the weight vector"))
    return plane.picture("Norms of the weight vectors over the epochs of training", *parts)
