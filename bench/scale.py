"""What a choice beyond one machine costs: the two passes over shards, their state, and a head of a million classes.

    python bench/scale.py [--rounds 3] [--out results/scale.json] [--page docs/scale.md]

Each part runs in a process of its own, so that its peak memory is its own. Times of one part are of rounds in which all
its steps run one after another. The page gets the tables and an estimate for 10^10 samples, which is nothing but these
rates multiplied.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

NUMBERS = 20_000_000  # logits in a shard
CLASSES = (10, 100, 1000)
STREAM = (40, 12_500, 1000)  # chunks, rows, classes: 2 GB of float32
HEAD = (1_000_000, 64, 4)  # classes, features, shards


def shard(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    logits = rng.standard_normal((rows, classes), np.float32) + 4
    logits[np.arange(rows), labels] += 3
    logits *= np.linspace(1.0, 0.7, classes, dtype=np.float32)
    return logits, labels


def counts_of(classes: int) -> np.ndarray:
    return np.geomspace(1000, 10, classes).astype(np.int64)


def measure_passes(rounds: int) -> dict:
    import levelhead as lh
    from levelhead.choice.tune_partial import plan_second_pass

    found = {}
    for classes in CLASSES:
        rows = min(200_000, NUMBERS // classes)
        (logits, labels), counts = shard(rows, classes, 0), counts_of(classes)
        whole = lh.Partial.of(logits, labels, counts, shares=False)
        second, quick = plan_second_pass(whole), plan_second_pass(whole, criterion="balanced_error")
        data = whole.to_bytes()
        events = second.look(logits, labels)
        steps: dict[str, Callable[[], object]] = {
            "gamma_path": lambda l=logits, y=labels, c=counts: lh.gamma_path(l, y, c),
            "first pass": lambda l=logits, y=labels, c=counts: lh.Partial.of(l, y, c, shares=False),
            "first pass, shares too": lambda l=logits, y=labels, c=counts: lh.Partial.of(l, y, c),
            "second pass": lambda s=second, l=logits, y=labels: s.look(l, y),
            "second pass, error alone": lambda s=quick, l=logits, y=labels: s.look(l, y),
            "add two": lambda w=whole: w + w,
            "to bytes": whole.to_bytes,
            "from bytes": lambda d=data: lh.Partial.from_bytes(d),
        }
        seconds = {name: [clock(step) for _ in range(rounds)] for name, step in steps.items()}
        middle = {name: float(np.median(values)) for name, values in seconds.items()}
        found[str(classes)] = {
            "rows": rows,
            "seconds": {name: spread(values) for name, values in seconds.items()},
            "rows a second, first pass": round(rows / middle["first pass"]),
            "rows a second, second pass": round(rows / middle["second pass"]),
            "rows a second, second pass, error alone": round(rows / middle["second pass, error alone"]),
            "first pass in gamma_paths": round(middle["first pass"] / middle["gamma_path"], 1),
            "state, bytes": whole.nbytes,
            "as bytes": len(data),
            "cells looked into": int(second.cells.sum()),
            "events, bytes": events.nbytes,
        }
    return found


def measure_stream(rounds: int) -> dict:
    import levelhead as lh

    chunks, rows, classes = STREAM
    counts = counts_of(classes)

    def read(n: int = chunks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (shard(rows, classes, seed) for seed in range(n))

    making = clock(lambda: [None for _ in read()])
    before = peak()
    start = time.perf_counter()
    tuned = lh.tune(read, counts=counts, rule="rescale")
    took = time.perf_counter() - start
    return {
        "samples": chunks * rows,
        "classes": classes,
        "bytes of logits": 4 * chunks * rows * classes,
        "seconds, both passes, without making the samples": round(took - 2 * making, 1),
        "peak memory, MB": round(peak()),
        "peak memory before, MB": round(before),
        "gamma": tuned.gamma,
    }


def measure_same(rounds: int) -> dict:
    import levelhead as lh

    _, rows, classes = STREAM
    chunks, counts = [shard(rows, classes, seed) for seed in range(3)], counts_of(classes)
    logits, labels = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    options = {"rule": "rescale", "bootstrap": 0}
    gammas = lh.tune(chunks, counts=counts, **options).gamma, lh.tune(logits, labels, counts, **options).gamma
    return {"samples": len(labels), "gamma of chunks": gammas[0], "gamma of all at once": gammas[1]}


def measure_head(rounds: int) -> dict:
    classes, features, shards = HEAD
    folder = Path(tempfile.mkdtemp())
    try:
        make_sharded(folder / "model", classes, features, shards)
        np.save(folder / "counts.npy", np.maximum(1, 1e6 / np.arange(1, classes + 1)).astype(np.int64))
        code = (
            "import resource, sys, time, numpy as np\n"
            "from levelhead.files.rescale import rescale_file\n"
            "start = time.perf_counter()\n"
            f"rescale_file(sys.argv[1], sys.argv[2], np.load({str(folder / 'counts.npy')!r}), gamma=0.3, force=True)\n"
            "print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
        )
        command = [sys.executable, "-c", code, str(folder / "model"), str(folder / "out")]
        lines = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(rounds)]
        seconds, memory = zip(*(map(float, line.split()) for line in lines), strict=True)
        copies = [clock(lambda: shutil.copytree(folder / "model", folder / "copy")) for _ in range(1)]
    finally:
        shutil.rmtree(folder)
    return {
        "classes": classes,
        "features": features,
        "shards": shards,
        "bytes of the head": 4 * classes * features,
        "seconds": spread(list(seconds)),
        "seconds of a plain copy": round(copies[0], 2),
        "peak memory, MB": round(max(memory)),
    }


def make_sharded(folder: Path, classes: int, features: int, shards: int) -> None:
    """Write a sharded safetensors model whose last shard is the head, block by block."""
    folder.mkdir()
    rng, places = np.random.default_rng(0), {}
    for i in range(shards):
        name = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        key, rows = ("classifier.weight", classes) if i == shards - 1 else (f"body.{i}.weight", classes // 2)
        entry = {"dtype": "F32", "shape": [rows, features], "data_offsets": [0, 4 * rows * features]}
        header = json.dumps({"__metadata__": {"format": "pt"}, key: entry}).encode()
        header += b" " * (-len(header) % 8)
        with (folder / name).open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for first in range(0, rows, 10_000):
                file.write(rng.standard_normal((min(10_000, rows - first), features), np.float32).tobytes())
        places[key] = name
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


PARTS = {"passes": measure_passes, "stream": measure_stream, "same": measure_same, "head": measure_head}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default="results/scale.json")
    parser.add_argument("--page", default="docs/scale.md")
    parser.add_argument("--part", choices=PARTS)
    args = parser.parse_args()
    if args.part:
        print(json.dumps(PARTS[args.part](args.rounds)))
        return
    result: dict = {"what": "a choice over shards: rates, state and memory; median, lowest and highest over rounds"}
    for part in PARTS:
        command = [sys.executable, __file__, "--part", part, "--rounds", str(args.rounds)]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        result[part] = json.loads(lines.splitlines()[-1])
    result |= {
        "rounds": args.rounds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_average": round(os.getloadavg()[0], 1),
        "command": "python bench/scale.py",
    }
    Path(args.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    write_page(Path(args.page), result)
    print(json.dumps(result, indent=1))


def write_page(page: Path, result: dict) -> None:
    """Put what was measured between the marks of the page."""
    text = page.read_text(encoding="utf-8")
    for name, lines in {"measured": measured(result), "estimate": estimate(result)}.items():
        block = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, n = re.subn(block, lambda m, lines=lines: m[1] + "\n".join(lines) + "\n" + m[2], text, flags=re.DOTALL)
        if n != 1:
            raise ValueError(f"{page}: expected one <!-- {name} --> block, found {n}")
    page.write_text(text, encoding="utf-8")


def measured(result: dict) -> list[str]:
    rows = [
        f"| {int(classes):,} | {one['rows a second, first pass']:,} | {one['rows a second, second pass']:,} | "
        f"{one['rows a second, second pass, error alone']:,} | "
        f"{one['first pass in gamma_paths']} | {one['state, bytes'] / 1e6:.1f} MB | {one['as bytes'] / 1e6:.2f} MB |"
        for classes, one in result["passes"].items()
    ]
    stream, head = result["stream"], result["head"]
    loaded = f"load {result['load_average']}"
    same = "the same gamma" if len(set(list(result["same"].values())[1:])) == 1 else "ANOTHER gamma"
    return [
        "| classes | samples per second, first pass | second pass | second, error alone | first pass, in "
        "`gamma_path`s | state | as bytes |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"{stream['samples']:,} samples of {stream['classes']:,} classes, {stream['bytes of logits'] / 1e9:.0f} GB of "
        f"logits in chunks of 50 MB: {stream['seconds, both passes, without making the samples']:.0f} s for both "
        f"passes with all intervals, {stream['peak memory, MB']} MB of memory at most.",
        f"{result['same']['samples']:,} of them give {same} in chunks as all at once.",
        f"A head of {head['classes']:,} classes ({head['bytes of the head'] / 1e6:.0f} MB, {head['shards']} shards): "
        f"rescaled in {head['seconds']['median']:.1f} s with {head['peak memory, MB']} MB of memory.",
        f"Median of {result['rounds']} rounds; {result['machine']}, {loaded}; `{result['command']}`.",
    ]


def estimate(
    result: dict, samples: float = 1e10, classes: int = 1000, cores: int = 256, rows: float = 33_000
) -> list[str]:
    one = result["passes"][str(classes)]
    threads = os.cpu_count() or 1
    passes = ("first pass", "second pass, error alone")
    hours = [samples / one[f"rows a second, {name}"] * threads / 3600 for name in passes]
    tasks = samples / rows
    return [
        f"- The logits are {samples * classes * 2 / 1e12:.0f} TB in half precision; read twice, where they are.",
        f"- At the rates above, the first pass takes {hours[0]:,.0f} core hours and the second, by the error alone, "
        f"{hours[1]:,.0f}: "
        f"{sum(hours) / cores:.1f} hours on {cores} cores, if reading keeps up with "
        f"{samples * classes * 2 / (hours[0] / cores * 3600) / 1e9:.1f} GB/s.",
        f"- {tasks:,.0f} tasks of {rows:,.0f} samples each send {one['as bytes'] / 1e6:.2f} MB, "
        f"{tasks * one['as bytes'] / 1e9:.0f} GB in all, to tasks that add 16 at a time.",
        f"- The sum is {one['state, bytes'] / 1e6:.0f} MB, whatever the number of samples; its counts have room for "
        f"{2**63 / samples:.0e} times as many.",
    ]


def clock(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def spread(values: list[float]) -> dict[str, float]:
    found = np.array(values)
    return {name: round(float(f(found)), 4) for name, f in (("median", np.median), ("low", np.min), ("high", np.max))}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
