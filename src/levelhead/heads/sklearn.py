"""The head of a linear scikit-learn classifier of K > 2 classes.

It scores them as ``x @ coef_.T + intercept_``; others are refused.

`linear_model` looks through pipelines and searches for the model that predicts; `read` tries on
random features that its scores are those of its coefficients, as a subclass may do something else.
"""

from typing import Any, TypeAlias
from warnings import catch_warnings

import numpy as np

from ..core.head import Head
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing

with naming_what_is_missing():
    from sklearn.frozen import FrozenEstimator
    from sklearn.utils.validation import check_is_fitted

# Which attributes an estimator has depends on its kind and on whether it is fitted: no type says it.
Classifier: TypeAlias = Any
_WRAP_IT = "wrap it in levelhead.hosts.sklearn.AdjustedClassifier, which works on scores"


def read(estimator: Classifier) -> Head:
    """Read the head of a fitted linear classifier of three or more classes.

    Args:
        estimator: a linear classifier, or a pipeline, search or FrozenEstimator around one.

    Returns:
        weight [K, d] from `coef_`; bias [K] from `intercept_`, or None if the model was fitted
        without one; names from `classes_`.

    Raises:
        LevelheadError: it has two classes, or does not score classes by these alone; the message
            says what to do.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> head = read(LogisticRegression(max_iter=1000).fit(X, y))
    >>> head.weight.shape, head.names
    ((3, 4), ['0', '1', '2'])
    """
    model = linear_model(estimator)
    head = Head(model.coef_, _bias(model), [str(label) for label in model.classes_])
    rng = np.random.default_rng(0)
    probe = rng.standard_normal((8, head.weight.shape[1])).astype(head.weight.dtype)
    with catch_warnings(action="ignore"):  # about the feature names that the probe does not have
        scores = model.decision_function(probe)
        labels = model.predict(probe)
    # A model may scale its features first, or vote between pairs of classes.
    same_shape = scores.shape == (8, head.classes)
    if not same_shape or not np.allclose(scores, head.logits(probe), rtol=1e-3, atol=1e-5):
        raise LevelheadError(
            f"{_kind(model)} does not score classes by coef_ and intercept_ alone; {_WRAP_IT}"
        )
    if not np.array_equal(labels, model.classes_[scores.argmax(axis=1)]):
        raise LevelheadError(
            f"{_kind(model)} does not predict the class of the largest score; has it several labels?"
        )
    return head


def write(estimator: Classifier, head: Head) -> None:
    """Put a head into a fitted linear classifier, in place.

    dtype and memory layout stay the model's own.

    Args:
        estimator: as for `read`; changed in place.
        head: weight [K, d] and bias [K], of the model's shapes. A bias for a model without one is
            added.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from levelhead import adjust, rules
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression(max_iter=1000).fit(X[:120], y[:120])
    >>> before = model.decision_function(X)
    >>> write(model, adjust(read(model), rules.Rescale(0.5), [50, 50, 20]))
    >>> np.allclose(model.decision_function(X), before * [1, 1, 2.5 ** 0.5])
    True
    """
    model = linear_model(estimator)
    new = head.numpy()
    if new.weight.shape != model.coef_.shape:
        want = list(model.coef_.shape)
        got = list(new.weight.shape)
        raise LevelheadError(f"expected weight {want} for {_kind(model)}, got {got}")
    if new.bias is None and _bias(model) is not None:
        raise LevelheadError(
            f"expected a bias [{new.classes}]: {_kind(model)} has an intercept, the head has none"
        )
    # LogisticRegression and LinearSVC have them column by column, SGDClassifier row by row.
    order = "F" if np.isfortran(model.coef_) else "C"
    model.coef_ = np.array(new.weight, dtype=model.coef_.dtype, order=order)
    if new.bias is not None:
        model.intercept_ = np.array(new.bias, dtype=np.asarray(model.intercept_).dtype)


def linear_model(estimator: Classifier) -> Classifier:
    """Return the fitted linear model of three or more classes in an estimator.

    Raises:
        LevelheadError: there is none; the message says what to do.
    """
    check_is_fitted(estimator)
    model = innermost(estimator)
    coef = getattr(model, "coef_", None)
    # A kernel machine computes it from what it holds, and setting it would do nothing.
    is_computed = isinstance(getattr(type(model), "coef_", None), property)
    if coef is None or is_computed or not hasattr(model, "classes_"):
        raise LevelheadError(
            f"{_kind(model)} has no linear head of its own (no coef_ that can be set); {_WRAP_IT}"
        )
    if not isinstance(coef, np.ndarray):
        raise LevelheadError(f"{_kind(model)} has a sparse coef_; call its densify() first")
    if coef.ndim == 1 or len(coef) == 1:
        reason = f"{_kind(model)} has two classes and one weight vector: scaling it changes no prediction"
        raise LevelheadError(f"{reason}; {_WRAP_IT} and adds to them")
    return model


def innermost(estimator: Classifier) -> Classifier:
    """Return the estimator that predicts in the end.

    Of a pipeline that is the last step, of a search the best one.
    """
    if hasattr(estimator, "best_estimator_"):
        return innermost(estimator.best_estimator_)
    if isinstance(estimator, FrozenEstimator):
        return innermost(estimator.estimator)
    if hasattr(estimator, "steps"):
        return innermost(estimator.steps[-1][1])
    return estimator


def _bias(model: Classifier) -> np.ndarray | None:
    """Return the bias, or None if no intercept was fitted.

    Some models then keep a scalar 0.0, others K zeros. `write` gives such a model an intercept,
    which its predictions use whether or not it was fitted.
    """
    intercept = np.asarray(getattr(model, "intercept_", 0.0))
    if intercept.ndim == 1 and (getattr(model, "fit_intercept", True) or intercept.any()):
        return intercept
    return None


def _kind(model: Classifier) -> str:
    return type(model).__name__
