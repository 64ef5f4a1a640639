"""Which axis of a value in an ONNX graph has one entry for each class.

`class_axis` walks back from a value to the layer that makes the classes, and moves their axis by
what each node on the way does. It tells whether a softmax is over the classes, whether a mean mixes
them, and which entries a slice takes. A model of images is a case for it: logits may be [N, K], [N,
K, H, W] or [N, H, W, K], and the same `Softmax(axis=1)` is one over the classes or over pixels.

Shapes come from onnx's own inference (`Graph.shapes`), which knows many and not all. What is not
known is None here, and whoever asks decides which side is safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..heads.graph import Axes, reshaped
from ..support.errors import Advice, LevelheadError
from .onnx_graph import (
    LINEAR,
    Graph,
    input_of,
    integer_attribute,
    integers_attribute,
)

if TYPE_CHECKING:
    from onnx import NodeProto

MIXED = -1  # in place of the axis of the classes, if no axis has one entry for each
SUMS = ("Add", "Sum", "Mean", "Mul", "Div")
# Operators that leave every axis where it is.
AXIS_KEEPING = (
    "Identity", "Cast", "Dropout", "Softmax", "LogSoftmax", "Sigmoid", "Relu", "AveragePool", "GlobalAveragePool",
    "Resize", "Slice", "Split", *SUMS,
)  # fmt: skip
PLACES = Advice("head", None, "to name the layer, with a count for each of its rows")


def class_axis(graph: Graph, value: str) -> int | None:
    """Return which axis of a value has one entry per class.

    Logits [N, K] have it at 1, and so have maps [N, K, H, W]; a Transpose to [N, H, W, K] moves it
    to 3, and a Flatten of such a map mixes it with the places.

    Returns:
        The axis, from 0 on; None if that is not known, MIXED if none has them.

    Raises:
        LevelheadError: a Reshape makes several places of the classes, with fewer classes each.
    """
    node = graph.makers.get(value)
    if node is None or value not in graph.shapes:
        return None
    operator = graph.operator(node)
    if operator in ("Reshape", "Flatten"):
        return _behind_reshape(graph, node, value)
    if operator == "Transpose":
        # An axis of the result is the one of the input that stands in its place in `perm`.
        at = class_axis(graph, input_of(node))
        reverse = list(range(graph.rank(value)))[::-1]
        order = integers_attribute(node, "perm") or reverse
        if at is not None and at in order:
            return order.index(at)
        return at
    if operator == "Gather":
        return _behind_gather(graph, node)
    if operator == "Conv":  # [N, K, H, W]
        return 1
    if operator in LINEAR:  # [..., K]
        return graph.rank(value) - 1
    moving = graph.moving(node)
    if operator in AXIS_KEEPING and moving:
        return class_axis(graph, moving[0])
    return None


def _behind_reshape(graph: Graph, node: NodeProto, value: str) -> int | None:
    """Return the axis of the classes behind a Reshape or Flatten.

    Args:
        graph, node, value: the model, the node, and what it makes, whose shape is known.

    Raises:
        LevelheadError: it parts them into places, unless the caller named the layer, and so says
            what its rows are.
    """
    operator = graph.operator(node)
    before = graph.shapes.get(input_of(node), ())
    after = graph.shapes[value]
    at = class_axis(graph, input_of(node))
    # A Reshape may part again what was mixed.
    if at == MIXED and operator == "Flatten":
        return MIXED
    if at is None or at == MIXED or not before[at]:
        return None
    # `reshaped` counts axes from the last one on, and has None for a size that is not known.
    axes = Axes(at - len(before), before[at], tuple(n or None for n in before))
    try:
        moved = reshaped(axes, [n or None for n in after[1:]], f"{operator} {node.name!r}", PLACES)
    except LevelheadError:
        if not graph.named:
            raise
        return None  # its rows are wanted one by one
    if moved is None:
        return None
    if moved.classes is None:
        return MIXED
    return moved.classes + len(after)


def _behind_gather(graph: Graph, node: NodeProto) -> int | None:
    """Return the axis of the classes behind a Gather.

    It puts the axes of its indices, none for a single number, in the place of the one that it is
    over: axes behind that move by as many.
    """
    data = input_of(node)
    indices = input_of(node, 1)
    at = class_axis(graph, data)
    rank = graph.rank(data)
    if at is None or at == MIXED or not rank:
        return at
    if indices in graph.constants:
        new = len(graph.constants[indices][0].dims)
    elif indices in graph.shapes:
        new = graph.rank(indices)
    else:
        return None
    # Indices with one axis keep the classes an axis; a single number takes it away, more part it.
    over = integer_attribute(node, "axis", 0) % rank
    if over == at and new != 1:
        return None
    if over < at:
        return at + new - 1
    return at


def reduced_axes(graph: Graph, node: NodeProto) -> list[int]:
    """Return the axes that a node such as ReduceMean is over; none if they are all, or not known.

    From opset 13 (ReduceSum) or 18 (the others) on they are an input, before that an attribute.
    """
    if len(node.input) > 1 and node.input[1]:
        return graph.integers(node.input[1]) or []
    return integers_attribute(node, "axes") or []


def picked_axes(graph: Graph, node: NodeProto) -> list[int] | None:
    """Return the axes along which a Slice, Split or Gather takes some of the entries.

    None if they are not known: a Slice has them as an input that may be computed.
    """
    if graph.operator(node) != "Slice":
        return [integer_attribute(node, "axis", 0)]
    if len(node.input) < 2:  # before opset 10
        axes = integers_attribute(node, "axes")
        starts = integers_attribute(node, "starts")
    else:
        axes = None
        starts = graph.integers(node.input[1])
        if len(node.input) > 3 and node.input[3]:
            axes = graph.integers(node.input[3])
            if axes is None:
                return None
    if axes is not None:
        return axes
    # Without axes, they are the first ones, as many as there are starts.
    if starts is None:
        return None
    return list(range(len(starts)))


def reorders(graph: Graph, node: NodeProto, classes: int | None) -> bool:
    """Return whether a Gather or Slice puts all classes in another order.

    Args:
        graph, node: the model, and what picks entries.
        classes: the axis of the classes; where it is not known, any axis may be it.
    """
    operator = graph.operator(node)
    rank = graph.rank(input_of(node))
    turned: list[int] = []  # the axes along which the order is another
    if operator == "Gather":
        indices = graph.integers(input_of(node, 1)) or []
        if indices != sorted(indices) and sorted(indices) == list(range(len(indices))):
            turned = [integer_attribute(node, "axis", 0)]
    elif operator == "Slice" and len(node.input) > 4:
        steps = graph.integers(node.input[4]) or []
        axes = picked_axes(graph, node) or []
        turned = [axis for axis, step in zip(axes, steps, strict=False) if step < 0]
    if classes in (None, MIXED) or not rank:
        return bool(turned)
    return classes in [axis % rank for axis in turned]


def competes(graph: Graph, node: NodeProto) -> bool:
    """Return whether a softmax or argmax may be over the classes.

    It is not if its axis is known to be another. Before opset 13, a softmax was over all axes from
    the given one on, 1 by default; since then it is over one axis, the last by default. An ArgMax
    is over the first by default.
    """
    operator = graph.operator(node)
    # Which of the two meanings of a softmax this model has.
    old = graph.opset < 13 and "Softmax" in operator  # over all axes from the one given on
    default = -1
    if operator == "ArgMax":
        default = 0
    elif old:
        default = 1
    axis = integer_attribute(node, "axis", default)
    return competes_along(graph, input_of(node), axis, and_later=old)


def competes_along(graph: Graph, value: str, axis: int, and_later: bool = False) -> bool:
    """Return whether an axis of a value may be that of the classes.

    Args:
        graph, value: the model, and the value.
        axis: from 0 on, or negative, from the last on.
        and_later: whether the axes after it count as well.
    """
    classes = class_axis(graph, value)
    rank = graph.rank(value)
    if classes is None or not rank:
        return True
    return axis % rank == classes or (and_later and axis % rank < classes)
