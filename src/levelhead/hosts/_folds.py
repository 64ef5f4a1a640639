"""Folds of a cross-validation, each scored by a model that was not trained on it."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from ..support.types import Kind
from ._base_classifier import class_scores, fit_on
from ._labels import encode_labels
from ._loss_counts import loss_counts


class ScoredFold(NamedTuple):
    """Held-out samples of one fold, scored by a model that was not trained on them."""

    scores: np.ndarray  # [N, K]
    labels: np.ndarray  # [N], positions in `classes_`
    counts: np.ndarray | None  # [K], of what the model was trained on; None if that is not known


def counts_of_rows(
    model: Any, labels: np.ndarray, rows: Any, classes: np.ndarray, fit_params: dict
) -> np.ndarray:
    """Return how many samples of each class the loss of a model saw, [K], of some rows of y."""
    weights = fit_params.get("sample_weight")
    own_weights = None
    if weights is not None:
        own_weights = np.asarray(weights)[rows]
    return loss_counts(model, labels[rows], classes, own_weights)


def score_fold(
    estimator: Any,
    X: Any,
    y: np.ndarray,
    split: tuple[np.ndarray | None, np.ndarray],
    classes: np.ndarray,
    kind: Kind,
    fit_params: dict | None,
) -> ScoredFold:
    """Score held-out rows; without `fit_params`, by an estimator that is trained already."""
    trained_on, held = split
    model = estimator
    if fit_params is not None:
        model = fit_on(clone(estimator), X, y, trained_on, fit_params)
    counts = None
    if trained_on is not None:
        labels = encode_labels(y, classes)
        counts = counts_of_rows(model, labels, trained_on, classes, fit_params or {})
    scores = class_scores(model, _safe_indexing(X, held), kind)
    if len(model.classes_) < len(classes):  # one that no sample here has is never predicted
        lowest = 0.0 if kind == "probabilities" else -np.inf
        known = encode_labels(model.classes_, classes)
        filled = np.full((len(scores), len(classes)), lowest)
        filled[:, known] = scores
        scores = filled
    return ScoredFold(scores, encode_labels(y[held], classes), counts)
