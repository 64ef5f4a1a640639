"""Heads in Keras 3 models, on any backend: kernels [d, K] of `Dense` and 1x1 convolutions.

`KerasModel` is the place of such a head; keras_find.py tells which layer it is.

Keras keeps a kernel with the classes last, where torch and `Head` have them first: it is transposed
when it is read and when it is written. Values go through numpy, so that nothing here knows whether
JAX, TensorFlow or torch is below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256

import numpy as np

from ..core.head import Head
from ..support.arrays import to_numpy
from ..support.errors import Advice, LevelheadError
from .candidates import NOT_ADDED, TUNE_SCALES, Example, LayerChoice
from .in_memory import InMemory
from .keras_find import (
    NAME_LAYER,
    KerasHead,
    KerasLayer,
    KerasTensor,
    activation_of,
    find_keras_head,
    followed_by_outputs,
    keras_library,
    keras_linear_layers,
    keras_units,
    variables_of,
)
from .keras_graph import KERAS_ACTIVATIONS
from .notes import run_all
from .place import Checked, Facts

HALF_DTYPES = ("float16", "bfloat16")


def read(
    model: KerasLayer,
    *,
    layer: LayerChoice = None,
    example: Example = None,
    classes: int | None = None,
) -> Head:
    """Read the head of a Keras model, as a copy.

    It has weight [K, d], the kernel transposed, and bias [K] if the layer has one.

    Args:
        model: a Keras 3 model, built.
        layer: the name of the head, or the layer itself, where it is not found; of several, the one
            to read.
        example: an input of the model, to find the head of a subclassed model by what it does.
        classes: K, where it is known.

    Raises:
        LevelheadError: no head is found, or it could not be written back.

    Example:
        ``head = read(model)``, then ``write(model, lh.adjust(head, tuned))``; `adjust_` does both.
    """
    return KerasModel(model).read(layer=layer, example=example, classes=classes)


def write(
    model: KerasLayer, head: Head, *, layer: LayerChoice = None, example: Example = None
) -> None:
    """Put a head into a Keras model, in place: variables and their dtypes stay the model's own.

    Args:
        model, layer, example: as in `read`.
        head: weight [K, d], and a bias exactly if the layer has one.

    Raises:
        LevelheadError: the head is of another shape, or not finite.

    Example:
        ``write(model, normalize(read(model)))``
    """
    KerasModel(model).replace(head, layer=layer, example=example)


class KerasModel(InMemory[KerasLayer]):
    """A Keras model whose head can be read and changed in place.

    Args:
        model: a model or layer of Keras 3; Keras 2 has other variables, and is refused.
    """

    advice = NAME_LAYER

    def __init__(self, model: KerasLayer) -> None:
        keras = keras_library()
        if int(keras.__version__.partition(".")[0]) < 3 or not isinstance(model, keras.Layer):
            got = f"{type(model).__module__}.{type(model).__name__}"
            raise LevelheadError(f"expected a model of Keras 3, got {got}")
        self.model = model
        self._graph_head = KerasHead({}, 0)  # what follows the layers, once they are found

    def find_layers(
        self, layer: LayerChoice, example: Example, classes: int | None
    ) -> dict[str, KerasLayer]:
        if not self.model.built:
            raise LevelheadError(
                "the model is not built yet; run it once, or call model.build(input_shape)"
            )
        self._graph_head = find_keras_head(self.model, layer, example, classes)
        return self._graph_head.layers

    def why_not(self, module: KerasLayer) -> str | None:
        """Return why a layer cannot be changed, or None.

        Scaling a column of its kernel must scale that output and nothing else. A subclass with a
        `call` of its own is refused; those of torch are tried on random features (torch_plain.py).
        """
        if not module.built:
            return "it is not built yet; run the model once"
        if getattr(module, "quantization_mode", None):
            return f"it is quantized ({module.quantization_mode}); adjust the float model, then quantize"
        if getattr(module, "lora_enabled", False):
            enabled = "it has LoRA enabled, whose update would not be scaled"
            return f"{enabled}; merge it first (save and load the model)"
        if not type(module).call.__module__.startswith("keras.src."):
            return f"{type(module).__name__} has a call of its own, which may do more than W x + b"
        activation = activation_of(module)
        if activation not in KERAS_ACTIVATIONS:
            return f"its activation is {activation}; expected one of {', '.join(KERAS_ACTIVATIONS)}"
        if getattr(module, "groups", 1) != 1:
            return "it is a grouped convolution"
        # Each layer's own variables, not those of layers inside it, which are asked by themselves.
        variables = {id(variable) for variable in module.weights}
        for other in self.model._flatten_layers(include_self=False, recursive=True):
            direct = [*other._trainable_variables, *other._non_trainable_variables]
            if other is not module and any(id(v) in variables for v in direct):
                return f"its weights are tied to {other.name}, which would change too; untie them first"
        return None

    def sizes(self) -> set[int | None]:
        return {keras_units(layer) for layer in keras_linear_layers(self.model)}

    def find_facts(self) -> Facts:
        keys = tuple(self.layers)
        modules = list(self.layers.values())
        task = None
        if self._graph_head.task == "multilabel":
            task = (self._graph_head.task, "a sigmoid follows it")
        elif self._graph_head.task == "multiclass":
            task = (self._graph_head.task, "a softmax follows it")
        half = None
        if modules[0].kernel.dtype in HALF_DTYPES:
            half = modules[0].kernel.dtype
        return Facts(
            keys=keys,
            where=", ".join(keys),
            sizes=tuple(keras_units(module) or 0 for module in modules),
            names=None,
            task=task,
            half=half,
            plain=self._graph_head.plain,
        )

    def head(self, module: KerasLayer, names: Sequence[str] | None = None) -> Head:
        """Return a copy of a layer's variables, the kernel transposed to [K, d].

        Half precision is widened to float32.
        """
        kernel = _numpy(module.kernel)
        weight = np.ascontiguousarray(kernel.reshape(-1, kernel.shape[-1]).T)
        bias = None
        if module.bias is not None:
            bias = _numpy(module.bias)
        return Head(weight, bias, names)

    def state(self, module: KerasLayer, *, weights: bool) -> tuple[str, tuple[str]]:
        variable = module.kernel if weights else module.bias
        digest = ""
        if variable is not None:
            digest = sha256(_numpy(variable).tobytes()).hexdigest()
        # Keras counts no changes: the values are their version.
        return digest, (digest,)

    def check_output(self, *, adds: bool) -> Checked | None:
        """Return how it is known that a change arrives in the logits: by the graph or the example.

        A graph tells only where the head was found by it; a layer that the caller named may be
        anywhere.
        """
        has_graph = bool(getattr(self.model, "outputs", None))
        if has_graph and not self.named:
            return "graph"  # by which the head was found
        if self.example is None:
            return None
        if self.named:
            self._check_scales()
        if adds:
            self._check_adds()
        return "example"

    def _check_scales(self) -> None:
        """Check on the example that scaling the columns of the layers named scales the outputs."""
        layers = list(self.layers.values())
        if not any(followed_by_outputs(self.model, self.example, layers)):
            columns = f"scaling the columns of {', '.join(self.layers)}"
            reason = f"{columns} does not scale the model's logits one by one on this example"
            instead = "name another layer, or leave out the example if a softmax follows"
            raise LevelheadError(f"{reason}; {instead}")

    def _check_adds(self) -> None:
        """Check on the example that what is added to a bias is added to the outputs.

        The summands are of either sign in turn, so that what cuts off or shifts them all is seen.
        """
        for layer in self.layers.values():
            if layer.bias is None:
                continue
            offsets = np.arange(keras_units(layer) or 0) % 2 * 2.0 - 1
            if not any(followed_by_outputs(self.model, self.example, [layer], offsets)):
                raise LevelheadError(NOT_ADDED.format("on this example", layer.name))

    def check_takes_bias(self, key: str) -> None:
        needs = f"cannot give {key} a bias, which this needs"
        reason = "a Keras layer without one is built so"
        instead = f"{TUNE_SCALES}, or build it with use_bias=True"
        advice = Advice("features", None, "of held-out samples to put offsets into the kernel")
        raise LevelheadError(f"{needs}: {reason}; {instead}", advice=advice)

    def keep(self, heads: Sequence[Head]) -> Callable[[], None]:
        # Copies on the host, through which restoring is an assignment on any backend.
        undo = []
        for layer in self.layers.values():
            for variable in variables_of(layer):
                undo.append(partial(variable.assign, _numpy(variable)))
        return partial(run_all, undo)

    def put(self, module: KerasLayer, head: Head) -> None:
        """Put a head into a module: its variables stay the layer's own."""
        module.kernel.assign(to_numpy(head.weight).T.reshape(tuple(module.kernel.shape)))
        if head.bias is not None:
            module.bias.assign(to_numpy(head.bias))


def normalize_columns(layer: KerasLayer) -> None:
    """Normalize the columns of a layer in place: ``w_i <- w_i / ||w_i||``.

    The kernel is [d, K] or [1, 1, d, K]; it is done on its backend, without checks.
    """
    ops = keras_library().ops
    kernel = layer.kernel.value
    # In half precision the sum of squares would be too coarse, or overflow.
    wide = kernel
    if layer.kernel.dtype in HALF_DTYPES:
        wide = ops.cast(kernel, "float32")
    all_but_columns = tuple(range(len(kernel.shape) - 1))
    length = ops.sqrt(ops.sum(ops.square(wide), axis=all_but_columns, keepdims=True))
    layer.kernel.assign(ops.cast(wide / length, layer.kernel.dtype))


def _numpy(variable: KerasTensor) -> np.ndarray:
    """Return a copy of a variable's values.

    Half precision is widened to float32, which is exact.
    """
    ops = keras_library().ops
    values = variable.value
    if variable.dtype in HALF_DTYPES:  # numpy has no bfloat16
        values = ops.cast(values, "float32")
    return np.array(ops.convert_to_numpy(values))
