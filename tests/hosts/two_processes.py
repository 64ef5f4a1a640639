"""One of two processes that train together; run by test_torch.py as `two_processes.py RANK FILE`."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.nn.parallel import DistributedDataParallel

from levelhead.hosts.torch import WVN

X, Y = torch.randn(16, 8, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 5


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5))


def train(model: nn.Module, layer: nn.Module, rows: slice, order: str) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    WVN(optimizer, layer, order=order)
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X[rows]), Y[rows]).backward()
        optimizer.step()


def check(rank: int, order: str) -> None:
    half = slice(8 * rank, 8 * rank + 8)
    alone = build()
    train(alone, alone[2], slice(None), order)
    if order == "algorithm":
        assert torch.allclose(alone[2].weight.norm(dim=1), torch.ones(5), atol=1e-6)

    model = build()
    train(DistributedDataParallel(model), model[2], half, order)
    assert torch.allclose(model[2].weight, alone[2].weight, atol=1e-5), "DDP"

    for dim in (0, 1):  # rows shared out whole, three and two; or every row cut in half
        model = build()
        for layer in (model[2], model):
            fully_shard(
                layer, shard_placement_fn=lambda p, dim=dim: Shard(dim if p.ndim > 1 else 0)
            )
        train(model, model[2], half, order)
        assert torch.allclose(model[2].weight.full_tensor(), alone[2].weight, atol=1e-5), (
            f"FSDP2 on dimension {dim}"
        )


if __name__ == "__main__":
    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2
    )
    for order in ("algorithm", "released"):
        check(int(sys.argv[1]), order)
    dist.barrier()
    dist.destroy_process_group()
