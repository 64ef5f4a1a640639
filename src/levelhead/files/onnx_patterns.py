"""What several nodes of an ONNX graph are together, such as a softmax written out.

Exporters write some functions as what they are computed from. Each function here looks from the
last node of such a pattern back, and returns the value that goes into it, or None if the nodes are
something else.

    softmax_written_out   exp(x - max x) / sum exp(x - max x), as JAX writes it
    sigmoid_written_out   1 / (1 + exp(-x))
    divided_by_its_sum    p / sum p, of one-against-the-rest probabilities of skl2onnx

None may be taken for granted: a sum along another axis makes another function of the same nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .onnx_axes import SUMS, competes_along, reduced_axes
from .onnx_graph import Graph, input_of

if TYPE_CHECKING:
    from onnx import NodeProto


def softmax_written_out(graph: Graph, node: NodeProto) -> str | None:
    """Return the value whose softmax a node ends; None for another node.

    exp(x - max x), or exp(x), divided by its sum over the classes.
    """
    if graph.operator(node) != "Div" or len(node.input) != 2:
        return None
    # The same exp above and below.
    exp = graph.maker(node.input[0], "Exp")
    total = graph.maker(node.input[1], "ReduceSum", "Reshape", "Expand")
    if exp is None or total is None or graph.maker(total.input[0], "Exp") is not exp:
        return None
    # The sum is over one axis, and its results lie where each of them divides all classes of its
    # own sample.
    axes = reduced_axes(graph, total)
    if len(axes) != 1:
        return None
    axis = axes[0]
    rank = graph.rank(exp.output[0])
    if rank:
        axis %= rank
    if not _is_one_for_all(graph, node.input[1], axis, rank):
        return None
    # What is the same for all classes, such as the largest of them, changes no softmax.
    source = exp.input[0]
    less = graph.maker(source, "Sub")
    if (
        less is not None
        and len(less.input) == 2
        and _is_one_for_all(graph, less.input[1], axis, rank)
    ):
        source = less.input[0]
    if competes_along(graph, source, axis):
        return source
    return None


def _is_one_for_all(graph: Graph, name: str, axis: int, rank: int) -> bool:
    """Return whether a value has one number for all classes: in an axis that was kept, or put back.

    Args:
        graph, name: the model, and the value, a sum or a maximum.
        axis: of the classes, from 0 on where the rank is known.
        rank: how many axes there are; 0 if that is not known.
    """
    reduced = graph.maker(name, "ReduceSum") or graph.maker(name, "ReduceMax")
    if reduced is not None and _keeps_axis(reduced):
        axes = reduced_axes(graph, reduced)
        if rank:
            axes = [n % rank for n in axes]
        if axes == [axis]:
            return True
    sizes = graph.shapes.get(name, ())
    return rank == len(sizes) == 2 and sizes[axis] == 1


def _keeps_axis(node: NodeProto) -> bool:
    """Return whether a ReduceSum or the like leaves an axis of one entry where it reduces.

    That is the default. Without it, what has one number for each sample would be put along the
    classes.
    """
    return all(attribute.i for attribute in node.attribute if attribute.name == "keepdims")


def sigmoid_written_out(graph: Graph, node: NodeProto) -> str | None:
    """Return the value whose sigmoid a node ends, 1 / (1 + exp(-x)); None for another.

    The sum has its terms in either order, and -x is a Neg or a product with -1.
    """
    if graph.operator(node) != "Reciprocal":
        return None
    total = graph.maker(input_of(node), "Add")
    if total is None or len(total.input) != 2:
        return None
    first, second = total.input
    for one, exponential in ((first, second), (second, first)):
        exp = graph.maker(exponential, "Exp")
        if exp is None or graph.number(one) != 1:
            continue
        # exp(-x), the minus written as a Neg or as a product.
        negative = graph.maker(exp.input[0], "Neg")
        if negative is not None:
            return negative.input[0]
        times = graph.maker(exp.input[0], "Mul")
        if times is not None and len(times.input) == 2 and graph.number(times.input[1]) == -1:
            return times.input[0]
    return None


def divided_by_its_sum(
    graph: Graph, node: NodeProto, is_sigmoid: Callable[[str], bool]
) -> str | None:
    """Return the sigmoids that a node divides by their sum over the classes; None for another.

    Which class is the largest stays as it is. skl2onnx adds a number to both, where the sum is 0.

    Args:
        graph, node: the Div.
        is_sigmoid: whether a value has the sigmoids of a head: numbers of both signs divided by
            their sum could change their order.
    """
    if graph.operator(node) != "Div" or len(node.input) != 2:
        return None
    above = _without_mask(graph, node.input[0])
    below = _without_mask(graph, node.input[1])
    total = graph.maker(below, "ReduceSum")
    if total is None or graph.source(total.input[0], ("Identity",))[0] != above:
        return None
    axes = reduced_axes(graph, total)
    if len(axes) != 1 or not _keeps_axis(total) or not competes_along(graph, above, axes[0]):
        return None
    if is_sigmoid(above):
        return above
    return None


def _without_mask(graph: Graph, name: str) -> str:
    """Return a value without what skl2onnx adds to it where a sum is 0: not(sum), as a number.

    So it avoids 0 / 0; where the sum is not 0, it adds nothing.
    """
    name = graph.source(name, ("Identity",))[0]
    added = graph.maker(name, "Add")
    if added is None or len(added.input) != 2:
        return name
    mask = added.input[1]
    times = graph.maker(mask, "Mul")
    if times is not None:
        mask = times.input[0]
    is_zero = graph.maker(mask, "Not", "Cast")
    if is_zero is None or graph.maker(is_zero.input[0], "ReduceSum", "Cast") is None:
        return name
    return graph.source(added.input[0], ("Identity",))[0]


def is_quantized(operator: str) -> bool:
    """Return whether a node computes with whole numbers, or packs or unpacks them.

    Args:
        operator: with or without its domain, such as `QLinearConv`, `com.microsoft::MatMulNBits`.
    """
    name = operator.rpartition("::")[2]
    begins = ("Q", "Dequantize", "DynamicQuantize")
    return "Integer" in name or "NBits" in name or name.startswith(begins)


def quantized_behind(graph: Graph, node: NodeProto, most: int = 4) -> str | None:
    """Return the quantized operator that a sum comes from, or None.

    By way of a few scales and casts alone. Asked for the sake of the message: a dynamically
    quantized layer ends in Mul and Add, of its scales and its bias, which would be said to mix the
    classes.

    Args:
        graph, node: the sum.
        most: steps back, all nodes of one step together.
    """
    level = [node]  # all nodes that are so many steps back
    for _ in range(most):
        names = dict.fromkeys(name for member in level for name in member.input)
        makers = [graph.makers[name] for name in names if name in graph.makers]
        level = []
        for maker in makers:
            operator = graph.operator(maker)
            if is_quantized(operator):
                return operator
            # A node may make several of the values.
            is_new = all(maker is not member for member in level)
            if operator in (*SUMS, "Cast", "Reshape") and is_new:
                level.append(maker)
    return None
