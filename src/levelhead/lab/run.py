"""A run: one training in a folder of its own, begun, gone on with, or already there.

    runs/<name>-<hash of spec>/
        spec.json               what was asked for, and on what: versions, threads, memory format, counts, data's sha256
        log.jsonl               a line for each epoch: losses, errors, head norms
        checkpoint-*            the last two, checksummed
        model.safetensors       the trained network
        snapshot.safetensors    head, counts, features and labels of every split: all that is needed after training
        done.json               the result; where it is, the run is finished and never touched again
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save as bytes_of

from ..snapshot import Snapshot
from . import checkpoint
from .data import Data
from .nets import Net, build, parameters
from .spec import Spec, fingerprint
from .train import State, fit, stages
from .view import View, errors, snapshot

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Run:
    """A run's folder, and what can be read from it."""

    path: Path

    @property
    def finished(self) -> bool:
        return (self.path / "done.json").is_file()

    @property
    def facts(self) -> dict[str, Any]:
        """What spec.json says."""
        return json.loads((self.path / "spec.json").read_text(encoding="utf-8"))

    @property
    def result(self) -> dict[str, Any]:
        """What done.json says."""
        if not self.finished:
            raise ValueError(f"{self.path}: not finished; run the same command again to go on with it")
        return json.loads((self.path / "done.json").read_text(encoding="utf-8"))

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot.load(self.path / "snapshot.safetensors")

    @property
    def log(self) -> list[dict[str, Any]]:
        """The epochs' records so far; a line cut off by a crash is not one."""
        path = self.path / "log.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
        return [json.loads(line) for line in lines if line.endswith("}\n")]

    @staticmethod
    def open(path: str | Path) -> Run:
        """The run in a folder, which must be one."""
        if not (Path(path) / "spec.json").is_file():
            raise ValueError(f"{path}: no run here; expected a folder that `levelhead train` wrote, with a spec.json")
        return Run(Path(path))


def run(
    spec: Spec, runs: str | Path = "runs", *, name: str | None = None, report: Report | None = None,
    say: Callable[[str], None] | None = None, data: Data | None = None, device: str | None = None,
    save_every: float = 60.0, save_steps: int | None = None, half: bool = False,
) -> Run:
    """Train what a spec asks for; go on where it was interrupted; do nothing if it is finished.

    Args:
        spec: what to train.
        runs: the folder of all runs.
        name: the first part of the run's folder; made from the spec if None.
        report: called after every epoch with its record, for progress.
        say: called with lines a person should see, such as a damaged checkpoint.
        data: the spec's data, if it is loaded already.
        device: `cpu`, `cuda`, ...; CUDA where it is, if None.
        save_every: seconds between checkpoints inside an epoch; there is one after every epoch.
        save_steps: steps between them, beside that.
        half: keep the snapshot's features in half precision.
    """
    folder = Path(runs) / f"{name or spec.title}-{spec.key}"
    if Run(folder).finished:
        _same(folder, spec, None)
        return Run(folder)
    place, main = _join(device)
    data = data or spec.load()
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder, main):
        if Run(folder).finished:  # by another process, while we waited for nothing
            return Run(folder)
        _begin(folder, spec, data, place, main)
        recipe, method = spec.resolve_recipe(), spec.resolve_method()
        net = build(spec.resolve_net(), data.classes, head=method.head, shape=data.shape, shortcut=spec.shortcut,
                    stem=spec.stem, seed=spec.seed).to(place, getattr(torch, spec.dtype))
        view, total = View(recipe, data, getattr(torch, spec.dtype)), stages(recipe, method)[-1].end
        start, damaged = checkpoint.latest(folder)
        for line in damaged:
            (say or print)(f"{line}; going on from the one before")
        if main:
            _tidy(folder, start)
        _together()
        saver = _Saver(folder, save_every, save_steps, main)
        began = time.monotonic() - (Run(folder).log or [{"seconds": 0.0}])[-1]["seconds"]

        def on_epoch(state: State, record: dict[str, Any]) -> None:
            if main:
                record |= {f"{title}_error": e for title, e in errors(net, data, view).items()}
                record |= {"of": total, "seconds": round(time.monotonic() - began, 3)}
                _append(folder / "log.jsonl", record)
                saver.save(state)
                if report is not None:
                    report(record)

        fit(net, data, recipe, method, seed=spec.seed, start=start, on_step=saver, on_epoch=on_epoch)
        if main:
            _finish(folder, spec, net, data, view, time.monotonic() - began, half)
        _together()
    return Run(folder)


class _Saver:
    """Saves inside an epoch, every so many seconds or steps."""

    def __init__(self, folder: Path, seconds: float, steps: int | None, main: bool):
        self.folder, self.seconds, self.steps, self.main = folder, seconds, steps, main
        self.taken, self.last = 0, time.monotonic()

    def __call__(self, now: Callable[[], State]) -> None:
        self.taken += 1
        due = time.monotonic() - self.last >= self.seconds or (self.steps is not None and self.taken % self.steps == 0)
        if self.main and due:
            self.save(now())

    def save(self, state: State) -> None:
        checkpoint.write(self.folder, state)
        self.last = time.monotonic()


def _begin(folder: Path, spec: Spec, data: Data, place: torch.device, main: bool) -> None:
    """Write spec.json or, where it is, hold the spec against it and take its number of threads."""
    if (folder / "spec.json").is_file():
        _same(folder, spec, data)
        threads = Run(folder).facts["threads"]
        if place.type == "cpu":
            torch.set_num_threads(threads)  # sums are rounded in an order that depends on it
        return
    packages = {package: version(package) for package in ("levelhead", "torch", "numpy", "safetensors")}
    facts = {
        "spec": asdict(spec), "identity": spec.identity(), "seed": spec.seed,
        "versions": {"python": platform.python_version(), **packages}, "machine": platform.machine(),
        "device": torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(), "memory_format": "channels_last",
        "counts": data.counts.tolist(), "names": list(data.names), "shape": list(data.shape),
        "sizes": {title: len(part) for title, part in data.splits.items()}, "data_sha256": fingerprint(data),
    }
    if main:
        checkpoint.write_bytes(folder / "spec.json", json.dumps(facts, indent=2).encode())


def _same(folder: Path, spec: Spec, data: Data | None) -> None:
    """A ValueError if the folder holds a run of other settings or other data."""
    there, asked = Run(folder).facts, spec.identity()
    other = [key for key in {**there["identity"], **asked} if there["identity"].get(key) != asked.get(key)]
    if other:
        key = other[0]
        raise ValueError(f"{folder}: a run with other settings is here: its {key} is {there['identity'].get(key)!r}, "
                         f"{asked.get(key)!r} is asked for; choose another --name, or move it away")
    if data is not None and fingerprint(data) != there["data_sha256"]:
        raise ValueError(f"{folder}: a run with the same settings on other data is here (it had {there['sizes']}; now "
                         f"images or labels differ); choose another --name, or move it away")


def _finish(folder: Path, spec: Spec, net: Net, data: Data, view: View, seconds: float, half: bool) -> None:
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in net.state_dict().items()}
    mean, std = view.mean, view.std
    facts = {"levelhead": version("levelhead"), "net": spec.resolve_net(), "method": spec.trained_as,
             "counts": data.counts.tolist(), "names": list(data.names), "mean": mean, "std": std}
    content = bytes_of(weights, {"levelhead.model": json.dumps(facts)})
    checkpoint.write_bytes(folder / "model.safetensors", content)
    meta = {"spec": asdict(spec), "seconds": seconds}
    snapshot(net, data, view, meta=meta, half=half).save(folder / "snapshot.safetensors")
    last = Run(folder).log[-1]
    result = {key: value for key, value in last.items() if key.endswith("error") or key in ("epoch", "loss")}
    result |= {"seconds": round(seconds, 3), "parameters": parameters(net)}
    checkpoint.write_bytes(folder / "done.json", json.dumps(result, indent=2).encode())


def _append(path: Path, record: dict[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(f"{path}: cannot write ({error.strerror}); make room and run the same command again") from error


def _tidy(folder: Path, start: State | None) -> None:
    """Keep the records of the epochs that need not be done again, and nothing half written."""
    for scratch in folder.glob("*.tmp"):
        scratch.unlink()
    done = 0 if start is None else start.epoch
    lines = [json.dumps(record) + "\n" for record in Run(folder).log if record["epoch"] <= done]
    checkpoint.write_bytes(folder / "log.jsonl", "".join(lines).encode())


@contextmanager
def _alone(folder: Path, main: bool) -> Iterator[None]:
    """Hold the run's lock. The system lets go of it when the process ends, however it ends."""
    if not main:
        yield
        return
    with (folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{folder}: another process is at this run; wait for it, or stop it") from None
        yield


def _join(device: str | None) -> tuple[torch.device, bool]:
    """The device to train on, and whether this process is the one that writes. Under torchrun, one of many."""
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return torch.device(kind), True
    if not dist.is_initialized():
        dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    place = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if kind == "cuda" else kind)
    return place, dist.get_rank() == 0


def _together() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
