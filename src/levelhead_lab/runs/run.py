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

# On an H200, in float32: seconds to compile the kernels, and an image by the plain loop and by the fast engine.
COMPILING, PLAIN_IMAGE, FAST_IMAGE = 120.0, 2.0e-4, 2.0e-5
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

    `report` is called after every epoch with its record, `on_batch` after every batch, or every few of them, `on_data`
    with the data once they are loaded, `say` with lines for people. Every epoch ends with a checkpoint; inside one
    there is another after `save_every` seconds or `save_steps` steps. `half` keeps features in half precision.
    """
    found = Run.of(spec, runs, name)
    if found.finished:
        check_finished(found, spec, data)
        return found
    place, writes = _join_processes(device)
    data = data or spec.load()
    show_data = on_data if on_data is not None and writes else lambda data: None
    if uses_fast_engine(spec, len(data.train), place):
        if place.type == "cuda" and writes:
            say(COMPILES)
        reports = None if report is None else lambda _, record: report(record)
        show_data(data)
        return run_packed(
            [spec],
            runs,
            names=[name],
            report=reports,
            on_batch=None if on_batch is None else lambda _, record: on_batch(record),
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
    session = TrainingSession(found, spec, data, place, writes=writes, half=half, report=report)
    show_data(data)
    with lock_folder(found.path, writes=writes):
        if found.finished:  # by another process, before we held the lock
            return found
        session.begin(say)
        start = _latest_checkpoint(found.path, say)
        _wait_for_all()  # every process has read before anything is removed
        if writes:
            session.resume_from(start)
        _wait_for_all()
        saver = _Saver(found.path, save_every, save_steps, writes)

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
    return found


def _batch_report(report: EpochProgress | None, epochs: int) -> OnBatch | None:
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
    from ..fast.pack import Job

    check_device(device)
    given = data or [None] * len(specs)
    found = [
        Run.of(spec, runs, name)
        for spec, name in zip(specs, names or [None] * len(specs), strict=True)
    ]
    loaded: dict[Any, Data] = {}
    on_batch_of: dict[int, Any] = {}  # by the session's id
    with ExitStack() as locks:
        sessions: list[TrainingSession] = []
        for i, (spec, one) in enumerate(zip(specs, found, strict=True)):
            # Specs with equal keys share the very arrays, so that they can be stacked.
            key = spec.data_key
            if one.finished:
                check_finished(one, spec, loaded.get(key) or given[i])
                continue
            loaded[key] = loaded.get(key) or given[i] or spec.load()
            tell = None if report is None else lambda record, i=i: report(i, record)
            sessions.append(
                TrainingSession(
                    one, spec, loaded[key], torch.device(device), half=half, report=tell
                )
            )
            if on_batch is not None:
                on_batch_of[id(sessions[-1])] = _batch_report(
                    partial(on_batch, i), sessions[-1].epochs
                )
        for session in sessions:
            locks.enter_context(lock_folder(session.folder))
            session.begin(say)
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
                jobs.append(
                    Job(
                        session.net,
                        session.data,
                        session.recipe,
                        session.method,
                        session.spec.seed,
                        start,
                    )
                )
            fit_many(
                jobs,
                slots=slots,
                device=device,
                dtype=PRECISIONS[dtype],
                evaluate_early=evaluate_early,
                on_epoch=lambda i, record, part=part: part[i].end_epoch(record),
                on_batch=(lambda i, *batch, part=part: on_batch_of[id(part[i])](*batch))
                if on_batch_of
                else None,
                on_end=lambda i, _, part=part: part[i].finish(),
                save_every=save_every,
                on_save=lambda i, state, part=part: checkpoint.write(part[i].folder, state),
            )
    return found


def check_device(device: str) -> None:
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise LevelheadError(
            "packed networks are trained on a CUDA GPU, and torch does not see one; on a CPU, train "
            "with `levelhead train`, or sweep with the executor local"
        )


def _latest_checkpoint(
    folder: Path, say: Callable[[str], None], *, mid_epoch: bool = True
) -> State | None:
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
        self.taken, self.last = 0, time.monotonic()

    def __call__(self, now: Callable[[], State]) -> None:
        self.taken += 1
        due = time.monotonic() - self.last >= self.seconds or (
            self.steps is not None and self.taken % self.steps == 0
        )
        if self.writes and due:
            self.save(now())

    def save(self, state: State) -> None:
        checkpoint.write(self.folder, state)
        self.last = time.monotonic()


def _join_processes(device: str | None) -> tuple[torch.device, bool]:
    """Return the device to train on, and whether this process writes. Under torchrun, join the others first."""
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return torch.device(kind), True
    if not dist.is_initialized():
        dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    return torch.device(
        f"cuda:{os.environ['LOCAL_RANK']}" if kind == "cuda" else kind
    ), dist.get_rank() == 0


def _wait_for_all() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
