"""The walk from an output of a model back to the linear layers that are its head, in ONNX and Keras graphs."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from ..support.errors import Advice, LevelheadError
from ..support.types import LabelTask

DEEPEST_WALK = 400  # steps between an output and its head, with those in models inside models
MOST_LAYERS = 64  # that one output is the sum of

# Layers of Keras: which are linear, and what may follow a head without undoing the scaling of its columns.
KERAS_LINEAR = ("Dense", "Conv1D", "Conv2D", "Conv3D")
KERAS_HARMLESS = (
    "Activation", "Softmax", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "Flatten", "Reshape", "Permute",
    "UpSampling1D", "UpSampling2D", "AveragePooling1D", "AveragePooling2D", "GlobalAveragePooling1D",
    "GlobalAveragePooling2D", "GlobalAveragePooling3D", "Identity",
)  # fmt: skip
KERAS_SUMS = ("Add", "Average")
KERAS_ACTIVATIONS = ("linear", "softmax", "log_softmax", "sigmoid")
# Of the harmless, those that keep every axis.
KERAS_POINTWISE = (
    "Activation",
    "Softmax",
    "Dropout",
    "Identity",
)
# Of these, each channel by itself.
KERAS_CHANNELS = (
    "AveragePooling",
    "GlobalAveragePooling",
    "UpSampling",
)

Key = TypeVar("Key", bound=Hashable)  # how a graph tells its layers apart
Layer = TypeVar("Layer")  # what a layer is in its graph


@dataclass(frozen=True)
class Axes:
    """The axes of a value that comes from a head."""

    # Which has one entry per class, counted back from the last, -1; None if it has others as well.
    classes: int | None
    size: int  # how many classes there are
    shape: tuple[int | None, ...] | None = (
        None  # the sizes of all axes, None for those that are not known
    )


@dataclass(frozen=True)
class Linear(Generic[Key, Layer]):
    """A linear layer that an output comes from."""

    key: Key
    layer: Layer
    follows: tuple[str, ...] = ()  # what the graph does to its outputs, the last of it at the end
    plain: bool = True  # whether the output is ``W x + b``, and not scaled, bent or added to something on the way
    axes: Axes | None = None  # of the output, where they are known


@dataclass(frozen=True)
class Passes:
    """A node whose output is that of the head, up to what may follow one."""

    sources: Sequence[Hashable]  # the values that it comes from
    follows: str = ""  # what it does to them, if that has a name
    plain: bool = True  # whether what is added before it is added after it as well
    moves: Callable[[Axes], Axes | None] | None = (
        None  # where it puts the axis of the classes; raises if it mixes them
    )


def layers_behind(
    value: Hashable,
    look: Callable[[Any], Linear[Key, Layer] | Passes],
    known: dict[Hashable, dict[Key, Linear[Key, Layer]] | LevelheadError],
    *,
    _depth: int = 0,
) -> dict[Key, Linear[Key, Layer]]:
    """Return the linear layers whose outputs become a value; `look`, which may raise, says what a value comes from."""
    # Outputs of one model share it: a value come to on several ways is looked at once.
    if value in known:
        if isinstance(before := known[value], LevelheadError):
            raise before
        return before
    if _depth > DEEPEST_WALK:
        raise LevelheadError("comes from too long a chain of nodes")
    known[value] = LevelheadError("comes from itself")  # until all that it comes from is known
    found = dict[Key, Linear[Key, Layer]]()
    try:
        step = look(value)
        if isinstance(step, Linear):
            found[step.key] = step
        else:
            along = set[int | None]()
            for source in dict.fromkeys(step.sources):
                for key, layer in layers_behind(source, look, known, _depth=_depth + 1).items():
                    along |= {layer.axes.classes} if layer.axes else set()
                    # Of two ways to a layer, the first says what is done to its outputs in the end.
                    first = found.get(key)
                    others = ()
                    if first is not None:
                        others = tuple(one for one in layer.follows if one not in first.follows)
                    plain = layer.plain and (first is None or first.plain)
                    found[key] = replace(
                        first or layer, follows=(*others, *(first or layer).follows), plain=plain
                    )
            if len(along) > 1:
                raise LevelheadError("is a sum of values with their classes along different axes")
            if len(found) > MOST_LAYERS:
                raise LevelheadError(f"comes from more than {MOST_LAYERS} layers at once")
            then = (step.follows,) if step.follows else ()
            for key, one in found.items():
                # Each once: a chain may be long.
                before = tuple(op for op in one.follows if op not in then)
                if step.moves and one.axes:
                    axes = step.moves(one.axes)
                else:
                    axes = one.axes
                found[key] = replace(
                    one, follows=(*before, *then), plain=one.plain and step.plain, axes=axes
                )
    except LevelheadError as error:
        known[value] = error
        raise
    known[value] = found
    return found


@dataclass(frozen=True)
class GraphHead(Generic[Key, Layer]):
    """The linear layers that an output comes from."""

    layers: dict[Key, Layer]
    units: int
    follows: frozenset[str] = field(default_factory=frozenset)
    plain: bool = True  # whether what is added to the outputs of a layer is added to the model's

    @property
    def task(self) -> LabelTask | None:
        """Whether samples have one of the classes or several labels, where a softmax or a sigmoid tells."""
        if "sigmoid" in self.follows and self.units > 1:
            return "multilabel"
        if self.follows & {"softmax", "log_softmax"}:
            return "multiclass"
        return None


@dataclass(frozen=True)
class KerasNode(Generic[Key, Layer]):
    """What a value of a Keras graph comes from."""

    key: Key  # of its layer, for the walk
    layer: Layer
    name: str  # for messages
    type_name: str
    kind: str  # which class of Keras's own it is; "" if of none
    activation: str  # linear if it has none
    settings: Mapping[str, Any]  # of its layer, as its config has them
    shape: tuple[int | None, ...] | None = None  # of the value that it takes, where that is known
    units: int | None = None  # of a Dense layer or 1x1 convolution, how many
    calls: int = 1  # how often the model applies its layer
    inner: Hashable = None  # the value inside, if it is a model inside the model
    sources: Callable[[], Sequence[Hashable]] = tuple  # returns the values that it takes


def find_keras_heads(
    outputs: Iterable[Hashable],
    node_of: Callable[[Any], KerasNode[Key, Layer]],
    classes: int | None,
    advice: Advice,
) -> tuple[list[GraphHead[Key, Layer]], list[GraphHead[Key, Layer]]]:
    """Return the heads of a model's outputs that may be meant, and all; raise if an output without one may be."""
    by_layers: dict[frozenset[Key], GraphHead[Key, Layer]] = {}
    reasons: list[LevelheadError] = []
    known: dict[Hashable, Any] = {}

    def look(value: Hashable) -> Linear[Key, KerasNode[Key, Layer]] | Passes:
        node = node_of(value)
        if node.units is not None:
            if node.calls > 1:
                reason = f"{node.name} is applied {node.calls} times in the model, and all of them would change"
                raise LevelheadError(reason, advice=advice)
            at = _keras_channels(node)
            shape = None
            # Of a convolution of single pixels, those axes that have one stay so.
            if node.shape is not None:
                sizes = [n if node.kind == "Dense" or n == 1 else None for n in node.shape]
                sizes[at] = node.units
                shape = tuple(sizes)
            axes = _keras_competes(node, node.activation, Axes(at, node.units, shape))
            return Linear(node.key, node, (node.activation,), axes=axes)
        if node.inner is not None:
            return Passes([node.inner])
        sources = ()
        if node.kind in (*KERAS_HARMLESS, *KERAS_SUMS):
            sources = node.sources()
        if not sources or (len(sources) > 1 and node.kind not in KERAS_SUMS):
            reason = f"the output comes from {node.name} ({node.type_name}), not from a Dense layer or 1x1 convolution"
            raise LevelheadError(reason, advice=advice)
        activation = "softmax"
        if node.kind != "Softmax":
            activation = node.activation
        if activation not in KERAS_ACTIVATIONS:
            reason = f"the activation {activation} of {node.name} follows the head"
            raise LevelheadError(f"{reason}, and a scaled head would be wrong there")
        moves = partial(_keras_moves, node, activation, advice)
        return Passes(sources, activation, plain=node.kind != "Add", moves=moves)

    for output in outputs:
        try:
            found = layers_behind(output, look, known)
        except LevelheadError as error:
            reasons.append(error)
            continue
        if frozenset(found) not in by_layers:
            layers, [first, *_] = (
                {key: one.layer.layer for key, one in found.items()},
                found.values(),
            )
            follows = frozenset(name for one in found.values() for name in one.follows)
            plain = all(one.plain for one in found.values())
            by_layers[frozenset(found)] = GraphHead(layers, first.layer.units or 0, follows, plain)
    heads = list(by_layers.values())
    fitting = [head for head in heads if classes in (None, head.units)]
    if reasons and (not fitting or (len(fitting) == 1 and classes is None)):
        raise reasons[0]
    return fitting, heads


def reshaped(
    axes: Axes, target: Sequence[int | None], title: str, advice: Advice | None = None
) -> Axes | None:
    """Return the axes behind a reshape to a shape without that of samples; sizes that are not known are None or -1."""
    shape = (None, *(n if n and n > 0 else None for n in target))
    if axes.classes != -1:  # [K, H, W] may become [K, H * W]
        first = axes.shape is not None and axes.classes == 1 - len(axes.shape)
        if not first or shape[1:2] in ((), (None,)):
            return None
        return replace(axes, classes=1 - len(shape) if shape[1] == axes.size else None, shape=shape)
    ones = next((i for i, n in enumerate(shape[::-1]) if n != 1), 0)
    last = shape[-1 - ones]
    if last is None:
        return None
    if 1 < last < axes.size and axes.size % last == 0:
        places = f"{axes.size // last} places with {last} classes each; counts are of the classes of one place"
        raise LevelheadError(
            f"{title} turns the {axes.size} outputs of the head into {places}", advice=advice
        )
    return replace(axes, classes=-1 - ones if last == axes.size else None, shape=shape)


def _keras_moves(
    node: KerasNode[Any, Any], activation: str, advice: Advice, axes: Axes
) -> Axes | None:
    """Return where a layer that may follow a head puts the axis of the classes."""
    axes = _keras_competes(node, activation, replace(axes, shape=node.shape or axes.shape))
    kind = node.kind
    shape = axes.shape
    settings = node.settings
    if kind == "Permute" and axes.classes is not None:
        order = [0, *map(int, settings["dims"])]
        turned = None
        if shape and len(shape) == len(order):
            turned = tuple(shape[i] for i in order)
        return replace(
            axes, classes=order.index(axes.classes % len(order)) - len(order), shape=turned
        )
    if kind == "Reshape":
        return reshaped(axes, [int(n) for n in settings["target_shape"]], node.name, advice)
    if kind == "Flatten":
        if shape is None or axes.classes is None or len(shape) < -axes.classes:
            return None if axes.classes is not None else axes
        others = [n for i, n in enumerate(shape[1:], 1) if i != axes.classes % len(shape)]
        if any(n is not None and n > 1 for n in others):
            return replace(axes, classes=None, shape=None)
        if None not in others:
            return replace(axes, classes=-1, shape=(shape[0], axes.size))
        return None
    if kind.startswith(KERAS_CHANNELS) and axes.classes is not None:
        if axes.classes != _keras_channels(node):
            raise LevelheadError(
                f"{node.name} ({node.type_name}) follows the head, and may mix the classes"
            )
        kept = not kind.startswith("Global") or settings.get("keepdims")
        return replace(axes, classes=axes.classes if kept else -1, shape=None)
    return axes


def _keras_competes(node: KerasNode[Any, Any], activation: str, axes: Axes) -> Axes:
    """Return the same axes; raise if a softmax is known to be over another one than that of the classes."""
    if activation in ("softmax", "log_softmax"):
        given = -1
        if node.kind == "Softmax":
            given = node.settings.get("axis", -1)
        over = [int(one) for one in (given if isinstance(given, list | tuple) else [given])]
        if axes.shape is not None:
            over = [one - len(axes.shape) if one >= 0 else one for one in over]
        if over != [axes.classes] and (axes.classes is None or len(over) != 1 or over[0] < 0):
            reason = f"the {activation} of {node.name} follows the head"
            raise LevelheadError(f"{reason}, over another axis than that of the classes")
    return axes


def _keras_channels(node: KerasNode[Any, Any]) -> int:
    """Return which axis has the channels of a layer such as Conv2D, counted back from the last, -1."""
    if node.settings.get("data_format") == "channels_first":
        return -1 - int(node.kind[-2])
    return -1
