"""Train the run of a spec: begin it, resume it, or find it finished.

The road through `run`:

1. `Run.of` names the folder. If the run is finished, it is checked and returned: nothing is loaded.
2. The data are loaded, and `uses_fast_engine` decides which engine trains. The fast one is in
   `packed`, as for many runs; the plain one, one network step by step, is `_train_plain` here.
3. A `TrainingSession` builds the network and keeps the folder: it checks or writes spec.json, cuts
   the log to the last checkpoint, adds each epoch, and at the end writes model, snapshot and result.
4. `lab.train.fit` takes the steps, and `_Saver` writes checkpoints in between.

Under torchrun every process goes this road, each on its part of every batch. All of them read, and
only the first writes; barriers keep the others from reading what it is about to remove.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from levelhead.support.errors import LevelheadError

from ..fast.precision import PRECISIONS
from ..lab.data import Data
from ..lab.progress import EpochProgress
from ..lab.stages import stages
from ..lab.train import State, fit
from . import checkpoint
from .lock import lock_folder
from .packed import OnRunRecord, run_packed
from .run_folder import EpochRecord, Run
from .session import TrainingSession, check_finished
from .spec import Spec

# Seconds on an H200, in float32: what `auto` decides by.
COMPILING = 120.0  # the kernels
PLAIN_IMAGE = 2.0e-4  # an image by the plain loop
FAST_IMAGE = 2.0e-5  # an image by the fast engine
COMPILES = "compiling for the GPU: up to two minutes, unless it was done before; --engine plain begins at once"


def uses_fast_engine(spec: Spec, images: int, place: torch.device) -> bool:
    """Return whether the fast engine trains a spec on so many images.

    Where the spec says `auto`, it does if it saves more time than its kernels take to compile, or if
    the plain engine cannot train in the precision asked for. That holds on one GPU: on a CPU, and
    for several processes, the plain one trains.

    Args:
        spec: what to train.
        images: in one epoch.
        place: the device to train on.
    """
    if spec.engine != "auto" or place.type != "cuda" or dist.is_initialized():
        return spec.engine == "fast"
    epochs = stages(spec.resolve_recipe(), spec.resolve_method())[-1].end
    saved = images * epochs * (PLAIN_IMAGE - FAST_IMAGE)  # seconds
    return not PRECISIONS[spec.dtype].plain or saved > COMPILING


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

    By the plain engine, every epoch ends with a checkpoint.

    Args:
        spec: what to train, on what, and how.
        runs: the folder that holds all runs.
        name: the first part of the name of the run's folder; the spec's title if None.
        report: called after every epoch with its record.
        on_batch: called after every batch, or every few of them, with how far the epoch is.
        on_data: called with the data once they are loaded.
        say: called with lines for people, by one process of several.
        data: of the spec, if they are loaded already.
        device: `cuda` where there is a GPU, if None.
        save_every: seconds after which the plain engine writes another checkpoint inside an epoch,
            and the fast one a checkpoint at the end of an epoch.
        save_steps: steps after which the plain engine writes one too; only by time if None.
        half: keep the features of the snapshot in half precision.

    Returns:
        The run, finished.

    Raises:
        LevelheadError: if the folder holds another run or is damaged, or the training diverged.
        BusyError: if another process is training this run.
        OSError: if the disk is full; what was trained so far is kept, as the message says.
    """
    # A finished run stands for its training, if it is whole and what the spec asks for.
    folder = Run.of(spec, runs, name)
    if folder.finished:
        check_finished(folder, spec, data)
        return folder
    place, writes = _join_processes(device)
    if not writes:
        say = _say_nothing  # the process that writes says it
    data = data or spec.load()
    # For the fast engine, one run is many of which there is one.
    if uses_fast_engine(spec, len(data.train), place):
        if place.type == "cuda":
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
    # Built before the data are shown: what is sure to fail fails first.
    session = TrainingSession(folder, spec, data, place, writes=writes, half=half, report=report)
    if on_data is not None and writes:
        on_data(data)
    saver = _Saver(folder.path, save_every, save_steps, writes)
    _train_plain(session, saver, on_batch, say)
    return folder


def _say_nothing(_: str) -> None:
    pass


def _without_position(report: EpochProgress | None) -> OnRunRecord | None:
    """Return a callback of many runs that is called for the only one."""
    if report is None:
        return None
    return lambda _, record: report(record)


def _train_plain(
    session: TrainingSession,
    saver: "_Saver",
    on_batch: EpochProgress | None,
    say: Callable[[str], None],
) -> None:
    """Train a session's network by the plain engine, from its last checkpoint on, and write the result.

    Args:
        session: not begun.
        saver: writes the checkpoints.
        on_batch: called after every batch with how far the epoch is.
        say: called with lines for people.
    """
    writes = session.writes
    with lock_folder(session.folder, writes=writes):
        if session.run.finished:  # by another process, before we held the lock
            return
        session.begin(say)
        start = session.latest_checkpoint(say)
        _wait_for_all()  # every process has read before anything is removed
        if writes:
            session.resume_from(start)
        _wait_for_all()

        def on_epoch(state: State, record: EpochRecord) -> None:
            # The log first: a checkpoint is of use only with the records of the epochs before it.
            if writes:
                session.end_epoch(record)
                saver.save(state)

        fit(
            session.net,
            session.data,
            session.recipe,
            session.method,
            seed=session.spec.seed,
            start=start,
            on_step=saver,
            on_epoch=on_epoch,
            on_batch=session.batch_report(on_batch) if writes else None,
        )
        if writes:
            session.finish()
        _wait_for_all()


class _Saver:
    """Saves checkpoints inside an epoch, every so many seconds or steps. It is the `on_step` of `fit`.

    `fit` hands it a function and not a State: a State is a copy of all weights on the host, which is
    only made when it is due.

    Args:
        folder: of the run.
        seconds: between two checkpoints, at least.
        steps: between two checkpoints, exactly; None to go by the time alone.
        writes: whether this process does; the others only count.
    """

    def __init__(self, folder: Path, seconds: float, steps: int | None, writes: bool):
        self.folder = folder
        self.seconds = seconds  # between two checkpoints, at least
        self.steps = steps  # between two checkpoints; None to go by the time alone
        self.writes = writes  # whether this process does
        self.taken = 0  # steps
        self.last = time.monotonic()

    def __call__(self, current_state: Callable[[], State]) -> None:
        """Count a step, and save the State after it if that is due."""
        self.taken += 1
        due = time.monotonic() - self.last >= self.seconds
        if self.steps is not None and self.taken % self.steps == 0:
            due = True
        if self.writes and due:
            self.save(current_state())

    def save(self, state: State) -> None:
        """Save a State now; the next is due that much later."""
        checkpoint.write(self.folder, state)
        self.last = time.monotonic()


def _join_processes(device: str | None) -> tuple[torch.device, bool]:
    """Return the device to train on, and whether this process writes. Under torchrun, join the others first.

    torchrun tells each process by environment variables how many there are (WORLD_SIZE) and which of
    its machine it is (LOCAL_RANK), and so which GPU is its own.
    """
    if device is not None:
        kind = device
    elif torch.cuda.is_available():
        kind = "cuda"
    else:
        kind = "cpu"
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return torch.device(kind), True
    if not dist.is_initialized():
        dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    if kind == "cuda":
        kind = f"cuda:{os.environ['LOCAL_RANK']}"
    return torch.device(kind), dist.get_rank() == 0


def _wait_for_all() -> None:
    """Wait until every process of torchrun is here; without it there is nobody to wait for."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
