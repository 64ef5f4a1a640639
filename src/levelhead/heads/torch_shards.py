"""Parameters of torch modules that FSDP2 shards: each process holds a part of a `DTensor`.

Every process calls the same functions at the same time, as `gather` waits for all of them. The
whole head is then in each, the adjustment is computed in each, and each keeps its own part of the
result: no process has to send anything back. torch.distributed is never imported here unless it is
loaded.
"""

import sys

import torch
from torch import Tensor, nn


def reshard(model: nn.Module) -> None:
    """Free the parameters that FSDP2 gathered for a forward pass.

    A change to those copies would be lost.
    """
    # Where nobody imported it, nothing is sharded; to import it takes more than a second.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return
    for module in model.modules():
        if isinstance(module, fsdp.FSDPModule):
            module.reshard()  # type: ignore[operator]


def is_sharded(x: Tensor) -> bool:
    """Return whether x is a DTensor, as FSDP2 makes parameters."""
    tensor = sys.modules.get("torch.distributed.tensor")
    return tensor is not None and isinstance(x, tensor.DTensor)


def gather(x: Tensor) -> Tensor:
    """Return the whole of a sharded tensor, in every process; x itself if it is not sharded.

    All processes must call it, or those that do wait forever.
    """
    if is_sharded(x):
        return x.full_tensor()  # type: ignore[attr-defined]
    return x


def place_like(values: Tensor, parameter: Tensor) -> Tensor:
    """Return whole values with the parameter's device and dtype.

    For a DTensor, only this process's part of them.
    """
    values = values.to(device=parameter.device, dtype=parameter.dtype)
    if not is_sharded(parameter):
        return values
    from torch.distributed.tensor import DTensor, Replicate

    assert isinstance(parameter, DTensor)
    mesh = parameter.device_mesh
    # Every process has all values; from there, none has to ask another for its part.
    whole = DTensor.from_local(values, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return whole.redistribute(placements=parameter.placements)


def new_bias(weight: Tensor) -> nn.Parameter:
    """Return a bias of zeros for a layer with this weight [K, ...], trained if the weight is."""
    with torch.inference_mode(False):  # else it could never be trained
        zeros = torch.zeros(len(weight), dtype=weight.dtype, device=weight.device)
        return nn.Parameter(zeros, weight.requires_grad)
