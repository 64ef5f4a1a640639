"""One process of two: `ddp_worker.py RANK MEET`, for test_train.py; it writes what it found beside MEET."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file

if __name__ == "__main__":
    from test_train import METHODS, RECIPE, data, fit, linear_net

    rank, meet = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
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
    dist.broadcast_object_list(
        inside, 0
    )  # as a checkpoint, which the first process writes and all of them read
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
    last_rows = torch.tensor(
        [[record["loss"], record["train_error"]] for record in records[-2:]], dtype=torch.float64
    )
    save_file({**end.weights, "last_rows": last_rows}, meet.with_name(f"{rank}.safetensors"))
    dist.destroy_process_group()
