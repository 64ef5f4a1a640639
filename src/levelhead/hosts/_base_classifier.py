"""What the fixed and the tuned classifier share: scores [N, K] of any classifier, and predictions.

`fit` checks X and y, finds out which metadata are for whom, and leaves the rest to the subclass, whose `_fit` sets
`estimator_`, the classifier inside, and `tuned_`, what is done to its scores. Predictions then take three steps:
`class_scores` of the classifier inside, `Tuned.apply`, and the largest.

All of this is what `sklearn.utils.estimator_checks` asks of a meta-estimator, so the imports that begin with an
underscore are scikit-learn's own ways to do it: its meta-estimators use them, too. Labels stay as the user has them
(texts, numbers, in any order) outside; inside, a class is its position in `classes_`.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, _fit_context
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch, _safe_indexing, get_tags
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    _check_method_params,
    _check_sample_weight,
    _estimator_has,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
    indexable,
)

from ..core.class_labels import SEVERAL_LABELS
from ..core.counts import Counts, WithBackground
from ..core.rules import Rule
from ..core.tuned import Tuned
from ..heads.sklearn import Classifier, innermost
from ..support.errors import LevelheadError
from ..support.logits import log_softmax
from ..support.types import Kind

# X: an array, a sparse matrix, a data frame, a list of texts: whatever the classifier inside takes.
Inputs: TypeAlias = Any
# What a `fit` takes besides X and y, by name: values for each sample, or for all.
FitParams: TypeAlias = Mapping[str, object]
# Which method of a classifier gives scores of a kind.
RESPONSES: dict[Kind, str] = {
    "logits": "decision_function",
    "probabilities": "predict_proba",
    "log-probabilities": "predict_log_proba",
}


class BaseAdjustedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier around another. A subclass has `_fit`, which sets `estimator_` and `tuned_`.

    The constructor of a subclass only stores its parameters, as scikit-learn asks; they are checked in `fit`, by
    `_parameter_constraints`. What `fit` learns ends in an underscore.
    """

    estimator: Classifier  # as it was given
    counts: Counts | None  # as they were given
    estimator_: Classifier  # the one that is fitted
    tuned_: Tuned
    _kind: Kind  # of the scores that are taken of the estimator

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [
            HasMethods(["fit", "decision_function"]),
            HasMethods(["fit", "predict_proba"]),
        ],
        "counts": [None, "array-like", dict, WithBackground],
    }

    # Here and not in `__init__`, whose signature is what scikit-learn's `clone` and `get_params` read.
    def __new__(cls, *args: object, **parameters: object):
        """Say that a metric, which `levelhead.tune` calls `metric`, is `scoring` here.

        Else Python would name an unexpected keyword argument, and not the one that is meant.
        """
        if "metric" in parameters:
            reason = "scikit-learn calls it scoring, and so does AdjustedClassifierCV"
            example = f"AdjustedClassifierCV(model, scoring={parameters['metric']!r})"
            raise LevelheadError(f"{reason}: use {example}", parameter="metric")
        return super().__new__(cls)

    # The parameters of the estimator inside are not checked yet when `fit` is called.
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Inputs, y: ArrayLike, **params: object):
        """Fit the classifier, and learn how to adjust its scores; return it.

        Args:
            X: [N, d], as the classifier takes it.
            y: [N], labels. Where they are counted, each counts as its sample weight.
            **params: `sample_weight` [N] for the `fit` of the classifier; other metadata by
                scikit-learn's routing.

        Raises:
            LevelheadError: several labels per sample, a continuous y, weights that leave a class
                without any, a rule that cannot act on this classifier's scores.
        """
        X, targets = indexable(X, y)
        target_type = type_of_target(targets, input_name="y", raise_unknown=True)
        if target_type not in ("binary", "multiclass"):
            # scikit-learn's own checks look for these words.
            reason = f"expected one class per sample. Unknown label type: {target_type}"
            if target_type == "multilabel-indicator":
                reason = f"{reason}; {SEVERAL_LABELS}"
            raise LevelheadError(reason, parameter="y")
        labels = column_or_1d(targets, warn=True)
        self._fit(X, labels, self._routed(X, labels, params))
        # As scikit-learn's meta-estimators do; a classifier of texts has neither.
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    @abstractmethod
    def _fit(self, X: Inputs, y: np.ndarray, routed: Bunch) -> None:
        """Set `estimator_`, `tuned_` and `_kind`, from labels y [N] and what `_routed` returned."""

    def _routed(self, X: Inputs, labels: np.ndarray, params: FitParams) -> Bunch:
        """Return where metadata go: those of ``.estimator.fit`` and of ``.splitter.split``.

        Sample weights are for the classifier, as in scikit-learn's own meta-estimators, also where
        routing is not enabled.
        """
        # What is None was not given, as scikit-learn's routing has it.
        params = {name: value for name, value in params.items() if value is not None}
        weights = params.get("sample_weight")
        if weights is not None:
            weights = _check_sample_weight(weights, X)
            _check_classes_have_weight(labels, weights)
            params = {**params, "sample_weight": weights}
        # Without routing, `process_routing` would refuse weights that the classifier can take.
        takes_weights = has_fit_parameter(self.estimator, "sample_weight")
        if not _routing_enabled() and set(params) == {"sample_weight"} and takes_weights:
            return Bunch(estimator=Bunch(fit=params), splitter=Bunch(split={}))
        _raise_for_params(params, self, None)
        return cast(Bunch, process_routing(self, "fit", **params))

    @property
    def classes_(self) -> np.ndarray:
        """The class labels, [K]."""
        return self.estimator_.classes_

    def decision_function(self, X: Inputs) -> np.ndarray:
        """Return the adjusted scores: [N, K], or [N] for two classes, above 0 for the second."""
        scores = self._adjusted_scores(X)
        if scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict(self, X: Inputs) -> np.ndarray:
        """Return the class of the largest adjusted score, [N]."""
        best = self._adjusted_scores(X).argmax(axis=1)  # checks first that it is fitted
        return self.classes_[best]

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Inputs) -> np.ndarray:
        """Return the softmax of the adjusted scores over the temperature of `tuned_`, [N, K].

        They are calibrated where a temperature was tuned, for classes as the metric weighs them:
        for balanced accuracy, as if all classes were equally frequent.
        """
        return np.exp(self.predict_log_proba(X))

    @available_if(_estimator_has("predict_proba"))
    def predict_log_proba(self, X: Inputs) -> np.ndarray:
        """Return the logarithm of `predict_proba`, [N, K]."""
        scores = self._adjusted_scores(X)
        return log_softmax(scores / (self.tuned_.temperature or 1.0))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return where metadata given to `fit` goes: to the classifier's `fit`.

        scikit-learn calls it where `set_config(enable_metadata_routing=True)` is set.
        """
        mapping = MethodMapping().add(callee="fit", caller="fit")
        return MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=mapping)

    def _adjusted_scores(self, X: Inputs) -> np.ndarray:
        """Return the adjusted scores [N, K] of all predictions; raise NotFittedError before `fit`."""
        check_is_fitted(self, "tuned_")
        return np.asarray(self.tuned_.apply(class_scores(self.estimator_, X, self._kind)))

    def __sklearn_tags__(self):
        """Return what scikit-learn's checks may ask of it: as much as of the classifier inside."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
            tags.classifier_tags.poor_score = inner.classifier_tags.poor_score
        return tags


def _check_classes_have_weight(labels: np.ndarray, weights: np.ndarray) -> None:
    """Raise LevelheadError if all samples of a class have weight 0: it is then none of the training."""
    for label in np.unique(labels).tolist():
        if weights[labels == label].sum() <= 0:
            reason = f"all samples of class {label!r} have weight 0; leave them out of X and y"
            raise LevelheadError(reason, parameter="sample_weight")


def kind_of_scores(estimator: Classifier) -> Kind:
    """Return what is taken of a classifier: its `decision_function`, or else probabilities.

    Decision values are not rounded to 0 and 1 as probabilities are, and of a linear classifier they are logits.
    """
    if hasattr(estimator, "decision_function"):
        return "logits"
    return "probabilities"


def class_scores(estimator: Classifier, X: Inputs, kind: Kind) -> np.ndarray:
    """Return scores [N, K] of a kind; of two classes with one decision value z, (-z/2, z/2).

    Halves, and not (0, z), so that the two classes are treated alike; their difference is z either way.

    Args:
        estimator: a fitted classifier.
        X: [N, d], as it takes it.
        kind: which of its methods to call.

    Raises:
        LevelheadError: it scores pairs of classes, [N, K (K - 1) / 2], of which no class has one of its own.
    """
    method = RESPONSES[kind]
    scores = np.asarray(getattr(estimator, method)(X), dtype=np.float64)
    if scores.ndim == 1:
        return np.outer(scores, [-0.5, 0.5])
    classes = len(estimator.classes_)
    model = innermost(estimator)
    # An SVC may give a score for each pair of classes: of three classes these are three, too.
    one_vs_one = getattr(model, "decision_function_shape", "ovr") == "ovo"
    if scores.shape[1] != classes or (method == "decision_function" and one_vs_one):
        pairs = f"{type(model).__name__} scores pairs of classes"
        instead = "set its decision_function_shape to 'ovr'"
        expected = f"expected {classes} scores per sample, one per class"
        raise LevelheadError(f"{expected}, but {pairs}; {instead}", parameter="estimator")
    return scores


def check_rule(estimator: Classifier, rule: Rule, kind: Kind, parameter: str) -> None:
    """Raise LevelheadError if a rule cannot act on the scores of a fitted classifier.

    Args:
        estimator: fitted, so that its classes are known.
        rule: that is to act on its scores.
        kind: of the scores.
        parameter: by which the user gave the rule, for the message.
    """
    name = type(innermost(estimator)).__name__
    if kind == "logits" and len(estimator.classes_) == 2 and rule.multiplies and not rule.adds:
        reason = f"{name} has two classes, whose scores are opposite"
        stuck = f"so {rule.name!r} changes no prediction; use 'offsets' or 'shift'"
        raise LevelheadError(f"{reason}, {stuck}", parameter=parameter)
    rule.refuse_kind(kind, parameter)


def is_frozen(estimator: Classifier) -> bool:
    """Return whether `fit` leaves a classifier as it is: it, or the last step of its pipeline, is frozen."""
    if hasattr(estimator, "steps"):
        return is_frozen(estimator.steps[-1][1])
    return isinstance(estimator, FrozenEstimator)


def fit_on(
    model: Classifier, X: Inputs, y: np.ndarray, rows: np.ndarray | None, params: FitParams
) -> Classifier:
    """Fit on some rows, or on all if None; parameters with a value per sample are cut alike.

    Args:
        model: a clone, which is fitted in place and returned.
        X, y: all samples.
        rows: positions of those to fit on.
        params: what `fit` takes besides, such as `sample_weight` [N].
    """
    if rows is None:
        return model.fit(X, y, **params)
    params_of_rows = _check_method_params(X, params, indices=rows)
    return model.fit(_safe_indexing(X, rows), y[rows], **params_of_rows)
