"""The walk from an output of a model back to the linear layers that are its head.

ONNX (files/onnx_walk.py) and Keras (keras_graph.py) look at their own nodes and say what a value
comes from: a `Linear` layer ends the walk, a node that may follow a head `Passes` it on, and
anything else is an error. `layers_behind` walks from there, and keeps what the graph does to the
outputs of each layer: by a softmax or sigmoid, whether something bends them, where the axis of the
classes goes.

    x -> Dense(64) -> Relu -> Dense(10) -> Reshape -> Softmax -> output
                              ^ Linear     ^ Passes   ^ Passes   the walk goes from right to left

A graph may come from a file that somebody made to be walked forever: depth and number of layers
have limits, a value is looked at once, and one that comes from itself is an error.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar

from ..support.errors import Advice, LevelheadError
from ..support.types import LabelTask

DEEPEST_WALK = 400  # steps between an output and its head, with those in models inside models
MOST_LAYERS = 64  # that one output is the sum of
# What bends the outputs of a head; the logarithm of a softmax only moves them all by as much.
BENDING = ("softmax", "sigmoid")

# How a graph names its values, hashable: by a text, or by the layer and its call.
GraphValue: TypeAlias = Any
Key = TypeVar("Key", bound=Hashable)  # how a graph tells its layers apart
Layer = TypeVar("Layer")  # what a layer is in its graph


@dataclass(frozen=True)
class Axes:
    """The axes of a value that comes from a head.

    By these it is known whether a softmax is over the classes, and whether a reshape parts them.
    What is not known is None, and never guessed.

    Args:
        classes: which has one entry per class, counted back from the last, -1; None if that axis
            has other entries as well.
        size: how many classes there are.
        shape: the sizes of all axes, None for those that are not known; None if nothing is.
    """

    classes: int | None
    size: int
    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True)
class Linear(Generic[Key, Layer]):
    """A linear layer that an output comes from.

    Args:
        key, layer: how the graph tells it from others, and what it is there.
        follows: what the graph does to its outputs, each once, the last of it at the end.
        plain: whether the output is ``W x + b``, and not scaled, bent or added to something on the
            way.
        axes: of the output, where they are known.
    """

    key: Key
    layer: Layer
    follows: tuple[str, ...] = ()
    plain: bool = True
    axes: Axes | None = None

    @property
    def is_bent(self) -> bool:
        """Whether a softmax or sigmoid made probabilities of its outputs."""
        return any(name.lower() in BENDING for name in self.follows)


@dataclass(frozen=True)
class Passes:
    """A node whose output is that of the head, up to what may follow one.

    Args:
        sources: the values that it comes from; several are added up.
        follows: what it does to them, if that has a name.
        plain: whether what is added before it is added after it as well.
        mixes: what is wrong if a softmax or sigmoid lies before it. A mean of probabilities does
            not take what is added to scores; one of scores does, and is no error.
        moves: says where it puts the axis of the classes, None if that is not known; raises if it
            mixes them.
    """

    sources: Sequence[GraphValue]
    follows: str = ""
    plain: bool = True
    mixes: LevelheadError | None = None
    moves: Callable[[Axes], Axes | None] | None = None


def layers_behind(
    value: GraphValue,
    look: Callable[[GraphValue], Linear[Key, Layer] | Passes],
    walked: dict[GraphValue, dict[Key, Linear[Key, Layer]] | LevelheadError],
    *,
    _depth: int = 0,
) -> dict[Key, Linear[Key, Layer]]:
    """Return the linear layers whose outputs become a value.

    Args:
        value: an output of the model, or what becomes one.
        look: says what a value comes from, or raises LevelheadError if no head can be there.
        walked: what was found behind values so far, or why nothing was. It is added to: outputs of
            one model share it, so that a value come to on several ways is looked at once.

    Returns:
        The layers by key, with what is done to their outputs from there to the value.

    Raises:
        LevelheadError: something on the way is neither a linear layer nor may follow one.
    """
    # Also a reason is known: a second way to a value fails as the first did.
    if value in walked:
        before = walked[value]
        if isinstance(before, LevelheadError):
            raise before
        return before
    # Below Python's own limit, whose error would come from anywhere.
    if _depth > DEEPEST_WALK:
        raise LevelheadError("comes from too long a chain of nodes")
    walked[value] = LevelheadError("comes from itself")  # until all that it comes from is known
    try:
        step = look(value)
        if isinstance(step, Linear):
            layers = {step.key: step}
        else:
            layers = _layers_before(step, look, walked, _depth + 1)
            for key, layer in layers.items():
                layers[key] = _passed(layer, step)
    except LevelheadError as error:
        walked[value] = error
        raise
    walked[value] = layers
    return layers


def _layers_before(
    step: Passes,
    look: Callable[[GraphValue], Linear[Key, Layer] | Passes],
    walked: dict[GraphValue, dict[Key, Linear[Key, Layer]] | LevelheadError],
    depth: int,
) -> dict[Key, Linear[Key, Layer]]:
    """Return the layers behind all values that a node takes.

    A layer that several of them come from is there once, with what is done on both ways.

    Raises:
        LevelheadError: the values have their classes along different axes, so that their sum mixes
            them; or there are too many layers.
    """
    layers: dict[Key, Linear[Key, Layer]] = {}
    class_axes = set[int | None]()
    # Each once: x + x has one source.
    for source in dict.fromkeys(step.sources):
        for key, layer in layers_behind(source, look, walked, _depth=depth).items():
            if layer.axes is not None:
                class_axes.add(layer.axes.classes)
            first = layers.get(key)
            if first is not None:
                # Of two ways to a layer, the first says what is done to its outputs in the end.
                others = [name for name in layer.follows if name not in first.follows]
                follows = (*others, *first.follows)
                layer = replace(first, follows=follows, plain=first.plain and layer.plain)
            layers[key] = layer
    if len(class_axes) > 1:
        raise LevelheadError("is a sum of values with their classes along different axes")
    if len(layers) > MOST_LAYERS:
        raise LevelheadError(f"comes from more than {MOST_LAYERS} layers at once")
    return layers


def _passed(layer: Linear[Key, Layer], step: Passes) -> Linear[Key, Layer]:
    """Return a layer with what a node does to its outputs.

    The name of what it does goes to the end, so that the last one is what the model returns.

    Raises:
        LevelheadError: it mixes probabilities as if they were scores.
    """
    if step.mixes is not None and layer.is_bent:
        raise step.mixes
    follows = layer.follows
    if step.follows:
        # Each once: a chain may be long.
        follows = (*(name for name in follows if name != step.follows), step.follows)
    axes = layer.axes
    if step.moves is not None and axes is not None:
        axes = step.moves(axes)
    return replace(layer, follows=follows, plain=layer.plain and step.plain, axes=axes)


@dataclass(frozen=True)
class GraphHead(Generic[Key, Layer]):
    """The linear layers that an output comes from.

    Args:
        layers: by key; more than one if they feed one output.
        units: how many outputs each has: K.
        follows: what the graph does to their outputs.
        plain: whether what is added to the outputs of a layer is added to the model's.
    """

    layers: dict[Key, Layer]
    units: int
    follows: frozenset[str] = field(default_factory=frozenset)
    plain: bool = True

    @property
    def task(self) -> LabelTask | None:
        """Whether samples have one class or several labels, if a softmax or sigmoid tells."""
        if "sigmoid" in self.follows and self.units > 1:
            return "multilabel"
        if self.follows & {"softmax", "log_softmax"}:
            return "multiclass"
        return None


def reshaped(
    axes: Axes, target: Sequence[int | None], title: str, advice: Advice | None = None
) -> Axes | None:
    """Return the axes behind a reshape; None if it is not known where the classes go.

    Both layouts are followed: channels last, [N, H, W, K], where the classes stay behind all that
    is joined or parted before them, and channels first, [N, K, H, W], where they stay second.

    Args:
        axes: before it.
        target: the new shape without the axis of samples; sizes that are not known are None or -1.
        title: of the node, for a message.
        advice: what helps.

    Raises:
        LevelheadError: it parts the outputs of the head into places with fewer classes each, as
            detectors do: 60 outputs are 3 boxes of 20 classes.

    >>> reshaped(Axes(-1, 10, (None, 10)), [10, 1], "Reshape")
    Axes(classes=-2, size=10, shape=(None, 10, 1))
    """
    shape: tuple[int | None, ...] = (None, *(n if n and n > 0 else None for n in target))

    # Channels first: [N, K, H, W] may become [N, K, H * W], if K is known to stay.
    if axes.classes != -1:
        is_second = axes.shape is not None and axes.classes == 1 - len(axes.shape)
        if not is_second or len(shape) < 2 or shape[1] is None:
            return None
        classes = None
        if shape[1] == axes.size:
            classes = 1 - len(shape)
        return replace(axes, classes=classes, shape=shape)

    # Channels last: the classes stay in the last axis, but for axes of one entry behind it.
    ones = next((i for i, n in enumerate(shape[::-1]) if n != 1), 0)
    last = shape[-1 - ones]
    if last is None:
        return None
    if 1 < last < axes.size and axes.size % last == 0:
        places = f"{axes.size // last} places with {last} classes each"
        counts = "counts are of the classes of one place"
        raise LevelheadError(
            f"{title} turns the {axes.size} outputs of the head into {places}; {counts}",
            advice=advice,
        )
    classes = None
    if last == axes.size:
        classes = -1 - ones
    return replace(axes, classes=classes, shape=shape)
