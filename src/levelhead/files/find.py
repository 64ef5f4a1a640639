"""Which of a file's tensors are the classifier's head, by name and shape alone; if several could be, none is taken."""

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
    """
    leaves = {re.split("[./]", key)[-1] for key in spans}
    # Of Flax or Keras: kernels [d, K], and a slash between names.
    if "kernel" in leaves and "weight" not in leaves:
        dotted = {key.replace("/", "."): span for key, span in spans.items()}
        spans = {
            key: replace(s, transposed=True) if key.split(".")[-1] == "kernel" else s
            for key, s in dotted.items()
        }
        named = None if named is None else named.replace("/", ".")
    tensors = Tensors(path, spans, ordered)
    if named is not None:
        found = _named_layers(tensors, named, classes)
    else:
        found = _under_known_names(tensors, classes)
        if not found and classes == 2:  # a head with one logit has two classes
            found = _under_known_names(tensors, 1)
        if found:
            check_not_hidden(tensors, found)
        else:
            found = _only_candidate(tensors, classes)
            check_not_hidden(tensors, found)
            check_not_bare(tensors, found[0])
            check_nothing_follows(tensors, found[0])
    layers = tuple(_layer_spans(tensors, layer) for layer in found)
    for layer in layers:
        check_no_norm_follows(tensors, layer)
        check_block_adds_nothing(tensors, layer)
        if named is None:
            check_logits_are_plain(tensors, layer)
    check_not_tied(tensors, layers)
    return layers


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
    for layer in sorted({owner_of(key) for key in tensors.spans} - tensors.shapes.keys()):
        if WRAPPER.sub("", layer, count=1) in KNOWN_HEADS:
            check_layer_is_plain(tensors, layer)
    return find_by_names(tensors, classes)


def _only_candidate(tensors: Tensors, classes: int | None) -> list[str]:
    """Return the one layer of a head's shape."""
    single = tensors.candidates(1)
    computed = tensors.computed(classes)
    found = [*tensors.candidates(classes), *computed]
    if not found and classes == 2 and _is_last(tensors, single):
        found = single
    if len(found) > 1 or (found and single and classes is None):
        raise tensors.several(found, single)
    if found:
        return found
    hint = "is it a backbone alone?"
    rows = ""
    if classes is not None:
        rows = f" with {classes} rows, one per class"
    if others := [*tensors.candidates(), *tensors.computed(None)]:
        hint = f"layers of a head's shape: {list_layers(tensors.with_shapes([*others, *single]))}"
    elif single:
        listed = list_layers(tensors.with_shapes(single))
        hint = f"{listed} gives one number, as for a regression; a head has a row per class"
        hint += ", or is one logit if there are two counts"
    reason = f"{tensors.path}: no head found, no weight matrix [K, d]{rows}"
    # One of them may be the head of a map: without a graph it is taken only by its name.
    if convolutions := tensors.wide_convolutions(classes):
        listed = list_layers(tensors.with_shapes(convolutions))
        if_scores = Advice("head", None, "to name one of them if its outputs are the scores")
        raise NoHead(f"{reason}; convolutions over more than one place: {listed}", advice=if_scores)
    raise NoHead(f"{reason}; {hint}")


def _is_last(tensors: Tensors, single: Sequence[str]) -> bool:
    """Return whether a single logit is the end of a model: one layer alone, or behind others, one of which feeds it."""
    others = [layer for layer in tensors.candidates(least=1) if layer not in single]
    behind = tensors.with_shapes([*others, *single])[-1:] == tensors.with_shapes(single)
    feeds = any(tensors.rows(other) == tensors.shapes[one][1] for other in others for one in single)
    return len(single) == 1 and behind and (feeds or not others)


def _layer_spans(tensors: Tensors, layer: str) -> LayerSpans:
    check_layer_is_plain(tensors, layer)
    weight = tensors.weights[layer]
    bias = tensors.spans.get(f"{layer}.bias" if layer else "bias")
    if bias is not None and bias.shape != weight.logical[:1]:
        raise tensors.error(
            f"expected {bias.key} [{weight.logical[0]}], one per class, got {list(bias.shape)}"
        )
    found = LayerSpans(layer, weight, bias, plain=not is_squeezenet(tensors))
    for span in (span for span in found.spans if span.dtype not in HEAD_DTYPES):
        advice = "save it as a plain tensor"
        if "," not in span.dtype:
            advice = "adjust the model before quantizing"
        raise tensors.error(
            f"{span.key} holds {span.dtype}; expected F64, F32, F16 or BF16: {advice}"
        )
    return found
