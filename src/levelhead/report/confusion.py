"""Which classes are taken for which: two matrices or, of many classes, the pairs confused most.

Both are counted from the predictions before and after, so they need samples of one class each;
without such samples there are none.

A matrix has K^2 cells, which nobody reads beyond some 16 classes: then the pairs that are confused
most are listed. They are those after the adjustment, with how often they were confused before: the
question is what is left, and what is new.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..show.style import short_names
from .subject import Subject

MOST_IN_MATRIX = 16  # classes, for which there is room in a column of the page
MOST_PAIRS = 20
SHADES = 10  # of a cell: .s1 to .s10 of page.css


class Cell(NamedTuple):
    """A cell of a matrix."""

    text: str  # percent of the true class; empty if it has no sample
    title: str  # the same in samples, where the pointer rests on it
    shade: int  # from 0 to SHADES
    right: bool  # whether it is on the diagonal


class Matrix(NamedTuple):
    """A confusion matrix, the rarest class first; a row for each true class."""

    title: str
    names: list[str]
    short: list[str]  # the names as they are shown beside the cells, where a long one has no room
    rows: list[list[Cell]]


class ConfusedPair(NamedTuple):
    """How many samples of one class are predicted to be of another one."""

    true: str
    predicted: str
    before: int
    after: int


def matrices(subject: Subject) -> list[Matrix]:
    """Return the matrices before and after; none of many classes.

    Shares are of each row, the true class, so that the diagonal has the recalls of a rare and a
    frequent class side by side; the numbers of samples are in the titles.
    """
    if not _has_predictions(subject) or subject.classes > MOST_IN_MATRIX:
        return []
    before, after = subject.predictions
    return [_matrix(subject, before, "As trained"), _matrix(subject, after, "Adjusted")]


def pairs(subject: Subject) -> list[ConfusedPair]:
    """Return the pairs of classes that are confused most once adjusted; none of few classes.

    Of equally many confusions, the pair of the lower indices comes first, so that a page made twice is
    the same. Numbers are samples and no shares: of 1,000 classes with ten samples each, shares would
    all be tenths.
    """
    if not _has_predictions(subject) or subject.classes <= MOST_IN_MATRIX:
        return []
    # A pair that is new after the adjustment was confused 0 times before.
    labels = np.asarray(subject.labels)
    before = _count_pairs(labels, subject.predictions[0], subject.classes)
    after = _count_pairs(labels, subject.predictions[1], subject.classes)
    most_confused = sorted(after, key=lambda pair: (-after[pair], pair))[:MOST_PAIRS]
    confused = []
    for pair in most_confused:
        true, predicted = divmod(pair, subject.classes)
        confused.append(
            ConfusedPair(
                true=subject.name(true),
                predicted=subject.name(predicted),
                before=before.get(pair, 0),
                after=after[pair],
            )
        )
    return confused


def _has_predictions(subject: Subject) -> bool:
    """Return whether there are samples, with one class each."""
    has_samples = subject.logits is not None and subject.labels is not None
    return has_samples and not subject.tuned.multilabel


def _matrix(subject: Subject, predicted: np.ndarray, title: str) -> Matrix:
    """Return the matrix of predictions [N], with the rarest class first, as in the table of classes.

    Args:
        subject: has the labels, and the order.
        predicted: [N], indices.
        title: above the matrix.
    """
    size = subject.classes
    order = subject.rare_first
    # A pair (true, predicted) is one number, true * K + predicted, so one pass counts all cells.
    flat = np.bincount(np.asarray(subject.labels) * size + predicted, minlength=size**2)
    table = flat.reshape(size, size)[order][:, order]
    rows = []
    for i, counts in enumerate(table):
        total = int(counts.sum())
        cells = []
        for j, n in enumerate(counts):
            # A class without a sample has no shares: its row is empty, and not all zeros.
            share = 0.0
            text = ""
            if total:
                share = n / total
                text = f"{100 * share:.0f}"
            cells.append(Cell(text, f"{n:,} of {total:,}", round(SHADES * share), right=i == j))
        rows.append(cells)
    names = [subject.name(i) for i in order]
    return Matrix(title, names, short_names(names, 14), rows)


def _count_pairs(labels: np.ndarray, predicted: np.ndarray, classes: int) -> dict[int, int]:
    """Return how often each wrong (true, predicted) occurs, by its number true * K + predicted.

    Of K^2 pairs only those that occur are kept: of 100,000 classes a table would not fit.
    """
    wrong = labels != predicted
    keys, times = np.unique(labels[wrong] * classes + predicted[wrong], return_counts=True)
    return dict(zip(keys.tolist(), times.tolist(), strict=True))
