"""One process of two: `python ddp_worker.py RANK WORLD FOLDER`, for test_train.py."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parent))
from test_train import METHODS, RECIPE, data, fit, linear_net

if __name__ == "__main__":
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=world)
    records, states = [], []
    end = fit(
        linear_net(),
        data(61),
        RECIPE,
        METHODS["wvn"],
        seed=1,
        on_epoch=lambda _, record: records.append(record),
        on_step=lambda now: states.append(now()),
    )
    inside = [states[-3]]
    dist.broadcast_object_list(inside, 0)  # as a checkpoint, which the first process writes and all of them read
    again = fit(
        linear_net(),
        data(61),
        RECIPE,
        METHODS["wvn"],
        seed=1,
        start=inside[0],
        on_epoch=lambda _, record: records.append(record),
    )
    assert all(torch.equal(again.weights[name], end.weights[name]) for name in end.weights)
    last_rows = torch.tensor([[record["loss"], record["train_error"]] for record in records[-2:]], dtype=torch.float64)
    save_file({**end.weights, "last_rows": last_rows}, folder / f"{rank}.safetensors")
    dist.destroy_process_group()
