"""The class scores of any scikit-learn classifier [N, K], its counts, and the rules that can act on them."""

from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from ..core.adjust import RuleName
from ..core.counts import Counts, Missing, of, resolve
from ..core.errors import LevelheadError
from ..core.per_class import listed
from ..heads.sklearn import innermost


def class_scores(estimator: Any, X: Any) -> np.ndarray:
    """Return one score per class, [N, K], float64: `decision_function` if there is one, else log of `predict_proba`.

    Two classes have one decision value z, which stands for (-z/2, z/2). A probability of 0 counts as the smallest
    normal float, so its logarithm is -708 and not minus infinity.
    """
    if not hasattr(estimator, "decision_function"):
        probability = np.asarray(estimator.predict_proba(X), dtype=np.float64)
        return np.log(np.maximum(probability, np.finfo(np.float64).tiny))
    values, size = np.asarray(estimator.decision_function(X), dtype=np.float64), len(estimator.classes_)
    if values.ndim == 1:
        return np.outer(values, [-0.5, 0.5])
    model = innermost(estimator)
    if values.shape[1] != size or getattr(model, "decision_function_shape", "ovr") == "ovo":
        raise LevelheadError(f"expected {size} scores per sample, one per class, but {type(model).__name__} scores "
                             "pairs of classes; set its decision_function_shape to 'ovr'", parameter="estimator")
    return values


def usable_rules(estimator: Any, rule: str) -> tuple[RuleName, ...]:
    """Return the rules asked for that can act on a fitted classifier: `auto` is either, rescaling first.

    RS cannot act on two classes, whose scores are opposite, nor on log-probabilities, which are never positive: scaling
    pushes those down.
    """
    can_rescale = len(estimator.classes_) > 2 and hasattr(estimator, "decision_function")
    if rule == "rescale" and not can_rescale:
        why = "has two classes" if len(estimator.classes_) <= 2 else "gives probabilities, without a decision_function"
        raise LevelheadError(f"{type(innermost(estimator)).__name__} {why}, so 'rescale' cannot act on it; use 'shift'",
                             parameter="rule")
    if rule == "auto":
        return ("rescale", "shift") if can_rescale else ("shift",)
    return ("rescale",) if rule == "rescale" else ("shift",)


def is_frozen(estimator: Any) -> bool:
    """Return whether `fit` leaves the classifier as it is: a FrozenEstimator, alone or as the last pipeline step."""
    return is_frozen(estimator.steps[-1][1]) if hasattr(estimator, "steps") else isinstance(estimator, FrozenEstimator)


def encode_labels(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return labels as positions in `classes`."""
    index = {label: i for i, label in enumerate(classes.tolist())}
    unknown = [label for label in np.unique(y).tolist() if label not in index]
    if unknown:
        raise LevelheadError(f"expected the classes the estimator was fitted on ({listed(list(index))}), got "
                             f"{unknown[0]!r}", parameter="y")
    return np.array([index[label] for label in y.tolist()], dtype=np.int64)


def resolve_counts(counts: Counts | None, y: np.ndarray, classes: np.ndarray, missing: Missing) -> np.ndarray:
    """Return checked counts [K] in the order of `classes`: those given, or those of y if None."""
    found = of(encode_labels(y, classes), classes=len(classes)) if counts is None else counts
    return resolve(found, len(classes), names=[str(label) for label in classes], missing=missing)
