"""A pack: runs that take the same steps on the same data, in lockstep, as captured graphs.

An epoch is one graph of a few steps, played over and over on the next samples, one of the steps that are left, and one
of the evaluation. So recording takes the same time however long the epoch is.

Dropout is drawn from (seed, epoch), so that on a CPU a run that goes on takes the very same steps. That is not promised
on CUDA: graphs that play beside each other share the device's generator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ..core.errors import LevelheadError
from ..core.head import Head
from ..methods.method import Method
from .data import Data
from .epoch_plan import EpochPlan, draw_plan
from .nets import Net
from .preprocess import Preprocess
from .recipe import Recipe
from .stacked import Rows, Single, Stack, has_kernels, stackable
from .train import State, check_losses, combined_seed, on_host, stages

AHEAD = 16  # steps that are recorded, and whose images are cropped and normalized, at once


@dataclass(frozen=True, eq=False)
class Job:
    """One training: a fresh network, what it learns from, how, and where to go on from. As for `train.fit`."""

    net: Net
    data: Data
    recipe: Recipe
    method: Method
    seed: int = 0
    start: State | None = None

    @property
    def first(self) -> int:
        """The epoch to begin with."""
        if self.start is not None and self.start.step:
            raise LevelheadError(f"the fast engine goes on from the end of an epoch, not from step {self.start.step} in it")
        return 0 if self.start is None else self.start.epoch


@dataclass(frozen=True, eq=False)
class Queued:
    """An epoch on its way: what will be known of it when `over` has come (at once if None)."""

    epoch: int
    lr: float
    report: Tensor
    kept: tuple[Tensor, ...]  # copies of rows, momentum and statistics at its end, if they were asked for
    over: Any


class Pack:
    """Runs in lockstep: the same data, recipe and first epoch, the same number of samples in every epoch."""

    def __init__(
        self, members: list[tuple[int, Job]], store: dict[str, tuple[Tensor, Tensor]], device: torch.device,
        dtype: torch.dtype, *, compiled: bool, stacked: bool, early: bool = True,
    ):
        self.positions, self.jobs = [i for i, _ in members], [job for _, job in members]
        first = self.jobs[0]
        self.device, self.data, self.recipe, self.store = device, first.data, first.recipe, store
        self.evaluated = 0 if early else first.recipe.first_decay_epoch  # the first epoch that is
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.stages = [stages(job.recipe, job.method) for job in self.jobs]
        self.fresh = [job.net.head.weight.detach().clone() for job in self.jobs]  # type: ignore[union-attr]
        with self._here():
            self.runs = _rows(first, len(self.jobs), device, dtype, compiled, stacked)
            self.sgd_ = torch.compile(sgd_) if compiled and isinstance(self.runs, Single) else sgd_
            for run, job in enumerate(self.jobs):
                if job.start is not None:
                    job.net.load_state_dict(job.start.weights)
                self.runs.load(run, job.net, job.start and job.start.momentum)
            self.preprocess = Preprocess(first.recipe, first.data, dtype)
            self.others = [title for title in store if title != "train"]
            columns = 2 + len(self.others) + first.data.classes  # loss, training error, others' errors, norms
            self.report = torch.zeros(len(self.jobs), columns, dtype=torch.float64, device=device)
            self.seen = torch.zeros(len(self.jobs), 2, dtype=torch.float64, device=device)  # losses, errors
        self.epoch, self.shape, self.keep = first.first, None, False
        self.some = self.rest = self.look = _idle
        self.pending: deque[Queued] = deque()

    @property
    def finished(self) -> bool:
        return self.epoch == self.stages[0][-1].end and not self.pending

    def advance(self) -> None:
        """Queue one more epoch, if two are not queued already; with `keep` set, keep where the runs stand then."""
        if self.epoch == self.stages[0][-1].end or len(self.pending) == 2:
            return
        number = next(i for i, stage in enumerate(self.stages[0]) if self.epoch < stage.end)
        now = [each[number] for each in self.stages]
        progress = (self.epoch - now[0].first) / (now[0].end - now[0].first)
        plans = [draw_plan(self.data.train.labels, stage.method, seed=job.seed, epoch=self.epoch, progress=progress,
                      augment=self.recipe) for job, stage in zip(self.jobs, now, strict=True)]
        n = {len(each) for each in plans}
        if len(n) > 1:
            raise LevelheadError(f"runs of one pack drew epochs of {sorted(n)} samples; train them with slots=1")
        lr = [now[0].lr(self.epoch, at / len(plans[0])) for at in range(0, len(plans[0]), self.recipe.batch)]
        with self._here():
            if now[0].head_only and self.epoch == now[0].first:
                self._begin_head()
            drawn = EpochPlan(*(torch.stack(parts) for parts in zip(*(p.tensors for p in plans), strict=True)))
            self._load(drawn, torch.tensor(lr, dtype=self.runs.rows.dtype))
            # what a captured epoch depends on: its length, its stage, and which losses are in force
            shape = (len(plans[0]), number, tuple(sum(progress >= s for s in stage.method.stages) for stage in now))
            if shape != self.shape:
                self.losses = [(loss(self.data.counts, progress), len(list(same)))
                               for loss, same in groupby(stage.method.loss for stage in now)]
                self.now, self.shape = now, shape
                self._record()
            torch.manual_seed(combined_seed(self.jobs[0].seed, self.epoch))  # a network with dropout is alone in its pack
            self.play()
            if self.epoch >= self.evaluated:
                self.look()
            self.pending.append(self._fetch(lr[0]))
        self.epoch += 1

    def harvest(self) -> list[tuple[int, dict[str, Any], State | None]]:
        """The records of the epochs that are over, and States kept; waits only if nothing more can be queued."""
        records = []
        while self.pending and (len(self.pending) == 2 or self.epoch == self.stages[0][-1].end):
            done = self.pending.popleft()
            if done.over is not None:
                done.over.synchronize()
            titles = [f"{title}_error" for title in self.others]
            for run, (loss, error, *rest) in enumerate(done.report.tolist()):
                errors = rest[:len(titles)] if done.epoch >= self.evaluated else [None] * len(titles)
                record = {"epoch": done.epoch + 1, "lr": done.lr, "loss": loss, "train_error": error,
                          "norms": rest[len(titles):], **dict(zip(titles, errors, strict=True))}
                records.append((self.positions[run], record, self._state(run, done) if done.kept else None))
        return records

    def close(self) -> dict[int, State]:
        """The rows back into the jobs' networks."""
        with self._here():
            for run, job in enumerate(self.jobs):
                self.runs.store(run, job.net)
        if self.stream is not None:
            self.stream.synchronize()
        self.some = self.rest = self.look = _idle  # their memory is free again
        ends = {}
        for position, job in zip(self.positions, self.jobs, strict=True):
            weights = {name: t.detach().cpu().clone() for name, t in job.net.state_dict().items()}
            ends[position] = State(self.epoch, 0, weights, {}, torch.zeros(3, dtype=torch.float64))
        return ends

    def play(self) -> None:
        """The steps of an epoch."""
        self.seen.zero_()
        for at in range(0, self.parted, self.size):
            for buffer, part in zip((*self.here.tensors, self.lr_here), self._part(at, at + self.size), strict=True):
                buffer.copy_(part)
            self.some()
        self.rest()

    def _part(self, start: int, end: int) -> tuple[Tensor, ...]:
        """Samples of the epoch's plan, and the learning rates of their steps."""
        steps = slice(start // self.recipe.batch, -(-end // self.recipe.batch))
        return *(x[:, start:end] for x in self.plans.tensors), self.lr[steps]

    # What is captured. Nothing below reads a value back from the device.

    def _steps(self, *part: Tensor) -> None:
        """The steps of a part of the epoch."""
        samples, lr, batch = EpochPlan(*part[:-1]), part[-1], self.recipe.batch
        images, labels = self._images(samples), self.store["train"][1][samples.indices]
        parts = (x.split(batch, dim=1) for x in (images, labels))
        seen = [self._step(x, y, lr[i]) for i, (x, y) in enumerate(zip(*parts, strict=True))]
        for column, values in enumerate(zip(*seen, strict=True)):
            self.seen[:, column] += torch.cat(values, dim=1).sum(dim=1, dtype=torch.float64)

    def _end(self) -> None:
        """The steps that are left, and what is reported of all of them."""
        if self.parted < self.length:
            self._steps(*self._part(self.parted, self.length))
        self.report[:, :2] = self.seen / self.length
        head = self.runs.head.detach().reshape(len(self.jobs), self.data.classes, -1)
        self.report[:, 2 + len(self.others):] = torch.where(self.runs.cosine[..., 0], 1.0, head.norm(dim=-1))

    def _look(self) -> None:
        """The evaluation."""
        for column, title in enumerate(self.others, 2):
            self.report[:, column] = self._error(*self.store[title])

    def _step(self, x: Tensor, labels: Tensor, lr: Tensor) -> tuple[Tensor, Tensor]:
        """One step: each sample's loss, and whether it was wrong, [R, B]."""
        runs, recipe, stage = self.runs, self.recipe, self.now[0]
        runs.refresh()
        with torch.no_grad() if stage.head_only else nullcontext():
            features = runs.features(x.contiguous(), training=not stage.head_only)
        logits = runs.logits(features)
        losses = self._losses(logits, labels)
        learning = [runs.head] if stage.head_only else runs.leaves
        gradients = torch.autograd.grad(losses.mean(dim=1).sum(), learning)
        with torch.no_grad():
            here = runs.head_columns if stage.head_only else slice(None)
            rows, momentum = runs.rows[:, here], runs.momentum[:, here]
            gradient = gradients[0].reshape(len(self.jobs), -1) if stage.head_only else runs.gather(gradients)
            self._project("before")
            self.sgd_(rows, momentum, gradient, lr, recipe)
            self._project("after")
            return losses.detach(), logits.argmax(dim=-1) != labels

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[R, B]. Runs under the same loss are one batch to it: it gives each sample a value of its own."""
        parts, run = [], 0
        for loss, count in self.losses:
            mine = slice(run, run + count)
            y = labels[mine].flatten()
            losses = check_losses(loss(logits[mine].flatten(0, 1), y), y, self.now[run].method)
            parts.append(losses.unflatten(0, (count, -1)))
            run += count
        return torch.cat(parts)

    def _project(self, order: str) -> None:
        for run, stage in enumerate(self.now):
            if stage.method.project is not None and stage.method.order == order:
                weight = self.runs.head.detach().reshape(len(self.jobs), self.data.classes, -1)[run]
                weight.copy_(stage.method.project(Head(weight)).weight)

    def _images(self, samples: EpochPlan) -> Tensor:
        """[R, n, H, W, C], as the network sees them."""
        images = self.preprocess.augmented(self.store["train"][0], EpochPlan(*(x.flatten(0, 1) for x in samples.tensors)))
        return images.permute(0, 2, 3, 1).unflatten(0, (len(self.jobs), -1))

    @torch.no_grad()
    def _error(self, images: Tensor, labels: Tensor) -> Tensor:
        """Share of wrong predictions of each run, [R]."""
        runs, wrong = len(self.jobs), 0
        chunk = max(1, self.runs.at_once // (runs * images[0, 0].numel()))
        self.runs.refresh()
        for at in range(0, len(labels), chunk):
            mine = slice(at, at + chunk)
            x = self.preprocess.standardized(images[mine]).permute(0, 2, 3, 1)
            logits = self.runs.logits(self.runs.features(x.expand(runs, *x.shape).contiguous(), training=False))
            wrong = wrong + (logits.argmax(dim=-1) != labels[mine]).sum(dim=1)
            self.report[:, 0] += 0 * logits.sum(dim=(1, 2))  # no loss is one of a network lost in the last step
        return wrong.double() / len(labels)  # type: ignore[union-attr]

    # What is not.

    def _here(self) -> Any:
        return torch.cuda.stream(self.stream) if self.stream is not None else nullcontext()

    def _load(self, drawn: EpochPlan, lr: Tensor) -> None:
        """Copy an epoch's plan to the device, in the order of the stream: the epoch before still uses the last one."""
        if self.shape is None or self.plans.indices.shape != drawn.indices.shape:
            self.shape, self.length, self.size = None, drawn.indices.shape[1], AHEAD * self.recipe.batch
            self.parted = self.length // self.size * self.size  # samples that go through the graph of a few steps
            self.plans, self.lr = drawn.to(self.device), lr.to(self.device)
            return
        for buffer, x in zip((*self.plans.tensors, self.lr), (*drawn.tensors, lr), strict=True):
            buffer.copy_(x.pin_memory() if self.stream is not None else x, non_blocking=True)

    def _fetch(self, lr: float) -> Queued:
        """The report and what is kept, on their way to the host, and an event that says when they are there."""
        kept = (self.runs.rows, self.runs.momentum, self.runs.statistics) if self.keep else ()
        if self.stream is None:
            return Queued(self.epoch, lr, self.report.clone(), tuple(x.clone() for x in kept), None)
        report, *copies = (torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
                           for x in (self.report, *kept))
        over = torch.cuda.Event()
        over.record(self.stream)
        return Queued(self.epoch, lr, report, tuple(copies), over)

    def _state(self, run: int, done: Queued) -> State:
        weights, momentum, statistics = self.runs.apart(run, *done.kept)
        uncounted = {name: x.detach().cpu().clone() for name, x in self.jobs[run].net.state_dict().items()}
        return State(done.epoch + 1, 0, uncounted | weights | statistics, momentum, torch.zeros(3, dtype=torch.float64))

    def _begin_head(self) -> None:
        """The second stage of a method that has one: the head as at the start, no momentum."""
        with torch.no_grad():
            for run, weight in enumerate(self.fresh):
                self.runs.views["head.weight"][run].copy_(weight)
            self.runs.momentum.zero_()

    def _record(self) -> None:
        """Make what `play` plays. On CUDA steps are taken first, and taken back: they compile, and fill caches."""
        batch, first = self.recipe.batch, self._part(0, min(self.size, self.length))
        here = [part.clone() for part in first]
        self.here, self.lr_here = EpochPlan(*here[:-1]), here[-1]
        if self.stream is not None:
            kept = [x.clone() for x in (self.runs.rows, self.runs.statistics, self.runs.momentum)]
            for n in {min(self.length, 2 * batch), self.length % batch} - {0}:
                self._steps(*self._part(0, n))
            self._look()
            for x, was in zip((self.runs.rows, self.runs.statistics, self.runs.momentum), kept, strict=True):
                x.copy_(was)
            torch.cuda.synchronize(self.device)
        self.some = self._graph(lambda: self._steps(*self.here.tensors, self.lr_here)) if self.parted else _idle
        self.rest = self._graph(self._end)
        self.look = self._graph(self._look)

    def _graph(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work, to be done again and again: a CUDA graph of it."""
        if self.stream is None:
            return work
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            work()
        return graph.replay


def _idle() -> None:
    """No work."""


def sgd_(rows: Tensor, momentum: Tensor, gradient: Tensor, lr: Tensor, recipe: Recipe) -> None:
    """``g <- g + decay w``, ``m <- mu m + g``, ``w <- w - lr m`` (Nesterov: ``w - lr (g + mu m)``), all [R, P]."""
    gradient = gradient + recipe.weight_decay * rows
    momentum.mul_(recipe.momentum).add_(gradient)
    rows.addcmul_(gradient + recipe.momentum * momentum if recipe.nesterov else momentum, lr, value=-1)


def _rows(
    job: Job, runs: int, device: torch.device, dtype: torch.dtype, compiled: bool, stacked: bool
) -> Rows:
    kernels = has_kernels(device, dtype)
    if stacked and (runs > 1 or stackable(job.net, kernels=kernels)):
        return Stack(job.net, runs, device, dtype, kernels=kernels)
    return Single(job.net, device, dtype, compiled=job.recipe.batch if compiled else None)
