"""What happens in one epoch, drawn before it begins: which samples, in which order, cropped and flipped how.

The plan of an epoch is a function of (seed, epoch) alone. So any epoch can be drawn again: a run that was interrupted
needs no state of a random generator to go on, and every engine, on any device or number of processes, sees the very
same batches and crops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..methods.method import Method


class Augment(Protocol):
    """How images are moved; a Recipe is one."""

    @property
    def pad(self) -> int: ...
    @property
    def flip(self) -> bool: ...


@dataclass(frozen=True, eq=False)
class Plan:
    """One epoch's samples in order.

    Args:
        indices: [n], into the training set.
        offsets: [n, 2], row and column of each crop in the padded image, each from 0 to 2 pad; pad is the middle.
        flips: [n], whether to mirror left and right.
    """

    indices: Tensor
    offsets: Tensor
    flips: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    def batches(self, size: int, start: int = 0) -> Iterator[Plan]:
        """Mini-batches of `size` samples from the `start`-th on, the last one as small as it comes."""
        for at in range(start * size, len(self), size):
            yield self[at:at + size]

    def __getitem__(self, part: slice) -> Plan:
        return Plan(self.indices[part], self.offsets[part], self.flips[part])

    def to(self, device: torch.device) -> Plan:
        """There as a whole, so that no step waits for its part of it."""
        return Plan(self.indices.to(device), self.offsets.to(device), self.flips.to(device))


def plan(labels: np.ndarray, method: Method, *, seed: int, epoch: int, progress: float, augment: Augment) -> Plan:
    """Draw an epoch.

    Args:
        labels: [N], of the training set.
        method: its `sample` says which samples make an epoch; a plain shuffle of all if it has none.
        seed: the run's.
        epoch: counted from 0.
        progress: share of the training that is over when this epoch begins.
        augment: `pad` and `flip`; a Recipe.
    """
    draw, move = (np.random.default_rng([seed, epoch, part]) for part in range(2))
    indices = draw.permutation(len(labels)) if method.sample is None else method.sample(labels, draw, progress)
    n = len(indices)
    offsets = move.integers(0, 2 * augment.pad + 1, (n, 2))
    flips = move.random(n) < 0.5 if augment.flip else np.zeros(n, bool)
    return Plan(*map(torch.from_numpy, (np.asarray(indices, np.int64), offsets, flips)))
