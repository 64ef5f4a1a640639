"""The wire format of protobuf, as the library itself reads and writes it."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from levelhead.files import protobuf
from levelhead.files.edits import rewrite
from levelhead.files.onnx_file import LEFT_OUT, LONGEST_HELD, MODEL_MESSAGE
from levelhead.files.onnx_graph import messages
from levelhead.files.protobuf import Splice, WireFile, outline, varint, with_lengths

RNG = np.random.default_rng(0)


def inner_graph(name):
    body = [helper.make_node("Constant", [], [name], value=numpy_helper.from_array(numbers(9000)))]
    shown = [helper.make_tensor_value_info(name, T.FLOAT, [9000])]
    return helper.make_graph(body, name, [], shown)


def numbers(size):
    return RNG.standard_normal(size).astype(np.float32)


def model():
    """A model with small and large tensors: initializers, constants, in a graph in a node, raw and typed."""
    tensors = [
        numpy_helper.from_array(numbers(size), f"raw{size}")
        for size in (1, LONGEST_HELD // 4, LONGEST_HELD // 4 + 1, 50_000)
    ]
    tensors.append(helper.make_tensor("typed", T.FLOAT, [3000], numbers(3000)))
    tensors.append(helper.make_tensor("doubles", T.DOUBLE, [3000], numbers(3000)))
    tensors.append(helper.make_tensor("text", T.STRING, [2], [b"a" * 5000, b"b"]))
    branches = {"then_branch": inner_graph("t"), "else_branch": inner_graph("e")}
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(numbers(7000))),
        helper.make_node("If", ["raw1"], ["y"], name="branch", **branches),
    ]
    graph = helper.make_graph(nodes, "g", [], [], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.metadata_props.add(key="author", value="somebody" * 1000)
    return proto


def without_long_numbers(proto):
    """The same, by the library: numbers of more bytes than are held, out of each tensor, and a mark in their place."""
    fields = ("raw_data", "float_data", "double_data", "string_data")
    for tensor in messages(proto, "TensorProto"):
        for name in fields:
            alone = (
                T(**{name: getattr(tensor, name)}).SerializeToString()
                if name != "raw_data"
                else b""
            )
            size = len(tensor.raw_data) if name == "raw_data" else len(alone) - 4
            if size > LONGEST_HELD:
                tensor.ClearField(name)
                if name == "raw_data":
                    tensor.raw_data = b""
                tensor.external_data.add(key=LEFT_OUT)
    return proto


@pytest.mark.parametrize("piece", [20, 64, 1 << 13])
def test_an_outline_is_the_message_without_its_long_numbers(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(protobuf, "PIECE", piece)
    path, proto = tmp_path / "m", model()
    path.write_bytes(proto.SerializeToString())
    outlined = onnx.ModelProto.FromString(outline(WireFile.of(path), MODEL_MESSAGE, LONGEST_HELD))
    expected = without_long_numbers(onnx.ModelProto.FromString(proto.SerializeToString()))
    for tensor in messages(expected, "TensorProto"):  # of two texts, only the long one is left out
        if tensor.name == "text":
            tensor.string_data.extend([b"", b"b"])
    assert outlined == expected
    assert outlined.ByteSize() < 40_000 < proto.ByteSize()


def test_a_field_is_found_where_it_is(tmp_path):
    path, proto = tmp_path / "m", model()
    path.write_bytes(proto.SerializeToString())
    file = WireFile.of(path)
    for i, tensor in enumerate(proto.graph.initializer):
        start, end = file.locate([(7, None), (5, i)])
        assert T.FromString(file.read(start, end)) == tensor
    assert file.locate([(7, None), (5, 99)]) == (0, 0)


@pytest.mark.parametrize("size", [0, 100, 20_000, 3_000_000])
def test_the_lengths_around_splices_are_corrected(tmp_path, size):
    """Also where two parts of one message change, named by an index or as the only one."""
    path, proto = tmp_path / "m", model()
    path.write_bytes(proto.SerializeToString())
    file = WireFile.of(path)
    name, author = ((7, None), (5, 3), (8, 0)), ((7, 0), (1, 1), (3, 0))
    title, kind = "n" * size, "i" * (size // 2)
    changes = []
    for steps, text in ((name, title), (author, kind)):
        start, end = file.locate(steps)
        changes.append(Splice(start, end - start, text.encode(), steps))
    rewrite(path, tmp_path / "out", lambda _: with_lengths(file, changes))
    proto.graph.initializer[3].name = title
    proto.graph.node[1].name = kind
    assert onnx.ModelProto.FromString((tmp_path / "out").read_bytes()) == proto


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\x05ab", "ends behind its message"),
        (b"\x0a", "cut short"),
        (b"\xff" * 11, "a number of more than 10 bytes"),
        (varint(1 << 3 | 3), "wire type 3 at byte 0"),
    ],
)
def test_what_is_no_message_is_refused(tmp_path, data, reason):
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(ValueError, match=reason):
        list(WireFile.of(tmp_path / "m").fields(0, len(data)))
