"""LinearClassifier of ai.onnx.ml, as skl2onnx writes it: adjusted as its scores are in numpy, undone byte for byte."""

import warnings
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of skl2onnx, about itself
    from skl2onnx import to_onnx

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from ..heads.chosen import own_rule, tuned_for
from .head_in_file import read_head, write_head

RNG = np.random.default_rng(0)
COUNTS = {2: [160, 40], 3: [120, 60, 20]}


def data(classes, seed=0):
    rng, n = np.random.default_rng(seed), COUNTS[classes]
    y = np.repeat(np.arange(classes), n)
    return (rng.normal(size=(classes, 4))[y] + rng.normal(size=(sum(n), 4))).astype(np.float32), y


def written(path, model, classes, names=None, zipmap=True, **options):
    x, y = data(classes)
    model.fit(x, y if names is None else np.array(names)[y])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proto = to_onnx(
            model, x[:1], options={"zipmap": zipmap, **options} if not zipmap or options else None
        )
    path.write_bytes(proto.SerializeToString())
    return model


def label(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def scores(model, x):
    decided = model.decision_function(x)
    return np.stack([np.zeros(len(x)), decided], axis=1) if decided.ndim == 1 else decided


MODELS = {
    "logistic": (LogisticRegression, 3),
    "pipeline": (lambda: make_pipeline(StandardScaler(), LogisticRegression()), 3),
    "svc": (LinearSVC, 3),
}
BINARY = {"logistic": LogisticRegression, "svc": LinearSVC}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("rule", ["offsets", "shift", "rescale", "tau", "scales", "vector"])
def test_labels_are_those_of_the_scores_adjusted_in_numpy(kind, rule, tmp_path):
    make, classes = MODELS[kind]
    path, out, back = (tmp_path / name for name in ("m.onnx", "out.onnx", "back.onnx"))
    model = written(path, make(), classes, names=list("abc") if kind == "pipeline" else None)
    x, n = (
        np.random.default_rng(1).normal(size=(1000, 4)).astype(np.float32),
        np.array(COUNTS[classes]),
    )
    z = scores(model, x)
    coef = (model[-1] if kind == "pipeline" else model).coef_
    tuned = tuned_for(rule, 0.8, n, norms=np.linalg.norm(coef, axis=1) if len(coef) > 1 else None)
    expected = tuned.adjustment.scores(z)
    adjust_file(path, out, tuned)
    want = model.classes_[expected.argmax(axis=1)]
    assert (want != model.predict(x)).sum() > 5
    assert (label(out, x) == want).all()
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("zipmap", [True, False])
def test_binary_classifier_is_one_logit_and_is_shifted(kind, zipmap, tmp_path):
    path, out, back = (tmp_path / name for name in ("m.onnx", "out.onnx", "back.onnx"))
    model = written(path, BINARY[kind](), 2, zipmap=zipmap or kind == "svc")
    x, _ = data(2, seed=1)
    with pytest.raises(ValueError, match=r"single logit.*use the rule offsets or shift"):
        adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS[2])
    adjust_file(path, out, lh.rules.Shift(0.7), COUNTS[2])
    shifted = model.decision_function(x) + 0.7 * np.log(160 / 40)
    want = model.classes_[(shifted > 0).astype(int)]
    assert (want != model.predict(x)).sum() > 5
    assert (label(out, x) == want).all()
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


def test_probabilities_after_a_binary_shift_are_those_of_the_shifted_score(tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    model = written(path, LogisticRegression(), 2, zipmap=False)
    x, _ = data(2, seed=1)
    adjust_file(path, out, lh.rules.Shift(0.7), COUNTS[2])
    shifted = model.decision_function(x) + 0.7 * np.log(160 / 40)
    probabilities = onnxruntime.InferenceSession(out).run(None, {"X": x})[1]
    assert np.allclose(
        probabilities,
        np.stack([1 / (1 + np.exp(shifted)), 1 / (1 + np.exp(-shifted))], axis=1),
        atol=1e-5,
    )


def made(path, coefficients, intercepts=None, post="NONE", multi=1, labels=3):
    biases = {} if intercepts is None else {"intercepts": intercepts}
    node = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "scores"],
        name="head",
        domain="ai.onnx.ml",
        coefficients=np.ravel(coefficients).tolist(),
        post_transform=post,
        multi_class=multi,
        classlabels_ints=list(range(labels)),
        **biases,
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, ["N", 4])],
        [
            helper.make_tensor_value_info("label", T.INT64, ["N"]),
            helper.make_tensor_value_info("scores", T.FLOAT, ["N", "C"]),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    )


def test_one_row_of_coefficients_is_one_logit(tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    w, x = RNG.normal(size=(1, 4)).astype(np.float32), RNG.normal(size=(200, 4)).astype(np.float32)
    made(path, w, [0.2], multi=0, labels=2)
    assert inspect_file(path).layers[0].shape == (1, 4)
    adjust_file(path, out, lh.rules.Shift(0.5), COUNTS[2])
    score = x @ w[0] + 0.2
    assert (label(path, x) == (score > 0)).all()
    assert (label(out, x) == (score + 0.5 * np.log(4) > 0)).all()


def test_text_that_is_not_utf8_is_no_softmax(tmp_path):
    made(tmp_path / "m.onnx", [-np.ones(4), np.ones(4)], [-1.0, 1.0], "LOGISTIC", 0, 2)
    data = (tmp_path / "m.onnx").read_bytes()
    (tmp_path / "m.onnx").write_bytes(data.replace(b"LOGISTIC", b"\xff" * 8))
    assert inspect_file(tmp_path / "m.onnx").layers[0].shape == (1, 4)


def test_two_opposite_rows_under_a_softmax_are_two_logits(tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    w, x = RNG.normal(size=4).astype(np.float32), RNG.normal(size=(200, 4)).astype(np.float32)
    made(path, [-w, w], [-0.1, 0.1], "SOFTMAX", labels=2)
    adjust_file(path, out, lh.rules.Shift(0.5), COUNTS[2])
    z = np.stack([-(x @ w) - 0.1, x @ w + 0.1], axis=1) + 0.5 * np.log(160 / np.array(COUNTS[2]))
    assert (label(out, x) == z.argmax(axis=1)).all()


def test_head_is_read_written_and_described(tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    model = written(path, LogisticRegression(), 3, names=["often", "seldom", "rare"])
    head = read_head(path)
    assert np.allclose(head.weight, model.coef_)
    assert np.allclose(head.bias, model.intercept_)
    assert inspect_file(path).names == ("often", "rare", "seldom")  # in the order of the file
    assert inspect_file(path, counts={"rare": 20, "often": 120, "seldom": 60}).counts.tolist() == [
        120,
        20,
        60,
    ]
    write_head(path, out, replace(head, weight=head.weight * 2))
    assert np.allclose(read_head(out).weight, model.coef_ * 2)
    binary = tmp_path / "b.onnx"
    model = written(binary, LogisticRegression(), 2)
    head = read_head(binary)
    assert np.allclose(head.weight, model.coef_)
    write_head(binary, tmp_path / "c.onnx", replace(head, weight=-head.weight, bias=-head.bias))
    x, _ = data(2)
    assert (label(tmp_path / "c.onnx", x) == 1 - model.predict(x)).all()


@pytest.mark.parametrize(
    ("coefficients", "intercepts", "labels"),
    [(np.ones((3, 4)), [1.0, 2], 3), (np.ones(7), [1.0, 2, 3], 3), (np.ones((3, 4)), None, 3)],
)
def test_numbers_that_do_not_fit_the_classes_are_refused(
    coefficients, intercepts, labels, tmp_path
):
    made(tmp_path / "m.onnx", coefficients, intercepts, labels=labels)
    with pytest.raises(ValueError, match=r"LinearClassifier 'head' has .* export the model again"):
        inspect_file(tmp_path / "m.onnx")


def test_what_has_no_head_says_what_to_do(tmp_path):
    written(tmp_path / "tree.onnx", DecisionTreeClassifier(max_depth=2), 3)
    with pytest.raises(ValueError, match=r"TreeEnsembleClassifier.*has no head.*adjust its scores"):
        inspect_file(tmp_path / "tree.onnx")


OTHERS = {
    "MLP": lambda: MLPClassifier((5,), max_iter=5),
    "SGD": SGDClassifier,
    "SGD, logistic": lambda: SGDClassifier(loss="log_loss"),
    "one against the rest, logistic": lambda: OneVsRestClassifier(LogisticRegression()),
    "one against the rest, SVM": lambda: OneVsRestClassifier(LinearSVC()),
    "one against the rest, SGD": lambda: OneVsRestClassifier(SGDClassifier()),
}


@pytest.mark.parametrize("rule", ["shift", "rescale"])
@pytest.mark.parametrize("kind", OTHERS)
def test_other_linear_ends_that_skl2onnx_writes_are_found(kind, rule, tmp_path):
    path, out, back = (tmp_path / name for name in ("m.onnx", "out.onnx", "back.onnx"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = written(path, OTHERS[kind](), 3)
    adjust_file(path, out, own_rule(rule, 0.5), COUNTS[3])
    x = np.random.default_rng(1).normal(size=(3000, 4)).astype(np.float32)
    ratios = 120 / np.array(COUNTS[3])
    if kind == "MLP" and rule == "shift":
        want = (np.log(model.predict_proba(x)) + 0.5 * np.log(ratios)).argmax(axis=1)
    elif kind == "MLP":
        want = (hidden(model, x) @ model.coefs_[-1] + model.intercepts_[-1]) * ratios**0.5
        want = want.argmax(axis=1)
    elif rule == "shift":
        want = (model.decision_function(x) + 0.5 * np.log(ratios)).argmax(axis=1)
    else:
        want = (model.decision_function(x) * ratios**0.5).argmax(axis=1)
    assert (want != model.predict(x)).sum() > 5
    assert (label(out, x) == want).mean() > 0.999  # skl2onnx computes in float32
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


def hidden(model, x):
    return np.maximum(x @ model.coefs_[0] + model.intercepts_[0], 0)


BINARY_OTHERS = {
    "SGD": SGDClassifier,
    "SGD, logistic": lambda: SGDClassifier(loss="log_loss"),
    "one against the rest, logistic": lambda: OneVsRestClassifier(LogisticRegression()),
}


@pytest.mark.parametrize("kind", BINARY_OTHERS)
def test_two_scores_that_are_made_of_one_logit_are_one(kind, tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    model = written(path, BINARY_OTHERS[kind](), 2)
    x, _ = data(2, seed=1)
    adjust_file(path, out, lh.rules.Shift(0.7), COUNTS[2])
    want = model.decision_function(x).ravel() + 0.7 * np.log(160 / 40) > 0
    assert (want != model.predict(x)).sum() > 2
    assert (label(out, x) == want).all()


def outputs(path, x):
    """Return the labels and the scores that a file gives."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})


SCORED = {
    "logistic": (LogisticRegression, {"raw_scores": True}),
    "SGD": (SGDClassifier, {"raw_scores": True}),
    "logistic, as probabilities": (LogisticRegression, {}),
    "SGD, as probabilities": (lambda: SGDClassifier(loss="log_loss"), {}),
}


@pytest.mark.parametrize("kind", SCORED)
def test_what_was_tuned_on_two_scores_of_one_logit_arrives(kind, tmp_path):
    path, out, back = (tmp_path / name for name in ("m.onnx", "out.onnx", "back.onnx"))
    make, options = SCORED[kind]
    written(path, make(), 2, zipmap=False, **options)
    x, _ = data(2, seed=1)
    plain, scores = outputs(path, x)
    tuned = tuned_for("offsets", counts=COUNTS[2], kind="logits" if options else "probabilities")
    tuned = replace(tuned, adjustment=lh.Adjustment(np.ones(2), np.array([0.0, 2.5])))
    done = adjust_file(path, out, tuned)
    assert any("half" in note for note in done.notes) == bool(options)
    adjusted, _ = outputs(out, x)
    assert (adjusted == tuned.apply(scores).argmax(axis=1)).all()
    assert (adjusted != plain).sum() > 5
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("softmax", [True, False])
def test_of_two_opposite_scores_that_others_wrote(softmax, tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    w = RNG.normal(size=(4, 1)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["z"]),
        helper.make_node("Neg", ["z"], ["n"]),
        helper.make_node("Concat", ["n", "z"], ["pair"], axis=1),
        helper.make_node("Softmax" if softmax else "Identity", ["pair"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info(name, T.FLOAT, ["N", size])
        for name, size in (("x", 4), ("y", 2))
    ]
    tensors = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(w[:1, 0] * 0, "b")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    x, _ = data(2, seed=1)
    [scores] = outputs(path, x)
    tuned = tuned_for("shift", 0.7, COUNTS[2], kind="probabilities" if softmax else "logits")
    adjust_file(path, out, tuned)
    assert (outputs(out, x)[0].argmax(axis=1) == tuned.apply(scores).argmax(axis=1)).all()
    # By counts alone it is the log-odds that are shifted: 2 z in a softmax, and z otherwise.
    adjust_file(path, tmp_path / "counts.onnx", lh.rules.Shift(0.7), COUNTS[2])
    odds = scores[:, 1]
    if softmax:
        odds = np.log(scores[:, 1] / scores[:, 0])
    want = odds + 0.7 * np.log(160 / 40) > 0
    assert (outputs(tmp_path / "counts.onnx", x)[0].argmax(axis=1) == want).all()


@pytest.mark.parametrize("kind", ["probabilities", "log-probabilities", "logits"])
@pytest.mark.parametrize("model", ["SGD, logistic", "one against the rest, logistic"])
def test_what_was_tuned_on_competing_sigmoids_does_not_arrive(model, kind, tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    written(path, OTHERS[model](), 3)
    tuned = tuned_for("offsets", counts=COUNTS[3], kind=kind)
    if kind == "logits":
        adjust_file(path, out, tuned)
        return
    with pytest.raises(ValueError, match=r"gives a sigmoid for each class.*raw_scores"):
        adjust_file(path, out, tuned)
    assert not out.exists()


def test_scores_that_end_at_a_clip_are_adjusted_where_the_layer_is_named(tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    model = written(path, SGDClassifier(loss="modified_huber"), 3)
    with pytest.raises(ValueError, match=r"follows the head, and may mix.*pass head to name"):
        adjust_file(path, out, lh.rules.Shift(0.5), COUNTS[3])
    adjust_file(path, out, lh.rules.Shift(0.5), COUNTS[3], head="coef")
    head = read_head(out, "coef")
    assert np.allclose(head.weight, model.coef_)
    added = 0.5 * np.log(120 / np.array(COUNTS[3]))
    assert np.allclose(head.bias, model.intercept_ + added, atol=1e-5)


def test_joined_rows_are_undone_by_the_note(tmp_path):
    path, out, back = (tmp_path / name for name in ("m.onnx", "out.onnx", "back.onnx"))
    written(path, OneVsRestClassifier(LogisticRegression()), 3)
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS[3], original=False)
    assert not undo_file(out, back).exact
    assert np.allclose(read_head(back).weight, read_head(path).weight, rtol=1e-6)
    x, _ = data(3, seed=1)
    assert (label(back, x) == label(path, x)).all()


def quantized(path, how):
    w, x = (
        RNG.normal(size=(4, 3)).astype(np.float32),
        helper.make_tensor_value_info("x", T.FLOAT, ["N", 4]),
    )
    bias = numpy_helper.from_array(np.zeros(3, np.float32), "b")
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["m"], name="mm"),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    y = helper.make_tensor_value_info("y", T.FLOAT, ["N", 3])
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(w, "W"), bias])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path.with_suffix(".float.onnx"))
    how(path.with_suffix(".float.onnx"), path)


@pytest.mark.parametrize("kind", ["dynamic", "static", "4 bits"])
def test_quantized_graph_is_refused_as_such(kind, tmp_path, caplog):
    quantization = pytest.importorskip("onnxruntime.quantization")

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.batches = iter([{"x": RNG.normal(size=(8, 4)).astype(np.float32)}])

        def get_next(self):
            return next(self.batches, None)

    def by_blocks(source, out):
        model = onnx.load(source)
        packed = [numpy_helper.from_array(np.zeros((3, 1, 8), np.uint8), "W4")]
        model.graph.initializer.extend(
            [*packed, numpy_helper.from_array(np.ones(3, np.float32), "s")]
        )
        node = helper.make_node(
            "MatMulNBits",
            ["x", "W4", "s"],
            ["m"],
            domain="com.microsoft",
            K=4,
            N=3,
            bits=4,
            block_size=16,
        )
        model.graph.node[0].CopyFrom(node)
        onnx.save(model, out)

    ways = {
        "dynamic": lambda source, out: quantization.quantize_dynamic(source, out),
        "static": lambda source, out: quantization.quantize_static(source, out, Reader()),
        "4 bits": by_blocks,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized(tmp_path / "q.onnx", ways[kind])
    with pytest.raises(ValueError, match=r"quantized.*adjust the model before"):
        inspect_file(tmp_path / "q.onnx")
