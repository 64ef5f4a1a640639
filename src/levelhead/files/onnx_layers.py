"""Linear layers of an ONNX graph: their weights and biases among its constants.

`linear_layer` reads a Gemm, MatMul or Conv: which constant is its weight, behind casts, transposes
and reshapes, which its bias, and whether the file has the rows of the classes or their columns.
`biased_layer` does so for a layer whose bias is added by a node of its own.

    Gemm    alpha x W + beta b, W [d, K], or [K, d] with transB
    MatMul  x W, W [d, K]; a bias is an Add behind it
    Conv    W [K, d, 1, 1] and b [K]

The result is a `LinearNode`, still in names of the graph; onnx.py looks up where their numbers are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..heads.graph import Linear
from ..support.errors import LevelheadError
from .onnx_graph import (
    LINEAR,
    PASSING,
    Graph,
    attribute_of,
    input_of,
    integer_attribute,
    integers_attribute,
)

if TYPE_CHECKING:
    from onnx import NodeProto

# The types of numbers that a Cast may give on the way from a layer to its bias.
FLOAT_TYPES = {1, 10, 11, 16}


@dataclass(frozen=True)
class LinearNode:
    """A linear layer of the graph.

    Args:
        node: the Gemm, MatMul, Conv or LinearClassifier; of `rows`, the Concat.
        weight, bias: the names of the constants.
        transposed: whether the weight is [d, K], and not [K, d].
        shape: of the weight, as the file has it or as the graph reshapes it.
        rows: where each class has a layer of one row: these, in the order of the classes.
    """

    node: NodeProto
    weight: str
    bias: str | None
    transposed: bool
    shape: tuple[int, ...] = ()
    rows: tuple[LinearNode, ...] = ()

    @property
    def key(self) -> str:
        """What to call it: after its weight, which exporters name as the model does."""
        if self.rows:
            return f"{self.rows[0].key}...{self.rows[-1].key}"
        return self.weight.removesuffix(".weight").removesuffix(".coefficients")

    @property
    def constants(self) -> tuple[str, str | None]:
        """The names of its weight and its bias, by which the walk knows it."""
        return self.weight, self.bias

    @property
    def gives(self) -> set[str]:
        """The names of the values that it makes."""
        return {name for row in self.rows or (self,) for name in row.node.output}

    @property
    def names(self) -> set[str]:
        """What the layer can be called by: its key, its weight or its node, which may be ""."""
        if self.rows:
            return {self.key}
        return {self.key, self.weight, self.node.name}

    @property
    def classes(self) -> int:
        """How many rows it has; 0 if only the numbers of a LinearClassifier tell."""
        if self.rows:
            return len(self.rows)
        if not self.shape:
            return 0
        return self.shape[-1 if self.transposed else 0]


# A layer that an output comes from, with what the graph does to its outputs; its key has the names
# of its weight and its bias.
OnnxHead: TypeAlias = Linear[tuple[str, str | None], LinearNode]


def linear_layer(graph: Graph, node: NodeProto, added: str | None) -> OnnxHead:
    """Return the layer that a Gemm, MatMul or Conv is, with what is added to it as its bias.

    Args:
        graph, node: where it is.
        added: a constant that a node behind it adds to its outputs, or None.

    Raises:
        LevelheadError: it has two biases, its weight is computed, shared or no matrix, or its bias
            is not along the classes.
    """
    operator = graph.operator(node)
    title = f"{operator} {node.name!r}"
    weight = _constant_behind(graph, input_of(node, 1))
    own_bias = None
    if operator != "MatMul" and len(node.input) > 2:
        own_bias = node.input[2] or None  # an empty name stands for none
    if own_bias and added:
        raise LevelheadError(f"something is added to {title}, which has a bias already")
    if integer_attribute(node, "transA", 0):
        raise LevelheadError(f"{title} has its features transposed")
    _check_weight(node, operator, title, weight)
    # MatMul takes [d, K], and so does Gemm unless it says otherwise; Conv takes [K, d, 1, 1].
    transposed = operator == "MatMul"
    if operator == "Gemm":
        transposed = not integer_attribute(node, "transB", 0)
    if weight.turned:
        transposed = not transposed
    bias = None
    # The bias: of its own, or added behind it; which axis has the classes depends on that.
    if own_bias or added:
        constant = _constant_behind(graph, own_bias or added or "")
        bias = constant.name
        # What is added to [N, K, H, W] has K numbers along the second axis; a bias of its own has
        # [K].
        axis = -1
        if operator == "Conv" and not own_bias:
            axis = 1 - len(weight.shape)
        classes = weight.shape[-1 if transposed else 0]
        _check_bias(constant, axis, classes, title)
    layer = LinearNode(node, weight.name, bias, transposed, weight.shape)
    return OnnxHead(layer.constants, layer, plain=_factors(node) == (1, 1))


def _check_weight(node: NodeProto, operator: str, title: str, weight: _Constant) -> None:
    """Raise if a weight is not a matrix, or that of a 1x1 convolution in one group.

    A convolution in groups is several small layers: each output sees some of the inputs alone.
    """
    shape = weight.shape
    groups = integer_attribute(node, "group", 1)
    if operator == "Conv" and groups != 1:
        raise LevelheadError(f"comes from {title} in {groups} groups; expected one group")
    if operator == "Conv" and any(n != 1 for n in shape[2:]):
        kernel = f"with a kernel of {list(shape[2:])}; expected 1x1"
        raise LevelheadError(f"comes from {title} {kernel}")
    if (weight.turned or operator != "Conv") and len(shape) != 2:
        raise LevelheadError(
            f"the weight {weight.name!r} has shape {list(shape)}; expected a matrix"
        )


def _check_bias(bias: _Constant, axis: int, classes: int, title: str) -> None:
    """Raise if a bias has K numbers along another axis than that of the classes.

    Broadcasting would take [K, 1] behind [N, K], where N happens to be K or 1, and add something
    else.

    Args:
        bias: the constant, as the layer sees it.
        axis: of the classes, counted back from the last, -1.
        classes: K.
        title: of the layer, for the message.
    """
    sizes = bias.shape
    if prod(sizes) == classes > 1 and (len(sizes) < -axis or sizes[axis] != classes):
        got = f"{bias.name!r}, which is added to {title}, has shape {list(sizes)}"
        expected = f"expected {classes} numbers along the axis of the classes"
        raise LevelheadError(f"{got}; {expected}")


def _factors(node: NodeProto) -> tuple[float, float]:
    """Return alpha and beta of a Gemm, ``alpha W x + beta b``; others have 1.

    With other factors, what is added to the bias arrives as beta times that in the logits.
    """
    alpha = attribute_of(node, "alpha")
    beta = attribute_of(node, "beta")
    return (1 if alpha is None else alpha.f, 1 if beta is None else beta.f)


def biased_layer(graph: Graph, node: NodeProto) -> OnnxHead | None:
    """Return the layer that an Add completes by its bias; None if it adds something else.

    PyTorch exports a linear layer on [N, T, d] as MatMul and Add.
    """
    fixed = [name for name in node.input if graph.is_constant(name)]
    moving = graph.moving(node)
    if graph.operator(node) != "Add" or len(fixed) != 1 or len(moving) != 1:
        return None
    under = _layer_under(graph, moving[0], fixed[0])
    if under is None:
        return None
    return linear_layer(graph, under, fixed[0])


def _layer_under(graph: Graph, name: str, bias: str) -> NodeProto | None:
    """Return the linear layer that a bias is added to, or None.

    At once, or behind a cast or a reshape that leaves the classes last.

    Args:
        graph: the model.
        name: what the bias is added to.
        bias: the constant.
    """
    value, passed = graph.source(name, ("Identity", "Cast", "Reshape"))
    node = graph.makers.get(value)
    reshapes = [step for step in passed if graph.operator(step) == "Reshape"]
    if node is None or graph.operator(node) not in LINEAR:
        return None
    if not set(_cast_types(graph, passed)) <= FLOAT_TYPES:
        return None
    if not reshapes:
        return node
    if graph.operator(node) == "Conv":
        return None
    # The size of the last axis, where it is known, is the same before and after each reshape.
    values = [value, *(reshape.output[0] for reshape in reshapes)]
    classes = {graph.shapes.get(name, (0,))[-1] for name in values} - {0}
    if len(classes) > 1:
        return None
    # A last axis whose size is not known is that of the classes, if K numbers can be added along
    # it.
    tensor = graph.constants.get(graph.source(bias)[0])
    if tensor is not None and classes <= {prod(tensor[0].dims)}:
        return node
    return None


def _cast_types(graph: Graph, nodes: list[NodeProto]) -> list[int]:
    """Return the types of numbers that the casts among these nodes give."""
    types = []
    for node in nodes:
        if graph.operator(node) == "Cast":
            types += [attribute.i for attribute in node.attribute if attribute.name == "to"]
    return types


class _Constant(NamedTuple):
    """A constant that a layer uses, as the layer sees it: through transposes and reshapes."""

    name: str
    turned: bool  # whether it is transposed on the way
    shape: tuple[int, ...]  # before that, as the file has it or as the graph reshapes it


def _constant_behind(graph: Graph, name: str) -> _Constant:
    """Return the constant that a value comes from.

    Args:
        graph: the model.
        name: what the layer takes as its weight or bias.

    Raises:
        LevelheadError: another node uses it, too, on any step of the way; it is computed,
            quantized, or turned in a way that a matrix of rows cannot follow.
    """
    turned = False
    target = None  # the shape that the last reshape on the way gives it
    while True:  # ends: a circle is entered by a value that is used twice
        if graph.uses[name] > 1:
            raise LevelheadError(
                f"{name!r} is shared with another node, and scaling it would change both"
            )
        if name in graph.constants:
            shape = tuple(graph.constants[name][0].dims)
            if target is not None:
                shape = _reshaped_to(shape, target)
            return _Constant(name, turned, shape)
        node = graph.makers.get(name)
        if node is None or graph.operator(node) not in PASSING:
            raise _not_constant(graph, name, node)
        operator = graph.operator(node)
        if operator == "Reshape":
            # The reshape next to the layer says the shape in the end; one whose target is not known
            # gives a shape that nothing fits.
            target = target or graph.integers(input_of(node, 1)) or [0]
        elif operator == "Transpose":
            order = integers_attribute(node, "perm") or [1, 0]
            if order not in ([1, 0], sorted(order)):
                reason = f"Transpose {node.name!r} orders its axes as {order}"
                raise LevelheadError(f"{reason}; expected a matrix and [1, 0]")
            if target and order == [1, 0]:
                reason = f"its weights {name!r} are transposed, then reshaped"
                raise LevelheadError(f"{reason}; export the model again")
            # Twice transposed is as it was; an order that leaves all axes changes nothing.
            turned ^= order == [1, 0]
        name = input_of(node)


def _not_constant(graph: Graph, name: str, node: NodeProto | None) -> LevelheadError:
    """Return the error for a weight that a node makes, or an input gives.

    A DequantizeLinear is named as what it is: the weight is quantized.
    """
    operator = "an input"
    if node is not None:
        operator = graph.operator(node)
    state = "computed, not constant"
    if "quantize" in operator.lower():
        state = "quantized"
    return LevelheadError(
        f"its weights {name!r} are {state} ({operator}); adjust the model before that"
    )


def _reshaped_to(shape: tuple[int, ...], target: list[int]) -> tuple[int, ...]:
    """Return the shape that a constant of another shape is given, of which one size may be -1.

    Raises:
        LevelheadError: the numbers are not as many, or the target is not known.

    >>> _reshaped_to((10, 512, 1, 1), [10, -1])
    (10, 512)
    """
    others = abs(prod(target))  # the product of all sizes but the -1
    sizes = tuple(prod(shape) // others if n == -1 and others else n for n in target)
    if any(n < 1 for n in sizes) or prod(sizes) != prod(shape):
        reason = f"a weight of shape {list(shape)} is reshaped to {target}"
        raise LevelheadError(f"{reason}; export the model again")
    return sizes


class FoundNode(NamedTuple):
    """A linear layer in the list of nodes."""

    index: int  # in that list
    node: NodeProto
    dtype: int  # the type of numbers that it computes in, as onnx counts them


def node_of(graph: Graph, weight: str) -> FoundNode:
    """Return the linear layer whose weight is this constant, which was found before.

    For a new bias: the node has to take it, in the dtype that the layer computes in. That is the
    constant's, or what a cast between the two makes of it.
    """
    for i, node in enumerate(graph.model.graph.node):
        if graph.operator(node) not in LINEAR or len(node.input) < 2:
            continue
        name, passed = graph.source(node.input[1])
        if name == weight:
            # Of several casts on the way, the one next to the layer is the first here.
            casts = [dtype for dtype in _cast_types(graph, passed) if dtype]
            dtype = casts[0] if casts else graph.constants[name][0].data_type
            return FoundNode(i, node, dtype)
    raise AssertionError(f"{weight!r} is the weight of a layer that was found")


def classifier_key(graph: Graph, node: NodeProto) -> str:
    """Return a name for a LinearClassifier that no other node has.

    Its own or, failing that, that of its output: exporters may leave nodes without names, or give
    one name to several.
    """
    names = Counter(other.name for other in graph.model.graph.node)
    if node.name and names[node.name] == 1:
        return node.name
    return next(iter(node.output), "")
