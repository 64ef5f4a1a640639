"""Trees and boosting: through scikit-learn's API, and native boosters as functions of their scores."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split

import levelhead as lh
from levelhead.hosts.predictor import AdjustedPredictor
from levelhead.hosts.sklearn import AdjustedClassifierCV

ABC = ["a", "b", "c"]


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
    plain, tuned = make().fit(x, y), AdjustedClassifierCV(make(), cv=3).fit(x, y)
    before, after = (
        balanced_accuracy_score(y_test, model.predict(x_test)) for model in (plain, tuned)
    )
    assert after > before + 0.03


@pytest.mark.parametrize("make", [lightgbm_booster, xgboost_booster])
@pytest.mark.parametrize("classes", [2, 3])
def test_native_booster_is_tuned_as_its_log_probabilities_are_in_numpy(make, classes):
    x, y, x_held_out, x_test, y_held_out, y_test = split(classes)
    predict, counts = make(x, y, classes), np.bincount(y)
    model = AdjustedPredictor(predict).fit(x_held_out, y_held_out, counts=counts, rule="shift")
    p = predict(x_test)
    z = np.log(np.stack([1 - p, p], axis=1) if classes == 2 else p)
    shifted = z + model.tuned_.strength * np.log(counts.max() / counts)
    assert (model.predict(x_test) == shifted.argmax(axis=1)).all()
    assert model.tuned_.strength > 0
    assert balanced_accuracy_score(y_test, model.predict(x_test)) > balanced_accuracy_score(
        y_test, z.argmax(axis=1)
    )
    assert np.allclose(model.predict_proba(x_test).sum(axis=1), 1)
    assert (model.predict_proba(x_test).argmax(axis=1) == model.predict(x_test)).all()


def test_predictor_takes_what_was_tuned_and_labels_of_its_own(tmp_path):
    x, y, x_held_out, x_test, y_held_out, _ = split(3)
    names = np.array(["often", "seldom", "rare"])
    forest = RandomForestClassifier(20, min_samples_leaf=5, random_state=0).fit(x, y)
    counts = dict(zip(names.tolist(), np.bincount(y).tolist(), strict=True))
    model = AdjustedPredictor(forest, classes=names)
    model.fit(x_held_out, names[y_held_out], counts=counts)
    assert set(model.predict(x_test)) <= set(names)
    scores = forest.predict_proba(x_held_out)
    direct = lh.tune(scores, y_held_out, np.bincount(y), kind="probabilities")
    direct.save(tmp_path / "tuned.json")
    for tuned in (direct, tmp_path / "tuned.json"):
        same = AdjustedPredictor(forest.predict_proba, tuned)
        assert (names[same.predict(x_test)] == model.predict(x_test)).all()
        expected = direct.apply(forest.predict_proba(x_test))
        np.testing.assert_array_equal(same.decision_function(x_test), expected)


def test_votes_of_zero_are_smoothed_as_they_were_in_the_choice():
    x, y, x_held_out, x_test, y_held_out, _ = split(3)
    forest = RandomForestClassifier(10, random_state=0).fit(x, y)
    model = AdjustedPredictor(forest.predict_proba).fit(x_held_out, y_held_out)
    adjustment, votes = model.tuned_.adjustment, forest.predict_proba(x_test)
    assert adjustment.smoothing > 0
    expected = np.log(votes + adjustment.smoothing) + adjustment.offset
    assert np.allclose(model.decision_function(x_test), expected)


LOGITS = np.random.default_rng(0).normal(size=(300, 3)) + 2
TRUE = np.random.default_rng(1).integers(3, size=300)
LOGITS[np.arange(300), TRUE] += 2
LOGITS *= [1.0, 0.7, 0.4]


def of_rows(rows):
    return LOGITS[rows]


def test_logits_may_be_scaled_too():
    model = AdjustedPredictor(of_rows, kind="logits")
    model.fit(np.arange(300), TRUE, counts=[1000, 200, 40], rule="rescale")
    scaled = LOGITS * (1000 / np.array([1000, 200, 40])) ** model.tuned_.strength
    assert np.allclose(model.decision_function(np.arange(300)), scaled)


def test_a_single_row_of_two_classes_stays_a_row_where_two_columns_were_fitted():
    second = LOGITS[:, 1] - LOGITS[:, 0]
    model = AdjustedPredictor(lambda rows: LOGITS[rows][..., :2], kind="logits")
    model.fit(np.arange(300), TRUE % 2)
    together = model.decision_function(np.arange(3))
    np.testing.assert_allclose(model.decision_function(2), together[2])
    assert model.predict_proba(2).shape == (2,)
    of_the_second = AdjustedPredictor(lambda rows: second[rows], kind="logits")
    of_the_second.fit(np.arange(300), TRUE % 2)
    assert of_the_second.predict(np.arange(2)).shape == (2,)


def test_a_pair_of_numbers_for_one_sample_is_a_row_also_where_nothing_was_fitted():
    both = LOGITS[:, :2]
    model = AdjustedPredictor(
        lambda rows: both[rows][0] if len(rows) == 1 else both[rows], lh.tune(both, TRUE % 2)
    )
    expected = model.decision_function(np.arange(5))[3]
    np.testing.assert_allclose(model.decision_function([3]), expected)
    np.testing.assert_allclose(model.decision_function(np.array([3])), expected)
    assert model.predict([3]) == expected.argmax()
    of_text = AdjustedPredictor(lambda text: both[3], model.tuned_)
    np.testing.assert_allclose(of_text.decision_function("a text"), expected)


@pytest.mark.parametrize("row", [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
def test_a_single_row_of_logits_is_taken_though_it_looks_like_probabilities(row):
    tuned = lh.tune(LOGITS, TRUE)
    model = AdjustedPredictor(lambda x: np.array(x), tuned)
    expected = np.array(row) + tuned.adjustment.offset
    np.testing.assert_allclose(model.decision_function([row]), [expected])
    np.testing.assert_allclose(model.decision_function(row), expected)
    assert model.predict([row]).tolist() == [expected.argmax()]
    assert model.predict_proba(row).sum() == pytest.approx(1)


def test_columns_that_a_function_titles_in_another_order_are_refused():
    titled = pd.DataFrame(LOGITS, columns=["c", "b", "a"])
    expected = r"titled with the classes in another order \(c, b, a\) than expected \(a, b, c\)"
    tuned = AdjustedPredictor(titled.iloc.__getitem__, lh.tune(LOGITS, TRUE, names=ABC))
    with pytest.raises(lh.LevelheadError, match=expected):
        tuned.predict([0, 1])
    to_tune = AdjustedPredictor(titled.iloc.__getitem__, classes=ABC, kind="logits")
    with pytest.raises(lh.LevelheadError, match=expected):
        to_tune.fit(np.arange(300), TRUE)


def test_what_was_tuned_on_another_kind_or_for_others_is_refused():
    e = np.exp(LOGITS)
    softmax = e / e.sum(axis=1, keepdims=True)
    on_logits = lh.tune(LOGITS, TRUE, names=ABC)
    on_probabilities = lh.tune(softmax, TRUE, kind="probabilities")
    with pytest.raises(ValueError, match="tuned on logits, and the function gives probabilities"):
        AdjustedPredictor(of_rows, on_logits, kind="probabilities")
    with pytest.raises(ValueError, match="tuned on probabilities, and the function gives logits"):
        AdjustedPredictor(of_rows, on_probabilities, kind="logits")
    with pytest.raises(ValueError, match="tuned on logits, and the function gives probabilities"):
        AdjustedPredictor(RandomForestClassifier(), on_logits)
    with pytest.raises(ValueError, match=r"from 0 to 1, got .*tuned on probabilities"):
        AdjustedPredictor(of_rows, on_probabilities).predict(np.arange(5))
    with pytest.raises(ValueError, match="tuned on logits, and these are probabilities"):
        AdjustedPredictor(lambda rows: softmax[rows], on_logits).predict(np.arange(50))
    with pytest.raises(ValueError, match="classes in another order"):
        AdjustedPredictor(of_rows, on_logits, classes=["b", "a", "c"])
    with pytest.raises(ValueError, match="has 2 classes, but it was tuned on 3"):
        AdjustedPredictor(of_rows, on_logits, classes=["a", "b"])
    several = lh.tune_labels(LOGITS, np.eye(3, dtype=int)[TRUE])
    with pytest.raises(ValueError, match="several labels per sample were tuned"):
        AdjustedPredictor(of_rows, several)


@pytest.mark.parametrize("name", lh.rules.RULES)
def test_what_is_applied_is_what_was_tuned(name):
    rule = lh.rules.RULES[name].with_norms([2.0, 1.5, 0.5])
    tuned = lh.tune(LOGITS, TRUE, [1000, 200, 40], rule=rule)
    scale, offset = tuned.adjustment.scale, tuned.adjustment.offset
    assert not (np.allclose(scale, 1) and np.allclose(offset, 0))
    adjusted = AdjustedPredictor(of_rows, tuned).decision_function(np.arange(300))
    np.testing.assert_allclose(adjusted, LOGITS * scale + offset)


def test_vector_scaling_of_probabilities_is_not_used_on_logits():
    e = np.exp(LOGITS)
    shares = e / e.sum(axis=1, keepdims=True)
    for rule in ("vector", "scales"):
        tuned = lh.tune(shares, TRUE, kind="probabilities", rule=rule)
        with pytest.raises(ValueError, match="tuned on probabilities, and the function gives"):
            AdjustedPredictor(of_rows, tuned, kind="logits")
        with pytest.raises(ValueError, match="expected probabilities, from 0 to 1, got"):
            AdjustedPredictor(of_rows, tuned).predict(np.arange(5))


def test_the_order_of_a_models_own_classes_is_noticed_and_its_labels_come_out():
    x, y, x_held_out, x_test, y_held_out, _ = split(3)
    words = np.array(ABC)
    forest = RandomForestClassifier(20, min_samples_leaf=5, random_state=0).fit(x, words[y])
    scores = forest.predict_proba(x_held_out)
    model = AdjustedPredictor(forest, lh.tune(scores, y_held_out, names=ABC, kind="probabilities"))
    assert set(model.predict(x_test)) <= set(ABC)
    other = lh.tune(scores[:, ::-1], 2 - y_held_out, names=ABC[::-1], kind="probabilities")
    with pytest.raises(ValueError, match=r"classes in another order \(a, b, c\) than the scores"):
        AdjustedPredictor(forest, other)
    with pytest.raises(ValueError, match=r"classes: .* has them in another order \(a, b, c\)"):
        AdjustedPredictor(forest, classes=["c", "b", "a"])
    fitted = AdjustedPredictor(forest).fit(
        x_held_out, words[y_held_out], counts={"c": 9, "a": 900, "b": 90}
    )
    assert fitted.tuned_.counts == (900, 90, 9)
    assert fitted.tuned_.names == tuple(ABC)


@pytest.mark.parametrize("names", [None, [f"type {k:02}" for k in range(12)]])
def test_columns_of_a_frame_go_by_their_titles(names):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 30)
    logits = 2 * np.eye(12)[labels] + rng.normal(size=(360, 12)) - np.arange(12) / 3
    titles = names or [f"logit_{k}" for k in range(12)]
    as_text = pd.DataFrame(logits, columns=titles)[sorted(titles)]
    direct = lh.tune(logits, labels, names=names)
    expected = np.argmax(direct.apply(logits), axis=1)
    model = AdjustedPredictor(lambda X: as_text, direct)
    np.testing.assert_array_equal(model.predict(None), expected)
    tuned_here = AdjustedPredictor(lambda X: as_text, kind="logits").fit(None, labels)
    np.testing.assert_allclose(tuned_here.tuned_.adjustment.offset, direct.adjustment.offset)


def test_columns_of_a_frame_that_are_classes_in_another_order_are_refused():
    frame = pd.DataFrame(LOGITS, columns=ABC)
    tuned = lh.tune(LOGITS, TRUE, names=ABC)
    model = AdjustedPredictor(lambda X: frame, tuned)
    np.testing.assert_array_equal(model.decision_function(None), tuned.apply(LOGITS))
    with pytest.raises(ValueError, match=r"classes in another order \(c, b, a\) than expected"):
        AdjustedPredictor(lambda X: frame[ABC[::-1]], tuned).predict(None)
    # Classes that are numbers, known as texts and so sorted, stand as the columns do.
    as_text = ["1", "10", "2"]
    frame.columns = as_text
    tuned_as_text = lh.tune(LOGITS, np.array(as_text)[TRUE], names=as_text)
    by_text = AdjustedPredictor(lambda X: frame, tuned_as_text)
    np.testing.assert_array_equal(by_text.decision_function(None), tuned.apply(LOGITS))


def test_columns_of_a_frame_stay_in_the_order_that_they_were_tuned_in():
    frame = pd.DataFrame(LOGITS, columns=["dog", "ant", "cat"])
    model = AdjustedPredictor(lambda X: frame[X], kind="logits").fit(["dog", "ant", "cat"], TRUE)
    expected = lh.tune(LOGITS, TRUE).apply(LOGITS)
    np.testing.assert_allclose(model.decision_function(list(frame)), expected)
    with pytest.raises(lh.LevelheadError, match=r"another order \(ant, cat, dog\) than expected"):
        model.predict(sorted(frame))


def test_a_log_probability_of_the_second_class_says_that_of_the_first():
    log_probabilities = np.log([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]] * 20)
    tuned = lh.tune(log_probabilities, np.array([0, 0, 1] * 20))
    expected = AdjustedPredictor(lambda x: log_probabilities, tuned).decision_function(None)
    of_second = AdjustedPredictor(lambda x: log_probabilities[:, 1], tuned)
    np.testing.assert_allclose(of_second.decision_function(None), expected)


def test_labels_are_never_positions():
    model = AdjustedPredictor(of_rows, classes=[1, 2, 3], kind="logits")
    with pytest.raises(ValueError, match=r"y: expected labels that are classes \(1, 2, 3\), got 0"):
        model.fit(np.arange(300), TRUE)
    counts = {3: 10, 1: 1000, 2: 100}
    assert model.fit(np.arange(300), TRUE + 1, counts=counts).tuned_.counts == (1000, 100, 10)
    assert set(model.predict(np.arange(300))) <= {1, 2, 3}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda: AdjustedPredictor([0.5]), r"expected a function of X, .*, got \[0.5\]"),
        (lambda: AdjustedPredictor(len, kind="scores"), "kind: expected 'probabilities' or"),
        (
            lambda: AdjustedPredictor(len, classes={"a", "b"}),
            "classes: .*got set, which has no order",
        ),
        (lambda: AdjustedPredictor(len, classes=3), "classes: expected a list .*, got int"),
        (
            lambda: AdjustedPredictor(lambda x: np.ones((1, 3)) / 3, classes=["a", "b", "a"]).fit(
                0, ["a"]
            ),
            "classes: two classes are called 'a'",
        ),
        (
            lambda: AdjustedPredictor(lambda x: np.ones((1, 3)) / 3).fit(0, ["a"]),
            "y: expected column numbers, got names; pass classes",
        ),
        (lambda: AdjustedPredictor(lambda x: x).predict([0.5]), "not tuned yet; call fit"),
        (
            lambda: AdjustedPredictor(lambda x: np.ones((1, 4)), classes=ABC).fit(0, ["a"]),
            r"expected scores \[N, K\] of the function, 3 columns, got \[1, 4\]",
        ),
        (
            lambda: AdjustedPredictor(lambda x: np.ones((1, 3)) / 3, classes=ABC).fit(0, ["d"]),
            r"y: expected labels that are classes \(a, b, c\), got 'd'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        how()
