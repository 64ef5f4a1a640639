"""Heads as exporters write them in ONNX: reshaped, cast, a softmax written out, several places in one layer."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper
from onnx.numpy_helper import from_array as raw

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from ..heads.chosen import own_rule, tuned_for

K, D, STEPS = 6, 8, 4
COUNTS = [400, 100, 25, 16, 4, 1]
FACTORS = (400 / np.array(COUNTS)) ** 0.5
RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((D, K)).astype(np.float32), RNG.standard_normal(K).astype(np.float32)


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), [output], name=f"n_{output}", **attributes)


def ints(name, *values):
    return raw(np.array(values, np.int64), name)


def save(path, nodes, tensors=(), *, shape=("N", D), rank=None):
    used = {name for part in nodes for name in part.input} - {
        name for part in nodes for name in part.output
    }
    held = [part for part in (raw(W, "W"), raw(B, "b"), *tensors) if part.name in used]
    sizes = {"x": shape, "y": [f"n{i}" for i in range(rank or len(shape))]}
    values = [helper.make_tensor_value_info(name, T.FLOAT, size) for name, size in sizes.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def run(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shape = [3 if isinstance(n, str) else n for n in session.get_inputs()[0].shape]
    return session.run(
        None, {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    )[0]


GEMM = node("Gemm", "x W b", "h")
SEQUENCE = [
    node("Reshape", "x flat", "f"),
    node("MatMul", "f W", "m"),
    node("Reshape", "m steps", "h"),
]
SIZES = [ints("flat", -1, D), ints("steps", -1, STEPS, K)]
JOINED = [  # the shape of the steps as TensorFlow computes it, of an input of which shape inference knows nothing
    node("Shape", "x", "l"), node("Compress", "l all", "same"), node("Reshape", "x same", "u"), node("Shape", "u", "v"),
    node("Cast", "v", "i", to=T.INT32), node("Gather", "i at", "j"), node("Concat", "j size", "c", axis=0),
    node("Cast", "c", "steps", to=T.INT64), node("Reshape", "u flat", "f"), *SEQUENCE[1:],
]  # fmt: skip
PARTS = [
    raw(np.ones(3, bool), "all"),
    ints("at", 0, 1),
    raw(np.array([K], np.int32), "size"),
    SIZES[0],
]
LINEAR = {  # nodes, tensors, shape of the input
    "Dense on sequences": ([*SEQUENCE, node("Add", "h b", "y")], SIZES, ("N", STEPS, D)),
    "Dense on sequences of any length": ([*JOINED, node("Add", "h b", "y")], PARTS, ("N", "T", D)),
    "Cast to the same type": (
        [node("MatMul", "x W", "m"), node("Cast", "m", "h", to=T.FLOAT), node("Add", "h b", "y")],
        [],
        ("N", D),
    ),
    "weights through a constant Reshape": (
        [
            node("Reshape", "V s", "W"),
            node("Reshape", "c t", "b"),
            node("MatMul", "x W", "h"),
            node("Add", "h b", "y"),
        ],
        [
            raw(W.reshape(2, 4, K), "V"),
            ints("s", -1, K),
            raw(B.reshape(K, 1, 1), "c"),
            ints("t", 1, K),
        ],
        ("N", D),
    ),
    "reshaped, then transposed": (
        [
            node("Reshape", "V s", "U"),
            node("Transpose", "U", "W", perm=[1, 0]),
            node("MatMul", "x W", "y"),
        ],
        [raw(W.T.reshape(K, 2, 4).copy(), "V"), ints("s", K, D)],
        ("N", D),
    ),
    "Conv and its bias": (
        [node("Conv", "x C", "h"), node("Add", "h c", "y")],
        [raw(W.T[:, :, None].copy(), "C"), raw(B[:, None], "c")],
        ("N", D, K),
    ),
}


@pytest.mark.parametrize("rule", ["rescale", "shift"])
@pytest.mark.parametrize("kind", LINEAR)
def test_onnxruntime_gives_the_adjusted_logits(kind, rule, tmp_path):
    nodes, tensors, shape = LINEAR[kind]
    path, out, back = (tmp_path / f"{name}.onnx" for name in ("m", "o", "back"))
    before = run(save(path, nodes, tensors, shape=shape))
    by = FACTORS if rule == "rescale" else 0.5 * np.log(400 / np.array(COUNTS))
    by = by[:, None] if "Conv" in kind else by
    adjust_file(path, out, own_rule(rule, 0.5), COUNTS)
    np.testing.assert_allclose(
        run(out), before * by if rule == "rescale" else before + by, rtol=1e-4, atol=1e-5
    )
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


def softmax(axis=-1, over="h", *, least=True, keepdims=1):
    """A softmax of h as magika has it."""
    less = (
        [node("ReduceMax", over, "top", axes=[axis], keepdims=1), node("Sub", "h top", "l")]
        if least
        else []
    )
    rest = [
        node("Exp", "l" if least else "h", "e"),
        node("ReduceSum", "e axes", "s", keepdims=keepdims),
    ]
    return [*less, *rest, node("Div", "e s", "y")], [ints("axes", axis)]


@pytest.mark.parametrize(
    "how", [{}, {"least": False}, {"over": "x"}], ids=["less its largest", "plain", "less any"]
)
@pytest.mark.parametrize("axis", [1, -1])
def test_a_softmax_written_out_is_one(axis, how, tmp_path):
    nodes, tensors = softmax(axis, **how)
    path = save(tmp_path / "m.onnx", [GEMM, *nodes], tensors)
    before = run(path).astype(np.float64)
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(0.5), COUNTS)
    expected = before * FACTORS
    np.testing.assert_allclose(
        run(tmp_path / "o.onnx"), expected / expected.sum(1, keepdims=True), atol=1e-5
    )


def jax_softmax(rows):
    """A softmax of h as jax2tf has it: the reduced axis is put back by a Reshape, and Expand does nothing."""
    reduced = [node("ReduceMax", "h", "t", axes=[1], keepdims=0), node("Max", "low t", "top")]
    less = [
        node("Reshape", "top column", "c"),
        node("Expand", "c column", "d"),
        node("Sub", "h d", "l"),
    ]
    rest = [
        node("Exp", "l", "e"),
        node("ReduceSum", "e axes", "s", keepdims=0),
        node("Reshape", "s column", "r"),
    ]
    tensors = [ints("axes", 1), ints("column", *rows), raw(np.array(-np.inf, np.float32), "low")]
    return [
        *reduced,
        *less,
        *rest,
        node("Expand", "r column", "q"),
        node("Div", "e q", "y"),
    ], tensors


def test_a_softmax_as_jax_writes_it_is_one(tmp_path):
    nodes, tensors = jax_softmax((3, 1))
    path = save(tmp_path / "m.onnx", [GEMM, *nodes], tensors, shape=(3, D))
    before = run(path).astype(np.float64)
    np.testing.assert_allclose(before.sum(1), 1, rtol=1e-5)
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(0.5), COUNTS)
    expected = before * FACTORS
    np.testing.assert_allclose(
        run(tmp_path / "o.onnx"), expected / expected.sum(1, keepdims=True), atol=1e-5
    )


def test_sums_that_are_put_along_the_classes_make_no_softmax(tmp_path):
    nodes, tensors = jax_softmax((1, K))
    path = save(tmp_path / "m.onnx", [GEMM, *nodes], tensors, shape=(K, D))
    run(path)
    with pytest.raises(ValueError, match="Div 'n_y' follows the head"):
        inspect_file(path)


CONV = [node("Conv", "x C", "h")], [raw(W.T[:, :, None, None].copy(), "C")], ("N", D, 2, STEPS)


@pytest.mark.parametrize("axis", [3, -1])
def test_pixels_that_are_turned_to_have_their_classes_last_are_a_head(axis, tmp_path):
    nodes, tensors, shape = CONV
    nodes = [
        *nodes,
        node("Transpose", "h", "t", perm=[0, 2, 3, 1]),
        node("Softmax", "t", "y", axis=axis),
    ]
    path = save(tmp_path / "m.onnx", nodes, tensors, shape=shape)
    before = run(path).astype(np.float64)
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(0.5), COUNTS)
    expected = before * FACTORS
    np.testing.assert_allclose(
        run(tmp_path / "o.onnx"), expected / expected.sum(-1, keepdims=True), atol=1e-5
    )


TURNED = {
    "a softmax over the width": [node("Transpose", "h", "t", perm=[0, 2, 1, 3]), node("Softmax", "t", "y", axis=3)],
    "turned to the samples": [node("Transpose", "h", "t"), node("Softmax", "t", "y", axis=0)],
    "several places": [
        node("Transpose", "h", "t", perm=[0, 2, 3, 1]), node("Reshape", "t places", "y"),
    ],
    "mixed, then turned": [node("Reshape", "h mixed", "t"), node("Transpose", "t", "y", perm=[0, 2, 1])],
}  # fmt: skip


@pytest.mark.parametrize("kind", TURNED)
def test_classes_that_a_transpose_puts_elsewhere_are_refused(kind, tmp_path):
    nodes, tensors, shape = CONV
    shapes = [ints("places", -1, 2 * STEPS * 2, 3), ints("mixed", 0, 3, -1)]
    path = save(
        tmp_path / "m.onnx",
        [*nodes, *TURNED[kind]],
        [*tensors, *shapes],
        shape=shape,
        rank=4 if "softmax" in kind or "samples" in kind else 3,
    )
    run(path)
    with pytest.raises(
        ValueError, match=r"over another axis|2 places with 3 classes each|Transpose 'n_y' follows"
    ):
        inspect_file(path)


@pytest.mark.parametrize(
    ("rows", "steps", "bent"), [(1, STEPS, False), (1, 1, True), (1, STEPS, True), (K, STEPS, True)]
)
def test_a_mean_of_squeezed_steps_is_of_one_logit_only(rows, steps, bent, tmp_path):
    nodes = [node("Conv", "x C", "h"), node("Sigmoid" if bent else "Identity", "h", "p")]
    nodes += [node("Squeeze", "p axes", "q"), node("ReduceMean", "q", "y", axes=[-1])]
    tensors = [raw(W.T[:rows, :, None].copy(), "C"), ints("axes", 0)]
    path = save(tmp_path / "m.onnx", nodes, tensors, shape=(1, D, steps), rank=2)
    run(path)
    if rows == 1 and (steps == 1 or not bent):
        assert inspect_file(path).layers[0].shape == (1, D, 1)
        return
    with pytest.raises(ValueError, match=r"mean may be over the classes|follows the probabilities"):
        inspect_file(path)


STEPPED = (
    node("Reshape", "x flat", "f"),
    node("Gemm", "f W b", "g"),
    node("Reshape", "g steps", "h"),
)
AFTER_PROBABILITIES = {
    "a mean over steps": (node("ReduceMean", "p", "y", axes=[1], keepdims=0), 2),
    "a softmax": (node("Softmax", "p", "y"), 3),
    "a sigmoid": (node("Sigmoid", "p", "y"), 3),
    "a sum with another's": (node("Add", "p p2", "y"), 3),
}


@pytest.mark.parametrize("bent", ["Softmax", "Sigmoid", "LogSoftmax"])
@pytest.mark.parametrize("kind", AFTER_PROBABILITIES)
def test_what_is_done_to_probabilities_as_if_to_scores_is_refused(kind, bent, tmp_path):
    last, rank = AFTER_PROBABILITIES[kind]
    nodes = [*STEPPED, node(bent, "h", "p"), last]
    tensors = [*SIZES, raw(W[::-1].copy(), "W2")]
    if "p2" in last.input:
        other = [node("MatMul", "x W2", "h2"), node(bent, "h2", "p2")]
        nodes[-1:] = [*other, last]
    path = save(tmp_path / "m.onnx", nodes, tensors, shape=("N", STEPS, D), rank=rank)
    run(path)
    if bent == "LogSoftmax":  # of which a mean, or a softmax, takes what is added as it is
        assert all(layer.shape == (D, K) for layer in inspect_file(path).layers)
        return
    with pytest.raises(ValueError, match=r"'n_y' follows the probabilities of the head"):
        inspect_file(path)
    assert inspect_file(path, head="W").layers[0].shape == (D, K)


def two_outputs(path, nodes, tensors):
    """Save a model whose first output is `y`, its second `z`, each of K columns."""
    sizes = {"x": ["N", D], "y": ["N", K], "z": ["N", K]}
    first, *others = (
        helper.make_tensor_value_info(*one)
        for one in ((name, T.FLOAT, size) for name, size in sizes.items())
    )
    held = [raw(W, "W"), raw(B, "b"), *tensors]
    graph = helper.make_graph(nodes, "g", [first], others, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


OTHER = [raw(W[::-1].copy(), "W2"), raw(B[::-1].copy(), "b2")]
LIMITS = [raw(np.array(n, np.float32), name) for n, name in ((-9, "low"), (9, "high"))]
CLIPPED = node("Clip", "h low high", "y")


def test_an_output_that_is_not_understood_may_be_the_one_that_is_meant(tmp_path):
    nodes = [node("Gemm", "x W2 b2", "h"), CLIPPED, node("Gemm", "x W b", "z")]
    path = two_outputs(tmp_path / "m.onnx", nodes, [*OTHER, *LIMITS])
    with pytest.raises(ValueError, match=r"output 'y': comes from Clip.*pass head to name"):
        inspect_file(path)
    assert inspect_file(path, head="z").layers[0].key == "W"
    # What is computed from the head that was found is no rival.
    nodes = [node("Gemm", "x W b", "h"), CLIPPED, node("Identity", "h", "z")]
    path = two_outputs(tmp_path / "one.onnx", nodes, LIMITS)
    assert inspect_file(path).layers[0].key == "W"


@pytest.mark.parametrize("first", [node("Identity", "m", "y"), node("Add", "m b2", "y")], ids=str)
def test_a_product_with_two_biases_is_refused(first, tmp_path):
    nodes = [node("MatMul", "x W", "m"), first, node("Add", "m b", "z")]
    path = two_outputs(tmp_path / "m.onnx", nodes, OTHER[1:])
    with pytest.raises(ValueError, match="more than one bias"):
        inspect_file(path)
    assert inspect_file(path, head="z").layers[0].key == "W"


def test_a_layer_on_what_the_head_gives_is_refused(tmp_path):
    nodes = [GEMM, node("Relu", "h", "r"), node("MatMul", "r V", "v"), node("Add", "h v", "y")]
    path = save(tmp_path / "m.onnx", nodes, [raw(np.eye(K, dtype=np.float32), "V")])
    run(path)
    with pytest.raises(ValueError, match="takes what it gives"):
        adjust_file(path, tmp_path / "out.onnx", lh.rules.Rescale(0.5), COUNTS)


@pytest.mark.parametrize("opset", [6, 7])
def test_a_bias_for_a_product_needs_broadcasting(opset, tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    model = onnx.load(save(path, [node("MatMul", "x W", "y")]))
    model.opset_import[0].version = opset
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("W", T.FLOAT, [D, K]))
    path.write_bytes(model.SerializeToString())
    if opset < 7:
        with pytest.raises(ValueError, match="needs opset 7, and it has 6"):
            adjust_file(path, out, lh.rules.Shift(0.5), COUNTS)
        assert not out.exists()
    else:
        done = adjust_file(path, out, lh.rules.Shift(0.5), COUNTS)
        np.testing.assert_allclose(run(out), run(path) + done.offset, atol=1e-5)


@pytest.mark.parametrize(
    "made", [softmax(0), ([node("Exp", "h", "e"), node("Div", "e h", "y")], [])], ids=str
)
def test_what_is_no_softmax_over_the_classes_is_refused(made, tmp_path):
    path = save(tmp_path / "m.onnx", [GEMM, *made[0]], made[1])
    with pytest.raises(ValueError, match=r"Div 'n_y' follows the head|comes from"):
        inspect_file(path)


PLACES = {
    "two places": [GEMM, node("Reshape", "h places", "y")],
    "two places, then a softmax": [
        GEMM,
        node("Reshape", "h places", "p"),
        node("Softmax", "p", "y", axis=-1),
    ],
}


@pytest.mark.parametrize("kind", PLACES)
def test_several_places_in_one_layer_are_not_that_many_classes(kind, tmp_path):
    path = save(tmp_path / "m.onnx", PLACES[kind], [ints("places", -1, 2, 3)], rank=3)
    with pytest.raises(
        ValueError,
        match=r"Reshape .* turns the 6 outputs of the head into 2 places with 3 classes each",
    ):
        inspect_file(path)


@pytest.mark.parametrize("kind", PLACES)
def test_rows_of_several_places_are_adjusted_where_the_layer_is_named(kind, tmp_path):
    path = save(tmp_path / "m.onnx", PLACES[kind], [ints("places", -1, 2, 3)], rank=3)
    with pytest.raises(
        ValueError, match="head to name the layer, with a count for each of its rows"
    ):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(0.5), COUNTS, head="W")
    before, after = run(path), run(tmp_path / "o.onnx")
    by = 0.5 * np.log(400 / np.array(COUNTS)).reshape(2, 3)
    if "softmax" in kind:
        expected = before * np.exp(by) / (before * np.exp(by)).sum(-1, keepdims=True)
    else:
        expected = before + by
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="expected 6"):
        adjust_file(path, tmp_path / "p.onnx", lh.rules.Rescale(0.5), COUNTS[:3], head="W")


def test_a_softmax_over_steps_and_classes_is_refused(tmp_path):
    nodes = [
        node("MatMul", "x W", "h"),
        node("Flatten", "h", "f"),
        node("Softmax", "f", "y", axis=-1),
    ]
    path = save(tmp_path / "m.onnx", nodes, shape=("N", STEPS, D), rank=2)
    with pytest.raises(ValueError, match="over another axis than that of the classes"):
        inspect_file(path)


@pytest.mark.parametrize(
    ("nodes", "tensors", "shape"),
    [
        (
            [node("Conv", "x C", "h"), node("Add", "h b", "y")],
            [raw(W.T[:, :, None].copy(), "C")],
            ("N", D, K),
        ),
        ([node("Gemm", "x W c", "y")], [raw(B[:, None], "c")], (K, D)),
    ],
    ids=["along the width", "along the samples"],
)
def test_what_is_added_along_another_axis_is_no_bias(nodes, tensors, shape, tmp_path):
    path = save(tmp_path / "m.onnx", nodes, tensors, shape=shape)
    run(path)
    with pytest.raises(ValueError, match="expected 6 numbers along the axis of the classes"):
        inspect_file(path)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "AveragePool"])
def test_a_mean_over_classes_that_come_last_is_refused(op, tmp_path):
    how = {"kernel_shape": [K]} if op == "AveragePool" else {}
    path = save(
        tmp_path / "m.onnx",
        [node("MatMul", "x W", "h"), node(op, "h", "y", **how)],
        shape=("N", STEPS, D),
    )
    assert run(path).shape == (3, STEPS, 1)
    with pytest.raises(
        ValueError, match=f"{op} 'n_y' follows the head, and its mean is over the classes"
    ):
        inspect_file(path)


def test_a_bias_behind_a_reshape_that_moves_the_classes_is_refused(tmp_path):
    nodes = [node("MatMul", "x W", "m"), node("Reshape", "m s", "h"), node("Add", "h c", "y")]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [ints("s", -1, K, STEPS), raw(B[:, None], "c")],
        shape=(2, STEPS, D),
    )
    run(path)
    with pytest.raises(ValueError, match="Add 'n_y' follows the head"):
        inspect_file(path)


def test_a_model_that_the_checker_dislikes_already_is_adjusted(tmp_path):
    """The nodes stand in another order than the checker wants; onnxruntime sorts them."""
    path = save(tmp_path / "m.onnx", [node("Identity", "h", "y"), GEMM])
    with pytest.raises(onnx.checker.ValidationError, match="sorted"):
        onnx.checker.check_model(path)
    before = run(path)
    for rule, expected in ("rescale", before * FACTORS), ("shift", before + np.log(FACTORS)):
        adjust_file(path, tmp_path / "o.onnx", own_rule(rule, 0.5), COUNTS, force=True)
        np.testing.assert_allclose(run(tmp_path / "o.onnx"), expected, rtol=1e-4, atol=1e-5)


def test_a_new_bias_and_a_new_name_of_the_weights_file_change_the_same_lengths(tmp_path):
    """An output in the folder of the input gives the external weights a name of their own."""
    path, out = tmp_path / "m.onnx", tmp_path / "a-much-longer-name-than-before.onnx"
    back = tmp_path / "back"
    save(path, [node("MatMul", "x V", "y")], [raw(W[:, :5].copy(), "V")])
    before = run(path)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w", size_threshold=0)
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    tuned = tuned_for("vector", 0.5, COUNTS[:5])
    adjust_file(path, out, tuned)
    adjust_file(out, tmp_path / "twice.onnx", tuned, again=True)
    once = tuned.adjustment.scores(before)
    np.testing.assert_allclose(run(out), once, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        run(tmp_path / "twice.onnx"), tuned.adjustment.scores(once), rtol=1e-4, atol=1e-5
    )
    onnx.checker.check_model(str(tmp_path / "twice.onnx"))
    back.mkdir()
    undo_file(out, back / "m.onnx")
    assert {file.name: file.read_bytes() for file in back.iterdir()} == kept
