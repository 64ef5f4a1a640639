"""The heads of a Keras model by its graph, whether the graph is in memory or in a config.json.

Either says what a value comes from as a `KerasNode`; `find_keras_heads` walks from the outputs back
(graph.py) over the layers that may follow a head.

keras_find.py makes nodes of a model in memory, and files/keras_config.py those of the config that a
saved model has. `_look` turns a node into a step of the walk; `_moved` and its helpers follow the
axis of the classes through reshapes, permutations and poolings, since a softmax over any other
axis, or a pooling of the classes, means that this is no head.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeAlias

from ..support.errors import Advice, LevelheadError
from .graph import (
    Axes,
    GraphHead,
    GraphValue,
    Key,
    Layer,
    Linear,
    Passes,
    layers_behind,
    reshaped,
)

# Layers of Keras: which are linear, and what may follow a head and keeps the scaling of its columns.
KERAS_LINEAR = ("Dense", "Conv1D", "Conv2D", "Conv3D")
KERAS_HARMLESS = (
    "Activation", "Softmax", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "Flatten", "Reshape", "Permute",
    "UpSampling1D", "UpSampling2D", "AveragePooling1D", "AveragePooling2D", "GlobalAveragePooling1D",
    "GlobalAveragePooling2D", "GlobalAveragePooling3D", "Identity",
)  # fmt: skip
KERAS_SUMS = ("Add", "Average")
KERAS_ACTIVATIONS = ("linear", "softmax", "log_softmax", "sigmoid")
# Of the harmless, those that keep every axis.
KERAS_POINTWISE = ("Activation", "Softmax", "Dropout", "Identity")
# How the names of those begin that do the same to each channel, by itself.
KERAS_CHANNELS = ("AveragePooling", "GlobalAveragePooling", "UpSampling")

LayerSettings: TypeAlias = Mapping[str, Any]  # as JSON or an attribute of a layer has them


@dataclass(frozen=True)
class KerasNode(Generic[Key, Layer]):
    """What a value of a Keras graph comes from."""

    key: Key  # of its layer, for the walk
    layer: Layer
    name: str  # for messages
    type_name: str
    kind: str  # which class of Keras's own it is; "" if of none
    activation: str  # linear if it has none
    settings: LayerSettings  # of its layer, as its config has them
    shape: tuple[int | None, ...] | None = None  # of the value that it takes, where that is known
    units: int | None = None  # of a Dense layer or 1x1 convolution, how many
    calls: int = 1  # how often the model applies its layer
    fault: str = ""  # why a linear layer cannot be changed, if it cannot
    inner: Hashable = None  # the value inside, if it is a model inside the model
    sources: Callable[[], Sequence[Hashable]] = tuple  # returns the values that it takes

    @property
    def channels(self) -> int:
        """Which axis has the channels of a layer such as Conv2D, counted back from the last, -1.

        Conv2D and its like end in a digit, the number of axes of pixels.
        """
        if self.settings.get("data_format") == "channels_first":
            return -1 - int(self.kind[-2])
        return -1


def find_keras_heads(
    outputs: Iterable[GraphValue],
    node_of: Callable[[GraphValue], KerasNode[Key, Layer]],
    classes: int | None,
    advice: Advice,
) -> tuple[list[GraphHead[Key, Layer]], list[GraphHead[Key, Layer]]]:
    """Return the heads of a model's outputs that may be meant, and all of them.

    Args:
        outputs: the values that the model gives.
        node_of: says what a value comes from.
        classes: K, where it is known: then only heads with so many outputs may be meant.
        advice: how to name the head.

    Returns:
        The heads with K outputs, and all heads. One that fits is the head; several, or none, are
        for the caller to refuse, with all of them in the message.

    Raises:
        LevelheadError: an output may be meant that comes from no head.
    """
    look = partial(_look, node_of, advice)
    walked: dict[GraphValue, dict[Key, Linear[Key, KerasNode[Key, Layer]]] | LevelheadError] = {}
    by_layers: dict[frozenset[Key], GraphHead[Key, Layer]] = {}
    reasons: dict[GraphValue, LevelheadError] = {}
    for output in outputs:
        try:
            layers = layers_behind(output, look, walked)
            _check_side_by_side(layers, node_of)
        except LevelheadError as error:
            reasons[output] = error
            continue
        # Several outputs may come from one head, such as logits and probabilities.
        if frozenset(layers) not in by_layers:
            by_layers[frozenset(layers)] = _head_of(layers)
    heads = list(by_layers.values())
    fitting = [head for head in heads if classes in (None, head.units)]
    # Where several fit, the caller lists them.
    if len(fitting) < 2:
        for output, reason in reasons.items():
            if (
                not fitting
                or classes is None
                or _may_be_meant(output, fitting[0], node_of, classes)
            ):
                raise reason
    return fitting, heads


def _may_be_meant(
    output: GraphValue,
    head: GraphHead[Key, Layer],
    node_of: Callable[[GraphValue], KerasNode[Key, Layer]],
    classes: int,
) -> bool:
    """Return whether an output without a head may be the one with the classes, and not that found.

    Args:
        output: of the model.
        head: the only one that fits.
        node_of: says what a value comes from.
        classes: K; an output that is made of something of another size is not meant.
    """
    node = node_of(output)
    if node.type_name == "InputLayer" or (node.shape is not None and classes not in node.shape):
        return False
    # What is computed from the head, such as its logits divided by a temperature, is no rival.
    return _keys_before([output], node_of).isdisjoint(head.layers)


def _check_side_by_side(
    layers: Mapping[Key, Linear[Key, KerasNode[Key, Layer]]],
    node_of: Callable[[GraphValue], KerasNode[Key, Layer]],
) -> None:
    """Raise if one of several layers that feed an output takes what another gives.

    Its outputs would follow the change of both.
    """
    if len(layers) < 2:
        return
    taken = [value for linear in layers.values() for value in linear.layer.sources()]
    before = _keys_before(taken, node_of)
    for key, linear in layers.items():
        if key in before:
            name = linear.layer.name
            reason = f"the output comes from {name} and from a layer that takes what it gives"
            raise LevelheadError(f"{reason}; a change of it would arrive twice")


def _keys_before(
    values: Iterable[GraphValue], node_of: Callable[[GraphValue], KerasNode[Key, Layer]]
) -> set[Key]:
    """Return the layers that some values come from, however far back."""
    waiting = [*values]
    seen = {*waiting}
    keys = set[Key]()
    while waiting:
        node = node_of(waiting.pop())
        keys.add(node.key)
        before: set[GraphValue] = set()
        if node.type_name != "InputLayer":
            before.update(node.sources())
        if node.inner is not None:
            before.add(node.inner)
        waiting += before - seen
        seen |= before
    return keys


def _head_of(layers: Mapping[Key, Linear[Key, KerasNode[Key, Layer]]]) -> GraphHead[Key, Layer]:
    """Return the layers behind one output as a head."""
    first = next(iter(layers.values()))
    follows = set[str]()
    for linear in layers.values():
        follows.update(linear.follows)
    return GraphHead(
        layers={key: linear.layer.layer for key, linear in layers.items()},
        units=first.layer.units or 0,
        follows=frozenset(follows),
        plain=all(linear.plain for linear in layers.values()),
    )


def _look(
    node_of: Callable[[GraphValue], KerasNode[Key, Layer]], advice: Advice, value: GraphValue
) -> Linear[Key, KerasNode[Key, Layer]] | Passes:
    """Return what a value comes from, for the walk; raise if no head can be there.

    Args:
        node_of: says what a value comes from.
        advice: how to name the head, for messages.
        value: as the graph names it.
    """
    node = node_of(value)
    if node.units is not None:
        return _linear(node, node.units, advice)
    if node.inner is not None:
        return Passes([node.inner])

    sources: Sequence[Hashable] = ()
    if node.kind in (*KERAS_HARMLESS, *KERAS_SUMS):
        sources = node.sources()
    if not sources or (len(sources) > 1 and node.kind not in KERAS_SUMS):
        came_from = f"the output comes from {node.name} ({node.type_name})"
        raise LevelheadError(
            f"{came_from}, not from a Dense layer or 1x1 convolution", advice=advice
        )
    activation = node.activation
    if node.kind == "Softmax":
        activation = "softmax"
    if activation not in KERAS_ACTIVATIONS:
        reason = f"the activation {activation} of {node.name} follows the head"
        raise LevelheadError(f"{reason}, and a scaled head would be wrong there")
    mixes = None
    if _mixes(node, activation):
        what = f"{node.name} ({node.type_name}) follows the probabilities of the head"
        reason = f"{what}, and does not pass on what is added to its scores"
        mixes = LevelheadError(reason, advice=advice)
    moves = partial(_moved, node, activation, advice)
    return Passes(sources, activation, plain=node.kind != "Add", mixes=mixes, moves=moves)


def _mixes(node: KerasNode[Key, Layer], activation: str) -> bool:
    """Return whether a layer takes a mean of several values, or bends them.

    Args:
        node: of the layer.
        activation: that it applies, or "linear".
    """
    if activation != "linear" or node.kind in KERAS_SUMS or "AveragePooling" in node.kind:
        return True
    # Copies of pixels are no means.
    copies = node.settings.get("interpolation", "nearest") == "nearest"
    return node.kind.startswith("UpSampling") and not copies


def _linear(
    node: KerasNode[Key, Layer], units: int, advice: Advice
) -> Linear[Key, KerasNode[Key, Layer]]:
    """Return a Dense layer or 1x1 convolution as the end of the walk.

    It has the axes of its outputs, as far as they are known.

    Raises:
        LevelheadError: it is no matrix and bias, the model applies it more than once, or its own
            softmax is over another axis.
    """
    if node.fault:
        raise LevelheadError(f"cannot change {node.name}: {node.fault}")
    if node.calls > 1:
        applied = f"{node.name} is applied {node.calls} times in the model"
        raise LevelheadError(f"{applied}, and all of them would change", advice=advice)
    shape = None
    if node.shape is not None:
        sizes: list[int | None] = list(node.shape)
        if node.kind != "Dense":
            # Of a convolution, axes of one pixel stay so; strides change others.
            sizes = [n if n == 1 else None for n in sizes]
        sizes[node.channels] = units
        shape = tuple(sizes)
    axes = Axes(node.channels, units, shape)
    _check_softmax(node, node.activation, axes)
    return Linear(node.key, node, (node.activation,), axes=axes)


def _moved(node: KerasNode[Key, Layer], activation: str, advice: Advice, axes: Axes) -> Axes | None:
    """Return where a layer that may follow a head puts the axis of the classes.

    None if that is not known.

    Args:
        node: of the layer.
        activation: that it applies, or "linear".
        advice: how to name the head, for messages.
        axes: of what it takes.

    Raises:
        LevelheadError: it mixes the classes, or parts them.
    """
    axes = replace(axes, shape=node.shape or axes.shape)
    _check_softmax(node, activation, axes)
    if node.kind == "Reshape":
        target = [int(n) for n in node.settings["target_shape"]]
        return reshaped(axes, target, node.name, advice)
    # Once the axis has other entries as well, no layer parts them again.
    if axes.classes is None:
        return axes
    if node.kind == "Permute":
        return _permuted(node, axes, axes.classes)
    if node.kind == "Flatten":
        return _flattened(axes, axes.classes)
    if node.kind.startswith(KERAS_CHANNELS):
        if axes.classes != node.channels:
            follows = f"{node.name} ({node.type_name}) follows the head"
            raise LevelheadError(f"{follows}, and may mix the classes")
        # A global pooling takes the axes of pixels away.
        if node.kind.startswith("Global") and not node.settings.get("keepdims"):
            return replace(axes, classes=-1, shape=None)
        return replace(axes, shape=None)
    return axes


def _permuted(node: KerasNode[Key, Layer], axes: Axes, classes: int) -> Axes:
    """Return the axes in another order; Keras counts them from 1, without that of samples."""
    order = [0, *map(int, node.settings["dims"])]
    shape = None
    if axes.shape and len(axes.shape) == len(order):
        shape = tuple(axes.shape[i] for i in order)
    place = order.index(classes % len(order))
    return replace(axes, classes=place - len(order), shape=shape)


def _flattened(axes: Axes, classes: int) -> Axes | None:
    """Return all axes but that of samples as one.

    It is that of the classes alone, if the others have one entry each.
    """
    shape = axes.shape
    if shape is None or len(shape) < -classes:
        return None
    others = [n for i, n in enumerate(shape[1:], 1) if i != classes % len(shape)]
    if any(n is not None and n > 1 for n in others):
        return replace(axes, classes=None, shape=None)
    if None in others:
        return None
    return replace(axes, classes=-1, shape=(shape[0], axes.size))


def _check_softmax(node: KerasNode[Key, Layer], activation: str, axes: Axes) -> None:
    """Raise if a softmax is known to be over another axis than that of the classes.

    Keras counts axes from the first or back from the last. Where it is not known how many there
    are, the two cannot be compared, and such a softmax is let pass.
    """
    if activation not in ("softmax", "log_softmax"):
        return
    axis = -1
    if node.kind == "Softmax":
        axis = node.settings.get("axis", -1)
    # Keras takes one axis, or several.
    numbers = [axis]
    if isinstance(axis, list | tuple):
        numbers = [*axis]
    over = [_from_last(int(number), axes.shape) for number in numbers]
    if over == [axes.classes]:
        return
    # An axis counted from the first may be that of the classes, as it is not known how many there
    # are.
    if axes.classes is not None and len(over) == 1 and over[0] >= 0:
        return
    reason = f"the {activation} of {node.name} follows the head"
    raise LevelheadError(f"{reason}, over another axis than that of the classes")


def _from_last(axis: int, shape: tuple[int | None, ...] | None) -> int:
    """Return an axis counted back from the last, -1, if it is known how many there are."""
    if shape is None or axis < 0:
        return axis
    return axis - len(shape)
