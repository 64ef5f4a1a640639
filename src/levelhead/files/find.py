"""Which of a file's tensors are the classifier's head, by name and shape alone.

The formats without a graph (safetensors, state dicts, weights of Keras and MLX) come here with
their tensors, as spans by key. A wrong guess would bend another layer without anybody noticing, so
that where several layers could be the head, none is taken, and the message lists them.

    find_layers
        _as_in_torch: keys and kernels of Flax and Keras, turned into torch's way
        _named_layers: the layers that the caller names, or
        _under_known_names: those under names that libraries give their heads, or
        _only_candidate: the only matrix with a row per class
        find_checks.py: nothing may be there that would take its outputs, bend them or share its
            weights; some of that is not asked of a layer that the caller names
        _layer_spans: where weight and bias lie, if their numbers can be changed
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
    """No tensor has the shape that was asked for: perhaps the shape is wrong.

    Its own class, since the number of classes often comes from counts or labels: the caller then
    looks again without it, and can say "expected 10 counts, got 9" instead of "no head".
    """


def find_layers(
    path: Path,
    spans: Mapping[str, Span],
    *,
    named: str | None = None,
    classes: int | None = None,
    ordered: bool = False,
) -> tuple[LayerSpans, ...]:
    """Find the layers of the head among the tensors of a file without a graph.

    Args:
        path, spans: the file and its tensors.
        named: the layers, or their weights, divided by commas.
        classes: K, where it is known.
        ordered: whether the tensors come in the order in which the model has its layers.

    Returns:
        The head, one layer or, where two feed one output, a pair.

    Raises:
        NoHead: no tensor has the shape that was asked for.
        LevelheadError: several layers could be the head, or something speaks against it.
    """
    if _has_kernels(spans):
        spans = _as_in_torch(spans)
        if named is not None:
            named = named.replace("/", ".")
    tensors = Tensors(path, spans, ordered)
    if named is not None:
        # Whoever names a layer knows that it is run, and last: that is not asked again.
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
    # What would make an adjustment wrong, however the layer was found.
    layers = tuple(_layer_spans(tensors, layer) for layer in head)
    for layer in layers:
        check_no_norm_follows(tensors, layer)
        check_block_adds_nothing(tensors, layer)
        if named is None:
            check_logits_are_plain(tensors, layer)
    check_not_tied(tensors, layers)
    return layers


def _has_kernels(spans: Mapping[str, Span]) -> bool:
    """Return whether the weights of a file are called kernels, as those of Flax and Keras are.

    A file with both, such as a torch model with a parameter called kernel, is not such a file.
    """
    leaves = {re.split("[./]", key)[-1] for key in spans}
    return "kernel" in leaves and "weight" not in leaves


def _as_in_torch(spans: Mapping[str, Span]) -> dict[str, Span]:
    """Return the tensors of Flax or Keras as torch would call them.

    Names have dots between them, not slashes, and kernels [d, K] are marked as transposed, so that
    one search serves both.
    """
    turned = {}
    for key, span in spans.items():
        dotted = key.replace("/", ".")
        if dotted.split(".")[-1] == "kernel":
            span = replace(span, transposed=True)
        turned[dotted] = span
    return turned


def _named_layers(tensors: Tensors, named: str, classes: int | None) -> list[str]:
    """Return the layers of these names, which must have a head's shape.

    Args:
        tensors: of the file.
        named: layers or their weights (`fc` or `fc.weight`), divided by commas.
        classes: K, where it is known: an unknown name is answered with layers of that size first.

    Raises:
        LevelheadError: a name is unknown, named twice, or of a layer that cannot be a head.
    """
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
    """Check that a layer that was named has a row per class.

    It is linear, or a convolution of torch's or MLX's, whose outputs come first. Kernels of Flax
    and Keras have them last, which a transposition undoes for matrices and 1x1 kernels alone.
    """
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
    """Return the layers under names that libraries give their heads; none if there are none.

    Raises:
        LevelheadError: several are there, or such a layer is not plain (parametrized, quantized).
    """
    # A head whose weights are not plain is no candidate: say so, instead of taking another layer.
    for layer in sorted({owner_of(key) for key in tensors.spans} - tensors.shapes.keys()):
        if WRAPPER.sub("", layer, count=1) in KNOWN_HEADS:
            check_layer_is_plain(tensors, layer)
    return find_by_names(tensors, classes)


def _only_candidate(tensors: Tensors, classes: int | None) -> list[str]:
    """Return the one layer of a head's shape; raise if there is none, or more than one.

    Args:
        tensors: of the file.
        classes: K, where it is known. With two, a single logit may be the head.

    Raises:
        NoHead: there is none.
        LevelheadError: several could be it.
    """
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
    """Return the error for a file without a layer of a head's shape, with what comes nearest.

    Which helps most depends on what is there: convolutions that could be named, matrices of other
    sizes, a single number, or nothing at all.
    """
    rows = ""
    if classes is not None:
        rows = f" with {classes} rows, one per class"
    reason = f"{tensors.path}: no head found, no weight matrix [K, d]{rows}"
    single = tensors.candidates(1)
    others = [*tensors.candidates(), *tensors.computed(None)]
    # A convolution with K outputs, or any where there is no matrix, may be the head of a map:
    # without a graph it is taken only by its name.
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
    """Return whether a single logit is the end of a model.

    It is one layer alone, or comes behind all others in the file, one of which gives what it takes.
    Files have many layers of one row (attention, gates), so that its shape alone is not enough.
    """
    if len(single) != 1:
        return False
    logit = single[0]
    others = [layer for layer in tensors.candidates(least=1) if layer != logit]
    last, _ = tensors.with_shapes([*others, logit])[-1]
    inputs = tensors.shapes[logit][1]
    feeds = any(tensors.rows(other) == inputs for other in others)
    return last == logit and (feeds or not others)


def _layer_spans(tensors: Tensors, layer: str) -> LayerSpans:
    """Return where the weight and the bias of a layer are.

    Raises:
        LevelheadError: the weight is not plain, the bias has another size, or the numbers are of a
            type, or lie in a way, that cannot be changed in place.
    """
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
