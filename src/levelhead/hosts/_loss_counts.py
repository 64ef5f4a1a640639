"""How many samples of each class a classifier's loss saw: times the weights of classes and samples."""

from typing import Any

import numpy as np

from ..heads.sklearn import innermost


def loss_counts(
    estimator: Any, labels: np.ndarray, classes: np.ndarray, sample_weight: Any = None
) -> np.ndarray:
    """Return the samples of each class as the loss saw them, [K], whole numbers from 1 on.

    Of a classifier with balanced class weights, all are the same, as the weights make them so.

    Args:
        estimator: the classifier, or what wraps it.
        labels: [N], positions in `classes`.
        classes: [K], the labels.
        sample_weight: [N], or None.

    >>> from sklearn.linear_model import LogisticRegression
    >>> labels, classes = np.repeat([0, 1], [30, 10]), np.array(["ant", "bee"])
    >>> loss_counts(LogisticRegression(class_weight={"bee": 3.0}), labels, classes)
    array([30., 30.])
    """
    weights = None
    if sample_weight is not None:
        weights = np.asarray(sample_weight, np.float64)
    seen = np.bincount(labels, weights, len(classes)).astype(np.float64)
    if weights is not None and weights.sum() > 0:
        seen *= len(labels) / weights.sum()  # in samples, whatever the unit of the weights
    sizes = np.bincount(labels, minlength=len(classes))
    weighted = seen * weights_of_classes(innermost(estimator), sizes, classes)
    return np.maximum(np.round(weighted), 1.0)


def weights_of_classes(model: Any, sizes: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return by what a classifier weighs each class, [K], on a training set of these sizes."""
    given = getattr(model, "class_weight", None)
    by_size = getattr(model, "auto_class_weights", None)  # CatBoost's
    balanced = sizes.sum() / (len(sizes) * np.maximum(sizes, 1))
    if isinstance(given, dict):
        return np.array([float(given.get(label, 1.0)) for label in classes.tolist()])
    if isinstance(given, str) or by_size == "Balanced":  # balanced, or balanced_subsample
        return balanced
    if by_size == "SqrtBalanced":
        return np.sqrt(balanced)
    if len(classes) == 2:
        if getattr(model, "is_unbalance", False):  # LightGBM's
            return balanced
        positive = getattr(model, "scale_pos_weight", None)  # XGBoost's and others'
        if positive is not None:
            return np.array([1.0, float(positive)])
    return np.ones(len(classes))
