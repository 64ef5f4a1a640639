"""A sweep over a folder of images on a CPU: two runs at a time against one after the other, in one session.

    python bench/sweep.py

Both train the same specs on the same images (scikit-learn's digits, written as a folder of PNG files) with all cores of
the machine: one process with all of them, or two that share them. The order of the two alternates.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits

from levelhead_lab.runs.spec import Spec
from levelhead_lab.runs.sweep import sweep

ROUNDS, EPOCHS, SIZE = 2, 2, 16


def main() -> None:
    rows: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "digits"
        write_folder(folder)
        specs = [
            Spec(
                str(folder),
                method=method,
                profile="long-tail",
                ratio=10,
                size=SIZE,
                epochs=EPOCHS,
                seed=seed,
            )
            for method in ("baseline", "wvn")
            for seed in (0, 1)
        ]
        for turn in range(ROUNDS):
            for workers in (1, 2) if turn % 2 else (2, 1):
                began = time.perf_counter()
                ended = sweep(specs, Path(place) / f"runs-{turn}-{workers}", workers=workers)
                rows[workers].append(time.perf_counter() - began)
                assert all(one.run.finished for one in ended)
                print(f"{workers} at a time: {rows[workers][-1]:.1f} s", flush=True)
    one, two = (statistics.median(rows[workers]) for workers in (1, 2))
    found = {
        "command": "python bench/sweep.py",
        "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "trainings": len(specs),
        "epochs each": EPOCHS,
        "images": f"{len(load_digits().target)} of {SIZE}x{SIZE}, before the long tail of ratio 10",
        "rounds": ROUNDS,
        "seconds, one after the other": [round(x, 1) for x in rows[1]],
        "seconds, two at a time": [round(x, 1) for x in rows[2]],
        "times as fast": round(one / two, 2),
    }
    Path("results/sweep.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def write_folder(folder: Path) -> None:
    """Write the digits as FOLDER/CLASS/NUMBER.png."""
    images, labels = load_digits(return_X_y=True)
    for i, (image, label) in enumerate(zip(images.reshape(-1, 8, 8), labels, strict=True)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        pixels = (image * 255 / 16).astype(np.uint8)
        Image.fromarray(pixels).resize((SIZE, SIZE)).save(folder / str(label) / f"{i:04}.png")


if __name__ == "__main__":
    main()
