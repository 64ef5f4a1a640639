"""ONNX models that no exporter would write: scaled as protobuf reads them, or refused."""

import os
import time
from contextlib import suppress

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import levelhead as lh
from levelhead.files.model import adjust_file
from levelhead.files.onnx import READER
from levelhead.files.protobuf import encode_field as field
from levelhead.files.protobuf import varint
from levelhead.files.undo import undo_file
from levelhead.support.errors import LevelheadError

from ..heads.chosen import own_rule

COUNTS, FACTORS = [16, 4, 1], np.array([1, 2, 4], np.float32)
RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((3, 4)).astype(np.float32), RNG.standard_normal(3).astype(np.float32)
X = RNG.standard_normal((5, 4)).astype(np.float32)
GEMM = helper.make_node("Gemm", ["x", "W", "b"], ["y"], transB=1)


def model(nodes=(GEMM,), tensors=None):
    tensors = (
        [numpy_helper.from_array(W, "W"), numpy_helper.from_array(B, "b")]
        if tensors is None
        else tensors
    )
    values = [
        helper.make_tensor_value_info(name, T.FLOAT, ["N", size])
        for name, size in (("x", 4), ("y", 3))
    ]
    graph = helper.make_graph(list(nodes), "g", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def save(path, proto):
    path.write_bytes(proto.SerializeToString())
    return path


def run(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {"x": X}
    )[0]


def rewired(tensor_bytes=None, graph_bytes=b""):
    """Return a model whose weight is this serialized tensor, and whose bytes end in `graph_bytes`."""
    proto = model(tensors=[numpy_helper.from_array(B, "b")])
    extra = b"" if tensor_bytes is None else field(7, field(5, tensor_bytes))
    return proto.SerializeToString() + extra + graph_bytes


NUMBERS = field(9, W.tobytes())
TENSOR = helper.make_tensor("W", T.FLOAT, [3, 4], W.tobytes(), raw=True).SerializeToString()
TWICE = {
    "numbers": model()
    .SerializeToString()
    .replace(field(5, TENSOR), field(5, TENSOR + field(9, bytes(48)))),
    "the same numbers": model()
    .SerializeToString()
    .replace(field(5, TENSOR), field(5, TENSOR + NUMBERS)),
    "the graph": rewired(TENSOR),
}


@pytest.mark.parametrize("name", TWICE)
def test_numbers_that_stand_twice_are_refused(tmp_path, name):
    path, data = tmp_path / "m.onnx", TWICE[name]
    if name != "the graph":  # the lengths around it have grown
        proto = onnx.ModelProto.FromString(model().SerializeToString())
        tensor = TENSOR + (NUMBERS if name == "the same numbers" else field(9, bytes(48)))
        graph = proto.graph.SerializeToString().replace(field(5, TENSOR), field(5, tensor))
        proto.ClearField("graph")
        data = proto.SerializeToString() + field(7, graph)
        expected = bytes(48) if name == "numbers" else W.tobytes()
        assert (
            onnx.ModelProto.FromString(data).graph.initializer[0].raw_data == expected
        )  # protobuf takes the last
    path.write_bytes(data)
    with pytest.raises(
        LevelheadError, match=r"m\.onnx: .*expected one field .*; export the model again"
    ):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    assert os.listdir(tmp_path) == ["m.onnx"]


def tensor_of(dims, data=b""):
    proto = T(name="W", data_type=T.FLOAT, raw_data=data)
    proto.dims.extend(dims)
    return proto


@pytest.mark.parametrize(
    "dims",
    [
        [1 << 32, 1 << 32],
        [-3, -4],
        [3, -4],
        [0, 4],
        [3, 0],
        [1 << 62, 4],
        [(1 << 63) - 1, 2],
        [3],
        [],
    ],
)
def test_dims_that_are_not_of_a_matrix_are_refused(tmp_path, dims):
    for data in (b"", W.tobytes()):
        proto = model(tensors=[tensor_of(dims, data), numpy_helper.from_array(B, "b")])
        with pytest.raises(LevelheadError, match=r"m\.onnx: "):
            adjust_file(
                save(tmp_path / "m.onnx", proto), tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS
            )
    assert os.listdir(tmp_path) == ["m.onnx"]


def external(folder, location, **entries):
    tensor = T(name="W", data_type=T.FLOAT, data_location=T.EXTERNAL, dims=[3, 4])
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return save(folder / "m.onnx", model(tensors=[tensor, numpy_helper.from_array(B, "b")]))


def test_external_numbers_in_the_model_itself_are_refused(tmp_path):
    path = external(tmp_path, "m.onnx")
    with pytest.raises(LevelheadError, match=r"m\.onnx: expected external weights in another file"):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    os.link(path, tmp_path / "linked")
    with pytest.raises(LevelheadError, match=r"m\.onnx: expected external weights in another file"):
        READER.find(external(tmp_path, "linked"))


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "9" * 5000},
        {"offset": "9" * 20},
        {"offset": "²"},
        {"length": "7"},
        {"length": "x"},
        {"offset": "8"},
    ],
    ids=str,
)
def test_external_places_that_cannot_be_are_refused(tmp_path, entries):
    (tmp_path / "d").write_bytes(W.tobytes())
    path = external(tmp_path, "d", **entries)
    with pytest.raises(LevelheadError, match=r"W.*; (export the model|copy or download it) again"):
        adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)


def test_pipes_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "d")
    with pytest.raises(LevelheadError, match="d: a pipe"):
        READER.find(external(tmp_path, "d"))
    os.mkfifo(tmp_path / "p.onnx")
    with pytest.raises(LevelheadError, match=r"p\.onnx: a pipe"):
        READER.find(tmp_path / "p.onnx")


def test_external_numbers_of_a_function_or_a_sparse_tensor_are_copied_too(tmp_path):
    (tmp_path / "out").mkdir()
    for name in ("f", "s"):
        (tmp_path / name).write_bytes(bytes(16))
    proto = model()
    inside, sparse = (
        T(name=f"{name}1", data_type=T.FLOAT, data_location=T.EXTERNAL, dims=[4]) for name in "fs"
    )
    inside.external_data.add(key="location", value="f")
    sparse.external_data.add(key="location", value="s")
    constant = helper.make_node("Constant", [], ["c"], value=inside)
    proto.functions.append(
        helper.make_function("d", "F", [], ["c"], [constant], [helper.make_opsetid("", 17)])
    )
    indices = numpy_helper.from_array(np.arange(4), "s1_indices")
    proto.graph.sparse_initializer.append(
        onnx.SparseTensorProto(values=sparse, indices=indices, dims=[9])
    )
    content = READER.find(save(tmp_path / "m.onnx", proto))
    assert {file.name for file in content.files} == {"m.onnx", "f", "s"}


def diamonds(depth):
    nodes, last = [helper.make_node("Gemm", ["x", "W", "b"], ["v0"], transB=1)], "v0"
    for i in range(depth):
        nodes += [
            helper.make_node("Identity", [last], [f"a{i}"]),
            helper.make_node("Relu", [last], [f"b{i}"]),
        ]
        nodes += [
            helper.make_node(
                "Add", [f"a{i}", f"b{i}"], [last := f"v{i + 1}" if i < depth - 1 else "y"]
            )
        ]
    return nodes


def test_forty_sums_of_two_paths_are_walked_once_each(tmp_path):
    path, began = save(tmp_path / "m.onnx", model(diamonds(40))), time.monotonic()
    done = adjust_file(path, tmp_path / "o.onnx", lh.rules.Rescale(0.5), COUNTS)
    assert time.monotonic() - began < 10  # 2^40 paths
    assert done.head == ("W",)
    save(tmp_path / "s.onnx", model(diamonds(3)))
    adjust_file(tmp_path / "s.onnx", tmp_path / "t.onnx", lh.rules.Rescale(0.5), COUNTS)
    np.testing.assert_allclose(
        run(tmp_path / "t.onnx"), run(tmp_path / "s.onnx") * FACTORS, rtol=1e-5
    )


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


CIRCLE = [node("Identity", "p", "q"), node("Identity", "q", "p")]
ODD = {
    "a circle among constants": [*CIRCLE, node("MatMul", "x W", "h"), node("Add", "h p", "y")],
    "a circle in another layer": [*CIRCLE, node("MatMul", "x p", "z"), node("MatMul", "x W", "y")],
    "a circle of casts": [
        node("Cast", "q", "p", to=1),
        node("Cast", "p", "q", to=1),
        node("MatMul", "x q", "y"),
    ],
    "a layer without inputs": [node("Gemm", "", "y")],
    "a layer without a weight": [node("MatMul", "x", "y")],
    "a sum of nothing": [node("Sum", "", "y")],
    "a step without inputs": [node("Relu", "", "y")],
    "a constant without an output": [
        node("Constant", "", "", value=numpy_helper.from_array(B)),
        GEMM,
    ],
    "another layer without inputs": [node("Conv", "", "z"), node("MatMul", "x W", "y")],
    "a mean without inputs": [node("ReduceMean", "", "y", axes=[0])],
    "a mean over an axis of a scalar": [
        node("MatMul", "x W", "h"),
        node("ReduceMean", "h", "y", axes=[1 << 62]),
    ],
    "a weight turned from nothing": [node("Transpose", "", "T"), node("MatMul", "x T", "y")],
    "two nodes of one name": [node("MatMul", "x W", "y"), node("MatMul", "x W", "y")],
    "a chain of two thousand": [
        node("Gemm", "x W b", "v0", transB=1),
        *(node("Relu", f"v{i}", f"v{i + 1}") for i in range(2000)),
        node("Relu", "v2000", "y"),
    ],
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_a_graph_that_cannot_be_run_is_refused_or_scaled_but_never_a_traceback(
    tmp_path, name, rule
):
    weight = W if "chain" in name else W.T.copy()
    proto = model(
        ODD[name], [numpy_helper.from_array(weight, "W"), numpy_helper.from_array(B, "b")]
    )
    path = save(tmp_path / "m.onnx", proto)
    done = False
    with suppress(LevelheadError):
        adjust_file(path, tmp_path / "o.onnx", own_rule(rule, 0.5), COUNTS)
        done = True
    assert (tmp_path / "o.onnx").exists() == done


def test_two_initializers_of_one_name_are_refused(tmp_path):
    proto = model(
        tensors=[
            numpy_helper.from_array(values, name)
            for values, name in ((W, "W"), (W + 1, "W"), (B, "b"))
        ]
    )
    with pytest.raises(LevelheadError, match=r"m\.onnx: .*two constants are called 'W'"):
        READER.find(save(tmp_path / "m.onnx", proto))


def test_a_group_of_unknown_fields_is_refused_with_the_name_of_the_file(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(varint(1000 << 3 | 3) + varint(1000 << 3 | 4) + model().SerializeToString())
    assert onnx.ModelProto.FromString(path.read_bytes()).graph.node
    with pytest.raises(LevelheadError, match=r"m\.onnx: .*not a protobuf message: wire type 3"):
        READER.find(path)


@pytest.fixture
def adjusted(tmp_path):
    """A model with external numbers, adjusted in its own folder and in another."""
    (tmp_path / "other").mkdir()
    onnx.save(
        model(),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.onnx.data",
        size_threshold=0,
    )
    for out in ("o.onnx", "other/o.onnx"):
        adjust_file(tmp_path / "m.onnx", tmp_path / out, lh.rules.Rescale(0.5), COUNTS)
    return tmp_path


def test_undo_in_the_folder_that_still_has_the_external_numbers_leaves_those_alone(adjusted):
    before = {path: path.stat().st_mtime_ns for path in adjusted.iterdir()}
    done = undo_file(adjusted / "o.onnx", adjusted / "b.onnx")
    assert done.exact
    assert (adjusted / "b.onnx").read_bytes() == (adjusted / "m.onnx").read_bytes()
    assert {path: path.stat().st_mtime_ns for path in before if path.is_file()} == {
        path: time for path, time in before.items() if path.is_file()
    }
    np.testing.assert_array_equal(run(adjusted / "b.onnx"), run(adjusted / "m.onnx"))


def test_undo_does_not_replace_other_external_numbers_unless_forced(adjusted):
    good = (adjusted / "m.onnx.data").read_bytes()
    (adjusted / "m.onnx.data").write_bytes(bytes(len(good)))
    with pytest.raises(FileExistsError, match=r"m\.onnx\.data exists"):
        undo_file(adjusted / "o.onnx", adjusted / "b.onnx")
    assert not (adjusted / "b.onnx").exists()
    undo_file(adjusted / "o.onnx", adjusted / "b.onnx", force=True)
    assert (adjusted / "m.onnx.data").read_bytes() == good


def test_undo_where_both_models_would_need_one_file_says_to_use_another_folder(adjusted):
    with pytest.raises(LevelheadError, match=r"m\.onnx\.data .*write to another folder"):
        undo_file(adjusted / "other" / "o.onnx", adjusted / "other" / "b.onnx")


def test_a_number_in_the_place_of_a_tensor_is_not_counted_as_one(tmp_path):
    """protobuf passes over a field of the right number and another wire type; a count of it would be one too far."""
    ends = [
        helper.make_tensor_value_info(name, T.FLOAT, ["N", size])
        for name, size in (("x", 4), ("y", 3))
    ]
    weight, other = np.ones((3, 4), np.float32), np.full((3, 4), 7, np.float32)
    constants = [numpy_helper.from_array(weight, "W"), numpy_helper.from_array(other, "V")]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "W"], ["y"], transB=1)], "g", ends[:1], ends[1:], constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    inner = varint(5 << 3) + varint(1) + model.graph.SerializeToString()
    model.ClearField("graph")
    path, out = tmp_path / "m.onnx", tmp_path / "o.onnx"
    path.write_bytes(model.SerializeToString() + field(7, inner))
    adjust_file(path, out, lh.rules.Rescale(0.5), [16, 4, 1])
    values_of = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(out).graph.initializer
    }
    np.testing.assert_array_equal(values_of["W"], weight * [[1], [2], [4]])
    np.testing.assert_array_equal(values_of["V"], other)
