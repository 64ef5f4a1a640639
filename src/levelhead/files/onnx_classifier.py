"""LinearClassifier of ai.onnx.ml, as skl2onnx writes it: its numbers are attributes of the node."""

from contextlib import suppress
from typing import Any

import numpy as np

from ..support.errors import LevelheadError
from .onnx_graph import Graph
from .onnx_layers import classifier_key
from .spans import LayerSpans, Span

FLOATS = 7  # the field of an attribute that holds a list of numbers
FLOATS_TAG = FLOATS << 3 | 5  # the byte before each of them


def classifier_layer(graph: Graph, node: Any) -> LayerSpans:
    """Return where the rows and intercepts of a LinearClassifier are in the file."""
    key = classifier_key(graph, node)
    title = f"LinearClassifier {node.name!r}"
    held = {one.name: one for one in node.attribute}
    size, rows = (
        len(held[name].floats) if name in held else 0 for name in ("coefficients", "intercepts")
    )
    labels = 0
    for name in held:
        if name.startswith("classlabels_"):
            labels = labels or len(held[name].ints or held[name].strings)
    if not rows or not size or size % rows or rows not in ((1, 2) if labels == 2 else (labels,)):
        reason = f"{title} has {size} coefficients and {rows} intercepts for {labels} classes"
        raise LevelheadError(
            f"{reason}; expected a row and an intercept for each; export the model again"
        )
    weight = _attribute_span(graph, node, key, "coefficients").part(0, (rows, size // rows))
    bias = _attribute_span(graph, node, key, "intercepts")
    names = None
    if "classlabels_strings" in held:
        with suppress(UnicodeDecodeError):
            names = tuple(label.decode() for label in held["classlabels_strings"].strings)
    if names is not None and len({*names}) != rows:
        names = None
    layer = LayerSpans(key, weight, bias, names=names)
    transform = b""
    if "post_transform" in held:
        transform = held["post_transform"].s
    if rows != 2 or b"SOFTMAX" in transform:
        return layer
    values = np.reshape(held["coefficients"].floats, (2, -1))
    added = np.array(held["intercepts"].floats)
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
    start, end = graph.file.locate([(7, None), (1, i), (5, places[0])])
    found = [one for one in graph.file.fields(start, end) if one.number == FLOATS]
    tagged = len(found) > 1
    span = Span(
        f"{key}.{name}",
        graph.path,
        found[0].tag_at if tagged else found[0].start,
        "F32",
        (len(attribute.floats),),
        tag=FLOATS_TAG if tagged else None,
    )
    data = graph.file.read(span.offset, found[-1].end)
    if len(places) != 1 or data != span.pack(np.array(attribute.floats, "<f4").tobytes()):
        raise LevelheadError(
            f"{graph.path}: {span.key} is not stored as plain numbers; export the model again"
        )
    return span
