"""The choice on out-of-fold scores: exact where the scorer is a metric of the exact path, else on 201 gammas."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from ..choice.diagnostics import Diagnosis, diagnose_accuracy, diagnose_negative_logits, diagnose_range_end
from ..choice.paths import pool_folds
from ..choice.tune import cross_fit
from ..choice.tuned import Tuned
from ..core import warnings as kinds
from ..core.choices import Kind, Metric
from ..core.curve import Curve
from ..core.errors import LevelheadError
from ..core.measure import measure, recall
from ..core.warnings import quiet
from ..path.metrics import ERRORS
from ..path.path import gamma_path
from ..rules.rule import RULES, OneStrength, Strengths, rule_with
from ..show.html import html
from ._folds import AdjustmentFor, ScoredFold, pool_labels, pool_scores

_MOST_RESAMPLED = 2_000_000  # samples times replicates: with more than 2,000 samples, fewer replicates are enough

Settings = dict[str, tuple | None]  # the values of a scorer's options that change nothing; None: any, it is not used
_MACRO: Settings = {"average": ("macro",), "pos_label": None, "zero_division": ("warn", 0)}


class _ExactScorer(NamedTuple):
    """A scoring function that is a metric of the exact path, with what its options may be.

    If a class has no held-out sample, scikit-learn's means over classes depend on whether it is predicted; `any_labels`
    are those of the scorers that do not.
    """

    metric: Metric
    settings: Settings
    any_labels: bool = False


_EXACT: dict[tuple[str, str], _ExactScorer] = {
    ("sklearn", "accuracy_score"): _ExactScorer("error", {"normalize": (True,)}, any_labels=True),
    ("sklearn", "balanced_accuracy_score"): _ExactScorer("balanced_error", {"adjusted": (False,)}, any_labels=True),
    ("sklearn", "recall_score"): _ExactScorer("balanced_error", _MACRO),
    ("sklearn", "f1_score"): _ExactScorer("macro_f1", _MACRO),
    ("sklearn", "matthews_corrcoef"): _ExactScorer("mcc", {}, any_labels=True),
    ("sklearn", "cohen_kappa_score"): _ExactScorer("kappa", {"weights": (None,), "labels": (None,)}, any_labels=True),
    ("imblearn", "geometric_mean_score"): _ExactScorer("g_mean", {"average": ("multiclass",), "correction": (0, 0.0)}),
}


def exact_metric(scorer: Any, held_out: np.ndarray, classes: int) -> Metric | None:
    """Return the metric of the exact path that a scorer computes, or None if it is another or has other settings.

    Args:
        scorer: as `sklearn.metrics.check_scoring` returns it.
        held_out: labels of the held-out samples, of all folds.
        classes: K.

    >>> from sklearn.metrics import get_scorer
    >>> [exact_metric(get_scorer(name), np.arange(3), 3) for name in ("f1_macro", "f1_weighted", "accuracy")]
    ['macro_f1', None, 'error']
    """
    function, given = getattr(scorer, "_score_func", None), getattr(scorer, "_kwargs", {})
    package = str(getattr(function, "__module__", "")).partition(".")[0]
    exact = _EXACT.get((package, getattr(function, "__name__", "")))
    if exact is None or getattr(scorer, "_sign", 0) != 1 or getattr(scorer, "_response_method", "") != "predict":
        return None
    if exact.settings is _MACRO and given.get("average") != "macro":
        return None
    for name, value in given.items():
        values = exact.settings.get(name, ())
        if values is not None and not any(
            value is one or (type(value) is type(one) and value == one) for one in values
        ):
            return None
    return exact.metric if exact.any_labels or len(np.unique(held_out)) == classes else None


class ChosenRule(NamedTuple):
    """A rule and its strength, the plateau of that, and the scores over gamma; higher is better."""

    rule: str
    gamma: float
    plateau: tuple[float, float]
    score: float
    score_at_zero: float
    curve: Curve
    warnings: tuple[Diagnosis, ...] = ()
    tuned: Tuned | None = None  # of the exact path

    @property
    def strengths(self) -> Strengths:
        """What was chosen for the rule."""
        if (tuned := self.tuned) is None:
            return Strengths(self.gamma)
        return Strengths(tuned.gamma, tuned.second, tuned.scale, tuned.offset, tuned.smoothing)


@dataclass(frozen=True, eq=False)
class ExactChoice:
    """The choice of rule and strength by a metric of the exact path.

    Args:
        metric, rule, range: as in `cross_fit`; a range of None is each rule's own.
        names: [K], class labels as text.
        log_probabilities: whether the scores are logarithms of probabilities, which scaling does not suit.
    """

    metric: Metric
    rule: str
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
                rule=rule_with(self.rule, range=self.range),
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
            plateau=tuned.plateau,
            score=as_score(self.metric, tuned.value),
            score_at_zero=as_score(self.metric, tuned.value_at_zero),
            curve=replace(tuned.curve, values=as_score(self.metric, tuned.curve.values)),
            warnings=tuple(one for one in found if already_trained or not isinstance(one, kinds.LeakageWarning)),
            tuned=tuned,
        )


def choose_on_paths(
    folds: Sequence[ScoredFold], metric: Metric, rules: Sequence[OneStrength], range: tuple[float, float]
) -> ChosenRule:
    """Choose gamma on an error curve whose range leaves out 0, so that no gain can be given.

    The rule is the first of those that do equally well.
    """
    found = []
    for rule in rules:
        parts = [gamma_path(fold.scores, fold.labels, fold.counts, range=range, rule=rule.name) for fold in folds]
        path = pool_folds(parts)
        found.append((path.best(metric), path.curve_of(metric), rule))
    best, curve, rule = min(found, key=lambda one: one[0].value)
    return ChosenRule(
        rule=rule.name,
        gamma=best.gamma,
        plateau=best.plateau,
        score=as_score(metric, best.value),
        score_at_zero=as_score(metric, getattr(measure(pool_scores(folds), pool_labels(folds)), metric)),
        curve=replace(curve, values=as_score(metric, curve.values)),
        warnings=(diagnose_range_end(best.plateau, range),),
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OutOfFoldTuned(Tuned):
    """A choice on out-of-fold samples by a scorer of scikit-learn: what `summary_` returns.

    It has all that `Tuned` has. For a scorer without an exact path `gain_interval` is None, and the gain is not
    corrected for having chosen on these samples. `temperature` and `counts` are those of the classifier.

    Args:
        scoring: the scorer, by name.
        score_as_trained, score: before and after; higher is better. Rule and strength were chosen on these samples.
    """

    scoring: str
    score_as_trained: float
    score: float

    @property
    def recall_as_trained(self) -> tuple[float, ...]:
        """The recall of each class before, [K]; NaN for one without a sample."""
        return self.recall_at_zero

    @property
    def doubts(self) -> tuple[str, ...]:
        """One line for each reason to look again."""
        verdict = super().facts().get("verdict")
        return self.warnings if verdict is None else (*self.warnings, verdict)

    @property
    def title(self) -> str:
        """The title of `curve`."""
        return self.scoring if self.balanced_error is None else super().title  # of a scorer without an exact path

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers without the curves, as JSON can hold them."""
        found = super().to_dict()
        own = {name: getattr(self, name) for name in ("scoring", "score_as_trained", "score", "worthwhile")}
        return found | own | {"recall_as_trained": found["recall_at_zero"], "doubts": list(self.doubts)}

    def facts(self) -> dict[str, str]:
        """Return score, gain and rule in words, part by part."""
        between = "" if self.gain_interval is None else " ({:.3f} to {:.3f})".format(*self.gain_interval)
        where = "these" if self.gain_interval is None else "new"  # only the bootstrap corrects for choosing on these
        second = "" if self.second is None else f", then {self.second:.3f}"
        change = f"{self.score_as_trained:.3f} as trained -> {self.score:.3f}"
        return {
            self.scoring: f"{change}, on {self.n} out-of-fold samples",
            f"gain on {where} samples": f"{self.gain:.3f}{between}",
            "rule": f"{RULES[self.rule].title}, gamma = {self.gamma:.3f}{second}; probabilities at temperature "
            f"{self.temperature:.2f}",
            **({"why": self.why} if self.why else {}),
        }

    def __str__(self) -> str:
        width = max(5, *(len(name) for name, *_ in self._class_rows()))
        rows = [f"{name:{width}}  {n:>16g}  {old:>17}  {new:>6}" for name, n, old, new in self._class_rows()]
        header = f"{'class':{width}}  training samples  recall as trained  recall"
        return "\n".join([*self._lines(), header, *rows, *(f"doubt: {line}" for line in self.doubts)])

    def __repr__(self) -> str:
        return f"Tuned({'; '.join(self._lines())})"

    def _repr_html_(self) -> str:
        classes = {f"recall of {name} (n = {n:g})": f"{old} -> {new}" for name, n, old, new in self._class_rows()}
        return html("Tuned", self.facts() | classes, notes=[f"doubt: {line}" for line in self.doubts])

    def _class_rows(self) -> list[tuple[str, float, str, str]]:
        """Return each class with its training samples and its recall before and after, in percent."""
        shares = ([f"{100 * r:.1f} %" if r == r else "-" for r in rs] for rs in (self.recall_at_zero, self.recall))
        return list(zip(self.names or (), self.counts, *shares, strict=True))


@dataclass(eq=False)
class OutOfFold:
    """The out-of-fold samples of a tuning, and what was chosen on them.

    Args:
        chosen: rule and strength.
        folds: scored; without their models.
        exact: how it was chosen; None for scorers without an exact path.
    """

    chosen: ChosenRule
    folds: list[ScoredFold]
    exact: ExactChoice | None

    @cached_property
    def tuned(self) -> Tuned | None:
        """The choice with the interval of its gain; None without an exact path.

        The bootstrap behind the interval takes longer than the choice, so it is made when first asked for.
        """
        quick = self.chosen.tuned
        if self.exact is None or quick is None or quick.gain_interval is not None:
            return quick
        return self.exact.tune(self.folds, intervals=True)

    def summary(self, scoring: str, adjustment: AdjustmentFor, **of_classifier: Any) -> OutOfFoldTuned:
        """Return the choice with its scores and recalls.

        Args:
            scoring: the scorer, by name.
            adjustment: what was chosen, for a model trained on given counts.
            of_classifier: fields of `Tuned` that the classifier knows better.
        """
        chosen, labels = self.chosen, pool_labels(self.folds)
        recalls = (recall(pool_scores(self.folds, by), labels) for by in (None, adjustment))
        before, after = (tuple(values.tolist()) for values in recalls)
        tuned = self.tuned or Tuned(
            gamma=chosen.gamma,
            interval=None,
            rule=chosen.rule,
            criterion=scoring,
            metric=cast(Metric, scoring),  # none of ours, and so for people only
            value=chosen.score,
            value_at_zero=chosen.score_at_zero,
            chosen_on="out-of-fold",
            n=len(labels),
            classes=len(before),
            plateau=chosen.plateau,
            curve=chosen.curve,
            criterion_curve=chosen.curve,
            gain=chosen.score - chosen.score_at_zero,
        )
        known: dict[str, Any] = {field.name: getattr(tuned, field.name) for field in fields(Tuned)}
        known |= {"recall": after, "recall_at_zero": before, **of_classifier}
        return OutOfFoldTuned(**known, scoring=scoring, score=chosen.score, score_as_trained=chosen.score_at_zero)


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
    scores, labels = pool_scores(folds), pool_labels(folds)
    reach = float(gammas[rule][0]), float(gammas[rule][-1])
    last = at + int(np.argmin(np.append(values[at:] == values[at], False))) - 1  # of the plateau that begins there
    plateau = float(gammas[rule][at]), float(gammas[rule][last])
    return ChosenRule(
        rule=rule,
        gamma=plateau[0],
        plateau=plateau,
        score=float(values[at]),
        score_at_zero=float(values[np.abs(gammas[rule]).argmin()]),
        curve=Curve(gammas[rule], values, reach[1]),
        warnings=(
            None if len(means) > 1 else diagnose_negative_logits(scores, labels, RULES[rule]),
            diagnose_accuracy(scores.argmax(axis=1) == labels) if already_trained else None,
            diagnose_range_end(plateau, reach),
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


def scorer_name(scoring: Any) -> str:
    """Return the name of a scorer, for people.

    >>> from sklearn.metrics import f1_score, make_scorer
    >>> scorer_name("accuracy"), scorer_name(make_scorer(f1_score))
    ('accuracy', 'f1_score')
    """
    function = getattr(scoring, "_score_func", scoring)
    return scoring if isinstance(scoring, str) else getattr(function, "__name__", type(scoring).__name__)
