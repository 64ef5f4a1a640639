"""Time of the exact path of logits on a GPU, compared with the host's path, plain torch and one read of the logits.

    PYTHONPATH=src python bench/path_gpu.py              # on the first CUDA device, into results/path-gpu.json
    PYTHONPATH=src python bench/path_gpu.py OUT.json     # into another file

It needs torch with Triton and takes about a minute. First the intervals of the kernel are compared with numpy's, on
many sizes, rules, ranges and rows that are hard to compare. Times are by the device's own clock for what runs on it
alone, and by the host's for what people call. Each is the median of several, with the lowest and the highest.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from levelhead import gamma_path, tune
from levelhead.core.counts import long_tail
from levelhead.path import intervals_torch
from path import SIGNAL, machine  # this folder's path.py

RESULTS = Path(__file__).parent.parent / "results"
DTYPES = torch.float32, torch.bfloat16, torch.float16
SIZES = (50_000, 8142), (50_000, 1000)
ASKED = {"kernel_ms": 2.5, "stretch_ms": 1.0}  # at 50,000 x 8,142 in float32
VARIANTS = {  # how the kernel reads a row
    "128 classes, 1 warp": {"block": 128, "warps": 1},
    "64 classes, 1 warp": {"block": 64, "warps": 1},
    "256 classes, 1 warp": {"block": 256, "warps": 1},
    "256 classes, 2 warps": {"block": 256, "warps": 2},
    "512 classes, 2 warps": {"block": 512, "warps": 2},
    "512 classes, 4 warps": {"block": 512, "warps": 4},
    "1024 classes, 4 warps": {"block": 1024, "warps": 4},
    "1024 classes, 8 warps": {"block": 1024, "warps": 8},
    "128 classes, 1 warp, 3 stages": {"block": 128, "warps": 1, "stages": 3},
    "256 classes, 2 warps, 3 stages": {"block": 256, "warps": 2, "stages": 3},
    "128 classes, 1 warp, accurate logarithm": {"block": 128, "warps": 1, "approximate": False},
}
DEVICE = "cuda"
BUDGET_S = 100  # after which no more is begun
START = time.perf_counter()


def hard_rows(rng: np.random.Generator, n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels with ties, zeros, signs, and sizes that are hard to compare among them."""
    x, y = 2 * rng.normal(size=(n, classes)) + 1, rng.integers(0, classes, n)
    x[np.arange(n), y] += rng.choice([0, 2, 4, 8], n)
    x[:8], x[8:12], x[12:14], x[16] = np.round(x[:8]), 0, -1, 1
    x[14, ::2] = 1e-40
    x[18], x[19], x[23] = -np.abs(x[18]), np.abs(x[19]), np.where(np.arange(classes) % 2, 1, -1)
    x[20], x[20, 0], x[21, 1:] = np.nextafter(np.float32(1), np.float32(2)), 1, x[21, 0]
    x[24:40] = -np.abs(x[24:40]) - 3
    x[40:56] = np.round(4 * x[40:56]) / 4
    x[15], x[17], x[22] = 1e-30 * x[15], 1e3 * x[17], 1e-3 * x[22]
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


def compare(rng: np.random.Generator) -> dict[str, Any]:
    """Compare the kernel's intervals with numpy's: units in the last place, ties at 0, and samples never right."""
    worst, rows, count, wrong = 0.0, 0, 0, []
    for logits, labels, counts, rule, reach in cases(rng):
        host = gamma_path(logits, labels, counts, rule=rule, range=reach, engine="numpy")
        there = gamma_path(
            logits.to(DEVICE), labels, counts, rule=rule, range=reach, engine="torch"
        )
        count, rows = count + 1, rows + len(labels)
        for name, ours, theirs in (("lo", there.lo, host.lo), ("hi", there.hi, host.hi)):
            with np.errstate(invalid="ignore"):
                gap = np.abs(ours - theirs) / np.spacing(np.maximum(np.abs(ours), np.abs(theirs)))
            gap = np.where(ours == theirs, 0, np.nan_to_num(gap, nan=np.inf))
            bad = np.flatnonzero((gap > 8) | ((ours == 0) != (theirs == 0)))
            worst = max(worst, float(gap.max()))
            if len(bad):
                at = int(bad[0])
                wrong.append(
                    [
                        list(logits.shape),
                        str(logits.dtype),
                        rule,
                        list(reach),
                        name,
                        at,
                        ours[at],
                        theirs[at],
                    ]
                )
    print(
        f"{count} cases, {rows} rows: at most {worst:g} units in the last place apart, {len(wrong)} wrong",
        flush=True,
    )
    for one in wrong[:8]:
        print("  WRONG", one, flush=True)
    return {"cases": count, "rows": rows, "worst_ulps": worst, "wrong": wrong[:20]}


def make(n: int, classes: int, dtype: torch.dtype) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Return logits as `path.data` makes them, on the device, with labels and counts."""
    counts, labels = long_tail(5000, classes, 100), np.random.default_rng(0).integers(0, classes, n)
    generator = torch.Generator(DEVICE).manual_seed(0)
    x = torch.randn((n, classes), device=DEVICE, generator=generator) * 2
    x += torch.from_numpy(0.5 * np.log(counts / counts.mean())).float().to(DEVICE)
    x[torch.arange(n, device=DEVICE), torch.from_numpy(labels).to(DEVICE)] += SIGNAL[classes]
    return x.to(dtype), labels, counts


def summary(times: list[float]) -> dict[str, float]:
    return {
        "median": float(np.median(times)),
        "min": min(times),
        "max": max(times),
        "repeats": len(times),
    }


def on_device(work: Callable[[], Any], repeats: int = 15) -> dict[str, float]:
    """Return milliseconds by the device's clock."""
    work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return summary(times)


def by_host(work: Callable[[], Any], repeats: int = 9, *, first: bool = True) -> dict[str, float]:
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
    return time.perf_counter() - START + seconds < BUDGET_S


def time_variants() -> list[dict[str, Any]]:
    """Time the kernel by the block that it reads, at the largest size."""
    from levelhead.path.intervals_triton import prepare

    logits, labels, counts = make(*SIZES[0], torch.float32)
    rule, rows = gamma_path(logits[:1, :], labels[:1], counts, engine="torch").rule, []
    for name, options in VARIANTS.items():
        if not left(30):
            break
        try:
            found = on_device(prepare(logits, labels, rule, (0.0, 2.0), **options))
        except Exception as error:  # one variant that does not compile leaves the others
            print(f"{name}: {error!r}"[:300], flush=True)
            continue
        rows.append({"name": name, **options, "ms": found})
        print(
            f"{name}: {found['median']:.3f} ms ({found['min']:.3f} to {found['max']:.3f})",
            flush=True,
        )
    return rows


def time_size(n: int, classes: int, dtype: torch.dtype) -> dict[str, Any]:
    """Time the kernel alone, the whole path, plain torch and one read of the logits."""
    from levelhead.path.intervals_triton import find_intervals_triton, prepare

    logits, labels, counts = make(n, classes, dtype)
    name = str(dtype).removeprefix("torch.")
    path = gamma_path(logits, labels, counts)
    launch = prepare(logits, labels, path.rule, path.range)
    reads = {
        "amax": on_device(lambda: logits.amax(1)),
        "sum": on_device(lambda: logits.sum(1, dtype=torch.float32)),
    }
    found: dict[str, Any] = {"n": n, "classes": classes, "dtype": name, "bytes": logits.nbytes}
    found["kernel_ms"], found["read_ms"] = (
        on_device(launch),
        min(reads.values(), key=lambda one: one["median"]),
    )
    found["path_ms"] = by_host(lambda: gamma_path(logits, labels, counts))
    found["launch_ms"] = by_host(
        lambda: find_intervals_triton(logits, labels, path.rule, path.range)
    )
    ends = launch()
    found["copy_to_host_ms"] = by_host(lambda: ends.cpu().numpy())
    known = intervals_torch.has_triton
    intervals_torch.has_triton = lambda logits: False
    try:
        found["plain_torch_ms"] = by_host(lambda: gamma_path(logits, labels, counts), 3)
    finally:
        intervals_torch.has_triton = known
    if dtype == torch.float32 and left(25):
        host = logits.cpu()
        found["host_ms"] = by_host(
            lambda: gamma_path(host, labels, counts, engine="numpy"), 1, first=False
        )
        found["times_faster_than_host"] = found["host_ms"]["median"] / found["path_ms"]["median"]
    kernel, whole = found["kernel_ms"]["median"], found["path_ms"]["median"]
    found["kernel_reads"] = kernel / found["read_ms"]["median"]
    found["times_faster_than_plain_torch"] = found["plain_torch_ms"]["median"] / whole
    print(
        f"{n} x {classes} {name}: kernel {kernel:.3f} ms, {found['kernel_reads']:.1f} reads of the logits; gamma_path "
        f"{whole:.2f} ms (launch {found['launch_ms']['median']:.2f}, copy to the host "
        f"{found['copy_to_host_ms']['median']:.2f}); plain torch {found['plain_torch_ms']['median']:.1f} ms; "
        f"host {found.get('host_ms', {}).get('median', float('nan')):.0f} ms",
        flush=True,
    )
    return found


def time_tune(n: int, classes: int) -> dict[str, Any]:
    """Time `tune` with all rules of logits on the device, beside the same on the host, and whether it is the same."""
    logits, labels, counts = make(n, classes, torch.float32)
    host, chosen = logits.cpu().numpy(), []
    ours = by_host(
        lambda: chosen.append(tune(logits, labels, counts)), 15
    )  # the first few are slower by a tenth
    theirs = by_host(
        lambda: chosen.append(tune(host, labels, counts)),
        5 if n * classes < 10**8 else 1,
        first=False,
    )
    same = (chosen[0].rule, chosen[0].gamma) == (chosen[-1].rule, chosen[-1].gamma)
    found = {
        "n": n,
        "classes": classes,
        "rule": chosen[0].rule,
        "same_choice": same,
        "tune_ms": ours,
    }
    found |= {"host_tune_ms": theirs, "times_faster_than_host": theirs["median"] / ours["median"]}
    print(
        f"tune, {n} x {classes}: {ours['median']:.0f} ms on the device, {theirs['median']:.0f} on the host, "
        f"the same choice: {same}",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", default=RESULTS / "path-gpu.json")
    given = parser.parse_args()
    if not torch.cuda.is_available() or not intervals_torch._knows_triton():
        print("no GPU with Triton here: nothing measured")
        return
    import triton  # type: ignore[import-not-found]

    device = {
        "device": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
    }
    result: dict[str, Any] = {
        "command": "python bench/path_gpu.py",
        "machine": {**machine(), **device, "threads": None},
        "asked": ASKED,
    }

    def save() -> None:
        result["seconds"] = time.perf_counter() - START
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    result["correct"] = compare(np.random.default_rng(0))
    save()
    result["sizes"] = [time_size(*SIZES[0], torch.float32)]
    save()
    result["variants"] = time_variants()
    save()
    for size in SIZES:
        for dtype in DTYPES:
            if (size, dtype) != (SIZES[0], torch.float32) and left(8):
                result["sizes"].append(time_size(*size, dtype))
                save()
    result["tune"] = [time_tune(*size) for size in reversed(SIZES) if left(15)]
    save()
    print(f"{result['seconds']:.0f} s in all, into {given.out}")


if __name__ == "__main__":
    main()
