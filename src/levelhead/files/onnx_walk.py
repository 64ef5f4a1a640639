"""The walk back through an ONNX graph, from an output to the layers that are its head."""

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from ..heads.graph import Linear, Passes, layers_behind
from ..support.errors import Advice, LevelheadError
from .onnx_axes import (
    MIXED,
    SUMS,
    class_axis,
    competes,
    competes_along,
    picked_axes,
    reduced_axes,
)
from .onnx_graph import (
    CLASSIFIER,
    EXTRACTOR,
    LINEAR,
    NORMALIZER,
    TREES,
    ZIP_MAP,
    Graph,
    input_of,
)
from .onnx_layers import LinearNode, biased_layer, classifier_key, linear_layer
from .onnx_logit import layer_of_rows, two_scores_of

COMPETING = ("Softmax", "LogSoftmax", "ArgMax", "TopK")
# What may follow a head: nothing that mixes classes, but softmax.
HARMLESS = (
    "Identity", "Cast", "Dropout", "Flatten", "Squeeze", "Unsqueeze", "Reshape", "Sigmoid", "Relu",
    "GlobalAveragePool", "AveragePool", "ReduceMean", "Resize", ZIP_MAP, *COMPETING,
)  # fmt: skip
PICKING = ("Transpose", "Split", "Slice", "Gather", EXTRACTOR)
EXPECTED = "expected a Gemm, MatMul, 1x1 Conv or LinearClassifier with constant weights"
NAME_SCORING_LAYER = Advice(
    "head", None, "to name the layer, if its outputs are the scores that are compared in the end"
)


class Undecided(LevelheadError):
    """Something follows a layer that may or may not leave its classes alone: the caller may name the layer."""

    def __init__(self, message: str) -> None:
        super().__init__(message, advice=NAME_SCORING_LAYER)


def heads_of(graph: Graph, value: str) -> list[Linear[str, LinearNode]]:
    """Return the linear layers whose outputs become this value."""
    layers = list(layers_behind(value, partial(_maker_of, graph), graph.walked).values())
    for one in layers:
        if NORMALIZER in one.follows and graph.operator(one.layer.node) != CLASSIFIER:
            raise Undecided(
                f"{NORMALIZER} follows the head {one.layer.key!r}, and may mix the classes"
            )
    return [
        replace(one, follows=tuple(name for name in one.follows if name != NORMALIZER))
        for one in layers
    ]


def named_layers(
    graph: Graph, names: list[str], outputs: list[str]
) -> list[Linear[str, LinearNode]] | None:
    """Return the layers of these names, if all are there and come before one of the outputs."""
    before = _values_before(graph, outputs)
    found: dict[str, Linear[str, LinearNode]] = {}
    for node in graph.model.graph.node:
        operator = graph.operator(node)
        if operator not in (*LINEAR, "Add", CLASSIFIER) or not before.issuperset(node.output[:1]):
            continue
        try:
            if operator == "Add":
                layer = biased_layer(graph, node)
            elif operator == CLASSIFIER:
                layer = classifier(graph, node)
            else:
                layer = linear_layer(graph, node, None)
        except LevelheadError:
            continue  # it is another layer, or one that cannot be changed
        if layer is not None:
            # An Add comes after its layer, and knows the bias.
            found |= dict.fromkeys(layer.layer.names - {""}, layer)
    if found.keys() >= set(names):
        return [found[name] for name in names]
    return None


def _values_before(graph: Graph, outputs: list[str]) -> set[str]:
    """Return all values that these come from, and themselves."""
    waiting, seen = list(outputs), set(outputs)
    while waiting:
        node = graph.makers.get(waiting.pop())
        new = set() if node is None else {*node.input} - seen
        seen |= new
        waiting += new
    return seen


def classifier(graph: Graph, node: Any) -> Linear[str, LinearNode]:
    """Return the layer that a LinearClassifier is; its label is that of the largest score."""
    key = classifier_key(graph, node)
    layer = LinearNode(node, f"{key}.coefficients", f"{key}.intercepts", False)
    logistic = any(one.name == "post_transform" and one.s == b"LOGISTIC" for one in node.attribute)
    return Linear(layer.weight, layer, ("Sigmoid", "ArgMax") if logistic else ("ArgMax",))


def _maker_of(graph: Graph, value: str) -> Linear[str, LinearNode] | Passes:
    """Return what makes a value; raise LevelheadError if that is neither linear nor may follow a head."""
    node = graph.makers.get(value)
    if node is None:
        raise LevelheadError(f"comes from an input of the model; {EXPECTED}")
    operator = graph.operator(node)
    if operator in LINEAR:
        return linear_layer(graph, node, None)
    if operator == CLASSIFIER:
        return classifier(graph, node)
    if operator == NORMALIZER:
        return Passes([input_of(node)], operator)
    if (source := _softmax_written_out(graph, node)) is not None:
        return Passes([source], "Softmax")
    if (source := _sigmoid_written_out(graph, node)) is not None:
        return Passes([source], "Sigmoid")
    if (source := _divided_by_its_sum(graph, node)) is not None:
        return Passes([source])
    if operator in HARMLESS:
        return _harmless(graph, node, value)
    if operator in PICKING:
        return _pick(graph, node, value)
    if operator == "Concat":
        return _concat(graph, node)
    if operator in SUMS:
        return _sum(graph, node)
    if _is_quantized(operator):
        raise LevelheadError(
            f"its head is quantized ({operator}); adjust the model before quantizing it"
        )
    if operator in TREES:
        raise LevelheadError(
            f"comes from {operator}, which has no head; adjust its scores (AdjustedPredictor) instead"
        )
    raise Undecided(f"comes from {operator}; {EXPECTED}")


def _harmless(graph: Graph, node: Any, value: str) -> Passes:
    """Return that a node passes its input on; raise if it is known to mix the classes, or may."""
    operator = graph.operator(node)
    source = input_of(node)
    follows = f"{operator} {node.name!r} follows the head"
    if operator == "ReduceMean":
        _check_mean(graph, node, follows)
    if operator == "Resize" and not _resizes_each_class(graph, node):
        raise Undecided(f"{follows}, and may mix the classes")
    if operator == "Reshape":
        class_axis(graph, value)  # raises if it makes places of classes
    is_pool = operator in ("AveragePool", "GlobalAveragePool")
    if is_pool and class_axis(graph, source) not in (None, 1):
        raise LevelheadError(f"{follows}, and its mean is over the classes")
    if operator in COMPETING and not competes(graph, node):
        instead = "export the model with it over the classes, or without it"
        raise LevelheadError(f"{follows}, over another axis than that of the classes; {instead}")
    pads = any(one.name == "count_include_pad" and one.i for one in node.attribute)
    named = ""
    if operator in ("Sigmoid", *COMPETING):
        named = operator
    return Passes([source], named, plain=operator != "Relu" and not pads)


def _check_mean(graph: Graph, node: Any, follows: str) -> None:
    """Raise if a mean is over the classes, or may be, unless it is of layers of one row each."""
    source = input_of(node)
    axes = reduced_axes(graph, node)
    rank = graph.rank(source)
    classes = class_axis(graph, source)
    known = axes and rank and classes not in (None, MIXED)
    over_classes = known and classes in [axis % rank for axis in axes]
    if known and not over_classes:
        return
    if any(one.layer.classes != 1 for one in heads_of(graph, source)):
        if over_classes:
            raise LevelheadError(f"{follows}, and its mean is over the classes")
        raise Undecided(f"{follows}, and its mean may be over the classes")


def _resizes_each_class(graph: Graph, node: Any) -> bool:
    """Return whether a Resize is of pixels [N, K, H, W], class by class, and adds nothing of its own."""
    source = input_of(node)
    before, after = (graph.shapes.get(name, ()) for name in (source, node.output[0]))
    same = len(before) == len(after) == 4 and 0 < before[1] == after[1]
    how = [one.s for one in node.attribute if one.name == "coordinate_transformation_mode"]
    return same and b"tf_crop_and_resize" not in how and class_axis(graph, source) == 1


def _pick(graph: Graph, node: Any, value: str) -> Passes:
    """Return that a node only picks entries: of what is decided already, or along other axes than the classes."""
    operator = graph.operator(node)
    source = input_of(node)
    follows = f"{operator} {node.name!r} follows the head"
    if graph.is_constant(source) and operator in ("Gather", EXTRACTOR):
        # The labels of the classes, by their index.
        indices = input_of(node, 1)
        if not _is_decided(graph, indices):
            raise Undecided(f"{follows}, and picks by something else than the largest score")
        return Passes([indices])
    if (one := two_scores_of(graph, node, partial(_is_sigmoid, graph))) is not None:
        return Passes([one])
    if _is_decided(graph, source):
        return Passes([source])
    if operator == "Transpose":
        if class_axis(graph, value) in (None, MIXED):
            raise Undecided(f"{follows}, and where it puts the classes is not known")
        return Passes([source])
    axes = picked_axes(graph, node)
    rank = graph.rank(source)
    classes = class_axis(graph, source)
    if operator == EXTRACTOR or axes is None or not rank or classes in (None, MIXED):
        raise Undecided(f"{follows}, and may pick some of the classes")
    if classes in [axis % rank for axis in axes]:
        raise Undecided(f"{follows}, and picks some of the classes")
    return Passes([source])


def _is_sigmoid(graph: Graph, value: str) -> bool:
    """Return whether a value has the sigmoids of a head."""
    return all("Sigmoid" in one.follows for one in heads_of(graph, value))


def _is_decided(graph: Graph, value: str) -> bool:
    """Return whether a softmax or argmax over the classes lies between the head and a value."""
    return all({*one.follows} & {*COMPETING} for one in heads_of(graph, value))


def _concat(graph: Graph, node: Any) -> Linear[str, LinearNode] | Passes:
    """Return the head that a Concat makes: of one row for each class, or the two scores of one logit."""
    if (one := two_scores_of(graph, node, partial(_is_sigmoid, graph))) is not None:
        return Passes([one], "ArgMax")
    layers = [heads_of(graph, name) for name in node.input]
    if (layer := layer_of_rows(graph, node, layers)) is not None:
        return layer
    raise Undecided(f"comes from Concat {node.name!r}, of values that are not one for each class")


def _sum(graph: Graph, node: Any) -> Linear[str, LinearNode] | Passes:
    """Return what a sum or product is: a layer and its bias, heads that are added up, or a head times one number."""
    first = input_of(node)
    operator = graph.operator(node)
    if (layer := biased_layer(graph, node)) is not None:
        return layer
    fixed = [name for name in node.input if graph.is_constant(name)]
    moving = graph.moving(node)
    added = operator in ("Add", "Sum", "Mean") and not fixed
    constant = None
    if len(fixed) == 1:
        constant = graph.constants.get(fixed[0])
    is_number = constant is not None and prod(constant[0].dims) == 1
    if added or (operator in ("Mul", "Div") and moving == [first] and is_number):
        return Passes(moving, plain=False)
    if (quantized := _quantized_behind(graph, node)) is not None:
        raise LevelheadError(
            f"its head is quantized ({quantized}); adjust the model before quantizing it"
        )
    raise Undecided(f"{operator} {node.name!r} follows the head, and may mix or shift the classes")


def _softmax_written_out(graph: Graph, node: Any) -> str | None:
    """Return the value whose softmax a node ends: exp(x - max x), or exp(x), divided by its sum; None for another."""
    if graph.operator(node) != "Div" or len(node.input) != 2:
        return None
    exp = graph.maker(node.input[0], "Exp")
    total = graph.maker(node.input[1], "ReduceSum", "Reshape", "Expand")
    if exp is None or total is None or graph.maker(total.input[0], "Exp") is not exp:
        return None
    axes = reduced_axes(graph, total)
    rank = graph.rank(exp.output[0])
    if axes and rank:
        axis = axes[0] % rank
    else:
        axis = next(iter(axes), 0)
    if len(axes) != 1 or not _is_of_all(graph, node.input[1], axis, rank):
        return None
    source = exp.input[0]
    less = graph.maker(exp.input[0], "Sub")
    # What is the same for all classes changes no softmax.
    if less is not None and len(less.input) == 2 and _is_of_all(graph, less.input[1], axis, rank):
        source = less.input[0]
    if competes_along(graph, source, axis):
        return source
    return None


def _is_of_all(graph: Graph, name: str, axis: int, rank: int) -> bool:
    """Return whether a value is one number for all classes: in an axis that was kept, or put back."""
    reduced = graph.maker(name, "ReduceSum") or graph.maker(name, "ReduceMax")
    sizes = graph.shapes.get(name, ())
    if reduced is not None and all(one.i for one in reduced.attribute if one.name == "keepdims"):
        over = [n % rank if rank else n for n in reduced_axes(graph, reduced)]
        if over == [axis]:
            return True
    return rank == len(sizes) == 2 and sizes[axis] == 1


def _sigmoid_written_out(graph: Graph, node: Any) -> str | None:
    """Return the value whose sigmoid a node ends, 1 / (1 + exp(-x)); None for another."""
    if graph.operator(node) != "Reciprocal":
        return None
    total = graph.maker(input_of(node), "Add")
    if total is None or len(total.input) != 2:
        return None
    for one, exponential in (total.input, [*total.input][::-1]):
        exp = graph.maker(exponential, "Exp")
        if exp is not None and graph.number(one) == 1:
            negative = graph.maker(exp.input[0], "Neg")
            if negative is not None:
                return negative.input[0]
            times = graph.maker(exp.input[0], "Mul")
            if times is not None and len(times.input) == 2 and graph.number(times.input[1]) == -1:
                return times.input[0]
    return None


def _divided_by_its_sum(graph: Graph, node: Any) -> str | None:
    """Return the sigmoids that a node divides by their sum, one for all classes; None for another node.

    Which class is the largest stays as it is. skl2onnx adds a number to both, where the sum is 0.
    """
    if graph.operator(node) != "Div" or len(node.input) != 2:
        return None
    above, below = (_without_mask(graph, name) for name in node.input)
    total = graph.maker(below, "ReduceSum")
    if total is None or graph.source(total.input[0], ("Identity",))[0] != above:
        return None
    axes = reduced_axes(graph, total)
    kept = all(one.i for one in total.attribute if one.name == "keepdims")
    if len(axes) != 1 or not kept or not competes_along(graph, above, axes[0]):
        return None
    if _is_sigmoid(graph, above):
        return above
    return None


def _without_mask(graph: Graph, name: str) -> str:
    """Return a value without what skl2onnx adds to it where a sum is 0: not(sum), as a number."""
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


def _is_quantized(operator: str) -> bool:
    """Return whether a node computes with whole numbers, or packs or unpacks them."""
    name = operator.rpartition("::")[2]
    begins = ("Q", "Dequantize", "DynamicQuantize")
    return "Integer" in name or "NBits" in name or name.startswith(begins)


def _quantized_behind(graph: Graph, node: Any, most: int = 4) -> str | None:
    """Return the quantized node that a sum comes from, by way of few scales and casts alone."""
    level = [node]
    for _ in range(most):
        names = dict.fromkeys(name for one in level for name in one.input)
        makers = [graph.makers[name] for name in names if name in graph.makers]
        for one in makers:
            if _is_quantized(graph.operator(one)):
                return graph.operator(one)
        passing = [one for one in makers if graph.operator(one) in (*SUMS, "Cast", "Reshape")]
        level = list({id(one): one for one in passing}.values())
    return None
