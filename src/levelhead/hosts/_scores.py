"""The class scores of any scikit-learn classifier [N, K], its counts, and the rules that can act on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from ..core.adjust import RuleName
from ..core.counts import Counts, Missing, of, resolve
from ..core.errors import LevelheadError
from ..heads.sklearn import innermost


def scores(estimator: Any, X: Any) -> np.ndarray:
    """One column a class, [N, K], float64: `decision_function` where there is one, else the log of `predict_proba`.

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
        raise LevelheadError(f"expected {size} scores a sample, one per class; the decision_function of "
                         f"{type(model).__name__} gives pairs of classes; set decision_function_shape='ovr'")
    return values


def rules(estimator: Any, rule: str) -> tuple[RuleName, ...]:
    """The rules that can act on a fitted classifier, of those asked for: `auto` is either, rescaling first.

    RS cannot act on two classes, whose scores are opposite, nor on log-probabilities, which are never positive: scaling
    pushes those down.
    """
    why = "has two classes" if len(estimator.classes_) <= 2 else "gives probabilities only, no decision_function"
    can_rescale = len(estimator.classes_) > 2 and hasattr(estimator, "decision_function")
    if rule == "rescale" and not can_rescale:
        raise LevelheadError(f"{type(innermost(estimator)).__name__} {why}: scaling cannot act on it; use rule='shift'")
    if rule == "auto":
        return ("rescale", "shift") if can_rescale else ("shift",)
    return ("rescale",) if rule == "rescale" else ("shift",)


def is_frozen(estimator: Any) -> bool:
    """Whether `fit` leaves the classifier as it is: a FrozenEstimator, alone or as the last step of a pipeline."""
    return is_frozen(estimator.steps[-1][1]) if hasattr(estimator, "steps") else isinstance(estimator, FrozenEstimator)


def encode(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels as positions in `classes`; a ValueError that names one that is not there."""
    index = {label: i for i, label in enumerate(classes.tolist())}
    unknown = [label for label in np.unique(y).tolist() if label not in index]
    if unknown:
        raise LevelheadError(f"y holds {unknown[0]!r}, a class the estimator was not fitted on; it knows {list(index)}")
    return np.array([index[label] for label in y.tolist()], dtype=np.int64)


def count(y: np.ndarray, classes: np.ndarray, given: Counts | None, missing: Missing) -> np.ndarray:
    """Checked counts [K] in the order of `classes`: those given, or else counted from y."""
    counted = of(encode(y, classes), classes=len(classes)) if given is None else given
    return resolve(counted, len(classes), names=[str(label) for label in classes], missing=missing, offers=["missing"])
