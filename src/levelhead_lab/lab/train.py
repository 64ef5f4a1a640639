"""Algorithm 1, and every other method, as one plain loop: any device, any number of processes.

The road through it: `fit` goes through the `stages` of a training (one, or two for a method that
retrains the head). Each is a `_StageLoop`, which holds what does not change within it; its `run`
goes through epochs, `_epoch` through the steps of one, and `_step` takes one:

    plan of the epoch -> batch -> images [B, C, H, W] -> logits [B, K] -> losses [B] -> gradient
    -> project (released code) -> SGD -> project (Algorithm 1)

Everything random is drawn from (seed, epoch, step). A training that was stopped anywhere and
resumed from its `State` therefore takes the same steps: bit for bit on a CPU with the same number
of threads.

Under torchrun every process runs this same code. Each draws the same plan, takes every `world`-th
sample of a batch (`process_share`), and torch's DistributedDataParallel averages the gradients.

Weights are averaged over the last epochs where the recipe asks for it (Izmailov et al., Averaging
Weights Leads to Wider Optima and Better Generalization, 2018), and the batch statistics too,
instead of being measured again.

The loop writes no file and knows no paper: `runs` keeps what its callbacks are given. `fast`
computes the same for many trainings at once, and takes from here what both share.
"""

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.sgd import sgd

from levelhead.core.head import Head
from levelhead.support.errors import LevelheadError

from ..methods.method import Loss, Method
from .data import Data
from .epoch_plan import EpochPlan, draw_plan
from .nets import Net, head_of
from .preprocess import Preprocess
from .recipe import Recipe
from .stages import Stage, stages


@dataclass(frozen=True, eq=False)
class State:
    """All that a training needs to resume. Its tensors are on the host, and are copies."""

    epoch: int  # to resume with, counted from 0
    step: int  # steps already taken in it
    weights: dict[str, Tensor]  # the network's state dict
    # The optimizer's buffer of each parameter, by its name; empty at the start.
    momentum: dict[str, Tensor]
    # [3], of this epoch so far, over all processes: samples, sum of their losses, number of errors
    seen: Tensor = field(default_factory=lambda: torch.zeros(3, dtype=torch.float64))
    # Of weights over epochs so far, by name; see Recipe.average.
    mean: dict[str, Tensor] = field(default_factory=dict)


# What is known of an epoch at its end, as JSON holds it: `epoch` (from 1 on), `lr`, `loss`,
# `train_error` and `norms` [K]; whoever hands it on adds to it, such as errors and seconds.
EpochValues: TypeAlias = dict[str, Any]
OnStep = Callable[[Callable[[], State]], None]
OnEpoch = Callable[[State, EpochValues], None]
# The epoch, from 1 on; how many of its batches are done, and are in all.
OnBatch = Callable[[int, int, int], None]


class Callbacks(NamedTuple):
    """Whom the loop tells what; see `fit`."""

    on_step: OnStep | None
    on_epoch: OnEpoch | None
    on_batch: OnBatch | None


def fit(
    net: Net,
    data: Data,
    recipe: Recipe,
    method: Method,
    *,
    seed: int = 0,
    start: State | None = None,
    on_step: OnStep | None = None,
    on_epoch: OnEpoch | None = None,
    on_batch: OnBatch | None = None,
) -> State:
    """Train a network in place.

    Args:
        net: freshly initialized, on the device and in the precision to train in.
        data: its training split is learned; the others are not touched.
        recipe: optimizer, schedule and augmentation.
        method: what is done about imbalance.
        seed: of batches, crops and dropout; not of the weights, which `net` has already.
        start: the state to resume from; `net` then only gives the architecture and, for a method
            that retrains it, the fresh head.
        on_step: called after every step with a function that returns the `State`. A function,
            because a copy of all weights takes time, and most steps are not saved.
        on_epoch: called after every epoch with the `State` and the epoch's values.
        on_batch: called after every step with the epoch and how far it is.

    Returns:
        The state after the last step.

    Raises:
        LevelheadError: if the loss is not finite at the end of an epoch; if the method's sample or
            loss gives something of another shape; if weights are normalized in the batch and the
            batch is shared by several processes.

    Example:
        One epoch of Algorithm 1 on long-tailed digits; every weight vector ends with unit length.

        >>> from levelhead_lab.lab import data, load, nets, recipe
        >>> from levelhead_lab.methods import METHODS
        >>> digits = data.imbalance(load.digits(), "long-tail", ratio=20)
        >>> net = nets.build("digits", 10, shape=digits.shape)
        >>> one_epoch = recipe.find_recipe("digits").stretched_to(1)
        >>> end = fit(net, digits, one_epoch, METHODS["wvn"])
        >>> end.epoch, net.head.weight.norm(dim=1).allclose(torch.ones(10))
        (1, True)
    """
    callbacks = Callbacks(on_step, on_epoch, on_batch)
    # Kept for a second stage, which begins with it again.
    fresh_head = {name: p.detach().clone() for name, p in net.head.state_dict().items()}
    state = start or State(0, 0, on_host(net.state_dict()), {})
    net.load_state_dict(state.weights)
    for stage in stages(recipe, method):
        if state.epoch >= stage.end:  # a resumed run is past it
            continue
        if (state.epoch, state.step) == (stage.first, 0):
            state = replace(state, momentum={})  # a fresh optimizer
            if stage.head_only:
                net.head.load_state_dict(fresh_head)
        net.body.requires_grad_(not stage.head_only)
        state = _StageLoop(net, data, recipe, stage, seed, state).run(state, callbacks)
        net.body.requires_grad_(True)
    return state


class _StageLoop:
    """The steps of one stage: what they read, and what they change.

    They change the network, `momentum` and `mean`, in place; the rest stays as it is made here.

    Attributes:
        net, model: the network, and the same as the processes share it (DDP), or itself.
        images, labels: all of the training split, on the device.
        learning: the parameters that learn, by name: all, or those of the head.
        momentum: the optimizer's buffer of each; the first step makes them.
        mean: of the weights over the last epochs, by name; empty before there is one.
        rank, world: which process this is, and how many there are.
    """

    def __init__(
        self, net: Net, data: Data, recipe: Recipe, stage: Stage, seed: int, state: State
    ) -> None:
        weight = next(net.parameters())
        self.net = net
        self.data = data
        self.recipe = recipe
        self.stage = stage
        self.method = stage.method
        self.seed = seed
        self.device = weight.device
        self.rank = 0
        self.world = 1
        if dist.is_available() and dist.is_initialized():  # under torchrun
            self.rank = dist.get_rank()
            self.world = dist.get_world_size()
        # All of the data are on the device: no loader, and no copy in a step.
        self.images = torch.from_numpy(data.train.images).to(self.device)
        self.labels = torch.from_numpy(data.train.labels).to(self.device)
        self.preprocess = Preprocess(recipe, data, weight.dtype)
        self.learning = {name: p for name, p in net.named_parameters() if p.requires_grad}
        self.momentum = {}
        for name, p in self.learning.items():
            if name in state.momentum:
                self.momentum[name] = state.momentum[name].to(p.device).clone()
        self.mean = {name: x.to(self.device).clone() for name, x in state.mean.items()}
        self.model: nn.Module = net
        if self.world > 1:
            if self.device.type == "cuda":  # statistics over the whole batch, as in one process
                net.body = nn.SyncBatchNorm.convert_sync_batchnorm(net.body)
            self.model = nn.parallel.DistributedDataParallel(net)

    def run(self, state: State, callbacks: Callbacks) -> State:
        """Train from a state to the end of the stage, and return the state there.

        Args:
            state: inside the stage, or at its start.
            callbacks: told of steps and epochs.

        Raises:
            LevelheadError: if the summed loss of an epoch is not finite.
        """
        for epoch in range(state.epoch, self.stage.end):
            # Samples, the sum of their losses, and errors, over all processes.
            n, loss, wrong = self._epoch(epoch, state, callbacks).tolist()
            lr = self.stage.lr(epoch, 0)
            if not math.isfinite(loss):
                raise divergence(loss, epoch + 1, lr)
            self._average(epoch)
            state = self._state(epoch + 1, 0)
            if callbacks.on_epoch is not None:
                values: EpochValues = {
                    "epoch": epoch + 1,
                    "lr": lr,
                    "loss": loss / n,
                    "train_error": wrong / n,
                    "norms": head_of(self.net).norms.tolist(),
                }
                callbacks.on_epoch(state, values)
        return state

    def _epoch(self, epoch: int, state: State, callbacks: Callbacks) -> Tensor:
        """Take the steps of an epoch, or those that a resumed one has left; return `State.seen`.

        Args:
            epoch: counted from 0 over the whole training.
            state: the one before it; `step` and `seen` are not 0 where the epoch was interrupted.
            callbacks: told of every step.
        """
        stage = self.stage
        progress = (epoch - stage.first) / (stage.end - stage.first)
        loss_function = self.method.loss(self.data.counts, progress)
        # Each process would normalize by its own part of the batch, and train something else.
        if self.world > 1 and getattr(loss_function, "in_batch", False):
            raise LevelheadError(
                "weights normalized in the batch need the whole batch in one process",
                parameter="weights",
            )
        labels = self.data.train.labels
        plan = draw_plan(
            labels, self.method, self.recipe, seed=self.seed, epoch=epoch, progress=progress
        ).to(self.device)
        size = self.recipe.batch
        batches = math.ceil(len(plan) / size)
        seen = state.seen.to(self.device)
        # Frozen parts are in evaluation mode: batch norm keeps the statistics of the first stage.
        self.model.train(not stage.head_only)
        for step, batch in enumerate(plan.batches(size, state.step), state.step):
            torch.manual_seed(combined_seed(self.seed, epoch, step))  # for dropout
            lr = stage.lr(epoch, step * size / len(plan))
            seen = seen + self._step(batch, loss_function, lr)
            if callbacks.on_step is not None:
                callbacks.on_step(partial(self._state, epoch, step + 1, seen))
            if callbacks.on_batch is not None:
                callbacks.on_batch(epoch + 1, step + 1, batches)
        return seen

    def _step(self, batch: EpochPlan, loss_function: Loss, lr: float) -> Tensor:
        """Learn from a mini-batch: a round of Algorithm 1. Return what it adds to `State.seen`.

        Args:
            batch: of all processes; this one takes its share.
            loss_function: of logits [B, K] and labels [B], one value per sample.
            lr: of this step.
        """
        part, weight = process_share(batch, self.rank, self.world)
        y = self.labels[part.indices]
        logits = self.model(self.preprocess.augmented(self.images, part))
        losses = check_losses(loss_function(logits, y), y, self.method)
        self.net.zero_grad()
        (losses.sum() * weight).backward()  # gradient of the mean
        _project_(self.net, self.method, "before")  # (the released code)
        _step_(self.learning, self.momentum, self.recipe, lr)
        _project_(self.net, self.method, "after")  # w_i <- w_i / ||w_i||
        return _tally(losses, logits, y, weight > 0, self.world)

    def _average(self, epoch: int) -> None:
        """Take the weights after an epoch into their mean; after the last epoch, use the mean."""
        count = self.recipe.epochs_averaged(epoch)
        if not count:
            return
        current = numbers_of(self.net)
        if not self.mean:
            self.mean = {name: torch.zeros_like(x) for name, x in current.items()}
        add_to_means_((self.mean[name] for name in current), current.values(), count)
        if epoch + 1 == self.stage.end:
            take_mean_(self.net, self.mean, self.method)

    def _state(self, epoch: int, step: int, seen: Tensor | None = None) -> State:
        """Return the state to resume with.

        Args:
            epoch, step: to resume with, as `State` has them.
            seen: of the part of the epoch that is done; None at the end of one, where it begins with zeros.
        """
        state = State(
            epoch,
            step,
            on_host(self.net.state_dict()),
            on_host(self.momentum),
            mean=on_host(self.mean),
        )
        if seen is None:
            return state
        return replace(state, seen=seen.cpu().clone())


def process_share(batch: EpochPlan, rank: int, world: int) -> tuple[EpochPlan, float]:
    """Return this process's part of a batch, and the factor of its summed loss.

    DDP averages gradients over the processes, so ``world / B`` makes the average the mean over the
    whole batch, however unevenly it divides. A process without a sample repeats the first one, at
    weight 0: all of them must take part in the exchange of gradients, or the others would wait.

    Args:
        batch: of B samples, the same in every process.
        rank: of this process, from 0.
        world: how many processes there are.
    """
    mine = batch[rank::world]
    if len(mine):
        return (mine, world / len(batch))
    return (batch[:1], 0.0)


@torch.no_grad()
def _project_(net: Net, method: Method, order: str) -> None:
    """Project the head's weight, if the method does so `before` or `after` the optimizer's step.

    The weight is changed in place, so that the optimizer keeps its parameter and the momentum of it.
    """
    if method.project is not None and method.order == order:
        weight = net.head.weight
        weight.copy_(method.project(Head(weight.detach())).weight)  # type: ignore[operator]


@torch.no_grad()
def _step_(
    learning: dict[str, nn.Parameter], momentum: dict[str, Tensor], recipe: Recipe, lr: float
) -> None:
    """Take a step of torch.optim.SGD, by the function behind it.

    Its class would import the compiler of torch, which takes 1.5 s.

    Args:
        learning: the parameters by name; those without a gradient are left alone, as SGD does.
        momentum: the buffer of each by name, changed in place; the first step makes them.
        recipe: momentum, Nesterov, weight decay.
        lr: of this step.
    """
    # Two groups, as the parameter groups of an optimizer: with weight decay, and without.
    free = {name for name in undecayed(recipe) if name in learning}
    for group, decay in ((learning.keys() - free, recipe.weight_decay), (free, 0.0)):
        names = [name for name in learning if name in group and learning[name].grad is not None]
        buffers = [momentum.get(name) for name in names]
        sgd(
            [learning[name] for name in names],
            [learning[name].grad for name in names],  # type: ignore[misc]
            buffers,
            weight_decay=decay,
            momentum=recipe.momentum,
            lr=lr,
            dampening=0.0,
            nesterov=recipe.nesterov,
            maximize=False,
        )
        # The function replaces None in the list by the buffers that it makes.
        for name, buffer in zip(names, buffers, strict=True):
            if buffer is not None:
                momentum[name] = buffer


def undecayed(recipe: Recipe) -> tuple[str, ...]:
    """Return the parameters without weight decay: a bias that says how rare every class is.

    >>> from levelhead_lab.lab.recipe import find_recipe
    >>> undecayed(find_recipe("cui2019-sigmoid")), undecayed(find_recipe("kim2020"))
    (('head.bias',), ())
    """
    if recipe.bias == "rare":
        return ("head.bias",)
    return ()


@torch.no_grad()
def _tally(losses: Tensor, logits: Tensor, labels: Tensor, counted: bool, world: int) -> Tensor:
    """Return what a batch adds to `State.seen`, [3], over all processes.

    Over all at every step, as any of them may save the state after it.

    Args:
        losses, logits, labels: of this process's samples: [B], [B, K] and [B].
        counted: False in a process that has only repeated a sample of another.
        world: how many processes there are.
    """
    wrong = (logits.argmax(dim=1) != labels).sum()
    parts = (torch.full_like(wrong, len(labels)), losses.sum(), wrong)
    seen = torch.stack([part.double() for part in parts]) * counted
    if world > 1:
        dist.all_reduce(seen)
    return seen


@torch.no_grad()
def add_to_means_(means: Iterable[Tensor], values: Iterable[Tensor], count: int) -> None:
    """Take the count-th of several values into their mean: ``mean += (value - mean) / count``.

    Args:
        means: changed in place; of any content at count 1, which replaces it.
        values: one for each mean, of its shape.
        count: 1 for the first.

    >>> mean = torch.zeros(1)
    >>> for count, value in enumerate((3.0, 5.0), start=1):
    ...     add_to_means_([mean], [torch.tensor([value])], count)
    >>> mean
    tensor([4.])
    """
    for mean, value in zip(means, values, strict=True):
        mean.lerp_(value, 1 / count)


def numbers_of(net: Net) -> dict[str, Tensor]:
    """Return what of a network can be averaged: weights and statistics, no counters of batches."""
    return {name: x for name, x in net.state_dict().items() if x.is_floating_point()}


def take_mean_(net: Net, mean: dict[str, Tensor], method: Method) -> None:
    """Copy the mean to the network.

    Unit weight vectors, whose mean is shorter, are made unit vectors again.

    Args:
        net: changed in place.
        mean: by name, of all that `numbers_of` has; counters of batches stay those of the network.
        method: whose projection, if any, the head has to keep.
    """
    net.load_state_dict({**net.state_dict(), **mean})
    _project_(net, method, "after")


def check_losses(losses: Tensor, labels: Tensor, method: Method) -> Tensor:
    """Return losses [B] if there is one per label.

    The mean that a loss of torch gives by default would be trained on, too, with wrong weights.

    Raises:
        LevelheadError: if they have another shape than the labels; it names the method.
    """
    if losses.shape != labels.shape:
        raise LevelheadError(
            f"method {method.name}: expected one loss per sample, {list(labels.shape)}, got "
            f"{list(losses.shape)}; a loss of torch needs reduction='none'"
        )
    return losses


def check_last_batch(net: Net, data: Data, recipe: Recipe, method: Method, *, seed: int) -> None:
    """Raise LevelheadError if the last batch of an epoch would have a single image, and that fails.

    Batch norm over 1x1 activations has no variance of one image. Whether a network has such a layer
    is tried on a copy, before the training: otherwise it would end at the last step of its first
    epoch.
    """
    n = len(draw_plan(data.train.labels, method, recipe, seed=seed, epoch=0, progress=0.0))
    last = n % recipe.batch or recipe.batch
    if last > 1:
        return
    weight = next(net.parameters())
    image = torch.zeros(1, *data.shape, device=weight.device, dtype=weight.dtype)
    try:
        deepcopy(net).train()(image)
    except ValueError:
        raise LevelheadError(
            f"the last batch of an epoch has a single image ({n} images in batches of {recipe.batch}), and this "
            "network needs two for its batch statistics; change the batch of the recipe, or how many images "
            "are held out"
        ) from None


def on_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors in the memory of the host, which later steps do not change."""
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def combined_seed(*parts: int) -> int:
    """Return a seed of 32 bits from several numbers; neighbors' seeds have nothing in common.

    >>> combined_seed(0, 1) == combined_seed(0, 1), combined_seed(0, 1) == combined_seed(1, 0)
    (True, False)
    """
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def divergence(loss: float, epoch: int, lr: float, run: str = "") -> LevelheadError:
    """Return the error of a training whose loss is not finite.

    Args:
        loss: what it is.
        epoch: from 1 on.
        lr: of that epoch.
        run: of which of several trainings, as words that follow "the loss"; empty of one alone.
    """
    return LevelheadError(
        f"the loss{run} is {loss} in epoch {epoch}: the training has diverged; lower the learning rate (it was {lr:g})"
    )
