"""Which layer of a Keras model is its head, by the graph in its config.json: read as data, nothing is built."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.choices import LabelTask
from ..core.errors import Advice, LevelheadError
from ..heads.candidates import KERAS_ACTIVATIONS, KERAS_HARMLESS, KERAS_LINEAR, KERAS_SUMS, list_layers

MODELS = ("Functional", "Sequential", "Model")
DEEPEST_GRAPH = 100  # layers between the head and the output, models inside models


@dataclass(frozen=True)
class ConfiguredHead:
    """The layers that feed one output: the names that lead to each, its units, and what follows them."""

    paths: tuple[tuple[str, ...], ...]
    units: int
    activations: frozenset[str]

    @property
    def task(self) -> LabelTask | None:
        """Whether samples have one of the classes or several labels, where a softmax or a sigmoid tells."""
        if "sigmoid" in self.activations and self.units > 1:
            return "multilabel"
        return "multiclass" if self.activations & {"softmax", "log_softmax"} else None


def head_in_config(config: Any, classes: int | None = None) -> ConfiguredHead | None:
    """Return the head of a functional or sequential model, proved by its graph; None for a model without one.

    Args:
        config: the content of a config.json of Keras 3.
        classes: K, to choose by where the model has several outputs.

    >>> dense = {"module": "keras.layers", "class_name": "Dense", "config": {"name": "top", "units": 3}}
    >>> head_in_config({"module": "keras", "class_name": "Sequential", "config": {"layers": [dense]}}).paths
    (('top',),)
    """
    try:
        if not _is_own(config, *MODELS) or "layers" not in config["config"]:
            return None
        found, reasons = [], []
        for output in _outputs(config):
            try:
                steps = list(_feeding(config, output, (), 0))
            except LevelheadError as error:
                reasons.append(error)
                continue
            layers = dict(step for step in steps if isinstance(step, tuple))
            head = ConfiguredHead(
                tuple(layers), next(iter(layers.values())), frozenset(step for step in steps if isinstance(step, str))
            )
            if head.paths not in [one.paths for one in found]:
                found.append(head)
    except LevelheadError:
        raise
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise LevelheadError(f"its config.json is not as Keras writes it ({error!r}); save the model again") from None
    fitting = [head for head in found if classes in (None, head.units)]
    if len(fitting) == 1 and not (reasons and classes is None):
        return fitting[0]
    listed = list_layers(("/".join(path), [head.units]) for head in found for path in head.paths)
    if len(fitting) > 1:
        raise LevelheadError(
            f"more than one layer could be the head: {listed}", advice=Advice("head", None, "to name it")
        )
    if reasons:
        raise reasons[0]
    return found[0] if len(found) == 1 else None


def _is_own(layer: Mapping[str, Any], *kinds: str) -> bool:
    """Return whether a layer is of one of these classes of Keras's own, not one that somebody registered."""
    module = layer.get("module")
    return layer["class_name"] in kinds and isinstance(module, str) and module.partition(".")[0] == "keras"


def _outputs(model: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Return where the outputs of a model come from: layer, node, index."""
    if model["class_name"] == "Sequential":
        return [(model["config"]["layers"][-1]["config"]["name"], 0, 0)]
    return list(_references(model["config"]["output_layers"]))


def _references(found: Any) -> Iterator[tuple[str, int, int]]:
    if isinstance(found, Mapping):
        for part in found.values():
            yield from _references(part)
    elif len(found) == 3 and isinstance(found[0], str):
        yield found[0], int(found[1]), int(found[2])
    else:
        for part in found:
            yield from _references(part)


def _tensors(found: Any) -> Iterator[tuple[str, int, int]]:
    """Yield where the tensors among the arguments of a call come from."""
    if isinstance(found, Mapping):
        if found.get("class_name") == "__keras_tensor__":
            yield from _references(found["config"]["keras_history"])
        else:
            for part in found.values():
                yield from _tensors(part)
    elif isinstance(found, list):
        for part in found:
            yield from _tensors(part)


def _feeding(
    model: Mapping[str, Any], output: tuple[str, int, int], inside: tuple[str, ...], depth: int
) -> Iterator[Any]:
    """Yield (path, units) of each linear layer that an output comes from, and the activations after them."""
    name, node, index = output
    layers = model["config"]["layers"]
    layer = {one["config"]["name"]: one for one in layers}[name]
    wrapped = layer["config"]["layer"] if _is_own(layer, "TimeDistributed") else layer
    path = (*inside, name) if wrapped is layer else (*inside, name, wrapped["config"]["name"])
    settings = wrapped["config"]
    if depth > DEEPEST_GRAPH:
        raise LevelheadError("the graph is too deep")
    if _is_own(wrapped, *KERAS_LINEAR) and _is_pointwise(settings):
        activation = _activation(settings)
        if activation not in KERAS_ACTIVATIONS:
            raise LevelheadError(f"cannot change {'/'.join(path)}: its activation is {activation}")
        if settings.get("quantization_config") or "Quantized" in str(settings.get("dtype")):
            raise LevelheadError(f"cannot change {'/'.join(path)}: it is quantized; adjust the model before quantizing")
        if settings.get("lora_rank"):
            raise LevelheadError(f"cannot change {'/'.join(path)}: it has LoRA enabled; save the model without it")
        yield activation
        yield path, int(settings.get("units") or settings["filters"])
    elif _is_own(layer, *MODELS) and "layers" in settings:
        yield from _feeding(layer, _outputs(layer)[index], path, depth + 1)
    elif _is_own(layer, *KERAS_HARMLESS, *KERAS_SUMS):
        activation = "softmax" if layer["class_name"] == "Softmax" else _activation(settings)
        if activation not in KERAS_ACTIVATIONS:
            raise LevelheadError(f"the activation {activation} of {'/'.join(path)} follows the head")
        yield activation
        if model["class_name"] == "Sequential":
            before = layers[layers.index(layer) - 1]["config"]["name"] if layers.index(layer) else name
            sources = [(before, 0, 0)]
        else:
            sources = list(_tensors(layer["inbound_nodes"][node]))
        for source in sources:
            yield from _feeding(model, source, inside, depth + 1)
    else:
        raise LevelheadError(
            f"the output comes from {'/'.join(path)} ({layer['class_name']}), not from Dense or a 1x1 convolution",
            advice=Advice("head", None, "to name the layer"),
        )


def _is_pointwise(settings: Mapping[str, Any]) -> bool:
    return "kernel_size" not in settings or set(settings["kernel_size"]) == {1}


def _activation(settings: Mapping[str, Any]) -> str:
    """Return the name of a layer's activation: linear if it has none."""
    activation = settings.get("activation") or "linear"
    while isinstance(activation, Mapping):
        activation = activation["config"] if isinstance(activation["config"], str) else activation["class_name"]
    return str(activation)
