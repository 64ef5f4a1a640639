"""The walk back through an ONNX graph, from an output to the layers that are its head.

`heads_of` walks by `layers_behind` (heads/graph.py), which asks `_maker_of` of each value what
makes it: a linear layer, which ends the walk; a node that passes the outputs of a head on, such as
a softmax, a mean over pixels or a sum of heads; or something that may mix the classes, which is an
error. `Undecided` is the error that the caller may overrule by naming the layer, `named_layers`.

    _maker_of: by the operator of the node that makes a value
        linear_layer, _classifier: a layer
        softmax_written_out ... (onnx_patterns.py): nodes that are one function together
        _harmless: softmax, reshapes, means over other axes
        _pick: slices and gathers along other axes, or behind an argmax
        _concat: one row for each class, or (-z, z)
        _sum: a bias, several heads, a constant factor

What is right to pass is what keeps this true: multiplying the row of a class, or adding to its
bias, does the same to the score that is compared with the others in the end.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from ..heads.graph import Passes, layers_behind
from ..support.errors import Advice, LevelheadError
from .onnx_axes import (
    MIXED,
    SUMS,
    class_axis,
    competes,
    picked_axes,
    reduced_axes,
    reorders,
)
from .onnx_classifier import gives_opposite_scores
from .onnx_graph import (
    CLASSIFIER,
    EXTRACTOR,
    LINEAR,
    NORMALIZER,
    TREES,
    ZIP_MAP,
    Graph,
    attribute_of,
    input_of,
    integer_attribute,
)
from .onnx_layers import LinearNode, OnnxHead, biased_layer, classifier_key, linear_layer
from .onnx_logit import layer_of_rows, two_scores_of
from .onnx_patterns import (
    divided_by_its_sum,
    is_quantized,
    quantized_behind,
    sigmoid_written_out,
    softmax_written_out,
)

if TYPE_CHECKING:
    from onnx import NodeProto

OPPOSITE = "(-z, z)"  # two scores of one logit, as if they were an operator
COMPETING = ("Softmax", "LogSoftmax", "ArgMax", "TopK", OPPOSITE)
# What may follow a head: nothing that mixes classes, but softmax.
HARMLESS = (
    "Identity", "Cast", "Dropout", "Flatten", "Squeeze", "Unsqueeze", "Reshape", "Sigmoid", "Relu",
    "GlobalAveragePool", "AveragePool", "ReduceMean", "Resize", ZIP_MAP, *COMPETING,
)  # fmt: skip
# What takes a mean of several values, or bends them: harmless to scores, not to probabilities.
MIXING = (
    "GlobalAveragePool", "AveragePool", "ReduceMean", "Resize", "Sigmoid", "Softmax", "LogSoftmax",
)  # fmt: skip
PICKING = ("Transpose", "Split", "Slice", "Gather", EXTRACTOR)
EXPECTED = "expected a Gemm, MatMul, 1x1 Conv or LinearClassifier with constant weights"
NAME_SCORING_LAYER = Advice(
    "head", None, "to name the layer, if its outputs are the scores that are compared in the end"
)


class Undecided(LevelheadError):
    """Something follows a layer that may or may not leave its classes alone.

    The caller may name the layer, and so say that it does. What is known to be wrong, such as a
    mean over the classes, is a plain LevelheadError, and a name does not help.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, advice=NAME_SCORING_LAYER)


def heads_of(graph: Graph, value: str) -> list[OnnxHead]:
    """Return the linear layers whose outputs become this value.

    Args:
        graph: the model, which remembers what was walked.
        value: an output, or what becomes one.

    Raises:
        Undecided: something on the way may mix the classes.
        LevelheadError: something does, or the value does not come from a layer that can be changed.
    """
    heads = []
    for head in layers_behind(value, partial(_maker_of, graph), graph.walked).values():
        # A Normalizer is harmless where a LinearClassifier made probabilities before it.
        if NORMALIZER in head.follows and graph.operator(head.layer.node) != CLASSIFIER:
            raise Undecided(
                f"{NORMALIZER} follows the head {head.layer.key!r}, and may mix the classes"
            )
        follows = tuple(name for name in head.follows if name != NORMALIZER)
        heads.append(replace(head, follows=follows))
    if len(heads) > 1:
        _check_side_by_side(graph, heads)
    return heads


def _check_side_by_side(graph: Graph, heads: list[OnnxHead]) -> None:
    """Raise if one of several layers that feed an output takes what another gives.

    Its outputs would follow the change of both. Neither may two have one weight, each with a bias
    of its own: a change of the weight is one of both.
    """
    layers = [row for head in heads for row in head.layer.rows or [head.layer]]
    if len({layer.weight for layer in layers}) < len(layers):
        raise LevelheadError(f"comes from {layers[0].key!r} with more than one bias")
    before = values_before(graph, [input_of(layer.node) for layer in layers])
    for layer in layers:
        if not before.isdisjoint(layer.gives):
            reason = f"comes from {layer.key!r} and from a layer that takes what it gives"
            raise LevelheadError(f"{reason}; a change of it would arrive twice")


def named_layers(graph: Graph, names: list[str], outputs: list[str]) -> list[OnnxHead] | None:
    """Return the layers of these names, if all come before one of the outputs; else None.

    Args:
        graph: the model.
        names: of layers, weights or nodes.
        outputs: those whose head could not be told by what follows it. A layer that none of them
            comes from is no head, whatever it is called.
    """
    before = values_before(graph, outputs)
    by_name: dict[str, OnnxHead] = {}
    for node in graph.model.graph.node:
        operator = graph.operator(node)
        if operator not in (*LINEAR, "Add", CLASSIFIER) or not before.issuperset(node.output[:1]):
            continue
        try:
            if operator == "Add":
                layer = biased_layer(graph, node)
            elif operator == CLASSIFIER:
                layer = _classifier(graph, node, node.output[0])
            else:
                layer = linear_layer(graph, node, None)
        except LevelheadError:
            continue  # it is another layer, or one that cannot be changed
        if layer is not None:
            # An Add comes after its layer, and knows the bias.
            by_name |= dict.fromkeys(layer.layer.names - {""}, layer)
    if by_name.keys() >= set(names):
        return [by_name[name] for name in names]
    return None


def values_before(graph: Graph, outputs: list[str]) -> set[str]:
    """Return all values that these come from, and themselves.

    Args:
        graph: the model; what a graph inside a node uses of it is not followed.
        outputs: where to begin.
    """
    waiting = list(outputs)
    seen = set(outputs)
    while waiting:
        node = graph.makers.get(waiting.pop())
        if node is not None:
            new = {*node.input} - seen
            seen |= new
            waiting += new
    return seen


def _classifier(graph: Graph, node: NodeProto, value: str) -> OnnxHead:
    """Return the layer that a LinearClassifier is; its label is that of the largest score.

    Its weight and bias are attributes, no constants of the graph, and get names after its key:
    onnx_classifier.py looks up where they are.

    Args:
        graph, node: where it is.
        value: which of its outputs: the labels, or the scores.
    """
    key = classifier_key(graph, node)
    layer = LinearNode(node, f"{key}.coefficients", f"{key}.intercepts", False)
    follows = ("ArgMax",)
    transform = attribute_of(node, "post_transform")
    if transform is not None and transform.s == b"LOGISTIC":
        follows = ("Sigmoid", "ArgMax")
    elif value != node.output[0] and gives_opposite_scores(node):
        follows = (OPPOSITE,)
    return OnnxHead(layer.constants, layer, follows)


def _maker_of(graph: Graph, value: str) -> OnnxHead | Passes:
    """Return what makes a value: a layer, or a node that passes the outputs of one on.

    The order of the questions matters: a Div may be the end of a softmax, of probabilities divided
    by their sum, or a head divided by a number.

    Raises:
        LevelheadError: it is neither linear nor may follow a head.
    """
    node = graph.makers.get(value)
    if node is None:
        raise LevelheadError(f"comes from an input of the model; {EXPECTED}")
    operator = graph.operator(node)
    if operator in LINEAR:
        return linear_layer(graph, node, None)
    if operator == CLASSIFIER:
        return _classifier(graph, node, value)
    if operator == NORMALIZER:
        return Passes([input_of(node)], operator)
    # Several nodes that are one function together are known by their last.
    source = softmax_written_out(graph, node)
    if source is not None:
        return Passes([source], "Softmax", mixes=_mixes(node, operator))
    source = sigmoid_written_out(graph, node)
    if source is not None:
        return Passes([source], "Sigmoid", mixes=_mixes(node, operator))
    source = divided_by_its_sum(graph, node, partial(_is_sigmoid, graph))
    if source is not None:
        return Passes([source])
    if operator in HARMLESS:
        return _harmless(graph, node, value)
    if operator in PICKING:
        return _pick(graph, node, value)
    if operator == "Concat":
        return _concat(graph, node)
    if operator in SUMS:
        return _sum(graph, node)
    if is_quantized(operator):
        raise LevelheadError(
            f"its head is quantized ({operator}); adjust the model before quantizing it"
        )
    if operator in TREES:
        raise LevelheadError(
            f"comes from {operator}, which has no head; adjust its scores (AdjustedPredictor) instead"
        )
    raise Undecided(f"comes from {operator}; {EXPECTED}")


def _harmless(graph: Graph, node: NodeProto, value: str) -> Passes:
    """Return that a node passes its input on.

    Args:
        graph, node, value: the model, the node, and what it makes.

    Raises:
        Undecided: it may mix the classes.
        LevelheadError: it does: a mean over them, or a softmax over another axis, which makes the
            scores of a class compete with each other.
    """
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
    # A mean over zeros at the border makes what is added smaller there, and a Relu cuts it.
    pads = integer_attribute(node, "count_include_pad", 0)
    plain = operator != "Relu" and not pads
    decides = ""
    if operator in ("Sigmoid", *COMPETING):
        decides = operator
    mixes = None
    if operator in MIXING and not _copies(graph, node):
        mixes = _mixes(node, operator)
    return Passes([source], decides, plain, mixes)


def _mixes(node: NodeProto, operator: str) -> Undecided:
    """Return the error for a node that takes probabilities as if they were scores."""
    what = f"{operator} {node.name!r} follows the probabilities of the head"
    return Undecided(f"{what}, and does not pass on what is added to its scores")


def _copies(graph: Graph, node: NodeProto) -> bool:
    """Return whether a Resize takes the nearest pixel, or a mean is of one value each."""
    mode = attribute_of(node, "mode")
    if graph.operator(node) == "Resize":
        return mode is None or mode.s == b"nearest"
    sizes = graph.shapes.get(input_of(node), ())
    axes = []
    if graph.operator(node) == "ReduceMean":
        axes = reduced_axes(graph, node) or []
    elif graph.operator(node) == "GlobalAveragePool":
        axes = range(2, len(sizes))
    # A file may name axes that are not there.
    return bool(axes) and all(sizes[axis:][:1] == (1,) for axis in axes)


def _check_mean(graph: Graph, node: NodeProto, follows: str) -> None:
    """Raise if a mean is over the classes, or may be, unless it is of layers of one row each.

    Args:
        graph, node: the ReduceMean.
        follows: what the message begins with.
    """
    source = input_of(node)
    axes = reduced_axes(graph, node)
    rank = graph.rank(source)
    classes = class_axis(graph, source)
    # Negative axes count from the last one, so that they need the rank.
    is_known = axes and rank and classes not in (None, MIXED)
    over_classes = is_known and classes in [axis % rank for axis in axes]
    if is_known and not over_classes:
        return
    # A layer of one row is one class: a mean over others of its kind may be an ensemble.
    if any(head.layer.classes != 1 for head in heads_of(graph, source)):
        if over_classes:
            raise LevelheadError(f"{follows}, and its mean is over the classes")
        raise Undecided(f"{follows}, and its mean may be over the classes")


def _resizes_each_class(graph: Graph, node: NodeProto) -> bool:
    """Return whether a Resize is of pixels [N, K, H, W], class by class, and adds nothing.

    Interpolation is a mean with weights that sum to 1: what is added to all pixels of a class is
    there behind it as well.
    """
    source = input_of(node)
    before = graph.shapes.get(source, ())
    after = graph.shapes.get(node.output[0], ())
    same = len(before) == len(after) == 4 and 0 < before[1] == after[1]
    # This mode takes a number of its own for what lies outside.
    mode = attribute_of(node, "coordinate_transformation_mode")
    crops = mode is not None and mode.s == b"tf_crop_and_resize"
    return same and not crops and class_axis(graph, source) == 1


def _pick(graph: Graph, node: NodeProto, value: str) -> OnnxHead | Passes:
    """Return that a node only picks entries, of what is decided already or along other axes.

    Args:
        graph, node, value: the model, the node (Transpose, Split, Slice, Gather or
            ArrayFeatureExtractor), and what it makes.

    Raises:
        Undecided: it may pick some of the classes: then the others no longer compete.
    """
    operator = graph.operator(node)
    source = input_of(node)
    follows = f"{operator} {node.name!r} follows the head"
    # The labels of the classes are looked up by their index.
    if graph.is_constant(source) and operator in ("Gather", EXTRACTOR):
        indices = input_of(node, 1)
        if not _is_decided(graph, indices):
            raise Undecided(f"{follows}, and picks by something else than the largest score")
        return Passes([indices])
    logit = two_scores_of(graph, node, partial(_is_sigmoid, graph))
    if logit is not None:
        # What is taken is one score again, and no longer a pair.
        maker = graph.makers.get(logit)
        if maker is not None and graph.operator(maker) == CLASSIFIER:
            return _classifier(graph, maker, maker.output[0])
        return Passes([logit])
    # Behind the softmax, whatever is picked, such as the score of one class, was compared with the
    # others before; but the columns of what was tuned on must be the rows of the layer.
    if _is_decided(graph, source):
        if reorders(graph, node, class_axis(graph, source)):
            raise Undecided(f"{follows}, and puts the classes in another order than its rows")
        return Passes([source])
    if operator == "Transpose":
        if class_axis(graph, value) in (None, MIXED):
            raise Undecided(f"{follows}, and where it puts the classes is not known")
        return Passes([source])
    # Some samples or pixels may be picked, and no classes.
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
    return all("Sigmoid" in head.follows for head in heads_of(graph, value))


def _is_decided(graph: Graph, value: str) -> bool:
    """Return whether a softmax or argmax over the classes lies between the head and a value."""
    return all({*head.follows} & {*COMPETING} for head in heads_of(graph, value))


def _concat(graph: Graph, node: NodeProto) -> OnnxHead | Passes:
    """Return the head that a Concat makes: of one row for each class, or of one logit.

    Raises:
        Undecided: it joins something else.
    """
    logit = two_scores_of(graph, node, partial(_is_sigmoid, graph))
    if logit is not None:
        pair = OPPOSITE
        if _is_sigmoid(graph, logit):
            pair = "ArgMax"
        return Passes([logit], pair)
    layer = layer_of_rows(graph, node, [heads_of(graph, name) for name in node.input])
    if layer is not None:
        return layer
    raise Undecided(f"comes from Concat {node.name!r}, of values that are not one for each class")


def _sum(graph: Graph, node: NodeProto) -> OnnxHead | Passes:
    """Return what a sum or product is: a layer and its bias, heads that are added up, or a factor.

    Heads that are added up are scaled together. A head times one number keeps the order of its
    classes; what is added to its bias is scaled on the way, so that it is not `plain`.

    Raises:
        LevelheadError: its layer is quantized.
        Undecided: it adds or multiplies by something for each class, or that is computed.
    """
    first = input_of(node)
    operator = graph.operator(node)
    layer = biased_layer(graph, node)
    if layer is not None:
        return layer
    fixed = [name for name in node.input if graph.is_constant(name)]
    moving = graph.moving(node)
    # Heads that are added up, or a head times one number: what is added to a bias is scaled on the
    # way.
    added = operator in ("Add", "Sum", "Mean") and not fixed
    constant = None
    if len(fixed) == 1:
        constant = graph.constants.get(fixed[0])
    is_number = constant is not None and prod(constant[0].dims) == 1
    times_number = operator in ("Mul", "Div") and moving == [first] and is_number
    if added:
        return Passes(moving, plain=False, mixes=_mixes(node, operator))
    if times_number:
        return Passes(moving, plain=False)
    quantized = quantized_behind(graph, node)
    if quantized is not None:
        raise LevelheadError(
            f"its head is quantized ({quantized}); adjust the model before quantizing it"
        )
    raise Undecided(f"{operator} {node.name!r} follows the head, and may mix or shift the classes")
