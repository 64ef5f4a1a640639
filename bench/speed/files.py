"""Speed of rescaling a 2 GB safetensors file, and of undoing that, against `cp` and the sha256 that bounds both.

    python -m bench.speed.files [--gigabytes 2] [--rounds 3] [--folder DIR] [--out results/files.json]

Whole processes are timed, their start included. Each round runs all of them one after another, with the disk synced and
the last output removed before each, so that what slows the machine slows them all. A ratio is the median over rounds.
`warm`: the input is in the page cache. `cold`: it is not. `synced`: timed until the output is on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

K = 1000  # classes of the head
D = 2048  # its features
HASH = "import hashlib, sys; hashlib.file_digest(open(sys.argv[1], 'rb'), 'sha256')"


def make_model(path: Path, size: float) -> None:
    """Write a safetensors file of random blocks and a head, block by block."""
    block = 64 << 20
    entries = {"__metadata__": {"format": "pt"}}
    at = 0
    for i in range(round(size * 1e9) // block):
        entries[f"blocks.{i}.weight"] = {
            "dtype": "F32",
            "shape": [4096, 4096],
            "data_offsets": [at, at + block],
        }
        at += block
    entries["fc.weight"] = {"dtype": "F32", "shape": [K, D], "data_offsets": [at, at + 4 * K * D]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range((len(entries) - 2) * block >> 20):
            # In small pieces: a child's peak memory is never below its parent's.
            file.write(rng.bytes(1 << 20))
        file.write(rng.standard_normal((K, D), np.float32).tobytes())


def run(command: list[str], *, synced: Path | None = None) -> tuple[float, float]:
    """Return the wall seconds and the peak memory in MB of a process, including the sync of its output if asked."""
    start = time.perf_counter()
    child = os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"{command[0]} failed with status {status}")
    if synced is not None:
        with synced.open("rb+") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder")
    parser.add_argument("--out", default="results/files.json")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        result = measure(folder, args.gigabytes, args.rounds)
    finally:
        shutil.rmtree(folder)
    Path(args.out).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


def measure(folder: Path, gigabytes: float, rounds: int) -> dict:
    """Time all commands in turn, so many rounds, and return the record.

    Args:
        folder: for the files; on the disk that is to be measured.
        gigabytes: of the model.
        rounds: of all commands in all settings.
    """
    source = folder / "m.safetensors"
    out = folder / "o.safetensors"
    counts = folder / "c.json"
    make_model(source, gigabytes)
    counts.write_text(json.dumps(list(range(K, 0, -1))), encoding="utf-8")
    levelhead = [sys.executable, "-m", "levelhead"]
    rescale = [
        *levelhead,
        "adjust",
        str(source),
        "--counts",
        str(counts),
        "--rule",
        "rescale",
        "--strength",
        "0.5",
        "-o",
        str(out),
    ]
    undo = [*levelhead, "undo", str(folder / "kept.safetensors"), "-o", str(out)]
    commands = {
        "cp": ["cp", str(source), str(out)],
        "sha256": [sys.executable, "-c", HASH, str(source)],
        "rescale": rescale,
        "undo": undo,
    }
    run([*rescale[:-1], str(folder / "kept.safetensors")])
    seconds: dict[str, list[float]] = {}
    memory: dict[str, float] = {}
    for _ in range(rounds):
        for setting in ("warm", "cold", "synced"):
            for name, command in commands.items():
                if setting != "warm" and name == "sha256":
                    continue
                read = source
                if name == "undo":
                    read = folder / "kept.safetensors"
                for old in (out, folder / "o.safetensors.original"):
                    old.unlink(missing_ok=True)
                # What the last command wrote is on the disk, and the input is in the cache or is not.
                os.sync()
                with read.open("rb") as file:
                    if setting == "cold":
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    else:
                        while file.read(1 << 24):
                            pass
                took, peak = run(command, synced=out if setting == "synced" else None)
                seconds.setdefault(f"{name}, {setting}", []).append(took)
                memory[name] = max(memory.get(name, 0), peak)
    times = {name: np.array(values) for name, values in seconds.items()}
    settings = ("warm", "cold", "synced")
    ratios = {
        setting: times[f"cp, {setting}"] / times[f"rescale, {setting}"] for setting in settings
    }
    ratios |= {
        f"{setting}, undo": times[f"cp, {setting}"] / times[f"undo, {setting}"]
        for setting in settings
    }
    ratios["warm, sha256 alone"] = times["cp, warm"] / times["sha256, warm"]
    return {
        "what": "speed relative to cp (1 is as fast), median over rounds; seconds and MB of whole processes",
        "bytes": source.stat().st_size,
        "head": [K, D],
        "rounds": rounds,
        "speed_relative_to_cp": {name: spread(values) for name, values in ratios.items()},
        "seconds": {name: spread(values) for name, values in times.items()},
        "peak_memory_mb": {name: round(peak, 1) for name, peak in memory.items()},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_average": round(os.getloadavg()[0], 1),
        "command": "python -m bench.speed.files",
    }


def spread(values: np.ndarray) -> dict[str, float]:
    """Return median, least and most of some numbers, as records have them."""
    return {
        "median": round(float(np.median(values)), 3),
        "low": round(float(values.min()), 3),
        "high": round(float(values.max()), 3),
    }


if __name__ == "__main__":
    main()
