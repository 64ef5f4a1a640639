"""Which of a file's tensors are the classifier's head, by name and shape alone; if several could be, none is taken.

`find_layers` looks for the layers that the caller names; else under names that libraries give their
heads; else for the only matrix with a row per class. What was found then has to pass the checks of
find_checks.py: nothing may be there that would take its outputs, bend them or share its weights.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..heads.candidates import KNOWN_HEADS, find_by_names, list_layers
from ..support.errors import Advice, LevelheadError
from .find_checks import (
    check_block_adds_nothing,
    check_layer_is_plain,
    check_logits_are_plain,
    check_no_norm_follows,
    check_not_bare,
    check_not_hidden,
    check_not_tied,
    check_nothing_follows,
    is_squeezenet,
)
from .spans import HEAD_DTYPES, LayerSpans, Span
from .tensors import WRAPPER, Tensors, owner_of


class NoHead(LevelheadError):
    """No tensor has the shape that was asked for: perhaps the shape is wrong."""


def find_layers(
    path: Path,
    spans: Mapping[str, Span],
    *,
    named: str | None = None,
    classes: int | None = None,
    ordered: bool = False,
) -> tuple[LayerSpans, ...]:
    """Find the layers of the head: those named, those of well-known names, or the only matrix with a row per class.

    Args:
        path, spans: the file and its tensors.
        named: the layers, or their weights, divided by commas.
        classes: K, where it is known.
        ordered: whether the tensors come in the order in which the model has its layers.

    Raises:
        NoHead: if no tensor has the shape that was asked for.
        LevelheadError: if several layers could be the head, or something speaks against it.
    """
    if _has_kernels(spans):
        spans = _as_in_torch(spans)
        if named is not None:
            named = named.replace("/", ".")
    tensors = Tensors(path, spans, ordered)
    if named is not None:
        head = _named_layers(tensors, named, classes)
    else:
        head = _under_known_names(tensors, classes)
        if not head and classes == 2:  # a head with one logit has two classes
            head = _under_known_names(tensors, 1)
        if head:
            check_not_hidden(tensors, head)
        else:
            head = _only_candidate(tensors, classes)
            check_not_hidden(tensors, head)
            check_not_bare(tensors, head[0])
            check_nothing_follows(tensors, head[0])
    layers = tuple(_layer_spans(tensors, layer) for layer in head)
    for layer in layers:
        check_no_norm_follows(tensors, layer)
        check_block_adds_nothing(tensors, layer)
        if named is None:
            check_logits_are_plain(tensors, layer)
    check_not_tied(tensors, layers)
    return layers


def _has_kernels(spans: Mapping[str, Span]) -> bool:
    """Return whether the weights of a file are called kernels, as those of Flax and Keras are."""
    leaves = {re.split("[./]", key)[-1] for key in spans}
    return "kernel" in leaves and "weight" not in leaves


def _as_in_torch(spans: Mapping[str, Span]) -> dict[str, Span]:
    """Return the tensors of Flax or Keras with dots between names, not slashes, and kernels [d, K] as transposed."""
    turned = {}
    for key, span in spans.items():
        dotted = key.replace("/", ".")
        if dotted.split(".")[-1] == "kernel":
            span = replace(span, transposed=True)
        turned[dotted] = span
    return turned


def _named_layers(tensors: Tensors, named: str, classes: int | None) -> list[str]:
    """Return the layers of these names, which must have a head's shape."""
    layers = []
    for name in named.split(","):
        layer = name.removesuffix(".weight").removesuffix(".kernel")
        if name in ("weight", "kernel") and "" in tensors.shapes:  # a matrix of no layer
            layer = ""
        check_layer_is_plain(tensors, layer)
        shape = tensors.shapes.get(layer)
        if shape is None:
            candidates = tensors.candidates(classes) or tensors.candidates()
            near = list_layers(tensors.with_shapes(candidates))
            raise tensors.error(f"no layer {layer!r}; layers of a head's shape: {near}")
        _check_rows_come_first(tensors, layer)
        layers.append(layer)
    if len(set(layers)) < len(layers):
        raise LevelheadError(f"expected different layers, got {named}", parameter="head")
    return layers


def _check_rows_come_first(tensors: Tensors, layer: str) -> None:
    """Check that a layer that was named has a row per class: it is linear, or a convolution of torch's or MLX's."""
    shape = tensors.shapes[layer]
    over_one_place = not {*shape[2:]} - {1}
    if len(shape) < 2 or (tensors.weights[layer].transposed and not over_one_place):
        expected = "expected a weight [K, d] or [K, d, 1, 1]"
        raise tensors.error(f"{expected}, {layer} has {list(shape)}")
    # As many inputs as outputs: the first axis of a transposed convolution is that of its inputs.
    if not over_one_place and shape[0] == shape[1]:
        doubt = "and may be a transposed convolution, whose outputs come second"
        instead = "adjust the scores instead (levelhead apply)"
        raise tensors.error(f"{layer} has {list(shape)}, {doubt}; {instead}")


def _under_known_names(tensors: Tensors, classes: int | None) -> list[str]:
    """Return the layers under names that libraries give their heads; one of a single logit if there is no other."""
    # A head whose weights are not plain is no candidate: say so, instead of taking another layer.
    for layer in sorted({owner_of(key) for key in tensors.spans} - tensors.shapes.keys()):
        if WRAPPER.sub("", layer, count=1) in KNOWN_HEADS:
            check_layer_is_plain(tensors, layer)
    return find_by_names(tensors, classes)


def _only_candidate(tensors: Tensors, classes: int | None) -> list[str]:
    """Return the one layer of a head's shape; raise if there is none, or more than one."""
    single = tensors.candidates(1)
    candidates = [*tensors.candidates(classes), *tensors.computed(classes)]
    if not candidates and classes == 2 and _is_last(tensors, single):
        candidates = single
    # Without a number of classes, a layer of one row could be the head as well.
    if len(candidates) > 1 or (candidates and single and classes is None):
        raise tensors.several(candidates, single)
    if candidates:
        return candidates
    raise _no_head(tensors, classes)


def _no_head(tensors: Tensors, classes: int | None) -> NoHead:
    """Return the error for a file without a layer of a head's shape, with what comes nearest."""
    rows = ""
    if classes is not None:
        rows = f" with {classes} rows, one per class"
    reason = f"{tensors.path}: no head found, no weight matrix [K, d]{rows}"
    single = tensors.candidates(1)
    others = [*tensors.candidates(), *tensors.computed(None)]
    # A convolution with K outputs, or any where there is no matrix, may be the head of a map: without a graph it is
    # taken only by its name.
    convolutions = tensors.wide_convolutions(classes)
    if convolutions and (classes is not None or not [*others, *single]):
        listed = list_layers(tensors.with_shapes(convolutions))
        if_scores = Advice("head", None, "to name one of them if its outputs are the scores")
        return NoHead(
            f"{reason}; convolutions over more than one place: {listed}", advice=if_scores
        )
    if others:
        listed = list_layers(tensors.with_shapes([*others, *single]))
        return NoHead(f"{reason}; layers of a head's shape: {listed}")
    if single:
        listed = list_layers(tensors.with_shapes(single))
        regression = f"{listed} gives one number, as for a regression"
        expected = "a head has a row per class, or is one logit if there are two counts"
        return NoHead(f"{reason}; {regression}; {expected}")
    return NoHead(f"{reason}; is it a backbone alone?")


def _is_last(tensors: Tensors, single: Sequence[str]) -> bool:
    """Return whether a single logit is the end of a model: one layer alone, or behind others, one of which feeds it."""
    if len(single) != 1:
        return False
    logit = single[0]
    others = [layer for layer in tensors.candidates(least=1) if layer != logit]
    last, _ = tensors.with_shapes([*others, logit])[-1]
    inputs = tensors.shapes[logit][1]
    feeds = any(tensors.rows(other) == inputs for other in others)
    return last == logit and (feeds or not others)


def _layer_spans(tensors: Tensors, layer: str) -> LayerSpans:
    """Return where the weight and the bias of a layer are, if both are plain and their numbers can be changed."""
    check_layer_is_plain(tensors, layer)
    weight = tensors.weights[layer]
    bias = tensors.spans.get(f"{layer}.bias" if layer else "bias")
    if bias is not None and bias.shape != weight.logical[:1]:
        raise tensors.error(
            f"expected {bias.key} [{weight.logical[0]}], one per class, got {list(bias.shape)}"
        )
    spans = LayerSpans(layer, weight, bias, plain=not is_squeezenet(tensors))
    for span in spans.spans:
        if span.dtype in HEAD_DTYPES:
            continue
        # A comma stands before what is wrong with how the numbers lie; otherwise their type is.
        advice = "save it as a plain tensor"
        if "," not in span.dtype:
            advice = "adjust the model before quantizing"
        raise tensors.error(
            f"{span.key} holds {span.dtype}; expected F64, F32, F16 or BF16: {advice}"
        )
    return spans
