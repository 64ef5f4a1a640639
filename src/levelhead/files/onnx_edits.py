"""What changes in the file of an ONNX model: a bias that is added, the note, new names of the files of its weights."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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


def complete(
    graph: Graph, file: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
) -> list[Edit]:
    """Return the edits of a file, with the note in the model's metadata and the new names of external files."""
    if file != graph.path:
        return edits
    renamed = {
        one.name: name for one, name in names.items() if one != graph.path and one.name != name
    }
    changes = [*edits, *_new_names(graph.file, renamed)]
    if note is not None:
        changes += _old_note(graph.file)
        # Fields of protobuf may stand in any order: ours go to the end.
        if entries := _metadata(note):
            changes.append(Edit(graph.file.size, 0, entries))
    return with_lengths(graph.file, changes)


def _metadata(note: Note) -> bytes:
    model = import_onnx().ModelProto()
    for key, value in note_entries(note).items():
        model.metadata_props.add(key=key, value=value)
    return model.SerializeToString()


def _old_note(file: WireFile) -> Iterator[Edit]:
    """Yield the edits that take an earlier note out."""
    entry = import_onnx().StringStringEntryProto
    for one in file.parts_of(0, file.size).get(METADATA, []):
        if entry.FromString(file.read(one.start, one.end)).key in NOTE:
            yield Edit(one.tag_at, one.end - one.tag_at, b"")


def _new_names(file: WireFile, renamed: Mapping[str, str]) -> Iterator[Edit]:
    """Yield the edits that give the files of a model's weights new names."""
    entry = import_onnx().StringStringEntryProto
    for steps in _tensors(file, MODEL_MESSAGE, 0, file.size, ()) if renamed else ():
        start, end = file.locate(steps)
        for i, one in enumerate(file.parts_of(start, end).get(EXTERNAL, [])):
            held = entry.FromString(file.read(one.start, one.end))
            if held.key == "location" and held.value in renamed:
                place = (*steps, (EXTERNAL, i))
                held.value = renamed[held.value]
                yield Splice(one.start, one.length, held.SerializeToString(), place)


def _tensors(
    file: WireFile, kind: MessageKind, start: int, end: int, steps: tuple[FieldStep, ...]
) -> Iterator[tuple[FieldStep, ...]]:
    """Yield where each tensor in a message is."""
    if kind is TENSOR:
        yield steps
        return
    for number, inner in kind.inside.items():
        for i, one in enumerate(file.parts_of(start, end).get(number, [])):
            yield from _tensors(file, inner, one.start, one.end, (*steps, (number, i)))


def add_bias(graph: Graph, layer: LayerSpans, bias: Array) -> list[Edit]:
    """Return the edits that give a layer a bias [K]: a third input of Gemm and Conv, an Add after MatMul."""
    i, node, kind = node_of(graph, layer.weight.key)
    raw = encode(to_numpy(bias), ONNX_DTYPES[kind])
    if not np.isfinite(decode(raw, ONNX_DTYPES[kind])).all():
        reason = f"the new bias of {layer.key} does not fit {ONNX_DTYPES[kind]}"
        raise LevelheadError(
            f"{graph.path}: {reason}; use a strength nearer to 0, or save the model in float32 first"
        )
    helper, file = import_onnx().helper, graph.file
    in_graph: tuple[FieldStep, ...] = ((7, None),)
    in_node: tuple[FieldStep, ...] = (*in_graph, (1, i))
    (start, end), (_, after) = file.locate(in_node), file.locate(in_graph)
    name = _unused_name(graph, f"{layer.key}.bias")
    tensor = helper.make_tensor(name, kind, [layer.classes], raw, raw=True)

    def put(steps: tuple[FieldStep, ...], text: str) -> Splice:
        first, last = file.locate(steps)
        return Splice(first, last - first, text.encode(), steps)

    changes: list[Edit]
    if graph.operator(node) == "MatMul":  # whatever used its output now uses the sum
        inner = _unused_name(graph, f"{node.output[0]}_without_bias")
        title = _unused_name(graph, f"{name}.Add")
        added = helper.make_node("Add", [inner, name], [node.output[0]], name=title)
        changes = [put((*in_node, (2, 0)), inner)]
        changes.append(Splice(end, 0, encode_field(1, added.SerializeToString()), in_graph))
    elif len(node.input) == 3:  # an empty name stands for none
        changes = [put((*in_node, (1, 2)), name)]
    else:
        changes = [Splice(end, 0, encode_field(1, name.encode()), in_node)]
    if graph.model.ir_version < 4:  # its initializers would have to be inputs as well
        before = length_at(file, start) - 1
        constant = helper.make_node("Constant", [], [name], value=tensor).SerializeToString()
        return [Splice(before, 0, encode_field(1, constant), in_graph), *changes]
    new = encode_field(5, tensor.SerializeToString())
    return [*changes, Splice(after, 0, new, in_graph)]


def _unused_name(graph: Graph, name: str) -> str:
    """Return the name, lengthened until nothing in the graph is called that."""
    taken: set[Any] = {*graph.uses, *graph.constants}
    taken |= {one.name for one in graph.model.graph.input}
    taken |= {output for node in graph.nodes for output in node.output}
    while name in taken:
        name += "_"
    return name
