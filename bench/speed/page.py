"""docs/speed.md, written from what the parts of this room left in results/.

A part writes a record with its numbers, the machine and the command; here each record becomes a
section, by the function that SECTIONS names for it. No number of the page is typed: one that was
not measured is not there.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

from levelhead.support import atomic

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "speed.md"
TOP = """# How long does it take?

<!-- `make bench` writes this page from results/; edit bench/speed/page.py, not this file. -->

What was measured, each with its machine and its command. `make bench` measures again what your machine can, in at most
20 minutes, and writes this page."""
# As JSON has it; each function below knows the record of its part.
Record = dict[str, Any]


def write_page(results: Path = ROOT / "results", page: Path = PAGE) -> None:
    """Write the page from the records in a folder."""
    atomic.write(page, page_text(results))


def page_text(results: Path) -> str:
    """Return the page. What was not measured yet has no section."""
    sections = [TOP]
    for title, name, describe in SECTIONS:
        path = results / f"{name}.json"
        if path.is_file():
            record = json.loads(path.read_text(encoding="utf-8"))
            sections.append(f"## {title}\n\n{describe(record)}")
    training = training_text(results / "records")
    if training:
        sections.append(f"## Training\n\n{training}")
    return "\n\n".join(sections) + "\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def seconds(value: float) -> str:
    """Return a time in the unit that suits it."""
    if value < 0.01:
        return f"{1e3 * value:.1f} ms"
    if value < 0.1:
        return f"{1e3 * value:.0f} ms"
    return f"{value:.2f} s"


def choosing_text(record: Record) -> str:
    """Describe the record of `waiting`."""
    rows = []
    for row in record["rows"]:
        cells = [f"{row['n']:,} x {row['classes']:,}", seconds(row["seconds"]["softmax"])]
        for name in ("tune", "tune, macro_f1", "gamma_path"):
            cells.append(f"{seconds(row['seconds'][name])} ({row['passes'][name]:.1f} passes)")
        rows.append(cells)
    head = ["logits", "one softmax", "`tune`", "for macro-F1", "`gamma_path`"]
    file = record["file"]
    machine = record["machine"]
    return (
        "A pass is one softmax over all logits. Everything that makes scores costs at least that.\n\n"
        f"{table(head, rows)}\n\n"
        f"`tune` on a memory-mapped file of {file['file_mb']:,.0f} MB ({file['n']:,} x {file['classes']:,}) takes "
        f"{file['seconds']:.1f} s and {file['peak_mb']} MB of memory. Medians of {record['rounds']} rounds; "
        f"{machine['machine']}, {machine['cores']} cores, load {machine['load_average']}; `{record['command']}`."
    )


def gpu_text(record: Record) -> str:
    """Describe the record of `tune_gpu`."""
    rows = []
    for row in record["rows"]:
        host = ""  # not measured at this size
        if "host_s" in row:
            host = seconds(row["host_s"])
        size = f"{row['n']:,} x {row['classes']:,}"
        rows.append([size, seconds(row["gpu_s"]), seconds(row["macro_f1_s"]), host])
    head = ["logits", "`tune`", "for macro-F1", "`tune` on its host"]
    return f"{table(head, rows)}\n\nMedians; {record['device']}; `{record['command']}`."


def path_text(record: Record) -> str:
    """Describe the record of `path`."""
    rows = []
    for row in record["against_grid"]:
        size = f"{row['n']:,} x {row['classes']:,}"
        times = [seconds(row[name]["median_s"]) for name in ("path", "grid")]
        rows.append([size, *times, f"{row['times_faster']:.0f}"])
    head = ["logits", "`gamma_path`: every strength", "a grid of 101", "times as fast"]
    stream = record["stream"]
    machine = record["machine"]
    text = (
        f"{table(head, rows)}\n\n"
        f"A file of {stream['gigabytes']} GB takes {stream['seconds']:.1f} s and {stream['peak_mb']:.0f} MB of memory."
    )
    theirs = record["against_sklearn"]
    if theirs:  # None where it is not installed
        text += (
            f" With two classes and {theirs['n']:,} samples it is {theirs['times_faster']:.0f} times as fast as "
            f"scikit-learn's `TunedThresholdClassifierCV` with {theirs['thresholds']} thresholds."
        )
    return (
        f"{text} Medians, on one thread; {machine['machine']}, {machine['cores']} cores; "
        f"`{record['command']}`."
    )


def path_gpu_text(record: Record) -> str:
    """Describe the record of `path_gpu`."""
    rows = []
    for row in record["sizes"]:
        size = f"{row['n']:,} x {row['classes']:,}, {row['dtype']}"
        times = [f"{row[name]['median']:.2f} ms" for name in ("read_ms", "kernel_ms", "path_ms")]
        rows.append([size, *times])
    head = ["logits", "one read of them", "the kernel", "`gamma_path`"]
    return f"{table(head, rows)}\n\nMedians; {record['machine']['device']}; `{record['command']}`."


def startup_text(record: Record) -> str:
    """Describe the record of `startup`."""
    rows = [[f"`{name}`", seconds(time["least"])] for name, time in record["seconds"].items()]
    return (
        f"{table(['process', 'takes'], rows)}\n\n"
        f"The least of {record['rounds']} rounds; {record['machine']}; `{record['command']}`."
    )


def files_text(record: Record) -> str:
    """Describe the record of `files`."""
    speeds = record["speed_relative_to_cp"]
    rows = []
    for setting in ("warm", "cold", "synced"):
        undo = speeds[f"{setting}, undo"]["median"]
        rows.append([setting, f"{speeds[setting]['median']:.2f}", f"{undo:.2f}"])
    head = ["speed of `cp` is 1", "`levelhead adjust`", "`levelhead undo`"]
    return (
        f"A safetensors file of {record['bytes'] / 1e9:.1f} GB with a head of {record['head'][0]:,} classes. *Warm*: "
        "the input is in the page cache. *Cold*: it is not. *Synced*: timed until the output is on the disk.\n\n"
        f"{table(head, rows)}\n\n"
        f"At most {record['peak_memory_mb']['rescale']:.0f} MB of memory. Medians of {record['rounds']} rounds of "
        f"whole processes; {record['machine']}; `{record['command']}`."
    )


def onnx_text(record: Record) -> str:
    """Describe the record of `onnx_edit`."""
    rows = []
    for row in record["files"]:
        settings = ("warm", "cold", "synced", "warm, of the longer of cp and sha256")
        times = [f"{row['times cp'][setting]['median']:.1f}" for setting in settings]
        rows.append([f"{row['bytes'] / 1e6:,.0f} MB", *times, f"{row['memory, mb']:.0f} MB"])
    head = ["file", "warm", "cold", "synced", "warm, of the longer of `cp` and sha256", "memory"]
    last = record["files"][-1]

    def seconds_a_gigabyte(name: str) -> float:
        return last["seconds"][f"{name}, of a processor"]["median"] * 1e9 / last["bytes"]

    return (
        "How many times as long as `cp` an adjustment takes. *Synced*: until the output is on the disk, for both.\n\n"
        f"{table(head, rows)}\n\n"
        "The file that is written names the sha256 of its input, and an undo is checked against it. It is computed "
        f"beside the copy, and takes longer: {seconds_a_gigabyte('sha256'):.2f} s of a processor for a gigabyte, "
        f"where `cp` takes {seconds_a_gigabyte('cp'):.2f} s, and even a CRC-32 {seconds_a_gigabyte('crc32'):.2f} s.\n\n"
        f"Medians of {record['rounds']} rounds, at a load of {record['load_average']}; {record['machine']}; "
        f"`{record['command']}`."
    )


def report_text(record: Record) -> str:
    """Describe the record of `report`."""
    writing = record["write_seconds"]
    return (
        f"The page of {record['classes']:,} classes and {record['samples']:,} samples is written in "
        f"{writing['from logits']['median']:.1f} s from the logits, where it also tunes, and in "
        f"{writing['from tuned.json']['median']:.1f} s from a tuned.json. It has {record['megabytes']:.2f} MB and is "
        f"drawn {record['open_seconds']['median']:.2f} s after it was asked for. Medians of {record['rounds']} rounds; "
        f"{record['machine']}; `{record['command']}`."
    )


def wvn_text(record: Record) -> str:
    """Describe the record of `wvn`."""
    extra = record["milliseconds extra"]
    rows = [[name, f"{extra[name]:.1f} ms"] for name in extra if name != "plain"]
    about = record["about"]
    return (
        f"What unit-length weight vectors add to {record['what']}, which takes "
        f"{record['milliseconds a step']['plain']:.0f} ms.\n\n"
        f"{table(['kept so by', 'adds'], rows)}\n\n"
        f"Medians of {record['n']} rounds; {about['machine']}, {about['cores']} cores; `{about['command']}`."
    )


def training_text(records: Path) -> str:
    """Return what a training takes, from the records of the reproduction."""
    trained = [json.loads(path.read_text(encoding="utf-8")) for path in records.glob("*.json")]
    costs = [run["seconds"] for run in trained if run["column"] == "frontier/cifar10:50"]
    if not costs:
        return ""
    return (
        "A ResNet-32 under the recipe `frontier` on CIFAR-10 at ratio 50 takes "
        f"{mean(costs):.0f} s of an H200, {len(costs)} at a time (`results/records`)."
    )


SECTIONS = (
    ("Choosing", "waiting", choosing_text),
    ("Choosing on a GPU", "tune-gpu", gpu_text),
    ("The exact path over one strength", "path", path_text),
    ("The exact path on a GPU", "path-gpu", path_gpu_text),
    ("Starting", "startup", startup_text),
    ("A safetensors file", "files", files_text),
    ("An ONNX file", "onnx-edit", onnx_text),
    ("The page of a model", "page", report_text),
    ("WVN", "wvn", wvn_text),
)
