"""The fast engine: the mathematics of the plain loop, for many trainings at once, an epoch at a time.

The data are on the device. The plan of an epoch (samples, crops, learning rates) is copied there before it begins.
Its steps and its evaluation are captured CUDA graphs, inside which the host waits for nothing. Runs that take the same
steps on the same data go in lockstep as one `Pack`: networks that the kernels support are stacked into one; wide ones,
which fill a GPU alone, and others, which are compiled, run in parallel, each on its own stream. When a pack is done,
waiting jobs take its place.

On a CPU the same code runs without graphs and kernels, and in float64 too, so that tests can compare it with the plain
loop to the last digits.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from levelhead.support.errors import LevelheadError

from ..lab.data import Split
from ..lab.epoch_plan import draw_plan
from ..lab.preprocess import has_kernels
from ..lab.train import State, divergence, stages
from .job import Job
from .pack import Pack
from .precision import Precision, find_precision
from .stacked import most_stacked

# Each is called with the job's position first.
OnJobEpoch = Callable[[int, dict[str, Any]], None]  # the epoch's record
OnJobBatch = Callable[[int, int, int, int], None]  # what `train.OnBatch` gets
OnJobState = Callable[[int, State], object]


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
    """Train jobs in place; return the State of each after its last step.

    Runs are independent: if one diverges, or a callback raises OSError for it, the others are trained first.

    Args:
        jobs: what to train; those with the same data, recipe and epoch length are stacked.
        slots: runs that share the device.
        device: `cuda`, or `cpu` for tests.
        dtype: of activations; weights are kept in float32 or better.
        compiled: let networks that are not stacked go through torch.compile; None: on CUDA.
        stacked: make one network of those of one architecture; None: where the kernels run.
        evaluate_early: measure errors from the first epoch on, not only from `Recipe.first_decay_epoch`.
        on_epoch: called after every epoch of a job, with its record.
        on_batch: called after every few batches, before the epoch's record.
        on_end: called as soon as a job is trained, while others continue.
        on_save: called at the end of an epoch, with a State from which the job can resume.
        save_every: seconds between these calls.

    Raises:
        LevelheadError: if a run diverged; all others are trained, and their last States were given to `on_end`.
        OSError: if a callback raised it.
    """
    device = torch.device(device)
    if slots < 1:
        raise LevelheadError(f"expected at least 1, got {slots}", parameter="slots")
    precision = find_precision(dtype)
    kernels = has_kernels(device, precision.storage)
    if stacked is None:
        stacked = kernels
    if compiled is None:
        compiled = device.type == "cuda"

    def together(job: Job) -> int:
        """Return how many jobs like this one can be stacked."""
        if stacked:
            return most_stacked(job.net, slots, precision, kernels=kernels)
        return 0

    waiting = deque(_packs(jobs, lambda job: max(1, together(job))))
    # By the identity of the data: jobs on the same data share one copy.
    on_device: dict[int, dict[str, tuple[Tensor, Tensor]]] = {}
    ends: dict[int, State] = {}
    failed: dict[int, LevelheadError | OSError] = {}
    running: list[Pack] = []
    saved = time.monotonic()

    @contextmanager
    def only_fails(position: int) -> Iterator[None]:
        """Let an OSError, such as a full disk, end this run and no other."""
        try:
            yield
        except OSError as error:
            failed[position] = error

    def has_room() -> bool:
        """Say whether the next pack fits beside those that run; one that is larger than all slots runs alone."""
        taken = sum(len(pack.jobs) for pack in running)
        wanted = len(waiting[0])
        return taken + wanted <= max(slots, wanted)

    def start_pack(members: list[tuple[int, Job]]) -> Pack:
        data = members[0][1].data
        if id(data) not in on_device:
            splits = data.splits.items()
            on_device[id(data)] = {name: copy_to(device, part) for name, part in splits}
        tell = None
        if on_batch is not None:
            tell = partial(_tell_each, on_batch, [position for position, _ in members])
        return Pack(
            members,
            on_device[id(data)],
            device,
            precision,
            compiled=compiled,
            stacked=stacked,
            evaluate_early=evaluate_early,
            on_batch=tell,
        )

    while waiting or running:
        while waiting and has_room():
            running.append(start_pack(waiting.popleft()))
        due = on_save is not None and time.monotonic() - saved >= save_every
        if due:
            saved = time.monotonic()
        # First queue an epoch of every pack, then wait for what has ended: the packs run side by side.
        for pack in running:
            pack.keep_state = due
            pack.advance()
        for pack in running:
            for position, record, state in pack.take_records():
                if position not in failed and not isfinite(record["loss"]):
                    which = f" of run {position + 1} of {len(jobs)}"
                    failed[position] = divergence(
                        record["loss"], record["epoch"], record["lr"], which
                    )
                if position in failed:
                    continue
                with only_fails(position):
                    if on_epoch is not None:
                        on_epoch(position, record)
                    if on_save is not None and state is not None:
                        on_save(position, state)
        for pack in list(running):
            all_failed = failed.keys() >= set(pack.positions)
            if not pack.finished and not all_failed:
                continue
            ends.update(pack.close())
            running.remove(pack)
            for position in pack.positions:
                if on_end is not None and position not in failed:
                    with only_fails(position):
                        on_end(position, ends[position])
    for error in failed.values():
        others = ""
        if len(jobs) > 1:
            others = f". {len(jobs) - len(failed)} of the {len(jobs)} runs are trained"
        raise type(error)(f"{error}{others}") from error
    return [ends[position] for position in range(len(jobs))]


def _tell_each(on_batch: OnJobBatch, positions: Sequence[int], *batch: int) -> None:
    """Tell of every run of a pack how far it is: they go in lockstep."""
    for position in positions:
        on_batch(position, *batch)


def _packs(jobs: Sequence[Job], most: Callable[[Job], int]) -> list[list[tuple[int, Job]]]:
    """Return groups of jobs that can go in lockstep, at most so many together, the longest first."""
    alike: dict[Any, list[tuple[int, Job]]] = defaultdict(list)
    for position, job in enumerate(jobs):
        alike[_step_signature(job)].append((position, job))
    packs = []
    for same in alike.values():
        # Runs of one method next to each other share one call of its loss.
        same.sort(key=lambda member: (member[1].method.name, member[0]))
        size = most(same[0][1])
        packs += [same[at : at + size] for at in range(0, len(same), size)]
    return sorted(packs, key=lambda pack: -len(pack) * pack[0][1].recipe.epochs)


def _step_signature(job: Job) -> Any:
    """Return what is equal for jobs that take the same steps: network, data, recipe, first epoch, epoch lengths."""
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
    """Copy a split's images, uint8 in channels-last memory, and its labels to a device."""
    images = torch.from_numpy(part.images).to(device).contiguous(memory_format=torch.channels_last)
    return images, torch.from_numpy(part.labels).to(device)
