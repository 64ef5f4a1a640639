"""A pack: runs that take the same steps on the same data, in lockstep, an epoch as one captured graph."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ..head import Head
from ..methods.method import Method
from .data import Data
from .epoch import Plan, plan
from .nets import Net
from .recipe import Recipe
from .stacked import Rows, Single, Stack, has_kernels, stackable
from .train import State, stages
from .view import View

AHEAD = 32  # steps whose images are cropped and normalized at once
EVALUATED = 2**24  # pixels evaluated at once, over all runs of a pack: 16384 images of 32x32


@dataclass(frozen=True, eq=False)
class Job:
    """One training: a fresh network, what it learns from, and how. As for `train.fit`."""

    net: Net
    data: Data
    recipe: Recipe
    method: Method
    seed: int = 0


class Pack:
    """Runs in lockstep: the same data, the same number of samples in every epoch, the same recipe."""

    def __init__(
        self, members: list[tuple[int, Job]], store: dict[str, tuple[Tensor, Tensor]], device: torch.device,
        dtype: torch.dtype, *, compiled: bool, stacked: bool,
    ):
        self.positions, self.jobs = [i for i, _ in members], [job for _, job in members]
        first = self.jobs[0]
        self.device, self.data, self.recipe, self.store = device, first.data, first.recipe, store
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.stages = [stages(job.recipe, job.method) for job in self.jobs]
        self.fresh = [job.net.head.weight.detach().clone() for job in self.jobs]  # type: ignore[union-attr]
        with self._here():
            self.runs = _rows(first, len(self.jobs), device, dtype, compiled, stacked)
            self.sgd_ = torch.compile(sgd_) if compiled and isinstance(self.runs, Single) else sgd_
            for run, job in enumerate(self.jobs):
                self.runs.load(run, job.net)
            self.momentum = torch.zeros_like(self.runs.rows)
            self.view = View(first.recipe, first.data, dtype)
            columns = 2 + len(store) - 1 + first.data.classes  # loss, training error, other splits' errors, norms
            self.report = torch.zeros(len(self.jobs), columns, dtype=torch.float64, device=device)
        self.epoch, self.shape, self.graph = 0, None, None
        self.pending: deque[tuple[int, float, Tensor, Any]] = deque()

    @property
    def finished(self) -> bool:
        return self.epoch == self.stages[0][-1].end and not self.pending

    def advance(self) -> None:
        """Queue one more epoch, if two are not queued already."""
        if self.epoch == self.stages[0][-1].end or len(self.pending) == 2:
            return
        number = next(i for i, stage in enumerate(self.stages[0]) if self.epoch < stage.end)
        now = [each[number] for each in self.stages]
        progress = (self.epoch - now[0].first) / (now[0].end - now[0].first)
        plans = [plan(self.data.train.labels, stage.method, seed=job.seed, epoch=self.epoch, progress=progress,
                      augment=self.recipe) for job, stage in zip(self.jobs, now, strict=True)]
        n = {len(each) for each in plans}
        if len(n) > 1:
            raise ValueError(f"runs of one pack drew epochs of {sorted(n)} samples; train them with slots=1")
        lr = [now[0].lr(self.epoch, at / len(plans[0])) for at in range(0, len(plans[0]), self.recipe.batch)]
        with self._here():
            if now[0].head_only and self.epoch == now[0].first:
                self._begin_head()
            drawn = Plan(*(torch.stack(parts) for parts in zip(*(p.parts for p in plans), strict=True)))
            self._load(drawn, torch.tensor(lr, dtype=self.runs.rows.dtype))
            # what a captured epoch depends on: its length, its stage, and which losses are in force
            shape = (len(plans[0]), number, tuple(sum(progress >= s for s in stage.method.stages) for stage in now))
            if shape != self.shape:
                self.losses = [(loss(self.data.counts, progress), len(list(same)))
                               for loss, same in groupby(stage.method.loss for stage in now)]
                self.now, self.shape = now, shape
                if self.stream is not None:
                    self._capture()
            self.graph.replay() if self.graph is not None else self._play()
            self.pending.append((self.epoch, lr[0], *self._fetch()))
        self.epoch += 1

    def harvest(self) -> list[tuple[int, dict[str, Any]]]:
        """The records of the epochs that are over; waits only if nothing more can be queued."""
        records = []
        while self.pending and (len(self.pending) == 2 or self.epoch == self.stages[0][-1].end):
            epoch, lr, report, over = self.pending.popleft()
            if over is not None:
                over.synchronize()
            titles = [f"{title}_error" for title in self.store if title != "train"]
            for position, row in zip(self.positions, report.tolist(), strict=True):
                records.append((position, {"epoch": epoch + 1, "lr": lr, "loss": row[0], "train_error": row[1],
                                           "norms": row[2 + len(titles):], **dict(zip(titles, row[2:], strict=False))}))
        return records

    def close(self) -> dict[int, State]:
        """The rows back into the jobs' networks."""
        with self._here():
            for run, job in enumerate(self.jobs):
                self.runs.store(run, job.net)
        if self.stream is not None:
            self.stream.synchronize()
        self.graph = None
        ends = {}
        for position, job in zip(self.positions, self.jobs, strict=True):
            weights = {name: t.detach().cpu().clone() for name, t in job.net.state_dict().items()}
            ends[position] = State(self.epoch, 0, weights, {}, torch.zeros(3, dtype=torch.float64))
        return ends

    # What is captured. Nothing below reads a value back from the device.

    def _play(self) -> None:
        """An epoch and its evaluation."""
        n, batch = self.length, self.recipe.batch
        for ahead in range(0, n, AHEAD * batch):
            part = slice(ahead, min(ahead + AHEAD * batch, n))
            images, labels = self._images(part), self.store["train"][1][self.plans.indices[:, part]]
            for at in range(0, images.shape[1], batch):
                size = slice(at, min(at + batch, images.shape[1]))
                self._step(images[:, size], labels[:, size], self.lr[(ahead + at) // batch], ahead + at)
        self.report[:, 0], self.report[:, 1] = self.seen_losses.mean(dim=1), self.seen_errors.double().mean(dim=1)
        titles = [title for title in self.store if title != "train"]
        for column, title in enumerate(titles, 2):
            self.report[:, column] = self._error(*self.store[title])
        head = self.runs.head.detach().reshape(len(self.jobs), self.data.classes, -1)
        self.report[:, 2 + len(titles):] = torch.where(self.runs.cosine[..., 0], 1.0, head.norm(dim=-1))

    def _step(self, x: Tensor, labels: Tensor, lr: Tensor, at: int) -> None:
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
            rows, momentum = runs.rows[:, here], self.momentum[:, here]
            gradient = gradients[0].reshape(len(self.jobs), -1) if stage.head_only else runs.gather(gradients)
            self._project("before")
            self.sgd_(rows, momentum, gradient, lr, recipe)
            self._project("after")
            self.seen_losses[:, at:at + labels.shape[1]] = losses.detach()
            self.seen_errors[:, at:at + labels.shape[1]] = logits.argmax(dim=-1) != labels

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[R, B]. Runs under the same loss are one batch to it: it gives each sample a value of its own."""
        parts, run = [], 0
        for loss, count in self.losses:
            mine = slice(run, run + count)
            parts.append(loss(logits[mine].flatten(0, 1), labels[mine].flatten()).unflatten(0, (count, -1)))
            run += count
        return torch.cat(parts)

    def _project(self, order: str) -> None:
        for run, stage in enumerate(self.now):
            if stage.method.project is not None and stage.method.order == order:
                weight = self.runs.head.detach().reshape(len(self.jobs), self.data.classes, -1)[run]
                weight.copy_(stage.method.project(Head(weight)).weight)

    def _images(self, part: slice) -> Tensor:
        """[R, n, H, W, C], as the network sees them."""
        samples = Plan(*(x[:, part].flatten(0, 1) for x in self.plans.parts))
        return self.view(self.store["train"][0], samples).permute(0, 2, 3, 1).unflatten(0, (len(self.jobs), -1))

    @torch.no_grad()
    def _error(self, images: Tensor, labels: Tensor) -> Tensor:
        """Share of wrong predictions of each run, [R]."""
        runs, wrong = len(self.jobs), 0
        chunk = max(1, EVALUATED // (runs * images[0, 0].numel()))
        self.runs.refresh()
        for at in range(0, len(labels), chunk):
            mine = slice(at, at + chunk)
            x = self.view.plain(images[mine]).permute(0, 2, 3, 1)
            logits = self.runs.logits(self.runs.features(x.expand(runs, *x.shape).contiguous(), training=False))
            wrong = wrong + (logits.argmax(dim=-1) != labels[mine]).sum(dim=1)
        return wrong.double() / len(labels)  # type: ignore[union-attr]

    # What is not.

    def _here(self) -> Any:
        return torch.cuda.stream(self.stream) if self.stream is not None else nullcontext()

    def _load(self, drawn: Plan, lr: Tensor) -> None:
        """Copy an epoch's plan to the device, in the order of the stream: the epoch before still uses the last one."""
        if self.shape is None or self.plans.indices.shape != drawn.indices.shape:
            self.shape, self.length = None, drawn.indices.shape[1]
            self.plans, self.lr = drawn.to(self.device), lr.to(self.device)
            self.seen_losses = torch.zeros(drawn.indices.shape, dtype=torch.float64, device=self.device)
            self.seen_errors = torch.zeros(drawn.indices.shape, dtype=torch.bool, device=self.device)
            return
        for buffer, x in zip((*self.plans.parts, self.lr), (*drawn.parts, lr), strict=True):
            buffer.copy_(x.pin_memory() if self.stream is not None else x, non_blocking=True)

    def _fetch(self) -> tuple[Tensor, Any]:
        """The report, on its way to the host, and an event that says when it is there."""
        if self.stream is None:
            return self.report.clone(), None
        report = torch.empty(self.report.shape, dtype=self.report.dtype, pin_memory=True)
        report.copy_(self.report, non_blocking=True)
        over = torch.cuda.Event()
        over.record(self.stream)
        return report, over

    def _begin_head(self) -> None:
        """The second stage of a method that has one: the head as at the start, no momentum."""
        with torch.no_grad():
            for run, weight in enumerate(self.fresh):
                self.runs.views["head.weight"][run].copy_(weight)
            self.momentum.zero_()

    def _capture(self) -> None:
        """Record the epoch as a graph. A few steps are taken first, and taken back: they compile, and fill caches."""
        kept = [x.clone() for x in (self.runs.rows, self.runs.statistics, self.momentum)]
        whole, batch = self.length, self.recipe.batch
        for self.length in {min(whole, 2 * batch), whole % batch} - {0}:
            self._play()
        self.length = whole
        for x, was in zip((self.runs.rows, self.runs.statistics, self.momentum), kept, strict=True):
            x.copy_(was)
        torch.cuda.synchronize(self.device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
            self._play()


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
