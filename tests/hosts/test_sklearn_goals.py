"""Costs, floors, a target and names of the tuned classifier, against predictions counted by hand."""

from cProfile import Profile

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix, recall_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split

from levelhead import LevelheadError
from levelhead.hosts.sklearn import TunedRescaledClassifierCV
from levelhead.support.errors import check_choice

LABELS = [3, 7, 8, 20]  # which are neither 0 to K - 1 nor names
SHARES = np.array([0.72, 0.2, 0.06, 0.02])


@pytest.fixture(scope="module")
def tail():
    X, y = make_classification(
        6000,
        12,
        n_informative=9,
        n_classes=4,
        weights=SHARES[:3],
        class_sep=0.9,
        flip_y=0,
        random_state=5,
    )
    return train_test_split(X, np.array(LABELS)[y], test_size=0.7, stratify=y, random_state=0)


def fitted(tail, **options):
    return TunedRescaledClassifierCV(LogisticRegression(), cv=StratifiedKFold(3), **options).fit(
        tail[0], tail[2]
    )


def out_of_fold(model, tail):
    """The predictions of the model's adjustment on scores that scikit-learn computes for each fold."""
    X, _, y, _ = tail
    scores = cross_val_predict(
        LogisticRegression(), X, y, cv=StratifiedKFold(3), method="decision_function"
    )
    by = model._adjustment(model.counts_)
    return np.array(LABELS)[by.scores(scores).argmax(1)]


@pytest.mark.parametrize(("scoring", "most"), [("balanced_accuracy", 20), ("f1_macro", 40)])
def test_a_fit_checks_its_options_where_they_enter(scoring, most):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [300, 100, 40])
    X, profile = rng.normal(size=(440, 5)) + 1.2 * np.eye(3, 5)[y], Profile()
    profile.runcall(TunedRescaledClassifierCV(LogisticRegression(), scoring=scoring).fit, X, y)
    assert (
        sum(one.callcount for one in profile.getstats() if one.code is check_choice.__code__)
        <= most
    )


def test_floors_by_label_are_met_out_of_fold_and_change_the_choice(tail):
    y = tail[2]
    free, bound = fitted(tail), fitted(tail, floors={7: 0.9})
    before, after = (
        recall_score(y, out_of_fold(model, tail), average=None)[1] for model in (free, bound)
    )
    assert before < 0.9 <= after
    assert bound.tuned_.recall[1] == bound.summary_.recall[1] == pytest.approx(after)
    assert bound.best_score_ < free.best_score_
    assert "recall of at least 90.0% in class 1 (7): met" in str(bound.summary_)
    assert bound.tuned_.worthwhile is True  # the classifier as trained does not meet it
    all_of_them = fitted(tail, floors=0.3)
    assert recall_score(y, out_of_fold(all_of_them, tail), average=None).min() >= 0.3


def test_costs_are_lower_than_without_them(tail):
    _, X_test, y, y_test = tail
    cost = np.array([[0, 1, 1, 1], [9, 0, 1, 1], [2, 2, 0, 2], [1, 1, 1, 0]])
    model, other = fitted(tail, cost=cost), fitted(tail)

    def mean_cost(truth, predicted):
        return (confusion_matrix(truth, predicted, labels=LABELS) * cost).sum() / len(truth)

    assert model.best_score_ == pytest.approx(-mean_cost(y, out_of_fold(model, tail)))
    assert model.summary_.scoring == "neg_cost"
    plain, leveled, costly = (
        mean_cost(y_test, one.predict(X_test)) for one in (model.estimator_, other, model)
    )
    assert costly < min(plain, leveled)


def test_a_target_of_the_training_shares_gives_the_classifier_as_it_is(tail):
    _, X_test, y, _ = tail
    shares = {label: float((y == label).mean()) for label in LABELS}
    model = fitted(tail, target=shares, rule="shift")
    np.testing.assert_array_equal(model.predict(X_test), model.estimator_.predict(X_test))
    np.testing.assert_allclose(
        model._adjustment(model.counts_).offset, 0, atol=0.02
    )  # each fold has shares of its own


@pytest.mark.parametrize("rule", ["auto", "shift"])
def test_a_target_is_reached_where_classes_occur_in_it(tail, rule):
    _, X_test, y, y_test = tail
    target = np.array([0.1, 0.2, 0.3, 0.4])
    model, balanced = (
        fitted(tail, target=dict(zip(LABELS, target, strict=True)), rule=rule),
        fitted(tail),
    )
    accuracy = [
        target @ recall_score(y_test, one.predict(X_test), average=None)
        for one in (model, balanced, model.estimator_)
    ]
    trained = np.array([(y == label).mean() for label in LABELS])
    bayes = model.estimator_.predict_log_proba(X_test) + np.log(target / trained)
    by_hand = target @ recall_score(y_test, np.array(LABELS)[bayes.argmax(1)], average=None)
    assert accuracy[0] > max(accuracy[1:])
    assert accuracy[0] > by_hand - 0.01
    shares = model.predict_proba(X_test).mean(axis=0)
    assert shares[3] > balanced.predict_proba(X_test).mean(axis=0)[3]


def test_names_are_those_of_the_classes_and_floors_go_by_them_too(tail):
    model = fitted(
        tail, names=["a", "b", "c", "d"], floors={"b": 0.5}, rule="shift", scoring="accuracy"
    )
    by_label = fitted(tail, floors={7: 0.5}, rule="shift", scoring="accuracy")
    assert model.summary_.names == model.tuned_.names == ("a", "b", "c", "d")
    assert model.best_gamma_ == by_label.best_gamma_
    assert model.predict(tail[1]).dtype == tail[2].dtype
    again = clone(model)
    assert again.get_params()["floors"] == {"b": 0.5}
    assert again.get_params()["names"] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"floors": 0.5, "scoring": "f1_weighted"}, "floors: needs a scorer with an exact curve"),
        ({"target": SHARES, "range": (0.5, 1)}, "target: needs a range that holds 0"),
        (
            {"cost": np.ones((4, 4)) - np.eye(4), "scoring": "f1_macro"},
            "cost: expected no other metric",
        ),
        ({"names": ["a", "b"]}, "names: expected 4, got 2"),
        ({"floors": {9: 0.5}}, "unknown class 9"),
        ({"target": {3: 1.0}}, "has no share"),
    ],
)
def test_goals_that_cannot_be_are_refused(tail, options, says):
    with pytest.raises(LevelheadError, match=says):
        fitted(tail, **options)
