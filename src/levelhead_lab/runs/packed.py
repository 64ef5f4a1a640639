"""Train the runs of many specs at once on one device, with the fast engine.

The road through `run_packed`: a session for each run that is not finished, all folders locked and
begun, then one call of `fast.fit_many` for each precision, which calls back for every epoch, every
checkpoint and every end. What it stacks and what it runs side by side is its own matter; here is
only what concerns folders.

Unlike the plain engine, it writes checkpoints at the ends of epochs alone, and resumes only from
there: an epoch is captured and launched as a whole.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from levelhead.support.errors import LevelheadError

from ..fast.precision import PRECISIONS
from ..lab.data import Data
from ..lab.progress import EpochProgress
from ..lab.train import OnBatch, State
from . import checkpoint
from .lock import lock_folder
from .run_folder import EpochRecord, Run
from .session import TrainingSession, check_finished
from .spec import Spec

if TYPE_CHECKING:
    from ..fast.job import Job

# Called with the position of a run and a record of its epoch, or of how far the epoch is.
OnRunRecord = Callable[[int, EpochRecord], None]


class _Member(NamedTuple):
    """A run that is to be trained."""

    session: TrainingSession
    on_batch: OnBatch | None  # told how far the run's epoch is


def run_packed(
    specs: Sequence[Spec],
    runs: str | Path = "runs",
    *,
    names: Sequence[str | None] | None = None,
    slots: int = 8,
    report: OnRunRecord | None = None,
    on_batch: OnRunRecord | None = None,
    say: Callable[[str], None] = print,
    data: Sequence[Data | None] | None = None,
    device: str = "cuda",
    save_every: float = 60.0,
    half: bool = False,
    evaluate_early: bool = True,
) -> list[Run]:
    """Train many specs at once on one device; resume those that were interrupted, leave finished ones.

    Args:
        specs: what to train. Those that train on the same data share one copy of them.
        runs: the folder that holds all runs.
        names: of each spec, as in `run`.
        slots: networks that share the device at a time; the others wait.
        report: called after every epoch of a run, with its position among the specs and its record.
        on_batch: called after every few batches, with the position and how far the epoch is.
        say: called with lines for people.
        data: of each spec, where they are loaded already.
        device: a CUDA device; `cpu` serves tests.
        save_every: seconds between checkpoints, each at the end of an epoch.
        half: keep the features of snapshots in half precision.
        evaluate_early: measure errors from the first epoch on, not only from the first decay of the
            learning rate.

    Returns:
        The run of each spec, finished.

    Raises:
        LevelheadError: if a folder holds another run or is damaged, before anything is trained; or if
            a training diverged, after all others.
        BusyError: if another process is training one of the runs; then none is trained.
        OSError: if the disk is full; all other runs are trained first.
    """
    check_device(device)
    names = names or [None] * len(specs)
    data = data or [None] * len(specs)
    folders = [Run.of(spec, runs, name) for spec, name in zip(specs, names, strict=True)]
    members: list[_Member] = []
    loaded: dict[tuple[object, ...], Data] = {}
    for position, (spec, folder) in enumerate(zip(specs, folders, strict=True)):
        # Specs with equal keys share the very arrays, so that they can be stacked.
        data_of_spec = loaded.get(spec.data_key) or data[position]
        if folder.finished:
            check_finished(folder, spec, data_of_spec)
            continue
        data_of_spec = data_of_spec or spec.load()
        loaded[spec.data_key] = data_of_spec
        session = TrainingSession(
            folder,
            spec,
            data_of_spec,
            torch.device(device),
            half=half,
            report=_at_position(report, position),
        )
        on_batch_of_run = session.batch_report(_at_position(on_batch, position))
        members.append(_Member(session, on_batch_of_run))
    with ExitStack() as locks:
        # All folders are locked before the first training begins: one that is busy stops the whole
        # call, and not after hours.
        for session, _ in members:
            locks.enter_context(lock_folder(session.folder))
            session.begin(say)
        # The engine trains in one precision at a time.
        for dtype in sorted({session.spec.dtype for session, _ in members}):
            _train_together(
                [member for member in members if member.session.spec.dtype == dtype],
                dtype,
                slots=slots,
                device=device,
                evaluate_early=evaluate_early,
                save_every=save_every,
                say=say,
            )
    return folders


def _at_position(report: OnRunRecord | None, position: int) -> EpochProgress | None:
    """Return a callback of many runs as that of the run at one position."""
    if report is None:
        return None
    return partial(report, position)


def _train_together(
    members: Sequence[_Member],
    dtype: str,
    *,
    slots: int,
    device: str,
    evaluate_early: bool,
    save_every: float,
    say: Callable[[str], None],
) -> None:
    """Train runs of one precision, from their last checkpoints on, and write their results.

    The engine speaks of a job by its position, which is that of its member here. If a callback raises
    OSError, as for a full disk, it ends that run alone, and the engine raises it when the others are
    trained.

    Args:
        members: whose folders are locked and begun.
        dtype: their precision.
        slots, device, evaluate_early, save_every, say: as for `run_packed`.
    """
    # Imported here, as a process that trains plainly never needs it.
    from ..fast.fit_many import fit_many

    jobs = [_resumed_job(session, say) for session, _ in members]

    def on_epoch(position: int, record: EpochRecord) -> None:
        """Write the record of a run's epoch, and report it."""
        members[position].session.end_epoch(record)

    def on_batch(position: int, epoch: int, done: int, total: int) -> None:
        """Tell a run's bar how far its epoch is, if it has one."""
        tell = members[position].on_batch
        if tell is not None:
            tell(epoch, done, total)

    def on_save(position: int, state: State) -> None:
        """Write a checkpoint of a run."""
        checkpoint.write(members[position].session.folder, state)

    def on_end(position: int, state: State) -> None:
        """Write the result of a run; its network has the trained weights by now, and the state is not needed."""
        members[position].session.finish()

    # Telling of a batch costs an event on the device and a wait for it: only where someone listens.
    watched = any(member.on_batch is not None for member in members)
    fit_many(
        jobs,
        slots=slots,
        device=device,
        dtype=PRECISIONS[dtype],
        evaluate_early=evaluate_early,
        on_epoch=on_epoch,
        on_batch=on_batch if watched else None,
        on_end=on_end,
        save_every=save_every,
        on_save=on_save,
    )


def _resumed_job(session: TrainingSession, say: Callable[[str], None]) -> "Job":
    """Return the training of a session from the last checkpoint that the fast engine can resume from.

    A run that the plain engine began may have none at the end of an epoch: then it is trained from
    the start, which is said, as it may cost hours.
    """
    from ..fast.job import Job

    start = session.latest_checkpoint(say, mid_epoch=False)
    if start is None and checkpoint.checkpoints_in(session.folder):
        say(
            f"{session.folder}: the fast engine cannot resume inside an epoch, and every checkpoint is "
            "inside one; training from the start"
        )
    session.resume_from(start)
    return Job(session.net, session.data, session.recipe, session.method, session.spec.seed, start)


def check_device(device: str) -> None:
    """Raise LevelheadError if a GPU is asked for that torch does not see.

    Whoever asks for the executor `packed` on a machine without one should hear it before the data
    are loaded.
    """
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise LevelheadError(
            "packed networks are trained on a CUDA GPU, and torch does not see one; on a CPU, train "
            "with `levelhead train`, or sweep with the executor local"
        )
