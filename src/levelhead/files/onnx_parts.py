"""Parts of a parsed ONNX model: its graphs, names and tensors, and the heads that skl2onnx writes.

Those are LinearClassifier of ai.onnx.ml, with numbers in attributes of the node: protobuf puts the byte of their field
before each of them. A classifier of two classes has one logit: a single row, or two rows of which the first is the
second with the other sign, unless a softmax follows, which makes them two logits.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..core.errors import LevelheadError
from .protobuf import fields, locate
from .spans import LayerSpans, Span

FLOATS = 7  # the field of an attribute that holds a list of numbers
FLOATS_TAG = FLOATS << 3 | 5  # the byte before each of them


def graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph, or a function, and every graph in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graphs(inner)


def all_graphs(model: Any) -> Iterator[Any]:
    """Yield every graph and function of a model."""
    trained = [graph for one in model.training_info for graph in (one.initialization, one.algorithm)]
    for whole in (model.graph, *model.functions, *trained):
        yield from graphs(whole)


def texts(model: Any) -> Iterator[Any]:
    """Yield every name in a model."""
    for graph in all_graphs(model):
        for node in graph.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
        yield from (getattr(value, "name", value) for value in (*graph.input, *graph.output))  # a function's are names
    for tensor in tensors(model):
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    yield from (text for entry in model.metadata_props for text in (entry.key, entry.value))


def tensors(model: Any) -> Iterator[Any]:
    """Yield every tensor of a model."""
    for one in all_graphs(model):
        sparse = list(getattr(one, "sparse_initializer", ()))
        yield from getattr(one, "initializer", ())  # a function has none
        for node in one.node:
            for attribute in node.attribute:
                yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
                sparse += [*([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else [])]
                sparse += attribute.sparse_tensors
        for each in sparse:
            yield from (each.values, each.indices)


def classifier_key(graph: Any, node: Any) -> str:
    """Return a name for a LinearClassifier that no other node has: its own or, failing that, that of its output."""
    names = Counter(one.name for one in graph.model.graph.node)
    return node.name if node.name and names[node.name] == 1 else next(iter(node.output), "")


def classifier_names(node: Any) -> tuple[str, ...] | None:
    """Return the class names of a LinearClassifier, if its labels are texts."""
    labels = next((one.strings for one in node.attribute if one.name == "classlabels_strings"), ())
    try:
        return tuple(label.decode() for label in labels) or None
    except UnicodeDecodeError:
        return None


def classifier_layer(graph: Any, node: Any) -> LayerSpans:
    """Return where the rows and intercepts of a LinearClassifier are in the file."""
    key, title = classifier_key(graph, node), f"LinearClassifier {node.name!r}"
    held = {one.name: one for one in node.attribute}
    size, rows = (len(held[name].floats) if name in held else 0 for name in ("coefficients", "intercepts"))
    labels = next((len(held[name].ints or held[name].strings) for name in held if name.startswith("classlabels_")), 0)
    if not rows or not size or size % rows or rows not in ((1, 2) if labels == 2 else (labels,)):
        raise LevelheadError(
            f"{title} has {size} coefficients and {rows} intercepts for {labels} classes; expected a row and an "
            "intercept for each; export the model again"
        )
    weight, bias = (_span(graph, node, key, name) for name in ("coefficients", "intercepts"))
    weight = weight.part(0, (rows, size // rows))
    layer = LayerSpans(key, weight, bias)
    if rows != 2 or b"SOFTMAX" in (held["post_transform"].s if "post_transform" in held else b""):
        return layer
    values, added = np.reshape(held["coefficients"].floats, (2, -1)), np.array(held["intercepts"].floats)
    if not np.array_equal(values[0], -values[1]) or added[0] != -added[1]:
        return layer
    negative, positive = (LayerSpans(key, weight.part(i, (1, size // 2)), bias.part(i, (1,))) for i in range(2))
    return LayerSpans(positive.key, positive.weight, positive.bias, opposite=negative)


def _span(graph: Any, node: Any, key: str, name: str) -> Span:
    """Return where the numbers of an attribute are: behind one another, with or without the byte of their field."""
    i = next(i for i, one in enumerate(graph.model.graph.node) if one.output == node.output)
    places = [j for j, one in enumerate(node.attribute) if one.name == name]
    count = len(node.attribute[places[0]].floats)
    start, end = locate(graph.data, [(7, None), (1, i), (5, places[0])])
    found = [(at, after) for number, at, after in fields(graph.data, start, end) if number == FLOATS]
    first, last = found[0][0], found[-1][1]
    tagged = len(found) > 1
    span = Span(f"{key}.{name}", graph.path, first - tagged, "F32", (count,), tag=FLOATS_TAG if tagged else None)
    whole = len(places) == 1 and last - span.offset == span.nbytes
    data = graph.data[span.offset : last]
    if not whole or span.pack(span.unpack(data)) != data or span.unpack(data) != _bytes(node.attribute[places[0]]):
        raise LevelheadError(f"{graph.path}: {span.key} is not stored as plain numbers; export the model again")
    return span


def _bytes(attribute: Any) -> bytes:
    return np.array(attribute.floats, "<f4").tobytes()
