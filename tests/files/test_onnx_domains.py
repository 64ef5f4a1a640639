"""An operator of another domain is another operator, whatever its name: it is never taken for one of ONNX itself."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper
from onnx.numpy_helper import from_array as raw

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file

K, D = 3, 4
COUNTS = [100, 25, 4]
RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((K, D)).astype(np.float32), RNG.standard_normal(K).astype(np.float32)
X = RNG.standard_normal((6, D)).astype(np.float32)
OPSETS = [helper.make_opsetid("", 17)]
GEMM = helper.make_node("Gemm", ["x", "W", "b"], ["h"], transB=1)


def backwards(domain, name):
    """A function that puts the last class first."""
    order = helper.make_node("Constant", [], ["order"], value_ints=[2, 1, 0])
    turn = helper.make_node("Gather", ["a", "order"], ["c"], axis=1)
    return helper.make_function(domain, name, ["a"], ["c"], [order, turn], OPSETS)


def save(path, nodes, functions, domains):
    values = [
        helper.make_tensor_value_info(name, T.FLOAT, ["N", size])
        for name, size in (("x", D), ("y", K))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [raw(W, "W"), raw(B, "b")])
    opsets = [*OPSETS, *(helper.make_opsetid(domain, 1) for domain in domains)]
    proto = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)
    path.write_bytes(proto.SerializeToString())
    return path


def run(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0]


NAMES = [
    "Identity", "Cast", "Dropout", "Relu", "Softmax", "LogSoftmax", "Sigmoid", "Reshape", "Transpose", "Flatten",
    "ArgMax", "GlobalAveragePool",
]  # fmt: skip


@pytest.mark.parametrize("domain", ["mine", "torch.nn.modules.linear.Identity"])
@pytest.mark.parametrize("name", NAMES)
def test_a_function_of_the_models_own_is_not_the_operator_of_its_name(name, domain, tmp_path):
    node = helper.make_node(name, ["h"], ["y"], domain=domain)
    path = save(tmp_path / "m.onnx", [GEMM, node], [backwards(domain, name)], [domain])
    np.testing.assert_allclose(run(path), (X @ W.T + B)[:, ::-1], rtol=1e-5)
    with pytest.raises(ValueError, match=f"comes from {domain}::{name}; expected"):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def test_a_function_that_has_the_name_of_a_standard_operator_is_not_taken_for_it(tmp_path):
    node = helper.make_node("Identity", ["h"], ["y"])
    path = save(tmp_path / "m.onnx", [GEMM, node], [backwards("", "Identity")], [])
    with pytest.raises(ValueError, match=r"comes from ai\.onnx::Identity"):
        inspect_file(path)


def test_the_constants_of_another_domain_are_not_constants(tmp_path):
    constant = helper.make_node("Constant", [], ["V"], domain="mine", value=raw(W))
    gemm = helper.make_node("Gemm", ["x", "V", "b"], ["y"], transB=1)
    path = save(tmp_path / "m.onnx", [constant, gemm], [], ["mine"])
    with pytest.raises(ValueError, match=r"computed, not constant \(mine::Constant\)"):
        inspect_file(path)


def test_the_standard_domain_may_be_written_out(tmp_path):
    node = helper.make_node("Identity", ["h"], ["y"], domain="ai.onnx")
    path = save(tmp_path / "m.onnx", [GEMM, node], [], [])
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    np.testing.assert_allclose(run(tmp_path / "o.onnx"), run(path) * np.array([1, 2, 5]), rtol=1e-5)


def test_the_layer_is_adjusted_where_it_is_named(tmp_path):
    node = helper.make_node("Identity", ["h"], ["y"], domain="mine")
    path = save(tmp_path / "m.onnx", [GEMM, node], [backwards("mine", "Identity")], ["mine"])
    adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS, head="W")
    expected = run(path) * np.array([5, 2, 1])  # counts are of the layer's rows
    np.testing.assert_allclose(run(tmp_path / "o.onnx"), expected, rtol=1e-5)
