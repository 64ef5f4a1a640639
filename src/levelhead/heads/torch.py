"""Heads in torch modules: read and written; found and adjusted in place by what is imported here."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..core.errors import LevelheadError
from ..core.head import Head, check_finite
from .adjusted import Adjusted
from .apply import adjust_, check_adjust, check_rescale, rescale_
from .editable import Editable
from .probe import NAME_HEAD
from .torch_find import find_head, linear_layers, unwrap
from .torch_model import TorchModel, editable_head

__all__ = [
    "Adjusted",
    "adjust_",
    "check_adjust",
    "check_rescale",
    "editable_head",
    "find_head",
    "linear_layers",
    "read",
    "rescale_",
    "unwrap",
    "write",
]


def read(model: nn.Module, *, layer: Any = None, example: Any = None, classes: int | None = None) -> Head:
    """Read the head of a torch module, as a copy.

    Args:
        model, layer, example, classes: as in `find_head`; of several heads, name the one to read.

    Returns:
        weight [K, d], bias [K] if the layer has one, and class names where the model's config has them.

    >>> read(nn.Linear(8, 3)).classes
    3
    """
    _, module = _single_head(model, layer, example, classes)
    found = TorchModel(model)
    return found.head(module, found.names(len(module.weight)))


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
    path, module = _single_head(model, layer, example, head.classes)
    TorchModel(model).write(path, module, check_finite(head))


def _single_head(model: nn.Module, layer: Any, example: Any, classes: int | None) -> tuple[str, Editable]:
    found = editable_head(model, layer=layer, example=example, classes=classes)
    if len(found) > 1:
        raise LevelheadError(f"{len(found)} heads feed the one output: {', '.join(found)}", advice=NAME_HEAD)
    return next(iter(found.items()))
