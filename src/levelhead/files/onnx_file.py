"""The file of an ONNX model, read without its large numbers: where they lie, and which other files hold some."""

import re
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..heads.notes import note_from
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing
from ..support.regular_file import Stamp, check_regular_file
from .onnx_graph import Graph, messages, texts
from .protobuf import MessageKind, WireFile, encode_field, outline
from .spans import Span

ONNX_DTYPES = {1: "F32", 10: "F16", 11: "F64", 16: "BF16"}
PLACE = re.compile("[0-9]{1,18}")  # an offset or a length in a file
# By type, the field that holds the numbers of a tensor without raw bytes, and their form.
TYPED = {1: (4, "float_data", "<f4"), 11: (10, "double_data", "<f8")}
RAW = 9  # the field of a tensor's raw bytes

# The messages of a model that may hold tensors, by their fields, as onnx.proto has them. Numbers of more bytes than
# `LONGEST_HELD` stay in the file; shapes, axes and the like have fewer.
LONGEST_HELD = 1 << 12
LEFT_OUT = "levelhead: left out"  # the key of an entry that marks a tensor without its numbers
TENSOR = MessageKind(
    numbers=frozenset((4, 5, 6, 7, RAW, 10, 11)),
    mark=encode_field(13, encode_field(1, LEFT_OUT.encode())),
)
SPARSE = MessageKind({1: TENSOR, 2: TENSOR})
_in_graph: dict[int, MessageKind] = {}
GRAPH = MessageKind(_in_graph)
ATTRIBUTE = MessageKind({5: TENSOR, 6: GRAPH, 10: TENSOR, 11: GRAPH, 22: SPARSE, 23: SPARSE})
NODE = MessageKind({5: ATTRIBUTE})
_in_graph.update({1: NODE, 5: TENSOR, 15: SPARSE})
FUNCTION = MessageKind({7: NODE, 11: ATTRIBUTE})
TRAINING = MessageKind({1: GRAPH, 2: GRAPH})
MODEL_MESSAGE = MessageKind({7: GRAPH, 20: TRAINING, 25: FUNCTION})


def import_onnx() -> Any:
    """Return the library, or say how it is installed."""
    with naming_what_is_missing("reading an .onnx file"):
        import onnx
    return onnx


def read_graph(path: Path) -> Graph:
    """Read a model's file, without its large numbers."""
    stamp = check_regular_file(path, "an ONNX model")
    model, file = _read_model(path)
    if not model.graph.node:
        raise LevelheadError(f"{path}: not an ONNX model, its graph is empty")
    # protobuf gives bytes that are not UTF-8 as bytes
    if not all(isinstance(text, str) for text in texts(model)):
        raise LevelheadError(f"{path}: a name in it is not valid UTF-8; export it again")
    return Graph(path, model, file, stamp)


def _read_model(path: Path) -> tuple[Any, WireFile]:
    message = import_onnx().ModelProto
    file = WireFile.of(path)
    try:
        return message.FromString(outline(file, MODEL_MESSAGE, LONGEST_HELD)), file
    except OSError:
        raise
    except Exception as error:  # protobuf's DecodeError lives in different modules of its versions
        reason = " ".join(str(error).split())
        raise LevelheadError(
            f"{path}: cut short, or not an ONNX model ({reason}); export it again"
        ) from None


def check_model(path: Path) -> None:
    """Run the onnx checker on a written model, without external weights: it would look for those next to the model."""
    model, _ = _read_model(path)
    for tensor in messages(model, "TensorProto"):
        if is_left_out(tensor) or external_place(tensor, path):
            for name in ("external_data", "data_location", "raw_data"):
                tensor.ClearField(name)
            tensor.dims[:] = [0]
    try:
        import_onnx().checker.check_model(model)
    except Exception as error:  # its own ValidationError or protobuf's
        reason = " ".join(str(error).split())
        raise LevelheadError(
            f"the model does not pass onnx.checker: {reason}; export it again"
        ) from None


def note_of(graph: Graph) -> dict[str, Any] | None:
    """Return what an earlier adjustment recorded."""
    return note_from({entry.key: entry.value for entry in graph.model.metadata_props}, graph.path)


def is_left_out(tensor: Any) -> bool:
    """Return whether a tensor was read without its numbers."""
    return any(entry.key == LEFT_OUT for entry in tensor.external_data)


def external_place(tensor: Any, path: Path) -> dict[str, str]:
    """Return where in which other file a tensor's numbers are; empty if they are in the model's own."""
    if tensor.data_location != 1:
        return {}
    found = {entry.key: entry.value for entry in tensor.external_data}
    numbers = (found.get(key, "0") for key in ("offset", "length"))
    if "location" not in found or not all(PLACE.fullmatch(number) for number in numbers):
        raise LevelheadError(
            f"{path}: {tensor.name!r} is kept in an unknown file; export the model again"
        )
    return found


def stamps_of(graph: Graph) -> dict[Path, Stamp]:
    """Return the model's file, and those its weights are kept in, each as it was when it was read."""
    path = graph.path
    stamps = {graph.path: graph.stamp}
    places = [external_place(tensor, path) for tensor in messages(graph.model, "TensorProto")]
    for name in dict.fromkeys(place["location"] for place in places if place):
        if not name.isprintable() or not name or Path(name).name != name:
            raise LevelheadError(
                f"{path}: expected external weights in the same folder, got {name!r}"
            )
        other = path.parent / name
        try:
            stamps[other] = check_regular_file(other, f"external weights of {path.name}")
        except OSError as error:
            if error.strerror is None:
                raise
            raise LevelheadError(
                f"{path}: expected external weights in {name!r} ({error.strerror})"
            ) from None
        if other.samefile(path):
            raise LevelheadError(f"{path}: expected external weights in another file, got {name!r}")
    return stamps


def span_of(graph: Graph, name: str, transposed: bool = False) -> Span:
    """Return where in a file a constant's numbers are."""
    tensor, steps = graph.constants[name]
    if tensor.data_type not in ONNX_DTYPES:
        known = {number: title for title, number in import_onnx().TensorProto.DataType.items()}
        kind = known.get(tensor.data_type, f"numbers of the unknown type {tensor.data_type}")
        raise LevelheadError(
            f"{graph.path}: {name} holds {kind}, a quantized type; adjust the model before quantizing"
        )
    dtype = ONNX_DTYPES[tensor.data_type]
    shape = tuple(tensor.dims)
    if any(n < 1 for n in shape):
        raise LevelheadError(
            f"{graph.path}: {name} has the shape {list(shape)}; export the model again"
        )
    if external := external_place(tensor, graph.path):
        file = graph.path.parent / external["location"]
        offset = int(external.get("offset", 0))
        span = Span(name, file, offset, dtype, shape, transposed)
        if int(external.get("length", span.nbytes)) != span.nbytes:
            what = f"expected {span.nbytes} bytes for {name}, got {external['length']}"
            raise LevelheadError(f"{graph.path}: {what}; export the model again")
        _check_untied(graph, tensor, span)
        return span
    number, held = RAW, tensor.raw_data
    if not tensor.HasField("raw_data") and tensor.data_type in TYPED:
        number, name_of_field, form = TYPED[tensor.data_type]
        held = np.array(getattr(tensor, name_of_field), form).tobytes()
    start, end = graph.file.locate([*steps, (number, None)])
    span = Span(name, graph.path, start, dtype, shape, transposed)
    # Numbers that were left out may not be elsewhere in the tensor as well.
    if end - start > LONGEST_HELD:
        expected = b""
    else:
        expected = graph.file.read(start, end)
    if end - start != span.nbytes or held != expected:
        raise LevelheadError(
            f"{graph.path}: {name} is not stored as plain bytes; make it anew with onnx.numpy_helper"
        )
    return span


def _check_untied(graph: Graph, tensor: Any, span: Span) -> None:
    """Check that no other tensor has the same bytes of an external file."""
    for other in messages(graph.model, "TensorProto"):
        place = external_place(other, graph.path)
        if other is tensor or not place or place["location"] != span.file.name:
            continue
        start = int(place.get("offset", 0))
        item = 16  # bytes of a number, at most, of a type that onnx does not know
        with suppress(KeyError):
            item = import_onnx().helper.tensor_dtype_to_np_dtype(other.data_type).itemsize
        length = int(place.get("length") or item * prod(other.dims))
        if span.offset < start + length and start < span.offset + span.nbytes:
            tied = f"{span.key!r} has the same bytes of {span.file.name} as {other.name!r}"
            raise LevelheadError(
                f"{graph.path}: {tied}, and scaling it would change both; give each its own"
            )
