"""Folds of a cross-validation, each scored by a model that was not trained on it.

`AdjustedClassifierCV` calls `score_fold` for each split, in parallel where it may, and tunes on all that comes back.
"""

from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from ..heads.sklearn import Classifier
from ..support.types import Kind
from ._base_classifier import FitParams, Inputs, class_scores, fit_on
from ._labels import encode_labels
from ._loss_counts import loss_counts

# Rows to train on, None where nothing is trained, and rows that are held out.
Split = tuple[np.ndarray | None, np.ndarray]


class ScoredFold(NamedTuple):
    """Held-out samples of one fold, scored by a model that was not trained on them."""

    scores: np.ndarray  # [N, K]
    labels: np.ndarray  # [N], positions in `classes_`
    counts: np.ndarray | None  # [K], of what the model was trained on; None if that is not known


def held_out_once(splits: list[Split], samples: int) -> list[Split]:
    """Return the splits with each sample held out in the first of them that does so, and in no other.

    Repeated folds and shuffled splits hold samples out several times. Taken for so many samples, they would make
    the interval of the gain too narrow, and a fit would be judged on samples that it has seen in another repeat.

    Args:
        splits: rows to train on and rows to hold out, as positions or as a mask.
        samples: how many there are.

    Returns:
        Splits that still hold out a sample.
    """
    seen = np.zeros(samples, bool)
    once = []
    for trained_on, held_out in splits:
        rows = np.arange(samples)[held_out]
        # Of rows that a split lists twice, the first.
        _, first = np.unique(rows, return_index=True)
        rows = rows[np.sort(first)]
        rows = rows[~seen[rows]]
        seen[rows] = True
        if len(rows):
            once.append((trained_on, rows))
    return once


def counts_of_rows(
    model: Classifier,
    labels: np.ndarray,
    rows: np.ndarray | slice,
    classes: np.ndarray,
    fit_params: FitParams,
) -> np.ndarray:
    """Return how many samples of each class the loss of a model saw, [K], of some rows of y.

    Args:
        model: a classifier that was fitted on these rows.
        labels: [N], positions in `classes`, of all rows.
        rows: which of them it was fitted on.
        classes: [K], the labels.
        fit_params: what its `fit` was given besides X and y: a sample weight for each row.
    """
    weights = fit_params.get("sample_weight")
    weights_of_rows = None
    if weights is not None:
        weights_of_rows = np.asarray(weights)[rows]
    return loss_counts(model, labels[rows], classes, weights_of_rows)


def score_fold(
    estimator: Classifier,
    X: Inputs,
    y: np.ndarray,
    split: Split,
    classes: np.ndarray,
    kind: Kind,
    fit_params: FitParams | None,
) -> ScoredFold:
    """Score held-out rows; without `fit_params`, by an estimator that is trained already.

    A function and no method, as joblib sends it to other processes with its arguments.

    Args:
        estimator: the classifier, which is cloned and fitted on the rows to train on.
        X, y: all samples, with labels as they are.
        split: rows to train on, and rows to score.
        classes: [K], the labels of all samples, in the order of the scores.
        kind: of the scores.
        fit_params: what `fit` takes besides X and y.
    """
    # A clone for each fold, so that the estimator stays as it was given.
    trained_on, held_out = split
    model = estimator
    if fit_params is not None:
        model = fit_on(clone(estimator), X, y, trained_on, fit_params)
    counts = None
    if trained_on is not None:
        labels = encode_labels(y, classes)
        counts = counts_of_rows(model, labels, trained_on, classes, fit_params or {})
    scores = class_scores(model, _safe_indexing(X, held_out), kind)
    # A class that none of the rows trained on has is never predicted: its column is the lowest score there is, so
    # that all folds have the same columns.
    if len(model.classes_) < len(classes):
        lowest = -np.inf
        if kind == "probabilities":
            lowest = 0.0
        columns = encode_labels(model.classes_, classes)
        all_columns = np.full((len(scores), len(classes)), lowest)
        all_columns[:, columns] = scores
        scores = all_columns
    return ScoredFold(scores, encode_labels(y[held_out], classes), counts)
