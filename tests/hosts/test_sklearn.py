"""The two scikit-learn estimators: scikit-learn's own checks, the rules they choose, and what tuning finds."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    get_scorer,
    make_scorer,
    recall_score,
)
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

import levelhead as lh
from levelhead.core.counts import long_tail
from levelhead.heads import sklearn as heads
from levelhead.hosts.sklearn import RescaledClassifier, TunedRescaledClassifierCV
from levelhead.support.warnings import (
    CountsWarning,
    LeakageWarning,
    NegativeLogitsWarning,
    RangeWarning,
    ScaleWarning,
)

BASES = [
    LogisticRegression(),
    GaussianNB(),
    LinearSVC(),
]  # class scores, probabilities only, no probabilities
RULES = ["auto", "shift", "shift"]  # to choose between all of them takes seconds, once is enough


@pytest.fixture(scope="module")
def tail():
    """Five classes, the largest 50 times the smallest; what is left over is a balanced test set."""
    X, y = make_classification(
        4000, 12, n_informative=10, n_classes=5, class_sep=1.3, random_state=1
    )
    train = np.concatenate(
        [np.flatnonzero(y == k)[:n] for k, n in enumerate(long_tail(500, 5, 50))]
    )
    test = np.setdiff1d(np.arange(len(y)), train)
    return X[train], y[train], X[test], y[test]


@pytest.fixture(scope="module")
def binary(tail):
    X, y, X_test, y_test = tail
    return X, (y > 2).astype(int), X_test, (y_test > 2).astype(int)


class ScaledScores(ClassifierMixin, BaseEstimator):
    """A classifier whose scores are those of another, times a factor."""

    def __init__(self, base, factor):
        self.base, self.factor = base, factor

    def fit(self, X, y):
        self.model_ = clone(self.base).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def decision_function(self, X):
        return self.factor * self.model_.decision_function(X)


def out_of_fold(base, X, y, cv):
    """(scores, labels, counts) of each fold, as `lh.cross_fit` takes them."""
    folds = StratifiedKFold(cv).split(X, y)
    return [
        (
            clone(base).fit(X[train], y[train]).decision_function(X[test]),
            y[test],
            np.bincount(y[train]),
        )
        for train, test in folds
    ]


# -- scikit-learn's own contract --------------------------------------------------------------------------------------

CHECKED = [RescaledClassifier(base) for base in BASES]
CHECKED += [
    TunedRescaledClassifierCV(base, cv=3, rule=rule)
    for base, rule in zip(BASES, RULES, strict=True)
]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore"
)  # margins of LinearSVC are negative, and the checks' data is odd on purpose
@pytest.mark.parametrize(
    "estimator", CHECKED, ids=lambda e: f"{type(e).__name__}({type(e.estimator).__name__})"
)
def test_all_of_scikit_learns_checks_pass(estimator):
    results = check_estimator(estimator, on_skip=None)  # raises on the first that fails
    statuses = {result["check_name"]: result["status"] for result in results}
    needing_more = {
        "check_array_api_input",
        "check_classifier_data_not_an_array",
    }  # the array API, pandas
    assert {name for name, status in statuses.items() if status != "passed"} <= needing_more
    assert len(statuses) > 45


@pytest.mark.parametrize(
    "model",
    [
        RescaledClassifier(LogisticRegression(), gamma=0.3),
        TunedRescaledClassifierCV(LogisticRegression(), cv=3),
    ],
    ids=lambda e: type(e).__name__,
)
def test_clone_params_and_pickle_round_trips(model, tail):
    X, y, X_test, _ = tail
    model = clone(model).set_params(estimator__C=0.5, rule="shift").fit(X, y)
    again = clone(model)
    assert not hasattr(again, "estimator_")
    assert (again.get_params()["estimator__C"], again.rule) == (0.5, "shift")
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict_proba(X_test), model.predict_proba(X_test)
    )


def test_constructors_have_the_shape_of_scikit_learns_own():
    ours, theirs = (
        set(c(LogisticRegression()).get_params(deep=False))
        for c in (TunedRescaledClassifierCV, TunedThresholdClassifierCV)
    )
    assert theirs - {"response_method", "thresholds"} <= ours


# -- how scores are adjusted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base", [LogisticRegression(), SVC(), HistGradientBoostingClassifier(max_iter=5)], ids=str
)
def test_scores_of_three_or_more_classes_are_scaled(base, tail):
    X, y, X_test, _ = tail
    model = RescaledClassifier(base, gamma=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NegativeLogitsWarning)
        model.fit(X, y)
    n = np.bincount(y)
    expected = base.fit(X, y).decision_function(X_test) * (n.max() / n) ** 0.2
    assert model.rule_ == "rescale"
    np.testing.assert_allclose(model.decision_function(X_test), expected)
    np.testing.assert_array_equal(model.predict(X_test), expected.argmax(axis=1))


def test_a_linear_model_is_rescaled_as_its_head_is(tail):
    X, y, X_test, _ = tail
    base = LogisticRegression().fit(X, y)
    model = RescaledClassifier(FrozenEstimator(base), gamma=0.4, counts=np.bincount(y)).fit(X, y)
    by_scores = model.predict_proba(X_test)
    heads.write(base, lh.rescale(heads.read(base), np.bincount(y), gamma=0.4))
    np.testing.assert_allclose(by_scores, base.predict_proba(X_test), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "base",
    [
        GaussianNB(),
        RandomForestClassifier(20, random_state=0),
        CalibratedClassifierCV(GaussianNB(), cv=2),
    ],
    ids=lambda e: type(e).__name__,
)
def test_probabilities_are_divided_by_a_power_of_the_prior(base, tail):
    X, y, X_test, _ = tail
    model = RescaledClassifier(base, gamma=0.7).fit(X, y)
    odds = base.fit(X, y).predict_proba(X_test) / np.bincount(y) ** 0.7
    assert model.rule_ == "shift"
    np.testing.assert_allclose(
        model.predict_proba(X_test), odds / odds.sum(axis=1, keepdims=True), atol=1e-12
    )
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X_test)), model.predict_proba(X_test))


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.ScaleWarning")
@pytest.mark.parametrize("base", [LogisticRegression(), LinearSVC(), SVC()], ids=str)
def test_two_classes_are_shifted_by_their_log_ratio(base, binary):
    X, y, X_test, _ = binary
    model = RescaledClassifier(base, gamma=0.5).fit(X, y)
    n = np.bincount(y)
    expected = base.fit(X, y).decision_function(X_test) + 0.5 * np.log(n[0] / n[1])
    assert model.rule_ == "shift"
    np.testing.assert_allclose(model.decision_function(X_test), expected)
    np.testing.assert_array_equal(model.predict(X_test), expected > 0)
    assert hasattr(model, "predict_proba") == hasattr(base, "predict_proba")


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NegativeLogitsWarning")
@pytest.mark.parametrize(
    "base", [*BASES, SVC(break_ties=True), HistGradientBoostingClassifier(max_iter=5)], ids=str
)
@pytest.mark.parametrize("data", ["tail", "binary"])
def test_gamma_zero_predicts_what_the_estimator_predicts(base, data, request):
    X, y, X_test, _ = request.getfixturevalue(data)
    model = RescaledClassifier(base, gamma=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X_test), base.fit(X, y).predict(X_test))


def test_probabilities_of_a_logistic_model_are_the_softmax_of_its_scaled_scores(tail):
    X, y, X_test, _ = tail
    model = RescaledClassifier(LogisticRegression(), gamma=0.3).fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(X_test), softmax(model.decision_function(X_test), axis=1)
    )
    model.set_params(gamma=0.0)
    np.testing.assert_allclose(
        model.predict_proba(X_test), model.estimator_.predict_proba(X_test), rtol=1e-9
    )


def test_a_probability_of_zero_gives_a_finite_score_and_is_never_predicted(tail):
    X, y, X_test, _ = tail
    base = DecisionTreeClassifier(random_state=0)
    model = RescaledClassifier(base, gamma=1.0).fit(X, y)
    assert np.isfinite(model.decision_function(X_test)).all()
    np.testing.assert_array_equal(
        model.predict(X_test), base.fit(X, y).predict(X_test)
    )  # its leaves are pure


@pytest.mark.parametrize(
    "base", [LinearSVC(), RidgeClassifier(), SGDClassifier(random_state=0)], ids=str
)
def test_a_fixed_shift_of_margins_gives_a_warning(base, tail):
    X, y, _, _ = tail
    message = rf"{type(base).__name__} gives margins.*gamma = 1 adds up to 3.91 to scores with a standard deviation of"
    with pytest.warns(ScaleWarning, match=message):
        RescaledClassifier(base, gamma=1.0, rule="shift").fit(X, y)
    RescaledClassifier(base, gamma=0.0, rule="shift").fit(X, y)  # nothing is added
    RescaledClassifier(LogisticRegression(), gamma=1.0, rule="shift").fit(X, y)


@pytest.mark.parametrize(
    "base",
    [
        make_pipeline(StandardScaler(), SGDClassifier(random_state=0)),
        RidgeClassifier(),
        LinearSVC(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_the_range_of_the_shift_follows_the_scale_of_the_scores(base, tail):
    X, y, X_test, _ = tail
    found = [
        TunedRescaledClassifierCV(ScaledScores(base, factor), rule="shift", cv=3).fit(X, y)
        for factor in (1.0, 100.0)
    ]
    assert found[1].best_gamma_ == pytest.approx(100 * found[0].best_gamma_, rel=1e-3)
    assert found[1].temperature_ == pytest.approx(100 * found[0].temperature_, rel=1e-2)
    np.testing.assert_array_equal(found[0].predict(X_test), found[1].predict(X_test))


def test_a_choice_at_the_end_of_the_range_gives_a_warning(tail):
    X, y, _, _ = tail
    rare = make_scorer(recall_score, labels=[4], average="macro")  # the more, the better
    for scoring in ("balanced_accuracy", rare):
        model = TunedRescaledClassifierCV(
            GaussianNB(), rule="shift", range=(0, 0.5), scoring=scoring
        )
        with pytest.warns(RangeWarning, match="at the end of the range"):
            model.fit(X, y)


def test_negative_scores_give_a_warning_and_shifting_helps(tail):
    X, y, X_test, y_test = tail
    plain = LinearSVC().fit(X, y)
    with pytest.warns(
        NegativeLogitsWarning, match="of the true-class logits are negative.*use the rule shift"
    ):
        RescaledClassifier(LinearSVC()).fit(X, y)
    with pytest.warns(NegativeLogitsWarning):
        TunedRescaledClassifierCV(LinearSVC(), rule="rescale").fit(X, y)
    shifted = TunedRescaledClassifierCV(LinearSVC(), rule="shift").fit(X, y)
    before, after = (
        balanced_accuracy_score(y_test, model.predict(X_test)) for model in (plain, shifted)
    )
    assert after > before + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("scoring", ["balanced_accuracy", "f1_macro"])
def test_auto_does_not_scale_alone_where_margins_are_negative(scoring, tail):
    X, y, _, _ = tail
    auto = TunedRescaledClassifierCV(LinearSVC(), cv=2, scoring=scoring).fit(
        X, y
    )  # and no warning to do otherwise
    assert auto.rule_ != "rescale"
    same = lh.cross_fit(out_of_fold(LinearSVC(), X, y, 2), metric=auto.tuned_.metric, bootstrap=0)
    assert (auto.rule_, auto.best_gamma_) == (same.rule, pytest.approx(same.gamma))


@pytest.mark.slow
@pytest.mark.parametrize("scoring", ["balanced_accuracy", "f1_macro"])
def test_auto_rescales_where_weight_vectors_of_rare_classes_are_short(scoring, tail):
    _, _, X, y = tail
    n = long_tail(500, 5, 50)
    even = np.concatenate([np.flatnonzero(y == k)[:300] for k in range(5)])
    base = LogisticRegression().fit(X[even], y[even])
    whole = heads.read(base)
    lifted = lh.Head(whole.weight, whole.bias + 30, whole.names)  # every logit is positive
    heads.write(base, lh.rescale(lifted, n, gamma=-0.4))
    auto = TunedRescaledClassifierCV(base, cv="prefit", refit=False, counts=n, scoring=scoring).fit(
        X, y
    )
    assert auto.rule_ == "rescale"
    assert auto.best_gamma_ == pytest.approx(0.4, abs=0.05)
    assert abs(auto.tuned_.second or 0.0) < 0.05


def test_equal_counts_leave_scores_as_they_are(tail):
    X, y, _, _ = tail
    auto = TunedRescaledClassifierCV(LogisticRegression(), cv=2, counts=[7] * 5, rule="shift").fit(
        X, y
    )
    assert (auto.rule_, auto.best_gamma_) == ("shift", 0.0)


def test_counts_may_be_given_and_go_by_label(tail):
    X, y, X_test, _ = tail
    labels = np.array(["e", "d", "c", "b", "a"])[y]
    n = np.bincount(y)[::-1]
    counted = RescaledClassifier(LogisticRegression(), gamma=0.4).fit(X, labels)
    listed = RescaledClassifier(LogisticRegression(), gamma=0.4, counts=n).fit(X, labels)
    named = RescaledClassifier(
        LogisticRegression(), gamma=0.4, counts=dict(zip("abcde", n.tolist(), strict=True))
    )
    assert counted.classes_.tolist() == list("abcde")
    assert counted.counts_.tolist() == n.tolist()
    for other in (listed, named.fit(X, labels)):
        np.testing.assert_array_equal(other.predict(X_test), counted.predict(X_test))


# -- tuning -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base",
    [LogisticRegression(), GaussianNB(), RandomForestClassifier(20, random_state=0)],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("data", ["tail", "binary"])
def test_tuning_improves_balanced_accuracy_on_unseen_data(base, data, request):
    X, y, X_test, y_test = request.getfixturevalue(data)
    tuned = TunedRescaledClassifierCV(base, cv=3).fit(X, y)
    before, after = (
        balanced_accuracy_score(y_test, m.predict(X_test)) for m in (base.fit(X, y), tuned)
    )
    assert after > before + 0.02


@pytest.mark.parametrize(
    ("scoring", "base"),
    [
        ("balanced_accuracy", LogisticRegression()),
        ("accuracy", GaussianNB()),
        (make_scorer(balanced_accuracy_score), GaussianNB()),
    ],
)
def test_the_exact_curve_agrees_with_predictions_fold_by_fold(scoring, base, tail):
    X, y, _, _ = tail
    folds = list(StratifiedKFold(3).split(X, y))
    tuned = TunedRescaledClassifierCV(
        base, scoring=scoring, cv=folds, rule="shift", store_cv_results=True
    ).fit(X, y)
    measure = accuracy_score if scoring == "accuracy" else balanced_accuracy_score

    def score(gamma):
        models = [
            RescaledClassifier(base, gamma=gamma, rule=tuned.rule_).fit(X[train], y[train])
            for train, _ in folds
        ]
        held = np.concatenate([test for _, test in folds])
        found = [model.predict(X[test]) for model, (_, test) in zip(models, folds, strict=True)]
        return measure(y[held], np.concatenate(found))

    gammas, scores = tuned.cv_results_["gammas"], tuned.cv_results_["scores"]
    assert len(gammas) > 20
    for i in np.linspace(0, len(gammas) - 2, 6).astype(int):
        assert scores[i] == pytest.approx(score((gammas[i] + gammas[i + 1]) / 2))
    assert tuned.best_score_ == pytest.approx(score(tuned.best_gamma_))


@pytest.mark.slow
@pytest.mark.parametrize(
    "scoring", ["neg_log_loss", make_scorer(f1_score, average="weighted")], ids=str
)
def test_any_other_scorer_is_asked_at_every_candidate(scoring, tail):
    X, y, _, _ = tail
    tuned = TunedRescaledClassifierCV(
        GaussianNB(), scoring=scoring, cv=2, store_cv_results=True
    ).fit(X, y)
    gammas, scores = tuned.cv_results_["gammas"], tuned.cv_results_["scores"]
    held_out = cross_val_predict(GaussianNB(), X, y, cv=2, method="predict_log_proba")
    scale = minimize_scalar(
        lambda t: -log_softmax(held_out / t, axis=1)[np.arange(len(y)), y].mean(),
        bounds=(0.1, 20),
        method="bounded",
    ).x
    assert (len(gammas), gammas[0]) == (201, 0)
    assert gammas[-1] == pytest.approx(4 * scale, rel=1e-3)
    for i in (0, 70, 200):
        fixed = RescaledClassifier(GaussianNB(), gamma=gammas[i])
        assert scores[i] == pytest.approx(
            cross_val_score(fixed, X, y, scoring=scoring, cv=2).mean()
        )
    assert (tuned.best_gamma_, tuned.best_score_) == (gammas[scores.argmax()], scores.max())


def test_a_scorer_may_look_at_other_data_than_the_fold(tail):
    X, y, X_test, y_test = tail
    X_test, y_test = X_test[::10], y_test[::10]

    def on_test(model, X_held, y_held):
        assert model.predict(X_held).shape == y_held.shape
        return balanced_accuracy_score(y_test, model.predict(X_test))

    folds = [(np.arange(len(y)), np.arange(20))]
    tuned = TunedRescaledClassifierCV(GaussianNB(), scoring=on_test, cv=folds, range=(0, 4)).fit(
        X, y
    )
    assert tuned.best_score_ == pytest.approx(
        balanced_accuracy_score(y_test, tuned.predict(X_test))
    )


def test_balanced_data_leaves_the_model_as_it_is(tail):
    _, _, X, y = tail
    keep = np.concatenate([np.flatnonzero(y == k)[:200] for k in range(5)])
    tuned = TunedRescaledClassifierCV(LogisticRegression(), cv=4).fit(X[keep], y[keep])
    np.testing.assert_array_equal(
        tuned.predict(X), LogisticRegression().fit(X[keep], y[keep]).predict(X)
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NegativeLogitsWarning")
@pytest.mark.parametrize(
    ("scoring", "base"),
    [
        ("balanced_accuracy", LogisticRegression(max_iter=1000)),
        ("balanced_accuracy", GaussianNB()),
        ("f1_macro", GaussianNB()),
    ],
)
def test_a_class_that_a_fold_has_not_seen_counts_as_missed_there(scoring, base, tail):
    X, y, _, _ = tail
    some = np.concatenate([np.flatnonzero(y == k)[:n] for k, n in enumerate([120, 60, 40, 2, 1])])
    X, y = X[some], y[some]
    folds = [
        (np.flatnonzero(np.arange(len(y)) % 3 != i), np.flatnonzero(np.arange(len(y)) % 3 == i))
        for i in range(3)
    ]
    assert any(len(np.unique(y[train])) < 5 for train, _ in folds)
    tuned = TunedRescaledClassifierCV(base, scoring=scoring, cv=folds).fit(X, y)
    assert tuned.classes_.tolist() == [0, 1, 2, 3, 4]
    fixed = RescaledClassifier(base, gamma=tuned.best_gamma_, rule=tuned.rule_)
    found = [fixed.fit(X[train], y[train]).predict(X[test]) for train, test in folds]
    held = np.concatenate([test for _, test in folds])
    expected = (
        balanced_accuracy_score(y[held], np.concatenate(found))
        if scoring == "balanced_accuracy"
        else f1_score(y[held], np.concatenate(found), average="macro")
    )
    assert tuned.best_score_ == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NegativeLogitsWarning")
def test_a_trained_model_is_tuned_on_held_out_data_with_the_counts_it_was_trained_on(tail):
    X, y, X_test, y_test = tail
    base = LogisticRegression().fit(X, y)
    coef = base.coef_.copy()
    settings = {"counts": np.bincount(y), "scoring": "balanced_accuracy", "rule": "shift"}
    prefit = TunedRescaledClassifierCV(base, cv="prefit", refit=False, **settings).fit(
        X_test[::2], y_test[::2]
    )
    frozen = TunedRescaledClassifierCV(FrozenEstimator(base), **settings).fit(
        X_test[::2], y_test[::2]
    )
    np.testing.assert_array_equal(base.coef_, coef)
    assert prefit.estimator_ is base
    assert prefit.counts_.tolist() == np.bincount(y).tolist()
    assert frozen.best_gamma_ == pytest.approx(prefit.best_gamma_)
    before, after = (
        balanced_accuracy_score(y_test[1::2], model.predict(X_test[1::2]))
        for model in (base, prefit)
    )
    assert after > before + 0.02


@pytest.mark.parametrize(
    "wrap",
    [
        lambda base: TunedRescaledClassifierCV(base, cv="prefit", refit=False),
        lambda base: TunedRescaledClassifierCV(FrozenEstimator(base)),
        lambda base: TunedRescaledClassifierCV(
            make_pipeline(StandardScaler(), FrozenEstimator(base))
        ),
        lambda base: RescaledClassifier(FrozenEstimator(base)),
    ],
    ids=["prefit", "tuned", "pipeline", "fixed"],
)
def test_a_trained_model_with_a_balanced_hold_out_needs_its_counts(wrap, tail):
    X, y, X_test, y_test = tail
    even = np.concatenate([np.flatnonzero(y_test == k)[:200] for k in range(5)])
    model = wrap(LogisticRegression().fit(X, y)).set_params(rule="shift")
    message = "LogisticRegression is already trained, and the samples given now are balanced"
    with pytest.warns(CountsWarning, match=message) as warned:
        model.fit(X_test[even], y_test[even])
    assert warned[0].filename == __file__  # the line that calls `fit`
    assert model.counts_.tolist() == [200] * 5  # every shift is the same
    model.set_params(counts=dict(enumerate(np.bincount(y).tolist()))).fit(
        X_test[even], y_test[even]
    )
    assert model.counts_.tolist() == np.bincount(y).tolist()
    model.set_params(counts=None).fit(X, y)  # as long-tailed as what it was trained on
    assert model.counts_.tolist() == np.bincount(y).tolist()


def test_tuning_a_model_on_its_own_training_data_gives_a_warning(tail):
    X, y, _, _ = tail
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    with pytest.warns(LeakageWarning, match="too good for data that the model has not seen"):
        TunedRescaledClassifierCV(forest, cv="prefit", refit=False, counts=np.bincount(y)).fit(X, y)


def test_one_split_may_keep_its_own_model(tail):
    X, y, _, _ = tail
    settings = {"cv": 0.25, "refit": False}
    tuned = TunedRescaledClassifierCV(LogisticRegression(), random_state=7, **settings).fit(X, y)
    again = TunedRescaledClassifierCV(LogisticRegression(), random_state=7, **settings).fit(X, y)
    other = TunedRescaledClassifierCV(LogisticRegression(), random_state=8, **settings).fit(X, y)
    assert tuned.counts_.sum() == pytest.approx(0.75 * len(y), abs=1)
    assert tuned.best_gamma_ == again.best_gamma_ != other.best_gamma_
    np.testing.assert_array_equal(tuned.estimator_.coef_, again.estimator_.coef_)
    whole = TunedRescaledClassifierCV(LogisticRegression(), random_state=7, cv=0.25).fit(X, y)
    assert (whole.best_gamma_, whole.counts_.sum()) == (tuned.best_gamma_, len(y))


@pytest.mark.slow
def test_two_jobs_find_what_one_finds(tail):
    X, y, _, _ = tail
    one, two = (TunedRescaledClassifierCV(GaussianNB(), cv=2, n_jobs=n).fit(X, y) for n in (1, 2))
    assert (one.best_gamma_, one.best_score_) == (two.best_gamma_, two.best_score_)


# -- with the rest of scikit-learn ------------------------------------------------------------------------------------


def test_they_work_inside_and_outside_pipelines_and_searches(tail):
    X, y, X_test, _ = tail
    outside = RescaledClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()), gamma=0.3
    ).fit(X, y)
    inside = make_pipeline(
        StandardScaler(), RescaledClassifier(LogisticRegression(), gamma=0.3)
    ).fit(X, y)
    np.testing.assert_array_equal(outside.predict(X_test), inside.predict(X_test))
    grid = {"gamma": [0.0, 0.2, 0.4], "estimator__C": [0.1, 1]}
    search = GridSearchCV(
        RescaledClassifier(LogisticRegression()), grid, scoring="balanced_accuracy", cv=2
    ).fit(X, y)
    assert search.best_params_["gamma"] > 0


def test_sparse_input_goes_through(tail):
    X, y, X_test, _ = tail
    dense = TunedRescaledClassifierCV(LogisticRegression(), rule="shift", cv=2).fit(X, y)
    sparse = TunedRescaledClassifierCV(LogisticRegression(), rule="shift", cv=2).fit(
        scipy.sparse.csr_matrix(X), y
    )
    assert sparse.best_gamma_ == pytest.approx(dense.best_gamma_, abs=1e-3)
    assert (sparse.predict(scipy.sparse.csr_matrix(X_test)) == dense.predict(X_test)).mean() > 0.999


def test_data_frames_keep_their_feature_names(tail):
    pandas = pytest.importorskip("pandas")
    X, y, _, _ = tail
    frame = pandas.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    base = LogisticRegression()
    for model in (
        RescaledClassifier(base, rule="shift"),
        TunedRescaledClassifierCV(base, rule="shift", cv=2),
    ):
        assert model.fit(frame, pandas.Series(y)).feature_names_in_.tolist() == list(frame.columns)
        assert model.predict(frame).shape == y.shape


def test_sample_weights_are_routed_to_the_estimator_and_do_not_count(tail):
    X, y, X_test, _ = tail
    weight = np.where(y == 0, 0.2, 1.0)
    with config_context(enable_metadata_routing=True):
        base = LogisticRegression().set_fit_request(sample_weight=True)
        model = RescaledClassifier(base, gamma=0.0).fit(X, y, sample_weight=weight)
        scorer = get_scorer("balanced_accuracy").set_score_request(sample_weight=False)
        tuned = TunedRescaledClassifierCV(base, scoring=scorer, cv=2).fit(
            X, y, sample_weight=weight
        )
        named = TunedRescaledClassifierCV(base, cv=2).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(named.estimator_.coef_, tuned.estimator_.coef_)
    assert named.best_gamma_ == tuned.best_gamma_
    expected = LogisticRegression().fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(model.predict(X_test), expected.predict(X_test))
    np.testing.assert_array_equal(tuned.estimator_.coef_, expected.coef_)
    assert model.counts_.tolist() == np.bincount(y).tolist()


def test_sample_weights_are_routed_to_the_scorer(tail):
    X, y, _, _ = tail
    weight = np.where(y > 1, 1.0, 1e-9)  # the frequent classes count for nothing
    with config_context(enable_metadata_routing=True):
        scorer = get_scorer("accuracy").set_score_request(sample_weight=True)
        base = GaussianNB().set_fit_request(sample_weight=False)
        weighted = TunedRescaledClassifierCV(base, scoring=scorer, cv=2).fit(
            X, y, sample_weight=weight
        )
    plain = TunedRescaledClassifierCV(GaussianNB(), scoring="accuracy", cv=2).fit(X, y)
    assert weighted.best_gamma_ > 2 * plain.best_gamma_


def test_metadata_without_routing_is_refused_as_scikit_learn_does(tail):
    X, y, _, _ = tail
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        RescaledClassifier(LogisticRegression()).fit(X, y, sample_weight=np.ones(len(y)))


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            RescaledClassifier(LogisticRegression(), gamma="high"),
            "The 'gamma' parameter of RescaledClassifier must be",
        ),
        (
            RescaledClassifier(LogisticRegression(), gamma=float("nan")),
            "The 'gamma' parameter .* must be",
        ),
        (
            RescaledClassifier(LogisticRegression(), rule="tau"),
            "The 'rule' parameter of RescaledClassifier must be",
        ),
        (
            RescaledClassifier(LogisticRegression(), counts=[1, 2]),
            "expected 5 counts, one per class, got 2",
        ),
        (
            RescaledClassifier(LogisticRegression(), counts=[5, 4, 3, 2, 0]),
            r"class 4 \(4\) has no samples",
        ),
        (
            RescaledClassifier(GaussianNB(), rule="rescale"),
            "rule: GaussianNB gives probabilities, .*use 'shift'",
        ),
        (
            RescaledClassifier(SVC(decision_function_shape="ovo")),
            "expected 5 scores per sample.*_shape to 'ovr'",
        ),
        (
            RescaledClassifier(StandardScaler()),
            "The 'estimator' parameter of RescaledClassifier must be",
        ),
        (
            TunedRescaledClassifierCV(LogisticRegression(), scoring="no such"),
            "The 'scoring' parameter",
        ),
        (TunedRescaledClassifierCV(LogisticRegression(), cv=1.5), "The 'cv' parameter"),
        (
            TunedRescaledClassifierCV(LogisticRegression(), cv="prefit"),
            "refit: expected False: cv 'prefit' trains nothing",
        ),
        (
            TunedRescaledClassifierCV(LogisticRegression(), refit=False),
            "refit: expected True with the 5 splits of cv",
        ),
        (
            TunedRescaledClassifierCV(LogisticRegression(), range=(1, 0)),
            r"range: expected \(from, to\).*, got \(1, 0\)",
        ),
    ],
    ids=str,
)
def test_a_wrong_setting_is_named(model, message, tail):
    with pytest.raises(ValueError, match=message):
        model.fit(*tail[:2])


def test_pairwise_scores_of_three_classes_are_not_taken_for_class_scores(tail):
    X, y, _, _ = tail
    with pytest.raises(ValueError, match="scores pairs of classes"):  # three pairs, three classes
        RescaledClassifier(make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))).fit(
            X[y < 3], y[y < 3]
        )


def test_two_classes_cannot_be_rescaled(binary):
    with pytest.raises(
        ValueError, match="rule: LogisticRegression has two classes, so 'rescale' cannot act on it"
    ):
        RescaledClassifier(LogisticRegression(), rule="rescale").fit(*binary[:2])


def test_unfitted_and_unknown_are_refused(tail):
    X, y, _, _ = tail
    with pytest.raises(NotFittedError):
        RescaledClassifier(LogisticRegression()).predict(X)
    with pytest.raises(NotFittedError, match="cv 'prefit' needs a fitted estimator"):
        TunedRescaledClassifierCV(LogisticRegression(), cv="prefit", refit=False).fit(X, y)
    base = FrozenEstimator(LogisticRegression().fit(X[y < 4], y[y < 4]))
    with pytest.raises(
        ValueError,
        match=r"y: expected the classes the estimator was fitted on \(0, 1, 2, 3\), got 4",
    ):
        RescaledClassifier(base, counts=np.bincount(y[y < 4])).fit(X, y)
    with pytest.raises(ValueError, match="Unknown label type: multilabel-indicator"):
        RescaledClassifier(LogisticRegression()).fit(X, np.column_stack([y > 0, y > 1]).astype(int))


@pytest.mark.parametrize("given", ["balanced", {0: 1.0, 1: 3.0, 2: 9.0}])
def test_a_classifier_that_weighed_its_classes_is_not_leveled_twice_without_a_word(given):
    X, y = make_classification(
        600, n_classes=3, n_informative=6, weights=[0.8, 0.15], class_sep=2, random_state=0
    )
    base = make_pipeline(StandardScaler(), LogisticRegression(class_weight=given))
    with pytest.warns(
        lh.warnings.CountsWarning,
        match=r"LogisticRegression was fitted with class_weight .*twice.*give counts",
    ):
        RescaledClassifier(base, gamma=0.5).fit(X, y)
    leveled = RescaledClassifier(base, gamma=0.5, counts=[200, 200, 200]).fit(
        X, y
    )  # as its loss saw them
    assert (leveled.predict(X) == base.fit(X, y).predict(X)).all()
    RescaledClassifier(base, gamma=0.0).fit(X, y)
    RescaledClassifier(LogisticRegression(), gamma=0.5).fit(X, y)
