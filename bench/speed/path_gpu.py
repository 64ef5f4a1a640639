"""Time of the exact path of logits on a GPU, compared with the host's, plain torch and one read of the logits.

    PYTHONPATH=src python -m bench.speed.path_gpu              # on the first CUDA device, into results/path-gpu.json
    PYTHONPATH=src python -m bench.speed.path_gpu OUT.json     # into another file

It needs torch with Triton and takes about a minute. First the changes that the device finds are compared with the
host's, on many sizes, rules, ranges and rows that are hard to compare. Times are by the device's own clock for what
runs on it alone, and by the host's for what people call. Each is the median of several, with the lowest and highest.
What `tune` takes there is in bench/speed/tune_gpu.py.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from levelhead import gamma_path
from levelhead.core.counts import long_tail
from levelhead.core.gamma_path import find_path_rule
from levelhead.path import walk_torch
from levelhead.path.envelope import Envelope
from levelhead.path.walk import compute_envelope

from .path import SIGNAL, machine

RESULTS = Path(__file__).parents[2] / "results"
DTYPES = torch.float32, torch.bfloat16, torch.float16
SIZES = (50_000, 8142), (50_000, 1000)
DEVICE = "cuda"
BUDGET_S = 100  # after which no more is begun
START = time.perf_counter()


def hard_rows(rng: np.random.Generator, n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels with ties, zeros, signs, and sizes that are hard to compare among them."""
    x = 2 * rng.normal(size=(n, classes)) + 1
    y = rng.integers(0, classes, n)
    x[np.arange(n), y] += rng.choice([0, 2, 4, 8], n)
    # Ties: of rounded numbers, of rows that are one number, of quarters.
    x[:8] = np.round(x[:8])
    x[8:12] = 0
    x[12:14] = -1
    x[16] = 1
    x[40:56] = np.round(4 * x[40:56]) / 4
    # Signs: none is above 0, none below, in turn, and far below 0.
    x[18] = -np.abs(x[18])
    x[19] = np.abs(x[19])
    x[23] = np.where(np.arange(classes) % 2, 1, -1)
    x[24:40] = -np.abs(x[24:40]) - 3
    # One float32 apart, and equal but for the first.
    x[20] = np.nextafter(np.float32(1), np.float32(2))
    x[20, 0] = 1
    x[21, 1:] = x[21, 0]
    # Sizes: below the least normal float32, tiny, large and small.
    x[14, ::2] = 1e-40
    x[15] = 1e-30 * x[15]
    x[17] = 1e3 * x[17]
    x[22] = 1e-3 * x[22]
    return x, y


def cases(
    rng: np.random.Generator,
) -> Iterator[tuple[torch.Tensor, np.ndarray, np.ndarray, str, tuple[float, float]]]:
    """Yield logits, labels, counts, rule and range."""
    for n, classes in ((400, 2), (400, 3), (400, 40), (300, 257), (300, 1000), (96, 8142)):
        for dtype in DTYPES:
            x, y = hard_rows(rng, n, classes)
            logits = torch.from_numpy(x).to(dtype)
            rule: str
            for rule in ("rescale", "shift"):
                yield (
                    logits,
                    y,
                    rng.choice([1, 3, 5, 25, 125, 1000, 10**6], classes),
                    rule,
                    (0.0, 2.0),
                )
                yield logits, y, np.maximum(1, long_tail(5000, classes, 100)), rule, (0.0, 2.0)
                yield logits, y, rng.choice([7, 7, 1000], classes), rule, (-1.0, 3.0)
                yield logits, y, rng.integers(10**6, 10**6 + 5, classes), rule, (0.5, 7.0)
                yield logits, y, np.full(classes, 5), rule, (0.0, 1.0)


def in_order(changes: Envelope) -> np.ndarray:
    """Return sample, gamma, new and old class of the changes, [4, E], sample by sample."""
    order = np.lexsort((changes.gamma, changes.sample))
    fields = changes.sample, changes.gamma, changes.new_class, changes.old_class
    return np.stack([field[order] for field in fields])


def compare(rng: np.random.Generator) -> dict[str, Any]:
    """Compare changes with the host's: units in the last place, and every class to the last one."""
    worst = 0.0  # units in the last place
    rows = 0
    events = 0
    count = 0
    wrong = []
    for logits, _, counts, rule, reach in cases(rng):
        direction = find_path_rule(rule).direction(counts.astype(np.float64))
        host = compute_envelope(logits.float().numpy(), direction, reach)
        there = walk_torch.walk_on_device(logits.to(DEVICE), direction, reach)
        count += 1
        rows += len(logits)
        events += len(host.gamma)
        case = [list(logits.shape), str(logits.dtype), rule, list(reach)]
        if not np.array_equal(host.start, there.start) or len(host.gamma) != len(there.gamma):
            wrong.append([*case, "other changes", len(host.gamma), len(there.gamma)])
            continue
        ours = in_order(there)
        theirs = in_order(host)
        # A change must be of the same sample and classes, at a gamma that is the same up to rounding;
        # at exactly 0, where ties are decided, there is none.
        gap = np.abs(ours[1] - theirs[1]) / np.spacing(
            np.maximum(np.abs(ours[1]), np.abs(theirs[1]))
        )
        worst = max(worst, float(gap.max(initial=0)))
        same = (ours[[0, 2, 3]] == theirs[[0, 2, 3]]).all(axis=0)
        bad = np.flatnonzero((gap > 8) | ((ours[1] == 0) != (theirs[1] == 0)) | ~same)
        if len(bad):
            wrong.append([*case, ours[:, bad[0]].tolist(), theirs[:, bad[0]].tolist()])
    print(
        f"{count} cases, {rows} rows, {events} changes: at most {worst:g} units in the last place "
        f"apart, {len(wrong)} wrong",
        flush=True,
    )
    for difference in wrong[:8]:
        print("  WRONG", difference, flush=True)
    return {
        "cases": count,
        "rows": rows,
        "changes": events,
        "worst_ulps": worst,
        "wrong": wrong[:20],
    }


def make(n: int, classes: int, dtype: torch.dtype) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Return logits as `path.data` makes them, on the device, with labels and counts."""
    counts = long_tail(5000, classes, 100)
    labels = np.random.default_rng(0).integers(0, classes, n)
    generator = torch.Generator(DEVICE).manual_seed(0)
    x = torch.randn((n, classes), device=DEVICE, generator=generator) * 2
    x += torch.from_numpy(0.5 * np.log(counts / counts.mean())).float().to(DEVICE)
    x[torch.arange(n, device=DEVICE), torch.from_numpy(labels).to(DEVICE)] += SIGNAL[classes]
    return x.to(dtype), labels, counts


def summary(times: list[float]) -> dict[str, float]:
    """Return median, least and most of some times, as records have them."""
    return {
        "median": float(np.median(times)),
        "min": min(times),
        "max": max(times),
        "repeats": len(times),
    }


def on_device(work: Callable[[], object], repeats: int = 15) -> dict[str, float]:
    """Return milliseconds by the device's clock."""
    work()
    times = []
    for _ in range(repeats):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return summary(times)


def by_host(
    work: Callable[[], object], repeats: int = 9, *, first: bool = True
) -> dict[str, float]:
    """Return milliseconds by the host's clock, until the device is done."""
    if first:
        work()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return summary(times)


def left(seconds: float) -> bool:
    """Return whether so many seconds are left of the budget."""
    return time.perf_counter() - START + seconds < BUDGET_S


def time_size(n: int, classes: int, dtype: torch.dtype) -> dict[str, Any]:
    """Time the whole path, without Triton, on the host, and one read of the logits."""
    logits, labels, counts = make(n, classes, dtype)
    name = str(dtype).removeprefix("torch.")
    reads = {
        "amax": on_device(lambda: logits.amax(1)),
        "sum": on_device(lambda: logits.sum(1, dtype=torch.float32)),
    }
    row: dict[str, Any] = {"n": n, "classes": classes, "dtype": name, "bytes": logits.nbytes}
    row["read_ms"] = min(reads.values(), key=lambda times: times["median"])
    row["path_ms"] = by_host(lambda: gamma_path(logits, labels, counts))
    # As if Triton were not installed.
    has_triton = walk_torch.has_triton
    walk_torch.has_triton = lambda logits: False
    try:
        row["plain_torch_ms"] = by_host(lambda: gamma_path(logits, labels, counts), 3)
    finally:
        walk_torch.has_triton = has_triton
    whole = row["path_ms"]["median"]
    if dtype == torch.float32 and left(25):
        host = logits.cpu().numpy()
        row["host_ms"] = by_host(lambda: gamma_path(host, labels, counts), 1, first=False)
        row["times_faster_than_host"] = row["host_ms"]["median"] / whole
    row["path_reads"] = whole / row["read_ms"]["median"]
    row["times_faster_than_plain_torch"] = row["plain_torch_ms"]["median"] / whole
    print(
        f"{n} x {classes} {name}: gamma_path {whole:.2f} ms, {row['path_reads']:.1f} reads of the "
        f"logits; plain torch {row['plain_torch_ms']['median']:.1f} ms; "
        f"host {row.get('host_ms', {}).get('median', float('nan')):.0f} ms",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", default=RESULTS / "path-gpu.json")
    options = parser.parse_args()
    if not torch.cuda.is_available() or not walk_torch._knows_triton():
        print("no GPU with Triton here: nothing measured")
        return
    import triton  # type: ignore[import-not-found]

    device = {
        "device": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
    }
    result: dict[str, Any] = {
        "command": "python -m bench.speed.path_gpu",
        "machine": {**machine(), **device, "threads": None},
    }

    def save() -> None:
        result["seconds"] = time.perf_counter() - START
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    result["correct"] = compare(np.random.default_rng(0))
    save()
    result["sizes"] = [time_size(*SIZES[0], torch.float32)]
    save()
    for size in SIZES:
        for dtype in DTYPES:
            if (size, dtype) != (SIZES[0], torch.float32) and left(8):
                result["sizes"].append(time_size(*size, dtype))
                save()
    print(f"{result['seconds']:.0f} s in all, into {options.out}")


if __name__ == "__main__":
    main()
