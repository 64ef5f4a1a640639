"""The choice on out-of-fold scores: exact where the scorer is a metric of the exact path, else on 201 gammas."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from ..choice.choose import pool_folds
from ..choice.diagnostics import Diagnosis, diagnose_accuracy, diagnose_negative_logits, diagnose_range_end
from ..choice.tune import cross_fit
from ..choice.tuned import Tuned
from ..core import warnings as kinds
from ..core.choices import Kind, Metric
from ..core.errors import LevelheadError
from ..core.warnings import quiet
from ..path.metrics import ERRORS
from ..path.path import gamma_path
from ..rules.rule import RULES
from ._folds import ScoredFold

_MOST_RESAMPLED = 2_000_000  # samples times replicates: with more than 2,000 samples, fewer replicates are enough


class ChosenRule(NamedTuple):
    """A rule and its strength, and what was measured: scores[i] is that of gammas[i]; higher is better."""

    rule: str
    gamma: float
    score: float
    score_at_zero: float
    gammas: np.ndarray
    scores: np.ndarray
    warnings: tuple[Diagnosis, ...] = ()
    tuned: Tuned | None = None  # of the exact path


@dataclass(frozen=True, eq=False)
class ExactChoice:
    """The choice of rule and strength by a metric of the exact path.

    Args:
        metric, rule, range: as in `cross_fit`; a range of None is each rule's own.
        names: [K], class labels as text.
        log_probabilities: whether the scores are logarithms of probabilities, which scaling does not suit.
    """

    metric: Metric
    rule: Any
    range: tuple[float, float] | None
    names: tuple[str, ...]
    log_probabilities: bool

    def tune(self, folds: Sequence[ScoredFold], *, intervals: bool = False) -> Tuned:
        """Choose on the folds. The result holds its warnings; none is issued."""
        samples = sum(len(fold.labels) for fold in folds)
        times = min(1000, max(100, _MOST_RESAMPLED // samples)) if intervals else 0
        kind: Kind = "probabilities" if self.log_probabilities else "logits"
        given = [
            (np.exp(fold.scores) if self.log_probabilities else fold.scores, fold.labels, fold.counts) for fold in folds
        ]
        with quiet():
            return cross_fit(
                given,
                metric=self.metric,
                rule=self.rule,
                range=self.range,
                names=self.names,
                kind=kind,
                bootstrap=times,
            )

    def choose(self, folds: Sequence[ScoredFold], *, already_trained: bool) -> ChosenRule:
        """Return the choice as scikit-learn's scores, which are higher where they are better."""
        tuned = self.tune(folds)
        found = [_diagnosis(line) for line in tuned.warnings]
        return ChosenRule(
            rule=tuned.rule,
            gamma=tuned.gamma,
            score=as_score(self.metric, tuned.value),
            score_at_zero=as_score(self.metric, tuned.value_at_zero),
            gammas=tuned.curve.gammas,
            scores=as_score(self.metric, tuned.curve.values),
            warnings=tuple(one for one in found if already_trained or not isinstance(one, kinds.LeakageWarning)),
            tuned=tuned,
        )


def choose_on_paths(
    folds: Sequence[ScoredFold], metric: Metric, rules: Sequence[str], range: tuple[float, float]
) -> ChosenRule:
    """Choose the middle of the best plateau of an error, over a range that does not hold 0, where nothing is gained.

    The rule is the first of those that do equally well.
    """
    found = []
    for rule in rules:
        parts = [gamma_path(fold.scores, fold.labels, fold.counts, range=range, rule=rule) for fold in folds]
        path = pool_folds(parts)
        found.append((path.best(metric), path.curve_of(metric), rule))
    best, curve, rule = min(found, key=lambda one: one[0].value)
    before = np.concatenate([fold.scores.argmax(axis=1) for fold in folds])
    labels = np.concatenate([fold.labels for fold in folds])
    sizes = np.bincount(labels)[labels]
    weights = 1 / sizes / len(np.unique(labels)) if metric == "balanced_error" else 1 / len(labels)
    return ChosenRule(
        rule=rule,
        gamma=best.gamma,
        score=as_score(metric, best.value),
        score_at_zero=float((weights * (before == labels)).sum()),
        gammas=curve.gammas,
        scores=as_score(metric, curve.values),
        warnings=(diagnose_range_end(best.plateau, range),),
    )


def choose_by_scorer(
    folds: Sequence[ScoredFold],
    measured: Sequence[dict[str, np.ndarray]],
    gammas: dict[str, np.ndarray],
    *,
    scoring: Any,
    already_trained: bool,
) -> ChosenRule:
    """Choose the first best of a scorer's mean over the folds, by the first of the rules that do equally well."""
    means: dict[str, np.ndarray] = {rule: np.mean([values[rule] for values in measured], axis=0) for rule in gammas}
    if any(np.isnan(values).any() for values in means.values()):
        raise LevelheadError(
            f"{scoring!r} is NaN on a fold, which may lack a class; use fewer folds", parameter="scoring"
        )
    best = max(values.max() for values in means.values())
    rule = cast(str, next(rule for rule, values in means.items() if values.max() == best))  # the first of equals
    at, values = int(means[rule].argmax()), means[rule]
    scores, labels = (np.concatenate([getattr(fold, part) for fold in folds]) for part in ("scores", "labels"))
    reach = float(gammas[rule][0]), float(gammas[rule][-1])
    last = at + int(np.argmin(np.append(values[at:] == values[at], False))) - 1  # of the plateau that begins there
    return ChosenRule(
        rule=rule,
        gamma=float(gammas[rule][at]),
        score=float(values[at]),
        score_at_zero=float(values[np.abs(gammas[rule]).argmin()]),
        gammas=gammas[rule],
        scores=values,
        warnings=(
            None if len(means) > 1 else diagnose_negative_logits(scores, labels, RULES[rule]),
            diagnose_accuracy(scores.argmax(axis=1) == labels) if already_trained else None,
            diagnose_range_end((float(gammas[rule][at]), float(gammas[rule][last])), reach),
        ),
    )


def as_score(metric: str, value: Any) -> Any:
    """Return a metric as scikit-learn scores it: an accuracy for an error.

    >>> as_score("error", 0.25), as_score("mcc", 0.5)
    (0.75, 0.5)
    """
    return 1 - value if metric in ERRORS else value


def _diagnosis(line: str) -> kinds.LevelheadWarning:
    """Return the warning that a line of `Tuned.warnings` tells of."""
    kind, _, text = line.partition(": ")
    return getattr(kinds, kind)(text)
