"""The plain loop in float32 with torch's own layers, cross entropy and SGD, to compare the fast engine with.

It equals `levelhead_lab.lab.train` for the baseline, step by step. To finish whole trainings in minutes, the operations
of an epoch are recorded as a CUDA graph and replayed, and several trainings share the device, each on its own stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from levelhead_lab.lab import nets
from levelhead_lab.lab.data import Data
from levelhead_lab.lab.epoch_plan import EpochPlan, draw_plan
from levelhead_lab.lab.preprocess import Preprocess, errors
from levelhead_lab.lab.recipe import Recipe
from levelhead_lab.methods import METHODS


@contextmanager
def exact() -> Iterator[None]:
    """Multiply in full float32, and let cuDNN pick its fastest algorithms."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        yield
    torch.backends.cuda.matmul.allow_tf32 = before


class PlainRun:
    """One training of the baseline.

    Args:
        net: freshly initialized, on its device and in the precision to train in.
        data, recipe, seed: as for `train.fit`.
        channels_last: the memory layout of images, True as in the plain loop.
    """

    def __init__(
        self, net: nets.Net, data: Data, recipe: Recipe, seed: int, *, channels_last: bool = True
    ):
        self.net = net
        self.data = data
        self.recipe = recipe
        self.seed = seed
        first = next(net.parameters())
        self.device = first.device
        self.preprocess = Preprocess(recipe, data, first.dtype)
        self.format = torch.contiguous_format
        if channels_last:
            self.format = torch.channels_last
        self.images = torch.from_numpy(data.train.images).to(self.device)
        self.labels = torch.from_numpy(data.train.labels).to(self.device)
        self.optimizer = torch.optim.SGD(
            net.parameters(),
            lr=recipe.lr,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
        )
        self.stream = None
        if self.device.type == "cuda":
            self.stream = torch.cuda.Stream(self.device)
        self.epoch = 0
        self.graph = None  # of an epoch's steps,
        self.recorded = None  # at this learning rate, which is a constant in it
        self.order = self._draw()  # the buffers that a graph reads the plan of an epoch from

    def _draw(self) -> EpochPlan:
        """Return the plan of the next epoch: samples and crops."""
        return draw_plan(
            self.data.train.labels,
            METHODS["baseline"],
            self.recipe,
            seed=self.seed,
            epoch=self.epoch,
            progress=0.0,
        ).to(self.device)

    def _play(self, order: EpochPlan) -> None:
        """Take the steps of an epoch, or of a part of one."""
        for batch in order.batches(self.recipe.batch):
            x = self.preprocess.augmented(self.images, batch).contiguous(memory_format=self.format)
            loss = F.cross_entropy(self.net(x), self.labels[batch.indices])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def advance(self) -> None:
        """Queue one more epoch."""
        self.net.train()
        lr = self.recipe.lr_at(self.epoch)
        if self.stream is None:
            self.optimizer.param_groups[0]["lr"] = lr
            self._play(self._draw())
        else:
            with torch.cuda.stream(self.stream):
                for buffer, drawn in zip(self.order.tensors, self._draw().tensors, strict=True):
                    buffer.copy_(drawn)
                if self.recorded != lr:
                    self._record(lr)
                self.graph.replay()  # type: ignore[union-attr]
        self.epoch += 1

    def _record(self, lr: float) -> None:
        """Record the epoch at this learning rate as a graph. Steps taken first, to fill caches, are undone."""
        fresh = not self.optimizer.state
        kept = [x.clone() for x in self._numbers()]
        self.optimizer.param_groups[0]["lr"] = lr
        for part in {2 * self.recipe.batch, len(self.order) % self.recipe.batch} - {0}:
            self._play(self.order[:part])
        self.optimizer.zero_grad()
        with torch.no_grad():
            for x, was in zip(self._numbers(), kept, strict=False):
                x.copy_(was)
            for momentum in self._momenta() if fresh else ():  # as before the first step
                momentum.zero_()
        torch.cuda.synchronize(self.device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self._play(self.order)
        self.recorded = lr

    def _numbers(self) -> list[Tensor]:
        """Return all tensors that a step changes."""
        return [*self.net.state_dict().values(), *self._momenta()]

    def _momenta(self) -> list[Tensor]:
        """Return the optimizer's buffers; there are none before the first step."""
        return [
            self.optimizer.state[p]["momentum_buffer"]
            for p in self.net.parameters()
            if p in self.optimizer.state
        ]


def train(
    runs: list[PlainRun], on_epoch: Callable[[int, float], None] | None = None
) -> list[float]:
    """Train all runs to the end, and return the test error of each."""
    began = time.perf_counter()
    for epoch in range(runs[0].recipe.epochs):
        for run in runs:
            run.advance()
        if on_epoch is not None:
            if runs[0].stream is not None:
                torch.cuda.synchronize()
            on_epoch(epoch + 1, time.perf_counter() - began)
    return [errors(run.net, run.data, run.preprocess)["test"] for run in runs]
