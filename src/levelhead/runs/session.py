"""A run's folder while it is worked on: locked, its spec held against what is asked, its log and result written."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as bytes_of

from .._version import __version__
from ..core import atomic
from . import checkpoint
from ..lab.data import Data
from ..lab.nets import build, parameters
from .spec import Spec
from ..lab.train import State, stages
from ..lab.features import View, errors, snapshot
from ..core.errors import LevelheadError

Report = Callable[[dict[str, Any]], None]


class Work:
    """One spec's network, and the folder it is trained in, which nothing touches before `begin`.

    Args:
        folder: the run's; locked by `alone` from `begin` on.
        spec: what to train.
        data: the spec's.
        place: the device.
        writes: whether this process is the one that writes; under torchrun one of them is.
        half: keep the snapshot's features in half precision.
        report: called after every epoch with its record.
    """

    def __init__(self, folder: Path, spec: Spec, data: Data, place: torch.device, *, writes: bool = True,
                 half: bool = False, report: Report | None = None):
        self.folder, self.spec, self.data = folder, spec, data
        self.place, self.writes, self.half, self.report = place, writes, half, report
        dtype = torch.float32 if spec.dtype == "bfloat16" else getattr(torch, spec.dtype)  # master weights
        self.recipe, self.method = spec.resolve_recipe(), spec.resolve_method()
        self.net = build(spec.resolve_net(), data.classes, head=self.method.head, shape=data.shape,
                         shortcut=spec.shortcut, stem=spec.stem, seed=spec.seed).to(place, dtype)
        self.view = View(self.recipe, data, dtype)
        self.epochs = stages(self.recipe, self.method)[-1].end
        self.began = time.monotonic()

    def begin(self) -> None:
        """State the spec in the folder or, where one is stated, hold ours against it and take its number of threads."""
        if (self.folder / "spec.json").is_file():
            check_same(self.folder, self.spec, self.data)
            if self.place.type == "cpu":  # sums are rounded in an order that depends on the number of threads
                torch.set_num_threads(read_facts(self.folder)["threads"])
        elif self.writes:
            facts = _facts(self.spec, self.data, self.place)
            atomic.write(self.folder / "spec.json", json.dumps(facts, indent=2).encode())

    def take_up(self, start: State | None) -> None:
        """Go on from a State: keep the records of the epochs that need not be done again, and nothing half written.

        Checkpoints beyond it, damaged or of another engine, would be taken for the newest, and ours removed for them.
        """
        done = [] if start is None else [row for row in read_log(self.folder) if row["epoch"] <= start.epoch]
        if start is not None and len(done) != start.epoch:
            raise LevelheadError(f"{self.folder / 'log.jsonl'}: damaged, it has {len(done)} of the {start.epoch} epochs "
                             f"before the last checkpoint; move the folder away to train from the start")
        checkpoint.drop_beyond(self.folder, start)
        for scratch in self.folder.glob("*.tmp"):
            scratch.unlink()
        atomic.write(self.folder / "log.jsonl", "".join(json.dumps(r) + "\n" for r in done).encode())
        self.began = time.monotonic() - (done[-1]["seconds"] if done else 0.0)

    def epoch_over(self, record: dict[str, Any]) -> None:
        """Log an epoch, with errors on what is not trained on if the engine has not measured them."""
        if "test_error" not in record:
            record = record | {f"{title}_error": e for title, e in errors(self.net, self.data, self.view).items()}
        record = record | {"of": self.epochs, "seconds": round(time.monotonic() - self.began, 3)}
        try:
            with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(f"{self.folder}: cannot write the log ({error.strerror}); make room and run the same command "
                          f"again to go on") from error
        if self.report is not None:
            self.report(record)

    def finish(self) -> None:
        """Write the network, the snapshot and, last, the result."""
        seconds, net = round(time.monotonic() - self.began, 3), self.net
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in net.state_dict().items()}
        facts = {"levelhead": __version__, "net": self.spec.resolve_net(), "head": self.method.head,
                 "shortcut": self.spec.shortcut, "stem": self.spec.stem, "shape": self.data.shape,
                 "method": self.spec.trained_as, "counts": self.data.counts.tolist(), "names": list(self.data.names),
                 "mean": self.view.mean, "std": self.view.std}
        meta = {"spec": self.spec.to_dict(), "seconds": seconds}
        last = read_log(self.folder)[-1]
        result = {key: value for key, value in last.items() if key.endswith("error") or key in ("epoch", "loss")}
        result |= {"seconds": seconds, "parameters": parameters(net)}
        try:
            content = bytes_of(weights, {"levelhead.model": json.dumps(facts)})
            atomic.write(self.folder / "model.safetensors", content)
            left = snapshot(net, self.data, self.view, meta=meta, half=self.half)
            left.save(self.folder / "snapshot.safetensors")
            atomic.write(self.folder / "done.json", json.dumps(result, indent=2).encode())
        except OSError as error:
            raise OSError(f"{self.folder}: trained, but the result cannot be written ({error.strerror}); make room and "
                          f"run the same command again") from error


@contextmanager
def alone(folder: Path, *, writes: bool = True) -> Iterator[None]:
    """Hold the run's lock. The system lets go of it when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # whoever only reads runs does without it
        raise ImportError("training locks its folder, which needs a POSIX system, such as Linux or macOS") from None
    folder.mkdir(parents=True, exist_ok=True)
    if not writes:
        yield
        return
    with (folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{folder}: another process is at this run; wait for it, or stop it") from None
        yield


class BusyError(LevelheadError):
    """Another process holds the run's lock."""


def check_same(folder: Path, spec: Spec, data: Data | None = None) -> None:
    """A ValueError if the folder holds a run of other settings or, where the data are at hand, of other data."""
    there, asked = read_facts(folder), spec.identity()
    other = [key for key in {**there["identity"], **asked} if there["identity"].get(key) != asked.get(key)]
    if other:
        key = other[0]
        raise LevelheadError(f"{folder}: a run with other settings is here: its {key} is {there['identity'].get(key)!r}, "
                         f"{asked.get(key)!r} is asked for; choose another --name, or move it away")
    if data is not None and data.sha256 != there["data_sha256"]:
        raise LevelheadError(f"{folder}: a run with the same settings on other data is here (it had {there['sizes']}; now "
                         f"images or labels differ); choose another --name, or move it away")


def read_facts(folder: Path) -> dict[str, Any]:
    """A run's spec.json, with all that is read of it."""
    found = read_json(folder / "spec.json")
    for key in ("spec", "identity", "threads", "sizes", "data_sha256"):
        if key not in found:
            raise LevelheadError(f"{folder / 'spec.json'}: damaged, it has no {key}; move the folder away")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A file of a run, which is one JSON object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LevelheadError(f"{path}: damaged ({error}); move its folder away") from None
    if not isinstance(found, dict):
        raise LevelheadError(f"{path}: damaged, expected a JSON object; move its folder away")
    return found


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The epochs' records so far; a line cut off by a crash is not one."""
    path = folder / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    try:
        rows = [json.loads(line) for line in lines if line.endswith("}\n")]
    except ValueError as error:
        raise LevelheadError(f"{path}: damaged ({error}); move the folder away") from None
    if any("epoch" not in row for row in rows):
        raise LevelheadError(f"{path}: damaged, a line has no epoch; move the folder away")
    return rows


def _facts(spec: Spec, data: Data, place: torch.device) -> dict[str, Any]:
    packages = {package: version(package) for package in ("torch", "numpy", "safetensors")}
    return {
        "spec": spec.to_dict(), "identity": spec.identity(), "seed": spec.seed,
        "versions": {"levelhead": __version__, "python": platform.python_version(), **packages},
        "machine": platform.machine(),
        "device": torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(), "memory_format": "channels_last",
        "counts": data.counts.tolist(), "names": list(data.names), "shape": list(data.shape),
        "sizes": {title: len(part) for title, part in data.splits.items()}, "data_sha256": data.sha256,
    }
