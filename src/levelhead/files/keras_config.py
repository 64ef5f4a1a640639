"""The graph of a Keras model, as its config.json has it: which layer makes what, without Keras.

What Keras's own layers do is known. Those of somebody else are only known to be there: their configs may hold anything.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeGuard

from ..heads.graph import GraphHead
from ..heads.keras_graph import (
    KERAS_ACTIVATIONS,
    KERAS_LINEAR,
    KERAS_POINTWISE,
    KerasNode,
    find_keras_heads,
)
from ..support.errors import Advice, LevelheadError
from .tensors import several_heads

MODELS = ("Functional", "Sequential", "Model")
KERAS_2_LAYERS = "_layer_checkpoint_dependencies"  # what Keras 2 calls the layers of a model
NAME_HEAD_LAYER = Advice("head", None, "to name the layer")

LayerPath = tuple[str, ...]  # the names that lead to a layer, through models inside models
# The names that lead to its model, its layer, node and index.
LayerValue = tuple[LayerPath, str, int, int]


def head_in_config(config: Any, classes: int | None) -> GraphHead[LayerPath, None] | None:
    """Return the head of a functional or sequential model, proved by its graph; None for a model without one."""
    try:
        if not _is_own(config, *MODELS) or "layers" not in config["config"]:
            return None
        graph = _ConfiguredGraph({(): config})
        outputs = [((), *one) for one in _outputs(config)]
        fitting, heads = find_keras_heads(outputs, graph.node_of, classes, NAME_HEAD_LAYER)
    except LevelheadError:
        raise
    except (
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = f"its config.json is not as Keras writes it ({error!r}); save the model again"
        raise LevelheadError(reason, advice=NAME_HEAD_LAYER) from None
    if len(fitting) > 1:
        raise several_heads(
            ("/".join(path), [head.units]) for head in heads for path in head.layers
        )
    if fitting:
        return fitting[0]
    return heads[0] if len(heads) == 1 else None


class ConfiguredLayer(NamedTuple):
    """A layer of a model, or of one inside it."""

    path: LayerPath
    place: str  # in the file of weights, by its class
    times: int  # that the model applies it
    layer: Mapping[str, Any]


def layers_in(config: Mapping[str, Any]) -> Iterator[ConfiguredLayer]:
    """Yield each layer of a model, also of models inside."""
    # Up to Keras 3.3 the groups of a file state no names: a layer's place is its class, numbered in order.
    waiting = [ConfiguredLayer((), "", 1, config)]
    while waiting:
        model = waiting.pop()
        around = f"{model.place}/" if model.place else ""
        used = Counter[str]()
        for layer in model.layer["config"]["layers"]:
            word = _snake_case(layer)
            place = f"{around}layers/{word}" + (f"_{used[word]}" if used[word] else "")
            # An operation between layers has no place.
            used[word] += ".ops" not in str(layer.get("module"))
            path = (*model.path, _name(layer))
            times = model.times * max(1, len(layer.get("inbound_nodes") or ()))
            found = ConfiguredLayer(path, place, times, layer)
            yield found
            wrapped = _settings(layer).get("layer")
            if _is_own(layer, *MODELS) and "layers" in _settings(layer):
                waiting.append(found)
            elif _is_layer(wrapped):
                inner = (*path, _name(wrapped))
                yield ConfiguredLayer(inner, f"{place}/layer", times, wrapped)


def places_of_keras_2(config: Mapping[str, Any], keys: Iterable[str]) -> dict[LayerPath, str]:
    """Return {names that lead to a layer: its place in the file}, of a file by Keras 2.12 to 2.15, from its arrays."""
    # There, layers with weights take two numbers of their class, and those that are saved elsewhere take numbers, too.
    # So layers and places are matched in order, if there are as many of both.
    found: dict[LayerPath, str] = {}
    keys = list(keys)
    waiting: list[tuple[LayerPath, str, Mapping[str, Any]]] = [((), "", config)]
    while waiting:
        path, around, model = waiting.pop()
        group = f"{around}{KERAS_2_LAYERS}/"
        names = {key[len(group) :].partition("/")[0] for key in keys if key.startswith(group)}
        layers = defaultdict(list)
        for layer in model["config"]["layers"]:
            layers[_snake_case(layer)].append(layer)
        for word, same in layers.items():
            numbered = re.compile(re.escape(word) + r"(?:_(\d+))?")
            matches = [match for name in names if (match := numbered.fullmatch(name))]
            places = [match[0] for match in sorted(matches, key=lambda one: int(one[1] or 0))]
            if len(places) != len(same):
                continue
            for layer, place in zip(same, places, strict=True):
                inner = (*path, _name(layer))
                found[inner] = f"{group}{place}"
                if _is_own(layer, *MODELS) and "layers" in _settings(layer):
                    waiting.append((inner, f"{group}{place}/", layer))
                elif _is_layer(wrapped := _settings(layer).get("layer")):
                    found[*inner, _name(wrapped)] = f"{group}{place}/layer"
    return found


def _snake_case(layer: Mapping[str, Any]) -> str:
    """Return the class of a layer, as a file of weights has it."""
    word = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", str(layer["class_name"]))
    return re.sub("([a-z])([A-Z])", r"\1_\2", word).lower()


@dataclass(frozen=True)
class _ConfiguredGraph:
    """The models of a config.json by the names of the layers that lead to each; those inside are added on the way."""

    models: dict[LayerPath, Mapping[str, Any]]
    # Of the layers in each model, by name.
    places: dict[LayerPath, dict[str, int]] = field(default_factory=dict)

    @cached_property
    def calls(self) -> Counter[Hashable]:
        """How often the model applies each of its layers, with those of models inside it."""
        found = Counter[Hashable]()
        for one in layers_in(self.models[()]):
            found[_identity(one.layer, one.path)] += one.times
        return found

    def node_of(self, value: LayerValue) -> KerasNode[LayerPath, None]:
        """Return what makes a value."""
        inside, name, node, index = value
        model = self.models[inside]
        layers = model["config"]["layers"]
        if inside not in self.places:
            self.places[inside] = {_name(one): i for i, one in enumerate(layers)}
        place = self.places[inside][name]
        layer = layers[place]

        def sources() -> list[LayerValue]:
            if model["class_name"] != "Sequential":
                return [(inside, *one) for one, _ in _tensors(layer["inbound_nodes"][node])]
            return [(inside, _name(layers[max(place - 1, 0)]), 0, 0)]

        wrapped = layer
        if _is_own(layer, "TimeDistributed"):
            wrapped = layer["config"]["layer"]
        if wrapped is layer:
            path = (*inside, name)
        else:
            path = (*inside, name, _name(wrapped))
        settings = _settings(wrapped)
        title = "/".join(path)
        inner = None
        own = _is_own(wrapped, wrapped["class_name"])
        linear = _is_own(wrapped, *KERAS_LINEAR) and {*settings.get("kernel_size", (1,))} == {1}
        activation = _activation(settings) if own else "linear"
        if linear:
            _check_plain(title, settings, activation)
        if _is_own(layer, *MODELS) and "layers" in settings:
            self.models[path] = layer
            inner = (path, *_outputs(layer)[index])
        kind = wrapped["class_name"] if own else ""
        if wrapped is not layer and not linear and kind not in KERAS_POINTWISE:
            kind = ""  # it may do anything
        taken = _shape_taken(layer, node)
        return KerasNode(
            key=path,
            layer=None,
            name=title,
            type_name=layer["class_name"],
            kind=kind,
            activation=activation,
            settings=settings,
            shape=taken if wrapped is layer or linear else None,
            calls=self.calls[_identity(wrapped, path)] if linear else 1,
            units=int(settings.get("units") or settings["filters"]) if linear else None,
            inner=inner,
            sources=sources,
        )


def _activation(settings: Mapping[str, Any]) -> str:
    """Return the name of a layer's activation."""
    activation = settings.get("activation") or "linear"
    while isinstance(activation, Mapping):
        inner = activation["config"]
        if isinstance(inner, str):
            activation = inner
        else:
            activation = activation["class_name"]
    return str(activation)


def _check_plain(title: str, settings: Mapping[str, Any], activation: str) -> None:
    """Raise if a layer cannot be changed as a matrix and a bias."""
    reason = None
    if activation not in KERAS_ACTIVATIONS:
        reason = f"its activation is {activation}"
    elif settings.get("quantization_config") or "Quantized" in str(settings.get("dtype")):
        reason = "it is quantized; adjust the model before quantizing"
    elif settings.get("lora_rank"):
        reason = "it has LoRA enabled; save the model without it"
    if reason is not None:
        raise LevelheadError(f"cannot change {title}: {reason}")


def _shape_taken(layer: Mapping[str, Any], node: int) -> tuple[int | None, ...] | None:
    """Return the shape of what a layer takes, where it is known."""
    nodes: Sequence[Any] = layer.get("inbound_nodes") or ()
    given = []
    if node < len(nodes):
        given = [shape for _, shape in _tensors(nodes[node])]
    if given:
        taken = given[0]
    else:
        taken = (layer.get("build_config") or {}).get("input_shape")
    if not isinstance(taken, list) or not taken:
        return None
    if all(n is None or isinstance(n, int) for n in taken):
        return tuple(taken)
    return None


def _is_own(layer: Mapping[str, Any], *kinds: str) -> bool:
    """Return whether a layer is of one of these classes of Keras's own, not one that somebody registered."""
    module = layer.get("module")
    return (
        layer["class_name"] in kinds
        and isinstance(module, str)
        and module.partition(".")[0] == "keras"
    )


def _is_layer(found: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a setting of a layer is another layer."""
    is_object = isinstance(found, Mapping) and "class_name" in found
    return is_object and isinstance(found.get("config"), Mapping)


def _settings(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    config = layer["config"]
    if isinstance(config, Mapping) or _is_own(layer, layer["class_name"]):
        return config
    return {}


def _name(layer: Mapping[str, Any]) -> str:
    """Return the name of a layer; Keras before 3.4 keeps that of an operation outside of its own config."""
    settings = _settings(layer)
    if "name" in settings:
        return settings["name"]
    if "name" in layer or _is_own(layer, layer["class_name"]):
        return layer["name"]
    return f"a {layer['class_name']} without a name"  # somebody's own, whose config does not say it


def _identity(layer: Mapping[str, Any], path: LayerPath) -> Hashable:
    """Return what a layer has in common with all its copies in a config: the number of a shared one, or its path."""
    if layer.get("shared_object_id") is None:
        return path
    return str(layer["shared_object_id"])


def _outputs(model: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Return where the outputs of a model come from: layer, node, index."""
    if model["class_name"] == "Sequential":
        return [(_name(model["config"]["layers"][-1]), 0, 0)]
    return list(_references(model["config"]["output_layers"]))


def _references(found: Any) -> Iterator[tuple[str, int, int]]:
    """Yield every (layer, node, index) in what says where tensors come from."""
    if not isinstance(found, Mapping | list | tuple):
        raise TypeError(f"expected a list of layers, got {found!r}")
    if not isinstance(found, Mapping) and len(found) == 3 and isinstance(found[0], str):
        yield found[0], int(found[1]), int(found[2])
        return
    for part in found.values() if isinstance(found, Mapping) else found:
        yield from _references(part)


def _tensors(found: Any) -> Iterator[tuple[tuple[str, int, int], Any]]:
    """Yield where the tensors among the arguments of a call come from, and their shapes."""
    if isinstance(found, Mapping) and found.get("class_name") == "__keras_tensor__":
        for one in _references(found["config"]["keras_history"]):
            yield one, found["config"].get("shape")
        return
    if _is_reference_of_keras_2(found):
        yield (found[0], int(found[1]), int(found[2])), None
        return
    parts: Any = ()
    if isinstance(found, Mapping):
        parts = found.values()
    elif isinstance(found, list):
        parts = found
    for part in parts:
        yield from _tensors(part)


def _is_reference_of_keras_2(found: Any) -> bool:
    """Return whether a list is [layer, node, index, other arguments]."""
    if not isinstance(found, list) or len(found) != 4 or not isinstance(found[0], str):
        return False
    return isinstance(found[1], int) and isinstance(found[2], int) and isinstance(found[3], dict)
