"""Classifiers of scikit-learn, and boosters: their scores are adjusted, and of a linear one the head."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import levelhead as lh

from .place import COUNTS, FACTORS, RNG, check_scaled, library


def imbalanced() -> tuple[np.ndarray, np.ndarray]:
    """Return features [N, 8] and labels [N], as many of each class as COUNTS says."""
    y = np.repeat([0, 1, 2], COUNTS)
    return RNG.normal(size=(len(y), 8)) + y[:, None], y


def in_sklearn(make: Callable[[], Any], folder: Path) -> str:
    """Wrap a classifier in `AdjustedClassifier`; its scores must be shifted log-probabilities."""
    from levelhead.hosts.sklearn import AdjustedClassifier

    x, y = imbalanced()
    model = AdjustedClassifier(make(), lh.rules.Shift(0.5)).fit(x, y)
    inner = model.estimator_
    shifted = np.log(np.maximum(inner.predict_proba(x), np.finfo(float).tiny)) + np.log(FACTORS)
    scores = model.decision_function(x)
    assert (scores.argmax(1) == shifted.argmax(1)).all(), "scores are not shifted"
    return f"scores of {type(inner).__name__}, rule shift"


def sklearn_head(folder: Path) -> str:
    """Rescale the coefficients of a linear model itself."""
    from levelhead.heads.sklearn import read, write

    x, y = imbalanced()
    model = library("sklearn.linear_model").LogisticRegression().fit(x, y)
    before = model.decision_function(x)
    write(model, lh.adjust(read(model), lh.rules.Rescale(0.5), COUNTS))
    check_scaled(before, model.decision_function(x))
    return "coef_, intercept_"


def of_lightgbm(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return what predicts probabilities, of a native booster of LightGBM."""
    lightgbm = library("lightgbm")
    settings = {
        "objective": "multiclass",
        "num_class": 3,
        "verbose": -1,
        "num_threads": 1,
        "num_leaves": 4,
    }
    return lightgbm.train(settings, lightgbm.Dataset(x, y), 5).predict


def of_xgboost(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return what predicts probabilities, of a native booster of XGBoost."""
    xgboost = library("xgboost")
    settings = {"objective": "multi:softprob", "num_class": 3, "nthread": 1, "max_depth": 2}
    booster = xgboost.train(settings, xgboost.DMatrix(x, y), 5)
    return lambda values: booster.predict(xgboost.DMatrix(values))


def booster(train: Callable[..., Callable[[np.ndarray], np.ndarray]], folder: Path) -> str:
    """Wrap a function that predicts in `AdjustedPredictor`; what was chosen must be added to its
    scores.
    """
    from levelhead.hosts.predictor import AdjustedPredictor

    x, y = imbalanced()
    predict = train(x, y)
    model = AdjustedPredictor(predict).fit(x, y, counts=COUNTS)
    assert model.tuned_ is not None
    moved = np.log(predict(x)) + model.tuned_.adjustment.offset
    assert np.allclose(model.decision_function(x), moved, atol=1e-6), "nothing is added to scores"
    return "scores of a Booster, rule offsets"
