"""A pack: runs that take the same steps on the same data, in lockstep, as captured graphs.

An epoch is one graph of a few steps, replayed on the next samples again and again, one graph of the remaining steps,
and one of the evaluation. Capturing therefore takes the same time however long the epoch is.

Dropout is drawn from (seed, epoch), so a resumed run takes the same steps on a CPU. On CUDA that is not guaranteed:
graphs that are replayed in parallel share the generator of the device.
"""

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from levelhead.core.head import Head
from levelhead.support.errors import LevelheadError

from ..lab.data import Data
from ..lab.epoch_plan import EpochPlan, draw_plan
from ..lab.nets import Net
from ..lab.preprocess import Preprocess, has_kernels
from ..lab.recipe import Recipe
from ..lab.train import OnBatch, State, check_losses, combined_seed, on_host, stages, undecayed
from ..methods.method import Method
from .net_rows import NetRows, RowMeans, SingleNet, sgd_
from .precision import Precision, find_precision
from .stacked import StackedNets, most_stacked

STEPS_PER_GRAPH = 16  # captured together, with their images cropped and standardized at once


@dataclass(frozen=True, eq=False)
class Job:
    """One training: a fresh network, its data, recipe and method, and the State to resume from. As for `train.fit`."""

    net: Net
    data: Data
    recipe: Recipe
    method: Method
    seed: int = 0
    start: State | None = None

    @property
    def first(self) -> int:
        if self.start is not None and self.start.step:
            raise LevelheadError(
                f"the fast engine resumes from the end of an epoch, not from step {self.start.step} in it"
            )
        if self.start is None:
            return 0
        return self.start.epoch


@dataclass(frozen=True, eq=False)
class PendingEpoch:
    """A queued epoch: its values are valid once the event `done` has happened (at once if None)."""

    epoch: int
    lr: float
    report: Tensor
    kept: tuple[
        Tensor, ...
    ]  # copies of rows, momentum, statistics, and means, at its end, if they were asked for
    done: Any


class Pack:
    """Runs in lockstep: the same data, recipe and first epoch, the same number of samples in every epoch."""

    def __init__(
        self,
        members: list[tuple[int, Job]],
        splits: dict[str, tuple[Tensor, Tensor]],
        device: torch.device,
        precision: Precision | torch.dtype,
        *,
        compiled: bool,
        stacked: bool,
        evaluate_early: bool = True,
        on_batch: OnBatch | None = None,
    ):
        self.positions = [i for i, _ in members]
        self.jobs = [job for _, job in members]
        first = self.jobs[0]
        self.device = device
        self.data = first.data
        self.recipe = first.recipe
        self.splits = splits
        if evaluate_early:
            self.first_evaluated = 0
        else:
            self.first_evaluated = first.recipe.first_decay_epoch
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)
        else:
            self.stream = None
        self.marks = BatchMarks(on_batch, self.stream)
        self.stages = [stages(job.recipe, job.method) for job in self.jobs]
        heads = [
            {name: p.detach().clone() for name, p in job.net.head.named_parameters()}
            for job in self.jobs
        ]
        self.initial_heads = {
            f"head.{name}": torch.stack([head[name] for head in heads]) for name in heads[0]
        }
        storage = find_precision(precision).storage
        kernels = has_kernels(device, storage)
        with self._on_stream():
            runs = len(members)
            if stacked and most_stacked(first.net, runs, precision, kernels=kernels) == runs:
                self.nets: NetRows = StackedNets(
                    first.net, runs, device, precision, kernels=kernels
                )
            else:
                batch = first.recipe.batch if compiled else None
                self.nets = SingleNet(first.net, device, precision, compiled_batch=batch)
            if compiled and isinstance(self.nets, SingleNet):
                self.sgd_ = torch.compile(sgd_)
            else:
                self.sgd_ = sgd_
            if undecayed(first.recipe):
                self.decay = self.nets.decay(first.recipe)
            else:
                self.decay = None
            self.means = RowMeans(self.nets, first.recipe)
            for run, job in enumerate(self.jobs):
                if job.start is not None:
                    job.net.load_state_dict(job.start.weights)
                self.nets.load(run, job.net, job.start and job.start.momentum)
                self.means.load(run, job.start.mean if job.start is not None else {})
            self.preprocess = Preprocess(first.recipe, first.data, storage)
            self.eval_splits = [name for name in splits if name != "train"]
            columns = (
                2 + len(self.eval_splits) + first.data.classes
            )  # loss, training error, other errors, norms
            self.report = torch.zeros(len(self.jobs), columns, dtype=torch.float64, device=device)
            self.seen = torch.zeros(
                len(self.jobs), 2, dtype=torch.float64, device=device
            )  # losses, errors
        self.epoch = first.first
        self.captured_for = None
        self.keep_state = False
        self.step_graph = self.last_graph = self.eval_graph = _do_nothing
        self.pending: deque[PendingEpoch] = deque()

    @property
    def all_queued(self) -> bool:
        return self.epoch == self.stages[0][-1].end

    @property
    def finished(self) -> bool:
        return self.all_queued and not self.pending

    def advance(self) -> None:
        """Queue the next epoch, unless two are queued already; with `keep_state`, keep the runs' state at its end."""
        if self.all_queued or len(self.pending) == 2:
            return
        number = next(i for i, stage in enumerate(self.stages[0]) if self.epoch < stage.end)
        now = [each[number] for each in self.stages]
        progress = (self.epoch - now[0].first) / (now[0].end - now[0].first)
        plans = [
            draw_plan(
                self.data.train.labels,
                stage.method,
                self.recipe,
                seed=job.seed,
                epoch=self.epoch,
                progress=progress,
            )
            for job, stage in zip(self.jobs, now, strict=True)
        ]
        n = {len(each) for each in plans}
        if len(n) > 1:
            raise LevelheadError(
                f"the runs of a pack drew epochs of {sorted(n)} samples; train them in one slot"
            )
        lr = [
            now[0].lr(self.epoch, at / len(plans[0]))
            for at in range(0, len(plans[0]), self.recipe.batch)
        ]
        with self._on_stream():
            if (
                now[0].head_only and self.epoch == now[0].first
            ):  # the second stage: initial heads, without momentum
                for name, weights in self.initial_heads.items():
                    self.nets.parameter_views[name].copy_(weights)
                self.nets.momentum.zero_()
            drawn = EpochPlan(
                *(torch.stack(parts) for parts in zip(*(p.tensors for p in plans), strict=True))
            )
            self._load_plan(drawn, torch.tensor(lr, dtype=self.nets.rows.dtype))
            # what a captured epoch depends on: its length, its stage, and which losses apply
            needed = (
                len(plans[0]),
                number,
                tuple(sum(progress >= s for s in stage.method.stages) for stage in now),
            )
            if needed != self.captured_for:
                self.losses = [
                    (loss(self.data.counts, progress), len(list(same)))
                    for loss, same in groupby(stage.method.loss for stage in now)
                ]
                self.now, self.captured_for = now, needed
                self._capture()
            torch.manual_seed(
                combined_seed(self.jobs[0].seed, self.epoch)
            )  # a net with dropout is alone in its pack
            self.run_steps()
            if self.means.add(self.epoch):
                self._project("after")
                self._report_norms()
            if self.epoch >= self.first_evaluated:
                self.eval_graph()
            self.pending.append(self._queue_copies(lr[0]))
        self.epoch += 1

    def take_records(self) -> list[tuple[int, dict[str, Any], State | None]]:
        """Return the records of finished epochs, with States that were kept; wait only if no epoch can be queued."""
        records = []
        while self.pending and (len(self.pending) == 2 or self.all_queued or self.stream is None):
            done = self.pending.popleft()
            self.marks.tell(done.epoch)
            if done.done is not None:
                done.done.synchronize()
            names = [f"{name}_error" for name in self.eval_splits]
            for run, (loss, error, *rest) in enumerate(done.report.tolist()):
                if done.epoch >= self.first_evaluated:
                    errors = rest[: len(names)]
                else:
                    errors = [None] * len(names)
                record = {
                    "epoch": done.epoch + 1,
                    "lr": done.lr,
                    "loss": loss,
                    "train_error": error,
                    "norms": rest[len(names) :],
                    **dict(zip(names, errors, strict=True)),
                }
                records.append(
                    (self.positions[run], record, self._state(run, done) if done.kept else None)
                )
        return records

    def close(self) -> dict[int, State]:
        """Copy the rows back to the jobs' networks, free the graphs, and return the last States."""
        with self._on_stream():
            for run, job in enumerate(self.jobs):
                self.nets.store(run, job.net)
        if self.stream is not None:
            self.stream.synchronize()
        self.step_graph = self.last_graph = self.eval_graph = _do_nothing
        return {
            position: State(self.epoch, 0, on_host(job.net.state_dict()), {})
            for position, job in zip(self.positions, self.jobs, strict=True)
        }

    def run_steps(self) -> None:
        self.seen.zero_()
        for at in range(0, self.replayed_length, self.graph_length):
            for buffer, values in zip(
                self.graph_inputs, self._slice(at, at + self.graph_length), strict=True
            ):
                buffer.copy_(values)
            self.step_graph()
            self.marks.add(self.epoch, (at + self.graph_length) // self.recipe.batch, len(self.lr))
        self.last_graph()
        if self.replayed_length < self.length:
            self.marks.add(self.epoch, len(self.lr), len(self.lr))

    def _slice(self, start: int, end: int) -> tuple[Tensor, ...]:
        """Return samples of the epoch's plan, and the learning rates of their steps."""
        steps = slice(start // self.recipe.batch, -(-end // self.recipe.batch))
        return *(x[:, start:end] for x in self.plan.tensors), self.lr[steps]

    # Captured work. Nothing here reads a value back from the device.

    def _steps(self, *part: Tensor) -> None:
        (*samples, lr), (images, labels) = part, self.splits["train"]
        x = self.preprocess.augmented(images, EpochPlan(*(each.flatten(0, 1) for each in samples)))
        x = x.permute(0, 2, 3, 1).unflatten(0, (len(self.jobs), -1))
        parts = (each.split(self.recipe.batch, dim=1) for each in (x, labels[samples[0]]))
        seen = [self._step(x, y, lr[i]) for i, (x, y) in enumerate(zip(*parts, strict=True))]
        for column, values in enumerate(zip(*seen, strict=True)):
            self.seen[:, column] += torch.cat(values, dim=1).sum(dim=1, dtype=torch.float64)

    def _last_steps(self) -> None:
        if self.replayed_length < self.length:
            self._steps(*self._slice(self.replayed_length, self.length))
        self.report[:, :2] = self.seen / self.length
        self._report_norms()

    def _report_norms(self) -> None:
        head = self.nets.head.detach().reshape(len(self.jobs), self.data.classes, -1)
        self.report[:, 2 + len(self.eval_splits) :] = torch.where(
            self.nets.is_cosine[..., 0], 1.0, head.norm(dim=-1)
        )

    def _step(self, x: Tensor, labels: Tensor, lr: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step; return each sample's loss, and whether it was wrong, [R, B]."""
        nets = self.nets
        recipe = self.recipe
        stage = self.now[0]
        nets.refresh()
        with torch.no_grad() if stage.head_only else nullcontext():
            features = nets.features(x, training=not stage.head_only)
        logits = nets.logits(features)
        losses = self._losses(logits, labels)
        gradient = self._gradient(losses.mean(dim=1).sum(), features)
        with torch.no_grad():
            if stage.head_only:
                columns = nets.head_columns
            else:
                columns = slice(None)
            rows = nets.rows[:, columns]
            momentum = nets.momentum[:, columns]
            self._project("before")
            self.sgd_(
                rows,
                momentum,
                gradient,
                lr,
                recipe,
                self.decay if self.decay is None else self.decay[columns],
            )
            self._project("after")
            return losses.detach(), logits.argmax(dim=-1) != labels

    def _gradient(self, loss: Tensor, features: Tensor) -> Tensor:
        """Return the gradient of what is learned, as rows. Behind the features it is scaled, if the precision asks."""
        nets = self.nets
        if self.now[0].head_only:
            found = torch.autograd.grad(loss, nets.head_leaves)
            return torch.cat([g.reshape(len(self.jobs), -1) for g in found], dim=1)
        if nets.precision.largest_gradient is None:
            return nets.gradient_rows(torch.autograd.grad(loss, nets.leaves))
        named = nets.named
        heads = {name: leaf for name, leaf in named.items() if name.startswith("head.")}
        body = {name: leaf for name, leaf in named.items() if name not in heads}
        of_features, *of_heads = torch.autograd.grad(loss, [features, *heads.values()])
        scale = nets.precision.gradient_scale(of_features)
        of_body = torch.autograd.grad(features, list(body.values()), of_features * scale[..., None])
        found = dict(
            zip((*body, *heads), (*of_body, *(g * scale[..., None] for g in of_heads)), strict=True)
        )
        return nets.gradient_rows([found[name] for name in named]) / scale

    def _losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the losses [R, B]. Runs with the same loss are one batch to it, unless its weights are of a batch."""
        parts, run = [], 0
        for loss, count in self.losses:
            same = slice(run, run + count)
            x, y = logits[same], labels[same]
            if not getattr(loss, "in_batch", False):
                x, y = x.flatten(0, 1), y.flatten()
            parts.append(check_losses(loss(x, y), y, self.now[run].method).reshape(count, -1))
            run += count
        return torch.cat(parts)

    def _project(self, order: str) -> None:
        for run, stage in enumerate(self.now):
            if stage.method.project is not None and stage.method.order == order:
                weight = self.nets.head.detach().reshape(len(self.jobs), self.data.classes, -1)[run]
                weight.copy_(stage.method.project(Head(weight)).weight)

    @torch.no_grad()
    def _evaluate(self) -> None:
        self.nets.refresh()
        for column, name in enumerate(self.eval_splits, 2):
            (images, labels), runs, wrong = (
                self.splits[name],
                len(self.jobs),
                torch.zeros_like(self.report[:, 0]),
            )
            chunk = max(1, self.nets.eval_pixels // (runs * images[0, 0].numel()))
            for some, expected in zip(images.split(chunk), labels.split(chunk), strict=True):
                x = self.preprocess.standardized(some).permute(0, 2, 3, 1)
                logits = self.nets.logits(
                    self.nets.features(x.expand(runs, *x.shape), training=False)
                )
                wrong += (logits.argmax(dim=-1) != expected).sum(dim=1)
                self.report[:, 0] += 0 * logits.sum(
                    dim=(1, 2)
                )  # nan, if the last step made the network diverge
            self.report[:, column] = wrong / len(labels)

    # Work that is not captured.

    def _on_stream(self) -> Any:
        if self.stream is not None:
            return torch.cuda.stream(self.stream)
        return nullcontext()

    def _load_plan(self, drawn: EpochPlan, lr: Tensor) -> None:
        """Copy an epoch's plan to the device, in stream order: the epoch before it still uses the previous plan."""
        if self.captured_for is None or self.plan.indices.shape != drawn.indices.shape:
            self.captured_for = None
            self.length = drawn.indices.shape[1]
            self.graph_length = (
                STEPS_PER_GRAPH * self.recipe.batch
            )  # samples of one replay of the step graph
            self.replayed_length = (
                self.length // self.graph_length * self.graph_length
            )  # samples of all replays
            self.plan = drawn.to(self.device)
            self.lr = lr.to(self.device)
            return
        for buffer, x in zip((*self.plan.tensors, self.lr), (*drawn.tensors, lr), strict=True):
            buffer.copy_(x.pin_memory() if self.stream is not None else x, non_blocking=True)

    def _queue_copies(self, lr: float) -> PendingEpoch:
        """Queue the copies of the report, and of the state to keep, to the host, and an event that follows them."""
        kept = ()
        if self.keep_state:
            kept = (self.nets.rows, self.nets.momentum, self.nets.statistics, *self.means.matrices)
        if self.stream is None:
            return PendingEpoch(
                self.epoch, lr, self.report.clone(), tuple(x.clone() for x in kept), None
            )
        report, *copies = (
            torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
            for x in (self.report, *kept)
        )
        done = torch.cuda.Event()
        done.record(self.stream)
        return PendingEpoch(self.epoch, lr, report, tuple(copies), done)

    def _state(self, run: int, done: PendingEpoch) -> State:
        weights, momentum, statistics = self.nets.run_tensors(run, *done.kept[:3])
        mean = self.means.of_run(run, done.epoch, done.kept[1], done.kept[3:])
        others = on_host(self.jobs[run].net.state_dict())  # buffers that are not in the rows
        return State(done.epoch + 1, 0, others | weights | statistics, momentum, mean=mean)

    def _capture(self) -> None:
        """Make the graphs. On CUDA a few steps are taken first, to compile and to fill caches, and then undone."""
        self.graph_inputs = [x.clone() for x in self._slice(0, min(self.graph_length, self.length))]
        if self.stream is not None:
            state = (self.nets.rows, self.nets.statistics, self.nets.momentum)
            kept = [x.clone() for x in state]
            for n in {min(self.length, 2 * self.recipe.batch), self.length % self.recipe.batch} - {
                0
            }:
                self._steps(*self._slice(0, n))
            self._evaluate()
            for x, before in zip(state, kept, strict=True):
                x.copy_(before)
            torch.cuda.synchronize(self.device)
        self.step_graph = (
            self._graph(lambda: self._steps(*self.graph_inputs))
            if self.replayed_length
            else _do_nothing
        )
        self.last_graph = self._graph(self._last_steps)
        self.eval_graph = self._graph(self._evaluate)

    def _graph(self, work: Callable[[], None]) -> Callable[[], None]:
        if self.stream is None:
            return work
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            work()
        return graph.replay


def _do_nothing() -> None:
    """Stand in for a graph that is not captured."""


class BatchMarks:
    """Tells how many batches are done: on a CPU at once, on CUDA when the events behind them have happened."""

    def __init__(self, report: OnBatch | None, stream: Any) -> None:
        self.report, self.stream = report, stream
        self.queued: deque[tuple[int, int, int, Any]] = deque()

    def add(self, epoch: int, done: int, total: int) -> None:
        """Mark that so many batches of an epoch are queued; without a stream they are done, and told."""
        if self.report is None:
            return
        if self.stream is None:
            self.report(epoch + 1, done, total)
            return
        event = torch.cuda.Event()
        event.record(self.stream)
        self.queued.append((epoch, done, total, event))

    def tell(self, epoch: int) -> None:
        """Wait for the batches of the epochs up to this one, and tell each as it is done."""
        while self.report is not None and self.queued and self.queued[0][0] <= epoch:
            at, done, total, event = self.queued.popleft()
            event.synchronize()
            self.report(at + 1, done, total)
