"""Heads in Keras 3 models, on any backend: `Dense` layers and 1x1 convolutions, whose kernels are [d, K].

Only what Keras itself offers is used, so that torch is needed only where Keras runs on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from ..core.array import to_numpy
from ..core.choices import LabelTask
from ..core.errors import LevelheadError
from ..core.head import Head, check_finite
from ..rules.rule import RULES
from .candidates import KERAS_ACTIVATIONS
from .keras_find import (
    FoundHead,
    activation_of,
    check_keras_adds,
    find_keras_head,
    keras_library,
    keras_linear_layers,
    keras_units,
)


def read(model: Any, *, layer: Any = None, example: Any = None, classes: int | None = None) -> Head:
    """Read the head of a Keras model, as a copy.

    Args:
        model, layer, example, classes: as in `find_keras_head`; of several heads, name the one to read.

    Returns:
        weight [K, d], which is the kernel transposed, and bias [K] if the layer has one.
    """
    opened = KerasModel(model)
    return opened.head(_single(opened.layers(layer=layer, example=example, classes=classes))[1], None)


def write(model: Any, head: Head, *, layer: Any = None, example: Any = None) -> None:
    """Put a head into a Keras model, in place: variables and their dtypes stay the model's own.

    Args:
        model, layer, example: as in `find_keras_head`.
        head: weight [K, d], and a bias exactly if the layer has one.
    """
    opened = KerasModel(model)
    path, found = _single(opened.layers(layer=layer, example=example, classes=head.classes))
    opened.write(path, found, check_finite(head))


class KerasModel:
    """A Keras model whose head can be read and changed in place."""

    def __init__(self, model: Any) -> None:
        keras = keras_library()
        if int(keras.__version__.partition(".")[0]) < 3 or not isinstance(model, keras.Layer):
            raise LevelheadError(f"expected a model of Keras 3, got {type(model).__module__}.{type(model).__name__}")
        self.model = model
        self._found = FoundHead({}, frozenset())

    def layers(self, *, layer: Any, example: Any, classes: int | None) -> dict[str, Any]:
        """Find the head and check that each of its layers can be changed in place without changing anything else."""
        if not self.model.built:
            raise LevelheadError("the model is not built yet; run it once, or call model.build(input_shape)")
        self._found = find_keras_head(self.model, layer=layer, example=example, classes=classes)
        for path, one in self._found.layers.items():
            if reason := _why_not_editable(one, self.model):
                raise LevelheadError(f"cannot change {path}: {reason}")
        return self._found.layers

    def likely_classes(self, size: int | None) -> int | None:
        """Return the size as the number of classes if some layer has so many outputs."""
        return size if size in {keras_units(one) for one in keras_linear_layers(self.model)} else None

    def classes(self, module: Any) -> int:
        return keras_units(module) or 0

    def task(self, path: str) -> tuple[LabelTask, str] | None:
        follows, units = self._found.activations, self.classes(self._found.layers[path])
        if "sigmoid" in follows and units > 1:
            return "multilabel", "a sigmoid follows it"
        return ("multiclass", "a softmax follows it") if follows & {"softmax", "log_softmax"} else None

    def names(self, classes: int) -> list[str] | None:
        return None

    def head(self, module: Any, names: Sequence[str] | None) -> Head:
        """Return a copy of a layer's variables, in float32 or better: the kernel transposed to [K, d]."""
        kernel, *bias = (_numpy(variable) for variable in _variables(module))
        return Head(np.ascontiguousarray(kernel.reshape(-1, kernel.shape[-1]).T), bias[0] if bias else None, names)

    def half_dtype(self, module: Any) -> str | None:
        return module.kernel.dtype if module.kernel.dtype in ("float16", "bfloat16") else None

    def state(self, module: Any, rule: str) -> tuple[str, tuple[str]]:
        variable = module.kernel if RULES[rule].multiplies else module.bias
        digest = "" if variable is None else sha256(_numpy(variable).tobytes()).hexdigest()
        return digest, (digest,)

    def check_adds(self, layers: Mapping[str, Any], example: Any) -> None:
        if example is not None and not getattr(self.model, "outputs", None):
            check_keras_adds(self.model, example, list(layers.values()))

    def check_takes_bias(self, path: str, module: Any) -> None:
        raise LevelheadError(
            f"cannot give {path} the bias that the rule shift needs: a Keras layer without one is built so; tune with "
            "the rule rescale, or build the layer with use_bias=True"
        )

    def keep(self, layers: Mapping[str, Any], grown: Sequence[Any]) -> Callable[[], None]:
        assert not grown
        return partial(_restore, [(v, _numpy(v)) for layer in layers.values() for v in _variables(layer)])

    def notes(self) -> list[Mapping[str, Any]]:
        return []  # Keras has no config of its own to leave one in

    def leave_note(self, note: Mapping[str, Any]) -> Callable[[], None]:
        return lambda: None

    def write(self, path: str, module: Any, head: Head) -> None:
        """Put a head into a module: its variables stay the layer's own."""
        if (head.bias is None) != (module.bias is None):
            has, lacks = (path, "the head") if head.bias is None else ("the head", path)
            raise LevelheadError(f"{has} has a bias, but {lacks} has none")
        shape, came = tuple(module.kernel.shape), list(head.weight.shape)
        if came != [shape[-1], int(np.prod(shape[:-1]))]:
            raise LevelheadError(f"expected weight {[shape[-1], int(np.prod(shape[:-1]))]} for {path}, got {came}")
        module.kernel.assign(to_numpy(head.weight).T.reshape(shape))
        if head.bias is not None:
            module.bias.assign(to_numpy(head.bias))


def normalize_columns(layer: Any) -> None:
    """Set ``w_i <- w_i / ||w_i||`` in place, for a kernel [d, K] or [1, 1, d, K], on its backend, without checks."""
    ops = keras_library().ops
    kernel = layer.kernel.value
    wide = ops.cast(kernel, "float32") if layer.kernel.dtype in ("float16", "bfloat16") else kernel
    length = ops.sqrt(ops.sum(ops.square(wide), axis=tuple(range(len(kernel.shape) - 1)), keepdims=True))
    layer.kernel.assign(ops.cast(wide / length, layer.kernel.dtype))


def _restore(saved: Sequence[tuple[Any, np.ndarray]]) -> None:
    for variable, values in saved:
        variable.assign(values)


def _single(found: dict[str, Any]) -> tuple[str, Any]:
    if len(found) > 1:
        raise LevelheadError(f"{len(found)} heads feed the one output: {', '.join(found)}; name one", parameter="layer")
    return next(iter(found.items()))


def _variables(layer: Any) -> list[Any]:
    return [layer.kernel] if layer.bias is None else [layer.kernel, layer.bias]


def _numpy(variable: Any) -> np.ndarray:
    """Return a copy of a variable's values; half precision is widened to float32, which is exact."""
    ops = keras_library().ops
    half = variable.dtype in ("float16", "bfloat16")
    return np.array(ops.convert_to_numpy(ops.cast(variable.value, "float32") if half else variable.value))


def _why_not_editable(layer: Any, model: Any) -> str | None:
    """Return why scaling a column of a layer's kernel would not scale that output and nothing else."""
    if not layer.built:
        return "it is not built yet; run the model once"
    if getattr(layer, "quantization_mode", None):
        return f"it is quantized ({layer.quantization_mode}); adjust the float model, then quantize"
    if getattr(layer, "lora_enabled", False):
        return "it has LoRA enabled, whose update would not be scaled; merge it first (save and load the model)"
    if not type(layer).call.__module__.startswith("keras.src."):
        return f"{type(layer).__name__} has a call of its own, which may do more than W x + b"
    if (activation := activation_of(layer)) not in KERAS_ACTIVATIONS:
        return f"its activation is {activation}; expected one of {', '.join(KERAS_ACTIVATIONS)}"
    if getattr(layer, "groups", 1) != 1:
        return "it is a grouped convolution"
    mine = {id(v) for v in layer.weights}
    for other in model._flatten_layers(include_self=False, recursive=True):
        direct = [*other._trainable_variables, *other._non_trainable_variables]
        if other is not layer and any(id(v) in mine for v in direct):
            return f"its weights are tied to {other.name}, which would change too; untie them first"
    return None
