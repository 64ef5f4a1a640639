"""Heads in torch modules: read, written, and changed in place with a way back.

Parameters may be sharded over processes by FSDP2: DTensors, and modules that gather them for a forward pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import LevelheadError
from ..core.head import Head
from ..core.per_class import names_in_config
from ..rules.rule import RULES
from .candidates import check_same_shape
from .editable import Editable, check_editable, check_takes_bias, new_bias
from .notes import leave_note, notes_about
from .place import Facts, InMemory
from .probe import NAME_HEAD
from .torch_find import check_adds, find_head, known_task, linear_layers, outputs, unwrap

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read(model: nn.Module, *, layer: Any = None, example: Any = None, classes: int | None = None) -> Head:
    """Read the head of a torch module, as a copy.

    Args:
        model, layer, example, classes: as in `find_head`; of several heads, name the one to read.

    Returns:
        weight [K, d], bias [K] if the layer has one, and class names where the model's config has them.

    >>> read(nn.Linear(8, 3)).classes
    3
    """
    return TorchModel(model).read(layer=layer, example=example, classes=classes)


def write(model: nn.Module, head: Head, *, layer: Any = None, example: Any = None) -> None:
    """Put a head into a torch module, in place: parameters, their dtype, device and sharding stay the module's own.

    Args:
        model, layer, example: as in `find_head`.
        head: weight [K, d] of the layer's own shape, and a bias exactly if the layer has one.

    >>> import numpy as np
    >>> layer = nn.Linear(2, 3, bias=False)
    >>> write(layer, Head(np.ones((3, 2))))
    >>> layer.weight.sum().item()
    6.0
    """
    TorchModel(model).replace(head, layer=layer, example=example)


class TorchModel(InMemory):
    """A torch module whose head can be read and changed in place."""

    advice = NAME_HEAD

    def __init__(self, model: nn.Module) -> None:
        self.model = unwrap(model)

    def find_layers(self, layer: Any, example: Any, classes: int | None) -> dict[str, Editable]:
        reshard(self.model)
        found = find_head(self.model, layer=layer, example=example, classes=classes)
        return {path: check_editable(path, module, self.model) for path, module in found.items()}

    def sizes(self) -> set[int | None]:
        return {outputs(module) for _, module in linear_layers(self.model)}

    @property
    def facts(self) -> Facts:
        keys, weights = tuple(self.layers), [module.weight for module in self.layers.values()]
        names = names_in_config(getattr(self.model, "config", None), len(weights[0]))
        half = str(weights[0].dtype) if weights[0].element_size() <= 2 else None
        where, task = ", ".join(keys) or "the head", known_task(self.model, keys[0])
        return Facts(keys, where, tuple(map(len, weights)), names, task, half)

    def head(self, module: Editable, names: Sequence[str] | None = None) -> Head:
        """Return a copy of a layer's parameters: weight flattened to [K, d], whole even if it is sharded."""
        weight = gather(module.weight.detach()).clone()
        bias = None if module.bias is None else gather(module.bias.detach()).clone()
        return Head(weight.flatten(1), bias, names)

    def state(self, module: Editable, rule: str) -> tuple[tuple[int, int], tuple[str, ...]]:
        """Return what tells whether the parameter that a rule changes is as it was."""
        parameter = module.weight if RULES[rule].multiplies else module.bias
        if parameter is None:
            return (0, 0), ("",)
        return (id(parameter), parameter._version), _digests(gather(parameter.detach()).cpu())

    def check_adds(self) -> None:
        check_adds(self.model, dict(self.layers), self.example)

    def check_takes_bias(self, key: str) -> None:
        check_takes_bias(key, self.layers[key])

    def keep(self, grown: Sequence[Editable]) -> Callable[[], None]:
        """Give layers their new biases, and return the way back to the values that all have now."""
        saved = [
            (path, name, p, p.detach().clone())
            for path, module in self.layers.items()
            for name, p in module.named_parameters(recurse=False)
        ]
        for module in grown:
            module.register_parameter("bias", new_bias(module))
        return partial(_restore, self.model, saved, tuple(grown))

    def put(self, path: str, module: Editable, head: Head) -> None:
        """Put a head into a layer: its parameters, their dtype, device and sharding stay the layer's own."""
        shape = [module.weight.shape[0], module.weight.shape[1:].numel()]
        check_same_shape(head, path or "the layer", shape, module.bias is not None)
        with torch.no_grad():
            for parameter, values in ((module.weight, head.weight), (module.bias, head.bias)):
                if parameter is not None:
                    parameter.copy_(place_like(torch.as_tensor(values).reshape(parameter.shape), parameter))

    def notes(self) -> list[Mapping[str, Any]]:
        """Return what configs and the files that the model was loaded from say was done to it."""
        return notes_about(
            self.model, lambda data, dtype: _digests(torch.frombuffer(bytearray(data), dtype=DTYPES[dtype]))
        )

    def leave_note(self, note: Mapping[str, Any]) -> Callable[[], None]:
        return leave_note(self.model, note)


def _digests(values: Tensor) -> tuple[str, ...]:
    """Return the sha256 of a tensor's bytes, as it is and rounded to the other dtypes that models are saved in."""
    others = [dtype for dtype in (torch.float32, torch.bfloat16, torch.float16) if dtype != values.dtype]
    rounded = [values, *(values.to(dtype) for dtype in others)]
    raw: list[Any] = [one.flatten().contiguous().view(torch.uint8).numpy() for one in rounded]
    return tuple(sha256(one).hexdigest() for one in raw)


def _restore(
    model: nn.Module, saved: Sequence[tuple[str, str, nn.Parameter, Tensor]], grown: Sequence[nn.Module]
) -> None:
    reshard(model)
    held = {id(p) for p in model.parameters()}
    for path, name, parameter, _ in saved:
        if id(parameter) not in held:
            raise LevelheadError(
                f"cannot restore {path or 'the head'}: its {name} was replaced since (a new layer"
                ", or load_state_dict with assign); load the weights the model had before"
            )
    with torch.no_grad():
        for _, _, parameter, original in saved:
            parameter.copy_(original)
    for layer in grown:
        layer.register_parameter("bias", None)


def reshard(model: nn.Module) -> None:
    """Free the parameters that FSDP2 gathered for a forward pass: a change to those copies would be lost."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    for module in model.modules() if fsdp is not None else ():
        if isinstance(module, fsdp.FSDPModule):  # type: ignore[union-attr]
            module.reshard()  # type: ignore[operator]


def is_sharded(x: Tensor) -> bool:
    """Return whether x is a DTensor, as FSDP2 makes parameters."""
    tensor = sys.modules.get("torch.distributed.tensor")
    return tensor is not None and isinstance(x, tensor.DTensor)


def gather(x: Tensor) -> Tensor:
    """Return the whole of a sharded tensor, in every process; x itself if it is not sharded."""
    return x.full_tensor() if is_sharded(x) else x  # type: ignore[attr-defined]


def place_like(values: Tensor, parameter: Any) -> Tensor:
    """Return whole values with the parameter's device and dtype and, for a DTensor, only this process's part."""
    values = values.to(device=parameter.device, dtype=parameter.dtype)
    if not is_sharded(parameter):
        return values
    from torch.distributed.tensor import DTensor, Replicate

    mesh = parameter.device_mesh
    whole = DTensor.from_local(values, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return whole.redistribute(placements=parameter.placements)
