"""The two scikit-learn estimators: scikit-learn's own checks, what a fixed rule does, and what tuning finds."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    StratifiedKFold,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

import levelhead as lh
from levelhead import rules
from levelhead.heads import sklearn as heads
from levelhead.hosts.sklearn import AdjustedClassifier, AdjustedClassifierCV
from levelhead.support.warnings import (
    CountsWarning,
    LeakageWarning,
    NegativeLogitsWarning,
    ScaleWarning,
)

BASES = [LogisticRegression(), GaussianNB(), LinearSVC()]  # scores; probabilities; no probabilities


@pytest.fixture(scope="module")
def binary(tail):
    X, y, X_test, y_test = tail
    return X, (y > 2).astype(int), X_test, (y_test > 2).astype(int)


# -- scikit-learn's own contract --------------------------------------------------------------------------------------

CHECKED = [AdjustedClassifier(base) for base in BASES]
CHECKED += [AdjustedClassifierCV(base, cv=3) for base in BASES]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the checks' data is odd on purpose
@pytest.mark.parametrize(
    "estimator", CHECKED, ids=lambda e: f"{type(e).__name__}({type(e.estimator).__name__})"
)
def test_all_of_scikit_learns_checks_pass(estimator):
    results = check_estimator(estimator, on_skip=None)  # raises on the first that fails
    statuses = {result["check_name"]: result["status"] for result in results}
    needing_more = {"check_array_api_input", "check_classifier_data_not_an_array"}
    assert {name for name, status in statuses.items() if status != "passed"} <= needing_more
    assert len(statuses) > 45


@pytest.mark.parametrize(
    "model",
    [
        AdjustedClassifier(LogisticRegression(), rules.Shift(0.3)),
        AdjustedClassifierCV(LogisticRegression(), cv=3, rule="shift"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_clone_params_and_pickle_round_trips(model, tail):
    X, y, X_test, _ = tail
    model = clone(model).set_params(estimator__C=0.5).fit(X, y)
    again = clone(model)
    assert not hasattr(again, "tuned_")
    assert again.get_params()["estimator__C"] == 0.5
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict_proba(X_test), model.predict_proba(X_test)
    )


def test_constructors_have_the_shape_of_scikit_learns_own():
    ours, theirs = (
        set(c(LogisticRegression()).get_params(deep=False))
        for c in (AdjustedClassifierCV, TunedThresholdClassifierCV)
    )
    assert theirs - ours == {"response_method", "thresholds", "store_cv_results"}
    ours, theirs = (
        set(c(LogisticRegression()).get_params(deep=False))
        for c in (AdjustedClassifier, FixedThresholdClassifier)
    )
    assert theirs - ours == {"response_method", "threshold", "pos_label"}


# -- a fixed rule, and what was tuned ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base", [LogisticRegression(), SVC(), HistGradientBoostingClassifier(max_iter=5)], ids=str
)
def test_scores_are_scaled(base, tail):
    X, y, X_test, _ = tail
    model = AdjustedClassifier(base, rules.Rescale(0.2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NegativeLogitsWarning)
        model.fit(X, y)
    n = np.bincount(y)
    expected = base.fit(X, y).decision_function(X_test) * (n.max() / n) ** 0.2
    np.testing.assert_allclose(model.decision_function(X_test), expected)
    np.testing.assert_array_equal(model.predict(X_test), expected.argmax(axis=1))


def test_a_linear_model_is_rescaled_as_its_head_is(tail):
    X, y, X_test, _ = tail
    base = LogisticRegression().fit(X, y)
    counts = np.bincount(y)
    model = AdjustedClassifier(FrozenEstimator(base), rules.Rescale(0.4), counts=counts).fit(X, y)
    by_scores = model.predict_proba(X_test)
    heads.write(base, lh.adjust(heads.read(base), rules.Rescale(0.4), counts))
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
    model = AdjustedClassifier(base, rules.Shift(0.7)).fit(X, y)
    odds = base.fit(X, y).predict_proba(X_test) / np.bincount(y) ** 0.7
    np.testing.assert_allclose(
        model.predict_proba(X_test), odds / odds.sum(axis=1, keepdims=True), atol=1e-12
    )
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X_test)), model.predict_proba(X_test))


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.ScaleWarning")
@pytest.mark.parametrize("base", [LogisticRegression(), LinearSVC(), SVC()], ids=str)
def test_two_classes_are_shifted_by_their_log_ratio(base, binary):
    X, y, X_test, _ = binary
    model = AdjustedClassifier(base, rules.Shift(0.5)).fit(X, y)
    n = np.bincount(y)
    expected = base.fit(X, y).decision_function(X_test) + 0.5 * np.log(n[0] / n[1])
    np.testing.assert_allclose(model.decision_function(X_test), expected)
    np.testing.assert_array_equal(model.predict(X_test), expected > 0)
    assert hasattr(model, "predict_proba") == hasattr(base, "predict_proba")


@pytest.mark.parametrize(
    "base", [*BASES, SVC(break_ties=True), HistGradientBoostingClassifier(max_iter=5)], ids=str
)
@pytest.mark.parametrize("data", ["tail", "binary"])
def test_a_strength_of_zero_predicts_what_the_estimator_predicts(base, data, request):
    X, y, X_test, _ = request.getfixturevalue(data)
    model = AdjustedClassifier(base, rules.Shift(0.0)).fit(X, y)
    np.testing.assert_array_equal(model.predict(X_test), base.fit(X, y).predict(X_test))


def test_by_default_it_is_the_shift_that_a_calibrated_classifier_needs(tail):
    X, y, X_test, _ = tail
    default = AdjustedClassifier(LogisticRegression()).fit(X, y)
    shifted = AdjustedClassifier(LogisticRegression(), rules.Shift(1.0)).fit(X, y)
    np.testing.assert_array_equal(default.predict_proba(X_test), shifted.predict_proba(X_test))


def test_a_probability_of_zero_gives_a_finite_score_and_is_never_predicted(tail):
    X, y, X_test, _ = tail
    base = DecisionTreeClassifier(random_state=0)  # whose leaves are pure
    model = AdjustedClassifier(base, rules.Shift(1.0)).fit(X, y)
    assert np.isfinite(model.decision_function(X_test)).all()
    np.testing.assert_array_equal(model.predict(X_test), base.fit(X, y).predict(X_test))


@pytest.mark.parametrize("response", ["decision_function", "predict_proba", "predict_log_proba"])
def test_what_was_tuned_on_its_scores_is_applied_to_them(response, tail, tmp_path):
    X, y, X_test, y_test = tail
    base = LogisticRegression().fit(X, y)
    scores = getattr(base, response)(X_test)
    kind = "probabilities" if response == "predict_proba" else "logits"
    tuned = lh.tune(scores, y_test, np.bincount(y), kind=kind)
    tuned.save(tmp_path / "tuned.json")
    expected = np.asarray(tuned.apply(scores))
    for by in (tuned, tmp_path / "tuned.json"):
        model = AdjustedClassifier(FrozenEstimator(base), by).fit(X_test, y_test)
        np.testing.assert_allclose(model.decision_function(X_test), expected)
        np.testing.assert_allclose(
            model.predict_proba(X_test), softmax(expected / tuned.temperature, axis=1)
        )
        single = model.predict(X_test[:1])
        np.testing.assert_array_equal(single, expected[:1].argmax(axis=1))


def test_what_was_tuned_for_others_is_refused(tail):
    X, y, X_test, y_test = tail
    labels = np.array(list("abcde"))
    base = LogisticRegression().fit(X, labels[y])
    scores = base.decision_function(X_test)
    four = y_test < 4
    of_four = lh.tune(scores[four, :4], y_test[four])
    in_reverse = lh.tune(scores[:, ::-1], 4 - y_test, names=list("edcba"))
    with pytest.raises(ValueError, match=r"by: .*classes in another order"):
        AdjustedClassifier(base, in_reverse).fit(X, labels[y])
    with pytest.raises(ValueError, match=r"by: LogisticRegression has 5 classes, but .* 4 classes"):
        AdjustedClassifier(base, of_four).fit(X, labels[y])
    with pytest.raises(ValueError, match="by: it was tuned on logits, and GaussianNB has no dec"):
        AdjustedClassifier(GaussianNB(), lh.tune(scores, y_test)).fit(X, labels[y])
    several = lh.tune_labels(scores, np.eye(5, dtype=int)[y_test])
    with pytest.raises(ValueError, match="by: several labels per sample were tuned"):
        AdjustedClassifier(base, several).fit(X, labels[y])
    with pytest.raises(ValueError, match=r"counts: .*what was tuned has its own"):
        AdjustedClassifier(base, lh.tune(scores, y_test), counts=np.bincount(y)).fit(X, labels[y])


@pytest.mark.parametrize(
    "base", [LinearSVC(), RidgeClassifier(), SGDClassifier(random_state=0)], ids=str
)
def test_a_fixed_shift_of_margins_gives_a_warning(base, tail):
    X, y, _, _ = tail
    message = rf"{type(base).__name__} gives margins.*up to 3.91 is added to scores with"
    with pytest.warns(ScaleWarning, match=message):
        AdjustedClassifier(base, rules.Shift(1.0)).fit(X, y)
    AdjustedClassifier(base, rules.Shift(0.0)).fit(X, y)  # nothing is added
    AdjustedClassifier(LogisticRegression(), rules.Shift(1.0)).fit(X, y)


def test_negative_scores_give_a_warning(tail):
    X, y, _, _ = tail
    message = "of the true-class logits are negative.*use the rule offsets"
    for model in (
        AdjustedClassifier(LinearSVC(), rules.Rescale(0.5)),
        AdjustedClassifierCV(LinearSVC(), rule="rescale"),
    ):
        with pytest.warns(NegativeLogitsWarning, match=message):
            model.fit(X, y)


@pytest.mark.parametrize("given", ["balanced", {0: 1.0, 1: 3.0, 2: 9.0}])
def test_a_classifier_that_weighed_its_classes_is_not_leveled_twice_without_a_word(given):
    X, y = make_classification(
        600, n_classes=3, n_informative=6, weights=[0.8, 0.15], class_sep=2, random_state=0
    )
    base = make_pipeline(StandardScaler(), LogisticRegression(class_weight=given))
    twice = r"LogisticRegression was fitted with class_weight .*twice.*give counts"
    with pytest.warns(lh.warnings.CountsWarning, match=twice):
        AdjustedClassifier(base).fit(X, y)
    leveled = AdjustedClassifier(base, counts=[200, 200, 200]).fit(X, y)  # as its loss saw them
    assert (leveled.predict(X) == base.fit(X, y).predict(X)).all()
    AdjustedClassifier(base, rules.Shift(0.0)).fit(X, y)
    AdjustedClassifier(LogisticRegression()).fit(X, y)


WEIGHED = LogisticRegression(class_weight="balanced")


@pytest.mark.parametrize(
    "ensemble",
    [
        BaggingClassifier(WEIGHED, n_estimators=2, random_state=0),
        VotingClassifier([("a", LogisticRegression()), ("b", WEIGHED)], voting="soft"),
        OneVsRestClassifier(WEIGHED),
        AdaBoostClassifier(WEIGHED, n_estimators=2),
    ],
    ids=lambda each: type(each).__name__,
)
def test_classifiers_in_an_ensemble_that_weighed_their_classes_are_noticed(tail, ensemble):
    X, y, _, _ = tail
    given = rf"{type(ensemble).__name__} was fitted with \w+__class_weight 'balanced'.*twice"
    with pytest.warns(lh.warnings.CountsWarning, match=given):
        AdjustedClassifier(ensemble).fit(X, y)
    AdjustedClassifier(ensemble, counts=[200] * 5).fit(X, y)


def test_class_weights_that_a_calibration_puts_right_are_no_doubt(tail):
    X, y, _, _ = tail
    AdjustedClassifier(CalibratedClassifierCV(WEIGHED, cv=2)).fit(X, y)


def test_counts_go_by_label_in_class_order_or_as_labels(tail):
    X, y, X_test, _ = tail
    labels = np.array([50, 40, 30, 20, 10])[y]  # classes_ are 10 to 50: y in reverse
    n = np.bincount(y)[::-1]
    counted = AdjustedClassifier(LogisticRegression()).fit(X, labels)
    assert counted.classes_.tolist() == [10, 20, 30, 40, 50]
    assert counted.tuned_.counts == tuple(n)
    # It was trained on these labels: none of them is held out.
    assert not counted.tuned_.counted
    assert "held-out" not in str(counted.tuned_)
    assert counted.tuned_.names == ("10", "20", "30", "40", "50")
    by_label = dict(zip([10, 20, 30, 40, 50], n.tolist(), strict=True))
    for counts in (n, by_label, dict(reversed(by_label.items())), labels):
        other = AdjustedClassifier(LogisticRegression(), counts=counts).fit(X, labels)
        np.testing.assert_array_equal(other.predict(X_test), counted.predict(X_test))
        tuned = AdjustedClassifierCV(LogisticRegression(), cv=2, counts=counts).fit(X, labels)
        ratio = np.array(tuned.tuned_.counts) / n
        np.testing.assert_allclose(ratio, ratio[0])


def test_a_label_that_could_be_a_position_is_a_label(tail):
    X, y, _, _ = tail
    of_three = y < 3
    shifted = y[of_three] + 1  # classes 1, 2 and 3: a position 0 is no label
    counts = {0: 500, 1: 100, 2: 50}
    with pytest.raises(ValueError, match=r"counts: expected labels that are classes \(1, 2, 3\)"):
        AdjustedClassifier(LogisticRegression(), counts=counts).fit(X[of_three], shifted)
    model = AdjustedClassifier(LogisticRegression(), counts={3: 5, 1: 500, 2: 50})
    assert model.fit(X[of_three], shifted).tuned_.counts == (500, 50, 5)


# -- tuning -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base",
    [LogisticRegression(), GaussianNB(), RandomForestClassifier(20, random_state=0), LinearSVC()],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("data", ["tail", "binary"])
def test_tuning_improves_balanced_accuracy_on_unseen_data(base, data, request):
    X, y, X_test, y_test = request.getfixturevalue(data)
    tuned = AdjustedClassifierCV(base, cv=3).fit(X, y)
    before, after = (
        balanced_accuracy_score(y_test, m.predict(X_test)) for m in (base.fit(X, y), tuned)
    )
    assert after > before + 0.02


@pytest.mark.parametrize("rule", ["offsets", "shift", rules.Shift(range=(0, 8)), "vector"], ids=str)
def test_it_is_what_tune_folds_finds_on_scores_out_of_fold(rule, tail):
    X, y, X_test, _ = tail
    cv = StratifiedKFold(3)
    folds = []
    for train, held in cv.split(X, y):
        base = LogisticRegression().fit(X[train], y[train])
        folds.append((base.decision_function(X[held]), y[held], np.bincount(y[train])))
    expected = lh.tune_folds(folds, rule=rule)
    model = AdjustedClassifierCV(LogisticRegression(), cv=cv, rule=rule).fit(X, y)
    np.testing.assert_allclose(model.tuned_.adjustment.scale, expected.adjustment.scale)
    np.testing.assert_allclose(model.tuned_.adjustment.offset, expected.adjustment.offset)
    assert model.tuned_.gain == pytest.approx(expected.gain)
    assert model.tuned_.counts == tuple(np.bincount(y))  # and not those of all folds together
    assert (model.tuned_.chosen_on, model.tuned_.n) == ("out-of-fold", len(y))
    assert model.summary_ == model.tuned_.summary()
    scores = model.estimator_.decision_function(X_test)
    np.testing.assert_allclose(model.decision_function(X_test), expected.apply(scores))


def test_the_scale_of_the_scores_does_not_matter(tail):
    X, y, X_test, _ = tail

    class Scaled(LogisticRegression):
        def decision_function(self, X):
            return 100 * super().decision_function(X)

    plain, scaled = (
        AdjustedClassifierCV(base, cv=3).fit(X, y) for base in (LogisticRegression(), Scaled())
    )
    same = plain.predict(X_test) == scaled.predict(X_test)
    assert same.mean() > 0.97


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The least populated class")
@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
@pytest.mark.parametrize("scoring", ["balanced_accuracy", "f1_macro"])
@pytest.mark.parametrize(
    "base", [LogisticRegression(max_iter=1000), GaussianNB()], ids=lambda e: type(e).__name__
)
def test_a_class_that_a_fold_has_not_seen_counts_as_missed_there(scoring, base, tail):
    X, y, _, _ = tail
    kept = np.concatenate([np.flatnonzero(y == k)[:n] for k, n in enumerate([120, 60, 40, 2, 1])])
    X, y = X[kept], y[kept]
    rows = np.arange(len(y))
    folds = [(np.flatnonzero(rows % 3 != i), np.flatnonzero(rows % 3 == i)) for i in range(3)]
    assert any(len(np.unique(y[train])) < 5 for train, _ in folds)
    model = AdjustedClassifierCV(base, scoring=scoring, cv=folds).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    assert np.isfinite(model.tuned_.adjustment.offset).all()
    assert model.tuned_.evidence.after.right[4] == 0
    assert np.isfinite(model.decision_function(X)).all()


def test_a_trained_model_is_tuned_on_held_out_data(tail):
    X, y, X_test, y_test = tail
    base = LogisticRegression().fit(X, y)
    coef = base.coef_.copy()
    counts = np.bincount(y)
    prefit = AdjustedClassifierCV(base, cv="prefit", refit=False, counts=counts)
    prefit.fit(X_test[::2], y_test[::2])
    frozen = AdjustedClassifierCV(FrozenEstimator(base), counts=counts)
    frozen.fit(X_test[::2], y_test[::2])
    np.testing.assert_array_equal(base.coef_, coef)
    assert prefit.estimator_ is base
    assert prefit.tuned_.counts == tuple(counts)
    assert "chosen on held-out (" in str(prefit.tuned_)
    assert "chosen on held-out (" in str(frozen.tuned_)
    np.testing.assert_allclose(
        frozen.tuned_.adjustment.offset, prefit.tuned_.adjustment.offset, atol=0.3
    )
    before, after = (
        balanced_accuracy_score(y_test[1::2], model.predict(X_test[1::2]))
        for model in (base, prefit)
    )
    assert after > before + 0.02


@pytest.mark.parametrize(
    "wrap",
    [
        lambda base: AdjustedClassifierCV(base, cv="prefit", refit=False, rule="shift"),
        lambda base: AdjustedClassifierCV(FrozenEstimator(base), rule="shift"),
        lambda base: AdjustedClassifierCV(
            make_pipeline(StandardScaler(), FrozenEstimator(base)), rule="shift"
        ),
        lambda base: AdjustedClassifier(FrozenEstimator(base)),
    ],
    ids=["prefit", "tuned", "pipeline", "fixed"],
)
def test_a_rule_of_counts_needs_those_of_a_trained_model_with_a_balanced_hold_out(wrap, tail):
    X, y, X_test, y_test = tail
    even = np.concatenate([np.flatnonzero(y_test == k)[:200] for k in range(5)])
    model = wrap(LogisticRegression().fit(X, y))
    trained = "LogisticRegression is already trained, and the samples given now are balanced"
    message = f"{trained}|the counts are equal .*, so the rule shift does nothing"
    with pytest.warns(CountsWarning, match=message) as warned:
        model.fit(X_test[even], y_test[even])
    assert warned[0].filename == __file__  # the line that calls `fit`
    assert model.tuned_.counted
    model.set_params(counts=dict(enumerate(np.bincount(y).tolist())))
    model.fit(X_test[even], y_test[even])
    assert not model.tuned_.counted


def test_offsets_need_no_counts_of_a_trained_model(tail):
    X, y, X_test, y_test = tail
    even = np.concatenate([np.flatnonzero(y_test == k)[:200] for k in range(5)])
    base = LogisticRegression().fit(X, y)
    model = AdjustedClassifierCV(base, cv="prefit", refit=False).fit(X_test[even], y_test[even])
    assert (model.tuned_.counted, model.tuned_.warnings) == (True, ())
    assert model.tuned_.verdict == "better"


def test_tuning_a_model_on_its_own_training_data_gives_a_warning(tail):
    X, y, _, _ = tail
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    with pytest.warns(LeakageWarning, match="too good for data that the model has not seen"):
        AdjustedClassifierCV(forest, cv="prefit", refit=False, counts=np.bincount(y)).fit(X, y)


def test_what_is_out_of_fold_is_never_too_good():
    y = np.repeat([0, 1, 2], [300, 200, 100])
    X = 20 * np.eye(3)[y] + np.random.default_rng(0).normal(size=(600, 3))
    model = AdjustedClassifierCV(LogisticRegression()).fit(X, y)
    assert model.tuned_.warnings == ()
    assert model.tuned_.verdict == "changes nothing"


def test_one_split_may_keep_its_own_model(tail):
    X, y, _, _ = tail
    base = LogisticRegression()
    kept, again, other = (
        AdjustedClassifierCV(base, random_state=seed, cv=0.25, refit=False).fit(X, y)
        for seed in (7, 7, 8)
    )
    assert sum(kept.tuned_.counts) == pytest.approx(0.75 * len(y), abs=1)
    offset = kept.tuned_.adjustment.offset
    np.testing.assert_array_equal(offset, again.tuned_.adjustment.offset)
    assert not np.array_equal(offset, other.tuned_.adjustment.offset)
    np.testing.assert_array_equal(kept.estimator_.coef_, again.estimator_.coef_)
    whole = AdjustedClassifierCV(base, random_state=7, cv=0.25).fit(X, y)
    np.testing.assert_array_equal(offset, whole.tuned_.adjustment.offset)
    assert sum(whole.tuned_.counts) == len(y)


@pytest.mark.slow
def test_two_jobs_find_what_one_finds(tail):
    X, y, _, _ = tail
    one, two = (AdjustedClassifierCV(GaussianNB(), cv=2, n_jobs=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.tuned_.adjustment.offset, two.tuned_.adjustment.offset)


# -- with the rest of scikit-learn ------------------------------------------------------------------------------------


def test_they_work_inside_and_outside_pipelines_and_searches(tail):
    X, y, X_test, _ = tail
    by = rules.Shift(0.5)
    outside = AdjustedClassifier(make_pipeline(StandardScaler(), LogisticRegression()), by)
    inside = make_pipeline(StandardScaler(), AdjustedClassifier(LogisticRegression(), by))
    np.testing.assert_array_equal(
        outside.fit(X, y).predict(X_test), inside.fit(X, y).predict(X_test)
    )
    grid = {"by": [rules.Shift(s) for s in (0.0, 0.5, 1.0)], "estimator__C": [0.1, 1]}
    search = GridSearchCV(
        AdjustedClassifier(LogisticRegression()), grid, scoring="balanced_accuracy", cv=2
    ).fit(X, y)
    assert search.best_params_["by"].strength > 0


def test_sparse_input_goes_through(tail):
    X, y, X_test, _ = tail
    dense = AdjustedClassifierCV(LogisticRegression(), cv=2).fit(X, y)
    sparse = AdjustedClassifierCV(LogisticRegression(), cv=2).fit(scipy.sparse.csr_matrix(X), y)
    assert (sparse.predict(scipy.sparse.csr_matrix(X_test)) == dense.predict(X_test)).mean() > 0.99


def test_data_frames_keep_their_feature_names(tail):
    pandas = pytest.importorskip("pandas")
    X, y, _, _ = tail
    frame = pandas.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    base = LogisticRegression()
    for model in (AdjustedClassifier(base), AdjustedClassifierCV(base, cv=2)):
        assert model.fit(frame, pandas.Series(y)).feature_names_in_.tolist() == list(frame.columns)
        assert model.predict(frame).shape == y.shape


# -- bad input --------------------------------------------------------------------------------------------------------

BASE = LogisticRegression()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (AdjustedClassifier(BASE, 0.5), "The 'by' parameter of AdjustedClassifier must be"),
        (AdjustedClassifier(BASE, rules.Offsets()), "by: expected a rule with a strength"),
        (AdjustedClassifier(BASE, rules.Shift()), "by: expected a rule with a strength, such as"),
        (AdjustedClassifier(BASE, rules.Tau(1.0)), "rule: 'tau' needs the weight norms"),
        (AdjustedClassifier(BASE, counts=[1, 2]), "expected 5 counts, one per class, got 2"),
        (AdjustedClassifier(BASE, counts=[5, 4, 3, 2, 0]), r"class 4 has no samples"),
        (
            AdjustedClassifier(GaussianNB(), rules.Rescale(0.5)),
            "by: 'rescale' multiplies logits, .* for probabilities; use 'offsets'",
        ),
        (
            AdjustedClassifier(SVC(decision_function_shape="ovo")),
            "expected 5 scores per sample.*_shape to 'ovr'",
        ),
        (AdjustedClassifier(StandardScaler()), "The 'estimator' parameter of AdjustedClassifier"),
        (AdjustedClassifierCV(BASE, scoring="f1_weighted"), "scoring: expected error, .*f1_macro"),
        (AdjustedClassifierCV(BASE, scoring=len), "The 'scoring' parameter"),
        (AdjustedClassifierCV(BASE, rule="auto"), "rule: expected 'offsets', .*got 'auto'"),
        (AdjustedClassifierCV(GaussianNB(), rule="vector"), "rule: 'vector' multiplies logits"),
        (AdjustedClassifierCV(BASE, cv=1.5), "The 'cv' parameter"),
        (AdjustedClassifierCV(BASE, cv="prefit"), "refit: expected False: cv 'prefit' trains"),
        (AdjustedClassifierCV(BASE, refit=False), "refit: expected True with the 5 splits of cv"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_wrong_setting_is_named(model, message, tail):
    with pytest.raises(ValueError, match=message):
        model.fit(*tail[:2])


def test_pairwise_scores_of_three_classes_are_not_taken_for_class_scores(tail):
    X, y, _, _ = tail
    base = make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))
    with pytest.raises(ValueError, match="scores pairs of classes"):  # three pairs, three classes
        AdjustedClassifier(base).fit(X[y < 3], y[y < 3])


@pytest.mark.parametrize(
    "model",
    [AdjustedClassifier(BASE, rules.Rescale(0.5)), AdjustedClassifierCV(BASE, rule="scales")],
    ids=lambda e: type(e).__name__,
)
def test_two_classes_cannot_be_scaled(model, binary):
    message = "(by|rule): LogisticRegression has two classes, whose scores are opposite, so"
    with pytest.raises(ValueError, match=message):
        model.fit(*binary[:2])


def test_unfitted_and_unknown_are_refused(tail):
    X, y, _, _ = tail
    with pytest.raises(NotFittedError):
        AdjustedClassifier(LogisticRegression()).predict(X)
    with pytest.raises(NotFittedError, match="cv 'prefit' needs a fitted estimator"):
        AdjustedClassifierCV(LogisticRegression(), cv="prefit", refit=False).fit(X, y)
    base = FrozenEstimator(LogisticRegression().fit(X[y < 4], y[y < 4]))
    with pytest.raises(ValueError, match=r"y: expected labels that are classes \(0, 1, 2, 3\)"):
        AdjustedClassifier(base, counts=np.bincount(y[y < 4])).fit(X, y)
    several = np.column_stack([y > 0, y > 1]).astype(int)
    with pytest.raises(ValueError, match="Unknown label type: multilabel-indicator"):
        AdjustedClassifier(LogisticRegression()).fit(X, several)
    with pytest.raises(ValueError, match=r"lh\.tune_labels"):
        AdjustedClassifierCV(LogisticRegression()).fit(X, several)
