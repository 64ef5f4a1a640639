"""Heads in ONNX models: the last Gemm, MatMul (+ Add), 1x1 Conv or LinearClassifier that feeds an output."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..heads.candidates import list_layers
from ..heads.notes import NOTE, Note, note_entries, note_from
from ..support.arrays import Array, to_numpy
from ..support.errors import LevelheadError, in_file, reported_as
from ..support.extras import naming_what_is_missing
from ..support.regular_file import Stamp, check_regular_file
from .edits import Edit
from .find import NoHead, several_heads
from .format import Format
from .onnx_graph import (
    CLASSIFIER,
    COMPETING,
    Graph,
    LinearNode,
    classifier_key,
    heads_of,
    messages,
    node_of,
    texts,
)
from .protobuf import Splice, field, fields, length_at, locate, splice
from .spans import LayerSpans, LocatedHead, Span, decode, encode

ONNX_DTYPES = {1: "F32", 10: "F16", 11: "F64", 16: "BF16"}
PLACE = re.compile("[0-9]{1,18}")  # an offset or a length in a file
# By type, the field that holds the numbers of a tensor without raw bytes, and their form.
TYPED = {1: (4, "float_data", "<f4"), 11: (10, "double_data", "<f8")}
FLOATS = 7  # the field of an attribute that holds a list of numbers
FLOATS_TAG = FLOATS << 3 | 5  # the byte before each of them
LARGE_TENSOR = (
    1 << 16
)  # bytes; the checker copies what it gets, so that larger ones are given to it empty


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head that feeds the output of an ONNX model."""
    graph = replace(_parse(path), named=named is not None)
    stamps = _stamps_of(graph)
    with in_file(path):
        layers = _find_layers(graph, named, classes)
    complete, add_bias = partial(_complete, graph), partial(_add_bias, graph)
    return LocatedHead(
        path, layers, stamps, complete, _note(graph), add_bias=add_bias, given_names=layers[0].names
    )


def _find_layers(graph: Graph, named: str | None, classes: int | None) -> tuple[LayerSpans, ...]:
    found, reasons, path = {}, [], graph.path
    then: dict[tuple[str, ...], set[str]] = {}
    for output in graph.model.graph.output:
        try:
            with (
                reported_as("comes from too long a chain of nodes", RecursionError),
                reported_as("{}", ValueError),
            ):
                heads = heads_of(graph, output.name)
        except LevelheadError as error:
            words = " ".join(error.named.split())  # with names of the file's
            reasons.append(
                LevelheadError(f"{path}: output {output.name!r}: {words}", advice=error.advice)
            )
            continue
        nodes: list[LinearNode] = [one.layer for one in heads]
        titles = {
            output.name,
            *(title for node in nodes for title in (node.key, node.weight, node.node.name)),
        }
        if named is None or titles.issuperset(named.split(",")):
            weights = tuple(node.weight for node in nodes)
            then.setdefault(weights, set()).update(op for one in heads for op in one.follows[-1:])
            # of two outputs of one head, the one that is harder to fit
            if weights not in found or found[weights][0].plain > heads[0].plain:
                found[weights] = tuple(_layer_spans(graph, one.layer, one.plain) for one in heads)
    for weights, layers in found.items():
        task = (
            "multiclass"
            if then[weights] & {*COMPETING}
            else "multilabel"
            if "Sigmoid" in then[weights]
            else None
        )
        found[weights] = tuple(replace(layer, task=task) for layer in layers)
    fitting = [
        layers
        for layers in found.values()
        if classes is None or named or layers[0].classes == classes
    ]
    if len(fitting) == 1:
        return fitting[0]
    shapes = [(layer.key, layer.shape) for layers in found.values() for layer in layers]
    if len(fitting) > 1:
        raise several_heads(shapes)
    if shapes:
        raise NoHead(
            f"{path}: no head found with {classes} classes; there is {list_layers(shapes)}"
        )
    if named is not None and not reasons:
        raise LevelheadError(
            f"{path}: no output or head is called {named!r}; leave it out to have it found"
        )
    raise reasons[0] if reasons else LevelheadError(f"{path}: the model has no output")


def _stamps_of(graph: Graph) -> dict[Path, Stamp]:
    """Return the model's file, and those its weights are kept in, each as it was when it was read."""
    path, stamps = graph.path, {graph.path: graph.stamp}
    places = [_external(tensor, path) for tensor in messages(graph.model, "TensorProto")]
    for name in dict.fromkeys(place["location"] for place in places if place):
        if not name.isprintable() or not name or Path(name).name != name:
            raise LevelheadError(
                f"{path}: expected external weights in the same folder, got {name!r}"
            )
        try:
            stamps[path.parent / name] = check_regular_file(
                path.parent / name, f"external weights of {path.name}"
            )
        except OSError as error:
            if error.strerror is None:
                raise
            raise LevelheadError(
                f"{path}: expected external weights in {name!r} ({error.strerror})"
            ) from None
        if (path.parent / name).samefile(path):
            raise LevelheadError(f"{path}: expected external weights in another file, got {name!r}")
    return stamps


def _complete(
    graph: Graph, file: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
) -> list[Edit]:
    """Return the edits of a file, with the note in the model's metadata and the new names of external files."""
    renamed = {
        one.name: name for one, name in names.items() if one != graph.path and one.name != name
    }
    if file != graph.path or (note is None and not renamed):
        return edits
    data = graph.data
    if (
        note and not _note(graph) and not renamed
    ):  # protobuf fields may stand in any order: ours go to the end
        return [*edits, Edit(len(data), 0, _metadata(note).SerializeToString())]
    # Only a second note or a new name of an external file makes it necessary to serialize the model again.
    for edit in sorted(edits, key=lambda edit: edit.offset)[
        ::-1
    ]:  # from the end: some change the length
        data = data[: edit.offset] + b"".join(edit.blocks()) + data[edit.offset + edit.length :]
    model = _onnx().ModelProto.FromString(data)
    for tensor in messages(model, "TensorProto"):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = renamed.get(entry.value, entry.value)
    if note is not None:
        kept = [entry for entry in model.metadata_props if entry.key not in NOTE]
        del model.metadata_props[:]
        model.metadata_props.extend([*kept, *_metadata(note).metadata_props])
    return [Edit(0, len(graph.data), model.SerializeToString(deterministic=True))]


def _add_bias(graph: Graph, layer: LayerSpans, bias: Array) -> list[Edit]:
    """Return the edits that give a layer a bias [K]: a third input of Gemm and Conv, an Add after MatMul."""
    i, node, kind = node_of(graph, layer.weight.key)
    raw = encode(to_numpy(bias), ONNX_DTYPES[kind])
    if not np.isfinite(decode(raw, ONNX_DTYPES[kind])).all():
        reason = f"the new bias of {layer.key} does not fit {ONNX_DTYPES[kind]}"
        raise LevelheadError(
            f"{graph.path}: {reason}; use a strength nearer to 0, or save the model in float32 first"
        )
    helper, data, steps = _onnx().helper, graph.data, [(7, None), (1, i)]
    (start, end), (_, after) = locate(data, steps), locate(data, steps[:1])
    name = _unused_name(graph, f"{layer.key}.bias")
    tensor = helper.make_tensor(name, kind, [layer.classes], raw, raw=True)
    if node.op_type == "MatMul":  # whatever used its output now uses the sum
        inner = _unused_name(graph, f"{node.output[0]}_without_bias")
        added = helper.make_node(
            "Add", [inner, name], [node.output[0]], name=_unused_name(graph, f"{name}.Add")
        )
        changes = [Splice(place := [*steps, (2, 0)], *locate(data, place), inner.encode())]
        changes.append(Splice(steps[:1], end, end, field(1, added.SerializeToString())))
    elif len(node.input) == 3:  # an empty name stands for none
        changes = [Splice(place := [*steps, (1, 2)], *locate(data, place), name.encode())]
    else:
        changes = [Splice(steps, end, end, field(1, name.encode()))]
    if graph.model.ir_version < 4:  # its initializers would have to be inputs as well
        before = length_at(data, start) - 1
        constant = helper.make_node("Constant", [], [name], value=tensor).SerializeToString()
        return splice(data, [Splice(steps[:1], before, before, field(1, constant)), *changes])
    return splice(
        data, [*changes, Splice(steps[:1], after, after, field(5, tensor.SerializeToString()))]
    )


def _unused_name(graph: Graph, name: str) -> str:
    """Return the name, lengthened until nothing in the graph is called that."""
    taken = {*graph.uses, *graph.constants, *(one.name for one in graph.model.graph.input)}
    taken |= {output for node in graph.nodes for output in node.output}
    while name in taken:
        name += "_"
    return name


def _check(path: Path) -> None:
    """Run the onnx checker on a written model, without external weights: it would look for those next to the model."""
    model = _onnx().load(str(path), load_external_data=False)
    for tensor in messages(model, "TensorProto"):
        if _external(tensor, path) or len(tensor.raw_data) > LARGE_TENSOR:
            for name in ("external_data", "data_location", "raw_data"):
                tensor.ClearField(name)
            tensor.dims[:] = [0]
    try:
        _onnx().checker.check_model(model)
    except Exception as error:  # its own ValidationError or, for a model of over 2 GB, protobuf's
        reason = " ".join(str(error).split())
        raise LevelheadError(
            f"the model does not pass onnx.checker: {reason}; export it again"
        ) from None


def _layer_spans(graph: Graph, node: LinearNode, plain: bool) -> LayerSpans:
    if node.node.op_type == CLASSIFIER:
        return classifier_layer(graph, node.node)
    weight = replace(_span(graph, node.weight, node.transposed), shape=node.shape)
    bias = None if node.bias is None else _span(graph, node.bias)
    layer = LayerSpans(node.key, weight, bias, plain)
    if bias is not None and prod(bias.shape) != layer.classes:
        raise LevelheadError(
            f"{graph.path}: expected the bias {bias.key!r} [{layer.classes}], got {list(bias.shape)}"
        )
    return layer


def classifier_layer(graph: Graph, node: Any) -> LayerSpans:
    """Return where the rows and intercepts of a LinearClassifier are in the file."""
    key, title = classifier_key(graph, node), f"LinearClassifier {node.name!r}"
    held = {one.name: one for one in node.attribute}
    size, rows = (
        len(held[name].floats) if name in held else 0 for name in ("coefficients", "intercepts")
    )
    labels = next(
        (
            len(held[name].ints or held[name].strings)
            for name in held
            if name.startswith("classlabels_")
        ),
        0,
    )
    if not rows or not size or size % rows or rows not in ((1, 2) if labels == 2 else (labels,)):
        reason = f"{title} has {size} coefficients and {rows} intercepts for {labels} classes"
        raise LevelheadError(
            f"{reason}; expected a row and an intercept for each; export the model again"
        )
    weight, bias = (
        _attribute_span(graph, node, key, name) for name in ("coefficients", "intercepts")
    )
    weight = weight.part(0, (rows, size // rows))
    names = None
    if "classlabels_strings" in held:
        with suppress(UnicodeDecodeError):
            names = tuple(label.decode() for label in held["classlabels_strings"].strings)
    layer = LayerSpans(key, weight, bias, names=names if len({*(names or ())}) == rows else None)
    if rows != 2 or b"SOFTMAX" in (held["post_transform"].s if "post_transform" in held else b""):
        return layer
    values, added = (
        np.reshape(held["coefficients"].floats, (2, -1)),
        np.array(held["intercepts"].floats),
    )
    if not np.array_equal(values[0], -values[1]) or added[0] != -added[1]:
        return layer
    negative, positive = (
        LayerSpans(key, weight.part(i, (1, size // 2)), bias.part(i, (1,))) for i in range(2)
    )
    return LayerSpans(positive.key, positive.weight, positive.bias, opposite=negative)


def _attribute_span(graph: Graph, node: Any, key: str, name: str) -> Span:
    """Return where the numbers of an attribute are: behind one another, with or without the byte of their field."""
    i = next(i for i, one in enumerate(graph.model.graph.node) if one.output == node.output)
    places = [j for j, one in enumerate(node.attribute) if one.name == name]
    attribute = node.attribute[places[0]]
    count = len(attribute.floats)
    start, end = locate(graph.data, [(7, None), (1, i), (5, places[0])])
    found = [
        (at, after) for number, _, at, after in fields(graph.data, start, end) if number == FLOATS
    ]
    first, last = found[0][0], found[-1][1]
    tagged = len(found) > 1
    span = Span(
        f"{key}.{name}",
        graph.path,
        first - tagged,
        "F32",
        (count,),
        tag=FLOATS_TAG if tagged else None,
    )
    data, numbers = graph.data[span.offset : last], np.array(attribute.floats, "<f4").tobytes()
    if len(places) != 1 or data != span.pack(numbers):
        raise LevelheadError(
            f"{graph.path}: {span.key} is not stored as plain numbers; export the model again"
        )
    return span


def _span(graph: Graph, name: str, transposed: bool = False) -> Span:
    """Return where in a file a constant's numbers are."""
    tensor, steps = graph.constants[name]
    if tensor.data_type not in ONNX_DTYPES:
        known = {number: title for title, number in _onnx().TensorProto.DataType.items()}
        kind = known.get(tensor.data_type, f"numbers of the unknown type {tensor.data_type}")
        raise LevelheadError(
            f"{graph.path}: {name} holds {kind}, a quantized type; adjust the model before quantizing"
        )
    dtype, shape, external = (
        ONNX_DTYPES[tensor.data_type],
        tuple(tensor.dims),
        _external(tensor, graph.path),
    )
    if any(n < 1 for n in shape):
        raise LevelheadError(
            f"{graph.path}: {name} has the shape {list(shape)}; export the model again"
        )
    if external:
        file, offset = graph.path.parent / external["location"], int(external.get("offset", 0))
        span = Span(name, file, offset, dtype, shape, transposed)
        if int(external.get("length", span.nbytes)) != span.nbytes:
            what = f"expected {span.nbytes} bytes for {name}, got {external['length']}"
            raise LevelheadError(f"{graph.path}: {what}; export the model again")
        _check_untied(graph, tensor, span)
        return span
    number, held = 9, tensor.raw_data
    if not tensor.HasField("raw_data") and tensor.data_type in TYPED:
        number, name_of_field, form = TYPED[tensor.data_type]
        held = np.array(getattr(tensor, name_of_field), form).tobytes()
    start, end = locate(graph.data, [*steps, (number, None)], graph.parts)
    span = Span(name, graph.path, start, dtype, shape, transposed)
    if end - start != span.nbytes or graph.data[start:end] != held:
        raise LevelheadError(
            f"{graph.path}: {name} is not stored as plain bytes; make it anew with onnx.numpy_helper"
        )
    return span


def _check_untied(graph: Graph, tensor: Any, span: Span) -> None:
    """Check that no other tensor has the same bytes of an external file."""
    for other in messages(graph.model, "TensorProto"):
        place = _external(other, graph.path)
        if other is tensor or not place or place["location"] != span.file.name:
            continue
        start, item = (
            int(place.get("offset", 0)),
            16,
        )  # bytes of a number, at most, of a type that onnx does not know
        with suppress(KeyError):
            item = _onnx().helper.tensor_dtype_to_np_dtype(other.data_type).itemsize
        length = int(place.get("length") or item * prod(other.dims))
        if span.offset < start + length and start < span.offset + span.nbytes:
            tied = f"{span.key!r} has the same bytes of {span.file.name} as {other.name!r}"
            raise LevelheadError(
                f"{graph.path}: {tied}, and scaling it would change both; give each its own"
            )


def _external(tensor: Any, path: Path) -> dict[str, str]:
    """Return where in which other file a tensor's numbers are; empty if they are in the model's own."""
    if tensor.data_location != 1:
        return {}
    found = {entry.key: entry.value for entry in tensor.external_data}
    if "location" not in found or not all(
        PLACE.fullmatch(found.get(key, "0")) for key in ("offset", "length")
    ):
        raise LevelheadError(
            f"{path}: {tensor.name!r} is kept in an unknown file; export the model again"
        )
    return found


def _note(graph: Graph) -> dict[str, Any] | None:
    return note_from({entry.key: entry.value for entry in graph.model.metadata_props}, graph.path)


def _metadata(note: Note) -> Any:
    model = _onnx().ModelProto()
    for key, value in note_entries(note).items():
        model.metadata_props.add(key=key, value=value)
    return model


def _parse(path: Path) -> Graph:
    message, stamp = _onnx().ModelProto, check_regular_file(path, "an ONNX model")
    # protobuf's DecodeError lives in different modules of its versions
    with (
        in_file(path),
        reported_as("cut short, or not an ONNX model ({}); export it again", Exception),
    ):
        model = message.FromString(data := path.read_bytes())
    if not model.graph.node:
        raise LevelheadError(f"{path}: not an ONNX model, its graph is empty")
    if not all(
        isinstance(text, str) for text in texts(model)
    ):  # protobuf gives bytes that are not UTF-8 as bytes
        raise LevelheadError(f"{path}: a name in it is not valid UTF-8; export it again")
    return Graph(path, model, data, stamp)


def _onnx() -> Any:
    with naming_what_is_missing("reading an .onnx file"):
        import onnx
    return onnx


FORMAT = Format(
    "ONNX",
    (".onnx",),
    _find,
    lambda path: _note(_parse(path)),
    _check,
    lambda path: tuple(_stamps_of(_parse(path))),
)
