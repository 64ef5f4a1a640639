"""Any scikit-learn classifier with its scores adjusted by the class counts, at a fixed gamma or a cross-validated one.

``rescale`` is ``s_k <- (n_1 / n_k)^gamma s_k``, and needs three or more classes and a `decision_function`. ``shift`` is
``s_k <- s_k + gamma log(n_1 / n_k)``, of scores or log-probabilities. Only TunedRescaledClassifierCV chooses others. At
gamma = 0 predictions are the classifier's own, except for SVC, which votes: set its ``break_ties=True``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np

from ..choice.diagnostics import diagnose_negative_logits, issue_warnings
from ..choice.path_metrics import CLASSES_ALIKE, ERRORS
from ..choice.samples import Goal
from ..choice.tuned import Tuned
from ..core.adjustment import check_range, target_prior
from ..core.counts import Counts, Missing
from ..core.rules import RULES, Strengths, rule_with
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing
from ..support.types import Kind, Metric
from ..support.warnings import CountsWarning, LeakageWarning, ScaleWarning

with naming_what_is_missing():
    from sklearn import get_config
    from sklearn.base import clone
    from sklearn.metrics import check_scoring, get_scorer_names
    from sklearn.model_selection import StratifiedShuffleSplit, check_cv
    from sklearn.utils import _safe_indexing
    from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
    from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
    from sklearn.utils.parallel import Parallel, delayed
    from sklearn.utils.validation import _num_samples, check_is_fitted

    from ..heads.sklearn import innermost
    from . import _out_of_fold as oof
    from ._base_classifier import BaseRescaledClassifier, acting_rules, encode_labels

RuleChoice = Literal["auto", "rescale", "shift"]


class RescaledClassifier(BaseRescaledClassifier):
    """A classifier whose scores are adjusted by the class counts at a gamma of your choice.

    Args:
        estimator: the classifier; it is cloned and fitted. Wrap one that is trained already in a FrozenEstimator: then
            `fit` trains nothing, and `counts` should be those it was trained on.
        gamma: strength, by default that of the paper's script; 0 changes nothing. The tuned classifier finds yours.
        counts: training samples of each class: K of them in the order of `classes_`, or {label: n}. If None, y given to
            `fit` is counted; a CountsWarning says if that is balanced and the classifier was trained on other samples.
        missing: what a class without samples is: an `error`, or `neutral` (left as it is).
        rule: `rescale`, `shift`, or `auto`: rescale where scaling can act, else shift.

    Attributes:
        estimator_, rule_: the fitted classifier; `rescale` or `shift`.
        counts_: [K], the counts that the scores are adjusted by.
        classes_, n_features_in_, feature_names_in_: the classifier's.

    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = make_classification(4000, n_classes=4, n_informative=8, weights=[0.8, 0.13, 0.05], class_sep=1.5,
    ...                            random_state=0)
    >>> model = RescaledClassifier(LogisticRegression(), gamma=0.5).fit(X, y)
    >>> model.rule_, model.counts_.tolist()
    ('rescale', [3175, 529, 209, 87])
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseRescaledClassifier._parameter_constraints,
        "gamma": [Interval(Real, None, None, closed="neither")],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        gamma: float = 0.5,
        counts: Counts | None = None,
        missing: Missing = "error",
        rule: RuleChoice = "auto",
    ) -> None:
        self.estimator, self.gamma, self.counts, self.missing, self.rule = (
            estimator,
            gamma,
            counts,
            missing,
            rule,
        )

    @property
    def _strengths(self) -> Strengths:
        return Strengths(self.gamma)

    def _fit(self, X: Any, y: np.ndarray, **params: Any) -> None:
        routed = cast(Any, process_routing(self, "fit", **params))
        self.estimator_ = oof.fit_on(clone(self.estimator), X, y, None, routed.estimator.fit)
        self.rule_ = acting_rules(self.estimator_, self.rule)[0].name
        self.counts_ = self._training_counts(y)
        some = np.unique(np.linspace(0, _num_samples(X) - 1, 1000).astype(int))
        values, labels = (
            self._class_scores(_safe_indexing(X, some)),
            encode_labels(y[some], self.classes_),
        )
        negative = diagnose_negative_logits(values, labels, RULES[self.rule_])
        issue_warnings(negative, self._diagnose_margins(values), self._diagnose_class_weights())

    def _diagnose_class_weights(self) -> CountsWarning | None:
        """Warn if the classifier weighed its classes, so that the counts of y are not what its loss saw."""
        model = innermost(self.estimator_)
        given = {
            name: getattr(model, name, None) for name in ("class_weight", "auto_class_weights")
        }  # of CatBoost
        name, value = next(
            ((name, value) for name, value in given.items() if value is not None), ("", None)
        )
        if self.counts is not None or not name or self.gamma == 0:
            return None
        return CountsWarning(
            f"{type(model).__name__} was fitted with {name} {value!r}, and then adjusted for the counts of y all the "
            "same, which may level its classes twice; give counts as its loss saw them, times the class weights, or "
            "use TunedRescaledClassifierCV, which finds how much is left to do"
        )

    def _diagnose_margins(self, scores: np.ndarray) -> ScaleWarning | None:
        """Warn if a fixed shift is added to the scores of a classifier without probabilities, which are margins."""
        largest = abs(self.gamma) * float(np.log(self.counts_.max() / self.counts_.min()))
        if (
            RULES[self.rule_].multiplies
            or hasattr(self.estimator_, "predict_proba")
            or largest == 0
        ):
            return None
        return ScaleWarning(
            f"{type(innermost(self.estimator_)).__name__} gives margins, whose scale is not that of log-probabilities: "
            f"gamma = {self.gamma:g} adds up to {largest:.3g} to scores with a standard deviation of "
            f"{scores.std():.3g}; use TunedRescaledClassifierCV, which finds a gamma for them"
        )


class TunedRescaledClassifierCV(BaseRescaledClassifier):
    """A classifier whose scores are adjusted by the class counts at the gamma that is best on held-out data.

    For each fold, a model trained on the rest scores it, with the counts of what that model was trained on. Rule and
    gamma are then chosen on all folds pooled, as `levelhead.cross_fit` does, from the exact curves over gamma, if the
    scorer is one of `balanced_accuracy`, `accuracy`, `f1_macro`, `recall_macro`, `matthews_corrcoef`, or made of
    `cohen_kappa_score` or of imbalanced-learn's `geometric_mean_score`. Any other scorer is called at 201 gammas over
    the range, fold by fold, and the smallest gamma with the best mean is taken, of `rescale` or `shift`.

    `predict_proba` is calibrated by a temperature, fitted on the adjusted out-of-fold scores. For balanced accuracy,
    and for scorers without an exact curve, every class weighs the same in that fit: like `predict`, the probabilities
    are then those of a world in which all classes are equally frequent. For other metrics, they are of classes as they
    occur. Those of the training's mix, with its predictions, are ``estimator_.predict_proba``.

    Args:
        estimator: the classifier; it is cloned and fitted, on each fold and then on everything.
        scoring: the name of a scorer, or a callable ``scorer(estimator, X, y)``.
        cv: None (5 stratified folds), a number of folds, a share held out in one shuffled split, a splitter, an
            iterable of splits, or "prefit" for an estimator that is trained already. Then X and y are held-out data,
            and `counts` should be those it was trained on; without them y is counted, whose shares may differ. Never
            tune on the data a model was trained on: such a gamma means nothing (a LeakageWarning if that is evident).
        refit: train on all data once gamma is known. It must be False with "prefit", and may be with a single split.
        n_jobs: number of folds trained at once.
        random_state, store_cv_results: seed of the shuffled split, if cv is a share; keep `cv_results_`.
        counts, missing, rule: as in RescaledClassifier; `auto` chooses on the out-of-fold scores.
        cost, floors, target: in place of a scorer, as in `levelhead.Goal`; as there, {label: recall}; as in
            `levelhead.tune`, {label: share}. They need one of the scorers above, whose curves are exact.
        names: [K], of the classes in the order of `classes_`, for people; the labels if None.
        range: of gamma. It may include 0, which changes nothing; without 0, there is no gain to give an interval of,
            and `auto` is `rescale` or `shift`. If None, to 2 for `rescale`, and for `shift` to at least 4, or
            as far as the scale of the scores asks for.

    Attributes:
        best_gamma_, best_score_: the strength chosen; its score on the held-out data it was chosen on: optimistic.
        temperature_: what the adjusted scores are divided by, for `predict_proba`.
        cv_results_: {"gammas", "scores"} of `rule_`: for an exact curve, scores[i] holds from gammas[i] up to the next.
        estimator_: the classifier, trained on all data if refit.
        rule_: `shift`, `rescale`, `rescale+shift`, `vector` or, for floors, costs and macro-F1, `offsets`; `none`.
        counts_, classes_, n_features_in_, feature_names_in_: as in RescaledClassifier.

    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.metrics import balanced_accuracy_score
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = make_classification(4000, n_classes=4, n_informative=8, weights=[0.8, 0.13, 0.05], class_sep=1.5,
    ...                            random_state=0)
    >>> X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    >>> plain, tuned = LogisticRegression().fit(X, y), TunedRescaledClassifierCV(LogisticRegression()).fit(X, y)
    >>> [round(float(balanced_accuracy_score(y_test, model.predict(X_test))), 2) for model in (plain, tuned)]
    [0.68, 0.81]
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseRescaledClassifier._parameter_constraints,
        "scoring": [StrOptions(set(get_scorer_names())), callable],
        "cv": [
            "cv_object",
            StrOptions({"prefit"}),
            Interval(RealNotInt, 0.0, 1.0, closed="neither"),
        ],
        "refit": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "store_cv_results": ["boolean"],
        "cost": ["array-like", None],
        "floors": [Interval(Real, 0, 1, closed="both"), dict, None],
        "target": ["array-like", dict, None],
        "names": ["array-like", None],
        "range": ["array-like", None],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        scoring: str | Callable[..., float] = "balanced_accuracy",
        cv: Any = None,
        refit: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
        store_cv_results: bool = False,
        counts: Counts | None = None,
        missing: Missing = "error",
        rule: RuleChoice = "auto",
        cost: Any = None,
        floors: float | dict[Any, float] | None = None,
        target: Any = None,
        names: Sequence[str] | None = None,
        range: tuple[float, float] | None = None,
    ) -> None:
        self.estimator, self.scoring, self.cv, self.refit, self.n_jobs = (
            estimator,
            scoring,
            cv,
            refit,
            n_jobs,
        )
        self.random_state, self.store_cv_results = random_state, store_cv_results
        self.counts, self.missing, self.rule, self.range = counts, missing, rule, range
        self.cost, self.floors, self.target, self.names = cost, floors, target, names

    @property
    def tuned_(self) -> Tuned | None:
        """The choice as `levelhead.cross_fit` returns it, with every rule that was tried; None for other scorers."""
        check_is_fitted(self, "estimator_")
        return self._out_of_fold.tuned

    @property
    def summary_(self) -> oof.OutOfFoldTuned:
        """A `levelhead.Tuned` of out-of-fold samples for any scorer, with its score and that as trained; print it."""
        check_is_fitted(self, "estimator_")
        scoring = oof.scorer_name(self.scoring) if self.cost is None else "neg_cost"
        known: dict[str, Any] = {
            "counts": tuple(self.counts_.tolist()),
            "names": self._names,
            "kind": self._kind,
        }
        known |= {"temperature": self.temperature_, "warnings": self._doubts}
        return self._out_of_fold.summary(scoring, self._adjustment, **known)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes_ if self.names is None else self.names))

    @property
    def _target(self) -> np.ndarray | None:
        """The shares of the target, [K]."""
        known = self._by_name(self.target)
        return None if known is None else target_prior(known, len(self.classes_), self._names)

    def _by_name(self, given: Any) -> Any:
        """Return {label: value} as {name: value}; anything else as it is."""
        if not isinstance(given, dict):
            return given
        names = dict(zip(self.classes_.tolist(), self._names, strict=True))
        return {names.get(label, label): value for label, value in given.items()}

    @property
    def _kind(self) -> Kind:
        return "logits" if hasattr(self.estimator_, "decision_function") else "probabilities"

    @property
    def _prefit(self) -> bool:
        return isinstance(self.cv, str)

    @property
    def _already_trained(self) -> bool:
        return self._prefit or super()._already_trained

    def _fit(self, X: Any, y: np.ndarray, **params: Any) -> None:
        routed = cast(Any, process_routing(self, "fit", **params))
        splits = self._splits(X, y, routed.splitter.split)
        trained_on, fit_params = None if self.refit else splits[0][0], routed.estimator.fit
        given = self.estimator
        self.estimator_ = (
            given if self._prefit else oof.fit_on(clone(given), X, y, trained_on, fit_params)
        )
        if len(self.classes_) < 2:
            raise LevelheadError("expected two or more classes, got one class", parameter="y")
        if len(self._names) != len(self.classes_):
            raise LevelheadError(
                f"expected {len(self.classes_)}, got {len(self._names)}", parameter="names"
            )
        self.counts_ = self._training_counts(y if trained_on is None else y[trained_on])
        scorer = cast(Any, check_scoring(self.estimator, scoring=self.scoring))
        base, own = (self.estimator, fit_params) if self.refit else (self.estimator_, None)
        known = None if self.counts is None else self.counts_
        score = partial(
            oof.score_fold,
            classes=self.classes_,
            counts=known,
            missing=self.missing,
            fit_params=own,
        )
        scored = Parallel(n_jobs=self.n_jobs)(
            delayed(score)(base, X, y, *split) for split in splits
        )
        folds, self._zero = oof.complete_folds(cast(list, scored))
        metric = (
            None
            if routed.scorer.score
            else oof.exact_metric(scorer, oof.pool_labels(folds), len(self.classes_))
        )
        reach = None if self.range is None else check_range(self.range)
        rules = acting_rules(self.estimator_, self.rule)
        without_zero, exact = reach is not None and not reach[0] <= 0 < reach[1], None
        lacking = (
            "a range that holds 0"
            if without_zero
            else None
            if metric
            else "a scorer with an exact curve"
        )
        for name in ("cost", "floors", "target"):
            if lacking is not None and getattr(self, name) is not None:
                raise LevelheadError(f"needs {lacking}", parameter=name)
        if reach is not None and without_zero and metric in ERRORS:
            chosen, doubts = oof.choose_on_paths(
                folds, cast(Metric, metric), rules, reach, self.scoring
            )
        elif metric is None or without_zero:
            temperature = oof.pooled_temperature(folds)
            # a shift of 1 is what calibrated scores need for a uniform prior; scores that are T times as large need T
            ends = {
                one.name: reach or (0.0, one.reach * (temperature if one.grows else 1.0))
                for one in rules
            }
            gammas = {name: np.linspace(*ends[name], 201) for name in ends}
            classifiers = (oof.FoldClassifier(fold, self.classes_, self._zero) for fold in folds)
            jobs = (
                delayed(one.measure)(gammas, scorer, routed.scorer.score, X, y)
                for one in classifiers
            )
            measured = cast(list, Parallel(n_jobs=self.n_jobs)(jobs))
            how = {"scoring": self.scoring, "already_trained": self._already_trained}
            chosen, doubts = oof.choose_by_scorer(folds, measured, gammas, **how)
        else:
            rule = rule_with(self.rule, range=reach)
            goal = Goal(metric, self.cost, self._by_name(self.floors))
            how = {
                "metric": goal,
                "rule": rule,
                "names": self._names,
                "kind": self._kind,
                "target": self._target,
            }
            exact = partial(oof.tune_folds, **how)
            chosen, found = exact(folds)
            doubts = [
                one for one in found if self._already_trained or not isinstance(one, LeakageWarning)
            ]
        self._out_of_fold = made = oof.OutOfFold(
            chosen, [replace(fold, model=None) for fold in folds], exact
        )
        self.rule_, self.best_gamma_, self.best_score_ = (
            chosen.rule,
            chosen.gamma,
            made.as_score(chosen.value),
        )
        self._strengths = Strengths(
            chosen.gamma, chosen.second, chosen.scale, chosen.offset, chosen.smoothing
        )
        alike = self.cost is None and (metric is None or metric in CLASSES_ALIKE)
        shares = np.ones(len(self.classes_)) if alike and self.target is None else self._target
        self.temperature_ = oof.pooled_temperature(folds, self._adjustment, shares=shares)
        if self.store_cv_results:
            self.cv_results_ = {
                "gammas": chosen.curve.gammas,
                "scores": made.as_score(chosen.curve.values),
            }
        self._doubts = issue_warnings(*doubts)

    def _splits(
        self, X: Any, y: np.ndarray, params: dict
    ) -> list[tuple[np.ndarray | None, np.ndarray]]:
        """Return pairs of (train, held-out) indices; train is None for a model that is trained already."""
        if self._prefit:
            if self.refit:
                raise LevelheadError(
                    "expected False: cv 'prefit' trains nothing; got True", parameter="refit"
                )
            check_is_fitted(self.estimator, "classes_", msg="cv 'prefit' needs a fitted estimator")
            return [(None, np.arange(_num_samples(X)))]
        share = isinstance(self.cv, Real) and not isinstance(self.cv, Integral)
        once = (
            StratifiedShuffleSplit(1, test_size=self.cv, random_state=self.random_state)
            if share
            else None
        )
        splitter = cast(Any, once or check_cv(cast(Any, self.cv), y, classifier=True))
        splits = list(splitter.split(X, y, **params))
        if not self.refit and len(splits) > 1:
            which = f"the {len(splits)} splits of cv, got False; only the model of a single split can be kept"
            raise LevelheadError(f"expected True with {which}", parameter="refit")
        return splits

    def get_metadata_routing(self) -> MetadataRouter:
        """Return where metadata given to `fit` goes: to the classifier's `fit`, the splitter's `split`, the scorer."""
        router, scorer = (
            super().get_metadata_routing(),
            check_scoring(self.estimator, scoring=self.scoring),
        )
        if isinstance(self.scoring, str) and get_config()["enable_metadata_routing"]:
            cast(Any, scorer).set_score_request(
                sample_weight=False
            )  # weights are for the fit: samples count once
        router.add(
            splitter=self.cv, method_mapping=MethodMapping().add(callee="split", caller="fit")
        )
        return router.add(
            scorer=scorer, method_mapping=MethodMapping().add(callee="score", caller="fit")
        )

    def report(self, path: str | Path) -> Path:
        """Write an .html page about what the adjustment did on the out-of-fold samples, and return its path."""
        # the page stands above the estimators, and is loaded for this alone
        from ..report import of_logits, write

        tuned, folds = self.tuned_, self._out_of_fold.folds
        scored = {
            "gamma": self.best_gamma_,
            "rule": self.rule_,
            "chosen_on": "out-of-fold",
        }  # by another scorer
        given: dict[str, Any] = {
            "tuned": tuned or scored,
            "names": self._names,
            "samples": "out-of-fold",
        }
        given |= {
            "title": type(innermost(self.estimator)).__name__,
            "facts": {"estimator": repr(self.estimator)},
        }
        subject = of_logits(oof.pool_scores(folds), oof.pool_labels(folds), self.counts_, **given)
        return write(path, [replace(subject, fitted=type(self).__name__)])
