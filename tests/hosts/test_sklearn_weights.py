"""Weights of samples and of classes in scikit-learn's estimators: they count as the loss saw them."""

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

from levelhead import rules
from levelhead.core.counts import with_background
from levelhead.hosts._loss_counts import loss_counts
from levelhead.hosts.sklearn import AdjustedClassifier, AdjustedClassifierCV


@pytest.mark.parametrize("routing", [True, False])
def test_sample_weights_go_to_the_estimator_and_into_the_counts(tail, routing):
    X, y, X_test, _ = tail
    weight = np.where(y == 0, 0.2, 1.0)
    with config_context(enable_metadata_routing=routing):
        base = LogisticRegression()
        if routing:
            base.set_fit_request(sample_weight=True)
        fixed = AdjustedClassifier(base, rules.Shift(0.0)).fit(X, y, sample_weight=weight)
        tuned = AdjustedClassifierCV(base, cv=2).fit(X, y, sample_weight=weight)
    expected = LogisticRegression().fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(fixed.predict(X_test), expected.predict(X_test))
    np.testing.assert_array_equal(tuned.estimator_.coef_, expected.coef_)
    seen = np.bincount(y, weight) * len(y) / weight.sum()
    np.testing.assert_allclose(fixed.tuned_.counts, seen, atol=0.5)
    np.testing.assert_allclose(tuned.tuned_.counts, seen, atol=0.5)


def test_sample_weights_of_ones_change_nothing(tail):
    X, y, X_test, _ = tail
    plain = AdjustedClassifierCV(LogisticRegression()).fit(X, y)
    same = AdjustedClassifierCV(LogisticRegression()).fit(X, y, sample_weight=np.full(len(y), 3.0))
    assert plain.tuned_.counts == pytest.approx(same.tuned_.counts)
    # None is no weight, also for a pipeline, which takes weights by routing alone.
    for base in (LogisticRegression(), make_pipeline(LogisticRegression())):
        none = AdjustedClassifierCV(base).fit(X, y, sample_weight=None, groups=None)
        np.testing.assert_array_equal(
            plain.decision_function(X_test), none.decision_function(X_test)
        )


def test_a_class_without_any_weight_is_refused(tail):
    X, y, _, _ = tail
    with pytest.raises(ValueError, match="all samples of class 2 have weight 0; leave them out"):
        AdjustedClassifierCV(LogisticRegression()).fit(X, y, sample_weight=(y != 2).astype(float))


def test_metadata_without_routing_is_refused_as_scikit_learn_does(tail):
    X, y, _, _ = tail
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        AdjustedClassifierCV(LogisticRegression()).fit(X, y, groups=np.ones(len(y)))
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        AdjustedClassifier(pipeline).fit(X, y, sample_weight=np.ones(len(y)))


@pytest.mark.parametrize("given", ["balanced", "by hand"])
def test_class_weights_are_in_the_counts_that_are_tuned_with(tail, given):
    X, y, _, _ = tail
    n = np.bincount(y)
    weights = given if given == "balanced" else dict(enumerate((len(y) / (5 * n)).tolist()))
    base = make_pipeline(StandardScaler(), LogisticRegression(class_weight=weights))
    weighted = AdjustedClassifierCV(base).fit(X, y)
    np.testing.assert_allclose(weighted.tuned_.counts, len(y) / 5, atol=0.5)  # as the loss saw them
    told = AdjustedClassifierCV(base, counts=[len(y) // 5] * 5).fit(X, y)
    # Nearly alike: the counts of a fold are not even to the last sample.
    offsets, expected = (each.tuned_.adjustment.offset for each in (weighted, told))
    np.testing.assert_allclose(offsets - offsets[0], expected - expected[0], atol=0.05)
    twice = AdjustedClassifierCV(base, counts=n).fit(X, y)
    assert np.ptp(weighted.tuned_.adjustment.offset) < np.ptp(twice.tuned_.adjustment.offset)


@pytest.mark.parametrize("estimator", [LogisticRegression(), "frozen"])
def test_counts_that_are_given_are_those_of_the_result(tail, estimator):
    X, y, _, _ = tail
    if estimator == "frozen":
        estimator = FrozenEstimator(LogisticRegression().fit(X, y))
    given = [1000, 500, 200, 60, 20]
    as_labels = np.repeat(range(5), given)
    for counts in (given, dict(enumerate(given)), as_labels):
        tuned = AdjustedClassifierCV(estimator, counts=counts, cv=3).fit(X, y).tuned_
        assert tuned.counts == tuple(given)


@pytest.mark.parametrize("labels", [np.arange(5), np.array(["none", "ant", "bee", "cat", "dog"])])
def test_a_background_is_left_alone(tail, labels):
    X, y, _, _ = tail
    background = labels[1].item()
    counts = with_background(
        dict(zip(labels.tolist(), np.bincount(y).tolist(), strict=True)), background
    )
    fixed = AdjustedClassifier(LogisticRegression(), rules.Shift(1.0), counts=counts)
    for model in (fixed, AdjustedClassifierCV(LogisticRegression(), counts=counts, cv=3)):
        tuned = clone(model).fit(X, labels[y]).tuned_
        at = sorted(labels.tolist()).index(background)
        assert tuned.background == at
        assert tuned.adjustment.offset[at] == 0
        assert np.ptp(tuned.adjustment.offset) > 0.5
        assert tuned.counts[at] == max(tuned.counts)
    with pytest.raises(ValueError, match="background: expected labels that are classes"):
        AdjustedClassifier(LogisticRegression(), counts=with_background([1] * 5, 7)).fit(X, y)


def test_a_mix_that_class_weights_made_even_is_no_doubt(tail):
    X, y, _, _ = tail
    base = LogisticRegression(class_weight="balanced")
    assert AdjustedClassifierCV(base, scoring="f1_macro").fit(X, y).tuned_.warnings == ()


LIBRARIES = [
    (RandomForestClassifier(class_weight="balanced_subsample"), [20, 20]),
    (LGBMClassifier(class_weight="balanced"), [20, 20]),
    (LGBMClassifier(is_unbalance=True), [20, 20]),
    (LGBMClassifier(scale_pos_weight=3.0), [30, 30]),
    (XGBClassifier(scale_pos_weight=3.0), [30, 30]),
    (XGBClassifier(), [30, 10]),
    (LogisticRegression(), [30, 10]),
]


@pytest.mark.parametrize(("model", "expected"), LIBRARIES, ids=lambda each: type(each).__name__)
def test_the_weights_of_every_library_are_noticed(model, expected):
    counts = loss_counts(model, np.repeat([0, 1], [30, 10]), np.array([0, 1]))
    np.testing.assert_allclose(counts, expected)
