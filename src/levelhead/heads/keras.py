"""Heads in Keras 3 models, on any backend: kernels [d, K] of `Dense` and 1x1 convolutions, proved by their graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from ..core.head import Head
from ..support.arrays import to_numpy
from ..support.errors import Advice, LevelheadError
from ..support.extras import naming_what_is_missing
from .candidates import IF_SOFTMAX, NOT_ADDED, TUNE_SCALES, list_layers
from .graph import (
    KERAS_ACTIVATIONS,
    KERAS_LINEAR,
    KERAS_POINTWISE,
    GraphHead,
    KerasNode,
    find_keras_heads,
)
from .notes import run_all
from .place import Facts, InMemory

KerasHead = GraphHead[str, Any]  # layers of Keras by name
HALF_DTYPES = ("float16", "bfloat16")
NAME_LAYER = Advice("layer", None, "to name the head")
# Of layers, that say what becomes of an axis.
SETTINGS = (
    "axis",
    "data_format",
    "dims",
    "keepdims",
    "target_shape",
)


def read(model: Any, *, layer: Any = None, example: Any = None, classes: int | None = None) -> Head:
    """Read the head of a Keras model, as a copy: weight [K, d], the kernel transposed, and bias [K] if it has one.

    Args:
        model: a Keras 3 model, built.
        layer: the name of the head, or the layer itself, where it is not found; of several, the one to read.
        example: an input of the model, to find the head of a subclassed model by what it does.
        classes: K, where it is known.
    """
    return KerasModel(model).read(layer=layer, example=example, classes=classes)


def write(model: Any, head: Head, *, layer: Any = None, example: Any = None) -> None:
    """Put a head into a Keras model, in place: variables and their dtypes stay the model's own.

    Args:
        model, layer, example: as in `read`.
        head: weight [K, d], and a bias exactly if the layer has one.
    """
    KerasModel(model).replace(head, layer=layer, example=example)


class KerasModel(InMemory):
    """A Keras model whose head can be read and changed in place."""

    advice = NAME_LAYER

    def __init__(self, model: Any) -> None:
        keras = keras_library()
        if int(keras.__version__.partition(".")[0]) < 3 or not isinstance(model, keras.Layer):
            raise LevelheadError(
                f"expected a model of Keras 3, got {type(model).__module__}.{type(model).__name__}"
            )
        self.model, self._found = model, KerasHead({}, 0)

    def find_layers(self, layer: Any, example: Any, classes: int | None) -> dict[str, Any]:
        if not self.model.built:
            raise LevelheadError(
                "the model is not built yet; run it once, or call model.build(input_shape)"
            )
        self._found = find_keras_head(self.model, layer, example, classes)
        return self._found.layers

    def why_not(self, module: Any) -> str | None:
        """Return why scaling a column of a layer's kernel would not scale that output and nothing else."""
        if not module.built:
            return "it is not built yet; run the model once"
        if getattr(module, "quantization_mode", None):
            return f"it is quantized ({module.quantization_mode}); adjust the float model, then quantize"
        if getattr(module, "lora_enabled", False):
            return "it has LoRA enabled, whose update would not be scaled; merge it first (save and load the model)"
        if not type(module).call.__module__.startswith("keras.src."):
            return f"{type(module).__name__} has a call of its own, which may do more than W x + b"
        if (activation := activation_of(module)) not in KERAS_ACTIVATIONS:
            return f"its activation is {activation}; expected one of {', '.join(KERAS_ACTIVATIONS)}"
        if getattr(module, "groups", 1) != 1:
            return "it is a grouped convolution"
        mine = {id(v) for v in module.weights}
        for other in self.model._flatten_layers(include_self=False, recursive=True):
            direct = [*other._trainable_variables, *other._non_trainable_variables]
            if other is not module and any(id(v) in mine for v in direct):
                return f"its weights are tied to {other.name}, which would change too; untie them first"
        return None

    def sizes(self) -> set[int | None]:
        return {keras_units(one) for one in keras_linear_layers(self.model)}

    def find_facts(self) -> Facts:
        keys = tuple(self.layers)
        modules = list(self.layers.values())
        task = self._found.task
        known = None
        if task is not None:
            known = (task, f"a {'sigmoid' if task == 'multilabel' else 'softmax'} follows it")
        half = None
        if modules[0].kernel.dtype in HALF_DTYPES:
            half = modules[0].kernel.dtype
        sizes = tuple(keras_units(module) or 0 for module in modules)
        return Facts(keys, ", ".join(keys), sizes, None, known, half, self._found.plain)

    def head(self, module: Any, names: Sequence[str] | None = None) -> Head:
        """Return a copy of a layer's variables, in float32 or better: the kernel transposed to [K, d]."""
        kernel, *bias = (_numpy(variable) for variable in _variables(module))
        return Head(
            np.ascontiguousarray(kernel.reshape(-1, kernel.shape[-1]).T),
            bias[0] if bias else None,
            names,
        )

    def state(self, module: Any, *, weights: bool) -> tuple[str, tuple[str]]:
        variable = module.kernel if weights else module.bias
        digest = ""
        if variable is not None:
            digest = sha256(_numpy(variable).tobytes()).hexdigest()
        return digest, (digest,)

    def check_adds(self) -> None:
        """Check on an example that what is added to a bias is added to the outputs of a model without a graph."""
        if self.example is None or getattr(self.model, "outputs", None):
            tried = []
        else:
            tried = self.layers.values()
        for layer in (one for one in tried if one.bias is not None):
            offsets = np.arange(keras_units(layer) or 0) % 2 * 2.0 - 1
            if not _follows(self.model, self.example, layer, offsets):
                raise LevelheadError(NOT_ADDED.format("on this example", layer.name))

    def check_takes_bias(self, key: str) -> None:
        reason = (
            f"cannot give {key} a bias, which this needs: a Keras layer without one is built so"
        )
        raise LevelheadError(f"{reason}; {TUNE_SCALES}, or build it with use_bias=True")

    def keep(self, heads: Sequence[Head]) -> Callable[[], None]:
        saved = [(v, _numpy(v)) for layer in self.layers.values() for v in _variables(layer)]
        return partial(run_all, [partial(variable.assign, values) for variable, values in saved])

    def put(self, module: Any, head: Head) -> None:
        """Put a head into a module: its variables stay the layer's own."""
        module.kernel.assign(to_numpy(head.weight).T.reshape(tuple(module.kernel.shape)))
        if head.bias is not None:
            module.bias.assign(to_numpy(head.bias))


def normalize_columns(layer: Any) -> None:
    """Set ``w_i <- w_i / ||w_i||`` in place, for a kernel [d, K] or [1, 1, d, K], on its backend, without checks."""
    ops = keras_library().ops
    kernel = layer.kernel.value
    wide = kernel
    if layer.kernel.dtype in HALF_DTYPES:
        wide = ops.cast(kernel, "float32")
    length = ops.sqrt(
        ops.sum(ops.square(wide), axis=tuple(range(len(kernel.shape) - 1)), keepdims=True)
    )
    layer.kernel.assign(ops.cast(wide / length, layer.kernel.dtype))


def _variables(layer: Any) -> list[Any]:
    if layer.bias is None:
        return [layer.kernel]
    return [layer.kernel, layer.bias]


def _numpy(variable: Any) -> np.ndarray:
    """Return a copy of a variable's values; half precision is widened to float32, which is exact."""
    ops = keras_library().ops
    half = variable.dtype in HALF_DTYPES
    return np.array(
        ops.convert_to_numpy(ops.cast(variable.value, "float32") if half else variable.value)
    )


def find_keras_head(model: Any, layer: Any, example: Any, classes: int | None) -> KerasHead:
    """Find the layer, or layers, whose columns are a Keras model's class weight vectors."""
    if layer is None and getattr(model, "outputs", None):
        outputs = [tensor._keras_history for tensor in model.outputs]
        fitting, heads = find_keras_heads(outputs, partial(_node_of, model), classes, NAME_LAYER)
        if len(fitting) == 1:
            return fitting[0]
        listed = _listing(layer for head in heads for layer in head.layers.values())
        if fitting:
            raise LevelheadError(
                f"the model has more than one head: {listed}; none is taken", advice=NAME_LAYER
            )
        raise LevelheadError(f"no head has {classes} outputs, one per class; there is {listed}")
    layers = keras_linear_layers(model)
    fitting = [one for one in layers if classes in (None, keras_units(one))]
    if layer is not None:
        found = []
        for wanted in layer if isinstance(layer, list | tuple) else [layer]:
            by_name = isinstance(wanted, str)
            matching = [one for one in layers if one is wanted or (by_name and one.name == wanted)]
            if len(matching) != 1:
                if by_name:
                    what = repr(wanted)
                else:
                    what = f"a {type(wanted).__name__}"
                many = "no Dense layer or 1x1 convolution is"
                if matching:
                    many = "more than one layer is"
                raise LevelheadError(
                    f"{many} called {what}; the model has {_listing(layers)}", parameter="layer"
                )
            found += matching
        if not found:
            raise LevelheadError(
                "expected at least one layer, got an empty list", parameter="layer"
            )
    elif example is not None:
        candidates = fitting or layers
        found = [one for one in candidates if _follows(model, example, one)]
        if len(found) != 1:
            many = "more than one layer's" if found else "no layer's"
            reason = f"on this example {many} columns are the model's logits one by one: {_listing(candidates)}"
            raise LevelheadError(f"{reason}; {IF_SOFTMAX}", advice=NAME_LAYER)
    elif len(fitting) == 1 and fitting[0] is layers[-1]:
        found = fitting
    else:
        reason = f"no layer of this model has {classes} outputs, one per class; it has {_listing(layers)}"
        if fitting:
            reason = f"which layer is the head is not certain: {_listing(layers)}"
        raise LevelheadError(
            f"{reason}; pass an example input, as the model has no graph to tell", advice=NAME_LAYER
        )
    activations = frozenset(map(activation_of, found))  # what follows the layers is not known
    return KerasHead({one.name: one for one in found}, keras_units(found[0]) or 0, activations)


def keras_linear_layers(model: Any) -> list[Any]:
    """Return every Dense layer and 1x1 convolution of a Keras model that is built, each once."""
    layers = {
        id(one): one for one in [model, *model._flatten_layers(include_self=False, recursive=True)]
    }
    return [one for one in layers.values() if keras_units(one) is not None]


def keras_units(layer: Any) -> int | None:
    """Return how many outputs a Dense layer or 1x1 convolution has; None for any other layer."""
    if _kind(layer) not in KERAS_LINEAR or (
        _kind(layer) != "Dense" and set(layer.kernel_size) != {1}
    ):
        return None
    if _kind(layer) == "Dense":
        return layer.units
    return layer.filters


def keras_library() -> Any:
    """Return Keras, which is imported only here: a model of its kind is needed first."""
    with naming_what_is_missing():
        import keras

    return keras


def activation_of(layer: Any) -> str:
    """Return the name of a layer's activation: linear if it has none."""
    activation = getattr(layer, "activation", None)
    if activation is None:
        return "linear"
    return getattr(activation, "__name__", type(activation).__name__)


def _kind(layer: Any) -> str:
    """Return which class of Keras's own a layer is of, also if the user derived one from it."""
    return next(
        (
            one.__name__
            for one in type(layer).__mro__
            if one.__module__.startswith("keras.src.layers.")
        ),
        "",
    )


def _node_of(model: Any, history: Any) -> KerasNode[str, Any]:
    """Return what a tensor comes from, by its history: layer, node, index."""
    layer, node, index = history
    wrapped = layer
    if type(layer).__name__ == "TimeDistributed":
        wrapped = layer.layer
    # Of a model inside the model.
    inside = None
    if hasattr(layer, "layers"):
        inside = getattr(layer, "outputs", None)
    units = keras_units(wrapped)
    kind = _kind(wrapped)
    taken = layer._inbound_nodes[node].input_tensors
    own_call = not getattr(type(wrapped).call, "__module__", "").startswith("keras.src.")
    if units is None and (own_call or (wrapped is not layer and kind not in KERAS_POINTWISE)):
        kind = ""  # it may do anything
    return KerasNode(
        key=wrapped.name,
        name=layer.name,
        type_name=type(layer).__name__,
        kind=kind,
        activation=activation_of(wrapped),
        settings={name: getattr(wrapped, name) for name in SETTINGS if hasattr(wrapped, name)},
        shape=tuple(taken[0].shape) if taken and (wrapped is layer or units is not None) else None,
        units=units,
        calls=1 if units is None else _calls(model, wrapped, {}),
        layer=wrapped,
        inner=inside[index]._keras_history if inside else None,
        sources=lambda: [one._keras_history for one in taken],
    )


def _calls(model: Any, layer: Any, known: dict[int, int]) -> int:
    """Return how often a model's graph applies a layer, with the models inside it."""
    if id(model) not in known:
        known[id(model)] = 0
        nodes = getattr(getattr(model, "_functional", None) or model, "_nodes_by_depth", {})
        applied = [node.operation for group in nodes.values() for node in group]
        inside = [getattr(one, "layer", one) for one in applied]  # of a wrapper, what it wraps
        known[id(model)] = sum(1 if one is layer else _calls(one, layer, known) for one in inside)
    return known[id(model)]


def _follows(model: Any, example: Any, layer: Any, offset: Any = 0.0) -> bool:
    """Return whether outputs are moved as a layer's bias is or, without an offset, scaled as its columns are."""
    # The layer gets random weights for it, but no variable is changed. The factors are powers of two: exact.
    keras = keras_library()
    rng = np.random.default_rng(1)
    units = keras_units(layer) or 0
    scale = np.ones(1)
    if not np.any(offset):
        scale = 2.0 ** np.random.default_rng(0).integers(-1, 3, size=units)
        scale[:2] = [0.5, 2.0][:units]
    mine = _variables(layer)
    drawn = [
        rng.normal(size=tuple(v.shape)) / max(1, int(np.prod(v.shape[:-1]))) ** 0.5 for v in mine
    ]
    activation, outputs = layer.activation, []
    layer.activation = keras.activations.linear
    try:
        for by, more in ((1.0, 0.0), (scale, offset)):
            moved = [drawn[0] * by, *(bias * by + more for bias in drawn[1:])]
            new = {id(v): keras.ops.cast(x, v.dtype) for v, x in zip(mine, moved, strict=True)}
            parts = (model.trainable_variables, model.non_trainable_variables)
            values = [[new.get(id(v), v.value) for v in part] for part in parts]
            if isinstance(example, tuple | list):
                args = tuple(example)
            else:
                args = (example,)
            given, _ = model.stateless_call(*values, *args)
            outputs.append(
                keras.ops.convert_to_numpy(given).astype(np.float64)
                if hasattr(given, "shape")
                else None
            )
    except Exception as error:
        raise LevelheadError(
            f"the model fails on it: {type(error).__name__}: {error}", parameter="example"
        ) from error
    finally:
        layer.activation = activation
    before, after = outputs
    if before is None or before.shape[-1] != units or not before.any():
        return False
    return bool(
        np.allclose(after, before * scale + offset, rtol=0, atol=1e-4 * np.abs(before).max())
    )


def _listing(layers: Any) -> str:
    return list_layers((one.name, [keras_units(one) or 0]) for one in layers)
