"""What the fixed and the tuned classifier share: class scores [N, K] of any classifier, its counts, its predictions."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, _fit_context
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, _raise_for_params
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _estimator_has, check_is_fitted, column_or_1d, indexable

from ..choice.diagnostics import diagnose_balanced_counts, issue_warnings
from ..core.adjustment import Adjustment
from ..core.class_names import listed
from ..core.counts import Counts, Missing, of, resolve
from ..core.rules import AUTO, RULES, OneStrength, Rescale, Shift, Strengths, find_path_rule
from ..heads.sklearn import innermost
from ..support.arrays import log_softmax
from ..support.errors import LevelheadError

LEAST_PROBABILITY = float(np.finfo(np.float64).tiny)  # normal float


class BaseRescaledClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier around another. A subclass has `_strengths`, and a `_fit` that sets the attributes in `_`."""

    estimator: Any
    counts: Counts | None
    missing: Missing
    estimator_: Any
    counts_: np.ndarray
    rule_: str
    _strengths: Strengths
    _fit: Callable[..., None]
    _zero: float = LEAST_PROBABILITY  # what a probability of 0 counts as

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [
            HasMethods(["fit", "decision_function"]),
            HasMethods(["fit", "predict_proba"]),
        ],
        "counts": [None, "array-like", dict],
        "missing": [StrOptions({"error", "neutral"})],
        "rule": [StrOptions({AUTO, Rescale.name, Shift.name})],
    }

    @_fit_context(
        prefer_skip_nested_validation=False
    )  # the estimator's own parameters are not checked yet
    def fit(self, X: Any, y: Any, **params: Any):
        """Fit the classifier and learn how to adjust its scores; return it. Counts ignore sample weights.

        Other parameters are metadata for the classifier's `fit` (and a splitter and scorer), by scikit-learn's routing.
        """
        _raise_for_params(params, self, None)
        X, y = indexable(X, y)
        if (kind := type_of_target(y, input_name="y", raise_unknown=True)) not in (
            "binary",
            "multiclass",
        ):
            raise LevelheadError(
                f"expected one class per sample. Unknown label type: {kind}", parameter="y"
            )
        self._fit(X, column_or_1d(y, warn=True), **params)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    @property
    def classes_(self) -> np.ndarray:
        """The class labels, [K]."""
        return self.estimator_.classes_

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the adjusted scores: [N, K], or [N] for two classes, where a positive value means the second."""
        values = self._adjusted_scores(X)
        return values[:, 1] - values[:, 0] if values.shape[1] == 2 else values

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of the largest adjusted score, [N]."""
        best = self._adjusted_scores(X).argmax(axis=1)  # checks first that it is fitted
        return self.classes_[best]

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the softmax of the adjusted scores over `temperature_`, [N, K], calibrated only if that was tuned."""
        return np.exp(self.predict_log_proba(X))

    @available_if(_estimator_has("predict_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`, [N, K]."""
        return log_softmax(self._adjusted_scores(X) / getattr(self, "temperature_", 1.0))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return where metadata given to `fit` goes: to the classifier's `fit`."""
        mapping = MethodMapping().add(callee="fit", caller="fit")
        return MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=mapping)

    @property
    def _already_trained(self) -> bool:
        """Whether the classifier was trained before, on samples other than those given to `fit`."""
        return is_frozen(self.estimator)

    def _training_counts(self, y: np.ndarray) -> np.ndarray:
        """Return the counts [K] of what the classifier was trained on: those given, else those of y."""
        counts = resolve_counts(self.counts, y, self.classes_, self.missing)
        if self.counts is None and self._already_trained:
            issue_warnings(
                diagnose_balanced_counts(counts, type(innermost(self.estimator_)).__name__)
            )
        return counts

    def _adjustment(self, counts: np.ndarray) -> Adjustment:
        """Return what is done to the scores of a model that was trained on these counts [K]."""
        return RULES[self.rule_].on_scores(counts, self._strengths)

    def _adjusted_scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "estimator_")
        return self._adjustment(self.counts_).scores(self._class_scores(X))

    def _class_scores(self, X: Any) -> np.ndarray:
        return class_scores(self.estimator_, X, self._zero)

    def __sklearn_tags__(self):
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
            tags.classifier_tags.poor_score = inner.classifier_tags.poor_score
        return tags


def class_scores(estimator: Any, X: Any, zero: float = LEAST_PROBABILITY) -> np.ndarray:
    """Return scores [N, K]: the `decision_function`, of two classes (-z/2, z/2), or else the log of `predict_proba`."""
    if not hasattr(estimator, "decision_function"):
        probability = np.asarray(estimator.predict_proba(X), dtype=np.float64)
        return np.log(np.where(probability < LEAST_PROBABILITY, zero, probability))
    values, size = (
        np.asarray(estimator.decision_function(X), dtype=np.float64),
        len(estimator.classes_),
    )
    if values.ndim == 1:
        return np.outer(values, [-0.5, 0.5])
    model = innermost(estimator)
    if values.shape[1] != size or getattr(model, "decision_function_shape", "ovr") == "ovo":
        pairs = f"{type(model).__name__} scores pairs of classes; set its decision_function_shape to 'ovr'"
        raise LevelheadError(
            f"expected {size} scores per sample, one per class, but {pairs}", parameter="estimator"
        )
    return values


def acting_rules(estimator: Any, rule: str) -> tuple[OneStrength, ...]:
    """Return the rules asked for that can act on a fitted classifier: `auto` is either, rescaling first."""
    # RS cannot act on two classes, whose scores are opposite, nor on log-probabilities: it pushes negative scores down
    two = len(estimator.classes_) <= 2
    can_scale = not two and hasattr(estimator, "decision_function")
    asked = (Rescale(), Shift()) if rule == AUTO else (find_path_rule(rule),)
    acting = tuple(one for one in asked if can_scale or not one.multiplies)
    if not acting:
        why = "has two classes" if two else "gives probabilities, without a decision_function"
        reason = f"{type(innermost(estimator)).__name__} {why}, so {rule!r} cannot act on it"
        raise LevelheadError(f"{reason}; use 'shift'", parameter="rule")
    return acting


def is_frozen(estimator: Any) -> bool:
    """Return whether `fit` leaves the classifier as it is: a FrozenEstimator, alone or as the last pipeline step."""
    return (
        is_frozen(estimator.steps[-1][1])
        if hasattr(estimator, "steps")
        else isinstance(estimator, FrozenEstimator)
    )


def encode_labels(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return labels as positions in `classes`."""
    index = {label: i for i, label in enumerate(classes.tolist())}
    if unknown := [label for label in np.unique(y).tolist() if label not in index]:
        expected = f"expected the classes the estimator was fitted on ({listed(list(index))})"
        raise LevelheadError(f"{expected}, got {unknown[0]!r}", parameter="y")
    return np.array([index[label] for label in y.tolist()], dtype=np.int64)


def resolve_counts(
    counts: Counts | None, y: np.ndarray, classes: np.ndarray, missing: Missing
) -> np.ndarray:
    """Return checked counts [K] in the order of `classes`: those given, or those of y if None."""
    found = of(encode_labels(y, classes), classes=len(classes)) if counts is None else counts
    return resolve(found, len(classes), names=[str(label) for label in classes], missing=missing)
