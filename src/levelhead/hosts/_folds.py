"""One fold of a tuning: a model trained on the rest scores it, and every gamma is judged on those scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from ..core.adjust import RuleName
from ..core.counts import Missing
from ..core.curve import Metric
from ..gamma.path import gamma_path
from ..gamma.tune import pool
from ._rescaled import Leveled
from ._scores import count, encode


@dataclass(frozen=True, eq=False)
class Plan:
    """What the folds of one tuning have in common.

    Args:
        classes: the K labels.
        rules, range: what gamma may do, and from where to where it may go.
        counts: [K], for all folds; None if each is to count what its model was trained on.
        missing: what a class without a sample is.
        scorer: ``scorer(estimator, X, y)``, asked at every one of `gammas`; None for the exact path.
    """

    classes: np.ndarray
    rules: tuple[RuleName, ...]
    range: tuple[float, float]
    counts: np.ndarray | None
    missing: Missing
    scorer: Callable[..., float] | None

    @property
    def gammas(self) -> np.ndarray:
        """The candidates a scorer is asked at, 201 over the range."""
        return np.linspace(*self.range, 201)


@dataclass(frozen=True, eq=False)
class Fold:
    """Held-out scores [N, K] and labels [N], and what they gave by each rule: an exact path, or a scorer's values at
    the gammas."""

    values: np.ndarray
    labels: np.ndarray
    judged: dict[RuleName, Any]


@dataclass(frozen=True, eq=False)
class Choice:
    """The best gamma by one rule, and the scores of all: scores[i] is that of gammas[i]."""

    gamma: float
    gammas: np.ndarray
    scores: np.ndarray


class Rehearsal(Leveled):
    """A fold's model at one gamma, as a scorer wants to see it, with all K classes. The scores of the X that it saw
    last are remembered, since a scorer asks for the same ones at every gamma."""

    classes_: Any = None

    def __init__(self, model: Any, plan: Plan, counts: np.ndarray) -> None:
        self.estimator = self.estimator_ = model
        self.classes_, self.counts_ = plan.classes, counts
        self._reach, self._seen = plan.range, None

    def at(self, rule: RuleName, gamma: float) -> Rehearsal:
        self.rule_, self._gamma = rule, float(gamma)
        return self

    def _scores(self, X: Any) -> np.ndarray:
        if X is not self._seen:
            known = encode(self.estimator_.classes_, self.classes_)
            ratios = self.counts_.max() / self.counts_
            self._seen, self._values = X, spread(super()._scores(X), known, ratios, self._reach)
        return self._values


def train(model: Any, X: Any, y: np.ndarray, indices: np.ndarray | None, params: dict) -> Any:
    """Fit on the samples at `indices`, or on all if None; parameters that go by sample are cut alike."""
    if indices is None:
        return model.fit(X, y, **params)
    return model.fit(_safe_indexing(X, indices), y[indices], **_check_method_params(X, params, indices=indices))


def rehearse(
    plan: Plan, estimator: Any, X: Any, y: np.ndarray, trained_on: np.ndarray | None, held: np.ndarray,
    fit_params: dict | None, score_params: dict,
) -> Fold:
    """Train (unless fit_params is None: it is trained already), score what was held out, judge every gamma."""
    model = estimator if fit_params is None else train(clone(estimator), X, y, trained_on, fit_params)
    known = encode(model.classes_, plan.classes)
    counts = np.zeros(len(plan.classes), dtype=np.int64)
    counts[known] = plan.counts[known] if plan.counts is not None else count(
        y if trained_on is None else y[trained_on], model.classes_, None, plan.missing)
    counts[counts == 0] = counts.max()
    X_held, y_held = _safe_indexing(X, held), y[held]
    twin, labels = Rehearsal(model, plan, counts), encode(y_held, plan.classes)
    values = twin._scores(X_held)
    if plan.scorer is None:
        return Fold(values, labels, {
            rule: gamma_path(values, labels, counts, range=plan.range, rule=rule) for rule in plan.rules})
    params = _check_method_params(X, score_params, indices=held)
    return Fold(values, labels, {
        rule: np.array([plan.scorer(twin.at(rule, gamma), X_held, y_held, **params) for gamma in plan.gammas])
        for rule in plan.rules})


def choose(plan: Plan, judged: list[Any], metric: Metric | None) -> Choice:
    """The middle of the best plateau of the exact curve, or the first best of a scorer's mean over the folds."""
    if metric is None:
        found = np.mean(judged, axis=0)
        return Choice(float(plan.gammas[found.argmax()]), plan.gammas, found)
    path = pool(judged)
    curve, best = getattr(path, f"{metric}_curve"), path.best(metric)
    idle = best.plateau == path.range and path.range[0] <= 0 <= path.range[1]  # no gamma is better than none
    return Choice(0.0 if idle else best.gamma, curve.gammas, 1 - curve.values)


def spread(values: np.ndarray, columns: np.ndarray, ratios: np.ndarray, reach: tuple[float, float]) -> np.ndarray:
    """Scores of a model that knows only some classes, as [N, K]: an unknown class gets a score so low that no gamma
    within reach makes it the prediction. `columns` are the known classes, `ratios` [K] are ``n_1 / n_k``."""
    if len(columns) == len(ratios):
        return values
    floor = -(1 + 2 * np.abs(values).max()) * ratios.max() ** np.abs(reach).max()
    whole = np.full((len(values), len(ratios)), floor)
    whole[:, columns] = values
    return whole
