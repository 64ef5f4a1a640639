"""The graph of a Keras model, as its config.json has it: which layer makes what, without Keras.

`head_in_config` gives the outputs of the model and `_ConfiguredGraph.node_of`, which says of a
value what makes it, to `find_keras_heads` (heads/keras_graph.py), which walks back from there to
the head and is the same for models in memory. A value is named by the layer that makes it, which
call of the layer that was, and which of its results: `["dense", 0, 0]`.

    output_layers -> _outputs -> values -> node_of -> `KerasNode` -> sources -> node_of ...

A functional model states for each call of a layer the tensors that it takes (`inbound_nodes`):
since Keras 3 as objects, `{"class_name": "__keras_tensor__", ...}`, in Keras 2 as [layer, call,
result, {}]. A sequential one is a list, in which each layer takes what the one before it gives.
JSON of somebody else's may be anything: what does not fit raises one of `_NOT_AS_WRITTEN`, and is
said once, above.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..heads.graph import GraphHead
from ..heads.keras_graph import (
    KERAS_ACTIVATIONS,
    KERAS_LINEAR,
    KERAS_POINTWISE,
    KerasNode,
    find_keras_heads,
)
from ..support.errors import Advice, LevelheadError
from .keras_layers import (
    MODELS,
    Config,
    LayerPath,
    identity_of,
    is_model,
    is_own,
    layers_in,
    name_of,
    settings_of,
)
from .tensors import several_heads

NAME_HEAD_LAYER = Advice("head", None, "to name the layer")
# What a config that Keras did not write may raise anywhere.
_NOT_AS_WRITTEN = (
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
    RecursionError,
)

Reference = tuple[str, int, int]  # to a value in a model: layer, which call of it, which result
LayerValue = tuple[LayerPath, str, int, int]  # the same, with the names that lead to the model


def head_in_config(config: Config, classes: int | None) -> GraphHead[LayerPath, None] | None:
    """Return the head of a functional or sequential model, proved by its graph.

    Args:
        config: the content of config.json.
        classes: K, where it is known: of several heads, the one that has so many.

    Returns:
        Its layers, by the names that lead to each, and what follows them. None for a model without
        a graph, and where no single head is there.

    Raises:
        LevelheadError: several heads fit, an output comes from something else, or the config is not
            as Keras writes it.
    """
    try:
        if not is_own(config, *MODELS) or "layers" not in config["config"]:
            return None
        graph = _ConfiguredGraph({(): config})
        outputs = [((), *reference) for reference in _outputs(config)]
        fitting, heads = find_keras_heads(outputs, graph.node_of, classes, NAME_HEAD_LAYER)
    except LevelheadError:
        raise
    except _NOT_AS_WRITTEN as error:
        reason = f"its config.json is not as Keras writes it ({error!r}); save the model again"
        raise LevelheadError(reason, advice=NAME_HEAD_LAYER) from None
    if len(fitting) > 1:
        raise several_heads(
            ("/".join(path), [head.units]) for head in heads for path in head.layers
        )
    if fitting:
        return fitting[0]
    # The only head, though of another size: whoever asked reports that.
    if len(heads) == 1:
        return heads[0]
    return None


@dataclass(frozen=True)
class _ConfiguredGraph:
    """The graphs of a model and of those inside it.

    Args:
        models: by the names of the layers that lead to each; those inside are added on the way.
        places: {model: {name of a layer: its index}}, made once for each model.
    """

    models: dict[LayerPath, Config]
    places: dict[LayerPath, dict[str, int]] = field(default_factory=dict)

    @cached_property
    def calls(self) -> Counter[Hashable]:
        """How often the model applies each of its layers, with those of models inside it.

        A layer that is applied twice is no head alone: scaling it would change both of its uses.
        """
        calls = Counter[Hashable]()
        for configured in layers_in(self.models[()]):
            calls[identity_of(configured.layer, configured.path)] += configured.times
        return calls

    def node_of(self, value: LayerValue) -> KerasNode[LayerPath, None]:
        """Return what makes a value, as the walk asks for it.

        Args:
            value: (names that lead to the model, layer, which call of it, which result).
        """
        inside, name, node, index = value
        model = self.models[inside]
        layers = model["config"]["layers"]
        if inside not in self.places:
            self.places[inside] = {name_of(one): i for i, one in enumerate(layers)}
        place = self.places[inside][name]
        layer = layers[place]

        def sources() -> list[LayerValue]:
            """Return the values that the layer takes in this call, if the walk goes on."""
            if model["class_name"] == "Sequential":
                before = layers[max(place - 1, 0)]
                return [(inside, name_of(before), 0, 0)]
            tensors = _tensors(layer["inbound_nodes"][node])
            return [(inside, *reference) for reference, _ in tensors]

        # A TimeDistributed applies its layer to every step: that layer is the one that counts.
        wrapped = layer
        path = (*inside, name)
        if is_own(layer, "TimeDistributed"):
            wrapped = layer["config"]["layer"]
            path = (*inside, name, name_of(wrapped))
        is_wrapped = wrapped is not layer
        settings = settings_of(wrapped)
        title = "/".join(path)

        kind, activation = _kind_and_activation(wrapped)
        # A Dense layer has no kernel size; a convolution must be 1x1. Inside a TimeDistributed,
        # whose steps are an axis of their own, only what works on each entry by itself is known.
        linear = is_own(wrapped, *KERAS_LINEAR) and {*settings.get("kernel_size", (1,))} == {1}
        if is_wrapped and not linear and kind not in KERAS_POINTWISE:
            kind = ""
        calls = 1
        units = None
        fault = ""
        if linear:
            fault = _fault(settings, activation)
            calls = self.calls[identity_of(wrapped, path)]
            units = int(settings.get("units") or settings["filters"])
        shape = None
        if linear or not is_wrapped:
            shape = _shape_taken(layer, node)

        # The outputs of a model inside are those of its last layers.
        inner = None
        if is_model(layer):
            self.models[path] = layer
            inner = (path, *_outputs(layer)[index])
        return KerasNode(
            key=path,
            layer=None,
            name=title,
            type_name=layer["class_name"],
            kind=kind,
            activation=activation,
            settings=settings,
            shape=shape,
            calls=calls,
            fault=fault,
            units=units,
            inner=inner,
            sources=sources,
        )


def _kind_and_activation(layer: Config) -> tuple[str, str]:
    """Return the class and the activation of a layer of Keras's own.

    Of others, which may do anything, no class: the walk ends there.
    """
    if is_own(layer, layer["class_name"]):
        return layer["class_name"], _activation(settings_of(layer))
    return "", "linear"


def _activation(settings: Config) -> str:
    """Return the name of a layer's activation: a text, or an object that says it.

    Keras 3 writes functions of somebody's own as objects, {"class_name": "function", "config":
    name}; an object may be inside another.
    """
    activation = settings.get("activation") or "linear"
    while isinstance(activation, Mapping):
        inner = activation["config"]
        if isinstance(inner, str):
            activation = inner
        else:
            activation = activation["class_name"]
    return str(activation)


def _fault(settings: Config, activation: str) -> str:
    """Return why a layer cannot be changed as a matrix and a bias; "" if it can.

    Args:
        settings: of the layer.
        activation: its name. A softmax or sigmoid in the layer itself leaves the order of classes
            alone; a relu or tanh in it would bend what is added.
    """
    if activation not in KERAS_ACTIVATIONS:
        return f"its activation is {activation}"
    if settings.get("quantization_config") or "Quantized" in str(settings.get("dtype")):
        return "it is quantized; adjust the model before quantizing"
    if settings.get("lora_rank"):
        return "it has LoRA enabled; save the model without it"
    return ""


def _shape_taken(layer: Config, node: int) -> tuple[int | None, ...] | None:
    """Return the shape of what a layer takes in one of its calls, where it is known.

    The call states it since Keras 3, and `build_config` otherwise, for all calls.

    Args:
        layer: its config.
        node: which call.
    """
    calls: Sequence[object] = layer.get("inbound_nodes") or ()
    shapes = []
    if node < len(calls):
        shapes = [shape for _, shape in _tensors(calls[node])]
    if shapes:
        taken = shapes[0]
    else:
        taken = (layer.get("build_config") or {}).get("input_shape")
    if not isinstance(taken, list) or not taken:
        return None
    if all(n is None or isinstance(n, int) for n in taken):
        return tuple(taken)
    return None


def _outputs(model: Config) -> list[Reference]:
    """Return where the outputs of a model come from; of a sequential one, from its last layer."""
    if model["class_name"] == "Sequential":
        return [(name_of(model["config"]["layers"][-1]), 0, 0)]
    return list(_references(model["config"]["output_layers"]))


def _references(content: object) -> Iterator[Reference]:
    """Yield every [layer, call, result] in what says where tensors come from.

    That is one such list, or a list or an object of them: Keras writes outputs as the model returns
    them.

    Raises:
        TypeError: something else is there.
    """
    if isinstance(content, Mapping):
        for part in content.values():
            yield from _references(part)
        return
    if not isinstance(content, list | tuple):
        raise TypeError(f"expected a list of layers, got {content!r}")
    if len(content) == 3 and isinstance(content[0], str):
        yield content[0], int(content[1]), int(content[2])
        return
    for part in content:
        yield from _references(part)


def _tensors(content: Any) -> Iterator[tuple[Reference, Any]]:
    """Yield where the tensors among the arguments of a call come from, and their shapes, if stated.

    Args:
        content: positional and keyword arguments, as JSON; numbers, texts and the like among them
            are passed over.
    """
    if isinstance(content, Mapping) and content.get("class_name") == "__keras_tensor__":
        for reference in _references(content["config"]["keras_history"]):
            yield reference, content["config"].get("shape")
        return
    if _is_reference_of_keras_2(content):
        yield (content[0], int(content[1]), int(content[2])), None
        return
    parts = ()
    if isinstance(content, Mapping):
        parts = content.values()
    elif isinstance(content, list):
        parts = content
    for part in parts:
        yield from _tensors(part)


def _is_reference_of_keras_2(content: object) -> bool:
    """Return whether something is [layer, call, result, arguments], as Keras 2 writes a tensor.

    The object at the end tells it from a list of four arguments.
    """
    if not isinstance(content, list) or len(content) != 4 or not isinstance(content[0], str):
        return False
    numbers = isinstance(content[1], int) and isinstance(content[2], int)
    return numbers and isinstance(content[3], dict)
