"""A pack: runs that take the same steps on the same data, in lockstep, as captured graphs.

An epoch is one graph of a few steps, replayed on the next samples again and again, one graph of the
remaining steps, and one of the evaluation. Capturing therefore takes the same time however long the
epoch is. What is in the graphs is `EpochWork`; here is what lies around them: `advance` draws the
plan of an epoch, copies it to the device and queues the graphs; `take_records` collects what has
ended. Two epochs are queued at most, so that the device never waits for the host, and the host
learns soon what became of them.

A graph reads and writes the memory that it was captured with, and nothing else. So what changes
from epoch to epoch is copied to where it was: the plan of the epoch to `plan` and `lr`, the samples
of one replay to `graph_plan` and `graph_lr`. A graph has no arguments and no result; the numbers to
be told are in `EpochWork.report`, which is copied to the host behind it.

Dropout is drawn from (seed, epoch), so a resumed run takes the same steps on a CPU. On CUDA that is
not guaranteed: graphs that are replayed in parallel share the generator of the device.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby

import torch
from torch import Tensor

from levelhead.support.errors import LevelheadError

from ..lab.epoch_plan import EpochPlan, draw_plan
from ..lab.preprocess import Preprocess, has_kernels
from ..lab.stages import Stage, stages
from ..lab.train import EpochValues, OnBatch, State, combined_seed, on_host, undecayed
from .batch_marks import BatchMarks
from .epoch_work import EpochWork, SharedLoss
from .job import Job
from .net_rows import NetRows, RowMeans, SingleNet, sgd_
from .pending_epoch import EndedEpoch, PendingEpoch
from .precision import Precision, find_precision
from .stacked import StackedNets, most_stacked

STEPS_PER_GRAPH = 16  # captured together, with their images cropped and standardized at once


class Pack:
    """Runs in lockstep: the same data, recipe and first epoch, equally many samples in every epoch.

    Methods, seeds and heads may differ. Run r is row r of everything, and `positions[r]` says which
    of all jobs it is.

    Attributes:
        epoch: the next to be queued, counted from 0.
        pending: epochs that are queued and whose records were not taken, at most two.
        keep_state: whether the states at the end of the next epoch are to be kept.
        captured_for: what the graphs were captured for: the length of an epoch, the stage, and how
            many stages of its method each run has behind it. Where it changes, they are captured
            anew.
        step_graph, last_graph, eval_graph: of some steps, of those that are left, of the
            evaluation.
        plan, lr: of the queued epoch, on the device: samples of all runs, learning rate of each
            step.
        graph_plan, graph_lr: the part of these that the next replay of `step_graph` reads.
        nets, means, work: the parameters, their means over epochs, and what is done with them.
    """

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
        """Put the networks of all members on the device.

        Args:
            members: the jobs, each with its position among all that are trained.
            splits: images and labels of each split, as `fit_many.copy_to` puts them on the device.
            device, precision: where, and in which formats.
            compiled: let a network that is not stacked go through torch.compile.
            stacked: make one network of those that can be stacked.
            evaluate_early: measure errors from the first epoch on, not only from
                `Recipe.first_decay_epoch`.
            on_batch: told how far an epoch is.
        """
        self.positions = [position for position, _ in members]
        self.jobs = [job for _, job in members]
        first = self.jobs[0]
        self.device = device
        self.data = first.data
        self.recipe = first.recipe
        self.first_evaluated = 0
        if not evaluate_early:
            self.first_evaluated = first.recipe.first_decay_epoch
        self.stream = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)
        self.marks = BatchMarks(on_batch, self.stream)
        self.stages = [stages(job.recipe, job.method) for job in self.jobs]
        self.initial_heads = _stacked_heads(self.jobs)
        with self._on_stream():
            self.nets = _nets_of(first, len(members), device, precision, compiled, stacked)
            self.means = RowMeans(self.nets, first.recipe)
            for run, job in enumerate(self.jobs):
                self._load(run, job)
            step_ = sgd_
            if compiled and isinstance(self.nets, SingleNet):
                step_ = torch.compile(sgd_)
            decay = None
            if undecayed(first.recipe):
                decay = self.nets.decay(first.recipe)
            storage = find_precision(precision).storage
            self.work = EpochWork(
                self.nets,
                splits,
                first.recipe,
                Preprocess(first.recipe, first.data, storage),
                classes=first.data.classes,
                sgd_=step_,
                decay=decay,
            )
        self.epoch = first.first
        self.captured_for: tuple[int, int, tuple[int, ...]] | None = None
        self.keep_state = False
        self.step_graph = self.last_graph = self.eval_graph = _do_nothing
        self.pending: deque[PendingEpoch] = deque()

    def _load(self, run: int, job: Job) -> None:
        """Copy a job's network, or the state that it resumes from, to its row."""
        momentum = None
        mean = {}
        if job.start is not None:
            job.net.load_state_dict(job.start.weights)
            momentum = job.start.momentum
            mean = job.start.mean
        self.nets.load(run, job.net, momentum)
        self.means.load(run, mean)

    @property
    def all_queued(self) -> bool:
        """Whether the last epoch is queued or done."""
        return self.epoch == self.stages[0][-1].end

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, and their records taken."""
        return self.all_queued and not self.pending

    def advance(self) -> None:
        """Queue the next epoch, unless two are queued already.

        With `keep_state`, the runs' state at its end is copied, too.
        """
        if self.all_queued or len(self.pending) == 2:
            return
        # All runs are in the same stage: they share the recipe, and were packed by the ends of
        # their stages.
        number = next(i for i, stage in enumerate(self.stages[0]) if self.epoch < stage.end)
        stages_now = [of_run[number] for of_run in self.stages]  # of each run
        stage = stages_now[0]
        progress = (self.epoch - stage.first) / (stage.end - stage.first)
        plan = self._draw(stages_now, progress)
        length = plan.indices.shape[1]
        lr = []  # of each step
        for at in range(0, length, self.recipe.batch):
            lr.append(stage.lr(self.epoch, at / length))
        # From here on all is queued, and the host waits for nothing.
        with self._on_stream():
            if stage.head_only and self.epoch == stage.first:
                self._reset_heads()
            self._load_plan(plan, torch.tensor(lr, dtype=self.nets.rows.dtype))
            # What a captured epoch depends on: its length, its stage, and which losses apply.
            parts = []  # of each run, how many of its method's own stages have begun
            for stage_of_run in stages_now:
                parts.append(sum(progress >= start for start in stage_of_run.method.stages))
            needed = (length, number, tuple(parts))
            if needed != self.captured_for:
                losses = self._losses(stages_now, progress)
                self.work.begin_stage(stages_now, losses)
                self.captured_for = needed
                self._capture()
            # A network with dropout is alone in its pack.
            torch.manual_seed(combined_seed(self.jobs[0].seed, self.epoch))
            self.run_steps()
            if self.means.add(self.epoch):
                self.work.project("after")  # a mean of unit vectors is shorter
                self.work.report_norms()
            if self.epoch >= self.first_evaluated:
                self.eval_graph()
            self.pending.append(self._queue_copies(lr[0]))
        self.epoch += 1

    def _draw(self, stages_now: list[Stage], progress: float) -> EpochPlan:
        """Draw the epoch of every run; each tensor of the plan is [R, n, ...].

        Args:
            stages_now: of each run, the stage that it is in.
            progress: of that stage, before the epoch.

        Raises:
            LevelheadError: if a sampler draws epochs of another length than it did when jobs were
                packed, which happens where the length is itself drawn at random.
        """
        plans = []
        for job, stage in zip(self.jobs, stages_now, strict=True):
            plan = draw_plan(
                self.data.train.labels,
                stage.method,
                self.recipe,
                seed=job.seed,
                epoch=self.epoch,
                progress=progress,
            )
            plans.append(plan)
        lengths = {len(plan) for plan in plans}
        if len(lengths) > 1:
            raise LevelheadError(
                f"the runs of a pack drew epochs of {sorted(lengths)} samples; train them in one slot"
            )
        by_field = zip(*(plan.tensors for plan in plans), strict=True)
        return EpochPlan(*(torch.stack(of_runs) for of_runs in by_field))

    def _losses(self, stages_now: list[Stage], progress: float) -> list[SharedLoss]:
        """Return the losses of the runs at this share of the training.

        Neighbors with the same one share it: it is then called once for all of them. `fit_many` puts runs
        of one method next to each other.
        """
        losses = []
        for make_loss, neighbors in groupby(stage.method.loss for stage in stages_now):
            loss = make_loss(self.data.counts, progress)
            losses.append(SharedLoss(loss, len(list(neighbors))))
        return losses

    def _reset_heads(self) -> None:
        """Begin the second stage: initial heads, without momentum."""
        for name, weights in self.initial_heads.items():
            self.nets.parameter_views[name].copy_(weights)
        self.nets.momentum.zero_()

    def take_records(self) -> list[EndedEpoch]:
        """Return what became of finished epochs, run by run; wait only if no epoch can be queued.

        While one more epoch can be queued, the host goes on instead of waiting, so that the device
        always has the next one.
        """
        records = []
        names = [f"{name}_error" for name in self.work.eval_splits]
        # On a CPU an epoch is done when `advance` returns.
        while self.pending and (len(self.pending) == 2 or self.all_queued or self.stream is None):
            ended = self.pending.popleft()
            self.marks.tell(ended.epoch)
            if ended.done is not None:
                ended.done.synchronize()
            # A row of the report has the loss, the training error, other errors, and the norms [K].
            for run, (loss, error, *rest) in enumerate(ended.report.tolist()):
                errors = [None] * len(names)
                if ended.epoch >= self.first_evaluated:
                    errors = rest[: len(names)]
                values: EpochValues = {
                    "epoch": ended.epoch + 1,
                    "lr": ended.lr,
                    "loss": loss,
                    "train_error": error,
                    "norms": rest[len(names) :],
                    **dict(zip(names, errors, strict=True)),
                }
                state = None
                if ended.kept:
                    state = self._state(run, ended)
                records.append(EndedEpoch(self.positions[run], values, state))
        return records

    def close(self) -> dict[int, State]:
        """Copy the rows back to the jobs' networks and free the graphs.

        Returns:
            The last state of each job, by its position, without momentum.
        """
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
        """Queue all steps of the epoch whose plan is loaded."""
        self.work.seen.zero_()
        # Whole graphs of STEPS_PER_GRAPH steps: their samples are copied to where the graph reads.
        for at in range(0, self.replayed_length, self.graph_length):
            part, lr = self._slice(at, at + self.graph_length)
            for buffer, values in zip(self.graph_plan.tensors, part.tensors, strict=True):
                buffer.copy_(values)
            self.graph_lr.copy_(lr)
            self.step_graph()
            self.marks.add(self.epoch, (at + self.graph_length) // self.recipe.batch, len(self.lr))
        self.last_graph()
        if self.replayed_length < self.length:
            self.marks.add(self.epoch, len(self.lr), len(self.lr))

    def _slice(self, start: int, end: int) -> tuple[EpochPlan, Tensor]:
        """Return samples of the epoch's plan, and the learning rates of their steps.

        `start` is the first of a batch. They are views: what is captured reads the plan itself.
        """
        part = EpochPlan(*(x[:, start:end] for x in self.plan.tensors))
        steps = slice(start // self.recipe.batch, -(-end // self.recipe.batch))
        return part, self.lr[steps]

    def _last_steps(self) -> None:
        """Take the steps that are left after all replays, and report the epoch; captured too."""
        if self.replayed_length < self.length:
            self.work.steps(*self._slice(self.replayed_length, self.length))
        self.work.report_epoch(self.length)

    def _on_stream(self) -> AbstractContextManager[object]:
        """Return a context in which work is queued on the pack's own stream; on a CPU, none."""
        if self.stream is not None:
            return torch.cuda.stream(self.stream)
        return nullcontext()

    def _load_plan(self, drawn: EpochPlan, lr: Tensor) -> None:
        """Copy an epoch's plan to the device.

        In stream order: the epoch before it may still be running, with the plan that is there.

        Args:
            drawn: on the host, each tensor [R, n, ...].
            lr: of each step, on the host.
        """
        if self.captured_for is None or self.plan.indices.shape != drawn.indices.shape:
            # Of another length: graphs read from the memory of the old plan, and must be captured
            # again.
            self.captured_for = None
            self.length = drawn.indices.shape[1]
            # Samples of one replay of the step graph, and of all replays.
            self.graph_length = STEPS_PER_GRAPH * self.recipe.batch
            self.replayed_length = self.length // self.graph_length * self.graph_length
            self.plan = drawn.to(self.device)
            self.lr = lr.to(self.device)
            return
        for buffer, x in zip((*self.plan.tensors, self.lr), (*drawn.tensors, lr), strict=True):
            source = x
            if self.stream is not None:
                source = x.pin_memory()  # or else the host would wait for the copy
            buffer.copy_(source, non_blocking=True)

    def _queue_copies(self, lr: float) -> PendingEpoch:
        """Queue copies of report and state to keep to the host, and an event behind them.

        The copies must be queued now: the next epoch writes to the same memory.

        Args:
            lr: of the epoch's first step, for its record.
        """
        report = self.work.report
        kept = ()
        if self.keep_state:
            kept = (self.nets.rows, self.nets.momentum, self.nets.statistics, *self.means.matrices)
        if self.stream is None:
            copies = tuple(x.clone() for x in kept)
            return PendingEpoch(self.epoch, lr, report.clone(), copies, None)
        report, *copies = (_copy_to_host(x) for x in (report, *kept))
        done = torch.cuda.Event()
        done.record(self.stream)
        return PendingEpoch(self.epoch, lr, report, tuple(copies), done)

    def _state(self, run: int, ended: PendingEpoch) -> State:
        """Return the State of a run at the end of an epoch, from the copies that were kept."""
        weights, momentum, statistics = self.nets.run_tensors(run, *ended.kept[:3])
        mean = self.means.of_run(run, ended.epoch, ended.kept[1], ended.kept[3:])
        # The network has buffers that are not in the rows, such as counters of batches.
        all_weights = on_host(self.jobs[run].net.state_dict()) | weights | statistics
        return State(ended.epoch + 1, 0, all_weights, momentum, mean=mean)

    def _capture(self) -> None:
        """Make the graphs: of some steps, of those that are left, and of the evaluation.

        On CUDA a few steps are taken first and then undone: kernels are compiled, cuDNN tries its
        algorithms, and constants are copied to the device, none of which a capture allows.
        """
        part, lr = self._slice(0, min(self.graph_length, self.length))
        self.graph_plan = EpochPlan(*(x.clone() for x in part.tensors))
        self.graph_lr = lr.clone()
        if self.stream is not None:
            state = (self.nets.rows, self.nets.statistics, self.nets.momentum)
            before = [x.clone() for x in state]
            # Of every size that a batch can have: whole ones, and the last of the epoch.
            sizes = {min(self.length, 2 * self.recipe.batch), self.length % self.recipe.batch}
            for size in sizes - {0}:
                self.work.steps(*self._slice(0, size))
            self.work.evaluate()
            for x, old in zip(state, before, strict=True):
                x.copy_(old)
            torch.cuda.synchronize(self.device)
        self.step_graph = _do_nothing
        if self.replayed_length:
            self.step_graph = self._graph(lambda: self.work.steps(self.graph_plan, self.graph_lr))
        self.last_graph = self._graph(self._last_steps)
        self.eval_graph = self._graph(self.work.evaluate)

    def _graph(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return what repeats the work: on CUDA a captured graph, on a CPU the work itself."""
        if self.stream is None:
            return work
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            work()
        return graph.replay


def _do_nothing() -> None:
    """Stand in for a graph that is not captured."""


def _copy_to_host(x: Tensor) -> Tensor:
    """Queue a copy to memory of the host that the device can write to by itself."""
    return torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)


def _nets_of(
    first: Job,
    runs: int,
    device: torch.device,
    precision: Precision | torch.dtype,
    compiled: bool,
    stacked: bool,
) -> NetRows:
    """Return the parameters of so many networks like the first.

    Stacked where they can be, else one by itself: `fit_many` makes packs of one of those.

    Args:
        first: whose network and batch size the others share.
        runs: R.
        device, precision: of the matrices.
        compiled: let a network that is not stacked go through torch.compile.
        stacked: whether to try to stack them.
    """
    kernels = has_kernels(device, find_precision(precision).storage)
    if stacked and most_stacked(first.net, runs, precision, kernels=kernels) == runs:
        return StackedNets(first.net, runs, device, precision, kernels=kernels)
    batch = None
    if compiled:
        batch = first.recipe.batch
    return SingleNet(first.net, device, precision, compiled_batch=batch)


def _stacked_heads(jobs: list[Job]) -> dict[str, Tensor]:
    """Return copies of the heads' parameters, {name: [R, ...]}.

    A second stage begins with them again.
    """
    names = [name for name, _ in jobs[0].net.head.named_parameters()]
    heads = {}
    for name in names:
        of_runs = [job.net.head.get_parameter(name).detach() for job in jobs]
        heads[f"head.{name}"] = torch.stack(of_runs)
    return heads
