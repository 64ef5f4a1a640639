"""Trees and boosting: through scikit-learn's API, and native boosters as functions of their scores."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split

import levelhead as lh
from levelhead.hosts.predictor import RescaledPredictor
from levelhead.hosts.sklearn import TunedRescaledClassifierCV

ABC = {"counts": [9, 1, 1], "classes": ["a", "b", "c"]}


def split(classes):
    weights = {2: [0.93], 3: [0.85, 0.11]}[classes]
    x, y = make_classification(
        1500,
        8,
        n_informative=6,
        n_redundant=0,
        n_classes=classes,
        weights=weights,
        class_sep=0.8,
        random_state=0,
    )
    x, x_rest, y, y_rest = train_test_split(x, y, test_size=0.5, stratify=y, random_state=0)
    return x, y, *train_test_split(x_rest, y_rest, test_size=0.5, stratify=y_rest, random_state=0)


def lightgbm_booster(x, y, classes):
    lightgbm = pytest.importorskip("lightgbm")
    kind = (
        {"objective": "multiclass", "num_class": classes}
        if classes > 2
        else {"objective": "binary"}
    )
    data = lightgbm.Dataset(x, y)
    return lightgbm.train(
        {**kind, "verbose": -1, "num_threads": 1, "num_leaves": 7}, data, 15
    ).predict


def xgboost_booster(x, y, classes):
    xgboost = pytest.importorskip("xgboost")
    kind = (
        {"objective": "multi:softprob", "num_class": classes}
        if classes > 2
        else {"objective": "binary:logistic"}
    )
    booster = xgboost.train({**kind, "nthread": 1, "max_depth": 3}, xgboost.DMatrix(x, y), 15)
    return lambda values: booster.predict(xgboost.DMatrix(values))


def lightgbm_classifier():
    options = {"n_estimators": 15, "num_leaves": 7, "verbose": -1, "n_jobs": 1}
    return pytest.importorskip("lightgbm").LGBMClassifier(**options)


def xgboost_classifier():
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=15, max_depth=3, n_jobs=1)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("make", [lightgbm_classifier, xgboost_classifier])
@pytest.mark.parametrize("classes", [2, 3])
def test_boosting_through_the_api_of_scikit_learn_is_tuned(make, classes):
    x, y, _, x_test, _, y_test = split(classes)
    plain, tuned = make().fit(x, y), TunedRescaledClassifierCV(make(), cv=3).fit(x, y)
    before, after = (
        balanced_accuracy_score(y_test, model.predict(x_test)) for model in (plain, tuned)
    )
    assert after > before + 0.03


@pytest.mark.parametrize("make", [lightgbm_booster, xgboost_booster])
@pytest.mark.parametrize("classes", [2, 3])
def test_native_booster_is_tuned_as_its_log_probabilities_are_in_numpy(make, classes):
    x, y, x_held_out, x_test, y_held_out, y_test = split(classes)
    predict, counts = make(x, y, classes), np.bincount(y)
    model = RescaledPredictor(predict, counts=counts).fit(
        x_held_out, y_held_out, rule="shift", bootstrap=50
    )
    p = predict(x_test)
    z = np.log(np.stack([1 - p, p], axis=1) if classes == 2 else p)
    shifted = z + model.tuned_.gamma * np.log(counts.max() / counts)
    assert (model.predict(x_test) == shifted.argmax(axis=1)).all()
    assert model.tuned_.gamma > 0
    assert balanced_accuracy_score(y_test, model.predict(x_test)) > balanced_accuracy_score(
        y_test, z.argmax(axis=1)
    )
    assert np.allclose(model.predict_proba(x_test).sum(axis=1), 1)
    assert (model.predict_proba(x_test).argmax(axis=1) == model.predict(x_test)).all()


def test_predictor_takes_what_was_tuned_and_labels_of_its_own(tmp_path):
    x, y, x_held_out, x_test, y_held_out, _ = split(3)
    names = np.array(["often", "seldom", "rare"])
    forest = RandomForestClassifier(20, min_samples_leaf=5, random_state=0).fit(
        x, y
    )  # with probabilities of 0
    counts = dict(zip(names.tolist(), np.bincount(y).tolist(), strict=True))
    model = RescaledPredictor(forest.predict_proba, counts=counts, classes=names)
    model.fit(x_held_out, names[y_held_out], bootstrap=0)
    assert set(model.predict(x_test)) <= set(names)
    direct = lh.tune(
        forest.predict_proba(x_held_out),
        y_held_out,
        np.bincount(y),
        kind="probabilities",
        bootstrap=0,
    )
    same = RescaledPredictor(forest.predict_proba, tuned=direct)
    assert (names[same.predict(x_test)] == model.predict(x_test)).all()


def test_votes_of_zero_are_smoothed_as_they_were_in_the_choice():
    x, y, x_held_out, x_test, y_held_out, _ = split(3)
    forest = RandomForestClassifier(10, random_state=0).fit(x, y)
    model = RescaledPredictor(forest.predict_proba, counts=np.bincount(y))
    model.fit(x_held_out, y_held_out, rule="vector", bootstrap=0)
    choice, p = model.tuned_, forest.predict_proba(x_test)
    assert choice.smoothing > 0
    assert np.allclose(
        model.decision_function(x_test), np.log(p + choice.smoothing) * choice.scale + choice.offset
    )


def test_logits_may_be_scaled_too():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    z = (2 + rng.normal(size=(300, 3)) + 2 * np.eye(3)[y]) * [1.0, 0.7, 0.4]
    model = RescaledPredictor(lambda rows: z[rows], counts=[1000, 200, 40], kind="logits")
    model.fit(np.arange(300), y, rule="rescale", bootstrap=0)
    scaled = z * (1000 / np.array([1000, 200, 40])) ** model.tuned_.gamma
    assert np.allclose(model.decision_function(np.arange(300)), scaled)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            lambda: RescaledPredictor(lambda x: x),
            "expected counts, to tune with, or what was tuned",
        ),
        (lambda: RescaledPredictor([0.5], counts=[1, 2]), "expected a function of X, got list"),
        (
            lambda: RescaledPredictor(lambda x: x, counts=[9, 1]).predict([0.5]),
            "not tuned yet; call fit",
        ),
        (
            lambda: RescaledPredictor(lambda x: np.ones((1, 4)), **ABC).fit(0, ["a"]),
            r"expected \[N, 3\] of the function",
        ),
        (
            lambda: RescaledPredictor(lambda x: np.ones((1, 3)) / 3, **ABC).fit(0, ["d"]),
            "'d' is none of the classes",
        ),
    ],
)
def test_what_does_not_fit_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        how()
