"""Our classifiers converted by skl2onnx: onnxruntime gives what predict and predict_proba do."""

import warnings
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import levelhead as lh
from levelhead.hosts.skl2onnx import register
from levelhead.hosts.sklearn import AdjustedClassifier, AdjustedClassifierCV

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of skl2onnx, about itself
    skl2onnx = pytest.importorskip(
        "skl2onnx", reason="skl2onnx is not installed: pip install skl2onnx"
    )

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # margins are scaled here on purpose; skl2onnx's own

INSIDE = {
    "logistic": lambda: LogisticRegression(),
    "svc": lambda: LinearSVC(),
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": lambda: RandomForestClassifier(15, max_depth=4, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=8, random_state=0),
}


@pytest.fixture(scope="module", params=[2, 3])
def data(request):
    weights = {2: [0.9], 3: [0.8, 0.15]}[request.param]
    x, y = make_classification(
        600,
        8,
        n_informative=6,
        n_redundant=0,
        n_classes=request.param,
        weights=weights,
        class_sep=0.7,
        random_state=0,
    )
    return x.astype(np.float32), y


def run(model, x, **options):
    register()
    proto = skl2onnx.to_onnx(model, x[:1], options=options or {"zipmap": False})
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {session.get_inputs()[0].name: x})


def agree(model, x, label, second):
    expected = (
        model.predict_proba(x) if hasattr(model, "predict_proba") else model._adjusted_scores(x)
    )
    assert np.allclose(second, expected, atol=2e-4)
    top = np.sort(model._adjusted_scores(x), axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-3  # a tie in float64 may go either way in float32
    assert clear.mean() > 0.9
    assert (label[clear] == model.predict(x)[clear]).all()


@pytest.mark.parametrize("rule", [lh.rules.Rescale(0.5), lh.rules.Shift(0.5)], ids=str)
@pytest.mark.parametrize("kind", INSIDE)
def test_fixed_classifier_is_the_same_in_onnx(kind, rule, data):
    x, y = data
    if rule.multiplies and (len(np.unique(y)) == 2 or kind == "forest"):
        pytest.skip("two classes, and probabilities, cannot be scaled")
    model = AdjustedClassifier(INSIDE[kind](), rule).fit(x, y)
    plain = model.estimator_.predict(x)
    assert (model.predict(x) != plain).any()
    agree(model, x, *run(model, x))


@pytest.mark.parametrize(
    ("kind", "rule"), [("logistic", "offsets"), ("logistic", "vector"), ("forest", "offsets")]
)
def test_tuned_classifier_is_the_same_in_onnx(kind, rule, data):
    x, y = data
    model = AdjustedClassifierCV(INSIDE[kind](), cv=3, rule=rule).fit(x, y)
    agree(model, x, *run(model, x))


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_what_was_tuned_on_scores_is_the_same_in_onnx(kind, data):
    x, y = data
    base = LogisticRegression().fit(x, y)
    scores = base.predict_proba(x)
    if kind == "logits":
        scores = base.decision_function(x)
        if scores.ndim == 1:
            scores = np.outer(scores, [-0.5, 0.5])
    model = AdjustedClassifier(FrozenEstimator(base), lh.tune(scores, y, kind=kind)).fit(x, y)
    agree(model, x, *run(model, x))


def test_names_of_classes_doubles_and_a_pipeline_around_it(data):
    x, y = data
    names = np.array(["often", "seldom", "rare"])[y]
    model = make_pipeline(
        StandardScaler(), AdjustedClassifier(LogisticRegression(), lh.rules.Shift(0.5))
    ).fit(x, names)
    label, p = run(model, x)
    assert (label == model.predict(x)).mean() > 0.99
    assert np.allclose(p, model.predict_proba(x), atol=1e-4)
    wide = x.astype(np.float64)
    doubles = AdjustedClassifier(LogisticRegression(), lh.rules.Shift(0.5)).fit(wide, names)
    label, p = run(doubles, wide)
    assert (label == doubles.predict(wide)).mean() > 0.99
    assert np.allclose(p, doubles.predict_proba(wide), atol=1e-4)


@pytest.mark.parametrize("kind", INSIDE)
def test_inputs_of_doubles_fit_every_classifier_inside(kind, data):
    x, y = data
    wide = x.astype(np.float64)
    model = AdjustedClassifierCV(INSIDE[kind](), cv=3).fit(wide, y)
    agree(model, wide, *run(model, wide))


def test_frozen_classifier_and_zipmap(data):
    x, y = data
    trained = LogisticRegression().fit(x, y)
    model = AdjustedClassifier(FrozenEstimator(trained), counts=np.bincount(y)).fit(x, y)
    label, rows = run(model, x, zipmap=True)
    assert [*rows[0]] == model.classes_.tolist()
    agree(model, x, label, np.array([list(row.values()) for row in rows]))


def test_votes_are_smoothed_as_the_choice_has_it(data):
    x, y = data
    model = AdjustedClassifierCV(RandomForestClassifier(15, random_state=0), cv=2).fit(x, y)
    size = len(model.classes_)
    scale, offset = np.linspace(0.8, 1.2, size), np.linspace(0.3, -0.1, size)
    by_hand = lh.Adjustment(scale, offset, smoothing=0.2)
    model.tuned_ = replace(model.tuned_, rule="vector", adjustment=by_hand)
    votes = model.estimator_.predict_proba(x)
    expected = np.log(votes + 0.2) * scale + offset
    np.testing.assert_allclose(model._adjusted_scores(x), expected)
    agree(model, x, *run(model, x))
