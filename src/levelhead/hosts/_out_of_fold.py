"""Out-of-fold scores, and the choice on them: exact if the scorer is a metric of the exact path, else at 201 gammas."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from ..choice.diagnostics import (
    Diagnosis,
    diagnose_accuracy,
    diagnose_negative_logits,
    diagnose_range_end,
)
from ..choice.gamma_path import gamma_path, join_paths
from ..choice.path_metrics import ERRORS, LOWER_IS_BETTER
from ..choice.tune import cross_fit
from ..choice.tuned import Tuned
from ..core.adjustment import Adjustment
from ..core.counts import Missing
from ..core.measure import fit_temperature, measure, recall
from ..core.rules import RULES, OneStrength, Strengths
from ..path.curve import Curve
from ..show.style import html
from ..support import warnings as kinds
from ..support.errors import LevelheadError
from ..support.types import Kind, Metric
from ._base_classifier import (
    LEAST_PROBABILITY,
    BaseRescaledClassifier,
    class_scores,
    encode_labels,
    resolve_counts,
)

ByRule = dict[str, np.ndarray]  # gammas of each rule, or scores at them
AdjustmentFor = Callable[[np.ndarray], Adjustment]  # of a model trained on these counts, [K]
_LIMITS = {
    "low": 1e-6,
    "high": 1e6,
}  # of a temperature: margins and sums of many logarithms are on any scale
_MOST_RESAMPLED = (
    2_000_000  # samples times replicates: with more than 2,000 samples, fewer replicates are enough
)


@dataclass(frozen=True, eq=False)
class ScoredFold:
    """One fold, scored by a model that may know some of the K classes only, and never predicts another."""

    scores: np.ndarray  # [N, K]
    labels: np.ndarray  # [N]
    held: np.ndarray  # [N], rows of X
    classes: np.ndarray  # those the model knows
    counts: np.ndarray  # [K], of what it was trained on
    model: Any


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
        self, gammas: ByRule, scorer: Callable[..., float], params: dict, X: Any, y: np.ndarray
    ) -> ByRule:
        """Call a scorer on the held-out samples at every gamma of every rule."""
        held = self._held
        X_held, y_held, own = (
            _safe_indexing(X, held),
            y[held],
            _check_method_params(X, params, indices=held),
        )
        return {
            rule: np.array([scorer(self.at(rule, gamma), X_held, y_held, **own) for gamma in some])
            for rule, some in gammas.items()
        }

    def _class_scores(self, X: Any) -> np.ndarray:
        if X is not self._last_X:
            known = encode_labels(self.estimator_.classes_, self.classes_)
            self._last_X, self._last = (
                X,
                _with_all_classes(super()._class_scores(X), known, len(self.classes_)),
            )
        return self._last


def fit_on(model: Any, X: Any, y: np.ndarray, indices: np.ndarray | None, params: dict) -> Any:
    """Fit on the samples at `indices`, or on all if None; parameters with one value per sample are cut alike."""
    if indices is None:
        return model.fit(X, y, **params)
    return model.fit(
        _safe_indexing(X, indices), y[indices], **_check_method_params(X, params, indices=indices)
    )


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
    model = (
        estimator if fit_params is None else fit_on(clone(estimator), X, y, trained_on, fit_params)
    )
    known = encode_labels(model.classes_, classes)
    seen = np.zeros(len(classes), dtype=np.int64)
    own = y if trained_on is None else y[trained_on]
    seen[known] = (
        resolve_counts(None, own, model.classes_, missing) if counts is None else counts[known]
    )
    seen[seen == 0] = seen.max()
    labels = encode_labels(y[held], classes)
    return ScoredFold(
        class_scores(model, _safe_indexing(X, held)), labels, held, known, seen, model
    )


def complete_folds(folds: Sequence[ScoredFold]) -> tuple[list[ScoredFold], float]:
    """Return the folds with scores of all K classes and with probabilities of 0 raised; and to what they are raised."""
    # a forest of 100 trees in which none votes for a class says that its probability is below 0.01, not that it is 0:
    # half the smallest one seen, whose logarithm does not outweigh every shift. If all are 0 or 1, a 0 stays.
    raw = np.log(LEAST_PROBABILITY)
    least = min(float(fold.scores.min(where=fold.scores > raw, initial=0.0)) for fold in folds)
    zero = max(LEAST_PROBABILITY, float(np.exp(least)) / 2 if least < 0 else 0.0)
    raised = [np.where(fold.scores == raw, np.log(zero), fold.scores) for fold in folds]
    filled = [
        _with_all_classes(one, fold.classes, len(fold.counts))
        for one, fold in zip(raised, folds, strict=True)
    ]
    return [replace(fold, scores=scores) for fold, scores in zip(folds, filled, strict=True)], zero


def pool_labels(folds: Sequence[ScoredFold]) -> np.ndarray:
    """Return the labels of all folds, [N]."""
    return np.concatenate([fold.labels for fold in folds])


def pool_scores(folds: Sequence[ScoredFold], adjustment: AdjustmentFor | None = None) -> np.ndarray:
    """Return the scores of all folds, [N, K], as they are or adjusted."""
    parts = [
        fold.scores if adjustment is None else adjustment(fold.counts).scores(fold.scores)
        for fold in folds
    ]
    return np.concatenate(parts)


def pooled_temperature(
    folds: Sequence[ScoredFold],
    adjustment: AdjustmentFor | None = None,
    *,
    shares: np.ndarray | None = None,
) -> float:
    """Return the temperature of least log loss of the scores, with classes that weigh shares [K], or as they occur."""
    known = np.concatenate(
        [np.isin(fold.labels, fold.classes) for fold in folds]
    )  # whose class the model knows
    if not known.any():
        return 1.0
    labels = pool_labels(folds)[known]
    weights = None if shares is None else shares[labels] / np.bincount(labels)[labels]
    return fit_temperature(
        pool_scores(folds, adjustment)[known], labels, weights=weights, **_LIMITS
    )


def _with_all_classes(scores: np.ndarray, known: np.ndarray, size: int) -> np.ndarray:
    """Return scores [N, K] in which a class that the model does not know has the lowest, and is never predicted."""
    # its count is the largest, so that no rule moves it; nor does any rule move the most frequent class, which is known
    if len(known) == size:
        return scores
    filled = np.full((len(scores), size), scores.min(initial=0.0) - 1)
    filled[:, known] = scores
    return filled


Settings = dict[
    str, tuple | None
]  # the values of a scorer's options that change nothing; None: any, it is not used
_MACRO: Settings = {"average": ("macro",), "pos_label": None, "zero_division": ("warn", 0)}
# Scoring functions that are a metric of the exact path: which, what their options may be, and whether they are the same
# metric also if a class has no held-out sample.
_EXACT: dict[tuple[str, str], tuple[Metric, Settings, bool]] = {
    ("sklearn", "accuracy_score"): ("error", {"normalize": (True,)}, True),
    ("sklearn", "balanced_accuracy_score"): ("balanced_error", {"adjusted": (False,)}, True),
    ("sklearn", "recall_score"): ("balanced_error", _MACRO, False),
    ("sklearn", "f1_score"): ("macro_f1", _MACRO, False),
    ("sklearn", "matthews_corrcoef"): ("mcc", {}, True),
    ("sklearn", "cohen_kappa_score"): ("kappa", {"weights": (None,), "labels": (None,)}, True),
    ("imblearn", "geometric_mean_score"): (
        "g_mean",
        {"average": ("multiclass",), "correction": (0, 0.0)},
        False,
    ),
}


def exact_metric(scorer: Any, held_out: np.ndarray, classes: int) -> Metric | None:
    """Return the metric of the exact path that a scorer computes, or None if it is another or has other settings."""
    function, given = getattr(scorer, "_score_func", None), getattr(scorer, "_kwargs", {})
    package = str(getattr(function, "__module__", "")).partition(".")[0]
    exact = _EXACT.get((package, getattr(function, "__name__", "")))
    if (
        exact is None
        or getattr(scorer, "_sign", 0) != 1
        or getattr(scorer, "_response_method", "") != "predict"
    ):
        return None
    metric, settings, any_labels = exact
    if settings is _MACRO and given.get("average") != "macro":
        return None
    for name, value in given.items():
        values = settings.get(name, ())
        same = (value is one or (type(value) is type(one) and value == one) for one in values or ())
        if values is not None and not any(same):
            return None
    return metric if any_labels or len(np.unique(held_out)) == classes else None


Chosen = tuple[Tuned, Sequence[Diagnosis]]  # a choice, and reasons to look again


def tune_folds(
    folds: Sequence[ScoredFold], *, kind: Kind, bootstrap: int = 0, **how: Any
) -> Chosen:
    """Choose on the folds, with options of `cross_fit`; no warning is issued."""
    scores = [np.exp(fold.scores) if kind == "probabilities" else fold.scores for fold in folds]
    given = [(one, fold.labels, fold.counts) for one, fold in zip(scores, folds, strict=True)]
    with kinds.kept() as doubts:
        tuned = cross_fit(given, kind=kind, bootstrap=bootstrap, **how)
    return tuned, doubts


def choose_on_paths(
    folds: Sequence[ScoredFold],
    metric: Metric,
    rules: Sequence[OneStrength],
    range: tuple[float, float],
    scoring: Any,
) -> Chosen:
    """Choose gamma on an error curve whose range leaves out 0, so no gain can be given; by the first of equal rules."""
    found = []
    for rule in rules:
        parts = (
            gamma_path(fold.scores, fold.labels, fold.counts, range=range, rule=rule.name)
            for fold in folds
        )
        path = join_paths(list(parts), alike=False)
        found.append((path.best(metric), path.curve_of(metric), rule))
    best, curve, rule = min(found, key=lambda one: one[0].value)
    zero = getattr(measure(pool_scores(folds), pool_labels(folds)), metric)
    score, at_zero, values = (as_score(metric, value) for value in (best.value, zero, curve.values))
    known = {
        "rule": rule.name,
        "gamma": best.gamma,
        "plateau": best.plateau,
        "curve": replace(curve, values=values),
    }
    return _by_scores(folds, scoring, score, at_zero, **known), [
        diagnose_range_end(best.plateau, range)
    ]


def _by_scores(
    folds: Sequence[ScoredFold], scoring: Any, score: float, at_zero: float, **known: Any
) -> Tuned:
    """Return a choice by a scorer of scikit-learn, which is higher where it is better."""
    name = cast(Metric, scorer_name(scoring))  # none of ours, and so for people only
    known |= {
        "metric": name,
        "criterion": name,
        "value": score,
        "value_at_zero": at_zero,
        "gain": score - at_zero,
    }
    known |= {
        "chosen_on": "out-of-fold",
        "n": len(pool_labels(folds)),
        "classes": len(folds[0].counts),
    }
    return Tuned(**known, interval=None, criterion_curve=known["curve"])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OutOfFoldTuned(Tuned):
    """A choice on out-of-fold samples by a scorer of scikit-learn, a `Tuned` with more: what `summary_` returns."""

    # Without an exact path `gain_interval` is None, and the gain is not corrected for the choice on these samples.

    scoring: str  # the scorer's name
    score_as_trained: float
    score: float  # higher is better; rule and strength were chosen on these samples

    @property
    def recall_as_trained(self) -> tuple[float, ...]:
        """The recall of each class before, [K]; NaN for one without a sample."""
        return self.recall_at_zero

    @property
    def doubts(self) -> tuple[str, ...]:
        """One line for each reason to look again."""
        verdict = None if self.worthwhile is not False else super().facts().get("verdict")
        return self.warnings if verdict is None else (*self.warnings, verdict)

    @property
    def title(self) -> str:
        """The title of `curve`."""
        return (
            self.scoring if self.balanced_error is None else super().title
        )  # of a scorer without an exact path

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers without the curves, as JSON can hold them."""
        found = super().to_dict()
        own = {
            name: getattr(self, name)
            for name in ("scoring", "score_as_trained", "score", "worthwhile")
        }
        return (
            found
            | own
            | {"recall_as_trained": found["recall_at_zero"], "doubts": list(self.doubts)}
        )

    def facts(self) -> dict[str, str]:
        """Return score, gain and rule in words, part by part."""
        between = (
            "" if self.gain_interval is None else " ({:.3f} to {:.3f})".format(*self.gain_interval)
        )
        where = (
            "these" if self.gain_interval is None else "new"
        )  # only the bootstrap corrects for choosing on these
        rule = RULES[self.rule]
        strength = f", {rule.text(self.gamma, self.second)}" if rule.strengths else ""
        change, known = (
            f"{self.score_as_trained:.3f} as trained -> {self.score:.3f}",
            super().facts(),
        )
        return {
            self.scoring: f"{change}, on {self.n} out-of-fold samples",
            **{name: known[name] for name in ("floors",) if name in known},
            f"gain on {where} samples": f"{self.gain:.3f}{between}",
            **{name: known[name] for name in ("verdict",) if name in known},
            "rule": f"{rule.title}{strength}; probabilities at temperature {self.temperature:.2f}",
            **({"why": self.why} if self.why else {}),
        }

    def __str__(self) -> str:
        width = max(5, *(len(name) for name, *_ in self._class_rows()))
        rows = [
            f"{name:{width}}  {n:>16g}  {old:>17}  {new:>6}"
            for name, n, old, new in self._class_rows()
        ]
        header = f"{'class':{width}}  training samples  recall as trained  recall"
        return "\n".join(
            [*self._lines(), header, *rows, *(f"doubt: {line}" for line in self.doubts)]
        )

    def __repr__(self) -> str:
        return f"Tuned({'; '.join(self._lines())})"

    def _repr_html_(self) -> str:
        classes = {
            f"recall of {name} (n = {n:g})": f"{old} -> {new}"
            for name, n, old, new in self._class_rows()
        }
        return html(
            "Tuned", self.facts() | classes, notes=[f"doubt: {line}" for line in self.doubts]
        )

    def _class_rows(self) -> list[tuple[str, float, str, str]]:
        """Return each class with its training samples and its recall before and after, in percent."""
        shares = (
            [f"{100 * r:.1f} %" if r == r else "-" for r in rs]
            for rs in (self.recall_at_zero, self.recall)
        )
        return list(zip(self.names or (), self.counts, *shares, strict=True))


@dataclass(eq=False)
class OutOfFold:
    """The out-of-fold samples of a tuning, and what was chosen on them."""

    chosen: Tuned
    folds: list[ScoredFold]  # scored; without their models
    exact: Callable[..., Chosen] | None  # `tune_folds` as it was called; None without an exact path

    @cached_property
    def tuned(self) -> Tuned | None:
        """The choice with the interval of its gain, by a bootstrap when first asked for; None without an exact path."""
        if self.exact is None:
            return None
        if self.chosen.gain_interval is not None:
            return self.chosen
        samples = sum(len(fold.labels) for fold in self.folds)
        return self.exact(self.folds, bootstrap=min(500, max(100, _MOST_RESAMPLED // samples)))[0]

    def as_score(self, value: Any) -> Any:
        """Return a value of the choice as scikit-learn scores it, higher where it is better."""
        return value if self.exact is None else as_score(self.chosen.metric, value)

    def summary(
        self, scoring: str, adjustment: AdjustmentFor, **of_classifier: Any
    ) -> OutOfFoldTuned:
        """Return the choice with its scores and recalls, and with what the classifier knows better."""
        labels, tuned = pool_labels(self.folds), self.tuned or self.chosen
        recalls = (recall(pool_scores(self.folds, by), labels) for by in (None, adjustment))
        before, after = (tuple(values.tolist()) for values in recalls)
        known: dict[str, Any] = {field.name: getattr(tuned, field.name) for field in fields(Tuned)}
        known |= {"recall": after, "recall_at_zero": before, **of_classifier}
        score, at_zero = map(self.as_score, (self.chosen.value, self.chosen.value_at_zero))
        return OutOfFoldTuned(**known, scoring=scoring, score=score, score_as_trained=at_zero)


def choose_by_scorer(
    folds: Sequence[ScoredFold],
    measured: Sequence[ByRule],
    gammas: ByRule,
    *,
    scoring: Any,
    already_trained: bool,
) -> Chosen:
    """Choose the first best of a scorer's mean over the folds, by the first of the rules that do equally well."""
    means: ByRule = {
        rule: np.mean([values[rule] for values in measured], axis=0) for rule in gammas
    }
    if any(np.isnan(values).any() for values in means.values()):
        reason = f"{scoring!r} is NaN on a fold, which may lack a class; use fewer folds"
        raise LevelheadError(reason, parameter="scoring")
    rule = max(means, key=lambda rule: means[rule].max())  # the first of equals
    tried, values, scores, labels = (
        gammas[rule],
        means[rule],
        pool_scores(folds),
        pool_labels(folds),
    )
    at, at_zero = int(values.argmax()), float(values[np.abs(tried).argmin()])
    last = (
        at + int(np.argmin(np.append(values[at:] == values[at], False))) - 1
    )  # of the plateau that begins there
    reach, plateau = ((float(tried[i]), float(tried[j])) for i, j in ((0, -1), (at, last)))
    doubts = (
        None if len(means) > 1 else diagnose_negative_logits(scores, labels, RULES[rule]),
        diagnose_accuracy(scores.argmax(axis=1) == labels) if already_trained else None,
        diagnose_range_end(plateau, reach),
    )
    known = {
        "rule": rule,
        "gamma": plateau[0],
        "plateau": plateau,
        "curve": Curve(tried, values, reach[1]),
    }
    return _by_scores(folds, scoring, float(values[at]), at_zero, **known), doubts


def as_score(metric: str, value: Any) -> Any:
    """Return a metric as scikit-learn scores it: an accuracy for an error, and what a sample costs below 0."""
    return 1 - value if metric in ERRORS else -value if metric in LOWER_IS_BETTER else value


def scorer_name(scoring: Any) -> str:
    """Return the name of a scorer, for people."""
    function = getattr(scoring, "_score_func", scoring)
    return (
        scoring
        if isinstance(scoring, str)
        else getattr(function, "__name__", type(scoring).__name__)
    )
