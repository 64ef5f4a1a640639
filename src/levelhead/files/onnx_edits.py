"""What changes in the file of an ONNX model beside the numbers of its head.

A bias that is added, the note, new names of the files of its weights. All are edits of fields of
protobuf. Those that make a message longer or shorter are a `Splice`, for which `with_lengths`
changes the lengths of all messages around it. The model is never serialized anew: the library would
need all of its numbers for that, and might write its fields in another order.

Fields of the messages, by number, as onnx.proto has them:

    ModelProto    7 graph, 14 metadata_props
    GraphProto    1 node, 5 initializer
    NodeProto     1 input, 2 output, 5 attribute
    TensorProto   13 external_data
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ..heads.notes import NOTE, Note, note_entries
from ..support.arrays import Array, to_numpy
from ..support.errors import LevelheadError
from .edits import Edit
from .numbers import decode, encode
from .onnx_file import MODEL_MESSAGE, ONNX_DTYPES, TENSOR, import_onnx
from .onnx_graph import Graph
from .onnx_layers import node_of
from .protobuf import (
    FieldStep,
    MessageKind,
    Splice,
    WireFile,
    encode_field,
    length_at,
    with_lengths,
)
from .spans import LayerSpans

METADATA = 14  # the field of a model's own notes
EXTERNAL = 13  # the field of a tensor that says in which file its numbers are
BROADCASTING = 7  # the opset from which on an Add takes values of two shapes
_GRAPH_FIELD: FieldStep = (7, None)  # of a model
_NODE = 1  # the field of a graph's nodes
_INITIALIZER = 5  # the field of a graph's constants
_INPUT = 1  # the field of a node's inputs
_OUTPUT = 2  # the field of a node's outputs


def complete(
    graph: Graph, file: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
) -> list[Edit]:
    """Return the edits of a file, with the note, and new names of external files.

    Args:
        graph: the model.
        file, edits: one of its files, and what changes there; external weights need nothing more.
        note: what to record; an empty one takes an earlier record out, None leaves it.
        names: {file: its new name}.
    """
    if file != graph.path:
        return edits
    # Tensors name the file that they are in: if that gets another name, all of them must say so.
    renamed = {}
    for external, name in names.items():
        if external != graph.path and external.name != name:
            renamed[external.name] = name
    changes = [*edits, *_new_names(graph.file, renamed)]
    if note is not None:
        changes += _old_note(graph.file)
        # Fields of protobuf may stand in any order: ours go to the end.
        entries = _metadata(note)
        if entries:
            changes.append(Edit(graph.file.size, 0, entries))
    return with_lengths(graph.file, changes)


def _metadata(note: Note) -> bytes:
    """Return a note as entries of a model's metadata: what a model with nothing else would be.

    A serialized message behind another is a part of it, so that these bytes go to the end of the
    file.
    """
    model = import_onnx().ModelProto()
    for key, value in note_entries(note).items():
        model.metadata_props.add(key=key, value=value)
    return model.SerializeToString()


def _old_note(file: WireFile) -> Iterator[Edit]:
    """Yield the edits that take an earlier note out: whole fields of the model, with their tags."""
    entry = import_onnx().StringStringEntryProto
    for part in file.parts_of(0, file.size).get(METADATA, []):
        if entry.FromString(file.read(part.start, part.end)).key in NOTE:
            yield Edit(part.tag_at, part.end - part.tag_at, b"")


def _new_names(file: WireFile, renamed: Mapping[str, str]) -> Iterator[Edit]:
    """Yield the edits that give the files of a model's weights new names.

    Args:
        file: the model.
        renamed: {old name: new name}; without any, the file is not walked through.
    """
    if not renamed:
        return
    message = import_onnx().StringStringEntryProto
    for steps in _tensors(file, MODEL_MESSAGE, 0, file.size, ()):
        start, end = file.locate(steps)
        for i, part in enumerate(file.parts_of(start, end).get(EXTERNAL, [])):
            entry = message.FromString(file.read(part.start, part.end))
            if entry.key == "location" and entry.value in renamed:
                place = (*steps, (EXTERNAL, i))
                entry.value = renamed[entry.value]
                yield Splice(part.start, part.length, entry.SerializeToString(), place)


def _tensors(
    file: WireFile, kind: MessageKind, start: int, end: int, steps: tuple[FieldStep, ...]
) -> Iterator[tuple[FieldStep, ...]]:
    """Yield where each tensor in a message is, as steps from the whole file on.

    Args:
        file, kind, start, end: the message.
        steps: that lead to it.
    """
    if kind is TENSOR:
        yield steps
        return
    for number, inner in kind.inside.items():
        for i, part in enumerate(file.parts_of(start, end).get(number, [])):
            yield from _tensors(file, inner, part.start, part.end, (*steps, (number, i)))


def add_bias(graph: Graph, layer: LayerSpans, bias: Array) -> list[Edit]:
    """Return the edits that give a layer a bias [K].

    Gemm and Conv take it as a third input; behind a MatMul comes an Add, which makes the value that
    the MatMul made, under its name.

    Args:
        graph: the model.
        layer: a layer without a bias.
        bias: [K]; it is written in the dtype that the layer computes in.

    Raises:
        LevelheadError: a number does not fit that dtype, or the model is too old to add [K] to a
            product.
    """
    index, node, dtype = node_of(graph, layer.weight.key)
    if graph.operator(node) == "MatMul" and graph.opset < BROADCASTING:
        reason = f"a bias for {layer.key} needs opset {BROADCASTING}, and it has {graph.opset}"
        raise LevelheadError(f"{graph.path}: {reason}; convert it (onnx.version_converter) first")
    raw = encode(to_numpy(bias), ONNX_DTYPES[dtype])
    if not np.isfinite(decode(raw, ONNX_DTYPES[dtype])).all():
        reason = f"the new bias of {layer.key} does not fit {ONNX_DTYPES[dtype]}"
        raise LevelheadError(
            f"{graph.path}: {reason}; use a strength nearer to 0, or save the model in float32 first"
        )
    # Where in the file the node and the graph are, and a name that nothing has.
    helper = import_onnx().helper
    file = graph.file
    in_graph: tuple[FieldStep, ...] = (_GRAPH_FIELD,)
    in_node: tuple[FieldStep, ...] = (_GRAPH_FIELD, (_NODE, index))
    node_start, node_end = file.locate(in_node)
    _, graph_end = file.locate(in_graph)
    name = _unused_name(graph, f"{layer.key}.bias")
    tensor = helper.make_tensor(name, dtype, [layer.classes], raw, raw=True)

    # The node takes the bias, or an Add behind it does.
    changes: list[Edit]
    if graph.operator(node) == "MatMul":  # whatever used its output now uses the sum
        inner = _unused_name(graph, f"{node.output[0]}_without_bias")
        title = _unused_name(graph, f"{name}.Add")
        added = helper.make_node("Add", [inner, name], [node.output[0]], name=title)
        changes = [
            _renamed(file, (*in_node, (_OUTPUT, 0)), inner),
            Splice(node_end, 0, encode_field(_NODE, added.SerializeToString()), in_graph),
        ]
    elif len(node.input) == 3:  # an empty name stands for none
        changes = [_renamed(file, (*in_node, (_INPUT, 2)), name)]
    else:
        changes = [Splice(node_end, 0, encode_field(_INPUT, name.encode()), in_node)]

    # The graph gets its numbers: as an initializer or, where that would have to be an input as
    # well, as a node before.
    if graph.model.ir_version < 4:
        before = length_at(file, node_start) - 1  # the tag of a node is one byte
        constant = helper.make_node("Constant", [], [name], value=tensor).SerializeToString()
        return [Splice(before, 0, encode_field(_NODE, constant), in_graph), *changes]
    new = encode_field(_INITIALIZER, tensor.SerializeToString())
    return [*changes, Splice(graph_end, 0, new, in_graph)]


def _renamed(file: WireFile, steps: tuple[FieldStep, ...], name: str) -> Splice:
    """Return the edit that puts another name where these steps lead."""
    start, end = file.locate(steps)
    return Splice(start, end - start, name.encode(), steps)


def _unused_name(graph: Graph, name: str) -> str:
    """Return the name, lengthened until nothing in the graph is called that.

    Also in graphs inside nodes, which see the names of those around them.
    """
    taken = {*graph.uses, *graph.constants}
    taken |= {value.name for value in graph.model.graph.input}
    for node in graph.nodes:
        taken.update(node.output)
    while name in taken:
        name += "_"
    return name
