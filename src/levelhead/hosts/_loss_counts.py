"""How many samples of each class a classifier's loss saw: times the weights of classes and samples.

What offsets are held near is the mix of classes that the loss saw, and ``class_weight="balanced"`` makes that even,
whatever `y` counts. Going by `y` alone would level such a classifier a second time.
"""

import numpy as np
from numpy.typing import ArrayLike

from ..heads.sklearn import Classifier, innermost


def loss_counts(
    estimator: Classifier,
    labels: np.ndarray,
    classes: np.ndarray,
    sample_weight: ArrayLike | None = None,
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
    # Counts are whole numbers of samples, and no class that was trained on has none.
    return np.maximum(np.round(weighted), 1.0)


def weights_of_classes(model: Classifier, sizes: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return by what a classifier weighs each class, [K], on a training set of these sizes [K].

    Each library has a parameter of its own for it: scikit-learn and LightGBM `class_weight`,
    CatBoost `auto_class_weights`, and for two classes LightGBM `is_unbalance`, XGBoost and others
    `scale_pos_weight`. They are asked by name, so that none of these libraries is imported. A classifier that has
    none of them weighs all classes the same.

    "balanced" is ``N / (K n_k)``, as scikit-learn defines it.
    """
    class_weight = getattr(model, "class_weight", None)
    by_size = getattr(model, "auto_class_weights", None)
    balanced = sizes.sum() / (len(sizes) * np.maximum(sizes, 1))
    if isinstance(class_weight, dict):
        return np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    # A text is "balanced" or, of forests, "balanced_subsample".
    if isinstance(class_weight, str) or by_size == "Balanced":
        return balanced
    if by_size == "SqrtBalanced":
        return np.sqrt(balanced)
    if len(classes) == 2:
        if getattr(model, "is_unbalance", False):
            return balanced
        of_positives = getattr(model, "scale_pos_weight", None)
        if of_positives is not None:
            return np.array([1.0, float(of_positives)])
    return np.ones(len(classes))
