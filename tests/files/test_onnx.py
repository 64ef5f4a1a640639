import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import levelhead as lh
from levelhead.files.model import adjust_file
from levelhead.files.onnx import READER
from levelhead.files.undo import undo_file

from .head_in_file import read_head, write_head

K, D = 5, 8
COUNTS = [400, 100, 25, 16, 4]
FACTORS = np.array([1, 2, 4, 5, 10])
RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((K, D)).astype(np.float32), RNG.standard_normal(K).astype(np.float32)
X = RNG.standard_normal((6, D)).astype(np.float32)
raw = numpy_helper.from_array


def typed(values, name, kind=T.FLOAT):
    return helper.make_tensor(name, kind, values.shape, values.ravel())


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), [output], name=f"n_{output}", **attributes)


def constant(values, output):
    return helper.make_node("Constant", [], [output], value=raw(values))


def save(path, nodes, tensors, *, outputs=("y",), inputs=(("x", ["N", D]),), **how):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, T.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, T.FLOAT, ["N", "C"]) for name in outputs],
        tensors,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    proto.metadata_props.add(key="author", value="somebody")
    onnx.save(proto, path, **how)
    return path


def run(path, x=X):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})


GEMM = node("Gemm", "x W b", "y", transB=1)
MODELS = {
    "Gemm, transB=1": ([GEMM], [raw(W, "W"), raw(B, "b")]),
    "Gemm, transB=0": ([node("Gemm", "x W b", "y")], [raw(W.T.copy(), "W"), raw(B, "b")]),
    "Gemm, alpha and beta": (
        [node("Gemm", "x W b", "y", transB=1, alpha=0.5, beta=3.0)],
        [raw(W, "W"), raw(B, "b")],
    ),
    "Gemm, no bias": ([node("Gemm", "x W", "y", transB=1)], [raw(W, "W")]),
    "MatMul": ([node("MatMul", "x W", "y")], [raw(W.T.copy(), "W")]),
    "MatMul, Add": (
        [node("MatMul", "x W", "h"), node("Add", "h b", "y")],
        [raw(W.T.copy(), "W"), raw(B, "b")],
    ),
    "Add first": (
        [node("MatMul", "x W", "h"), node("Add", "b h", "y")],
        [raw(W.T.copy(), "W"), raw(B[None], "b")],
    ),
    "typed numbers": ([GEMM], [typed(W, "W"), typed(B, "b")]),
    "Constant nodes": (
        [constant(W.T.copy(), "W"), constant(B, "b"), node("Gemm", "x W b", "y")],
        [],
    ),
    "a transposed weight": (
        [node("Transpose", "V", "W", perm=[1, 0]), node("MatMul", "x W", "y")],
        [raw(W, "V")],
    ),
    "a weight that Transpose leaves as it is": (
        [node("Transpose", "V", "W", perm=[0, 1]), node("MatMul", "x W", "y")],
        [raw(W.T.copy(), "V")],
    ),
    "a weight transposed as Transpose does unless told": (
        [node("Transpose", "V", "W"), node("MatMul", "x W", "y")],
        [raw(W, "V")],
    ),
    "a square weight that Transpose leaves as it is": (
        [
            node("Gemm", "x V", "h"),
            node("Transpose", "S", "W", perm=[0, 1]),
            node("MatMul", "h W", "y"),
        ],
        [raw(W.T.copy(), "V"), raw(RNG.standard_normal((K, K)).astype(np.float32), "S")],
    ),
    "a half-precision weight, cast": (
        [node("Cast", "V", "W", to=T.FLOAT), GEMM],
        [raw(W.astype(np.float16), "V"), raw(B, "b")],
    ),
    "Flatten, Identity after it": (
        [
            node("Gemm", "x W b", "h", transB=1),
            node("Identity", "h", "i"),
            node("Flatten", "i", "y"),
        ],
        [raw(W, "W"), raw(B, "b")],
    ),
    "a temperature after it": (
        [node("Gemm", "x W b", "h", transB=1), node("Div", "h t", "y")],
        [raw(W, "W"), raw(B, "b"), raw(np.float32(2), "t")],
    ),
    "a factor after it": (
        [node("Gemm", "x W b", "h", transB=1), node("Mul", "h t", "i"), node("Identity", "i", "y")],
        [raw(W, "W"), raw(B, "b"), raw(np.float32(-3), "t")],
    ),
    "three times what it gives": (
        [
            node("Gemm", "x W b", "h", transB=1),
            node("Identity", "h", "i"),
            node("Sum", "h h i", "y"),
        ],
        [raw(W, "W"), raw(B, "b")],
    ),
    "1x1 Conv, pooled": (
        [
            node("Unsqueeze", "x a", "x4"),
            node("Conv", "x4 W b", "c"),
            node("GlobalAveragePool", "c", "p"),
            node("Flatten", "p", "y"),
        ],
        [raw(W[:, :, None, None], "W"), raw(B, "b"), raw(np.array([2, 3]), "a")],
    ),
    "a hidden layer before it": (
        [node("Gemm", "x V", "h"), node("Relu", "h", "r"), node("Gemm", "r W b", "y", transB=1)],
        [raw(np.eye(D, dtype=np.float32), "V"), raw(W, "W"), raw(B, "b")],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_rescaling_the_file_scales_the_logits_that_onnxruntime_computes(tmp_path, name):
    path = save(tmp_path / "m.onnx", *MODELS[name])
    done = adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    np.testing.assert_allclose(done.scale, FACTORS)
    rounding = 2e-3 if "half" in name else 1e-5
    before, after = run(path)[0] * FACTORS, run(tmp_path / "o.onnx")[0]
    np.testing.assert_allclose(after, before, rtol=rounding, atol=rounding * np.abs(before).max())
    onnx.checker.check_model(str(tmp_path / "o.onnx"))
    undo_file(tmp_path / "o.onnx", tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").read_bytes() == path.read_bytes()


def test_everything_but_the_head_and_our_metadata_stays_byte_for_byte(tmp_path):
    path = save(tmp_path / "m.onnx", *MODELS["a hidden layer before it"])
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    old, new = path.read_bytes(), (tmp_path / "o.onnx").read_bytes()
    differs = [i for i in range(len(old)) if old[i] != new[i]]
    weight, bias = old.index(W.tobytes()), old.index(B.tobytes())
    inside = set(range(weight, weight + W.nbytes)) | set(range(bias, bias + B.nbytes))
    assert differs
    assert set(differs) <= inside
    written = onnx.load(tmp_path / "o.onnx")
    assert {p.key for p in written.metadata_props} >= {
        "author",
        "levelhead.strength",
        "levelhead.counts",
        "levelhead.sha256",
    }


def test_metadata_under_our_name_that_is_not_a_note_stays(tmp_path):
    path = save(tmp_path / "m.onnx", *MODELS["Gemm, transB=1"])
    proto = onnx.load(path)
    proto.metadata_props.add(key="levelhead.model", value="not even JSON")
    onnx.save(proto, path)
    adjust_file(path, tmp_path / "once.onnx", lh.rules.Rescale(0.5), COUNTS)
    adjust_file(
        tmp_path / "once.onnx", tmp_path / "twice.onnx", lh.rules.Rescale(0.5), COUNTS, again=True
    )
    undo_file(tmp_path / "once.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == path.read_bytes()
    (tmp_path / "once.onnx.original").unlink()
    undo_file(tmp_path / "once.onnx", tmp_path / "divided.onnx")
    metadata_of = {
        name: {
            entry.key: entry.value for entry in onnx.load(tmp_path / f"{name}.onnx").metadata_props
        }
        for name in ("once", "twice", "divided")
    }
    kept = {"author": "somebody", "levelhead.model": "not even JSON"}
    assert metadata_of["divided"] == kept
    assert all(
        entries.items() > kept.items() for entries in (metadata_of["once"], metadata_of["twice"])
    )


@settings(max_examples=15, deadline=None)
@given(name=st.sampled_from([name for name in MODELS if "," not in name or "Gemm" in name]))
def test_read_then_write_changes_no_bit(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("noop")
    path = save(folder / "m.onnx", *MODELS[name])
    write_head(path, folder / "o.onnx", read_head(path))
    assert (folder / "o.onnx").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "name", ["Gemm, transB=1", "Gemm, transB=0", "typed numbers", "1x1 Conv, pooled"]
)
def test_read_gives_rows_by_class(tmp_path, name):
    head = read_head(save(tmp_path / "m.onnx", *MODELS[name]))
    np.testing.assert_array_equal(head.weight, W)
    np.testing.assert_array_equal(head.bias, B)


def test_a_softmax_after_the_head_is_walked_through(tmp_path):
    path = save(
        tmp_path / "m.onnx",
        [node("Gemm", "x W b", "h", transB=1), node("Softmax", "h", "y")],
        [raw(W, "W"), raw(B, "b")],
    )
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    logits = (X @ W.T + B) * FACTORS
    expected = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(
        run(tmp_path / "o.onnx")[0], expected / expected.sum(1, keepdims=True), rtol=1e-4, atol=1e-6
    )


def test_heads_whose_outputs_are_averaged_are_scaled_together(tmp_path):
    path = save(
        tmp_path / "m.onnx",
        [
            node("Gemm", "x W b", "h", transB=1),
            node("MatMul", "x V", "d"),
            node("Mean", "h d", "y"),
        ],
        [raw(W, "W"), raw(B, "b"), raw(W[::-1].T.copy(), "V")],
    )
    assert adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS).head == ("W", "V")
    np.testing.assert_allclose(
        run(tmp_path / "o.onnx")[0], run(path)[0] * FACTORS, rtol=1e-5, atol=1e-4
    )


def test_logits_and_probabilities_as_two_outputs_have_one_head(tmp_path):
    path = save(
        tmp_path / "m.onnx",
        [GEMM, node("Softmax", "y", "p")],
        [raw(W, "W"), raw(B, "b")],
        outputs=("p", "y"),
    )
    assert READER.find(path).keys == ("W",)


def test_of_two_heads_one_must_be_named_unless_the_counts_tell(tmp_path):
    nodes = [GEMM, node("MatMul", "x V", "z")]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        [raw(W, "W"), raw(B, "b"), raw(np.ones((D, 3), np.float32), "V")],
        outputs=("y", "z"),
    )
    with pytest.raises(ValueError, match=r"more than one.*W \[5, 8\], V \[3, 8\]"):
        READER.find(path)
    assert READER.find(path, classes=3).keys == ("V",)
    for title in ("z", "V", "n_z"):
        assert READER.find(path, named=title).keys == ("V",)
    with pytest.raises(ValueError, match="no output or head is called 'q'"):
        READER.find(path, named="q")


Q = [raw(np.zeros((D, K), np.int8), "Q"), raw(np.float32(0.1), "s"), raw(np.int8(0), "o")]
REFUSED = {
    "shared with another node": (
        [GEMM, node("Gemm", "x W", "z", transB=1)],
        [raw(W, "W"), raw(B, "b")],
        "'W' is shared with another node",
    ),
    "a quantized weight": (
        [node("DequantizeLinear", "Q s o", "W"), node("MatMul", "x W", "y")],
        Q,
        "quantized",
    ),
    "integer arithmetic": (
        [
            node("DynamicQuantizeLinear", "x", "q"),
            node("MatMulInteger", "q Q", "h"),
            node("Cast", "h", "y", to=1),
        ],
        Q,
        "quantized",
    ),
    "a computed weight": (
        [node("Relu", "V", "W"), node("MatMul", "x W", "y")],
        [raw(W.T.copy(), "V")],
        "computed, not constant",
    ),
    "no linear layer": ([node("Tanh", "x", "y")], [], "comes from Tanh"),
    "straight from the input": (
        [node("Identity", "x", "y")],
        [],
        "comes from an input of the model",
    ),
    "a shift behind the bias": (
        [node("Gemm", "x W b", "h", transB=1), node("Add", "h b2", "y")],
        [raw(W, "W"), raw(B, "b"), raw(B, "b2")],
        "has a bias already",
    ),
    "classes mixed after it": (
        [node("Gemm", "x W b", "h", transB=1), node("Mul", "h b2", "y")],
        [raw(W, "W"), raw(B, "b"), raw(B, "b2")],
        "Mul",
    ),
    "a 3x3 convolution": (
        [node("Conv", "x4 C", "c"), node("GlobalAveragePool", "c", "y")],
        [raw(np.ones((K, 2, 3, 3), np.float32), "C")],
        r"kernel of \[3, 3\]",
    ),
    "a kernel turned into another": (
        [
            node("Transpose", "V", "C", perm=[1, 0, 2, 3]),
            node("Conv", "x4 C", "c"),
            node("Flatten", "c", "y"),
        ],
        [raw(np.ones((2, K, 1, 1), np.float32), "V")],
        r"Transpose 'n_C' orders its axes as \[1, 0, 2, 3\]",
    ),
    "a kernel turned around": (
        [node("Transpose", "V", "C"), node("Conv", "x4 C", "c"), node("Flatten", "c", "y")],
        [raw(np.ones((K, 2, 1), np.float32), "V")],
        r"'V' has shape \[5, 2, 1\]; expected a matrix",
    ),
    "a grouped convolution": (
        [node("Conv", "x4 C", "c", group=2), node("GlobalAveragePool", "c", "y")],
        [raw(np.ones((K, 1, 1, 1), np.float32), "C")],
        "in 2 groups; expected one group",
    ),
    "halves as a list of integers": (
        [node("Cast", "V", "W", to=1), GEMM],
        [typed(W.astype(np.float16), "V", T.FLOAT16), raw(B, "b")],
        "not stored as plain bytes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason(tmp_path, name):
    nodes, tensors, reason = REFUSED[name]
    outputs = ("y", "z") if "shared" in name else ("y",)
    inputs = (
        (("x4", ["N", 2, 4, 4]),)
        if any(op.op_type == "Conv" for op in nodes)
        else (("x", ["N", D]),)
    )
    path = save(tmp_path / "m.onnx", nodes, tensors, outputs=outputs, inputs=inputs)
    with pytest.raises(ValueError, match=reason):
        READER.find(path)


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"PK\x03\x04 something else"])
def test_a_file_that_is_not_a_model_is_refused_and_named(tmp_path, data):
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(ValueError, match=r"m\.onnx: .*not an ONNX model"):
        READER.find(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "name",
    [
        "Gemm, alpha and beta",
        "a temperature after it",
        "a factor after it",
        "three times what it gives",
    ],
)
def test_a_constant_scale_fits_only_the_rule_that_multiplies(tmp_path, name):
    path = save(tmp_path / "m.onnx", *MODELS[name])
    with pytest.raises(ValueError, match="by a constant"):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(1), COUNTS)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "ArgMax"])
def test_a_softmax_over_samples_is_not_one_over_classes(tmp_path, op):
    """What is added to the logits of a class would change nothing."""
    tensors, gemm = [raw(W, "W"), raw(B, "b")], node("Gemm", "x W b", "h", transB=1)
    for axis in (1, -1):
        path = save(tmp_path / "m.onnx", [gemm, node(op, "h", "y", axis=axis)], tensors)
        assert READER.find(path).keys == ("W",)
    path = save(tmp_path / "m.onnx", [gemm, node(op, "h", "y", axis=0)], tensors)
    with pytest.raises(ValueError, match=r"over another axis than that of the classes; export"):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(1), COUNTS)


def test_a_relu_after_the_head_fits_only_the_rule_that_multiplies(tmp_path):
    tensors = [raw(W, "W"), raw(B, "b")]
    path = save(
        tmp_path / "m.onnx", [node("Gemm", "x W b", "h", transB=1), node("Relu", "h", "y")], tensors
    )
    with pytest.raises(ValueError, match=r"bent by a Relu.*rule scales"):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(1), COUNTS)
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    np.testing.assert_allclose(run(tmp_path / "o.onnx")[0], run(path)[0] * FACTORS, rtol=1e-5)


@pytest.mark.parametrize("outputs", [("y", "z"), ("z", "y")])
def test_a_constant_scale_before_one_of_two_outputs_counts_unless_the_other_is_named(
    tmp_path, outputs
):
    nodes, tensors = (
        [GEMM, node("Div", "y t", "z")],
        [raw(W, "W"), raw(B, "b"), raw(np.float32(2), "t")],
    )
    path = save(tmp_path / "m.onnx", nodes, tensors, outputs=outputs)
    with pytest.raises(ValueError, match="by a constant"):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(1), COUNTS)
    done = adjust_file(path, tmp_path / "o.onnx", lh.rules.Shift(1), COUNTS, head="y")
    at = outputs.index("y")
    np.testing.assert_allclose(
        run(tmp_path / "o.onnx")[at] - run(path)[at], np.tile(done.offset, (6, 1)), rtol=1e-4
    )


def test_a_graph_in_a_circle_is_refused(tmp_path):
    path = save(tmp_path / "m.onnx", [node("Identity", "z", "y"), node("Identity", "y", "z")], [])
    with pytest.raises(ValueError, match=r"m\.onnx: output 'y': comes from itself"):
        READER.find(path)


def reduced(path, head, shape, *, opset=17, **how):
    """A head, then a ReduceMean with these attributes or, since opset 18, axes as an input."""
    axes = [raw(np.array(how.pop("axes")), "axes")] if opset >= 18 and "axes" in how else []
    weight = W.T.copy() if head == "MatMul" else W[:, :, None, None]
    nodes = [
        node(head, "x W", "h"),
        node("Relu", "h", "r"),
        node("ReduceMean", "r axes" if axes else "r", "y", **how),
    ]
    values = [
        helper.make_tensor_value_info(name, T.FLOAT, dims)
        for name, dims in (("x", shape), ("y", ["N", "C"]))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [raw(weight, "W"), *axes])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path
    )
    return path


IMAGE, TIME = ["N", D, 3, 3], ["N", K, D]  # as many steps as classes


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize(
    ("head", "shape", "axes"),
    [
        ("MatMul", TIME, [1]),
        ("MatMul", TIME, [-2]),
        ("Conv", IMAGE, [2, 3]),
        ("Conv", IMAGE, [-1, -2]),
    ],
)
def test_a_mean_over_time_or_place_is_walked_through(tmp_path, head, shape, axes, opset):
    path = reduced(tmp_path / "m.onnx", head, shape, axes=axes, keepdims=0, opset=opset)
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    x = RNG.standard_normal([2, *shape[1:]]).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "o.onnx", x)[0], run(path, x)[0] * FACTORS, rtol=1e-4)


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize(
    ("head", "shape", "how"),
    [
        ("MatMul", TIME, {"axes": [2]}),
        ("MatMul", TIME, {"axes": [-1]}),
        ("Conv", IMAGE, {"axes": [1]}),
        ("Conv", IMAGE, {"axes": [3, -3]}),
        ("MatMul", TIME, {}),
        ("MatMul", None, {"axes": [1]}),
    ],
)
def test_a_mean_over_the_classes_is_refused(tmp_path, head, shape, how, opset):
    path = reduced(tmp_path / "m.onnx", head, shape, keepdims=0, opset=opset, **how)
    with pytest.raises(
        ValueError,
        match=r"ReduceMean 'n_y' follows the head, and its mean (may be|is) over the classes",
    ):
        READER.find(path)
