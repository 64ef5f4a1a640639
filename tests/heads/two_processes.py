"""One of two processes that hold a model sharded by FSDP2; run by test_torch.py as `two_processes.py RANK FILE`."""

import copy
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

import levelhead as lh
from levelhead.heads.adjust import rescale_
from levelhead.heads.torch import read, write

COUNTS, FACTORS = [100, 25, 4, 1, 100], torch.tensor([1.0, 2.0, 5.0, 10.0, 1.0])


def check(shard: int, warm: bool, nested: bool) -> None:
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
    model, x = copy.deepcopy(whole), torch.randn(4, 6)
    for layer in [model[2], model] if nested else [model]:
        fully_shard(layer, shard_placement_fn=lambda p: Shard(shard if p.ndim > 1 else 0))
    if warm:  # a forward pass leaves the root's whole parameters behind, and a change to those would be lost
        with torch.no_grad():
            model(x)
    adjusted = rescale_(model, COUNTS, gamma=0.5)
    assert adjusted.layers == ("2",)
    model.reshard()  # as the next backward pass would
    with torch.no_grad():
        expected = whole(x) * FACTORS
        assert torch.allclose(model(x), expected, atol=1e-5), (shard, warm)
        adjusted.restore()
        assert torch.allclose(model(x), whole(x), atol=1e-6), (shard, warm)
    head = read(model, classes=5)
    assert torch.equal(head.weight, whole[2].weight)
    write(model, lh.adjust(head, lh.rules.Rescale(0.5), COUNTS))
    with torch.no_grad():
        assert torch.allclose(model(x), expected, atol=1e-5), (shard, warm)


def check_refusal() -> None:
    """A NaN in one process's rows is an error in both: neither changes anything."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 5)
    with torch.no_grad():
        layer.weight[4, 1] = torch.nan
    fully_shard(layer)
    with pytest.raises(ValueError, match="NaN or infinite weight values in class 4"):
        rescale_(layer, COUNTS, gamma=0.5)


if __name__ == "__main__":
    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2
    )
    for shard in (0, 1):
        check(shard, warm=False, nested=True)
        check(shard, warm=True, nested=False)
    check_refusal()
    dist.barrier()
    dist.destroy_process_group()
