"""Any scikit-learn classifier with its scores adjusted: by a fixed rule, or tuned out of fold.

``score_k <- scale_k s_k + offset_k``, where s is the `decision_function` of the classifier or, if
it has none, the logarithm of its `predict_proba`. The two classes are the twins of scikit-learn's
FixedThresholdClassifier and TunedThresholdClassifierCV, for any number of classes. Where nothing
changes, predictions are the classifier's own, except for SVC, which votes: set `break_ties=True`.

What they share is in `_base_classifier.py`. `AdjustedClassifier` fits the classifier and takes the adjustment from
what it was given. `AdjustedClassifierCV` has each fold scored by a model of the others (`_folds.py`), tunes on all
of these scores (`core.tune.tune_folds`), and fits the classifier on everything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import ClassVar, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from ..core.class_labels import as_positions
from ..core.counts import Counts, WithBackground, resolve
from ..core.doubts import doubt_balanced_counts, doubt_negative_logits, issue_warnings
from ..core.goal import Goal
from ..core.metrics import Metric
from ..core.rules import DEFAULT, OneStrength, Rule, Shift, find_rule
from ..core.tune import tune_folds
from ..core.tuned import Tuned, tuned_of
from ..core.tuned_checks import check_classes
from ..support.errors import LevelheadError, named
from ..support.extras import naming_what_is_missing
from ..support.types import Kind
from ..support.warnings import CountsWarning, LeakageWarning, MixWarning, ScaleWarning, kept
from ._labels import by_name, counts_by_name, encode_labels, names_of

with naming_what_is_missing():
    from sklearn.base import clone
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import StackingClassifier
    from sklearn.model_selection import StratifiedShuffleSplit, check_cv
    from sklearn.utils import Bunch, _safe_indexing
    from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
    from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
    from sklearn.utils.parallel import Parallel, delayed
    from sklearn.utils.validation import _num_samples, check_is_fitted

    from ..heads.sklearn import Classifier, innermost
    from ._base_classifier import (
        RESPONSES,
        BaseAdjustedClassifier,
        FitParams,
        Inputs,
        check_rule,
        class_scores,
        fit_on,
        is_frozen,
        kind_of_scores,
    )
    from ._folds import ScoredFold, Split, counts_of_rows, held_out_once, score_fold
    from ._loss_counts import loss_counts

_BY_DEFAULT = Shift(1.0)  # what a calibrated classifier needs for classes that weigh the same
_CLASS_WEIGHTS = ("class_weight", "auto_class_weights")  # the second is CatBoost's
_SOME = 1000  # rows that are looked at for doubts


class Splitter(Protocol):
    """What scikit-learn's splitters have: rows to train on and rows to hold out, several times."""

    def split(
        self, X: Inputs, y: ArrayLike | None = ..., groups: ArrayLike | None = ...
    ) -> Iterable[tuple[np.ndarray, np.ndarray]]: ...


# How `AdjustedClassifierCV` holds out: folds, a share, "prefit", a splitter, or the splits themselves.
CV: TypeAlias = int | float | str | Splitter | Iterable[tuple[np.ndarray, np.ndarray]] | None


class AdjustedClassifier(BaseAdjustedClassifier):
    """A classifier whose scores are adjusted by what was tuned, or by a rule at a strength.

    Args:
        estimator: the classifier; it is cloned and fitted. Wrap one that is trained already in a
            FrozenEstimator: then `fit` trains nothing.
        by: what `levelhead.tune` returned for such a classifier, or the path of a tuned.json; or a
            rule with a strength, such as ``lh.rules.Rescale(0.5)``. ``lh.rules.Shift(1.0)`` if None.
        counts: for a rule, training samples of each class: [K] in the order of `classes_`,
            {label: n}, or the labels of training; with `lh.counts.with_background`, a label is left
            alone. If None, y is counted.

    Attributes:
        estimator_: the fitted classifier.
        tuned_: the `levelhead.Tuned` that adjusts its scores.
        classes_, n_features_in_, feature_names_in_: the classifier's.

    >>> from levelhead import rules
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = make_classification(
    ...     4000, n_classes=4, n_informative=8, weights=[0.8, 0.13, 0.05], class_sep=1.5, random_state=0
    ... )
    >>> model = AdjustedClassifier(LogisticRegression(), rules.Rescale(0.5)).fit(X, y)
    >>> model.tuned_.rule, model.tuned_.adjustment.scale.round(2)
    ('rescale', array([1.  , 2.45, 3.9 , 6.04]))
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseAdjustedClassifier._parameter_constraints,
        "by": [Rule, Tuned, str, Path, None],
    }

    def __init__(
        self,
        estimator: Classifier,
        by: Tuned | Rule | str | Path | None = None,
        *,
        counts: Counts | None = None,
    ) -> None:
        self.estimator = estimator
        self.by = by
        self.counts = counts

    def _fit(self, X: Inputs, y: np.ndarray, routed: Bunch) -> None:
        """Fit the classifier on everything, and take the adjustment from `by`.

        Of a frozen classifier, `fit` trains nothing, and y is only counted.
        """
        fit_params = routed.estimator.fit
        self.estimator_ = fit_on(clone(self.estimator), X, y, None, fit_params)
        self._weights = fit_params.get("sample_weight")
        labels = encode_labels(y, self.classes_)
        by = _BY_DEFAULT if self.by is None else self.by
        if isinstance(by, Rule):
            self.tuned_ = self._tuned_by_rule(by, X, labels)
        else:
            self.tuned_ = self._checked(tuned_of(by))
        self._kind = self.tuned_.kind

    def _checked(self, tuned: Tuned) -> Tuned:
        """Return a choice, after checking that it is for what this classifier gives.

        Raises:
            LevelheadError: it is for several labels per sample, for other classes or another order of them, or for a
                kind of scores that the classifier does not have; or counts came beside it.
        """
        name = type(innermost(self.estimator_)).__name__
        if self.counts is not None:
            reason = "these belong to a rule, and what was tuned has its own"
            raise LevelheadError(f"{reason}; leave them out", parameter="counts")
        with named("by"):
            if tuned.multilabel:
                raise LevelheadError("several labels per sample were tuned; expected one class")
            check_classes(tuned, len(self.classes_), names_of(self.classes_), name)
            response = RESPONSES[tuned.kind]
            if not hasattr(self.estimator_, response):
                reason = f"it was tuned on {tuned.kind}, and {name} has no {response}"
                raise LevelheadError(f"{reason}; tune on its own scores")
        return tuned

    def _tuned_by_rule(self, rule: Rule, X: Inputs, labels: np.ndarray) -> Tuned:
        """Return what a rule with a strength does to the scores, as a choice without evidence.

        No sample is held out here, so nothing can be measured: what speaks against the rule is a warning.

        Args:
            rule: with a strength.
            X: all samples, of which some are scored for the warnings.
            labels: [N], positions in `classes_`.
        """
        kind = kind_of_scores(self.estimator_)
        check_rule(self.estimator_, rule, kind, "by")
        if not isinstance(rule, OneStrength) or rule.strength is None:
            example = "lh.rules.Shift(1.0)"
            expected = (
                f"expected a rule with a strength, such as {example}, or what lh.tune returned"
            )
            raise LevelheadError(f"{expected}, got {rule.name}", parameter="by")
        counts = training_counts(self.counts, labels, self.classes_, self._weights)
        adjustment = rule.at(rule.direction(counts.astype(np.float64)), rule.strength)
        # One that was trained elsewhere has seen other samples than these.
        counted = self.counts is None and is_frozen(self.estimator)
        if counted:
            model_name = type(innermost(self.estimator_)).__name__
            issue_warnings([doubt_balanced_counts(counts, model_name)])
        # A look at some samples, evenly spaced, is enough for a doubt, and scoring all may take long.
        if adjustment.changes:
            rows = np.unique(np.linspace(0, len(labels) - 1, _SOME).astype(int))
            scores = class_scores(self.estimator_, _safe_indexing(X, rows), kind)
            issue_warnings(
                [
                    doubt_negative_logits(scores, labels[rows], rule),
                    self._doubt_margins(scores, rule, adjustment.offset),
                    self._doubt_class_weights(),
                ]
            )
        return Tuned(
            rule=rule.name,
            adjustment=adjustment,
            evidence=None,
            strength=rule.strength,
            counts=tuple(map(float, counts)),
            counted=counted,
            names=tuple(names_of(self.classes_)),
            kind=kind,
            chosen_on="nothing, as its strength was given",
            background=self._background(),
        )

    def _background(self) -> int | None:
        """Return the position of the class that is left alone, if the counts have one."""
        if not isinstance(self.counts, WithBackground):
            return None
        return int(encode_labels([self.counts.background], self.classes_, "background")[0])

    def _doubt_class_weights(self) -> CountsWarning | None:
        """Doubt counts of y if the classifier weighed its classes: its loss saw others.

        It is a doubt and no correction, as a strength of one's own may be meant for the counts of y.
        """
        if self.counts is not None:
            return None
        model = innermost(self.estimator_)
        if isinstance(model, CalibratedClassifierCV | StackingClassifier):
            return None  # what is inside is put right by a model that weighs no class
        for name, value in model.get_params(deep=True).items():
            # In an ensemble, it is the parameter of a classifier inside: estimator__class_weight.
            if name.rpartition("__")[2] in _CLASS_WEIGHTS and value is not None:
                return CountsWarning(
                    f"{type(model).__name__} was fitted with {name} {value!r}, and then adjusted "
                    "for the counts of y all the same, which may level its classes twice; give "
                    "counts as its loss saw them, times the class weights, or use "
                    "AdjustedClassifierCV, which finds how much is left to do"
                )
        return None

    def _doubt_margins(
        self, scores: np.ndarray, rule: Rule, offset: np.ndarray
    ) -> ScaleWarning | None:
        """Doubt a shift of margins: scores of a classifier without probabilities.

        ``log(n_1 / n_k)`` is what a log-probability is off by. A margin, of an SVM for instance, has units of its own.

        Args:
            scores: [n, K], of some samples.
            rule: by which it is adjusted.
            offset: [K], what that adds.
        """
        if not rule.adds or hasattr(self.estimator_, "predict_proba"):
            return None
        name = type(innermost(self.estimator_)).__name__
        return ScaleWarning(
            f"{name} gives margins, whose scale is not that of log-probabilities: up to "
            f"{np.abs(offset).max():.3g} is added to scores with a standard deviation of "
            f"{scores.std():.3g}; use AdjustedClassifierCV, which finds how much they need"
        )


class AdjustedClassifierCV(BaseAdjustedClassifier):
    """A classifier whose scores are adjusted by what is best on held-out data.

    Each fold is scored by a model trained on the others, and `levelhead.tune_folds` tunes on all of
    these scores. `predict_proba` is calibrated by a temperature, for classes as the metric weighs
    them: for balanced accuracy, as if all were equally frequent. For the mix of the training, take
    ``estimator_.predict_proba``.

    Args:
        estimator: the classifier; it is cloned and fitted, on each fold and then on everything.
        scoring: the name of a metric, or what scikit-learn calls it: `balanced_accuracy`,
            `accuracy`, `f1_macro`, `matthews_corrcoef`, `cohen_kappa`, `geometric_mean`,
            `worst_recall`. Or a `levelhead.Metric`; or a `levelhead.Goal`, which has costs [K, K] in
            the order of `classes_` and floors {label: recall}.
        rule: `offsets`, `shift`, `rescale`, `scales`, `vector`, or an object of `levelhead.rules`.
        cv: None (5 stratified folds), a number of folds, a share held out in one shuffled split, a
            splitter, an iterable of splits, or "prefit" for an estimator that is trained already.
            A sample counts in the first split that holds it out: repeats tell nothing new of it.
            With "prefit", X and y are held-out data. Never tune on the data a model was trained on: such a
            choice means nothing (a LeakageWarning if that is evident: hardly any sample is wrong).
        refit: train on all data once it is tuned. It must be False with "prefit", and may be with a
            single split, whose model is then kept.
        n_jobs: number of folds trained at once.
        random_state: seed of the shuffled split, if cv is a share.
        counts: training samples of each class: [K] in the order of `classes_`, {label: n}, or the
            labels of training; with `lh.counts.with_background`, a label is left alone. If None,
            those that each fold's model was trained on, as its loss saw them: times sample weights,
            and class weights such as ``class_weight="balanced"``, but not those of classifiers in an
            ensemble; of one that is trained already, those of the held-out samples stand in.
        target: as in `levelhead.tune`: [K] in the order of `classes_`, or {label: share}.

    Attributes:
        tuned_: the `levelhead.Tuned`: what is done to each class, and what it is worth.
        estimator_: the classifier, trained on all data if refit.
        classes_, n_features_in_, feature_names_in_: the classifier's.

    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.metrics import balanced_accuracy_score
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = make_classification(
    ...     4000, n_classes=4, n_informative=8, weights=[0.8, 0.13, 0.05], class_sep=1.5, random_state=0
    ... )
    >>> X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    >>> plain = LogisticRegression().fit(X, y)
    >>> adjusted = AdjustedClassifierCV(LogisticRegression()).fit(X, y)
    >>> before, after = (
    ...     balanced_accuracy_score(y_test, model.predict(X_test)) for model in (plain, adjusted)
    ... )
    >>> bool(after > before + 0.1), adjusted.tuned_.verdict
    (True, 'better')
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseAdjustedClassifier._parameter_constraints,
        "scoring": [str, Metric, Goal],
        "rule": [str, Rule],
        "cv": [
            "cv_object",
            StrOptions({"prefit"}),
            Interval(RealNotInt, 0.0, 1.0, closed="neither"),
        ],
        "refit": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "target": ["array-like", dict, None],
    }

    def __init__(
        self,
        estimator: Classifier,
        *,
        scoring: str | Metric | Goal = "balanced_accuracy",
        rule: str | Rule = DEFAULT,
        cv: CV = None,
        refit: bool = True,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        counts: Counts | None = None,
        target: ArrayLike | Mapping[object, float] | None = None,
    ) -> None:
        self.estimator = estimator
        self.scoring = scoring
        self.rule = rule
        self.cv = cv
        self.refit = refit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.counts = counts
        self.target = target

    @property
    def summary_(self) -> str:
        """What was tuned in words: the gain, its price, and every class before and after."""
        check_is_fitted(self, "tuned_")
        return self.tuned_.summary()

    @property
    def _prefit(self) -> bool:
        """Whether the classifier is trained already: "prefit" is the only text that cv may be."""
        return isinstance(self.cv, str)

    def _fit(self, X: Inputs, y: np.ndarray, routed: Bunch) -> None:
        """Train the classifier that predicts, have every fold scored, and tune on all of these scores.

        The classifier is trained first, so that what it cannot do is an error before the folds are trained.
        """
        with named("scoring"):
            goal = Goal.of(self.scoring)
        rule = find_rule(self.rule)
        splits = self._splits(X, y, routed.splitter.split)
        fit_params = routed.estimator.fit
        # The classifier that predicts later: trained on everything, on the one split, or before.
        trained_on = None
        if not self.refit:
            trained_on = splits[0][0]
        if self._prefit:
            self.estimator_ = self.estimator
        else:
            self.estimator_ = fit_on(clone(self.estimator), X, y, trained_on, fit_params)
        if len(self.classes_) < 2:
            raise LevelheadError("expected two or more classes, got one class", parameter="y")
        self._kind = kind = kind_of_scores(self.estimator_)
        check_rule(self.estimator_, rule, kind, "rule")
        # Each fold is scored by a model of the others or, without refit, by the one that is trained.
        base = self.estimator_
        params_of_folds = None
        if self.refit:
            base = self.estimator
            params_of_folds = fit_params
        jobs = (
            delayed(score_fold)(base, X, y, split, self.classes_, kind, params_of_folds)
            for split in splits
        )
        # Each job trains a model, or only scores; all come back in the order of the splits.
        folds = cast(list[ScoredFold], Parallel(n_jobs=self.n_jobs)(jobs))
        self.tuned_ = self._tune(folds, goal, rule, kind)
        # Counts of folds are pooled, and so several times those of the training.
        labels = encode_labels(y, self.classes_)
        if self.counts is not None:
            counts = training_counts(self.counts, labels, self.classes_)
        elif not self._already_trained:
            rows = slice(None) if trained_on is None else trained_on
            counts = counts_of_rows(self.estimator_, labels, rows, self.classes_, fit_params)
        else:  # each held-out sample was counted once
            return
        self.tuned_ = replace(self.tuned_, counts=tuple(map(float, counts)))

    @property
    def _already_trained(self) -> bool:
        """Whether the classifier was trained before, on other samples than those given to `fit`."""
        return self._prefit or is_frozen(self.estimator)

    def _tune(self, folds: list[ScoredFold], goal: Goal, rule: Rule, kind: Kind) -> Tuned:
        """Tune on the folds, and issue the warnings that hold for scores out of fold.

        Args:
            folds: scores and labels of held-out samples, and the counts that each model was trained on.
            goal: as it was given; its floors are still by label.
            rule: to tune.
            kind: of the scores.
        """
        given_counts = counts_by_name(self.counts, self.classes_)
        floors = by_name(goal.floors, self.classes_, "floors")
        self._folds = folds  # for the page
        parts = []
        for fold in folds:
            # Counts as given, or else those of the fold's training; of a model that was trained
            # before nobody knows them, and `tune_folds` takes those of the held-out labels.
            counts = given_counts
            if given_counts is None and not self._already_trained:
                counts = fold.counts
            parts.append((fold.scores, fold.labels, counts))
        with kept() as doubts:
            tuned = tune_folds(
                parts,
                metric=replace(goal, floors=floors),
                rule=rule,
                target=by_name(self.target, self.classes_, "target"),
                names=names_of(self.classes_),
                kind=kind,
            )
        if self._already_trained:
            tuned = replace(tuned, chosen_on="held-out")
        else:
            # What is out of fold cannot leak, however good it is, and has the mix of the training.
            harmless = (LeakageWarning, MixWarning)
            doubts = [doubt for doubt in doubts if not isinstance(doubt, harmless)]
        return replace(tuned, warnings=issue_warnings(doubts))

    def _splits(self, X: Inputs, y: np.ndarray, params: FitParams) -> list[Split]:
        """Return pairs of (train, held-out) rows; train is None for a model that is trained.

        Args:
            X, y: all samples.
            params: what the splitter takes besides, such as `groups`, by scikit-learn's routing.

        Raises:
            LevelheadError: `refit` does not go with `cv`.
        """
        if self._prefit:
            if self.refit:
                reason = "expected False: cv 'prefit' trains nothing; got True"
                raise LevelheadError(reason, parameter="refit")
            check_is_fitted(self.estimator, "classes_", msg="cv 'prefit' needs a fitted estimator")
            return [(None, np.arange(_num_samples(X)))]
        if isinstance(self.cv, Real) and not isinstance(self.cv, Integral):
            share = float(self.cv)
            splitter = StratifiedShuffleSplit(1, test_size=share, random_state=self.random_state)
        else:
            # scikit-learn's hints say that it takes a number alone.
            splitter = cast(Splitter, check_cv(self.cv, y, classifier=True))  # type: ignore[arg-type]
        splits: list[Split] = list(splitter.split(X, y, **params))  # type: ignore[arg-type]
        if not self.refit and len(splits) > 1:
            which = f"the {len(splits)} splits of cv, got False"
            only = "only the model of a single split can be kept"
            raise LevelheadError(f"expected True with {which}; {only}", parameter="refit")
        return held_out_once(splits, _num_samples(X))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return where metadata given to `fit` goes: to the classifier's `fit`, the splitter."""
        router = super().get_metadata_routing()
        mapping = MethodMapping().add(callee="split", caller="fit")
        return router.add(splitter=self.cv, method_mapping=mapping)

    def report(self, path: str | Path) -> Path:
        """Write an .html page about what was tuned, on the samples out of fold; return its path.

        Args:
            path: of the page, which ends in .html; a file that is there is replaced.
        """
        # The page stands above the estimators, and is loaded for this alone.
        from ..report import Applied, of_tuned, write

        check_is_fitted(self, "tuned_")
        subject = of_tuned(
            self.tuned_,
            np.concatenate([fold.scores for fold in self._folds]),
            as_positions(np.concatenate([fold.labels for fold in self._folds])),
            title=type(innermost(self.estimator)).__name__,
            facts={"estimator": repr(self.estimator)},
            applied=Applied(f"By {type(self).__name__}, in every prediction", "model.predict(X)"),
        )
        return write(path, [subject])


def training_counts(
    counts: Counts | None,
    labels: np.ndarray,
    classes: np.ndarray,
    weights: ArrayLike | None = None,
) -> np.ndarray:
    """Return checked counts [K] in the order of `classes`: those given, or those of the labels.

    Args:
        counts: [K], {label: n}, or labels to be counted; None to count `labels`.
        labels: [N], positions in `classes`.
        classes: [K], the labels in order.
        weights: [N], sample weights by which labels count, or None.
    """
    if counts is None:
        counts = loss_counts(None, labels, classes, weights)
    return resolve(counts_by_name(counts, classes), len(classes), names=names_of(classes))
