"""Which classes are taken for which: two matrices or, of many classes, the largest pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .subject import Subject

MOST_IN_MATRIX = 16  # classes
MOST_PAIRS = 20
SHADES = 10  # of a cell, as in page.css


class Cell(NamedTuple):
    """A cell of a matrix."""

    text: str  # percent of the true class
    title: str  # in samples
    shade: int
    right: bool


class Matrix(NamedTuple):
    """A confusion matrix, the rarest class first; a row for each true class."""

    title: str
    names: list[str]
    rows: list[list[Cell]]


class ConfusedPair(NamedTuple):
    """Samples of one class that are predicted another."""

    true: str
    predicted: str
    before: int
    after: int


def matrices(subject: Subject) -> list[Matrix]:
    """Return the matrix before and after; none of many classes, or without samples."""
    if _unknown(subject) or subject.classes > MOST_IN_MATRIX:
        return []
    return [
        _matrix(subject, predicted, title)
        for predicted, title in zip(subject.predictions, ("As trained", "Adjusted"), strict=True)
    ]


def pairs(subject: Subject) -> list[ConfusedPair]:
    """Return the pairs of classes that are confused most often once adjusted; none of few classes."""
    if _unknown(subject) or subject.classes <= MOST_IN_MATRIX:
        return []
    labels = np.asarray(subject.labels)
    before, after = (
        _count_pairs(labels, predicted, subject.classes) for predicted in subject.predictions
    )
    order = sorted(after, key=lambda pair: (-after[pair], pair))[:MOST_PAIRS]
    return [
        ConfusedPair(
            true=subject.name(pair // subject.classes),
            predicted=subject.name(pair % subject.classes),
            before=before.get(pair, 0),
            after=after[pair],
        )
        for pair in order
    ]


def _unknown(subject: Subject) -> bool:
    return subject.logits is None or subject.labels is None or subject.tuned.multilabel


def _matrix(subject: Subject, predicted: np.ndarray, title: str) -> Matrix:
    size = subject.classes
    order = subject.rare_first
    flat = np.bincount(np.asarray(subject.labels) * size + predicted, minlength=size**2)
    table = flat.reshape(size, size)[order][:, order]
    rows = []
    for i, line in enumerate(table):
        total = int(line.sum())
        cells = []
        for j, n in enumerate(line):
            share = n / total if total else 0.0
            text = f"{100 * share:.0f}" if total else ""
            shade = round(SHADES * share)
            cells.append(Cell(text, f"{n:,} of {total:,}", shade, i == j))
        rows.append(cells)
    return Matrix(title, [subject.name(i) for i in order], rows)


def _count_pairs(labels: np.ndarray, predicted: np.ndarray, classes: int) -> dict[int, int]:
    """Return how often each wrong (true, predicted) occurs, by its number true * K + predicted."""
    wrong = labels != predicted
    keys, times = np.unique(labels[wrong] * classes + predicted[wrong], return_counts=True)
    return dict(zip(keys.tolist(), times.tolist(), strict=True))
