"""The walk back through an ONNX graph, from an output to the layers that are its head."""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any

from ..core.class_names import first_repeated
from ..heads.graph import Axes, Linear, Passes, layers_behind, reshaped
from ..support.errors import Advice, LevelheadError
from ..support.regular_file import Stamp
from .protobuf import Parts, Steps

# What may follow a head: nothing that mixes classes, but softmax.
HARMLESS_NODES = (
    "Identity", "Cast", "Dropout", "Flatten", "Squeeze", "Unsqueeze", "Reshape", "Softmax", "LogSoftmax", "Sigmoid",
    "Relu", "GlobalAveragePool", "AveragePool", "ArgMax", "TopK", "ZipMap",
)  # fmt: skip
# Of these, and of sums, those that leave every axis where it is.
AXIS_KEEPING = (
    "Identity", "Cast", "Dropout", "Softmax", "LogSoftmax", "Sigmoid", "Relu", "AveragePool", "GlobalAveragePool",
    "Resize",
)  # fmt: skip
COMPETING = ("Softmax", "LogSoftmax", "ArgMax", "TopK")
PASSING = ("Identity", "Cast", "Transpose", "Reshape")
SUMS = ("Add", "Sum", "Mean", "Mul", "Div")
LINEAR = ("Gemm", "MatMul", "Conv")
FLOAT_TYPES = {
    1,
    10,
    11,
    16,
}  # the types of numbers that a Cast may give on the way from a layer to its bias
PLACES = Advice("head", None, "to name the layer, with a count for each of its rows")
MIXED = -1  # in place of the axis of the classes, if no axis has one entry for each
NORMALIZER = "Normalizer"  # of ai.onnx.ml, of the probabilities of a LinearClassifier
CLASSIFIER = "LinearClassifier"  # of ai.onnx.ml, which gives the label and the scores


@dataclass(frozen=True)
class Graph:
    """A parsed model and who makes and uses each of its values."""

    path: Path
    model: Any
    data: bytes
    stamp: Stamp  # of the file, when it was read
    named: bool = False  # whether the caller says which layer is the head
    parts: Parts = field(
        default_factory=dict
    )  # where fields lie in the file, of those that `locate` came to
    walked: dict[Hashable, Any] = field(
        default_factory=dict
    )  # what is behind a value, for `layers_behind`
    fixed: dict[str, bool] = field(default_factory=dict)  # what `is_constant` said

    @cached_property
    def makers(self) -> dict[str, Any]:
        return {name: node for node in self.model.graph.node for name in node.output}

    @cached_property
    def nodes(self) -> list[Any]:
        """All nodes, also those of graphs in nodes."""
        return list(messages(self.model.graph, "NodeProto"))

    @cached_property
    def uses(self) -> Counter[str]:
        outputs = (output.name for output in self.model.graph.output)
        return Counter([*outputs, *(name for node in self.nodes for name in node.input)])

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The sizes of each value's axes, where they are known; a size that is not is 0."""
        from onnx.shape_inference import infer_shapes

        try:
            graph = infer_shapes(self.model, data_prop=True).graph
        except (
            Exception
        ):  # of many kinds, for a model that cannot be run or is too large: then no rank is known
            return {}
        types = [
            (one.name, one.type.tensor_type)
            for one in (*graph.input, *graph.value_info, *graph.output)
        ]
        return {
            name: tuple(n.dim_value for n in kind.shape.dim)
            for name, kind in types
            if kind.HasField("shape")
        }

    def is_constant(self, name: str) -> bool:
        """Return whether a value comes from a constant by way of casts, transposes and scales alone."""
        way: dict[str, bool] = {}
        while name not in self.fixed and name not in way and name not in self.constants:
            way[name], node = False, self.makers.get(name)
            if node is None or node.op_type not in (*PASSING, "DequantizeLinear") or not node.input:
                break
            name = node.input[0]
        fixed = self.fixed.get(name, name in self.constants)
        self.fixed.update(dict.fromkeys(way, fixed))
        return fixed

    def source(self, name: str, through: tuple[str, ...] = PASSING) -> tuple[str, list[Any]]:
        """Return the constant, or else the value, that a value comes from, and the nodes that it passes on the way."""
        passed: dict[str, Any] = {}
        while name not in self.constants and name not in passed:
            node = self.makers.get(name)
            if node is None or node.op_type not in through or not node.input:
                break
            passed[name], name = node, node.input[0]
        return name, list(passed.values())

    @cached_property
    def constants(self) -> dict[str, tuple[Any, Steps]]:
        """{name: (tensor, where it is in the file, as field numbers and indices)}."""
        given = enumerate(self.model.graph.initializer)
        found: list[tuple[str, Any, Steps]] = [
            (one.name, one, [(7, None), (5, i)]) for i, one in given
        ]
        for i, node in enumerate(self.model.graph.node):
            for j, attribute in enumerate(node.attribute):
                if node.op_type == "Constant" and attribute.name == "value" and node.output:
                    found.append(
                        (node.output[0], attribute.t, [(7, None), (1, i), (5, j), (5, None)])
                    )
        if repeated := first_repeated([name for name, *_ in found]):
            raise LevelheadError(f"two constants are called {repeated!r}; export the model again")
        return {name: (tensor, steps) for name, tensor, steps in found}


@dataclass(frozen=True)
class LinearNode:
    """A linear layer of the graph: its node, and the names of its weight and bias."""

    node: Any
    weight: str
    bias: str | None
    transposed: bool
    shape: tuple[
        int, ...
    ] = ()  # of the weight, as the file has it or as the graph reshapes it first

    @property
    def key(self) -> str:
        return self.weight.removesuffix(".weight").removesuffix(".coefficients")


def heads_of(graph: Graph, value: str) -> list[Linear[str, LinearNode]]:
    """Return the linear layers whose outputs become this value."""
    layers = list(layers_behind(value, partial(_maker_of, graph), graph.walked).values())
    for one in layers:
        if NORMALIZER in one.follows and one.layer.node.op_type != CLASSIFIER:
            raise LevelheadError(
                f"{NORMALIZER} follows the head {one.layer.key!r}, and may mix the classes"
            )
    return [
        replace(one, follows=tuple(op for op in one.follows if op != NORMALIZER)) for one in layers
    ]


def _maker_of(graph: Graph, value: str) -> Linear[str, LinearNode] | Passes:
    """Return what makes a value; raise LevelheadError if that is neither linear nor may follow a head."""
    node = graph.makers.get(value)
    expected = "expected a Gemm, MatMul, 1x1 Conv or LinearClassifier with constant weights"
    if node is None:
        raise LevelheadError(f"comes from an input of the model; {expected}")
    if (op := node.op_type) in LINEAR:
        return _linear(graph, node, None)
    if op == CLASSIFIER:
        key = classifier_key(graph, node)
        layer = LinearNode(node, f"{key}.coefficients", f"{key}.intercepts", False)
        return Linear(layer.weight, layer, ("ArgMax",))
    if op == NORMALIZER:
        return Passes([input_of(node)], op)
    if (source := _softmax_written_out(graph, node)) is not None:
        return Passes([source], "Softmax")
    if op in (*HARMLESS_NODES, "ReduceMean", "Resize", "Transpose"):
        if op == "Transpose" and _class_axis(graph, value) in (None, MIXED):
            where = "where it puts the classes is not known"
            raise LevelheadError(f"Transpose {node.name!r} follows the head, and {where}")
        if (
            op == "ReduceMean"
        ):  # which may be over other axes than that of the classes, or of layers of one row each
            axes, rank = _reduced_axes(graph, node), len(graph.shapes.get(input_of(node), ()))
            over = (None, MIXED, *(axis % rank for axis in axes if rank))
            apart = axes and rank and _class_axis(graph, input_of(node)) not in over
            heads = [] if apart else heads_of(graph, input_of(node))
            if any(one.layer.shape[-1 if one.layer.transposed else 0] != 1 for one in heads):
                raise LevelheadError(
                    f"ReduceMean {node.name!r} follows the head, and its mean may be over the classes"
                )
        if (
            op == "Resize"
        ):  # only of pixels [N, K, H, W], class by class, and with nothing of its own added
            before, after = (
                graph.shapes.get(name, ()) for name in (input_of(node), node.output[0])
            )
            same = len(before) == len(after) == 4 and 0 < before[1] == after[1]
            how = [one.s for one in node.attribute if one.name == "coordinate_transformation_mode"]
            if not same or b"tf_crop_and_resize" in how or _class_axis(graph, input_of(node)) != 1:
                raise LevelheadError(
                    f"Resize {node.name!r} follows the head, and may mix the classes"
                )
        if op == "Reshape":
            _class_axis(graph, value)  # raises if it makes places of classes
        if op in ("AveragePool", "GlobalAveragePool") and _class_axis(
            graph, input_of(node)
        ) not in (None, 1):
            raise LevelheadError(
                f"{op} {node.name!r} follows the head, and its mean is over the classes"
            )
        if op in COMPETING and not _competes(graph, node):
            reason = (
                f"{op} {node.name!r} follows the head, over another axis than that of the classes"
            )
            raise LevelheadError(
                f"{reason}; export the model with it over the classes, or without it"
            )
        bends = op == "Relu" or any(
            one.name == "count_include_pad" and one.i for one in node.attribute
        )
        return Passes(
            [input_of(node)], op if op in ("Sigmoid", *COMPETING) else "", plain=not bends
        )
    if op in SUMS:
        return _sum(graph, node)
    if _is_quantized(op):
        raise LevelheadError(f"its head is quantized ({op}); adjust the model before quantizing it")
    if op.startswith("TreeEnsemble"):
        raise LevelheadError(
            f"comes from {op}, which has no head; adjust its scores (AdjustedPredictor) instead"
        )
    raise LevelheadError(f"comes from {op}; {expected}")


def _sum(graph: Graph, node: Any) -> Linear[str, LinearNode] | Passes:
    """Return what a sum or product is: a layer and its bias, heads that are added up, or a head times one number."""
    first, op = input_of(node), node.op_type
    fixed = [name for name in node.input if graph.is_constant(name)]
    moving = [name for name in node.input if not graph.is_constant(name)]
    under = _layer_under(graph, moving[0]) if len(moving) == 1 else None
    if op == "Add" and len(fixed) == 1 and under is not None:
        return _linear(graph, under, fixed[0])
    added = op in ("Add", "Sum", "Mean") and not fixed
    constant = graph.constants.get(fixed[0]) if len(fixed) == 1 else None
    number = constant is not None and prod(constant[0].dims) == 1
    if added or (op in ("Mul", "Div") and moving == [first] and number):
        return Passes(moving, plain=False)
    if (quantized := _quantized_behind(graph, node)) is not None:
        raise LevelheadError(
            f"its head is quantized ({quantized}); adjust the model before quantizing it"
        )
    raise LevelheadError(f"{op} {node.name!r} follows the head, and may mix or shift the classes")


def _layer_under(graph: Graph, name: str) -> Any:
    """Return the linear layer that a bias is added to: at once, or cast, or reshaped with its classes last; or None."""
    value, passed = graph.source(name, ("Identity", "Cast", "Reshape"))
    node, reshapes = graph.makers.get(value), [one for one in passed if one.op_type == "Reshape"]
    casts = {
        one.i
        for cast in passed
        if cast.op_type == "Cast"
        for one in cast.attribute
        if one.name == "to"
    }
    if node is None or node.op_type not in LINEAR or not casts <= FLOAT_TYPES:
        return None
    classes = [
        graph.shapes.get(made, (0,))[-1] for made in (value, *(one.output[0] for one in reshapes))
    ]
    return (
        None
        if reshapes and (node.op_type == "Conv" or len({*classes}) > 1 or not classes[0])
        else node
    )


def _softmax_written_out(graph: Graph, node: Any) -> str | None:
    """Return the value whose softmax a node ends: exp(x - max x), or exp(x), divided by its sum; None for another."""

    def maker(name: str, op: str, *through: str) -> Any:
        made = graph.makers.get(graph.source(name, ("Identity", *through))[0])
        return made if made is not None and made.op_type == op and made.input else None

    if node.op_type != "Div" or len(node.input) != 2:
        return None
    exp, total = maker(node.input[0], "Exp"), maker(node.input[1], "ReduceSum", "Reshape", "Expand")
    if exp is None or total is None or maker(total.input[0], "Exp") is not exp:
        return None
    axes, rank = _reduced_axes(graph, total), len(graph.shapes.get(exp.output[0], ()))
    axis = axes[0] % rank if axes and rank else next(iter(axes), 0)

    def is_of_all(
        name: str,
    ) -> bool:  # one number for all classes: in an axis that was kept, or put back
        reduced, sizes = (
            maker(name, "ReduceSum") or maker(name, "ReduceMax"),
            graph.shapes.get(name, ()),
        )
        kept = reduced is not None and all(
            one.i for one in reduced.attribute if one.name == "keepdims"
        )
        over = [n % rank if rank else n for n in _reduced_axes(graph, reduced)] if kept else []
        return over == [axis] or (rank == len(sizes) == 2 and sizes[axis] == 1)

    source, less = exp.input[0], maker(exp.input[0], "Sub")
    if (
        less is not None and len(less.input) == 2 and is_of_all(less.input[1])
    ):  # which changes no softmax
        source = less.input[0]
    return (
        source
        if len(axes) == 1 and is_of_all(node.input[1]) and _competes_along(graph, source, axis)
        else None
    )


def _is_quantized(op: str) -> bool:
    """Return whether a node computes with whole numbers, or packs or unpacks them."""
    return "Integer" in op or "NBits" in op or op.startswith(("Q", "Dequantize", "DynamicQuantize"))


def _quantized_behind(graph: Graph, node: Any, most: int = 4) -> str | None:
    """Return the quantized node that a sum comes from, by way of few scales and casts alone."""
    level = [node]
    for _ in range(most):
        names = dict.fromkeys(name for one in level for name in one.input)
        makers = [graph.makers[name] for name in names if name in graph.makers]
        if quantized := next((one.op_type for one in makers if _is_quantized(one.op_type)), None):
            return quantized
        level = list(
            {id(one): one for one in makers if one.op_type in (*SUMS, "Cast", "Reshape")}.values()
        )
    return None


def node_of(graph: Graph, weight: str) -> tuple[int, Any, int]:
    """Return the linear layer whose weight is this constant: its place, its node, and the type it computes in."""
    for i, node in enumerate(graph.model.graph.node):
        if node.op_type in LINEAR and len(node.input) > 1:
            name, passed = graph.source(node.input[1])
            if name == weight:
                casts = [
                    to.i
                    for one in passed
                    if one.op_type == "Cast"
                    for to in one.attribute
                    if to.name == "to"
                ]
                return i, node, next(filter(None, casts), graph.constants[name][0].data_type)
    raise AssertionError(f"{weight!r} is the weight of a layer that was found")


def _reduced_axes(graph: Graph, node: Any) -> list[int]:
    """Return the axes that a node such as ReduceMean is over; none if they are all, or not known."""
    if len(node.input) > 1 and node.input[1]:
        return _integers(graph, node.input[1]) or []
    return next((list(one.ints) for one in node.attribute if one.name == "axes"), [])


def _integers(graph: Graph, name: str) -> list[int] | None:
    """Return the numbers of a constant, such as a shape; None if it is not one, or they are not known."""
    from onnx.numpy_helper import to_array

    try:
        return [int(one) for one in to_array(graph.constants[name][0]).ravel().tolist()]
    except (
        Exception
    ):  # of many kinds: the tensor is in another file, of an unknown type or cut short
        return None


def _competes(graph: Graph, node: Any) -> bool:
    """Return whether a softmax or argmax may be over the classes: not if its axis is known to be another."""
    opset = next(
        (one.version for one in graph.model.opset_import if one.domain in ("", "ai.onnx")), 13
    )
    old = opset < 13 and "Softmax" in node.op_type  # over all axes from the one given on
    plain = 0 if node.op_type == "ArgMax" else 1 if old else -1
    axis = next((one.i for one in node.attribute if one.name == "axis"), plain)
    return _competes_along(graph, input_of(node), axis, and_later=old)


def _competes_along(graph: Graph, value: str, axis: int, and_later: bool = False) -> bool:
    classes, rank = _class_axis(graph, value), len(graph.shapes.get(value, ()))
    if classes is None or not rank:
        return True
    return axis % rank == classes or (and_later and axis % rank < classes)


def _class_axis(graph: Graph, value: str) -> int | None:
    """Return which axis of a value has one entry per class; None if that is not known, or MIXED if none has."""
    node = graph.makers.get(value)
    if node is None or value not in graph.shapes:
        return None
    if node.op_type in ("Reshape", "Flatten"):
        before, after = graph.shapes.get(input_of(node), ()), graph.shapes[value]
        at = _class_axis(graph, input_of(node))
        if at is None or at == MIXED or not before[at]:
            return at if at == MIXED and node.op_type == "Flatten" else None
        axes = Axes(at - len(before), before[at], tuple(n or None for n in before))
        try:
            moved = reshaped(
                axes, [n or None for n in after[1:]], f"{node.op_type} {node.name!r}", PLACES
            )
        except LevelheadError:
            if not graph.named:
                raise
            return None  # its rows are wanted one by one
        return (
            None
            if moved is None
            else MIXED
            if moved.classes is None
            else moved.classes + len(after)
        )
    if node.op_type == "Transpose":
        at, turned = _class_axis(graph, input_of(node)), [*range(len(graph.shapes[value]))][::-1]
        order = next((list(one.ints) for one in node.attribute if one.name == "perm"), turned)
        return order.index(at) if at is not None and at in order else at
    if node.op_type in LINEAR:
        return 1 if node.op_type == "Conv" else len(graph.shapes[value]) - 1
    moving = [name for name in node.input if not graph.is_constant(name)]
    return (
        _class_axis(graph, moving[0]) if node.op_type in (*AXIS_KEEPING, *SUMS) and moving else None
    )


def _linear(graph: Graph, node: Any, added: str | None) -> Linear[str, LinearNode]:
    attributes = {a.name: a.f if a.name in ("alpha", "beta") else a.i for a in node.attribute}
    weight, turned, shape = _constant_behind(graph, input_of(node, 1))
    own = (
        node.input[2]
        if node.op_type != "MatMul" and len(node.input) > 2 and node.input[2]
        else None
    )
    if own and added:
        raise LevelheadError(
            f"something is added to {node.op_type} {node.name!r}, which has a bias already"
        )
    if attributes.get("transA"):
        raise LevelheadError(f"{node.op_type} {node.name!r} has its features transposed")
    rows_last = node.op_type == "MatMul" or (
        node.op_type == "Gemm" and not attributes.get("transB")
    )
    if node.op_type == "Conv" and attributes.get("group", 1) != 1:
        raise LevelheadError(
            f"comes from Conv {node.name!r} in {attributes['group']} groups; expected one group"
        )
    if node.op_type == "Conv" and any(n != 1 for n in shape[2:]):
        raise LevelheadError(
            f"comes from Conv {node.name!r} with a kernel of {list(shape[2:])}; expected 1x1"
        )
    if (turned or node.op_type != "Conv") and len(shape) != 2:
        raise LevelheadError(f"the weight {weight!r} has shape {list(shape)}; expected a matrix")
    name = None
    if bias := own or added:
        name, _, sizes = _constant_behind(graph, bias)
        classes = shape[-1 if rows_last != turned else 0]
        at = 1 - len(shape) if node.op_type == "Conv" and not own else -1
        if prod(sizes) == classes > 1 and (len(sizes) < -at or sizes[at] != classes):
            what = (
                f"{name!r}, which is added to {node.op_type} {node.name!r}, has shape {list(sizes)}"
            )
            raise LevelheadError(
                f"{what}; expected {classes} numbers along the axis of the classes"
            )
    plain = attributes.get("alpha", 1) == 1 and attributes.get("beta", 1) == 1
    return Linear(weight, LinearNode(node, weight, name, rows_last != turned, shape), plain=plain)


def _constant_behind(graph: Graph, name: str) -> tuple[str, bool, tuple[int, ...]]:
    """Return the constant that a value comes from, used by no other node, if it is transposed, and its last shape."""
    turned, target = False, None
    while True:  # ends: a circle is entered by a value that is used twice
        if graph.uses[name] > 1:
            raise LevelheadError(
                f"{name!r} is shared with another node, and scaling it would change both"
            )
        node = graph.makers.get(name)
        if name in graph.constants:
            shape = tuple(graph.constants[name][0].dims)
            if target is None:
                return name, turned, shape
            rest = abs(prod(target))
            sizes = tuple(
                prod(shape) // rest if n == -1 and rest else n for n in target
            )  # of which one may be -1
            if any(n < 1 for n in sizes) or prod(sizes) != prod(shape):
                raise LevelheadError(
                    f"a weight of shape {list(shape)} is reshaped to {target}; export the model again"
                )
            return name, turned, sizes
        if node is not None and node.op_type == "Reshape":
            target = target or _integers(graph, input_of(node, 1)) or [0]
        elif node is None or node.op_type not in ("Identity", "Cast", "Transpose"):
            op = "an input" if node is None else node.op_type
            how = "quantized" if "quantize" in op.lower() else "computed, not constant"
            raise LevelheadError(
                f"its weights {name!r} are {how} ({op}); adjust the model before that"
            )
        elif node.op_type == "Transpose":
            order = next((list(one.ints) for one in node.attribute if one.name == "perm"), [1, 0])
            if order not in ([1, 0], sorted(order)):
                reason = f"Transpose {node.name!r} orders its axes as {order}"
                raise LevelheadError(f"{reason}; expected a matrix and [1, 0]")
            if target and order == [1, 0]:
                raise LevelheadError(
                    f"its weights {name!r} are transposed, then reshaped; export the model again"
                )
            turned ^= order == [1, 0]
        name = input_of(node)


def input_of(node: Any, index: int = 0) -> str:
    """Return the name of a node's input; raise LevelheadError if it does not have so many."""
    if index >= len(node.input):
        raise LevelheadError(
            f"{node.op_type} {node.name!r} has {len(node.input)} inputs, expected {index + 1}"
        )
    return node.input[index]


def messages(message: Any, kind: str = "") -> Iterator[Any]:
    """Yield a message and all those in it, or those of a kind; no tensor is opened, as that copies its numbers."""
    waiting = [message]
    for one in waiting:  # which grows
        if kind in ("", name := one.DESCRIPTOR.name):
            yield one
        for field_of, value in (
            () if name in ("TensorProto", "ValueInfoProto") else one.ListFields()
        ):
            if field_of.message_type is not None:
                waiting += [value] if hasattr(value, "DESCRIPTOR") else value


def texts(model: Any) -> Iterator[Any]:
    """Yield every name in a model."""
    for one in messages(model, "TensorProto"):
        yield from (
            one.name,
            *(text for entry in one.external_data for text in (entry.key, entry.value)),
        )
    for one in messages(model):
        for field_of, value in () if one.DESCRIPTOR.name == "TensorProto" else one.ListFields():
            if field_of.type == field_of.TYPE_STRING and field_of.name != "doc_string":
                yield from [value] if isinstance(value, str | bytes) else value


def classifier_key(graph: Graph, node: Any) -> str:
    """Return a name for a LinearClassifier that no other node has: its own or, failing that, that of its output."""
    names = Counter(one.name for one in graph.model.graph.node)
    return node.name if node.name and names[node.name] == 1 else next(iter(node.output), "")
