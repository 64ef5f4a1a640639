"""The fast engine: the mathematics of the plain loop, for many trainings at once.

The data are on the device. The plan of an epoch (samples, crops, learning rates) is copied there
before it begins. Its steps and its evaluation are captured CUDA graphs, inside which the host waits
for nothing. Runs that take the same steps on the same data go in lockstep as one `Pack`: networks
that the kernels support are stacked into one; wide ones, which fill a GPU alone, and others, which
are compiled, run in parallel, each on its own stream. When a pack is done, waiting jobs take its
place.

The road through it: `fit_many` groups its jobs into packs (`_packs`) and hands them to a
`_Schedule`. That starts as many as there are slots for, and then goes round: queue an epoch of
every pack, collect what has ended, call back, close packs that are done. Inside a pack see `pack`;
what is computed, see `epoch_work`.

On a CPU the same code runs without graphs and kernels, and in float64 too, so that tests can
compare it with the plain loop to the last digits.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import isfinite
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from levelhead.support.errors import LevelheadError

from ..lab.data import Split
from ..lab.epoch_plan import draw_plan
from ..lab.preprocess import has_kernels
from ..lab.stages import stages
from ..lab.train import EpochValues, State, divergence
from .job import Job
from .pack import Pack
from .pending_epoch import EndedEpoch
from .precision import Precision, find_precision
from .stacked import most_stacked

# Each is called with the job's position first.
OnJobEpoch = Callable[[int, EpochValues], None]
OnJobBatch = Callable[[int, int, int, int], None]  # what `train.OnBatch` gets
OnJobState = Callable[[int, State], object]

# What is equal for jobs that take the same steps; only compared, see `_step_signature`.
StepSignature: TypeAlias = tuple[object, ...]


class JobCallbacks(NamedTuple):
    """Whom the engine tells what; see `fit_many`."""

    on_epoch: OnJobEpoch | None
    on_batch: OnJobBatch | None
    on_end: OnJobState | None
    on_save: OnJobState | None
    save_every: float  # seconds


class PackOptions(NamedTuple):
    """How packs are made; see `fit_many`."""

    device: torch.device
    precision: Precision
    compiled: bool
    stacked: bool
    evaluate_early: bool


@contextmanager
def _cudnn_benchmark() -> Iterator[None]:
    """Let cuDNN try its algorithms once on every shape and keep the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@_cudnn_benchmark()
def fit_many(
    jobs: Sequence[Job],
    *,
    slots: int = 8,
    device: str | torch.device = "cuda",
    dtype: Precision | torch.dtype = torch.bfloat16,
    compiled: bool | None = None,
    stacked: bool | None = None,
    evaluate_early: bool = True,
    on_epoch: OnJobEpoch | None = None,
    on_batch: OnJobBatch | None = None,
    on_end: OnJobState | None = None,
    on_save: OnJobState | None = None,
    save_every: float = 60.0,
) -> list[State]:
    """Train jobs in place, many at once.

    Runs are independent: if one diverges, or a callback raises OSError for it, the others are
    trained first.

    Args:
        jobs: what to train; those with the same data, recipe and epoch length are stacked.
        slots: runs that share the device; a pack of stacked networks takes one for each.
        device: `cuda`, or `cpu` for tests.
        dtype: of activations; weights are kept in float32 or better.
        compiled: let networks that are not stacked go through torch.compile; None: on CUDA.
        stacked: make one network of those of one architecture; None: where the kernels run.
        evaluate_early: measure errors from the first epoch on, not only from
            `Recipe.first_decay_epoch`.
        on_epoch: called after every epoch of a job, with its record.
        on_batch: called after every few batches, before the epoch's record.
        on_end: called as soon as a job is trained, while others continue.
        on_save: called at the end of an epoch, with a State from which the job can resume.
        save_every: seconds between these calls.

    Returns:
        The state of each job after its last step, without momentum: it is not to be resumed.

    Raises:
        LevelheadError: if a run diverged; all others are trained, and their last States were given
            to `on_end`.
        OSError: if a callback raised it.
    """
    device = torch.device(device)
    if slots < 1:
        raise LevelheadError(f"expected at least 1, got {slots}", parameter="slots")
    precision = find_precision(dtype)
    if stacked is None:
        stacked = has_kernels(device, precision.storage)
    if compiled is None:
        compiled = device.type == "cuda"
    options = PackOptions(device, precision, compiled, stacked, evaluate_early)
    callbacks = JobCallbacks(on_epoch, on_batch, on_end, on_save, save_every)
    schedule = _Schedule(jobs, slots, options, callbacks)
    schedule.run()
    return schedule.last_states()


class _Schedule:
    """Which packs wait and which run, and what became of their jobs.

    A job is known by its position among all jobs.

    Attributes:
        waiting: groups of jobs that are to be a pack, the longest first.
        running: packs on the device.
        on_device: images and labels by split, by the identity of the data.
        ends: the last state of each job that is trained, by its position.
        failed: why a job could not be trained, by its position.
    """

    def __init__(
        self, jobs: Sequence[Job], slots: int, options: PackOptions, callbacks: JobCallbacks
    ) -> None:
        self.jobs = jobs
        self.slots = slots
        self.options = options
        self.callbacks = callbacks
        self.waiting = deque(_packs(jobs, self._most_together))
        self.running: list[Pack] = []
        # By the identity of the data: jobs on the same data share one copy.
        self.on_device: dict[int, dict[str, tuple[Tensor, Tensor]]] = {}
        self.ends: dict[int, State] = {}
        # In the order in which they failed: the first is raised at the end.
        self.failed: dict[int, LevelheadError | OSError] = {}
        self.saved = time.monotonic()  # when `on_save` was last due

    def run(self) -> None:
        """Train all jobs."""
        while self.waiting or self.running:
            while self.waiting and self._has_room():
                self.running.append(self._start_pack(self.waiting.popleft()))
            # First queue an epoch of every pack, then wait for what has ended: they run side by
            # side.
            keep_state = self._save_is_due()
            for pack in self.running:
                pack.keep_state = keep_state
                pack.advance()
            for pack in self.running:
                for ended in pack.take_records():
                    self._tell(ended)
            self._close_packs()

    def last_states(self) -> list[State]:
        """Return the states of all jobs, or raise the first failure."""
        for error in self.failed.values():
            trained = ""
            if len(self.jobs) > 1:
                done = len(self.jobs) - len(self.failed)
                trained = f". {done} of the {len(self.jobs)} runs are trained"
            raise type(error)(f"{error}{trained}") from error
        return [self.ends[position] for position in range(len(self.jobs))]

    def _most_together(self, job: Job) -> int:
        """Return how many jobs like this one can be one pack: those that are stacked, or one."""
        if not self.options.stacked:
            return 1
        precision = self.options.precision
        kernels = has_kernels(self.options.device, precision.storage)
        return max(1, most_stacked(job.net, self.slots, precision, kernels=kernels))

    def _has_room(self) -> bool:
        """Say whether the next pack fits beside those that run.

        One that is larger than all slots runs alone.
        """
        taken = sum(len(pack.jobs) for pack in self.running)
        wanted = len(self.waiting[0])
        return taken + wanted <= max(self.slots, wanted)

    def _start_pack(self, members: list[tuple[int, Job]]) -> Pack:
        """Put the networks of a pack on the device, and their data, unless they are there."""
        device = self.options.device
        data = members[0][1].data
        if id(data) not in self.on_device:
            splits = data.splits.items()
            self.on_device[id(data)] = {name: copy_to(device, part) for name, part in splits}
        on_batch = None
        if self.callbacks.on_batch is not None:
            positions = [position for position, _ in members]
            on_batch = partial(_tell_each, self.callbacks.on_batch, positions)
        return Pack(
            members,
            self.on_device[id(data)],
            device,
            self.options.precision,
            compiled=self.options.compiled,
            stacked=self.options.stacked,
            evaluate_early=self.options.evaluate_early,
            on_batch=on_batch,
        )

    def _save_is_due(self) -> bool:
        """Say whether to keep the states of the epochs queued now; if so, begin to wait anew."""
        now = time.monotonic()
        if self.callbacks.on_save is None or now - self.saved < self.callbacks.save_every:
            return False
        self.saved = now
        return True

    def _tell(self, ended: EndedEpoch) -> None:
        """Call back about an epoch of a run, unless the run has failed.

        A loss that is not finite makes it fail here. Its pack goes on: other runs of it may be well, and
        it cannot leave the matrices that they share.
        """
        position = ended.position
        values = ended.values
        if position not in self.failed and not isfinite(values["loss"]):
            run = f" of run {position + 1} of {len(self.jobs)}"
            error = divergence(values["loss"], values["epoch"], values["lr"], run)
            self.failed[position] = error
        if position in self.failed:
            return
        with self._only_fails(position):
            if self.callbacks.on_epoch is not None:
                self.callbacks.on_epoch(position, values)
            if self.callbacks.on_save is not None and ended.state is not None:
                self.callbacks.on_save(position, ended.state)

    def _close_packs(self) -> None:
        """Free packs that are done, or of which every run has failed, and tell of their ends."""
        for pack in list(self.running):
            all_failed = self.failed.keys() >= set(pack.positions)
            if not pack.finished and not all_failed:
                continue
            self.ends.update(pack.close())
            self.running.remove(pack)
            for position in pack.positions:
                if self.callbacks.on_end is not None and position not in self.failed:
                    with self._only_fails(position):
                        self.callbacks.on_end(position, self.ends[position])

    @contextmanager
    def _only_fails(self, position: int) -> Iterator[None]:
        """Let an OSError, such as a full disk, end this run and no other."""
        try:
            yield
        except OSError as error:
            self.failed[position] = error


def _tell_each(on_batch: OnJobBatch, positions: Sequence[int], *batch: int) -> None:
    """Tell of every run of a pack how far it is: they go in lockstep.

    Args:
        on_batch: the callback of `fit_many`.
        positions: of the runs, among all jobs.
        batch: epoch, batches done, and batches in all.
    """
    for position in positions:
        on_batch(position, *batch)


def _packs(jobs: Sequence[Job], most: Callable[[Job], int]) -> list[list[tuple[int, Job]]]:
    """Return groups of jobs that can go in lockstep, the longest first.

    The longest, by runs times epochs, begin: short ones fill the slots that are left at the end.

    Args:
        jobs: all of them.
        most: how many jobs like one can be a group.

    Returns:
        For each group the jobs, each with its position among all.
    """
    alike: dict[StepSignature, list[tuple[int, Job]]] = defaultdict(list)
    for position, job in enumerate(jobs):
        alike[_step_signature(job)].append((position, job))
    packs = []
    for group in alike.values():
        # Runs of one method next to each other share one call of its loss.
        group.sort(key=lambda member: (member[1].method.name, member[0]))
        size = most(group[0][1])
        packs += [group[at : at + size] for at in range(0, len(group), size)]
    return sorted(packs, key=lambda pack: -len(pack) * pack[0][1].recipe.epochs)


def _step_signature(job: Job) -> StepSignature:
    """Return what is equal for jobs that take the same steps.

    That is: network, data, recipe, first epoch, and the length of the epochs in every part of the
    training. The last is found by drawing an epoch of each part; methods need not tell it.
    """
    lengths = set()
    for stage in stages(job.recipe, job.method):
        # A sampler may draw epochs of another length in each part of the training.
        starts = [0.0]
        if stage.method.sample is not None:
            starts += stage.method.stages
        for progress in starts:
            first_plan = draw_plan(
                job.data.train.labels, stage.method, job.recipe, seed=0, epoch=0, progress=progress
            )
            lengths.add((stage.first, stage.end, len(first_plan)))
    shapes = tuple((name, tuple(p.shape)) for name, p in job.net.named_parameters())
    return id(job.data), job.recipe, job.first, shapes, tuple(sorted(lengths))


def copy_to(device: torch.device, part: Split) -> tuple[Tensor, Tensor]:
    """Copy a split's images, uint8 in channels-last memory, and its labels to a device.

    In this memory format the pixels of a sample lie as the kernels read them.
    """
    images = torch.from_numpy(part.images).to(device).contiguous(memory_format=torch.channels_last)
    return images, torch.from_numpy(part.labels).to(device)
