"""scikit-learn's scorers on the exact road: which are recognized, and that the curve is what they compute."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    cohen_kappa_score,
    f1_score,
    get_scorer,
    make_scorer,
    matthews_corrcoef,
    recall_score,
)
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB

from levelhead.hosts._out_of_fold import exact_metric
from levelhead.hosts.sklearn import RescaledClassifier, TunedRescaledClassifierCV


def geometric_mean_score(y_true, y_pred, average="multiclass", correction=0.0):
    """imbalanced-learn's, by its definition."""
    recalls = recall_score(y_true, y_pred, average=None)
    return float(np.prod(recalls) ** (1 / len(recalls)))


geometric_mean_score.__module__ = "imblearn.metrics._classification"

EXACT = {
    "accuracy": ("error", accuracy_score, {}),
    "balanced_accuracy": ("balanced_error", balanced_accuracy_score, {}),
    "recall_macro": ("balanced_error", recall_score, {"average": "macro"}),
    "f1_macro": ("macro_f1", f1_score, {"average": "macro"}),
    "matthews_corrcoef": ("mcc", matthews_corrcoef, {}),
    "kappa": ("kappa", cohen_kappa_score, {}),
    "g_mean": ("g_mean", geometric_mean_score, {}),
}
SCORERS = {
    name: make_scorer(function, **options) if name in ("kappa", "g_mean") else name
    for name, (_, function, options) in EXACT.items()
}


@pytest.fixture(scope="module")
def tail():
    X, y = make_classification(
        1200,
        10,
        n_informative=8,
        n_classes=4,
        weights=[0.7, 0.2, 0.07],
        class_sep=1.2,
        random_state=3,
    )
    return X, y


@pytest.mark.parametrize("name", EXACT)
def test_a_scorer_is_recognized_by_name_and_as_a_function(name):
    metric, function, options = EXACT[name]
    labels = np.arange(4)
    if isinstance(SCORERS[name], str):
        assert exact_metric(get_scorer(SCORERS[name]), labels, 4) == metric
    assert exact_metric(make_scorer(function, **options), labels, 4) == metric


@pytest.mark.parametrize(
    "scorer",
    [
        get_scorer("f1_weighted"),
        get_scorer("recall_micro"),
        get_scorer("neg_log_loss"),
        get_scorer("roc_auc_ovr"),
        make_scorer(f1_score, average="macro", labels=[0, 1]),
        make_scorer(f1_score, average="macro", zero_division=1),
        make_scorer(f1_score),
        make_scorer(balanced_accuracy_score, adjusted=True),
        make_scorer(balanced_accuracy_score, greater_is_better=False),
        make_scorer(accuracy_score, normalize=False),
        make_scorer(cohen_kappa_score, weights="linear"),
        make_scorer(geometric_mean_score, correction=0.01),
        make_scorer(geometric_mean_score, average="macro"),
        make_scorer(lambda y, p: accuracy_score(y, p)),
        lambda model, X, y: model.score(X, y),
    ],
    ids=lambda scorer: str(scorer).partition(" at 0x")[0][:60],
)
def test_other_out_of_fold_and_other_settings_are_not(scorer):
    assert exact_metric(scorer, np.arange(4), 4) is None


def test_a_class_without_a_held_out_sample_leaves_only_what_does_not_depend_on_it():
    known = {
        name: exact_metric(make_scorer(function, **options), np.arange(3), 4)
        for name, (_, function, options) in EXACT.items()
    }
    assert {name for name, metric in known.items() if metric} == {
        "accuracy",
        "balanced_accuracy",
        "matthews_corrcoef",
        "kappa",
    }


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(
    "base", [LogisticRegression(), GaussianNB()], ids=lambda e: type(e).__name__
)
def test_the_curve_is_the_score_of_the_pooled_predictions(name, base, tail):
    X, y = tail
    _, function, options = EXACT[name]
    folds = list(StratifiedKFold(3).split(X, y))
    tuned = TunedRescaledClassifierCV(
        base, scoring=SCORERS[name], cv=folds, rule="shift", store_cv_results=True
    )
    tuned.fit(X, y)
    held = np.concatenate([test for _, test in folds])

    def score(gamma):
        found = [
            RescaledClassifier(base, gamma=gamma, rule="shift")
            .fit(X[train], y[train])
            .predict(X[test])
            for train, test in folds
        ]
        return function(y[held], np.concatenate(found), **options)

    gammas, scores = tuned.cv_results_["gammas"], tuned.cv_results_["scores"]
    assert len(gammas) > 20
    for i in np.linspace(0, len(gammas) - 2, 4).astype(int):
        assert scores[i] == pytest.approx(score((gammas[i] + gammas[i + 1]) / 2))
    assert tuned.best_score_ == pytest.approx(score(tuned.best_gamma_))
