"""Train the run of a spec: begin it, resume it, or find it finished; alone, or many on one device."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from levelhead.support.errors import LevelheadError

from ..fast.precision import PRECISIONS
from ..lab.data import Data
from ..lab.progress import EpochProgress
from ..lab.train import OnBatch, State, fit, stages
from . import checkpoint
from .lock import lock_folder
from .run_folder import Run
from .session import TrainingSession, check_finished
from .spec import Spec

# Seconds on an H200, in float32.
COMPILING = 120.0  # the kernels
PLAIN_IMAGE = 2.0e-4  # an image by the plain loop
FAST_IMAGE = 2.0e-5  # an image by the fast engine
COMPILES = "compiling for the GPU: up to two minutes, unless it was done before; --engine plain begins at once"


def uses_fast_engine(spec: Spec, images: int, place: torch.device) -> bool:
    """Return whether the fast engine trains a spec on so many images: `auto` takes it where it saves the compiling."""
    if spec.engine != "auto" or place.type != "cuda" or dist.is_initialized():
        return spec.engine == "fast"
    seen = images * stages(spec.resolve_recipe(), spec.resolve_method())[-1].end
    return not PRECISIONS[spec.dtype].plain or seen * (PLAIN_IMAGE - FAST_IMAGE) > COMPILING


def run(
    spec: Spec,
    runs: str | Path = "runs",
    *,
    name: str | None = None,
    report: EpochProgress | None = None,
    on_batch: EpochProgress | None = None,
    on_data: Callable[[Data], None] | None = None,
    say: Callable[[str], None] = print,
    data: Data | None = None,
    device: str | None = None,
    save_every: float = 60.0,
    save_steps: int | None = None,
    half: bool = False,
) -> Run:
    """Train what a spec asks for; resume a run that was interrupted; leave a finished one as it is.

    Every epoch ends with a checkpoint.

    Args:
        spec: what to train, on what, and how.
        runs: the folder that holds all runs.
        name: the first part of the name of the run's folder; the spec's title if None.
        report: called after every epoch with its record.
        on_batch: called after every batch, or every few of them, with how far the epoch is.
        on_data: called with the data once they are loaded.
        say: called with lines for people.
        data: of the spec, if they are loaded already.
        device: `cuda` where there is a GPU, if None.
        save_every, save_steps: seconds and steps after which there is another checkpoint inside an epoch.
        half: keep features in half precision.
    """
    folder = Run.of(spec, runs, name)
    if folder.finished:
        check_finished(folder, spec, data)
        return folder
    place, writes = _join_processes(device)
    data = data or spec.load()
    if uses_fast_engine(spec, len(data.train), place):
        if place.type == "cuda" and writes:
            say(COMPILES)
        if on_data is not None and writes:
            on_data(data)
        return run_packed(
            [spec],
            runs,
            names=[name],
            report=_without_position(report),
            on_batch=_without_position(on_batch),
            say=say,
            data=[data],
            device=str(place),
            save_every=save_every,
            half=half,
        )[0]
    if not PRECISIONS[spec.dtype].plain:
        raise LevelheadError(
            f"the plain engine trains in float32 or float64; {spec.dtype} needs the fast engine, on CUDA",
            parameter="dtype",
        )
    session = TrainingSession(folder, spec, data, place, writes=writes, half=half, report=report)
    if on_data is not None and writes:
        on_data(data)
    with lock_folder(folder.path, writes=writes):
        if folder.finished:  # by another process, before we held the lock
            return folder
        session.begin(say)
        start = _latest_checkpoint(folder.path, say)
        _wait_for_all()  # every process has read before anything is removed
        if writes:
            session.resume_from(start)
        _wait_for_all()
        saver = _Saver(folder.path, save_every, save_steps, writes)

        def on_epoch(state: State, record: dict[str, Any]) -> None:
            if writes:
                session.end_epoch(record)
                saver.save(state)

        fit(
            session.net,
            session.data,
            session.recipe,
            session.method,
            seed=spec.seed,
            start=start,
            on_step=saver,
            on_epoch=on_epoch,
            on_batch=_batch_report(on_batch, session.epochs) if writes else None,
        )
        if writes:
            session.finish()
        _wait_for_all()
    return folder


def _without_position(
    report: EpochProgress | None,
) -> Callable[[int, dict[str, Any]], None] | None:
    """Return a callback of many runs that is called for the only one."""
    if report is None:
        return None
    return lambda _, record: report(record)


def _batch_report(report: EpochProgress | None, epochs: int) -> OnBatch | None:
    """Return what tells a bar, in its words, how far an epoch is."""
    if report is None:
        return None
    return lambda epoch, done, total: report(
        {"epoch": epoch, "of": epochs, "batch": done, "batches": total}
    )


def run_packed(
    specs: Sequence[Spec],
    runs: str | Path = "runs",
    *,
    names: Sequence[str | None] | None = None,
    slots: int = 8,
    report: Callable[[int, dict[str, Any]], None] | None = None,
    on_batch: Callable[[int, dict[str, Any]], None] | None = None,
    say: Callable[[str], None] = print,
    data: Sequence[Data | None] | None = None,
    device: str = "cuda",
    save_every: float = 60.0,
    half: bool = False,
    evaluate_early: bool = True,
) -> list[Run]:
    """Train many specs at once on one device with the fast engine; for the options see `run` and `fit_many`."""
    from ..fast.fit_many import fit_many
    from ..fast.job import Job

    check_device(device)
    given = data or [None] * len(specs)
    folders = []
    for spec, name in zip(specs, names or [None] * len(specs), strict=True):
        folders.append(Run.of(spec, runs, name))
    loaded: dict[Any, Data] = {}
    on_batch_of: dict[int, Any] = {}  # by the session's id
    with ExitStack() as locks:
        sessions: list[TrainingSession] = []
        for i, (spec, folder) in enumerate(zip(specs, folders, strict=True)):
            # Specs with equal keys share the very arrays, so that they can be stacked.
            key = spec.data_key
            if folder.finished:
                check_finished(folder, spec, loaded.get(key) or given[i])
                continue
            loaded[key] = loaded.get(key) or given[i] or spec.load()
            tell = None
            if report is not None:
                tell = partial(report, i)
            session = TrainingSession(
                folder, spec, loaded[key], torch.device(device), half=half, report=tell
            )
            sessions.append(session)
            if on_batch is not None:
                on_batch_of[id(session)] = _batch_report(partial(on_batch, i), session.epochs)
        # All folders are locked before the first training begins.
        for session in sessions:
            locks.enter_context(lock_folder(session.folder))
            session.begin(say)
        # The engine trains in one precision at a time.
        for dtype in sorted({session.spec.dtype for session in sessions}):
            part = [session for session in sessions if session.spec.dtype == dtype]
            jobs = []
            for session in part:
                start = _latest_checkpoint(session.folder, say, mid_epoch=False)
                if start is None and checkpoint.checkpoints_in(session.folder):
                    say(
                        f"{session.folder}: the fast engine cannot resume inside an epoch, and every checkpoint is "
                        "inside one; training from the start"
                    )
                session.resume_from(start)
                job = Job(
                    session.net,
                    session.data,
                    session.recipe,
                    session.method,
                    session.spec.seed,
                    start,
                )
                jobs.append(job)

            def tell_batch(i: int, *batch: int, part: list[TrainingSession] = part) -> None:
                on_batch_of[id(part[i])](*batch)

            fit_many(
                jobs,
                slots=slots,
                device=device,
                dtype=PRECISIONS[dtype],
                evaluate_early=evaluate_early,
                on_epoch=lambda i, record, part=part: part[i].end_epoch(record),
                on_batch=tell_batch if on_batch_of else None,
                on_end=lambda i, _, part=part: part[i].finish(),
                save_every=save_every,
                on_save=lambda i, state, part=part: checkpoint.write(part[i].folder, state),
            )
    return folders


def check_device(device: str) -> None:
    """Raise LevelheadError if a GPU is asked for that torch does not see."""
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise LevelheadError(
            "packed networks are trained on a CUDA GPU, and torch does not see one; on a CPU, train "
            "with `levelhead train`, or sweep with the executor local"
        )


def _latest_checkpoint(
    folder: Path, say: Callable[[str], None], *, mid_epoch: bool = True
) -> State | None:
    """Return the State to resume from, and say which checkpoints were damaged; None to train from the start."""
    state, damaged = checkpoint.latest(folder, mid_epoch=mid_epoch)
    for line in damaged:
        say(f"{line}; resuming from the one before")
    return state


class _Saver:
    """Saves checkpoints inside an epoch, every so many seconds or steps."""

    def __init__(self, folder: Path, seconds: float, steps: int | None, writes: bool):
        self.folder = folder
        self.seconds = seconds
        self.steps = steps
        self.writes = writes
        self.taken = 0  # steps
        self.last = time.monotonic()

    def __call__(self, now: Callable[[], State]) -> None:
        self.taken += 1
        due = time.monotonic() - self.last >= self.seconds
        if self.steps is not None and self.taken % self.steps == 0:
            due = True
        if self.writes and due:
            self.save(now())

    def save(self, state: State) -> None:
        checkpoint.write(self.folder, state)
        self.last = time.monotonic()


def _join_processes(device: str | None) -> tuple[torch.device, bool]:
    """Return the device to train on, and whether this process writes. Under torchrun, join the others first."""
    kind = device
    if kind is None:
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return torch.device(kind), True
    if not dist.is_initialized():
        dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    if kind == "cuda":
        kind = f"cuda:{os.environ['LOCAL_RANK']}"
    return torch.device(kind), dist.get_rank() == 0


def _wait_for_all() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
