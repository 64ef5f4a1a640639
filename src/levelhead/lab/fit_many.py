"""The fast engine: the plain loop's mathematics, many trainings at once, an epoch at a time.

Data lie on the device; what an epoch will do (samples, crops, learning rates) is copied there before it begins; then
its steps and its evaluation are captured CUDA graphs, and the host waits for nothing inside. Runs that take the
same steps on the same data go in lockstep as one `Pack`: networks the kernels know are stacked into one, others are
compiled and run beside each other, each on a stream of its own. When a pack is done, waiting jobs take its place.

On a CPU the same code runs without graphs and kernels, in float64 too: there it can be held against the plain loop to
the last digits.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ..core.errors import LevelheadError
from .data import Split
from .epoch_plan import draw_plan
from .pack import Job, Pack
from .stacked import has_kernels, stackable
from .train import State, stages

OnEpoch = Callable[[int, dict[str, Any]], None]
OnState = Callable[[int, State], object]


@contextmanager
def _convolutions_tried() -> Iterator[None]:
    """cuDNN tries its algorithms once on every shape and keeps the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@_convolutions_tried()
def fit_many(
    jobs: Sequence[Job], *, slots: int = 8, device: str | torch.device = "cuda", dtype: torch.dtype = torch.bfloat16,
    compiled: bool | None = None, stacked: bool | None = None, early: bool = True, on_epoch: OnEpoch | None = None,
    on_end: OnState | None = None, on_save: OnState | None = None, save_every: float = 60.0,
) -> list[State]:
    """Train many networks in place, `slots` of them at a time.

    Args:
        jobs: what to train; those with the same data, recipe and epoch length are stacked.
        slots: how many runs share the device.
        device: where.
        dtype: of activations: bfloat16, float32 or float64. Weights are kept in float32 or better.
        compiled: whether unstacked networks go through torch.compile; None is yes on CUDA.
        stacked: whether networks of one kind become one; None is yes where the kernels can: on CUDA.
        early: measure errors on what is not trained on from the first epoch on; else from `Recipe.first_decay_epoch` on, and they
            are None before.
        on_epoch: called after each epoch of each job with the job's position and the epoch's record.
        on_end: called with a job's position and State as soon as it is trained, while others go on: save it there.
        on_save: called with a job's position and its State at the end of an epoch, for it to go on from there.
        save_every: seconds between that.

    Returns:
        The State of each job after its last step. Runs do not touch each other: if one diverges, or a callback cannot
        write of it (an OSError), the others are trained to the end before the error is raised.
    """
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    if slots < 1:
        raise LevelheadError(f"expected at least one slot, got {slots}")
    kernels = has_kernels(device, dtype)
    stacked = kernels if stacked is None else stacked
    compiled = on_gpu if compiled is None else compiled
    waiting = deque(_packs(jobs, lambda job: slots if stacked and stackable(job.net, kernels=kernels) else 1))
    store: dict[int, dict[str, tuple[Tensor, Tensor]]] = {}
    ends: dict[int, State] = {}
    lost: dict[int, ValueError | OSError] = {}
    running: list[Pack] = []
    saved = time.monotonic()

    @contextmanager
    def alone(position: int) -> Iterator[None]:
        """A full disk ends the run that finds it so, and no other."""
        try:
            yield
        except OSError as error:
            lost[position] = error

    while waiting or running:
        while waiting and sum(len(pack.jobs) for pack in running) + len(waiting[0]) <= max(slots, len(waiting[0])):
            members = waiting.popleft()
            data = members[0][1].data
            if id(data) not in store:
                store[id(data)] = {title: on_device(device, part) for title, part in data.splits.items()}
            running.append(Pack(members, store[id(data)], device, dtype, compiled=compiled, stacked=stacked,
                                early=early))
        due = on_save is not None and time.monotonic() - saved >= save_every
        saved = time.monotonic() if due else saved
        for pack in running:
            pack.keep = due
            pack.advance()
        for pack in running:
            for position, record, state in pack.harvest():
                if position not in lost and not isfinite(record["loss"]):
                    lost[position] = ValueError(
                        f"the loss of run {position + 1} of {len(jobs)} is {record['loss']} in epoch "
                        f"{record['epoch']}: the training has diverged; lower the learning rate (it was "
                        f"{record['lr']:g})")
                if position in lost:
                    continue
                with alone(position):
                    if on_epoch is not None:
                        on_epoch(position, record)
                    if on_save is not None and state is not None:
                        on_save(position, state)
        for pack in [pack for pack in running if pack.finished or lost.keys() >= set(pack.positions)]:
            ends.update(pack.close())
            running.remove(pack)
            for position in pack.positions:
                if on_end is not None and position not in lost:
                    with alone(position):
                        on_end(position, ends[position])
    for error in lost.values():
        others = f". {len(jobs) - len(lost)} of the runs are trained" if len(jobs) > 1 else ""
        raise type(error)(f"{error}{others}") from error
    return [ends[position] for position in range(len(jobs))]


def _packs(jobs: Sequence[Job], most: Callable[[Job], int]) -> list[list[tuple[int, Job]]]:
    """Jobs that can go in lockstep, at most so many together, longest first."""
    alike: dict[Any, list[tuple[int, Job]]] = defaultdict(list)
    for position, job in enumerate(jobs):
        alike[_lockstep(job)].append((position, job))
    for same in alike.values():
        same.sort(key=lambda member: (member[1].method.name, member[0]))
    packs = []
    for same in alike.values():
        size = most(same[0][1])
        packs += [same[at:at + size] for at in range(0, len(same), size)]
    return sorted(packs, key=lambda pack: -len(pack) * pack[0][1].recipe.epochs)


def _lockstep(job: Job) -> Any:
    """Jobs of which this is equal take the same steps: network, data, recipe, first epoch, every epoch's length."""
    lengths = []
    for stage in stages(job.recipe, job.method):
        marks = (0.0, *stage.method.stages)
        lengths += [(stage.first, stage.end, mark, len(draw_plan(job.data.train.labels, stage.method, seed=0, epoch=0,
                     progress=mark, augment=job.recipe))) for mark in marks if stage.method.sample is not None] or [
                     (stage.first, stage.end, 0.0, len(job.data.train))]
    shapes = tuple((name, tuple(p.shape)) for name, p in job.net.named_parameters())
    return id(job.data), job.recipe, job.first, shapes, tuple(sorted({(a, b, n) for a, b, _, n in lengths}))


def on_device(device: torch.device, part: Split) -> tuple[Tensor, Tensor]:
    """A split's images, uint8 in channels-last memory, and labels."""
    images = torch.from_numpy(part.images).to(device).contiguous(memory_format=torch.channels_last)
    return images, torch.from_numpy(part.labels).to(device)
