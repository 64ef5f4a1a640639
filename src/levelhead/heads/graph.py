"""The walk from an output of a model back to the linear layers that are its head, in ONNX and Keras graphs.

A graph says by one function what each of its values comes from.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from ..core.choices import LabelTask
from ..core.errors import Advice, LevelheadError

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


Key = TypeVar("Key", bound=Hashable)  # how a graph tells its layers apart
Layer = TypeVar("Layer")  # what a layer is in its graph


@dataclass(frozen=True)
class Linear(Generic[Key, Layer]):
    """A linear layer that an output comes from."""

    key: Key
    layer: Layer
    follows: tuple[str, ...] = ()  # what the graph does to its outputs, the last of it at the end
    plain: bool = True  # whether the output is ``W x + b``, and not scaled, bent or added to something on the way


@dataclass(frozen=True)
class Passes:
    """A node whose output is that of the head, up to what may follow one."""

    sources: Sequence[Hashable]  # the values that it comes from
    follows: str = ""  # what it does to them, if that has a name
    plain: bool = True  # whether what is added before it is added after it as well


def layers_behind(
    value: Hashable,
    look: Callable[[Any], Linear[Key, Layer] | Passes],
    known: dict[Hashable, dict[Key, Linear[Key, Layer]] | LevelheadError],
    *,
    _depth: int = 0,
) -> dict[Key, Linear[Key, Layer]]:
    """Return the linear layers whose outputs become a value; `look`, which may raise, says what a value comes from.

    `known` is filled. Outputs of one model share it: a value come to on several ways is looked at once.
    """
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
            for source in dict.fromkeys(step.sources):
                for key, layer in layers_behind(source, look, known, _depth=_depth + 1).items():
                    # Of two ways to a layer, the first says what is done to its outputs in the end.
                    first = found.get(key)
                    others = () if first is None else tuple(one for one in layer.follows if one not in first.follows)
                    found[key] = layer if first is None else replace(first, follows=(*others, *first.follows))
            if len(found) > MOST_LAYERS:
                raise LevelheadError(f"comes from more than {MOST_LAYERS} layers at once")
            then = (step.follows,) if step.follows else ()
            for key, one in found.items():
                before = tuple(op for op in one.follows if op not in then)  # each once: a chain may be long
                found[key] = replace(one, follows=(*before, *then), plain=one.plain and step.plain)
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

    @property
    def task(self) -> LabelTask | None:
        """Whether samples have one of the classes or several labels, where a softmax or a sigmoid tells."""
        if "sigmoid" in self.follows and self.units > 1:
            return "multilabel"
        return "multiclass" if self.follows & {"softmax", "log_softmax"} else None


@dataclass(frozen=True)
class KerasNode(Generic[Key, Layer]):
    """What a value of a Keras graph comes from."""

    key: Key  # of its layer, for the walk
    layer: Layer
    name: str  # for messages
    type_name: str
    kind: str  # which class of Keras's own it is; "" if of none
    activation: str  # linear if it has none
    units: int | None = None  # of a Dense layer or 1x1 convolution, how many
    inner: Hashable = None  # the value inside, if it is a model inside the model
    sources: Callable[[], Sequence[Hashable]] = tuple  # returns the values that it takes


def find_keras_heads(
    outputs: Iterable[Hashable], node_of: Callable[[Any], KerasNode[Key, Layer]], classes: int | None, advice: Advice
) -> tuple[list[GraphHead[Key, Layer]], list[GraphHead[Key, Layer]]]:
    """Return the heads of a model's outputs that may be meant, and all; raise if an output without one may be."""
    by_layers: dict[frozenset[Key], GraphHead[Key, Layer]] = {}
    reasons: list[LevelheadError] = []
    known: dict[Hashable, Any] = {}

    def look(value: Hashable) -> Linear[Key, KerasNode[Key, Layer]] | Passes:
        node = node_of(value)
        if node.units is not None:
            return Linear(node.key, node, (node.activation,))
        if node.inner is not None:
            return Passes([node.inner])
        sources = node.sources() if node.kind in (*KERAS_HARMLESS, *KERAS_SUMS) else ()
        if not sources or (len(sources) > 1 and node.kind not in KERAS_SUMS):
            reason = f"the output comes from {node.name} ({node.type_name}), not from a Dense layer or 1x1 convolution"
            raise LevelheadError(reason, advice=advice)
        activation = "softmax" if node.kind == "Softmax" else node.activation
        if activation not in KERAS_ACTIVATIONS:
            reason = f"the activation {activation} of {node.name} follows the head"
            raise LevelheadError(f"{reason}, and a scaled head would be wrong there")
        return Passes(sources, activation)

    for output in outputs:
        try:
            found = layers_behind(output, look, known)
        except LevelheadError as error:
            reasons.append(error)
            continue
        if frozenset(found) not in by_layers:
            layers, [first, *_] = {key: one.layer.layer for key, one in found.items()}, found.values()
            follows = frozenset(name for one in found.values() for name in one.follows)
            by_layers[frozenset(found)] = GraphHead(layers, first.layer.units or 0, follows)
    heads = list(by_layers.values())
    fitting = [head for head in heads if classes in (None, head.units)]
    if reasons and (not fitting or (len(fitting) == 1 and classes is None)):
        raise reasons[0]
    return fitting, heads
