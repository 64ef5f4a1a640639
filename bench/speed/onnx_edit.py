"""Memory and time of adjusting a large ONNX file, against `cp` and the sha256 that every adjustment has to compute.

    python -m bench.speed.onnx_edit            # -> results/onnx-edit.json
    python -m bench.speed.onnx_edit --small    # one small file, nothing written

Each round takes all of them in turn, on the same file, with the disk synced and the last output removed before each.
*warm*: the input is in the page cache. *cold*: it is not. *synced*: warm, and timed until the output is on the disk,
for `cp` as for us. `adjust` is one call of `adjust_file` in a process that has imported everything, as `cp` starts at
once; memory is the peak of that process less what it had before the call.

The output records the sha256 of the input, and an undo is checked against it. It is computed beside the copy, so that
nothing can be faster than the longer of the two: how often that takes is there as well. Another digest could be
quicker: the seconds of CRC-32, by zlib, tell how much. Seconds of a processor do not depend on what else it does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .files import spread

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "results" / "onnx-edit.json"
MEGABYTES = (100, 400, 1_000)
SMALL_MEGABYTES = (20,)
CLASSES = 1_000
FEATURES = 512
HIDDEN = 2_048
ROUNDS = 7
SETTINGS = ("warm", "cold", "synced")
DIGESTS: dict[str, Callable[[], Callable[[bytes], object]]] = {
    "sha256": lambda: hashlib.sha256().update,
    "crc32": lambda: zlib.crc32,
}
# The process that adjusts the file. `clear_refs` sets the kernel's mark of the highest memory back,
# so that what it shows afterwards is of this call alone.
ADJUST = """
import os, re, sys, time
from pathlib import Path
import onnx.checker, onnx.shape_inference
import levelhead as lh
from levelhead.files.model import adjust_file

def memory(entry):
    return int(re.search(entry + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1000

source, small, out, synced = sys.argv[1:]
counts = list(range(1_000, 0, -1))
# The first call loads what is loaded once.
adjust_file(small, out, lh.rules.Rescale(0.5), counts, original=False)
os.unlink(out)
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
start, began = time.perf_counter(), time.process_time()
adjust_file(source, out, lh.rules.Rescale(0.5), counts)
if synced == "synced":
    with open(out, "rb+") as file:
        os.fsync(file.fileno())
took = time.perf_counter() - start
print(took, time.process_time() - began, memory("VmHWM") - before)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    with tempfile.TemporaryDirectory() as folder:
        sizes = MEGABYTES
        rounds = ROUNDS
        if small:
            sizes = SMALL_MEGABYTES
            rounds = 1
        rows = [measure(Path(folder), size, rounds) for size in sizes]
    record = {
        "what": "adjusting an ONNX file: seconds beside cp and sha256, memory as a share of the file",
        "head": [CLASSES, FEATURES],
        "rounds": ROUNDS,
        "files": rows,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_average": round(os.getloadavg()[0], 1),
        "command": "python -m bench.speed.onnx_edit",
    }
    text = json.dumps(record, indent=1)
    print(text)
    if not small:
        RECORD.write_text(text + "\n", encoding="utf-8")


def make_model(path: Path, megabytes: int) -> None:
    """Write a chain of matrices and a head."""
    rng = np.random.default_rng(0)
    nodes = []
    tensors = []
    value = "x"  # what the next node reads
    for i in range(max(0, round(megabytes * 1e6 / (4 * HIDDEN**2)))):
        weight = rng.standard_normal((HIDDEN, HIDDEN), np.float32)
        tensors.append(numpy_helper.from_array(weight, f"hidden{i}"))
        nodes.append(helper.make_node("MatMul", [value, f"hidden{i}"], [f"h{i}"]))
        value = f"h{i}"
    narrow = rng.standard_normal((HIDDEN, FEATURES), np.float32)
    head = rng.standard_normal((CLASSES, FEATURES), np.float32)
    tensors.append(numpy_helper.from_array(narrow, "narrow"))
    tensors.append(numpy_helper.from_array(head, "fc.weight"))
    tensors.append(numpy_helper.from_array(np.zeros(CLASSES, np.float32), "fc.bias"))
    nodes.append(helper.make_node("MatMul", [value, "narrow"], ["z"]))
    nodes.append(helper.make_node("Gemm", ["z", "fc.weight", "fc.bias"], ["y"], transB=1))
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size])
        for name, size in (("x", HIDDEN), ("y", CLASSES))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def measure(folder: Path, megabytes: int, rounds: int) -> dict[str, Any]:
    """Return how long each takes, and how much memory an adjustment, as a share of the file."""
    source = folder / "m.onnx"
    warm_up = folder / "small.onnx"
    out = folder / "out.onnx"
    make_model(source, megabytes)
    make_model(warm_up, 0)
    seconds: dict[str, list[float]] = defaultdict(list)
    memory = []
    for _ in range(rounds):
        for setting in SETTINGS:
            prepare(source, out, setting)
            took, computed = timed(["cp", str(source), str(out)], out, setting)
            seconds[f"cp, {setting}"].append(took)
            seconds["cp, of a processor"].append(computed)
            prepare(source, out, setting)
            took, computed, peak = adjusted(source, warm_up, out, setting)
            seconds[f"adjust, {setting}"].append(took)
            seconds["adjust, of a processor"].append(computed)
            memory.append(peak)
        for name, make_update in DIGESTS.items():
            for setting in ("warm", "cold"):
                prepare(source, out, setting)
                took, computed = digested(source, make_update())
                seconds[f"{name}, {setting}"].append(took)
                seconds[f"{name}, of a processor"].append(computed)
    size = source.stat().st_size
    ratios = {
        setting: np.divide(seconds[f"adjust, {setting}"], seconds[f"cp, {setting}"])
        for setting in (*SETTINGS, "of a processor")
    }
    for setting in ("warm", "cold"):
        longer = np.maximum(seconds[f"cp, {setting}"], seconds[f"sha256, {setting}"])
        title = f"{setting}, of the longer of cp and sha256"
        ratios[title] = np.divide(seconds[f"adjust, {setting}"], longer)
    return {
        "bytes": size,
        "times cp": {name: spread(values) for name, values in ratios.items()},
        "seconds": {name: spread(np.array(values)) for name, values in seconds.items()},
        "memory, mb": round(max(memory), 1),
        "memory, share of the file": round(max(memory) * 1e6 / size, 3),
    }


def prepare(source: Path, out: Path, setting: str) -> None:
    """Remove the last output, let the disk write, and read the input into the page cache, or drop it from there."""
    for old in (out, Path(f"{out}.original")):
        old.unlink(missing_ok=True)
    os.sync()
    with source.open("rb") as file:
        if setting == "cold":
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while file.read(1 << 24):
                pass


def adjusted(source: Path, warm_up: Path, out: Path, setting: str) -> list[float]:
    """Return the seconds that an adjustment takes, those of a processor, and the megabytes it needs."""
    words = [str(path) for path in (source, warm_up, out)]
    command = [sys.executable, "-c", ADJUST, *words, setting]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(number) for number in said.stdout.split()]


def timed(command: list[str], out: Path, setting: str) -> tuple[float, float]:
    """Return the seconds that a command takes, and those of a processor."""
    start = time.perf_counter()
    before = processor_seconds()
    subprocess.run(command, check=True)
    if setting == "synced":
        with out.open("rb+") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - start, processor_seconds() - before


def processor_seconds() -> float:
    """Return what the processes that this one started have computed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def digested(source: Path, update: Callable[[bytes], object]) -> tuple[float, float]:
    """Return the seconds that it takes to read a file and to compute a digest of it, and those of a processor."""
    start = time.perf_counter()
    before = time.process_time()
    with source.open("rb") as file:
        while block := file.read(1 << 18):
            update(block)
    return time.perf_counter() - start, time.process_time() - before


if __name__ == "__main__":
    main()
