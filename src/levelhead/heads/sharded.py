"""Parameters that FSDP2 shards over processes: DTensors, and modules that gather them for a forward pass."""

import sys
from typing import Any

from torch import Tensor, nn


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
