"""The layers of a Keras model, as its config.json lists them, and where their weights are.

A config is a tree: a model has layers, each with a class, a module and settings, and some of them
are models, or wrap another layer:

    {"module": "keras", "class_name": "Functional", "config": {"layers": [
        {"module": "keras.layers", "class_name": "Dense", "config": {"name": "top", ...},
         "inbound_nodes": [...]}, ...], "output_layers": [["top", 0, 0]]}}

`layers_in` walks through it. Where the weights of a layer are in the file depends on who wrote it.
Since Keras 3.4 the groups of the file say the names of layers; before, a place is made from the
layer's class and a number, in the ways of `layers_in` (Keras 3.0 to 3.3) and `places_of_keras_2`
(2.12 to 2.15).

What Keras's own layers do is known. Those of somebody else are only known to be there: their
configs may hold anything.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeGuard

MODELS = ("Functional", "Sequential", "Model")
KERAS_2_LAYERS = "_layer_checkpoint_dependencies"  # what Keras 2 calls the layers of a model

LayerPath = tuple[str, ...]  # the names that lead to a layer, through models inside models
Config: TypeAlias = Mapping[str, Any]  # of a layer, a model or its settings: JSON of somebody else


class ConfiguredLayer(NamedTuple):
    """A layer of a model, or of one inside it."""

    path: LayerPath
    place: str  # in the file of weights, as Keras 3.0 to 3.3 make it from classes
    times: int  # how often the model applies it
    layer: Config


def layers_in(config: Config) -> Iterator[ConfiguredLayer]:
    """Yield each layer of a model, also of models inside, with its place in the file.

    In files of Keras 3.0 to 3.3, a place is `layers/` and the class in snake case, with a number
    from the second of its class on: `layers/dense`, `layers/dense_1`. Those of a model inside lie
    below its own place.

    Args:
        config: of the model; one that is damaged raises LookupError, TypeError and the like.
    """
    # Models inside wait until the one around them is done: each counts the classes of its own
    # layers.
    waiting = [ConfiguredLayer((), "", 1, config)]
    while waiting:
        model = waiting.pop()
        around = f"{model.place}/" if model.place else ""
        used = Counter[str]()  # how many layers of a class there were
        for layer in model.layer["config"]["layers"]:
            word = _snake_case(layer)
            place = f"{around}layers/{word}"
            if used[word]:
                place += f"_{used[word]}"
            # An operation between layers has no place, and takes no number.
            if ".ops" not in str(layer.get("module")):
                used[word] += 1
            path = (*model.path, name_of(layer))
            times = model.times * max(1, len(layer.get("inbound_nodes") or ()))
            configured = ConfiguredLayer(path, place, times, layer)
            yield configured
            wrapped = settings_of(layer).get("layer")
            if is_model(layer):
                waiting.append(configured)
            elif _is_layer(wrapped):
                inner = (*path, name_of(wrapped))
                yield ConfiguredLayer(inner, f"{place}/layer", times, wrapped)


def places_of_keras_2(config: Config, keys: Iterable[str]) -> dict[LayerPath, str]:
    """Return {names that lead to a layer: its place in the file}, of a file by Keras 2.12 to 2.15.

    There, layers with weights take two numbers of their class, and those that are saved elsewhere
    take numbers, too. So layers and places are matched in order, if there are as many of both;
    where there are not, layers of that class have no place in the answer.

    Args:
        config: of the model.
        keys: of the arrays in its file.
    """
    places: dict[LayerPath, str] = {}
    keys = list(keys)
    waiting: list[tuple[LayerPath, str, Config]] = [((), "", config)]
    while waiting:
        path, around, model = waiting.pop()
        # The places of this model's layers, by the class in their names.
        group = f"{around}{KERAS_2_LAYERS}/"
        names = {key[len(group) :].partition("/")[0] for key in keys if key.startswith(group)}
        by_class: dict[str, list[Config]] = defaultdict(list)
        for layer in model["config"]["layers"]:
            by_class[_snake_case(layer)].append(layer)
        for word, layers in by_class.items():
            # Where layers and places of a class are not as many, nobody knows which is whose.
            titles = _numbered(word, names)
            if len(titles) != len(layers):
                continue
            for layer, title in zip(layers, titles, strict=True):
                inner = (*path, name_of(layer))
                places[inner] = f"{group}{title}"
                wrapped = settings_of(layer).get("layer")
                if is_model(layer):
                    waiting.append((inner, f"{group}{title}/", layer))
                elif _is_layer(wrapped):
                    places[*inner, name_of(wrapped)] = f"{group}{title}/layer"
    return places


def _numbered(word: str, names: Iterable[str]) -> list[str]:
    """Return the names that are a word, or a word and a number, in the order of the numbers.

    Args:
        word: the class of a layer, in snake case.
        names: groups in the file; those of other classes may begin with the same word.

    >>> _numbered("dense", ["dense_10", "dense_2", "dense", "dense_net", "conv2d"])
    ['dense', 'dense_2', 'dense_10']
    """
    pattern = re.compile(re.escape(word) + r"(?:_(\d+))?")
    numbers = {}
    for name in names:
        match = pattern.fullmatch(name)
        if match is not None:
            numbers[name] = int(match[1] or 0)
    return sorted(numbers, key=numbers.__getitem__)


def _snake_case(layer: Config) -> str:
    """Return the class of a layer, as a file of weights has it.

    The same two patterns as in `keras.src.utils.naming.to_snake_case`, so that odd names agree,
    too.

    >>> _snake_case({"class_name": "MaxPooling2D"}), _snake_case({"class_name": "TFSMLayer"})
    ('max_pooling2d', 'tfsm_layer')
    """
    word = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", str(layer["class_name"]))
    return re.sub("([a-z])([A-Z])", r"\1_\2", word).lower()


def is_own(layer: Config, *kinds: str) -> bool:
    """Return whether a layer is of one of these classes of Keras's own.

    Somebody may register another class called Dense: the module tells.
    """
    module = layer.get("module")
    return (
        layer["class_name"] in kinds
        and isinstance(module, str)
        and module.partition(".")[0] == "keras"
    )


def is_model(layer: Config) -> bool:
    """Return whether a layer is a functional or sequential model, whose layers are listed.

    A subclassed model is none: what it runs is in its code.
    """
    return is_own(layer, *MODELS) and "layers" in settings_of(layer)


def _is_layer(setting: object) -> TypeGuard[Config]:
    """Return whether a setting of a layer is another layer."""
    if not isinstance(setting, Mapping) or "class_name" not in setting:
        return False
    return isinstance(setting.get("config"), Mapping)


def settings_of(layer: Config) -> Config:
    """Return the settings of a layer; of somebody's own that are no object, none.

    Those of Keras's own layers must be an object: if not, whoever reads them finds out that the
    config is damaged.
    """
    config = layer["config"]
    if isinstance(config, Mapping) or is_own(layer, layer["class_name"]):
        return config
    return {}


def name_of(layer: Config) -> str:
    """Return the name of a layer.

    Keras before 3.4 keeps that of an operation, such as `ops.add`, outside of its own config.
    """
    settings = settings_of(layer)
    if "name" in settings:
        return settings["name"]
    if "name" in layer or is_own(layer, layer["class_name"]):
        return layer["name"]
    return f"a {layer['class_name']} without a name"  # somebody's own, whose config does not say it


def identity_of(layer: Config, path: LayerPath) -> Hashable:
    """Return what a layer has in common with all its copies in a config.

    A shared layer is written out wherever it is used, with the same number; others are known by
    their path.
    """
    if layer.get("shared_object_id") is None:
        return path
    return str(layer["shared_object_id"])
