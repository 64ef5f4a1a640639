"""LinearClassifier of ai.onnx.ml, as skl2onnx writes it: its numbers are attributes of the node.

    coefficients        K x d floats, row by row
    intercepts          K floats
    classlabels_ints or classlabels_strings: the K labels
    post_transform      NONE, LOGISTIC, SOFTMAX or another: what it does to the scores

An attribute is a message whose field 7 is a list of floats. Protobuf writes such a list in one
piece (packed) or, as onnx does, as one field for each number with a tag byte before it: then a
head's numbers lie five bytes apart (`Span.tag`).

Reference: https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from ..support.errors import LevelheadError
from .onnx_graph import Graph
from .onnx_layers import classifier_key
from .spans import LayerSpans, Span

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto

FLOATS = 7  # the field of an attribute that holds a list of numbers
FLOATS_TAG = FLOATS << 3 | 5  # the byte before each of them


def classifier_layer(graph: Graph, node: NodeProto) -> LayerSpans:
    """Return where the rows and intercepts of a LinearClassifier are in the file.

    Two classes may have one row, two rows, or the same row twice, with opposite signs. The last is
    one logit: the result is its second row, with the first as `opposite`.

    Raises:
        LevelheadError: coefficients, intercepts and labels do not fit each other, or the numbers
            are stored in another way.
    """
    key = classifier_key(graph, node)
    attributes = {attribute.name: attribute for attribute in node.attribute}
    size = 0
    if "coefficients" in attributes:
        size = len(attributes["coefficients"].floats)
    rows = 0
    if "intercepts" in attributes:
        rows = len(attributes["intercepts"].floats)
    labels = _label_count(attributes)
    # A row for each class; of two classes, one row may serve both.
    fitting = (1, 2) if labels == 2 else (labels,)
    if not rows or not size or size % rows or rows not in fitting:
        title = f"LinearClassifier {node.name!r}"
        reason = f"{title} has {size} coefficients and {rows} intercepts for {labels} classes"
        raise LevelheadError(
            f"{reason}; expected a row and an intercept for each; export the model again"
        )
    width = size // rows
    weight = _attribute_span(graph, node, key, "coefficients").part(0, (rows, width))
    bias = _attribute_span(graph, node, key, "intercepts")
    if rows == 2 and _is_one_logit(attributes):
        negative = LayerSpans(key, weight.part(0, (1, width)), bias.part(0, (1,)))
        return LayerSpans(key, weight.part(1, (1, width)), bias.part(1, (1,)), opposite=negative)
    return LayerSpans(key, weight, bias, names=_names(attributes, rows))


def _label_count(attributes: dict[str, AttributeProto]) -> int:
    """Return how many labels a classifier has, as numbers or as texts; 0 if it has neither."""
    for name, attribute in attributes.items():
        if name.startswith("classlabels_"):
            labels = len(attribute.ints) or len(attribute.strings)
            if labels:
                return labels
    return 0


def _names(attributes: dict[str, AttributeProto], rows: int) -> tuple[str, ...] | None:
    """Return the labels of a classifier, if they are texts, one for each row."""
    names = None
    if "classlabels_strings" in attributes:
        with suppress(UnicodeDecodeError):
            names = tuple(label.decode() for label in attributes["classlabels_strings"].strings)
    if names is None or len({*names}) != rows:
        return None
    return names


def _is_one_logit(attributes: dict[str, AttributeProto]) -> bool:
    """Return whether the two rows of a classifier are one logit with opposite signs.

    Not under a softmax: that of (-z, z) is a sigmoid of 2z, both rows count, and are left as two
    classes.
    """
    if "post_transform" in attributes and b"SOFTMAX" in attributes["post_transform"].s:
        return False
    weights = np.reshape(attributes["coefficients"].floats, (2, -1))
    biases = np.array(attributes["intercepts"].floats)
    return bool(np.array_equal(weights[0], -weights[1]) and biases[0] == -biases[1])


def gives_opposite_scores(node: NodeProto) -> bool:
    """Return whether a classifier of two classes gives (-z, z), two scores of one logit."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    transform = b"NONE"
    if "post_transform" in attributes:
        transform = attributes["post_transform"].s
    if transform != b"NONE" or _label_count(attributes) != 2 or "intercepts" not in attributes:
        return False
    return len(attributes["intercepts"].floats) == 1 or _is_one_logit(attributes)


def _attribute_span(graph: Graph, node: NodeProto, key: str, name: str) -> Span:
    """Return where the numbers of an attribute are: one after another, with or without tags.

    Args:
        graph, node: where it is.
        key: what the layer is called.
        name: of the attribute.

    Raises:
        LevelheadError: the bytes there are not the numbers that the library reads.
    """
    # Where the node and the attribute are in the file: field 7 is the graph, 1 a node, 5 an
    # attribute.
    i = next(i for i, other in enumerate(graph.model.graph.node) if other.output == node.output)
    places = [j for j, attribute in enumerate(node.attribute) if attribute.name == name]
    attribute = node.attribute[places[0]]
    start, end = graph.file.locate([(7, None), (1, i), (5, places[0])])
    fields = [one for one in graph.file.fields(start, end) if one.number == FLOATS]
    # Packed, the numbers are one field; otherwise each is a field by itself, with its tag.
    offset = fields[0].start
    tag = None
    if len(fields) > 1:
        offset = fields[0].tag_at
        tag = FLOATS_TAG
    shape = (len(attribute.floats),)
    span = Span(f"{key}.{name}", graph.path, offset, "F32", shape, tag=tag)
    # What the library read must be what stands there: lists that mix both ways, or other fields in
    # between, are refused.
    data = graph.file.read(span.offset, fields[-1].end)
    if len(places) != 1 or data != span.pack(np.array(attribute.floats, "<f4").tobytes()):
        raise LevelheadError(
            f"{graph.path}: {span.key} is not stored as plain numbers; export the model again"
        )
    return span
