"""Linear layers of an ONNX graph: their weights and biases among its constants."""

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import Any

from ..heads.graph import Linear
from ..support.errors import LevelheadError
from .onnx_graph import LINEAR, Graph, input_of, integers_attribute

# The types of numbers that a Cast may give on the way from a layer to its bias.
FLOAT_TYPES = {1, 10, 11, 16}


@dataclass(frozen=True)
class LinearNode:
    """A linear layer of the graph: its node, and the names of its weight and bias."""

    node: Any
    weight: str
    bias: str | None
    transposed: bool
    shape: tuple[int, ...] = ()  # of the weight, as the file has it or as the graph reshapes it
    # Where each class has a layer of one row: these, in the order of the classes.
    rows: "tuple[LinearNode, ...]" = ()

    @property
    def key(self) -> str:
        if self.rows:
            return f"{self.rows[0].key}...{self.rows[-1].key}"
        return self.weight.removesuffix(".weight").removesuffix(".coefficients")

    @property
    def names(self) -> set[str]:
        """What the layer can be called by."""
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


def linear_layer(graph: Graph, node: Any, added: str | None) -> Linear[str, LinearNode]:
    """Return the layer that a Gemm, MatMul or Conv is, with what is added to it as its bias."""
    operator = graph.operator(node)
    title = f"{operator} {node.name!r}"
    attributes = {a.name: a.f if a.name in ("alpha", "beta") else a.i for a in node.attribute}
    weight, turned, shape = _constant_behind(graph, input_of(node, 1))
    own = None
    if operator != "MatMul" and len(node.input) > 2:
        own = node.input[2] or None
    if own and added:
        raise LevelheadError(f"something is added to {title}, which has a bias already")
    if attributes.get("transA"):
        raise LevelheadError(f"{title} has its features transposed")
    rows_last = operator == "MatMul" or (operator == "Gemm" and not attributes.get("transB"))
    if operator == "Conv" and attributes.get("group", 1) != 1:
        groups = f"in {attributes['group']} groups; expected one group"
        raise LevelheadError(f"comes from {title} {groups}")
    if operator == "Conv" and any(n != 1 for n in shape[2:]):
        kernel = f"with a kernel of {list(shape[2:])}; expected 1x1"
        raise LevelheadError(f"comes from {title} {kernel}")
    if (turned or operator != "Conv") and len(shape) != 2:
        raise LevelheadError(f"the weight {weight!r} has shape {list(shape)}; expected a matrix")
    transposed = rows_last != turned
    name = None
    if bias := own or added:
        name, _, sizes = _constant_behind(graph, bias)
        classes = shape[-1 if transposed else 0]
        at = -1
        if operator == "Conv" and not own:
            at = 1 - len(shape)
        if prod(sizes) == classes > 1 and (len(sizes) < -at or sizes[at] != classes):
            what = f"{name!r}, which is added to {title}, has shape {list(sizes)}"
            expected = f"expected {classes} numbers along the axis of the classes"
            raise LevelheadError(f"{what}; {expected}")
    plain = attributes.get("alpha", 1) == 1 and attributes.get("beta", 1) == 1
    return Linear(weight, LinearNode(node, weight, name, transposed, shape), plain=plain)


def biased_layer(graph: Graph, node: Any) -> Linear[str, LinearNode] | None:
    """Return the layer that an Add completes by its bias; None if it adds something else."""
    fixed = [name for name in node.input if graph.is_constant(name)]
    moving = graph.moving(node)
    if graph.operator(node) != "Add" or len(fixed) != 1 or len(moving) != 1:
        return None
    under = _layer_under(graph, moving[0], fixed[0])
    if under is None:
        return None
    return linear_layer(graph, under, fixed[0])


def _layer_under(graph: Graph, name: str, bias: str) -> Any:
    """Return the linear layer that a bias is added to: at once, or cast, or reshaped with its classes last; or None."""
    value, passed = graph.source(name, ("Identity", "Cast", "Reshape"))
    node = graph.makers.get(value)
    reshapes = [one for one in passed if graph.operator(one) == "Reshape"]
    casts = {
        one.i
        for cast in passed
        if graph.operator(cast) == "Cast"
        for one in cast.attribute
        if one.name == "to"
    }
    if node is None or graph.operator(node) not in LINEAR or not casts <= FLOAT_TYPES:
        return None
    if not reshapes:
        return node
    if graph.operator(node) == "Conv":
        return None
    made = [value, *(one.output[0] for one in reshapes)]
    classes = {graph.shapes.get(one, (0,))[-1] for one in made} - {0}
    if len(classes) > 1:
        return None
    # A last axis whose size is not known is that of the classes, if K numbers can be added along it.
    tensor = graph.constants.get(graph.source(bias)[0])
    if tensor is not None and classes <= {prod(tensor[0].dims)}:
        return node
    return None


def _constant_behind(graph: Graph, name: str) -> tuple[str, bool, tuple[int, ...]]:
    """Return the constant that a value comes from, used by no other node, if it is transposed, and its last shape."""
    turned, target = False, None
    while True:  # ends: a circle is entered by a value that is used twice
        if graph.uses[name] > 1:
            raise LevelheadError(
                f"{name!r} is shared with another node, and scaling it would change both"
            )
        if name in graph.constants:
            shape = tuple(graph.constants[name][0].dims)
            return name, turned, shape if target is None else _reshaped_to(shape, target)
        node = graph.makers.get(name)
        operator = "an input"
        if node is not None:
            operator = graph.operator(node)
        if node is not None and operator == "Reshape":
            target = target or graph.integers(input_of(node, 1)) or [0]
        elif node is None or operator not in ("Identity", "Cast", "Transpose"):
            how = "computed, not constant"
            if "quantize" in operator.lower():
                how = "quantized"
            raise LevelheadError(
                f"its weights {name!r} are {how} ({operator}); adjust the model before that"
            )
        elif operator == "Transpose":
            order = integers_attribute(node, "perm") or [1, 0]
            if order not in ([1, 0], sorted(order)):
                reason = f"Transpose {node.name!r} orders its axes as {order}"
                raise LevelheadError(f"{reason}; expected a matrix and [1, 0]")
            if target and order == [1, 0]:
                reason = f"its weights {name!r} are transposed, then reshaped"
                raise LevelheadError(f"{reason}; export the model again")
            turned ^= order == [1, 0]
        name = input_of(node)


def _reshaped_to(shape: tuple[int, ...], target: list[int]) -> tuple[int, ...]:
    """Return the shape that a constant of another shape is given, of which one size may be -1."""
    rest = abs(prod(target))
    sizes = tuple(prod(shape) // rest if n == -1 and rest else n for n in target)
    if any(n < 1 for n in sizes) or prod(sizes) != prod(shape):
        reason = f"a weight of shape {list(shape)} is reshaped to {target}"
        raise LevelheadError(f"{reason}; export the model again")
    return sizes


def node_of(graph: Graph, weight: str) -> tuple[int, Any, int]:
    """Return the linear layer whose weight is this constant: its place, its node, and the type it computes in."""
    for i, node in enumerate(graph.model.graph.node):
        if graph.operator(node) in LINEAR and len(node.input) > 1:
            name, passed = graph.source(node.input[1])
            if name == weight:
                casts = [
                    to.i
                    for one in passed
                    if graph.operator(one) == "Cast"
                    for to in one.attribute
                    if to.name == "to"
                ]
                return i, node, next(filter(None, casts), graph.constants[name][0].data_type)
    raise AssertionError(f"{weight!r} is the weight of a layer that was found")


def classifier_key(graph: Graph, node: Any) -> str:
    """Return a name for a LinearClassifier that no other node has: its own or, failing that, that of its output."""
    names = Counter(one.name for one in graph.model.graph.node)
    if node.name and names[node.name] == 1:
        return node.name
    return next(iter(node.output), "")
