"""How long `tune` takes where the logits are on a GPU, beside the same choice on its host.

    python -m bench.speed.tune_gpu            # -> results/tune-gpu.json

Seconds are the median of several runs, each with the GPU's work finished.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import levelhead as lh

SIZES = ((50_000, 1_000), (50_000, 8_142))
ROOT = Path(__file__).parents[2]


def draw(n: int, classes: int) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Return logits on the GPU, labels and counts of a long tail of ratio 100."""
    counts = lh.counts.long_tail(5000, classes, 100)
    rng = np.random.default_rng(0)
    labels = rng.choice(classes, n, p=counts / counts.sum())
    generator = torch.Generator("cuda").manual_seed(0)
    logits = 1.5 * torch.randn(n, classes, device="cuda", generator=generator)
    logits[torch.arange(n), torch.as_tensor(labels)] += 3
    return (
        logits + torch.log(torch.tensor(counts / counts.max(), device="cuda").float()),
        labels,
        counts,
    )


def seconds(repeats: int, *samples: Any, **options: Any) -> tuple[float, lh.Tuned]:
    """Return the median time of a choice on samples, and what it chose."""
    result = lh.tune(*samples, **options)  # the first call compiles kernels
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = lh.tune(*samples, **options)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return float(np.median(times)), result


def main() -> None:
    """Measure every size, print a line each, and write the record."""
    warnings.simplefilter("ignore")
    rows = []
    for n, classes in SIZES:
        logits, labels, counts = draw(n, classes)
        gpu, there = seconds(9, logits, labels, counts)
        f1, _ = seconds(5, logits, labels, counts, metric="macro_f1")
        row = {"n": n, "classes": classes, "gpu_s": round(gpu, 4), "macro_f1_s": round(f1, 4)}
        if classes <= 1000:
            host = logits.cpu().numpy()
            row["host_s"], here = seconds(2, host, labels, counts)
            row["host_s"] = round(row["host_s"], 3)
            apart = np.abs(here.adjustment.offset - there.adjustment.offset).max()
            row["offsets_apart"] = float(apart)
        rows.append(row)
        print(row, flush=True)
    record = {"device": torch.cuda.get_device_name(), "command": "python -m bench.speed.tune_gpu"}
    out = ROOT / "results" / "tune-gpu.json"
    if len(sys.argv) > 1:
        out = Path(sys.argv[1])
    out.write_text(json.dumps(record | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
