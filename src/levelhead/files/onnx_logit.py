"""Heads in ONNX with a layer of one row for each class, or one logit of two classes, as skl2onnx writes them."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..heads.graph import Linear
from .onnx_axes import MIXED, class_axis, picked_axes
from .onnx_graph import CLASSIFIER, EXTRACTOR, Graph, integer_attribute
from .onnx_layers import LinearNode


def two_scores_of(graph: Graph, node: Any, is_probability: Callable[[str], bool]) -> str | None:
    """Return the z of which a node makes (-z, z), or the p of (1 - p, p), or which it takes from these; or None.

    A Concat makes two scores of one logit, and a Slice or the like takes the second of them again.
    """
    if graph.operator(node) == "Concat":
        return _doubled(graph, node, is_probability)
    if not takes_second(graph, node):
        return None
    scores = node.input[0]
    pair = graph.maker(scores, "Concat")
    if pair is not None:
        return _doubled(graph, pair, is_probability)
    made = graph.maker(scores, CLASSIFIER)
    if made is not None and list(made.output[1:2]) == [scores] and _is_binary(made):
        return scores
    return None


def _doubled(graph: Graph, pair: Any, is_probability: Callable[[str], bool]) -> str | None:
    """Return the value that a Concat has twice: with a minus before, or as what a probability leaves of 1."""
    if len(pair.input) != 2 or not _joins_classes(graph, pair):
        return None
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


def _joins_classes(graph: Graph, node: Any) -> bool:
    """Return whether a Concat puts values side by side along the axis of the classes: the second, of scores [N, K]."""
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


def takes_second(graph: Graph, node: Any) -> bool:
    """Return whether a node takes the second of two columns."""
    operator = graph.operator(node)
    if operator == EXTRACTOR:
        return len(node.input) == 2 and graph.integers(node.input[1]) == [1]
    if operator != "Slice" or len(node.input) < 4:
        return False
    starts, ends = (graph.integers(name) for name in node.input[1:3])
    return starts == [1] and ends == [2] and picked_axes(graph, node) in ([1], [-1])


def _is_binary(node: Any) -> bool:
    """Return whether a LinearClassifier has two classes, of which the second has the score."""
    held = {one.name: one for one in node.attribute}
    labels = sum(len(held[name].ints) for name in held if name == "classlabels_ints")
    labels += sum(len(held[name].strings) for name in held if name == "classlabels_strings")
    transform = b"NONE"
    if "post_transform" in held:
        transform = held["post_transform"].s
    return labels == 2 and transform in (b"NONE", b"LOGISTIC")


def layer_of_rows(
    graph: Graph, node: Any, layers: list[list[Linear[str, LinearNode]]]
) -> Linear[str, LinearNode] | None:
    """Return the layer that several of one row each make together, if a Concat has one for each class; or None."""
    singles = [one[0] for one in layers if len(one) == 1]
    if len(singles) < len(layers) or not _joins_classes(graph, node):
        return None
    if not all(map(partial(_is_one_row, graph), node.input, singles)):
        return None
    first, *others = singles
    sigmoids = {"Sigmoid" in one.follows for one in singles}
    if len(sigmoids) > 1 or len({one.key for one in singles}) < len(singles):
        return None
    follows = ("Sigmoid",) if sigmoids == {True} else ()
    if not others:
        return Linear(first.key, first.layer, follows)
    rows = tuple(one.layer for one in singles)
    layer = LinearNode(node, first.layer.weight, first.layer.bias, False, rows=rows)
    return Linear(layer.key, layer, follows)


def _is_one_row(graph: Graph, value: str, one: Linear[str, LinearNode]) -> bool:
    """Return whether a value is one column: the score of a layer of one row, as it is or as a sigmoid."""
    if not one.plain or one.layer.rows or one.layer.bias is None:
        return False
    if graph.operator(one.layer.node) == CLASSIFIER:
        picked = graph.makers.get(graph.source(value, ("Identity",))[0])
        return picked is not None and takes_second(graph, picked)
    return one.layer.classes == 1 and {*one.follows} <= {"Sigmoid"}
