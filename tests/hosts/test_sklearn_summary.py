"""What a tuned classifier says it did, its page, and its probabilities."""

import json
import pickle

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import balanced_accuracy_score, recall_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from levelhead import Head, Tuned, adjust
from levelhead.core.measure import calibration_error, negative_log_likelihood
from levelhead.hosts.sklearn import RescaledClassifier, TunedRescaledClassifierCV


@pytest.fixture(scope="module")
def tail():
    """Four classes, the largest 40 times the smallest; a test set of the same shares."""
    X, y = make_classification(
        6000,
        12,
        n_informative=9,
        n_classes=4,
        weights=[0.72, 0.2, 0.06],
        class_sep=1.2,
        random_state=5,
    )
    return train_test_split(X, np.array(list("dcba"))[y], test_size=0.6, stratify=y, random_state=0)


@pytest.fixture(scope="module")
def model(tail):
    X, _, y, _ = tail
    return TunedRescaledClassifierCV(LogisticRegression(), cv=3, rule="shift").fit(X, y)


def test_the_summary_is_of_the_out_of_fold_predictions(model, tail):
    X, _, y, _ = tail
    folds = StratifiedKFold(3)
    plain = cross_val_predict(LogisticRegression(), X, y, cv=folds)
    fixed = RescaledClassifier(LogisticRegression(), gamma=model.best_gamma_, rule="shift")
    leveled = cross_val_predict(fixed, X, y, cv=folds)
    found = model.summary_
    assert found.score_as_trained == pytest.approx(balanced_accuracy_score(y, plain))
    assert found.score == model.best_score_ == pytest.approx(balanced_accuracy_score(y, leveled))
    np.testing.assert_allclose(found.recall_as_trained, recall_score(y, plain, average=None))
    np.testing.assert_allclose(found.recall, recall_score(y, leveled, average=None))
    assert (found.names, found.counts) == (("a", "b", "c", "d"), tuple(model.counts_.tolist()))
    assert found.gain_interval[0] < found.gain < found.gain_interval[1]
    assert found.worthwhile
    assert found.doubts == ()


def test_the_summary_prints_a_line_for_each_class_and_goes_to_json(model):
    text = str(model.summary_)
    assert "balanced_accuracy 0." in text
    assert "logit shift, gamma = " in text
    assert [line.split()[0] for line in text.splitlines()[-4:]] == ["a", "b", "c", "d"]
    assert json.loads(json.dumps(model.summary_.to_dict()))["worthwhile"] is True
    assert "recall of a (n = " in model.summary_._repr_html_()
    assert str(pickle.loads(pickle.dumps(model)).summary_) == text


def test_reading_the_summary_changes_neither_the_choice_nor_the_predictions(tail):
    X, X_test, y, _ = tail
    trees = DecisionTreeClassifier(random_state=0)  # whose probabilities are 0 and 1
    for base, rule in (
        (LogisticRegression(), "shift"),
        (LogisticRegression(), "auto"),
        (trees, "auto"),
    ):
        one, other = (TunedRescaledClassifierCV(base, cv=3, rule=rule).fit(X, y) for _ in range(2))
        before = other.decision_function(X_test)
        tuned = other.tuned_
        known = tuned.worthwhile, tuned.verdict, tuned.certain, tuned.gain_interval
        other.summary_.report()
        assert (tuned.worthwhile, tuned.verdict, tuned.certain, tuned.gain_interval) == known
        assert (other.tuned_.worthwhile, other.tuned_.verdict, other.tuned_.certain) == known[:3]
        assert (other.summary_.worthwhile, other.summary_.verdict) == known[:2]
        assert other.summary_.worthwhile == other.tuned_.worthwhile == one.tuned_.worthwhile
        assert other.tuned_.to_dict() == one.tuned_.to_dict()
        assert other.tuned_.gain_interval is not None
        np.testing.assert_array_equal(other.decision_function(X_test), before)


def test_the_summary_is_a_choice_that_can_be_applied(model, tail):
    _, X_test, _, _ = tail
    assert isinstance(model.summary_, Tuned)
    plain = model.estimator_.decision_function(X_test)
    leveled = adjust(Head(np.eye(4)), model.summary_).logits(plain)
    np.testing.assert_allclose(leveled, model.decision_function(X_test))


def test_the_old_name_of_the_summary_warns(model):
    with pytest.deprecated_call(match="levelhead.Tuned"):
        from levelhead.hosts.summary import LevelSummary
    assert isinstance(model.summary_, LevelSummary)


def test_a_gain_is_doubted_where_none_is_expected():
    X, y = make_classification(300, 8, n_informative=6, n_classes=3, random_state=0)
    seen = {}
    for first in range(0, 210, 30):
        part = slice(first, first + 90)
        model = TunedRescaledClassifierCV(
            LogisticRegression(), cv=3, rule="shift", scoring="accuracy"
        )
        found = model.fit(X[part], y[part]).summary_
        assert f"verdict {found.verdict} (gain above 0: " in str(found)
        assert bool(found.doubts) is (not found.worthwhile)
        assert ("doubt:" in str(found)) is (not found.worthwhile)
        seen[found.worthwhile] = found.certain
    assert seen == {True: False, False: False}


def test_other_scorers_have_a_summary_without_an_interval(tail):
    X, _, y, _ = tail
    found = (
        TunedRescaledClassifierCV(GaussianNB(), cv=2, scoring="f1_weighted")
        .fit(X[:400], y[:400])
        .summary_
    )
    assert found.gain_interval is None
    assert not found.worthwhile
    assert found.gain == found.score - found.score_as_trained >= 0
    assert "f1_weighted" in str(found)
    assert "f1_weighted over gamma" in found.report()
    assert found.to_dict()["metric"] == "f1_weighted"


def test_nothing_is_summarized_or_reported_before_fitting(tmp_path):
    model = TunedRescaledClassifierCV(LogisticRegression())
    assert not hasattr(model, "summary_")
    with pytest.raises(NotFittedError):
        model.report(tmp_path / "page.html")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "options"),
    [
        (LogisticRegression(), {}),
        (GaussianNB(), {"scoring": "f1_macro"}),
        (GaussianNB(), {"scoring": "f1_weighted"}),
        (RidgeClassifier(), {}),
    ],
    ids=str,
)
def test_a_page_is_written(base, options, tail, tmp_path):
    X, _, y, _ = tail
    model = TunedRescaledClassifierCV(base, cv=2, **options).fit(X[:600], y[:600])
    page = model.report(tmp_path / "page.html")
    text = page.read_text(encoding="utf-8")
    assert type(base).__name__ in text
    assert "out-of-fold" in text
    assert "does so already" in text


# -- probabilities ----------------------------------------------------------------------------------------------------


def as_if_balanced(model, X, y):
    """Log loss, calibration error and balanced accuracy where every class is equally frequent, by resampling."""
    rng, index = np.random.default_rng(0), np.searchsorted(model.classes_, y)
    rows = np.concatenate([rng.choice(np.flatnonzero(index == k), 2000) for k in range(4)])
    logs = np.log(np.maximum(model.predict_proba(X)[rows], 1e-12))
    return (
        negative_log_likelihood(logs, index[rows]),
        calibration_error(logs, index[rows]),
        balanced_accuracy_score(y, model.predict(X)),
    )


def test_probabilities_are_the_softmax_of_the_scores_over_the_temperature(model, tail):
    _, X_test, _, _ = tail
    odds = np.exp(model.decision_function(X_test) / model.temperature_)
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
def test_probabilities_are_better_calibrated_for_equal_classes_than_plain_or_wrapped_ones(
    base, tail
):
    X, X_test, y, y_test = tail
    tuned = TunedRescaledClassifierCV(base, cv=3, rule="shift").fit(X, y)
    loss, error, score = as_if_balanced(tuned, X_test, y_test)
    wrapped = CalibratedClassifierCV(TunedRescaledClassifierCV(base, cv=3, rule="shift"), cv=3)
    for other in (base.fit(X, y), wrapped.fit(X, y)):
        worse = as_if_balanced(other, X_test, y_test)
        assert loss < worse[0]
        assert error < worse[1]
        assert score > worse[2] + 0.02  # calibrating the whole takes the leveling back


def test_probabilities_tuned_for_accuracy_are_of_classes_as_they_occur(tail):
    X, X_test, y, y_test = tail
    model = TunedRescaledClassifierCV(GaussianNB(), cv=3, scoring="accuracy", rule="shift").fit(
        X, y
    )
    index = np.searchsorted(model.classes_, y_test)
    logs, plain = (
        np.log(model.predict_proba(X_test)),
        GaussianNB().fit(X, y).predict_log_proba(X_test),
    )
    assert negative_log_likelihood(logs, index) < negative_log_likelihood(plain, index)
    assert calibration_error(logs, index) < calibration_error(plain, index)


def test_a_vote_of_zero_is_not_the_end_of_a_class(tail):
    X, X_test, y, y_test = tail
    tuned = TunedRescaledClassifierCV(
        RandomForestClassifier(20, random_state=0), cv=3, rule="shift"
    ).fit(X, y)
    probability = tuned.estimator_.predict_proba(X_test)
    assert (probability == 0).any()
    assert (tuned.predict_proba(X_test) > 0).all()
    assert np.isfinite(tuned.predict_log_proba(X_test)).all()
    assert tuned.temperature_ < 10
    assert balanced_accuracy_score(y_test, tuned.predict(X_test)) > balanced_accuracy_score(
        y_test, tuned.estimator_.predict(X_test)
    )
