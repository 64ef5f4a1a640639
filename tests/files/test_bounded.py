"""Model files made to cost far more than their size: each is read or refused with little time and memory."""

import json
import resource
import subprocess
import sys
import zipfile
from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from levelhead.files.keras_config import head_in_config
from levelhead.heads.graph import Linear, Passes, layers_behind
from levelhead.support.errors import LevelheadError

GEMM = helper.make_node("Gemm", ["x", "W"], ["v0"], transB=1)


@cache
def seconds():
    """What a process may compute, imports among them: each of these files took half a minute, hours or all memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([sys.executable, "-c", "import numpy, torch, onnx"], check=True)
    return max(
        12, int(6 * (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before))
    )  # on a slow machine


def inspect(path):
    """Inspect a file by the command line, in a process that may use little; return its status and what it says."""
    most = seconds()

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))

    words = [sys.executable, "-m", "levelhead", "inspect", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit)
    assert done.stderr.count("\n") == (done.returncode == 2), done.stderr
    return done.returncode, done.stdout + done.stderr


def onnx(path, nodes, outputs=("y",), tensors=()):
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "W")
    shown = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in outputs]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])]
    graph = helper.make_graph(nodes, "g", inputs, shown, [weight, *tensors])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def one(name):
    return numpy_helper.from_array(np.ones(1, np.float32), name)


def test_onnx_sums_of_many_inputs(tmp_path):
    sums = [helper.make_node("Sum", [f"v{i}"] * 100, [f"v{i + 1}"]) for i in range(4)]
    path = onnx(tmp_path / "m.onnx", [GEMM, *sums, helper.make_node("Mul", ["v4"] * 100, ["y"])])
    assert path.stat().st_size < 3000
    status, said = inspect(path)
    assert (status, "may mix or shift the classes" in said) == (2, True)


def test_onnx_sum_of_every_value_in_a_chain_of_constants(tmp_path):
    chain = [helper.make_node("Identity", [f"c{i}"], [f"c{i + 1}"]) for i in range(9000)]
    added = helper.make_node("Sum", ["v0", *(f"c{i}" for i in range(9000))], ["y"])
    status, said = inspect(onnx(tmp_path / "m.onnx", [GEMM, *chain, added], tensors=[one("c0")]))
    assert (status, "may mix or shift the classes" in said) == (2, True)


def test_onnx_with_many_outputs_of_one_long_chain(tmp_path):
    chain = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(390)]
    outputs = [f"o{i}" for i in range(5000)]
    last = [helper.make_node("Identity", ["v390"], [name]) for name in outputs]
    status, said = inspect(onnx(tmp_path / "m.onnx", [GEMM, *chain, *last], outputs))
    assert (status, "[3, 4]" in said) == (0, True)


def test_onnx_with_many_heads(tmp_path):
    names = [f"W{i}" for i in range(3000)]
    heads = [helper.make_node("Gemm", ["x", name], [f"y{name}"], transB=1) for name in names]
    tensors = [numpy_helper.from_array(np.ones((3, 4), np.float32), name) for name in names]
    status, said = inspect(
        onnx(tmp_path / "m.onnx", heads, [f"y{name}" for name in names], tensors)
    )
    assert (status, "more than one layer could be the head" in said) == (2, True)


def test_thousands_of_tensors_that_could_be_heads(tmp_path):
    tensors = {f"blk.l{i}.weight": np.full((2, 4), i, np.float32) for i in range(8000)}
    save_file({"fc.weight": np.eye(2, 4, dtype=np.float32)} | tensors, tmp_path / "m.safetensors")
    status, said = inspect(tmp_path / "m.safetensors")
    assert (status, "more than one layer could be the head" in said) == (2, True)


@pytest.mark.parametrize("item", [b"]", b"}X\x05\x00\x00\x00model"])
def test_state_dict_nested_ever_deeper(item, tmp_path):
    deep = 200_000 if item == b"]" else 3000
    end = b"a" if item == b"]" else b"s"
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02" + item * deep + b"}" + end * deep + b".")
        archive.writestr("m/version", "3\n")
    status, said = inspect(tmp_path / "m.pt")
    assert status == 2
    assert "nested more than 100 levels deep" in said


def test_outputs_of_one_model_share_what_was_walked():
    looked = []

    def look(value):
        looked.append(value)
        if value == 0:
            raise LevelheadError("no head here")
        return Linear("dense", None) if value == 1 else Passes([value - 1], "softmax")

    walked = {}
    for value in range(1, 3000):
        assert layers_behind(value, look, walked)["dense"].follows == ("softmax",) * (value > 1)
    assert looked == list(range(1, 3000))
    looked.clear()
    for _ in range(2):
        with pytest.raises(LevelheadError, match="no head here"):
            layers_behind(-1, lambda value: Passes([0]) if value == -1 else look(value), walked)
    assert looked == [0]


def test_sum_of_more_layers_than_any_model_has_is_refused():
    with pytest.raises(LevelheadError, match="more than 64 layers"):
        layers_behind(
            "y", lambda value: Passes(range(100)) if value == "y" else Linear(value, None), {}
        )


def keras_layer(kind, name, *sources, **settings):
    tensors = [
        {"class_name": "__keras_tensor__", "config": {"keras_history": [source, 0, 0]}}
        for source in sources
    ]
    nodes = [{"args": [tensors], "kwargs": {}}]
    settings = {"name": name, **settings}
    return {
        "module": "keras.layers",
        "class_name": kind,
        "config": settings,
        "inbound_nodes": nodes,
    }


def keras_model(layers, outputs):
    config = {"name": "m", "layers": layers, "output_layers": outputs}
    return {"module": "keras", "class_name": "Functional", "config": config}


DENSE = [
    keras_layer("InputLayer", "x"),
    keras_layer("Dense", "s0", "x", units=3, activation="linear"),
]


def test_diamond_of_keras_layers():
    layers = [*DENSE]
    for i in range(40):
        forks = [keras_layer("Dropout", f"{side}{i}", f"s{i}") for side in "ab"]
        layers += [*forks, keras_layer("Add", f"s{i + 1}", f"a{i}", f"b{i}")]
    head = head_in_config(keras_model(layers, [["s40", 0, 0]]), None)
    assert head is not None
    assert list(head.layers) == [("s0",)]


@pytest.mark.parametrize(
    "outputs", ["word", [["s0", json.loads("Infinity"), 0]], [3], {"a": "word"}]
)
def test_outputs_of_another_kind_are_refused(outputs):
    with pytest.raises(LevelheadError, match=r"config\.json is not as Keras writes it"):
        head_in_config(keras_model(DENSE, outputs), None)
