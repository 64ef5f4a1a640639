"""The file of an ONNX model, read without its large numbers.

A model may have gigabytes of weights, or keep them in files next to it. `read_graph` gives the onnx
library an outline of the file (protobuf.py), in which long tensors are empty and marked, so that
only names, shapes and short numbers are held. `span_of` then says where the numbers of a tensor
are: as raw bytes in the model, as a list of floats in it, or in another file. `stamps_of` lists all
files, and `check_model` has onnx's checker look at one that was written.

A tensor is described by its message; these fields are used:

    1 dims, 2 data_type, 4 float_data, 8 name, 9 raw_data, 10 double_data, 13 external_data,
    14 data_location

Reference: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

import re
from contextlib import suppress
from math import prod
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..heads.notes import note_from
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing
from ..support.regular_file import Stamp, check_regular_file
from .onnx_graph import Graph, messages, texts
from .protobuf import MessageKind, WireFile, encode_field, outline
from .spans import Span

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

ONNX_DTYPES = {1: "F32", 10: "F16", 11: "F64", 16: "BF16"}  # by TensorProto.DataType
PLACE = re.compile("[0-9]{1,18}")  # an offset or a length in a file
# By type, the field that holds the numbers of a tensor without raw bytes, and their form.
TYPED = {1: (4, "float_data", "<f4"), 11: (10, "double_data", "<f8")}
RAW = 9  # the field of a tensor's raw bytes
IN_ANOTHER_FILE = 1  # TensorProto.DataLocation

# The messages of a model that may hold tensors, by their fields, as onnx.proto has them. Numbers of
# more bytes than `LONGEST_HELD` stay in the file; shapes, axes and the like have fewer.
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


def import_onnx() -> ModuleType:
    """Return the onnx library, which is optional.

    Raises:
        ModuleNotFoundError: it is not there; the message says how it is installed.
    """
    with naming_what_is_missing("reading an .onnx file"):
        import onnx
    return onnx


def read_graph(path: Path) -> Graph:
    """Read a model's file, without its large numbers.

    Raises:
        LevelheadError: if it is not an ONNX model, is cut short, or has names that are not text.
    """
    stamp = check_regular_file(path, "an ONNX model")
    model, file = _read_model(path)
    if not model.graph.node:
        raise LevelheadError(f"{path}: not an ONNX model, its graph is empty")
    # protobuf gives bytes that are not UTF-8 as bytes
    if not all(isinstance(text, str) for text in texts(model)):
        raise LevelheadError(f"{path}: a name in it is not valid UTF-8; export it again")
    return Graph(path, model, file, stamp)


def _read_model(path: Path) -> tuple[ModelProto, WireFile]:
    """Return the model without its large numbers, and the file, in which fields can be looked up.

    Raises:
        LevelheadError: the file is no such message, or cut short.
    """
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
    """Run the onnx checker on a written model, without external weights.

    It would look for those next to the model, where they are not yet. Tensors without numbers, left
    out or external, become empty ones for it.

    Raises:
        LevelheadError: the model does not pass; `Format.save` asks whether it did before.
    """
    model, _ = _read_model(path)
    # Tensors whose numbers are not here become empty ones, which the checker takes.
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


def is_left_out(tensor: TensorProto) -> bool:
    """Return whether a tensor was read without its numbers."""
    return any(entry.key == LEFT_OUT for entry in tensor.external_data)


def external_place(tensor: TensorProto, path: Path) -> dict[str, str]:
    """Return where in which other file a tensor's numbers are; empty if they are in the model.

    The keys are those of ONNX: `location`, and perhaps `offset` and `length`, as text.

    Raises:
        LevelheadError: there is no location, or a place that is no number.
    """
    if tensor.data_location != IN_ANOTHER_FILE:
        return {}
    place = {entry.key: entry.value for entry in tensor.external_data}
    offset = place.get("offset", "0")
    length = place.get("length", "0")
    if "location" not in place or not PLACE.fullmatch(offset) or not PLACE.fullmatch(length):
        raise LevelheadError(
            f"{path}: {tensor.name!r} is kept in an unknown file; export the model again"
        )
    return place


def stamps_of(graph: Graph) -> dict[Path, Stamp]:
    """Return the model's file, and those its weights are kept in, each as it was when it was read.

    Raises:
        LevelheadError: external weights are in another folder, missing, or in the model itself.
    """
    path = graph.path
    stamps = {graph.path: graph.stamp}
    places = [external_place(tensor, path) for tensor in messages(graph.model, "TensorProto")]
    for name in dict.fromkeys(place["location"] for place in places if place):
        # Another folder may hold anything, and would not be copied along.
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
    """Return where in a file a constant's numbers are.

    Args:
        graph: the model.
        name: of the constant.
        transposed: whether it is [d, K], and not [K, d].

    Raises:
        LevelheadError: its numbers are of another type than floats, not as many as its shape says,
            stored twice or in another way, or shared with another tensor.
    """
    tensor, steps = graph.constants[name]
    if tensor.data_type not in ONNX_DTYPES:
        titles = {number: title for title, number in import_onnx().TensorProto.DataType.items()}
        kind = titles.get(tensor.data_type, f"numbers of the unknown type {tensor.data_type}")
        raise LevelheadError(
            f"{graph.path}: {name} holds {kind}, a quantized type; adjust the model before quantizing"
        )
    dtype = ONNX_DTYPES[tensor.data_type]
    shape = tuple(tensor.dims)
    if any(n < 1 for n in shape):
        raise LevelheadError(
            f"{graph.path}: {name} has the shape {list(shape)}; export the model again"
        )
    # In another file: its place says where, and must say as many bytes as the shape needs.
    external = external_place(tensor, graph.path)
    if external:
        file = graph.path.parent / external["location"]
        offset = int(external.get("offset", 0))
        span = Span(name, file, offset, dtype, shape, transposed)
        if int(external.get("length", span.nbytes)) != span.nbytes:
            got = f"expected {span.nbytes} bytes for {name}, got {external['length']}"
            raise LevelheadError(f"{graph.path}: {got}; export the model again")
        _check_untied(graph, tensor, span)
        return span
    # Numbers are raw bytes or, of some types, a list of a field of its own: packed, the same bytes.
    number = RAW
    held = tensor.raw_data
    if not tensor.HasField("raw_data") and tensor.data_type in TYPED:
        number, field_name, form = TYPED[tensor.data_type]
        held = np.array(getattr(tensor, field_name), form).tobytes()
    start, end = graph.file.locate([*steps, (number, None)])
    span = Span(name, graph.path, start, dtype, shape, transposed)
    # Numbers that were left out may not be elsewhere in the tensor as well.
    expected = b""
    if end - start <= LONGEST_HELD:
        expected = graph.file.read(start, end)
    if end - start != span.nbytes or held != expected:
        raise LevelheadError(
            f"{graph.path}: {name} is not stored as plain bytes; make it anew with onnx.numpy_helper"
        )
    return span


def _check_untied(graph: Graph, tensor: TensorProto, span: Span) -> None:
    """Check that no other tensor has the same bytes of an external file.

    Args:
        graph: the model.
        tensor: the one that is changed.
        span: where its numbers are.

    Raises:
        LevelheadError: one has; exporters that share weights write them once.
    """
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
