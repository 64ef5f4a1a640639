"""Damaged ONNX models: what is written differs, as protobuf reads it, from the input in the head and
the note alone.

The sound models have the head in every way that exporters write it: as Gemm, as MatMul and Add,
transposed, as a constant, with its numbers as bytes or as a list, in the file or beside it, and
long enough that they are not read into memory.
"""

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from levelhead.core.rules import Rescale, Shift, Tau
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.onnx_graph import messages
from levelhead.files.undo import undo_file

from .harness import Contradiction, drive, main
from .mutators import damage_bytes, damage_message

COUNTS = [16, 4, 1]
W, B = np.arange(1, 13, dtype=np.float32).reshape(3, 4), np.array([1, -2, 3], np.float32)
LONG = np.arange(1, 3 * 400 + 1, dtype=np.float32).reshape(3, 400)
raw = numpy_helper.from_array


def model(nodes: list[Any], constants: list[Any]) -> bytes:
    """Return the bytes of a model from `x` [N, 4] to `y` [N, 3], with a note of somebody else in it."""
    values = [
        helper.make_tensor_value_info(name, T.FLOAT, ["N", size])
        for name, size in (("x", 4), ("y", 3))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx_model.metadata_props.add(key="author", value="somebody")
    return onnx_model.SerializeToString()


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], name=f"n_{output}", **attributes)


def external(name: str, dims: list[int], offset: int) -> Any:
    """Return a tensor whose numbers are in the file `d`, beside the model."""
    tensor = T(name=name, data_type=T.FLOAT, data_location=T.EXTERNAL, dims=dims)
    for key, value in (
        ("location", "d"),
        ("offset", str(offset)),
        ("length", str(4 * int(np.prod(dims)))),
    ):
        tensor.external_data.add(key=key, value=value)
    return tensor


GEMM = node("Gemm", "x W b", "y", transB=1)
SOUND = [
    model([GEMM], [raw(W, "W"), raw(B, "b")]),
    model(
        [node("MatMul", "x W", "h"), node("Add", "h b", "s"), node("Softmax", "s", "y")],
        [raw(W.T.copy(), "W"), raw(B, "b")],
    ),
    model([GEMM], [helper.make_tensor("W", T.FLOAT, [3, 4], W.ravel()), raw(B, "b")]),
    model(
        [
            node("Transpose", "V", "W", perm=[1, 0]),
            node("MatMul", "x W", "h"),
            node("Identity", "h", "i"),
            node("Add", "h i", "y"),
        ],
        [raw(W, "V")],
    ),
    model(
        [helper.make_node("Constant", [], ["W"], value=raw(W)), node("Gemm", "x W", "y", transB=1)],
        [],
    ),
    model([GEMM], [external("W", [3, 4], 0), external("b", [3], 48)]),
    model(
        [node("MatMul", "x W", "h"), node("ReduceMean", "h", "y", axes=[0])], [raw(W.T.copy(), "W")]
    ),
    # Numbers that stay in the file when the rest of it is read.
    model([GEMM], [raw(LONG, "W"), raw(B, "b")]),
    model([GEMM], [helper.make_tensor("W", T.FLOAT, LONG.shape, LONG.ravel()), raw(B, "b")]),
    model(
        [
            helper.make_node("Constant", [], ["W"], value=raw(LONG)),
            node("Gemm", "x W", "y", transB=1),
        ],
        [],
    ),
]


def numbers(path: Path) -> list[tuple[str, bytes]]:
    """Return every tensor of a model as protobuf reads it, with the bytes that it has in another file."""
    tensors = []
    for tensor in messages(onnx.load(path, load_external_data=False), "TensorProto"):
        place = {entry.key: entry.value for entry in tensor.external_data}
        outside = b""
        if tensor.data_location == T.EXTERNAL:
            start, size = int(place.get("offset", 0)), 4 * int(np.prod(tensor.dims))
            outside = (path.parent / place["location"]).read_bytes()[start : start + size]
            del tensor.external_data[:]
        tensors.append((tensor.name, tensor.SerializeToString(deterministic=True) + outside))
    return tensors


def lost_in_rounding(path: Path, offset: np.ndarray) -> bool:
    """Return whether adding to the bias of a model changes none of its numbers.

    A damaged exponent makes a bias of 1e31, beside which what a rule adds is nothing: that nothing
    changed is right then. Only a bias inside the file is looked at.
    """
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        if tensor.name == "b" and tensor.data_location != T.EXTERNAL:
            bias = numpy_helper.to_array(tensor)
            return np.array_equal((bias + offset).astype(bias.dtype), bias, equal_nan=True)
    return False


def case(rng: random.Random, folder: Path) -> None:
    """Adjust a damaged model by some rule and undo that; raise Contradiction if more than its head
    differs.

    Three times in ten it is only inspected.
    """
    path, out, back = (folder / name for name in ("m.onnx", "out/o.onnx", "back/m.onnx"))
    sound = rng.choice(SOUND)
    data = damage_message(rng, sound) if rng.random() < 0.8 else damage_bytes(rng, sound, SOUND)
    path.write_bytes(data)
    (folder / "d").write_bytes(W.tobytes() + B.tobytes())
    for name in ("out", "back"):
        (folder / name).mkdir()
    if rng.random() < 0.3:
        inspect_file(path)
        return
    rule = rng.choice((Rescale, Rescale, Shift, Tau))
    done = adjust_file(path, out, rule(0.5), COUNTS)
    before, after = numbers(path), numbers(out)
    # A rule that adds may need a bias that is not there: one tensor is new then.
    added = len(after) - len(before)
    changed = {name for (name, old), (_, new) in zip(before, after, strict=False) if old != new}
    wrong = added not in (0, 1) or len(changed) > 2 * len(done.head)
    if not changed and not added:
        wrong = not lost_in_rounding(path, done.offset)
    if wrong:
        raise Contradiction(f"changed {changed}, added {added}, for {done.head}")
    undo_file(out, back)
    if back.read_bytes() != data:
        raise Contradiction("undo gives another file")


def run(**how: Any) -> dict[str, Any]:
    """Run cases, as `drive` takes them."""
    return drive(case, **how)


if __name__ == "__main__":
    main("onnx", run)
