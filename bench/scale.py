"""What a choice beyond one machine costs: the paths of chunks, their size, and a head of a million classes.

    python bench/scale.py [--rounds 3] [--out results/scale.json] [--page docs/scale.md]

Each part runs in a process of its own, so that its peak memory is its own. Times of one part are of rounds in which all
its steps run one after another. The page gets the tables and an estimate for 10^8 samples, which is nothing but these
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


def measure_paths(rounds: int) -> dict:
    import levelhead as lh
    from levelhead.choice.chunked import chunk_path

    found = {}
    for classes in CLASSES:
        rows = min(200_000, NUMBERS // classes)
        (logits, labels), counts = shard(rows, classes, 0), counts_of(classes)
        steps: dict[str, Callable[[], object]] = {
            "gamma_path": lambda l=logits, y=labels, c=counts: lh.gamma_path(l, y, c),
            "path": lambda l=logits, y=labels, c=counts: chunk_path(l, y, c, rule="rescale"),
            "path, recalls alone": lambda l=logits, y=labels, c=counts: chunk_path(
                l, y, c, rule="rescale", with_changes=False
            ),
        }
        seconds = {name: [clock(step) for _ in range(rounds)] for name, step in steps.items()}
        middle = {name: float(np.median(values)) for name, values in seconds.items()}
        sizes = {
            name: path_bytes(chunk_path(logits, labels, counts, rule=name))
            for name in ("rescale", "auto")
        }
        found[str(classes)] = {
            "rows": rows,
            "seconds": {name: spread(values) for name, values in seconds.items()},
            "rows a second": round(rows / middle["path"]),
            "rows a second, recalls alone": round(rows / middle["path, recalls alone"]),
            "in gamma_paths": round(middle["path"] / middle["gamma_path"], 1),
            "bytes a sample": round(sizes["rescale"] / rows),
            "bytes a sample, auto": round(sizes["auto"] / rows),
        }
    return found


def path_bytes(part) -> int:
    """Return the bytes of a chunk's paths, each array once, without the rows kept for the temperature."""
    arrays = {id(part.winners): part.winners, id(part.true): part.true}
    for path in part.paths.values():
        for one in (path, path.changes):
            arrays |= {
                id(value): value for value in vars(one).values() if isinstance(value, np.ndarray)
            }
    return sum(array.nbytes for array in arrays.values())


def measure_stream(rounds: int) -> dict:
    import levelhead as lh

    chunks, rows, classes = STREAM
    counts = counts_of(classes)

    def read(n: int = chunks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (shard(rows, classes, seed) for seed in range(n))

    making = clock(lambda: [None for _ in read()])
    before = peak()
    start = time.perf_counter()
    tuned = lh.tune_chunks(read(), counts, rule="rescale")
    took = time.perf_counter() - start
    return {
        "samples": chunks * rows,
        "classes": classes,
        "bytes of logits": 4 * chunks * rows * classes,
        "seconds, without making the samples": round(took - making, 1),
        "peak memory, MB": round(peak()),
        "peak memory before, MB": round(before),
        "gamma": tuned.gamma,
    }


def measure_same(rounds: int) -> dict:
    import levelhead as lh

    _, rows, classes = STREAM
    chunks, counts = [shard(rows, classes, seed) for seed in range(3)], counts_of(classes)
    logits, labels = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    found = [
        lh.tune_chunks(chunks, counts, rule="rescale"),
        lh.tune(logits, labels, counts, rule="rescale"),
    ]
    of_chunks, at_once = ([one.gamma, *(one.interval or ())] for one in found)
    return {
        "samples": len(labels),
        "gamma and interval of chunks": of_chunks,
        "of all at once": at_once,
    }


def measure_head(rounds: int) -> dict:
    classes, features, shards = HEAD
    folder = Path(tempfile.mkdtemp())
    try:
        make_sharded(folder / "model", classes, features, shards)
        np.save(
            folder / "counts.npy", np.maximum(1, 1e6 / np.arange(1, classes + 1)).astype(np.int64)
        )
        code = (
            "import resource, sys, time, numpy as np\n"
            "from levelhead.files.model import rescale_file\n"
            "start = time.perf_counter()\n"
            f"rescale_file(sys.argv[1], sys.argv[2], np.load({str(folder / 'counts.npy')!r}), gamma=0.3, force=True)\n"
            "print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
        )
        command = [sys.executable, "-c", code, str(folder / "model"), str(folder / "out")]
        lines = [
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for _ in range(rounds)
        ]
        seconds, memory = zip(*(map(float, line.split()) for line in lines), strict=True)
        copies = [
            clock(lambda: shutil.copytree(folder / "model", folder / "copy")) for _ in range(1)
        ]
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
        key, rows = (
            ("classifier.weight", classes)
            if i == shards - 1
            else (f"body.{i}.weight", classes // 2)
        )
        entry = {
            "dtype": "F32",
            "shape": [rows, features],
            "data_offsets": [0, 4 * rows * features],
        }
        header = json.dumps({"__metadata__": {"format": "pt"}, key: entry}).encode()
        header += b" " * (-len(header) % 8)
        with (folder / name).open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for first in range(0, rows, 10_000):
                file.write(
                    rng.standard_normal((min(10_000, rows - first), features), np.float32).tobytes()
                )
        places[key] = name
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": places})
    )


PARTS = {
    "paths": measure_paths,
    "stream": measure_stream,
    "same": measure_same,
    "head": measure_head,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default="results/scale.json")
    parser.add_argument("--page", default="docs/scale.md")
    parser.add_argument("--part", choices=PARTS)
    args = parser.parse_args()
    if args.part:
        print(json.dumps(PARTS[args.part](args.rounds)))
        return
    result: dict = {
        "what": "a choice over shards: rates, state and memory; median, lowest and highest over rounds"
    }
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
        text, n = re.subn(
            block,
            lambda m, lines=lines: m[1] + "\n".join(lines) + "\n" + m[2],
            text,
            flags=re.DOTALL,
        )
        if n != 1:
            raise ValueError(f"{page}: expected one <!-- {name} --> block, found {n}")
    page.write_text(text, encoding="utf-8")


def measured(result: dict) -> list[str]:
    rows = [
        f"| {int(classes):,} | {one['rows a second']:,} | {one['rows a second, recalls alone']:,} | "
        f"{one['in gamma_paths']} | {one['bytes a sample']} | {one['bytes a sample, auto']} |"
        for classes, one in result["paths"].items()
    ]
    stream, head, same = result["stream"], result["head"], result["same"]
    loaded = f"load {result['load_average']}"
    equal = (
        "the same gamma and interval"
        if same["gamma and interval of chunks"] == same["of all at once"]
        else "OTHERS"
    )
    return [
        "| classes | samples per second, one rule | recalls alone | in `gamma_path`s | bytes a sample | `auto` |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"{stream['samples']:,} samples of {stream['classes']:,} classes, {stream['bytes of logits'] / 1e9:.0f} GB of "
        f"logits in chunks of 50 MB: {stream['seconds, without making the samples']:.0f} s with all intervals, "
        f"{stream['peak memory, MB']} MB of memory at most.",
        f"{same['samples']:,} of them give {equal} in chunks as all at once.",
        f"A head of {head['classes']:,} classes ({head['bytes of the head'] / 1e6:.0f} MB, {head['shards']} shards): "
        f"rescaled in {head['seconds']['median']:.1f} s with {head['peak memory, MB']} MB of memory.",
        f"Median of {result['rounds']} rounds; {result['machine']}, {loaded}; `{result['command']}`.",
    ]


def estimate(
    result: dict, samples: float = 1e8, classes: int = 1000, cores: int = 256
) -> list[str]:
    one = result["paths"][str(classes)]
    hours = samples / one["rows a second"] * (os.cpu_count() or 1) / 3600
    return [
        f"- The logits are {samples * classes * 2 / 1e12:.1f} TB in half precision; read once, where they are.",
        f"- At the rate above, their paths take {hours:,.1f} core hours: {60 * hours / cores:.1f} minutes on {cores} "
        "cores.",
        f"- The paths of one rule are {samples * one['bytes a sample'] / 1e9:.0f} GB, which the machine that chooses "
        "holds twice for a moment.",
    ]


def clock(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def spread(values: list[float]) -> dict[str, float]:
    found = np.array(values)
    return {
        name: round(float(f(found)), 4)
        for name, f in (("median", np.median), ("low", np.min), ("high", np.max))
    }


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
