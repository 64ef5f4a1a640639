"""Which layers of a Keras 3 model are its head.

A functional model has a graph, and the head is what the walk from its output back finds
(keras_graph.py): `_node_of` says what a tensor comes from. A subclassed model has none: there the
caller names the head or gives an example, on which `followed_by_outputs` tries each layer, or only
one layer fits.

Keras keeps of each tensor of a graph where it comes from, `_keras_history`: (layer, which call of
it, which of its outputs). These are the values of the walk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..support.errors import Advice, LevelheadError
from ..support.extras import naming_what_is_missing
from .candidates import IF_SOFTMAX, Example, LayerChoice, list_layers
from .graph import GraphHead
from .keras_graph import KERAS_LINEAR, KERAS_POINTWISE, KerasNode, find_keras_heads

# Keras has no type hints, and its variables are of another library on each backend.
KerasLayer: TypeAlias = Any  # a layer, or a model, which is one too
KerasTensor: TypeAlias = Any
KerasLibrary: TypeAlias = Any

KerasHead = GraphHead[str, KerasLayer]  # layers by name
NAME_LAYER = Advice("layer", None, "to name the head")
# Of layers, that say what becomes of an axis.
SETTINGS = ("axis", "data_format", "dims", "interpolation", "keepdims", "target_shape")
# Four units in the last place of a logit near 1, by the dtype of its layer: what is added there is rounded twice.
_ROUNDING = {"float16": 2.0**-8, "bfloat16": 2.0**-5}


def find_keras_head(
    model: KerasLayer, layer: LayerChoice, example: Example, classes: int | None
) -> KerasHead:
    """Find the layer, or layers, whose columns are a Keras model's class weight vectors.

    Args:
        model: built.
        layer: the name of the head, the layer itself, or a list of them if several feed one output;
            None if it is to be found.
        example: an input, for a model without a graph.
        classes: K, where it is known.

    Returns:
        The layers by name, with what is known to follow them: by the graph all of it, else only
        their own activations.

    Raises:
        LevelheadError: there is none, more than one, or it is not certain; the message lists them.
    """
    if layer is None and getattr(model, "outputs", None):
        return _head_by_graph(model, classes)
    layers = keras_linear_layers(model)
    fitting = [linear for linear in layers if classes in (None, keras_units(linear))]
    if layer is not None:
        head = _named_layers(layers, layer)
    elif example is not None:
        head = [_proved_layer(model, example, fitting or layers)]
    elif len(fitting) == 1 and fitting[0] is layers[-1]:
        head = fitting
    else:
        reason = f"no layer of this model has {classes} outputs, one per class; it has {_listing(layers)}"
        if fitting:
            reason = f"which layer is the head is not certain: {_listing(layers)}"
        instead = "pass an example input, as the model has no graph to tell"
        raise LevelheadError(f"{reason}; {instead}", advice=NAME_LAYER)
    activations = frozenset(map(activation_of, head))  # what follows the layers is not known
    return KerasHead({part.name: part for part in head}, keras_units(head[0]) or 0, activations)


def _head_by_graph(model: KerasLayer, classes: int | None) -> KerasHead:
    """Return the head that the walk back from the model's outputs finds.

    There must be only one that fits.
    """
    outputs = [tensor._keras_history for tensor in model.outputs]
    fitting, heads = find_keras_heads(outputs, partial(_node_of, model), classes, NAME_LAYER)
    if len(fitting) == 1:
        return fitting[0]
    listed = _listing(layer for head in heads for layer in head.layers.values())
    if fitting:
        several = f"the model has more than one head: {listed}; none is taken"
        raise LevelheadError(several, advice=NAME_LAYER)
    raise LevelheadError(f"no head has {classes} outputs, one per class; there is {listed}")


def _named_layers(layers: Sequence[KerasLayer], layer: LayerChoice) -> list[KerasLayer]:
    """Return the linear layers of the model that a caller names.

    A name must be that of one layer: models inside models may each have a `dense`.
    """
    names: Sequence[object] = [layer]
    if isinstance(layer, list | tuple):
        names = layer
    head = []
    for name in names:
        if isinstance(name, str):
            called = repr(name)
            matching = [linear for linear in layers if linear.name == name]
        else:
            called = f"a {type(name).__name__}"
            matching = [linear for linear in layers if linear is name]
        if len(matching) != 1:
            many = "no Dense layer or 1x1 convolution is"
            if matching:
                many = "more than one layer is"
            has = f"the model has {_listing(layers)}"
            raise LevelheadError(f"{many} called {called}; {has}", parameter="layer")
        head += matching
    if not head:
        raise LevelheadError("expected at least one layer, got an empty list", parameter="layer")
    return head


def _proved_layer(
    model: KerasLayer, example: Example, candidates: Sequence[KerasLayer]
) -> KerasLayer:
    """Return the one layer whose columns are the logits of a model with one output, as an example shows.

    Args:
        model, example: to run.
        candidates: linear layers that may be the head.

    Raises:
        LevelheadError: none of them is, or several are.
    """
    proved = []
    for layer in candidates:
        if followed_by_outputs(model, example, [layer]) == [True]:
            proved.append(layer)
    if len(proved) != 1:
        many = "no layer's"
        if proved:
            many = "more than one layer's"
        columns = f"{many} columns are the model's logits one by one"
        reason = f"on this example {columns}: {_listing(candidates)}"
        raise LevelheadError(f"{reason}; {IF_SOFTMAX}", advice=NAME_LAYER)
    return proved[0]


def keras_linear_layers(model: KerasLayer) -> list[KerasLayer]:
    """Return every Dense layer and 1x1 convolution of a Keras model that is built, each once."""
    inside = model._flatten_layers(include_self=False, recursive=True)
    once = {id(layer): layer for layer in [model, *inside]}
    return [layer for layer in once.values() if keras_units(layer) is not None]


def keras_units(layer: KerasLayer) -> int | None:
    """Return how many outputs a Dense layer or 1x1 convolution has; None for any other layer."""
    kind = _kind(layer)
    if kind == "Dense":
        return layer.units
    if kind in KERAS_LINEAR and set(layer.kernel_size) == {1}:
        return layer.filters
    return None


def keras_library() -> KerasLibrary:
    """Return Keras, which is imported only here: a model of its kind is needed first."""
    with naming_what_is_missing():
        import keras

    return keras


def activation_of(layer: KerasLayer) -> str:
    """Return the name of a layer's activation: linear if it has none."""
    activation = getattr(layer, "activation", None)
    if activation is None:
        return "linear"
    return getattr(activation, "__name__", type(activation).__name__)


def variables_of(layer: KerasLayer) -> list[KerasTensor]:
    """Return the kernel of a linear layer and, where it has one, its bias."""
    if layer.bias is None:
        return [layer.kernel]
    return [layer.kernel, layer.bias]


def _kind(layer: KerasLayer) -> str:
    """Return which class of Keras's own a layer is of; "" if of none.

    The user may have derived a class from it.
    """
    for kind in type(layer).__mro__:
        if kind.__module__.startswith("keras.src.layers."):
            return kind.__name__
    return ""


def _node_of(model: KerasLayer, history: tuple[KerasLayer, int, int]) -> KerasNode[str, KerasLayer]:
    """Return what a tensor comes from.

    Args:
        history: its layer, which call of it, and which of its outputs, as Keras keeps them.
    """
    layer, call, index = history
    wrapped = layer
    if type(layer).__name__ == "TimeDistributed":
        wrapped = layer.layer
    units = keras_units(wrapped)
    kind = _kind(wrapped)
    # A call of the user's own may do anything; in TimeDistributed, axes are known only of layers
    # that keep them all.
    own_call = not getattr(type(wrapped).call, "__module__", "").startswith("keras.src.")
    if units is None and (own_call or (wrapped is not layer and kind not in KERAS_POINTWISE)):
        kind = ""  # it may do anything

    taken = layer._inbound_nodes[call].input_tensors
    shape = None
    # TimeDistributed gives what it wraps a shape without the axis of time.
    if taken and (wrapped is layer or units is not None):
        shape = tuple(taken[0].shape)
    # Of a model inside the model, the walk goes on at its own output.
    inner = None
    if hasattr(layer, "layers") and getattr(layer, "outputs", None):
        inner = layer.outputs[index]._keras_history
    calls = 1
    if units is not None:
        calls = _calls(model, wrapped, {})
    return KerasNode(
        key=wrapped.name,
        name=layer.name,
        type_name=type(layer).__name__,
        kind=kind,
        activation=activation_of(wrapped),
        settings={name: getattr(wrapped, name) for name in SETTINGS if hasattr(wrapped, name)},
        shape=shape,
        units=units,
        calls=calls,
        layer=wrapped,
        inner=inner,
        sources=lambda: [tensor._keras_history for tensor in taken],
    )


def _calls(model: KerasLayer, layer: KerasLayer, counted: dict[int, int]) -> int:
    """Return how often a model's graph applies a layer, with the models inside it.

    A layer that is applied twice, as in a siamese network, feeds two places: changing it would
    change both.

    Args:
        model, layer: of Keras.
        counted: the answers for models that were looked at already, by id; it is added to.
    """
    if id(model) not in counted:
        counted[id(model)] = 0
        nodes = getattr(getattr(model, "_functional", None) or model, "_nodes_by_depth", {})
        total = 0
        for node in (node for depth in nodes.values() for node in depth):
            applied = getattr(node.operation, "layer", node.operation)  # what a wrapper wraps
            if applied is layer:
                total += 1
            else:
                total += _calls(applied, layer, counted)
        counted[id(model)] = total
    return counted[id(model)]


def followed_by_outputs(
    model: KerasLayer,
    example: Example,
    layers: Sequence[KerasLayer],
    offsets: np.ndarray | None = None,
) -> list[bool]:
    """Return of each of the model's outputs whether it follows a change of layers, as that of a head does.

    The layers get random weights and a linear activation for it, but no variable is changed. Random
    ones, since a head may be all zeros before training, and scaled zeros prove nothing.

    Args:
        model, example: a model and an input to run it on.
        layers: its linear layers that are changed together, each with K outputs.
        offsets: [K], added to their biases, which must add the same to the output. Without them each
            column is scaled, which must scale its output.

    Raises:
        LevelheadError: the model fails on the example.
    """
    units = keras_units(layers[0]) or 0
    if any(keras_units(layer) != units for layer in layers):
        return []
    scale = np.ones(1)
    added = np.zeros(1)
    if offsets is not None:
        added = offsets
    else:
        # Powers of two, so that nothing is rounded, and the first two differ.
        scale = 2.0 ** np.random.default_rng(0).integers(-1, 3, size=units)
        scale[:2] = [0.5, 2.0][:units]
    rng = np.random.default_rng(1)
    drawn = []
    changed = []
    for layer in layers:
        for variable in variables_of(layer):
            inputs = max(1, int(np.prod(variable.shape[:-1])))
            values = rng.normal(size=tuple(variable.shape)) / inputs**0.5
            drawn.append((variable, values))
            is_bias = variable is not layer.kernel
            changed.append((variable, values * scale + (added if is_bias else 0)))

    # A softmax of the layer's own would hide the logits; it is put back whatever happens.
    activations = [layer.activation for layer in layers]
    for layer in layers:
        layer.activation = keras_library().activations.linear
    try:
        before = _outputs(model, example, drawn)
        after = _outputs(model, example, changed)
    except Exception as error:
        raise LevelheadError(
            f"the model fails on it: {type(error).__name__}: {error}", parameter="example"
        ) from error
    finally:
        for layer, activation in zip(layers, activations, strict=True):
            layer.activation = activation
    rounding = _ROUNDING.get(layers[0].compute_dtype, 1e-4)
    followed = []
    for old, new in zip(before, after, strict=True):
        follows = False
        if old.shape[-1:] == (units,) and old.any():
            expected = old * scale + added
            room = rounding * np.abs(expected).max()
            follows = bool(np.allclose(new, expected, rtol=0, atol=room))
        followed.append(follows)
    return followed


def _outputs(
    model: KerasLayer, example: Example, values: Sequence[tuple[KerasTensor, np.ndarray]]
) -> list[np.ndarray]:
    """Run a model with other values in some variables; return each of its outputs, in float64.

    Args:
        values: (variable, what it has instead).
    """
    keras = keras_library()
    new = {}
    for variable, numbers in values:
        new[id(variable)] = keras.ops.cast(numbers, variable.dtype)
    # Keras takes the values of all variables, in its order, and changes none.
    trainable = [new.get(id(v), v.value) for v in model.trainable_variables]
    others = [new.get(id(v), v.value) for v in model.non_trainable_variables]
    args: tuple[object, ...] = (example,)
    if isinstance(example, tuple | list):  # one for each input of the model
        args = tuple(example)
    outputs, _ = model.stateless_call(trainable, others, *args)
    tensors = [part for part in keras.tree.flatten(outputs) if hasattr(part, "shape")]
    return [keras.ops.convert_to_numpy(part).astype(np.float64) for part in tensors]


def _listing(layers: Iterable[KerasLayer]) -> str:
    return list_layers((layer.name, [keras_units(layer) or 0]) for layer in layers)
