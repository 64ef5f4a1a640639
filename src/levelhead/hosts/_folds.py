"""One fold of a tuning: a model trained on the rest scores it, and every gamma is measured on those scores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from ..core.adjust import RuleName
from ..core.counts import Missing
from ..core.curve import Metric
from ..gamma.path import gamma_path
from ..gamma.tune import pool_folds
from ._base_classifier import BaseRescaledClassifier, encode_labels, resolve_counts


@dataclass(frozen=True, eq=False)
class FoldOptions:
    """What the folds of one tuning have in common."""

    classes: np.ndarray
    rules: tuple[RuleName, ...]
    range: tuple[float, float]  # of gamma
    counts: np.ndarray | None  # [K]; None if each fold counts what its model was trained on
    missing: Missing
    metric: Metric | None  # of the exact path; None to call the scorer at every one of `gammas`
    scorer: Callable[..., float]
    fit_params: dict | None  # None if the estimator is trained already
    score_params: dict

    @property
    def gammas(self) -> np.ndarray:
        """The 201 gammas over the range at which a scorer is called."""
        return np.linspace(*self.range, 201)


class ScoredFold(NamedTuple):
    """Held-out scores [N, K] and labels [N], and the measurements by rule: an exact path, or a scorer's values."""

    scores: np.ndarray
    labels: np.ndarray
    by_rule: dict[RuleName, Any]


class MeasuredRule(NamedTuple):
    """The best gamma by one rule, and what was measured: values[i] is that of gammas[i]."""

    gamma: float
    gammas: np.ndarray
    values: np.ndarray


class FoldClassifier(BaseRescaledClassifier):
    """A fold's model at one gamma, with all K classes, for a scorer to call.

    A scorer passes the same X at every gamma, so the scores of the last X are kept.
    """

    classes_: Any = None

    def __init__(self, model: Any, options: FoldOptions, counts: np.ndarray) -> None:
        self.estimator = self.estimator_ = model
        self.classes_, self.counts_ = options.classes, counts
        self._range, self._last_X = options.range, None

    def at(self, rule: RuleName, gamma: float) -> Self:
        self.rule_, self._gamma = rule, float(gamma)
        return self

    def _class_scores(self, X: Any) -> np.ndarray:
        if X is not self._last_X:
            self._last_X, scores, counts = X, super()._class_scores(X), self.counts_
            known = encode_labels(self.estimator_.classes_, self.classes_)
            if len(known) < len(counts):  # an unknown class scores so low that no gamma in the range predicts it
                floor = -(1 + 2 * np.abs(scores).max()) * (counts.max() / counts.min()) ** np.abs(self._range).max()
                filled = np.full((len(scores), len(counts)), floor)
                filled[:, known] = scores
                scores = filled
            self._last = scores
        return self._last


def fit_on(model: Any, X: Any, y: np.ndarray, indices: np.ndarray | None, params: dict) -> Any:
    """Fit on the samples at `indices`, or on all if None; parameters with one value per sample are cut alike."""
    if indices is None:
        return model.fit(X, y, **params)
    return model.fit(_safe_indexing(X, indices), y[indices], **_check_method_params(X, params, indices=indices))


def score_fold(
    options: FoldOptions, estimator: Any, X: Any, y: np.ndarray, trained_on: np.ndarray | None, held: np.ndarray
) -> ScoredFold:
    """Train the estimator, unless it is trained already; score the held-out samples and measure every gamma."""
    fit_params = options.fit_params
    model = estimator if fit_params is None else fit_on(clone(estimator), X, y, trained_on, fit_params)
    known = encode_labels(model.classes_, options.classes)
    counts = np.zeros(len(options.classes), dtype=np.int64)
    counts[known] = (
        options.counts[known]
        if options.counts is not None
        else resolve_counts(None, y if trained_on is None else y[trained_on], model.classes_, options.missing)
    )
    counts[counts == 0] = counts.max()
    X_held, y_held = _safe_indexing(X, held), y[held]
    classifier, labels = FoldClassifier(model, options, counts), encode_labels(y_held, options.classes)
    scores = classifier._class_scores(X_held)
    if options.metric is not None:
        return ScoredFold(
            scores,
            labels,
            {rule: gamma_path(scores, labels, counts, range=options.range, rule=rule) for rule in options.rules},
        )
    params = _check_method_params(X, options.score_params, indices=held)
    return ScoredFold(
        scores,
        labels,
        {
            rule: np.array([options.scorer(classifier.at(rule, g), X_held, y_held, **params) for g in options.gammas])
            for rule in options.rules
        },
    )


def choose_gamma(options: FoldOptions, measured: list[Any]) -> MeasuredRule:
    """Choose the middle of the best plateau of the exact curve, or the first best of a scorer's mean over the folds."""
    if options.metric is None:
        values = np.mean(measured, axis=0)
        return MeasuredRule(float(options.gammas[values.argmax()]), options.gammas, values)
    path = pool_folds(measured)
    curve, best = getattr(path, f"{options.metric}_curve"), path.best(options.metric)
    flat = best.plateau == path.range and path.range[0] <= 0 <= path.range[1]  # no gamma is better than 0
    return MeasuredRule(0.0 if flat else best.gamma, curve.gammas, 1 - curve.values)
