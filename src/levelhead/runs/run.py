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

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..io.snapshot import Snapshot
from . import checkpoint
from ..lab.data import Data
from .spec import Spec
from ..lab.train import State, fit
from .session import BusyError, Report, Work, alone, check_same, read_facts, read_json, read_log
from ..core.errors import LevelheadError

__all__ = ["BusyError", "Run", "Spec", "run", "run_packed"]


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
        return read_json(self.path / "spec.json")

    @property
    def result(self) -> dict[str, Any]:
        """What done.json says: the last epoch's loss and errors, seconds, parameters."""
        return read_json(self._finished("done.json"))

    @property
    def snapshot(self) -> Snapshot:
        """Head, counts, features and labels, once it is finished."""
        return Snapshot.load(self._finished("snapshot.safetensors"))

    def _finished(self, file: str) -> Path:
        if not self.finished:
            raise LevelheadError(f"{self.path}: not finished; give its `levelhead train` command again to go on with it")
        return self.path / file

    @property
    def log(self) -> list[dict[str, Any]]:
        """The epochs' records so far."""
        return read_log(self.path)

    @staticmethod
    def open(path: str | Path) -> Run:
        """The run in a folder, which must be one."""
        if not (Path(path) / "spec.json").is_file():
            raise LevelheadError(f"{path}: no run here; expected a folder that `levelhead train` wrote, with a spec.json")
        return Run(Path(path))

    @staticmethod
    def of(spec: Spec, runs: str | Path = "runs", name: str | None = None) -> Run:
        """Where a spec's run is or will be."""
        return Run(Path(runs) / f"{name or spec.title}-{spec.key}")


def run(
    spec: Spec, runs: str | Path = "runs", *, name: str | None = None, report: Report | None = None,
    say: Callable[[str], None] = print, data: Data | None = None, device: str | None = None,
    save_every: float = 60.0, save_steps: int | None = None, half: bool = False,
) -> Run:
    """Train what a spec asks for; go on where it was interrupted; do nothing if it is finished.

    Args:
        spec: what to train.
        runs: the folder of all runs.
        name: the first part of the run's folder; made from the spec if None.
        report: called after every epoch with its record, for progress.
        say: called with lines a person should see, such as on a damaged checkpoint.
        data: the spec's data, if it is loaded already.
        device: `cpu`, `cuda`, ...; CUDA where it is, if None.
        save_every: seconds between checkpoints inside an epoch; there is one after every epoch.
        save_steps: steps between them, beside that.
        half: keep the snapshot's features in half precision.
    """
    there = Run.of(spec, runs, name)
    if there.finished:
        check_finished(there, spec, data)
        return there
    place, writes = _join(device)
    if spec.engine == "fast" or (spec.engine == "auto" and place.type == "cuda" and not dist.is_initialized()):
        reports = None if report is None else lambda _, record: report(record)
        return run_packed([spec], runs, names=[name], report=reports, say=say, data=[data], device=str(place),
                          save_every=save_every, half=half)[0]
    if spec.dtype == "bfloat16":
        raise LevelheadError("the plain engine trains in float32 or float64; bfloat16 needs the fast one, on CUDA")
    work = Work(there.path, spec, data or spec.load(), place, writes=writes, half=half, report=report)
    with alone(there.path, writes=writes):
        if there.finished:  # by another process, between our look and our lock
            return there
        work.begin()
        start, damaged = checkpoint.latest(there.path)
        for line in damaged:
            say(f"{line}; going on from the one before")
        _together()  # all have read before what is damaged or beyond is removed
        if writes:
            work.take_up(start)
        _together()
        saver = _Saver(there.path, save_every, save_steps, writes)

        def on_epoch(state: State, record: dict[str, Any]) -> None:
            if writes:
                work.epoch_over(record)
                saver.save(state)

        fit(work.net, work.data, work.recipe, work.method, seed=spec.seed, start=start,
            on_step=saver, on_epoch=on_epoch)
        if writes:
            work.finish()
        _together()
    return there


def run_packed(
    specs: Sequence[Spec], runs: str | Path = "runs", *, names: Sequence[str | None] | None = None, slots: int = 8,
    report: Callable[[int, dict[str, Any]], None] | None = None, say: Callable[[str], None] = print,
    data: Sequence[Data | None] | None = None, device: str = "cuda", save_every: float = 60.0, half: bool = False,
    early: bool = True,
) -> list[Run]:
    """Train many specs at once on one device with the fast engine; go on with those begun, leave finished ones alone.

    Args:
        specs: what to train.
        runs, say, device, half: as in `run`.
        names, data: of each spec, as in `run`.
        slots: how many share the device at a time.
        save_every: seconds between checkpoints, each at the end of an epoch.
        early: as in `fast.fit_many`.
        report: called after every epoch of every spec with the spec's position and the epoch's record.
    """
    from ..lab.fit_many import fit_many
    from ..lab.pack import Job

    check_device(device)
    all_names, given = names or [None] * len(specs), data or [None] * len(specs)
    found = [Run.of(spec, runs, name) for spec, name in zip(specs, all_names, strict=True)]
    loaded: dict[Any, Data] = {}
    with ExitStack() as locks:
        works: list[Work] = []
        for i, (spec, there) in enumerate(zip(specs, found, strict=True)):
            key = spec.data_key  # specs of one key share the very arrays, and so can be stacked
            if there.finished:
                check_finished(there, spec, loaded.get(key) or given[i])
                continue
            loaded[key] = loaded.get(key) or given[i] or spec.load()
            tell = None if report is None else lambda record, i=i: report(i, record)
            works.append(Work(there.path, spec, loaded[key], torch.device(device), half=half, report=tell))
        for work in works:
            locks.enter_context(alone(work.folder))
            work.begin()
        for dtype in sorted({work.spec.dtype for work in works}):
            part = [work for work in works if work.spec.dtype == dtype]
            jobs = []
            for work in part:
                start, damaged = checkpoint.latest(work.folder, inside=False)
                for line in damaged:
                    say(f"{line}; going on from the one before")
                if start is None and checkpoint.found(work.folder):
                    say(f"{work.folder}: its checkpoints are inside an epoch, where the fast engine cannot go on; "
                        "trained from the start")
                work.take_up(start)
                jobs.append(Job(work.net, work.data, work.recipe, work.method, work.spec.seed, start))
            fit_many(jobs, slots=slots, device=device, dtype=getattr(torch, dtype), early=early,
                     on_epoch=lambda i, record, part=part: part[i].epoch_over(record),
                     on_end=lambda i, _, part=part: part[i].finish(), save_every=save_every,
                     on_save=lambda i, state, part=part: checkpoint.write(part[i].folder, state))
    return found


def check_device(device: str) -> None:
    """A ValueError if torch does not see it here."""
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise LevelheadError("many networks at once are trained on a CUDA GPU, and torch sees none here; on a CPU they are "
                         "trained by `levelhead train`, or `levelhead sweep --executor local`")


def check_finished(there: Run, spec: Spec, data: Data | None = None) -> None:
    """A ValueError if a finished run is of other settings or, where the name of the data does not say it, other data.

    Two folders of images may have one name, and a folder may have other images today.
    """
    official = spec.official and not read_facts(there.path)["spec"].get("unofficial")
    check_same(there.path, spec, None if official else data or spec.load())


class _Saver:
    """Saves inside an epoch, every so many seconds or steps."""

    def __init__(self, folder: Path, seconds: float, steps: int | None, writes: bool):
        self.folder, self.seconds, self.steps, self.writes = folder, seconds, steps, writes
        self.taken, self.last = 0, time.monotonic()

    def __call__(self, now: Callable[[], State]) -> None:
        self.taken += 1
        due = time.monotonic() - self.last >= self.seconds or (self.steps is not None and self.taken % self.steps == 0)
        if self.writes and due:
            self.save(now())

    def save(self, state: State) -> None:
        checkpoint.write(self.folder, state)
        self.last = time.monotonic()


def _join(device: str | None) -> tuple[torch.device, bool]:
    """The device to train on, and whether this process is the one that writes. Under torchrun, one of many."""
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return torch.device(kind), True
    if not dist.is_initialized():
        dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    return torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if kind == "cuda" else kind), dist.get_rank() == 0


def _together() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
