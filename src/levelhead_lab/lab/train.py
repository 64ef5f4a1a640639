"""Algorithm 1, and every other method, as one plain loop: any device, any number of processes.

Everything random is drawn from (seed, epoch, step). A training that was stopped anywhere and resumed from its State
therefore takes the same steps: bit for bit on a CPU with the same number of threads.

Weights are averaged over the last epochs where the recipe asks for it (Izmailov et al., Averaging Weights Leads to
Wider Optima and Better Generalization, 2018), and the batch statistics too, instead of being measured again.
"""

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.sgd import sgd

from levelhead.core.head import Head
from levelhead.support.errors import LevelheadError

from ..methods.method import Method, WeightedLoss
from .data import Data
from .epoch_plan import EpochPlan, draw_plan
from .nets import Net, head_of
from .preprocess import Preprocess
from .recipe import Recipe


@dataclass(frozen=True, eq=False)
class State:
    """All that a training needs to resume."""

    epoch: int  # to resume with
    step: int  # steps already taken in it
    weights: dict[str, Tensor]  # the network's state dict
    # The optimizer's buffer of each parameter, by its name; empty at the start.
    momentum: dict[str, Tensor]
    # [3], of this epoch so far, over all processes: samples, sum of their losses, number of errors
    seen: Tensor = field(default_factory=lambda: torch.zeros(3, dtype=torch.float64))
    # Of weights over epochs so far, by name; see Recipe.average.
    mean: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """Epochs first .. end - 1, under one method."""

    first: int
    end: int
    method: Method
    head_only: bool  # whether only the head learns, and the body is frozen and in evaluation mode
    lr: Callable[[int, float], float]  # of an epoch and the share of it that is done


@dataclass(frozen=True)
class RecipeLoss:
    """A method's loss as a recipe has it: class weights normalized in the batch, the last stage moved to `start`."""

    loss: Callable[..., Any]
    in_batch: bool
    own: float = 1.0  # where the last stage begins by the method, as a share of the training
    start: float = 1.0  # and where by the recipe

    def __call__(self, counts: Any, progress: float = 0.0) -> Any:
        before = progress < self.start
        if before:
            moved = progress * self.own / self.start
        else:
            moved = self.own + (progress - self.start)
        found = self.loss(counts, min(moved, 1.0) if self.own != self.start else progress)
        if self.in_batch and isinstance(found, WeightedLoss):
            return replace(found, in_batch=True)
        return found


def as_recipe_has_it(method: Method, recipe: Recipe) -> Method:
    """Return a method with its class weights normalized, and its last stage begun, as a recipe says."""
    in_batch = recipe.weights == "batch"
    drop = recipe.first_decay_epoch / recipe.epochs
    if recipe.deferred and method.stages and drop:
        own = method.stages[-1]
        shifted = tuple(share * drop / own for share in method.stages[:-1])
        return replace(
            method, loss=RecipeLoss(method.loss, in_batch, own, drop), stages=(*shifted, drop)
        )
    if in_batch:
        return replace(method, loss=RecipeLoss(method.loss, True))
    return method


def stages(recipe: Recipe, method: Method) -> list[Stage]:
    """Return the training of the recipe and, for a method that retrains the head, a second stage; see `Retrain`."""
    method = as_recipe_has_it(method, recipe)
    main = Stage(0, recipe.epochs, method, False, lambda epoch, done: recipe.lr_at(epoch))
    if method.retrain is None:
        return [main]
    more = max(1, round(method.retrain.share * recipe.epochs))
    second = replace(method, loss=method.retrain.loss, sample=method.retrain.sample, project=None)

    def half_cosine(epoch: int, done: float) -> float:
        return recipe.lr * (1 + math.cos(math.pi * (epoch - recipe.epochs + done) / more)) / 2

    return [main, Stage(recipe.epochs, recipe.epochs + more, second, True, half_cosine)]


OnStep = Callable[[Callable[[], State]], None]
OnEpoch = Callable[[State, dict[str, Any]], None]
# The epoch, from 1 on; how many of its batches are done, and are in all.
OnBatch = Callable[[int, int, int], None]


def fit(
    net: Net,  # freshly initialized, on the device and in the precision to train in
    data: Data,
    recipe: Recipe,
    method: Method,
    *,
    seed: int = 0,  # of batches and crops
    start: State | None = None,
    on_step: OnStep | None = None,  # called after every step with a function that returns the State
    on_epoch: OnEpoch
    | None = None,  # called after every epoch with the State and the epoch's record
    on_batch: OnBatch | None = None,  # called after every step with the epoch and how far it is
) -> State:
    """Train a network in place, and return the State after the last step; `start` is the State to resume from."""
    fresh_head = {name: p.detach().clone() for name, p in net.head.state_dict().items()}
    state = start or State(0, 0, on_host(net.state_dict()), {})
    net.load_state_dict(state.weights)
    for stage in stages(recipe, method):
        if state.epoch < stage.end:
            if (state.epoch, state.step) == (stage.first, 0):
                state = replace(state, momentum={})  # a fresh optimizer
                if stage.head_only:
                    net.head.load_state_dict(fresh_head)
            net.body.requires_grad_(not stage.head_only)
            state = _train(net, data, recipe, stage, seed, state, on_step, on_epoch, on_batch)
            net.body.requires_grad_(True)
    return state


def _train(
    net: Net,
    data: Data,
    recipe: Recipe,
    stage: Stage,
    seed: int,
    state: State,
    on_step: OnStep | None,
    on_epoch: OnEpoch | None,
    on_batch: OnBatch | None,
) -> State:
    device = next(net.parameters()).device
    dtype = next(net.parameters()).dtype
    distributed = dist.is_available() and dist.is_initialized()  # under torchrun
    world, rank = (dist.get_world_size(), dist.get_rank()) if distributed else (1, 0)
    images = torch.from_numpy(data.train.images).to(device)
    labels = torch.from_numpy(data.train.labels).to(device)
    preprocess = Preprocess(recipe, data, dtype)
    method = stage.method
    learning = {name: p for name, p in net.named_parameters() if p.requires_grad}
    momentum = {
        name: state.momentum[name].to(p.device).clone()
        for name, p in learning.items()
        if name in state.momentum
    }
    if world > 1 and device.type == "cuda":  # statistics over the whole batch, as in one process
        net.body = nn.SyncBatchNorm.convert_sync_batchnorm(net.body)
    mean = {name: x.to(device).clone() for name, x in state.mean.items()}
    model = net
    if world > 1:
        model = nn.parallel.DistributedDataParallel(net)

    for epoch in range(state.epoch, stage.end):
        progress = (epoch - stage.first) / (stage.end - stage.first)
        loss_function = method.loss(data.counts, progress)
        if world > 1 and getattr(loss_function, "in_batch", False):
            raise LevelheadError(
                "weights normalized in the batch need the whole batch in one process",
                parameter="weights",
            )
        plan = draw_plan(
            data.train.labels, method, recipe, seed=seed, epoch=epoch, progress=progress
        ).to(device)
        seen = state.seen.to(device)
        model.train(not stage.head_only)
        # Sample a mini-batch.
        for step, batch in enumerate(plan.batches(recipe.batch, state.step), state.step):
            torch.manual_seed(combined_seed(seed, epoch, step))  # for dropout
            part, weight = process_share(batch, rank, world)
            y = labels[part.indices]
            logits = model(preprocess.augmented(images, part))
            losses = check_losses(loss_function(logits, y), y, method)
            net.zero_grad()
            (losses.sum() * weight).backward()  # gradient of the mean
            _project_(net, method, "before")  # (the released code)
            # Step.
            _step_(learning, momentum, recipe, stage.lr(epoch, step * recipe.batch / len(plan)))
            _project_(net, method, "after")  # w_i <- w_i / ||w_i||
            seen = seen + _tally(losses, logits, y, weight > 0, world)
            if on_step is not None:
                on_step(lambda: _state(net, momentum, epoch, step + 1, mean, seen))  # noqa: B023, called here only
            if on_batch is not None:
                on_batch(epoch + 1, step + 1, math.ceil(len(plan) / recipe.batch))
        (n, loss, wrong), lr = seen.tolist(), stage.lr(epoch, 0)
        if not math.isfinite(loss):
            raise divergence(loss, epoch + 1, lr)
        if count := recipe.epochs_averaged(epoch):
            now = numbers_of(net)
            mean = mean or {name: torch.zeros_like(x) for name, x in now.items()}
            add_to_means_((mean[name] for name in now), now.values(), count)
            if epoch + 1 == stage.end:
                take_mean_(net, mean, method)
        state = _state(net, momentum, epoch + 1, 0, mean)
        if on_epoch is not None:
            record = {"epoch": epoch + 1, "lr": lr, "loss": loss / n, "train_error": wrong / n}
            on_epoch(state, {**record, "norms": head_of(net).norms.tolist()})
    return state


@torch.no_grad()
def _project_(net: Net, method: Method, order: str) -> None:
    if method.project is not None and method.order == order:
        weight = net.head.weight
        weight.copy_(method.project(Head(weight.detach())).weight)  # type: ignore[operator]


@torch.no_grad()
def add_to_means_(means: Iterable[Tensor], values: Iterable[Tensor], count: int) -> None:
    for mean, value in zip(means, values, strict=True):
        mean.lerp_(value, 1 / count)


def numbers_of(net: Net) -> dict[str, Tensor]:
    return {name: x for name, x in net.state_dict().items() if x.is_floating_point()}


def take_mean_(net: Net, mean: dict[str, Tensor], method: Method) -> None:
    """Copy the mean to the network; unit weight vectors, whose mean is shorter, are made unit vectors again."""
    net.load_state_dict({**net.state_dict(), **mean})
    _project_(net, method, "after")


def check_losses(losses: Tensor, labels: Tensor, method: Method) -> Tensor:
    if losses.shape != labels.shape:
        raise LevelheadError(
            f"method {method.name}: expected one loss per sample, {list(labels.shape)}, got "
            f"{list(losses.shape)}; a loss of torch needs reduction='none'"
        )
    return losses


def check_last_batch(net: Net, data: Data, recipe: Recipe, method: Method, *, seed: int) -> None:
    n = len(draw_plan(data.train.labels, method, recipe, seed=seed, epoch=0, progress=0.0))
    if (n % recipe.batch or recipe.batch) > 1:
        return
    weight = next(net.parameters())
    try:
        deepcopy(net).train()(torch.zeros(1, *data.shape, device=weight.device, dtype=weight.dtype))
    except ValueError:
        raise LevelheadError(
            f"the last batch of an epoch has a single image ({n} images in batches of {recipe.batch}), and this "
            "network needs two for its batch statistics; change the batch of the recipe, or how many images "
            "are held out"
        ) from None


def process_share(batch: EpochPlan, rank: int, world: int) -> tuple[EpochPlan, float]:
    """Return this process's part of a batch, and the factor of its summed loss.

    DDP averages gradients over the processes, so ``world / B`` makes the average the mean over the whole batch, however
    unevenly it divides. A process without a sample repeats the first one, at weight 0.
    """
    mine = batch[rank::world]
    if len(mine):
        return (mine, world / len(batch))
    return (batch[:1], 0.0)


@torch.no_grad()
def _step_(
    learning: dict[str, nn.Parameter], momentum: dict[str, Tensor], recipe: Recipe, lr: float
) -> None:
    """Take a step of torch.optim.SGD. Its class would import the compiler of torch, which takes 1.5 s."""
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
        momentum.update(
            {
                name: buffer
                for name, buffer in zip(names, buffers, strict=True)
                if buffer is not None
            }
        )


def undecayed(recipe: Recipe) -> tuple[str, ...]:
    if recipe.bias == "rare":
        return ("head.bias",)
    return ()


def _state(
    net: Net,
    momentum: dict[str, Tensor],
    epoch: int,
    step: int,
    mean: dict[str, Tensor],
    seen: Tensor | None = None,
) -> State:
    state = State(epoch, step, on_host(net.state_dict()), on_host(momentum), mean=on_host(mean))
    if seen is None:
        return state
    return replace(state, seen=seen.cpu().clone())


def on_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def combined_seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


@torch.no_grad()
def _tally(losses: Tensor, logits: Tensor, labels: Tensor, counted: bool, world: int) -> Tensor:
    """Return what a batch adds to `State.seen`, over all processes: any of them may save the State after a step."""
    wrong = (logits.argmax(dim=1) != labels).sum()
    parts = (torch.full_like(wrong, len(labels)), losses.sum(), wrong)
    seen = torch.stack([part.double() for part in parts]) * counted
    if world > 1:
        dist.all_reduce(seen)
    return seen


def divergence(loss: float, epoch: int, lr: float, run: str = "") -> LevelheadError:
    return LevelheadError(
        f"the loss{run} is {loss} in epoch {epoch}: the training has diverged; lower the learning rate (it was {lr:g})"
    )
