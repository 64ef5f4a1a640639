"""What only picks entries of a head's outputs in ONNX: after the classes competed, or along another axis."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper
from onnx.numpy_helper import from_array as raw

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from ..heads.chosen import tuned_for

K, D, STEPS = 6, 8, 4
COUNTS = [400, 100, 25, 16, 4, 1]
FACTORS = (400 / np.array(COUNTS)) ** 0.5
RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((D, K)).astype(np.float32), RNG.standard_normal(K).astype(np.float32)


def node(op, inputs, *outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs, name=f"n_{outputs[0]}", **attributes)


def ints(name, *values):
    return raw(np.array(values, np.int64), name)


def save(path, nodes, tensors=(), *, shape=("N", D), kind=T.FLOAT, rank=2):
    used = {name for part in nodes for name in part.input}
    held = [part for part in (raw(W, "W"), raw(B, "b"), *tensors) if part.name in used]
    inputs = helper.make_tensor_value_info("x", T.FLOAT, shape)
    shown = helper.make_tensor_value_info("y", kind, [f"n{i}" for i in range(rank)])
    graph = helper.make_graph(nodes, "g", [inputs], [shown], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def features(shape):
    sizes = [5 if isinstance(n, str) else n for n in shape]
    return np.random.default_rng(1).standard_normal(sizes).astype(np.float32)


def run(path, shape=("N", D)):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": features(shape)})[0]


def shifted(shape=("N", D)):
    return features(shape) @ W + B + np.log(FACTORS)


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


GEMM = node("Gemm", "x W b", "h")
SOFTMAX = [GEMM, node("Softmax", "h", "p", axis=1)]
ARGMAX = [GEMM, node("ArgMax", "h", "a", axis=1, keepdims=0)]
TABLE = ints("table", 60, 50, 40, 30, 20, 10)
ONE_TO_THREE = [ints("one", 1), ints("three", 3)]
LABELS = np.array([60, 50, 40, 30, 20, 10])
AFTER = {  # nodes, tensors, type and rank of the output, what is expected
    "Transpose": ([*SOFTMAX, node("Transpose", "p", "y", perm=[1, 0])], [], T.FLOAT, 2, lambda z: softmax(z).T),
    "Transpose of labels": (
        [GEMM, node("ArgMax", "h", "a", axis=1), node("Transpose", "a", "y")], [], T.INT64, 2,
        lambda z: z.argmax(axis=1)[None],
    ),
    "Slice of classes": (
        [*SOFTMAX, node("Slice", "p one three one", "y")], ONE_TO_THREE, T.FLOAT, 2, lambda z: softmax(z)[:, 1:3],
    ),
    "Split": (
        [*SOFTMAX, node("Split", "p sizes", "y", "rest", axis=1)], [ints("sizes", 2, 4)], T.FLOAT, 2,
        lambda z: softmax(z)[:, :2],
    ),
    "Gather of a class": (
        [*SOFTMAX, node("Gather", "p at", "y", axis=1)], [ints("at", 1)], T.FLOAT, 2, lambda z: softmax(z)[:, [1]],
    ),
    "labels by a table": (
        [*ARGMAX, node("Gather", "table a", "y")], [TABLE], T.INT64, 1, lambda z: LABELS[z.argmax(axis=1)],
    ),
    "a Slice of labels": (
        [*ARGMAX, node("Slice", "a one three", "y")], ONE_TO_THREE, T.INT64, 1, lambda z: z.argmax(axis=1)[1:3],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", AFTER)
def test_what_comes_after_the_classes_competed_only_picks(kind, tmp_path):
    nodes, tensors, form, rank, expected = AFTER[kind]
    path, out, back = (tmp_path / name for name in ("m.onnx", "o.onnx", "back.onnx"))
    save(path, nodes, tensors, kind=form, rank=rank)
    adjust_file(path, out, lh.rules.Shift(0.5), COUNTS)
    np.testing.assert_allclose(run(out), expected(shifted()), rtol=1e-4, atol=1e-6)
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


TURNED = {
    "Gather": ([node("Gather", "p order", "y", axis=1)], [ints("order", *range(K - 1, -1, -1))]),
    "Slice": (
        [node("Slice", "p last before one back", "y")],
        [ints("last", K - 1), ints("before", -K - 1), ints("one", 1), ints("back", -1)],
    ),
}


@pytest.mark.parametrize("kind", TURNED)
def test_classes_in_another_order_than_the_rows_are_refused(kind, tmp_path):
    nodes, tensors = TURNED[kind]
    path = save(tmp_path / "m.onnx", [*SOFTMAX, *nodes], tensors)
    with pytest.raises(ValueError, match="puts the classes in another order than its rows; pass"):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(0.5), COUNTS)
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(0.5), COUNTS, head="W")
    expected = softmax(shifted())[:, ::-1]
    np.testing.assert_allclose(run(tmp_path / "o.onnx"), expected, rtol=1e-4, atol=1e-6)


SEQUENCE = ("N", STEPS, D)
LINEAR = [node("MatMul", "x W", "m"), node("Add", "m b", "h")]
LAST = [ints("last", STEPS - 1), ints("end", STEPS), ints("time", 1)]
BEFORE = {  # nodes behind the layer, tensors, rank, what is picked of the scores
    "Slice": ([node("Slice", "h last end time", "q")], LAST, 3, lambda z: z[:, -1:]),
    "Slice along the first axes": (
        [node("Slice", "h zeros ends", "q")], [ints("zeros", 0, 1), ints("ends", 99, 3)], 3, lambda z: z[:, 1:3],
    ),
    "Gather of a step": ([node("Gather", "h at", "q", axis=1)], [raw(np.array(2), "at")], 2, lambda z: z[:, 2]),
    "Gather of steps": ([node("Gather", "h last", "q", axis=1)], LAST, 3, lambda z: z[:, [-1]]),
    "Split": ([node("Split", "h sizes", "q", "r", axis=1)], [ints("sizes", 1, 3)], 3, lambda z: z[:, :1]),
}  # fmt: skip


@pytest.mark.parametrize("kind", BEFORE)
def test_what_picks_along_time_leaves_the_classes_alone(kind, tmp_path):
    nodes, tensors, rank, pick = BEFORE[kind]
    nodes = [*LINEAR, *nodes, node("Softmax", "q", "y", axis=rank - 1)]
    path = save(tmp_path / "m.onnx", nodes, tensors, shape=SEQUENCE, rank=rank)
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(0.5), COUNTS)
    expected = softmax(pick(shifted(SEQUENCE)))
    np.testing.assert_allclose(run(tmp_path / "o.onnx", SEQUENCE), expected, rtol=1e-4, atol=1e-6)


def test_a_softmax_over_time_behind_a_pick_is_still_refused(tmp_path):
    nodes, tensors, rank, _ = BEFORE["Slice along the first axes"]
    nodes = [*LINEAR, *nodes, node("Softmax", "q", "y", axis=1)]
    path = save(tmp_path / "m.onnx", nodes, tensors, shape=SEQUENCE, rank=rank)
    with pytest.raises(ValueError, match="over another axis than that of the classes"):
        inspect_file(path)


PICKED = {
    "Slice": ([GEMM, node("Slice", "h one three one", "y")], ONE_TO_THREE),
    "Slice by what is computed": (
        [
            GEMM,
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n"),
            node("Slice", "h one n one", "y"),
        ],
        [*ONE_TO_THREE, ints("zero", 0)],
    ),
    "Gather": ([GEMM, node("Gather", "h one", "y", axis=1)], ONE_TO_THREE),
    "Split": ([GEMM, node("Split", "h sizes", "y", "rest", axis=1)], [ints("sizes", 2, 4)]),
}


@pytest.mark.parametrize("kind", PICKED)
def test_picked_classes_are_adjusted_only_where_the_layer_is_named(kind, tmp_path):
    nodes, tensors = PICKED[kind]
    path, out = save(tmp_path / "m.onnx", nodes, tensors), tmp_path / "o.onnx"
    with pytest.raises(
        ValueError, match=r"picks? some of the classes; pass head to name the layer"
    ):
        adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    for name in ("W", "n_h"):
        adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, head=name, force=True)
    shown = run(path)
    first = 0 if kind == "Split" else 1
    by = FACTORS[first : first + shown.shape[1]]
    np.testing.assert_allclose(run(out), shown * by, rtol=1e-4)


def test_a_name_of_a_layer_that_the_output_does_not_come_from_is_refused(tmp_path):
    nodes = [GEMM, node("Slice", "h one three one", "y"), node("MatMul", "x V", "unused")]
    path = save(tmp_path / "m.onnx", nodes, [*ONE_TO_THREE, raw(W + 1, "V")])
    with pytest.raises(ValueError, match="picks some of the classes"):
        inspect_file(path, head="V")


@pytest.mark.parametrize("op", ["Softmax", "ReduceMean"])
def test_what_is_known_to_be_wrong_stays_so_where_the_layer_is_named(op, tmp_path):
    how = {"axis": 0} if op == "Softmax" else {"axes": [1]}
    path = save(tmp_path / "m.onnx", [GEMM, node(op, "h", "y", **how)])
    with pytest.raises(ValueError, match=r"another axis|over the classes"):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS, head="W")


def dynamic(nodes):
    """The shape of a Reshape as it comes from outside: nothing is known of it but when it runs."""
    return [
        node("Shape", "x", "s"), node("Gather", "s firsts", "f"), node("Shape", "b", "k"),
        node("Compress", "f all", "g"), node("Compress", "k one_all", "l"), node("Concat", "g l", "target", axis=0),
        *nodes,
    ]  # fmt: skip


def test_a_bias_is_added_to_what_a_dynamic_reshape_made(tmp_path):
    nodes = dynamic(
        [
            node("Reshape", "x flat", "u"),
            node("MatMul", "u W", "m"),
            node("Reshape", "m target", "h"),
            node("Add", "h c", "y"),
        ]
    )
    tensors = [
        ints("firsts", 0, 1),
        raw(np.ones(2, bool), "all"),
        raw(np.ones(1, bool), "one_all"),
        ints("flat", -1, D),
        raw(B + 1, "c"),
    ]
    path = save(tmp_path / "m.onnx", nodes, tensors, shape=SEQUENCE, rank=3)
    before = run(path, SEQUENCE)
    for rule, expected in (
        (lh.rules.Rescale(0.5), before * FACTORS),
        (lh.rules.Shift(0.5), before + np.log(FACTORS)),
    ):
        adjust_file(path, tmp_path / "o.onnx", rule, COUNTS, force=True)
        np.testing.assert_allclose(
            run(tmp_path / "o.onnx", SEQUENCE), expected, rtol=1e-4, atol=1e-5
        )


def test_sigmoids_that_compete_outside_are_adjusted_where_that_is_said(tmp_path):
    path = save(tmp_path / "m.onnx", [GEMM, node("Sigmoid", "h", "y")])
    tuned = tuned_for("shift", 0.5, np.array(COUNTS))
    with pytest.raises(ValueError, match=r"a Sigmoid follows it.*pass task='multiclass'"):
        adjust_file(path, tmp_path / "o.onnx", tuned)
    adjust_file(path, tmp_path / "o.onnx", tuned, task="multiclass")
    expected = shifted().argmax(axis=1)
    assert (expected != run(path).argmax(axis=1)).any()
    assert (run(tmp_path / "o.onnx").argmax(axis=1) == expected).all()


def rows(op, axis, shape):
    """Two layers of one row each, side by side along an axis."""
    weight = W[:, :1] if op == "MatMul" else W[:, :1].T.reshape(1, D, *[1] * (len(shape) - 2))
    tensors = [raw(weight.copy() * i, f"W{i}") for i in (1, 2)]
    tensors += [
        raw(B[:1].reshape([1] * (len(shape) - 1 if op == "MatMul" else 1)), f"b{i}") for i in (1, 2)
    ]
    nodes = []
    for i in (1, 2):
        if op == "MatMul":
            nodes += [node("MatMul", f"x W{i}", f"m{i}"), node("Add", f"m{i} b{i}", f"h{i}")]
        else:
            nodes.append(node("Conv", f"x W{i} b{i}", f"h{i}"))
    nodes += [node("Concat", "h1 h2", "c", axis=axis), node("ArgMax", "c", "y", axis=axis)]
    return nodes, tensors


@pytest.mark.parametrize(
    ("op", "axis", "shape"),
    [("MatMul", 1, ("N", D)), ("MatMul", -1, SEQUENCE), ("Conv", 1, ("N", D, 3, 3))],
)
def test_layers_of_one_row_side_by_side_along_the_classes_are_a_head(op, axis, shape, tmp_path):
    nodes, tensors = rows(op, axis, shape)
    path = save(tmp_path / "m.onnx", nodes, tensors, shape=shape, kind=T.INT64, rank=len(shape))
    run(path, shape)
    assert inspect_file(path).layers[0].key == "W1...W2"


def test_layers_of_one_row_side_by_side_in_time_are_none(tmp_path):
    nodes, tensors = rows("MatMul", 1, SEQUENCE)
    path = save(tmp_path / "m.onnx", nodes, tensors, shape=SEQUENCE, kind=T.INT64, rank=3)
    run(path, SEQUENCE)
    with pytest.raises(ValueError, match="of values that are not one for each class"):
        inspect_file(path)
