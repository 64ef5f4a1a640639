"""Which layer of a Keras model is its head: by the graph of the model or, without one, by an example input.

A functional or sequential model says itself which layers its outputs come from, so its head is proved, not guessed.
Nothing of the model is run, unless it has no graph and an example is given.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import Advice, LevelheadError
from ..core.extras import naming_what_is_missing
from .candidates import KERAS_ACTIVATIONS, KERAS_HARMLESS, KERAS_LINEAR, KERAS_SUMS, list_layers

NAME_LAYER = Advice("layer", None, "to name the head")


class FoundHead(NamedTuple):
    """The layers that feed one output, by name, and the activations that follow them."""

    layers: dict[str, Any]
    activations: frozenset[str]


def find_keras_head(model: Any, *, layer: Any = None, example: Any = None, classes: int | None = None) -> FoundHead:
    """Find the layer, or layers, whose columns are a Keras model's class weight vectors.

    Args:
        model: a Keras 3 model, built.
        layer: its name, the layer itself, or a list of them if several feed one output.
        example: an input of the model, to find the head of a subclassed model by what it does; a functional or
            sequential model needs none.
        classes: K, where it is known.

    Returns:
        {name: layer} and the activations that follow.
    """
    if layer is not None:
        return _named_head(model, layer)
    if getattr(model, "outputs", None):
        return _head_by_graph(model, classes)
    layers = list(keras_linear_layers(model))
    fitting = [one for one in layers if classes in (None, keras_units(one))]
    if example is not None:
        return _proved_head(model, example, fitting or layers)
    if len(fitting) != 1 or fitting[0] is not layers[-1]:
        could = (
            "no layer of this model" if not fitting else f"which layer is the head is not certain: {_listing(layers)}"
        )
        raise LevelheadError(
            f"{could}{'' if fitting else f' has {classes} outputs, one per class; it has {_listing(layers)}'}; pass an "
            "example input, as the model has no graph to tell",
            advice=NAME_LAYER,
        )
    return FoundHead({fitting[0].name: fitting[0]}, frozenset([activation_of(fitting[0])]))


def keras_linear_layers(model: Any) -> Iterator[Any]:
    """Yield every Dense layer and 1x1 convolution of a Keras model that is built, each once."""
    seen: set[int] = set()
    for one in [model, *model._flatten_layers(include_self=False, recursive=True)]:
        if id(one) not in seen and keras_units(one) is not None:
            seen.add(id(one))
            yield one


def keras_units(layer: Any) -> int | None:
    """Return how many outputs a Dense layer or 1x1 convolution has; None for any other layer."""
    if _kind(layer) not in KERAS_LINEAR or (_kind(layer) != "Dense" and set(layer.kernel_size) != {1}):
        return None
    return layer.units if _kind(layer) == "Dense" else layer.filters


def keras_library() -> Any:
    """Return Keras, which is imported only here: a model of its kind is needed first."""
    with naming_what_is_missing():
        import keras

    return keras


def activation_of(layer: Any) -> str:
    """Return the name of a layer's activation: linear if it has none."""
    activation = getattr(layer, "activation", None)
    return "linear" if activation is None else getattr(activation, "__name__", type(activation).__name__)


def _kind(layer: Any) -> str:
    """Return which class of Keras's own a layer is of, also if the user derived one from it."""
    own = (one.__name__ for one in type(layer).__mro__ if one.__module__.startswith("keras.src.layers."))
    return next(own, "")


def _named_head(model: Any, layer: Any) -> FoundHead:
    found: dict[str, Any] = {}
    layers = list(keras_linear_layers(model))
    for one in layer if isinstance(layer, list | tuple) else [layer]:
        matching = [each for each in layers if each is one or (isinstance(one, str) and each.name == one)]
        if len(matching) != 1:
            what = repr(one) if isinstance(one, str) else f"a {type(one).__name__}"
            many = "more than one layer is" if matching else "no Dense layer or 1x1 convolution is"
            raise LevelheadError(f"{many} called {what}; the model has {_listing(layers)}", parameter="layer")
        found[matching[0].name] = matching[0]
    if not found:
        raise LevelheadError("expected at least one layer, got an empty list", parameter="layer")
    return FoundHead(found, frozenset(activation_of(one) for one in found.values()))


def _head_by_graph(model: Any, classes: int | None) -> FoundHead:
    """Return the head of the one output, or of the one with K columns."""
    found, reasons = [], []
    for output in model.outputs:
        try:
            steps = list(_feeding(output))
        except LevelheadError as error:
            reasons.append(error)
            continue
        layers = {one.name: one for one in steps if not isinstance(one, str)}
        head = FoundHead(layers, frozenset(step for step in steps if isinstance(step, str)))
        if layers.keys() not in [one.layers.keys() for one in found]:
            found.append(head)
    fitting = [head for head in found if classes in (None, keras_units(next(iter(head.layers.values()))))]
    if len(fitting) == 1 and not (reasons and classes is None):
        return fitting[0]
    listed = _listing(one for head in found for one in head.layers.values())
    if len(fitting) > 1:
        raise LevelheadError(f"the model has more than one head: {listed}; none is taken", advice=NAME_LAYER)
    if reasons:
        raise reasons[0]
    raise LevelheadError(f"no head has {classes} outputs, one per class; there is {listed}")


def _feeding(tensor: Any) -> Iterator[Any]:
    """Yield the linear layers that an output comes from, and the names of all activations after them."""
    layer, node, index = tensor._keras_history
    inputs = layer._inbound_nodes[node].input_tensors
    wrapped = layer.layer if type(layer).__name__ == "TimeDistributed" else layer
    kind = _kind(wrapped)
    if keras_units(wrapped) is not None:
        yield activation_of(wrapped)
        yield wrapped
    elif getattr(layer, "outputs", None) and hasattr(layer, "layers"):  # a model inside the model
        yield from _feeding(layer.outputs[index])
    elif kind in KERAS_SUMS or (kind in KERAS_HARMLESS and len(inputs) == 1):
        name = "softmax" if kind == "Softmax" else activation_of(layer)
        if name not in KERAS_ACTIVATIONS:
            raise LevelheadError(
                f"the activation {name} of {layer.name} follows the head, and scaling it does not fit that"
            )
        yield name
        for one in inputs:
            yield from _feeding(one)
    else:
        what = f"{layer.name} ({type(layer).__name__})"
        raise LevelheadError(
            f"the output comes from {what}, not from a Dense layer or 1x1 convolution", advice=NAME_LAYER
        )


def _proved_head(model: Any, example: Any, candidates: list[Any]) -> FoundHead:
    """Return the one layer whose columns, scaled, scale the output's columns one by one on an example."""
    found = [one for one in candidates if _scales(model, example, one)]
    if len(found) == 1:
        return FoundHead({found[0].name: found[0]}, frozenset([activation_of(found[0])]))
    many = "more than one layer's" if found else "no layer's"
    raise LevelheadError(
        f"on this example {many} columns are the model's logits one by one: {_listing(candidates)}; only if "
        "nothing but a softmax follows, name the layer and leave out the example",
        advice=NAME_LAYER,
    )


def check_keras_adds(model: Any, example: Any, layers: list[Any]) -> None:
    """Check on an example that what is added to a layer's bias is added to the outputs of a model without a graph."""
    for layer in layers:
        if layer.bias is None:
            continue
        offsets = np.arange(keras_units(layer) or 0) % 2 * 2.0 - 1
        before, after = _run_with(model, example, layer, (1.0, 1.0), (0.0, offsets))
        if before is None or not np.allclose(after, before + offsets, rtol=0, atol=1e-4 * np.abs(before).max()):
            raise LevelheadError(
                f"on this example, what is added to the bias of {layer.name} is not added to the model's logits: the "
                "model scales or bends them after it; tune with the rule rescale"
            )


def _scales(model: Any, example: Any, layer: Any) -> bool:
    """Return whether scaling column i of a layer scales output i by the same factor. No variable is changed."""
    units = keras_units(layer) or 0
    factors = 2.0 ** np.random.default_rng(0).integers(-1, 3, size=units)
    factors[:2] = [0.5, 2.0][:units]
    before, after = _run_with(model, example, layer, (1.0, factors), (0.0, 0.0))
    if before is None or before.shape[-1] != units or not before.any():
        return False
    return bool(np.allclose(after, before * factors, rtol=0, atol=1e-4 * np.abs(before).max()))


def _run_with(model: Any, example: Any, layer: Any, scales: Any, offsets: Any) -> list[Any]:
    """Return what a model gives with a layer of random weights, each time scaled and its bias moved, by columns.

    Its activation is left out. None where the model gives several outputs. No variable is changed.
    """
    keras, rng = keras_library(), np.random.default_rng(1)
    mine = [layer.kernel] + ([] if layer.bias is None else [layer.bias])
    drawn = [rng.normal(size=tuple(v.shape)) / max(1, int(np.prod(v.shape[:-1]))) ** 0.5 for v in mine]
    activation, outputs = layer.activation, []
    layer.activation = keras.activations.linear
    try:
        for by, more in zip(scales, offsets, strict=True):
            moved = [drawn[0] * by, *(bias * by + more for bias in drawn[1:])]
            new = {id(v): keras.ops.cast(x, v.dtype) for v, x in zip(mine, moved, strict=True)}
            values = [[new.get(id(v), v.value) for v in part] for part in _variables(model)]
            args = tuple(example) if isinstance(example, tuple | list) else (example,)
            given, _ = model.stateless_call(*values, *args)
            outputs.append(keras.ops.convert_to_numpy(given).astype(np.float64) if hasattr(given, "shape") else None)
    except Exception as error:
        reason = f"the model fails on it: {type(error).__name__}: {error}"
        raise LevelheadError(reason, parameter="example") from error
    finally:
        layer.activation = activation
    return outputs


def _variables(model: Any) -> tuple[list[Any], list[Any]]:
    return model.trainable_variables, model.non_trainable_variables


def _listing(layers: Any) -> str:
    return list_layers((one.name, [keras_units(one) or 0]) for one in layers)
