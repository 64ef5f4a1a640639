"""Metrics, costs, floors and targets of the tuned classifier, its probabilities and its page."""

from inspect import signature

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, get_scorer, recall_score
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import levelhead as lh
from levelhead.core.measure import calibration_error, negative_log_likelihood
from levelhead.core.metrics import METRICS
from levelhead.hosts.sklearn import AdjustedClassifier, AdjustedClassifierCV

LABELS = [3, 7, 8, 20]  # which are neither 0 to K - 1 nor text
SHARES = np.array([0.72, 0.2, 0.06, 0.02])
NAMED = [metric for metric in METRICS.values() if metric.name != "cost"]


@pytest.fixture(scope="module")
def tail():
    """Four classes, the largest 36 times the smallest; a test set of the same shares."""
    X, y = make_classification(
        6000,
        12,
        n_informative=9,
        n_classes=4,
        weights=SHARES[:3],
        class_sep=1.0,
        flip_y=0,
        random_state=5,
    )
    return train_test_split(X, np.array(LABELS)[y], test_size=0.6, stratify=y, random_state=0)


@pytest.fixture(scope="module")
def model(tail):
    return fitted(tail)


def fitted(tail, base=None, **options):
    base = LogisticRegression() if base is None else base
    return AdjustedClassifierCV(base, cv=StratifiedKFold(3), **options).fit(tail[0], tail[2])


# -- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", NAMED, ids=lambda metric: metric.name)
def test_scoring_takes_every_name_and_alias_of_a_metric(metric, tail):
    models = [
        fitted(tail, scoring=scoring)
        for scoring in (metric, metric.name, *metric.aliases, lh.Goal(metric.name))
    ]
    assert {model.tuned_.metric for model in models} == {metric.name}
    for other in models[1:]:
        np.testing.assert_array_equal(
            other.tuned_.adjustment.offset, models[0].tuned_.adjustment.offset
        )


@pytest.mark.parametrize("kind", [AdjustedClassifier, AdjustedClassifierCV])
def test_metric_is_told_to_be_scoring_and_signatures_stay_plain(kind):
    with pytest.raises(lh.LevelheadError, match=r"metric: .*scoring='f1_macro'") as told:
        kind(LogisticRegression(), metric="f1_macro")
    assert "\n" not in str(told.value)
    with pytest.raises(TypeError, match="unexpected keyword argument 'metrics'"):
        kind(LogisticRegression(), metrics="f1_macro")
    model = clone(kind(LogisticRegression(C=2)))
    assert model.get_params()["estimator__C"] == 2
    kinds = {parameter.kind.name for parameter in signature(kind).parameters.values()}
    assert kinds == {"POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"}


def test_scoring_takes_a_metric_that_was_added_to_the_table(tail, monkeypatch):
    def rarest_missed(tables):
        return 1 - tables.recall[..., 3]

    metric = lh.Metric("rarest", "recall of the rarest", rarest_missed, aliases=("recall_rarest",))
    monkeypatch.setitem(METRICS, metric.name, metric)
    X_test, y_test = tail[1], tail[3]
    plain, rarest = fitted(tail), fitted(tail, scoring="recall_rarest")
    assert rarest.tuned_.metric == "rarest"
    before, after = (
        recall_score(y_test, model.predict(X_test), average=None)[3] for model in (plain, rarest)
    )
    assert after > before


@pytest.mark.parametrize("scoring", ["balanced_accuracy", "f1_macro"])
def test_the_score_is_better_on_unseen_data(scoring, tail):
    X_test, y_test = tail[1], tail[3]
    model = fitted(tail, GaussianNB(), scoring=scoring)
    scorer = get_scorer(scoring)
    before, after = (scorer(classifier, X_test, y_test) for classifier in (model.estimator_, model))
    assert after > before
    assert model.tuned_.gain > 0


# -- goals ------------------------------------------------------------------------------------------------------------


def test_floors_go_by_label_and_are_met_on_unseen_data(tail):
    X_test, y_test = tail[1], tail[3]
    free = fitted(tail)
    bound = fitted(tail, scoring=lh.Goal("balanced_accuracy", floors={7: 0.9}))
    before, after = (
        recall_score(y_test, model.predict(X_test), average=None)[1] for model in (free, bound)
    )
    assert before < 0.88 <= after
    [floor] = bound.tuned_.floors
    assert (floor.index, floor.least) == (1, 0.9)
    assert bound.tuned_.worthwhile  # the classifier as trained does not meet it
    assert "class 1 (7): recall of at least 90.0%" in bound.summary_
    again = clone(bound)
    assert again.scoring.floors == {7: 0.9}


def test_costs_are_lower_than_without_them(tail):
    X_test, y_test = tail[1], tail[3]
    cost = np.array([[0, 1, 1, 1], [9, 0, 1, 1], [2, 2, 0, 2], [1, 1, 1, 0]])
    model = fitted(tail, scoring=lh.Goal(cost=cost))

    def mean_cost(classifier):
        matrix = confusion_matrix(y_test, classifier.predict(X_test), labels=LABELS)
        return (matrix * cost).sum() / len(y_test)

    assert model.tuned_.metric == "cost"
    assert mean_cost(model) < min(mean_cost(model.estimator_), mean_cost(fitted(tail)))


def test_a_target_of_the_training_shares_gives_the_classifier_almost_as_it_is(tail):
    _, X_test, y, _ = tail
    shares = {label: float((y == label).mean()) for label in LABELS}
    model = fitted(tail, target=shares, rule="shift")
    same = model.predict(X_test) == model.estimator_.predict(X_test)
    assert same.mean() > 0.99


@pytest.mark.parametrize("rule", ["offsets", "shift"])
def test_a_target_is_reached_where_classes_occur_in_it(tail, rule):
    _, X_test, y, y_test = tail
    target = np.array([0.1, 0.2, 0.3, 0.4])
    by_label = dict(zip(LABELS, target, strict=True))
    model, balanced = fitted(tail, target=by_label, rule=rule), fitted(tail)
    accuracy = [
        target @ recall_score(y_test, classifier.predict(X_test), average=None)
        for classifier in (model, balanced, model.estimator_)
    ]
    trained = np.array([(y == label).mean() for label in LABELS])
    bayes = model.estimator_.predict_log_proba(X_test) + np.log(target / trained)
    by_hand = target @ recall_score(y_test, np.array(LABELS)[bayes.argmax(1)], average=None)
    assert accuracy[0] > max(accuracy[1:])
    assert accuracy[0] > by_hand - 0.01
    listed = fitted(tail, target=target, rule=rule)
    np.testing.assert_array_equal(listed.tuned_.adjustment.offset, model.tuned_.adjustment.offset)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"scoring": lh.Goal(floors={9: 0.5})},
            r"floors: expected labels that are classes \(3, 7, 8, 20\), got 9",
        ),
        ({"scoring": lh.Goal(floors={0: 0.5})}, "floors: expected labels that are classes"),
        ({"scoring": lh.Goal(cost=np.ones((3, 3)))}, r"cost: expected numbers \[4, 4\]"),
        ({"scoring": "cost"}, "scoring: 'cost' needs a cost matrix"),
        ({"target": {3: 1.0}}, "has no share"),
        ({"target": {0: 1.0}}, "target: expected labels that are classes"),
        (
            {"target": SHARES, "scoring": "geometric_mean"},
            "the metric g_mean weighs classes the same",
        ),
    ],
)
def test_goals_that_cannot_be_are_refused(tail, options, says):
    with pytest.raises(lh.LevelheadError, match=says):
        fitted(tail, **options)


# -- what it says -----------------------------------------------------------------------------------------------------


def test_the_summary_has_every_class_by_its_label(model):
    assert model.summary_ == model.tuned_.summary()
    for i, label in enumerate(LABELS):
        assert f"class {i} ({label})" in model.summary_
    assert "chosen on out-of-fold" in model.summary_


def test_what_was_tuned_can_be_applied_elsewhere(model, tail):
    X_test = tail[1]
    plain = model.estimator_.decision_function(X_test)
    leveled = lh.adjust(lh.Head(np.eye(4)), model.tuned_).logits(plain)
    np.testing.assert_allclose(leveled, model.decision_function(X_test))
    fixed = AdjustedClassifier(LogisticRegression(), model.tuned_).fit(tail[0], tail[2])
    np.testing.assert_allclose(fixed.predict_proba(X_test), model.predict_proba(X_test))


def test_nothing_is_summarized_or_reported_before_fitting(tmp_path):
    model = AdjustedClassifierCV(LogisticRegression())
    assert not hasattr(model, "summary_")
    with pytest.raises(NotFittedError):
        model.report(tmp_path / "page.html")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "options"),
    [
        (LogisticRegression(), {}),
        (GaussianNB(), {"scoring": "f1_macro"}),
        (RidgeClassifier(), {"rule": "shift"}),
    ],
    ids=str,
)
def test_a_page_is_written(base, options, tail, tmp_path):
    page = fitted(tail, base, **options).report(tmp_path / "page.html")
    text = page.read_text(encoding="utf-8")
    assert type(base).__name__ in text
    assert "out-of-fold" in text
    assert "AdjustedClassifierCV" in text


# -- probabilities ----------------------------------------------------------------------------------------------------


def as_if_balanced(model, X, y):
    """Log loss, calibration error and balanced accuracy where every class is equally frequent."""
    rng, index = np.random.default_rng(0), np.searchsorted(model.classes_, y)
    rows = np.concatenate([rng.choice(np.flatnonzero(index == k), 2000) for k in range(4)])
    logs = np.log(np.maximum(model.predict_proba(X)[rows], 1e-12))
    return (
        negative_log_likelihood(logs, index[rows]),
        calibration_error(logs, index[rows]),
        balanced_accuracy_score(y, model.predict(X)),
    )


def test_probabilities_are_the_softmax_of_the_scores_over_the_temperature(model, tail):
    X_test = tail[1]
    odds = np.exp(model.decision_function(X_test) / model.tuned_.temperature)
    np.testing.assert_allclose(
        model.predict_proba(X_test), odds / odds.sum(axis=1, keepdims=True), rtol=1e-9
    )
    np.testing.assert_array_equal(
        model.classes_[model.predict_proba(X_test).argmax(axis=1)], model.predict(X_test)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "base", [LogisticRegression(), GaussianNB(), KNeighborsClassifier(15)], ids=str
)
def test_probabilities_are_better_for_equal_classes_than_plain_or_wrapped_ones(base, tail):
    X, X_test, y, y_test = tail
    tuned = fitted(tail, base)
    loss, error, score = as_if_balanced(tuned, X_test, y_test)
    wrapped = CalibratedClassifierCV(AdjustedClassifierCV(base, cv=3), cv=3)
    for other in (base.fit(X, y), wrapped.fit(X, y)):
        worse = as_if_balanced(other, X_test, y_test)
        assert loss < worse[0]
        assert error < worse[1]
        assert score > worse[2] + 0.02  # calibrating the whole takes the leveling back


def test_probabilities_tuned_for_accuracy_are_of_classes_as_they_occur(tail):
    _, X_test, _, y_test = tail
    model = fitted(tail, GaussianNB(), scoring="accuracy")
    index = np.searchsorted(model.classes_, y_test)
    ours, theirs = (
        negative_log_likelihood(np.log(np.maximum(classifier.predict_proba(X_test), 1e-12)), index)
        for classifier in (model, model.estimator_)
    )
    assert ours < theirs
    np.testing.assert_allclose(
        model.predict_proba(X_test).mean(axis=0), np.bincount(index) / len(index), atol=0.05
    )


def test_votes_of_zero_do_not_decide(tail):
    _, X_test, _, y_test = tail
    model = fitted(tail, RandomForestClassifier(20, random_state=0))
    votes = model.estimator_.predict_proba(X_test)
    assert (votes == 0).any()
    assert model.tuned_.adjustment.smoothing > 0
    assert (model.predict_proba(X_test) > 0).all()
    before, after = (
        balanced_accuracy_score(y_test, classifier.predict(X_test))
        for classifier in (model.estimator_, model)
    )
    assert after > before + 0.05
