"""The folds of a tuning: a model trained on the rest scores each, and every gamma is measured on those scores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from ..core.counts import Missing
from ..core.measure import fit_temperature
from ..rules.adjustment import Adjustment
from ..rules.rule import OneStrength, Strengths
from ._base_classifier import LEAST_PROBABILITY, BaseRescaledClassifier, class_scores, encode_labels, resolve_counts

AdjustmentFor = Callable[[np.ndarray], Adjustment]  # of a model trained on these counts, [K]
_LIMITS = {"low": 1e-6, "high": 1e6}  # of a temperature: margins and sums of many logarithms are on any scale


@dataclass(frozen=True, eq=False)
class ScoredFold:
    """One fold, scored by a model that may know some of the K classes only, and never predicts another."""

    scores: np.ndarray  # [N, K]
    labels: np.ndarray  # [N]
    held: np.ndarray  # [N], rows of X
    classes: np.ndarray  # those the model knows
    counts: np.ndarray  # [K], of what it was trained on
    model: Any

    @property
    def known(self) -> np.ndarray:
        """Whether the model knows the class of each sample, [N]."""
        return np.isin(self.labels, self.classes)


class FoldClassifier(BaseRescaledClassifier):
    """A fold's model at one gamma, with all K classes, for a scorer to call; the scores of the last X are kept."""

    classes_: Any = None

    def __init__(self, fold: ScoredFold, classes: np.ndarray, zero: float) -> None:
        self.estimator = self.estimator_ = fold.model
        self._held = fold.held
        self.classes_, self.counts_, self._zero, self._last_X = classes, fold.counts, zero, None

    def at(self, rule: str, gamma: float) -> Self:
        self.rule_, self._strengths = rule, Strengths(float(gamma))
        return self

    def measure(
        self, gammas: dict[str, np.ndarray], scorer: Callable[..., float], params: dict, X: Any, y: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Call a scorer on the held-out samples at every gamma of every rule."""
        held = self._held
        X_held, y_held, own = _safe_indexing(X, held), y[held], _check_method_params(X, params, indices=held)
        return {
            rule: np.array([scorer(self.at(rule, gamma), X_held, y_held, **own) for gamma in some])
            for rule, some in gammas.items()
        }

    def _class_scores(self, X: Any) -> np.ndarray:
        if X is not self._last_X:
            known = encode_labels(self.estimator_.classes_, self.classes_)
            self._last_X, self._last = X, _with_all_classes(super()._class_scores(X), known, len(self.classes_))
        return self._last


def fit_on(model: Any, X: Any, y: np.ndarray, indices: np.ndarray | None, params: dict) -> Any:
    """Fit on the samples at `indices`, or on all if None; parameters with one value per sample are cut alike."""
    if indices is None:
        return model.fit(X, y, **params)
    return model.fit(_safe_indexing(X, indices), y[indices], **_check_method_params(X, params, indices=indices))


def score_fold(
    estimator: Any,
    X: Any,
    y: np.ndarray,
    trained_on: np.ndarray | None,
    held: np.ndarray,
    *,
    classes: np.ndarray,
    counts: np.ndarray | None,
    missing: Missing,
    fit_params: dict | None,
) -> ScoredFold:
    """Score held-out samples. Without `fit_params` the estimator is trained already; without counts, y is counted."""
    model = estimator if fit_params is None else fit_on(clone(estimator), X, y, trained_on, fit_params)
    known = encode_labels(model.classes_, classes)
    seen = np.zeros(len(classes), dtype=np.int64)
    own = y if trained_on is None else y[trained_on]
    seen[known] = resolve_counts(None, own, model.classes_, missing) if counts is None else counts[known]
    seen[seen == 0] = seen.max()
    labels = encode_labels(y[held], classes)
    return ScoredFold(class_scores(model, _safe_indexing(X, held)), labels, held, known, seen, model)


def complete_folds(folds: Sequence[ScoredFold]) -> tuple[list[ScoredFold], float]:
    """Return the folds with scores of all K classes and with probabilities of 0 raised; and to what they are raised."""
    # a forest of 100 trees in which none votes for a class says that its probability is below 0.01, not that it is 0:
    # half the smallest one seen, whose logarithm does not outweigh every shift. If all are 0 or 1, a 0 stays.
    raw = np.log(LEAST_PROBABILITY)
    least = min(float(fold.scores.min(where=fold.scores > raw, initial=0.0)) for fold in folds)
    zero = max(LEAST_PROBABILITY, float(np.exp(least)) / 2 if least < 0 else 0.0)
    raised = [np.where(fold.scores == raw, np.log(zero), fold.scores) for fold in folds]
    filled = [_with_all_classes(one, fold.classes, len(fold.counts)) for one, fold in zip(raised, folds, strict=True)]
    return [replace(fold, scores=scores) for fold, scores in zip(folds, filled, strict=True)], zero


def pool_labels(folds: Sequence[ScoredFold]) -> np.ndarray:
    """Return the labels of all folds, [N]."""
    return np.concatenate([fold.labels for fold in folds])


def pool_scores(folds: Sequence[ScoredFold], adjustment: AdjustmentFor | None = None) -> np.ndarray:
    """Return the scores of all folds, [N, K], as they are or adjusted."""
    return np.concatenate(
        [fold.scores if adjustment is None else adjustment(fold.counts).scores(fold.scores) for fold in folds]
    )


def pooled_temperature(
    folds: Sequence[ScoredFold], adjustment: AdjustmentFor | None = None, *, shares: np.ndarray | None = None
) -> float:
    """Return the temperature of least log loss of the scores, with classes that weigh shares [K], or as they occur."""
    known = np.concatenate([fold.known for fold in folds])
    if not known.any():
        return 1.0
    labels = pool_labels(folds)[known]
    weights = None if shares is None else shares[labels] / np.bincount(labels)[labels]
    return fit_temperature(pool_scores(folds, adjustment)[known], labels, weights=weights, **_LIMITS)


def range_of(rule: OneStrength, given: tuple[float, float] | None, temperature: float) -> tuple[float, float]:
    """Return the range of gamma: as given, or else for `rescale` to 2 and for `shift` to 4 times the temperature."""
    # a shift of 1 is what calibrated scores need for a uniform prior; scores that are T times as large need T
    return given or (0.0, rule.reach * (temperature if rule.grows else 1.0))


def _with_all_classes(scores: np.ndarray, known: np.ndarray, size: int) -> np.ndarray:
    """Return scores [N, K] in which a class that the model does not know has the lowest, and is never predicted."""
    # its count is the largest, so that no rule moves it; nor does any rule move the most frequent class, which is known
    if len(known) == size:
        return scores
    filled = np.full((len(scores), size), scores.min(initial=0.0) - 1)
    filled[:, known] = scores
    return filled
