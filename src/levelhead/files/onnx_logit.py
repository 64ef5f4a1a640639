"""Heads in ONNX of one row for each class, or one logit of two classes, as skl2onnx writes them.

scikit-learn's binary classifiers have one logit z, and give two columns: (-z, z) as scores, (1 - p,
p) as probabilities. In a graph these are a Concat of two values, and a Slice or
ArrayFeatureExtractor where the second is taken again: `two_scores_of` sees through both.
One-against-the-rest models have such a classifier for each class, and a Concat of all their second
columns: `layer_of_rows` makes one layer of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .onnx_axes import MIXED, class_axis, picked_axes
from .onnx_graph import CLASSIFIER, EXTRACTOR, Graph, attribute_of, integer_attribute
from .onnx_layers import LinearNode, OnnxHead

if TYPE_CHECKING:
    from onnx import NodeProto


def two_scores_of(
    graph: Graph, node: NodeProto, is_probability: Callable[[str], bool]
) -> str | None:
    """Return the z of which a node makes (-z, z), or the p of (1 - p, p); or None.

    A Concat makes two scores of one logit, and a Slice or the like takes the second of them again.

    Args:
        graph, node: the Concat, or what takes from one.
        is_probability: whether a value is a sigmoid: only then 1 - p is what the other class has.
    """
    if graph.operator(node) == "Concat":
        return _doubled(graph, node, is_probability)
    if not takes_second(graph, node):
        return None
    scores = node.input[0]
    pair = graph.maker(scores, "Concat")
    if pair is not None:
        return _doubled(graph, pair, is_probability)
    # A LinearClassifier of one row gives two scores by itself: its second output.
    classifier = graph.maker(scores, CLASSIFIER)
    if (
        classifier is not None
        and list(classifier.output[1:2]) == [scores]
        and _is_binary(classifier)
    ):
        return scores
    return None


def _doubled(graph: Graph, pair: NodeProto, is_probability: Callable[[str], bool]) -> str | None:
    """Return the value that a Concat has twice: with a minus before, or as what p leaves of 1.

    Args:
        graph, pair: the Concat.
        is_probability: as in `two_scores_of`.
    """
    if len(pair.input) != 2 or not _joins_classes(graph, pair):
        return None
    # The first is to be -z of the second, written as Neg or as a product, or 1 - p.
    first, second = pair.input
    if graph.shapes.get(second, (0, 0))[-1] not in (0, 1):
        return None
    negative = graph.maker(first, "Neg")
    if negative is not None and negative.input[0] == second:
        return second
    times = graph.maker(first, "Mul")
    if times is not None and len(times.input) == 2 and times.input[0] == second:
        if graph.number(times.input[1]) == -1:
            return second
        return None
    rest = graph.maker(first, "Sub")
    if rest is not None and len(rest.input) == 2 and rest.input[1] == second:
        is_rest = graph.number(rest.input[0]) == 1
        if is_rest and is_probability(second):
            return second
        return None
    return None


def _joins_classes(graph: Graph, node: NodeProto) -> bool:
    """Return whether a Concat puts values side by side along the axis of the classes.

    Where that axis is not known, scores are taken to be [N, K], so that it is the second: unless
    the value is known to have other axes.
    """
    axis = integer_attribute(node, "axis", 0)
    for name in node.input:
        classes = class_axis(graph, name)
        rank = graph.rank(name)
        if classes not in (None, MIXED):
            if axis % rank != classes:
                return False
        elif rank not in (0, 2) or axis not in (1, -1):
            return False
    return True


def takes_second(graph: Graph, node: NodeProto) -> bool:
    """Return whether a node takes the second of two columns.

    An ArrayFeatureExtractor of column 1, or a Slice from 1 to 2 along the second or last axis.
    """
    operator = graph.operator(node)
    if operator == EXTRACTOR:
        return len(node.input) == 2 and graph.integers(node.input[1]) == [1]
    if operator != "Slice" or len(node.input) < 4:
        return False
    starts = graph.integers(node.input[1])
    ends = graph.integers(node.input[2])
    return starts == [1] and ends == [2] and picked_axes(graph, node) in ([1], [-1])


def _is_binary(node: NodeProto) -> bool:
    """Return whether a LinearClassifier has two classes, of which the second has the score.

    A post_transform such as SOFTMAX compares its two scores, and then the second is not one logit.
    """
    labels = 0
    numbers = attribute_of(node, "classlabels_ints")
    if numbers is not None:
        labels += len(numbers.ints)
    texts = attribute_of(node, "classlabels_strings")
    if texts is not None:
        labels += len(texts.strings)
    transform = attribute_of(node, "post_transform")
    keeps_order = transform is None or transform.s in (b"NONE", b"LOGISTIC")
    return labels == 2 and keeps_order


def layer_of_rows(graph: Graph, node: NodeProto, layers: list[list[OnnxHead]]) -> OnnxHead | None:
    """Return the layer that several of one row each make together, or None.

    Args:
        graph, node: the Concat, which must have one of them for each class.
        layers: the layers behind each of its inputs.
    """
    # One layer behind each input, and the inputs side by side along the classes.
    singles = [heads[0] for heads in layers if len(heads) == 1]
    if len(singles) < len(layers) or not _joins_classes(graph, node):
        return None
    if not all(
        _is_one_row(graph, value, single) for value, single in zip(node.input, singles, strict=True)
    ):
        return None
    # All of them with a sigmoid or none, and no layer twice.
    sigmoids = {"Sigmoid" in single.follows for single in singles}
    if len(sigmoids) > 1 or len({single.layer.weight for single in singles}) < len(singles):
        return None
    follows = ("Sigmoid",) if sigmoids == {True} else ()
    # A Concat of one value is that value. The layer that others make is known by its rows.
    first, *others = singles
    if not others:
        return OnnxHead(first.key, first.layer, follows)
    rows = tuple(single.layer for single in singles)
    layer = LinearNode(node, first.layer.weight, first.layer.bias, False, rows=rows)
    return OnnxHead((layer.key, None), layer, follows)


def _is_one_row(graph: Graph, value: str, head: OnnxHead) -> bool:
    """Return whether a value is one column: the score of a layer of one row, or its sigmoid.

    It needs a bias, as joined rows have one each (`join_rows`).

    Args:
        graph, value: the model, and what a Concat takes.
        head: the only layer behind it.
    """
    if not head.plain or head.layer.rows or head.layer.bias is None:
        return False
    if graph.operator(head.layer.node) == CLASSIFIER:
        picks = graph.makers.get(graph.source(value, ("Identity",))[0])
        return picks is not None and takes_second(graph, picks)
    return head.layer.classes == 1 and {*head.follows} <= {"Sigmoid"}
