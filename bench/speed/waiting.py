"""How long `tune` and `gamma_path` take, in seconds and in passes of one softmax over the same logits.

    python -m bench.speed.waiting            # -> results/waiting.json
    python -m bench.speed.waiting --small    # small sets, nothing written

Everything is timed in turn in one run, and each number is the median of several rounds. A pass is the softmax of all
logits by numpy, in their own precision. Memory is that of a process of its own that tunes on a memory-mapped file: its
anonymous memory at the peak, without the pages of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import levelhead as lh

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "results" / "waiting.json"
SIZES = ((10_000, 10), (10_000, 100), (50_000, 1_000))
FILE_SIZE = (500_000, 1_000)  # 2 GB of float32
SMALL_SIZES = ((500, 10), (500, 100))
SMALL_FILE_SIZE = (2_000, 100)
# Added to the logit of the true class: 71, 38 and 42 % are right, about as many as for networks that were trained
# plainly on CIFAR-10-LT, CIFAR-100-LT and ImageNet-LT.
SIGNAL = {10: 4.62, 100: 4.6, 1_000: 6.35}
# The process that tunes. The pages of a file that is mapped count as memory too, but the system can
# drop them at any time: what it cannot is RssAnon, of which the kernel keeps no highest mark, so a
# thread looks every 5 ms.
TUNE_ON_FILE = """
import json, re, sys, threading, time, warnings
from pathlib import Path
import numpy as np
import levelhead as lh

warnings.simplefilter("ignore")
peak = 0
done = threading.Event()

def watch():
    global peak
    while not done.wait(0.005):
        status = Path("/proc/self/status").read_text()
        peak = max(peak, int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]))

watcher = threading.Thread(target=watch)
watcher.start()
logits = np.load(sys.argv[1], mmap_mode="r")
labels = np.load(sys.argv[2])
counts = np.load(sys.argv[3])
start = time.perf_counter()
tuned = lh.tune(logits, labels, counts)
seconds = time.perf_counter() - start
done.set()
watcher.join()
print(json.dumps({"seconds": seconds, "peak_mb": peak / 1024, "verdict": tuned.verdict}))
"""


def counts_of(classes: int) -> np.ndarray:
    """Return the counts of a long tail of ratio 100, [K]."""
    return lh.counts.long_tail(5000, classes, 100)


def draw(labels: np.ndarray, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Return logits [N, K] like those of a network that was trained on a long tail."""
    counts = counts_of(classes)
    logits = rng.standard_normal((len(labels), classes), np.float32)
    logits *= 2
    logits += (0.5 * np.log(counts / counts.mean())).astype(np.float32)
    logits[np.arange(len(labels)), labels] += SIGNAL[classes]
    return logits


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits, [N, K]: the pass that everything is compared with."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    return odds


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def time_size(n: int, classes: int, rounds: int) -> dict[str, Any]:
    """Return seconds and passes of each call on logits [n, classes], timed in turn."""
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=n)
    logits = draw(labels, classes, rng)
    counts = counts_of(classes)

    def follow_path() -> tuple[np.ndarray, np.ndarray]:
        path = lh.gamma_path(logits, labels, counts)
        return path.error, path.balanced_error

    calls: dict[str, Callable[[], object]] = {
        "softmax": lambda: softmax(logits),
        "tune": lambda: lh.tune(logits, labels, counts),
        "tune, macro_f1": lambda: lh.tune(logits, labels, counts, metric="macro_f1"),
        "gamma_path": follow_path,
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for work in calls.values():
        work()  # the first call loads what is loaded once
    for _ in range(rounds):
        for name, work in calls.items():
            times[name].append(seconds_of(work))
    medians = {name: float(np.median(taken)) for name, taken in times.items()}
    row = {
        "n": n,
        "classes": classes,
        "seconds": {name: round(value, 5) for name, value in medians.items()},
        "passes": {name: round(value / medians["softmax"], 2) for name, value in medians.items()},
        "spread": {
            name: [round(min(taken), 5), round(max(taken), 5)] for name, taken in times.items()
        },
    }
    print(row, flush=True)
    return row


def tune_file(n: int, classes: int) -> dict[str, Any]:
    """Tune on a memory-mapped file in a process of its own; return its time and its memory."""
    with tempfile.TemporaryDirectory() as folder:
        logits = Path(folder, "logits.npy")
        labels = Path(folder, "labels.npy")
        counts = Path(folder, "counts.npy")
        rng = np.random.default_rng(0)
        all_labels = rng.integers(classes, size=n)
        file = np.lib.format.open_memmap(logits, "w+", np.float32, (n, classes))
        step = max(
            1, 10_000_000 // classes
        )  # rows at a time, 40 MB: the file is larger than memory may be
        for first in range(0, n, step):
            rows = all_labels[first : first + step]
            file[first : first + step] = draw(rows, classes, rng)
        file.flush()
        del file
        np.save(labels, all_labels)
        np.save(counts, counts_of(classes))
        command = [sys.executable, "-c", TUNE_ON_FILE, str(logits), str(labels), str(counts)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    row = {"n": n, "classes": classes, "file_mb": round(4e-6 * n * classes, 1)}
    measured = json.loads(done.stdout)
    row["seconds"] = round(measured["seconds"], 2)
    row["peak_mb"] = round(measured["peak_mb"])
    print(row, flush=True)
    return row


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="small sets; write nothing")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = SIZES
    file_size = FILE_SIZE
    if options.small:
        sizes = SMALL_SIZES
        file_size = SMALL_FILE_SIZE
    record = {
        "what": "seconds and passes of one softmax, medians of rounds",
        "command": "python -m bench.speed.waiting",
        "machine": machine(),
        "rounds": options.rounds,
        "rows": [time_size(n, classes, options.rounds) for n, classes in sizes],
        "file": tune_file(*file_size),
    }
    if not options.small:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
