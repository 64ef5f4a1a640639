"""What follows a head decides what an added number becomes, whatever form the head has in the file."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper
from onnx.numpy_helper import from_array as raw

import levelhead as lh
from levelhead.core.rules import Rescale, Shift
from levelhead.files.model import adjust_file

COUNTS = [100, 10, 50]
WEIGHT = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
BIAS = np.array([0.0, 0.1, 0.2], np.float32)


def one_layer():
    """Return nodes and tensors of a head of one layer, whose logits are `s`."""
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["s"], name="head", transB=1)]
    return nodes, [raw(WEIGHT, "w"), raw(BIAS, "b")]


def joined_rows():
    """Return the same head as three layers of one row each, side by side."""
    nodes, tensors = [], []
    for row in range(3):
        nodes.append(helper.make_node("Gemm", ["x", f"w{row}", f"b{row}"], [f"z{row}"], transB=1))
        tensors += [raw(WEIGHT[[row]], f"w{row}"), raw(BIAS[[row]], f"b{row}")]
    nodes.append(helper.make_node("Concat", ["z0", "z1", "z2"], ["s"], axis=1))
    return nodes, tensors


def linear_classifier():
    """Return the same head as scikit-learn's models have it."""
    node = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "s"],
        domain="ai.onnx.ml",
        coefficients=WEIGHT.ravel().tolist(),
        intercepts=BIAS.tolist(),
        classlabels_ints=[0, 1, 2],
        post_transform="NONE",
    )
    return [node], []


HEADS = {"layer": one_layer, "rows": joined_rows, "classifier": linear_classifier}
FOLLOWS = {
    "factor": [helper.make_node("Mul", ["s", "three"], ["y"])],
    "relu": [helper.make_node("Relu", ["s"], ["y"])],
    "nothing": [helper.make_node("Identity", ["s"], ["y"])],
}


def save(path, head, follows):
    nodes, tensors = HEADS[head]()
    values = [
        helper.make_tensor_value_info(name, T.FLOAT, ["N", size])
        for name, size in (("x", 4), ("y", 3))
    ]
    graph = helper.make_graph(
        nodes + FOLLOWS[follows],
        "g",
        values[:1],
        values[1:],
        [*tensors, raw(np.array(3, np.float32), "three")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def outputs(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("follows", ["factor", "relu"])
def test_what_would_not_arrive_as_it_was_added_is_refused(head, follows, tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    save(path, head, follows)
    with pytest.raises(lh.LevelheadError, match=r"m\.onnx"):
        adjust_file(path, out, Shift(1.0), COUNTS)
    assert not out.exists()


@pytest.mark.parametrize("head", HEADS)
def test_what_is_added_arrives_where_nothing_follows(head, tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    save(path, head, "nothing")
    done = adjust_file(path, out, Shift(1.0), COUNTS)
    x = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    np.testing.assert_allclose(
        outputs(out, x) - outputs(path, x), np.tile(done.offset, (20, 1)), atol=1e-5
    )


@pytest.mark.parametrize("head", HEADS)
def test_scales_go_through_a_factor(head, tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    save(path, head, "factor")
    done = adjust_file(path, out, Rescale(0.5), COUNTS)
    x = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    np.testing.assert_allclose(outputs(out, x), outputs(path, x) * done.scale, rtol=1e-4, atol=1e-5)
