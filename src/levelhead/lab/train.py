"""Algorithm 1, and every other method, as one plain loop: any device, any number of processes.

Everything random is drawn from (seed, epoch, step), so that a training that was stopped anywhere and started again from
its State takes the very same steps: bit for bit on a CPU with the same number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..head import Head
from ..methods.method import Method
from .augment import crop_flip, normalize
from .data import Data, Split
from .epoch import Plan, plan
from .nets import Net, embed, head_of
from .recipe import Recipe


@dataclass(frozen=True, eq=False)
class State:
    """Where a training stands: all it needs to go on.

    Args:
        epoch: the epoch to go on with.
        step: steps of it already taken.
        weights: the network's state dict.
        momentum: the optimizer's buffer of each parameter, by the parameter's name; empty before the first step.
        seen: [3] of float64, of this epoch so far: samples, sum of their losses, number of errors.
    """

    epoch: int
    step: int
    weights: dict[str, Tensor]
    momentum: dict[str, Tensor]
    seen: Tensor


def fit(
    net: Net,
    data: Data,
    recipe: Recipe,
    method: Method,
    *,
    seed: int = 0,
    start: State | None = None,
    on_step: Callable[[Callable[[], State]], None] | None = None,
    on_epoch: Callable[[State, dict[str, Any]], None] | None = None,
) -> State:
    """Train a network in place.

    Args:
        net: on the device to train on, in the precision to train in.
        data: its training split, and its counts, which are the only ones.
        recipe: the optimizer's side.
        method: which samples, which loss, which projection.
        seed: of batches and crops; the initial weights are the network's own.
        start: a State to go on from.
        on_step: called after every step with a function that gives the State, if it is wanted.
        on_epoch: called after every epoch with the State and that epoch's record.

    Returns:
        The State after the last step.
    """
    device, world, rank = next(net.parameters()).device, *_processes()
    images, labels = torch.from_numpy(data.train.images).to(device), torch.from_numpy(data.train.labels).to(device)
    view = View(recipe, data, next(net.parameters()).dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov,
                                weight_decay=recipe.weight_decay)
    state = _restore(net, optimizer, start)
    model = net if world == 1 else _distributed(net)

    for epoch in range(state.epoch, recipe.epochs):
        progress = epoch / recipe.epochs
        loss_of = method.loss(data.counts, progress)
        optimizer.param_groups[0]["lr"] = recipe.lr_at(epoch)
        order = plan(data.train.labels, method, seed=seed, epoch=epoch, progress=progress, augment=recipe)
        first, seen = (state.step, state.seen.to(device)) if epoch == state.epoch else (0, _nothing().to(device))
        model.train()
        for step, batch in enumerate(order.batches(recipe.batch, first), first):      # 1: sample a mini-batch
            torch.manual_seed(int(np.random.SeedSequence([seed, epoch, step]).generate_state(1)[0]))  # for dropout
            mine, weight = share(batch, rank, world)
            y = labels[mine.indices]
            logits = model(view(images, mine))
            losses = loss_of(logits, y)
            optimizer.zero_grad()
            (losses.sum() * weight).backward()                                        # 2: gradient of the mean loss
            if method.order == "before":
                project_(net, method)
            optimizer.step()                                                          # 3: step
            if method.order == "after":
                project_(net, method)                                                 # 4: w_i <- w_i / ||w_i||
            seen = seen + _tally(losses, logits, y)
            if on_step is not None:
                on_step(lambda: _state(net, optimizer, epoch, step + 1, seen))  # noqa: B023, called at once
        record = _record(epoch, recipe, seen, net)
        state = _state(net, optimizer, epoch + 1, 0, _nothing())
        if on_epoch is not None:
            on_epoch(state, record)
    return state


def project_(net: Net, method: Method) -> None:
    """The method's projection of the head, in place."""
    if method.project is not None:
        weight = net.head.weight
        with torch.no_grad():
            weight.copy_(method.project(Head(weight.detach())).weight)  # type: ignore[operator]


def share(batch: Plan, rank: int, world: int) -> tuple[Plan, float]:
    """This process's part of a batch, and what its summed loss is multiplied by.

    DDP averages gradients over the processes, so ``world / B`` makes the average the mean over the whole batch, however
    unevenly it divides. A process left with nothing does the first sample again, at weight 0.
    """
    mine = batch[rank::world]
    return (mine, world / len(batch)) if len(mine) else (batch[:1], 0.0)


class View:
    """From stored images to a network's input: gather, crop and flip, normalize."""

    def __init__(self, recipe: Recipe, data: Data, dtype: torch.dtype):
        mean, std = (recipe.mean, recipe.std) if recipe.mean and recipe.std else data.mean_std()
        if len(mean) != data.shape[0]:
            raise ValueError(f"recipe {recipe.name} has mean and std of {len(mean)} channels, the images have "
                             f"{data.shape[0]}; leave them out of the recipe to have them measured")
        self.pad, self.mean, self.std, self.dtype = recipe.pad, mean, std, dtype

    def __call__(self, images: Tensor, batch: Plan) -> Tensor:
        """Samples of the training set as their plan says."""
        moves = (torch.from_numpy(x).to(images.device) for x in (batch.offsets, batch.flips))
        return self.plain(crop_flip(images[batch.indices], *moves, pad=self.pad))

    def plain(self, images: Tensor) -> Tensor:
        """images [B, C, H, W], uint8, as they are."""
        return normalize(images, self.mean, self.std, self.dtype)


@torch.no_grad()
def features(net: Net, split: Split, view: View, *, batch: int = 512) -> np.ndarray:
    """What the head multiplies, [N, d], with the network in evaluation mode."""
    net.eval()
    device = next(net.parameters()).device
    parts = [embed(net, view.plain(torch.from_numpy(split.images[at:at + batch]).to(device)))
             for at in range(0, len(split), batch)]
    return torch.cat(parts).float().cpu().numpy()


def errors(net: Net, data: Data, view: View) -> dict[str, float]:
    """Share of wrong predictions on every split but the training one."""
    head = head_of(net).numpy()
    return {title: float((head.logits(features(net, part, view)).argmax(axis=1) != part.labels).mean())
            for title, part in data.splits.items() if title != "train"}


def _nothing() -> Tensor:
    return torch.zeros(3, dtype=torch.float64)


def _tally(losses: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    with torch.no_grad():
        wrong = (logits.argmax(dim=1) != labels).sum()
        return torch.stack([torch.full_like(wrong, len(labels)).double(), losses.sum().double(), wrong.double()])


def _record(epoch: int, recipe: Recipe, seen: Tensor, net: Net) -> dict[str, Any]:
    if _processes()[0] > 1:
        seen = seen.clone()
        dist.all_reduce(seen)
    n, loss, wrong = seen.tolist()
    if not np.isfinite(loss):
        raise ValueError(f"the loss is {loss} in epoch {epoch + 1}: the training has diverged; lower the learning rate "
                         f"(recipe {recipe.name} has lr = {recipe.lr})")
    norms = head_of(net).norms.tolist()
    return {"epoch": epoch + 1, "lr": recipe.lr_at(epoch), "loss": loss / n, "train_error": wrong / n, "norms": norms}


def _state(net: Net, optimizer: torch.optim.Optimizer, epoch: int, step: int, seen: Tensor) -> State:
    found = {name: optimizer.state[p].get("momentum_buffer") for name, p in net.named_parameters()}
    buffers = {name: buffer for name, buffer in found.items() if buffer is not None}
    keep = {title: {k: v.detach().cpu().clone() for k, v in tensors.items()}
            for title, tensors in (("weights", net.state_dict()), ("momentum", buffers))}
    return State(epoch, step, keep["weights"], keep["momentum"], seen.cpu().clone())


def _restore(net: Net, optimizer: torch.optim.Optimizer, start: State | None) -> State:
    if start is None:
        return _state(net, optimizer, 0, 0, _nothing())
    net.load_state_dict(start.weights)
    for name, p in net.named_parameters():
        if name in start.momentum:
            optimizer.state[p]["momentum_buffer"] = start.momentum[name].to(p).clone()
    return start


def _processes() -> tuple[int, int]:
    """(world size, rank) under torchrun, (1, 0) elsewhere."""
    return (dist.get_world_size(), dist.get_rank()) if dist.is_available() and dist.is_initialized() else (1, 0)


def _distributed(net: Net) -> nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    if next(net.parameters()).device.type == "cuda":  # batch statistics over the whole batch, as in one process
        net.body = nn.SyncBatchNorm.convert_sync_batchnorm(net.body)
    return DistributedDataParallel(net)
