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
    records = []
    end = fit(linear_net(), data(61), RECIPE, METHODS["wvn"], seed=1, on_epoch=lambda _, record: records.append(record))
    loss = torch.tensor(records[-1]["loss"], dtype=torch.float64)
    save_file({**end.weights, "loss": loss}, folder / f"{rank}.safetensors")
    dist.destroy_process_group()
