"""Any scikit-learn classifier with its scores adjusted by the class counts, at a fixed gamma or a cross-validated one.

The two are shaped like scikit-learn's FixedThresholdClassifier and TunedThresholdClassifierCV and are used in the same
places: around an estimator or a pipeline, inside a pipeline or a search.

The fitted attribute `rule_` says how the scores are adjusted:

- ``rescale`` scales them as RS scales a head, ``s_k <- (n_1 / n_k)^gamma s_k``. It needs three or more classes and a
  `decision_function`. For a linear model this is RS itself, with its intercept scaled too.
- ``shift`` adds to them, ``s_k <- s_k + gamma log(n_1 / n_k)``: to the decision value, or to the log of the
  probabilities. It also works where scaling cannot act: for two classes, whose scores are opposite, and for classifiers
  that give only probabilities. There gamma = 1 is post-hoc logit adjustment, which is exact for calibrated
  probabilities and the balanced error.

A factor pushes a negative score down, and margins of one class against the rest (LinearSVC, RidgeClassifier, boosting)
are often negative. TunedRescaledClassifierCV compares the two rules on held-out scores and takes the better, unless you
name one. At a fixed gamma, or where you name ``rescale``, a NegativeLogitsWarning says so; use ``rule="shift"`` then.

The prediction is the class of the largest score. At gamma = 0 that is the classifier's own, except for SVC, which
votes: set its ``break_ties=True``.
"""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, cast

import numpy as np
from sklearn.base import clone
from sklearn.metrics import accuracy_score, balanced_accuracy_score, check_scoring, get_scorer_names
from sklearn.model_selection import StratifiedShuffleSplit, check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples, check_is_fitted

from ..core.counts import Counts, Missing
from ..core.curve import Metric
from ..core.errors import LevelheadError
from ..gamma.diagnostics import diagnose_accuracy, diagnose_negative_logits, issue_warnings
from ..gamma.rule import check_range
from ._base_classifier import CALLER, BaseRescaledClassifier, encode_labels, usable_rules
from ._folds import FoldOptions, ScoredFold, choose_gamma, fit_on, score_fold

RuleChoice = Literal["auto", "rescale", "shift"]
_EXACT: dict[Any, Metric] = {balanced_accuracy_score: "balanced_error", accuracy_score: "error"}


class RescaledClassifier(BaseRescaledClassifier):
    """A classifier whose scores are adjusted by the class counts at a gamma of your choice.

    Args:
        estimator: the classifier; it is cloned and fitted. Wrap one that is trained already in a FrozenEstimator: then
            `fit` trains nothing, and `counts` should be those it was trained on.
        gamma: strength; 0 changes nothing, larger gives rare classes more. The default is the value of the paper's
            script; TunedRescaledClassifierCV finds yours.
        counts: training samples of each class: K of them in the order of `classes_`, or {label: n}. If None, y given to
            `fit` is counted; a CountsWarning says if that is balanced and the classifier was trained on other samples.
        missing: what a class without samples is: an `error`, or `neutral` (left as it is).
        rule: `rescale`, `shift`, or `auto`: rescale where scaling can act, else shift. TunedRescaledClassifierCV tries
            both where both can act.

    Attributes:
        estimator_: the fitted classifier.
        counts_: [K], the counts that the scores are adjusted by.
        rule_: `rescale` or `shift`.
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
        self.estimator, self.gamma, self.counts, self.missing, self.rule = estimator, gamma, counts, missing, rule

    @property
    def _gamma(self) -> float:
        return self.gamma

    def _fit(self, X: Any, y: np.ndarray, **params: Any) -> None:
        routed = cast(Any, process_routing(self, "fit", **params))
        self.estimator_ = fit_on(clone(self.estimator), X, y, None, routed.estimator.fit)
        self.rule_, *_ = usable_rules(self.estimator_, self.rule)
        self.counts_ = self._training_counts(y)
        some = np.unique(np.linspace(0, _num_samples(X) - 1, 1000).astype(int))
        values, labels = self._class_scores(_safe_indexing(X, some)), encode_labels(y[some], self.classes_)
        issue_warnings([diagnose_negative_logits(values, labels, self.rule_)], stacklevel=CALLER)


class TunedRescaledClassifierCV(BaseRescaledClassifier):
    """A classifier whose scores are adjusted by the class counts at the gamma that is best on held-out data.

    For each fold, a model trained on the rest scores it, with the counts of what that model was trained on. For
    `balanced_accuracy` and `accuracy` the whole curve over gamma is then known exactly, all folds pooled. Gamma is the
    middle of its best plateau, or 0 if that is the whole range. Any other scorer is called at 201 gammas over the
    range, fold by fold, and the smallest gamma with the best mean is taken. ``rule="auto"`` takes the rule that does
    better at its own best gamma, or rescale if both do equally well.

    Args:
        estimator: the classifier; it is cloned and fitted, on each fold and then on everything.
        scoring: the name of a scorer, or a callable ``scorer(estimator, X, y)``.
        cv: None (5 stratified folds), a number of folds, a share held out in one shuffled split, a splitter, an
            iterable of splits, or "prefit" for an estimator that is trained already. Then X and y are held-out data,
            and `counts` should be those it was trained on; without them y is counted, whose shares may differ. Never
            tune on the data a model was trained on: such a gamma means nothing (a LeakageWarning if that is evident).
        refit: train on all data once gamma is known. It must be False with "prefit", and may be with a single split.
        n_jobs: number of folds trained at once.
        random_state: seed of the shuffled split, if cv is a share.
        store_cv_results: keep `cv_results_`.
        counts, missing, rule: as in RescaledClassifier.
        range: of gamma. It may include 0, which changes nothing.

    Attributes:
        best_gamma_: the strength chosen.
        best_score_: its score on held-out data. Gamma was chosen there, so this score is optimistic.
        cv_results_: {"gammas", "scores"} of `rule_`: for an exact curve, scores[i] holds from gammas[i] up to the next.
        estimator_: the classifier, trained on all data if refit.
        counts_, rule_, classes_, n_features_in_, feature_names_in_: as in RescaledClassifier.

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
        "cv": ["cv_object", StrOptions({"prefit"}), Interval(RealNotInt, 0.0, 1.0, closed="neither")],
        "refit": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "store_cv_results": ["boolean"],
        "range": ["array-like"],
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
        range: tuple[float, float] = (0.0, 2.0),
    ) -> None:
        self.estimator, self.scoring, self.cv, self.refit, self.n_jobs = estimator, scoring, cv, refit, n_jobs
        self.random_state, self.store_cv_results = random_state, store_cv_results
        self.counts, self.missing, self.rule, self.range = counts, missing, rule, range

    @property
    def _gamma(self) -> float:
        return self.best_gamma_

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
        self.estimator_ = given if self._prefit else fit_on(clone(given), X, y, trained_on, fit_params)
        if len(self.classes_) < 2:
            raise LevelheadError("expected two or more classes, got one class", parameter="y")
        self.counts_ = self._training_counts(y if trained_on is None else y[trained_on])
        scorer = cast(Any, check_scoring(self.estimator, scoring=self.scoring))
        plain = not routed.scorer.score and (getattr(scorer, "_sign", 0), getattr(scorer, "_kwargs", None)) == (1, {})
        metric = _EXACT.get(getattr(scorer, "_score_func", None)) if plain else None
        options = FoldOptions(
            classes=self.classes_,
            rules=usable_rules(self.estimator_, self.rule),
            range=check_range(self.range),
            counts=None if self.counts is None else self.counts_,
            missing=self.missing,
            metric=metric,
            scorer=scorer,
            fit_params=fit_params if self.refit else None,
            score_params=routed.scorer.score,
        )
        base = given if self.refit else self.estimator_
        folds = cast(
            list[ScoredFold],
            Parallel(n_jobs=self.n_jobs)(delayed(score_fold)(options, base, X, y, *split) for split in splits),
        )
        choices = {rule: choose_gamma(options, [fold.by_rule[rule] for fold in folds]) for rule in options.rules}
        if any(np.isnan(choice.values).any() for choice in choices.values()):
            raise LevelheadError(
                f"{self.scoring!r} is NaN on a fold, which may lack a class; use fewer folds", parameter="scoring"
            )
        self.rule_ = max(options.rules, key=lambda rule: choices[rule].values.max())  # the first of equals
        best = choices[self.rule_]
        self.best_gamma_, self.best_score_ = best.gamma, float(best.values.max())
        if self.store_cv_results:
            self.cv_results_ = {"gammas": best.gammas, "scores": best.values}
        scores, labels = (np.concatenate([getattr(fold, part) for fold in folds]) for part in ("scores", "labels"))
        compared = len(choices) > 1  # then the shift that the warning recommends has been tried
        negative = None if compared else diagnose_negative_logits(scores, labels, self.rule_)
        leaked = diagnose_accuracy(scores.argmax(axis=1) == labels) if self._already_trained else None
        issue_warnings([negative, leaked], stacklevel=CALLER)

    def _splits(self, X: Any, y: np.ndarray, params: dict) -> list[tuple[np.ndarray | None, np.ndarray]]:
        """Return pairs of (train, held-out) indices; train is None for a model that is trained already."""
        if self._prefit:
            if self.refit:
                raise LevelheadError("expected False: cv 'prefit' trains nothing; got True", parameter="refit")
            check_is_fitted(self.estimator, "classes_", msg="cv 'prefit' needs a fitted estimator")
            return [(None, np.arange(_num_samples(X)))]
        share = isinstance(self.cv, Real) and not isinstance(self.cv, Integral)
        cv: Any = (
            StratifiedShuffleSplit(1, test_size=self.cv, random_state=self.random_state)
            if share
            else check_cv(cast(Any, self.cv), y, classifier=True)
        )
        splits = list(cv.split(X, y, **params))
        if not self.refit and len(splits) > 1:
            raise LevelheadError(
                f"expected True with the {len(splits)} splits of cv, got False; only the model of a "
                "single split can be kept",
                parameter="refit",
            )
        return splits

    def get_metadata_routing(self) -> MetadataRouter:
        """Return where metadata given to `fit` goes: to the classifier's `fit`, the splitter's `split`, the scorer."""
        router, scorer = super().get_metadata_routing(), check_scoring(self.estimator, scoring=self.scoring)
        router.add(splitter=self.cv, method_mapping=MethodMapping().add(callee="split", caller="fit"))
        return router.add(scorer=scorer, method_mapping=MethodMapping().add(callee="score", caller="fit"))
