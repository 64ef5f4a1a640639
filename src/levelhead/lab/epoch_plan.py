"""What happens in one epoch, drawn before it begins: which samples, in which order, cropped, flipped and cut how.

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

from ..core.errors import LevelheadError
from ..methods.method import Method


class Augment(Protocol):
    """How images are varied; a Recipe is one."""

    @property
    def pad(self) -> int: ...
    @property
    def flip(self) -> bool: ...
    @property
    def cutout(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Plan:
    """One epoch's samples in order.

    Args:
        indices: [n], into the training set.
        offsets: [n, 2], row and column of each crop in the padded image, each from 0 to 2 pad; pad is the middle.
        flips: [n], whether to mirror left and right.
        centers: [n, 2], of the square to cut out, as shares of height and width; zeros if none is.
    """

    indices: Tensor
    offsets: Tensor
    flips: Tensor
    centers: Tensor

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All of it, in the order of the arguments."""
        return self.indices, self.offsets, self.flips, self.centers

    def __len__(self) -> int:
        return len(self.indices)

    def batches(self, size: int, start: int = 0) -> Iterator[Plan]:
        """Mini-batches of `size` samples from the `start`-th on, the last one as small as it comes."""
        for at in range(start * size, len(self), size):
            yield self[at:at + size]

    def __getitem__(self, part: slice) -> Plan:
        return Plan(*(x[part] for x in self.parts))

    def to(self, device: torch.device) -> Plan:
        """There as a whole, so that no step waits for its part of it."""
        return Plan(*(x.to(device) for x in self.parts))


def plan(labels: np.ndarray, method: Method, *, seed: int, epoch: int, progress: float, augment: Augment) -> Plan:
    """Draw an epoch.

    Args:
        labels: [N], of the training set.
        method: its `sample` says which samples make an epoch; a plain shuffle of all if it has none.
        seed: the run's.
        epoch: counted from 0.
        progress: share of the training that is over when this epoch begins.
        augment: `pad`, `flip` and `cutout`; a Recipe.
    """
    draw, move, cut = (np.random.default_rng([seed, epoch, part]) for part in range(3))
    every = draw.permutation(len(labels)) if method.sample is None else method.sample(labels, draw, progress)
    indices = np.asarray(every)
    some = indices.ndim == 1 and indices.size and indices.dtype.kind in "iu"
    if not some or indices.min() < 0 or indices.max() >= len(labels):
        raise LevelheadError(f"method {method.name}: expected indices of an epoch's samples, [n] from 0 to "
                         f"{len(labels) - 1}, got {indices.dtype} of shape {list(indices.shape)}")
    n = len(indices)
    offsets = move.integers(0, 2 * augment.pad + 1, (n, 2))
    flips = move.random(n) < 0.5 if augment.flip else np.zeros(n, bool)
    centers = cut.random((n, 2)) if augment.cutout else np.zeros((n, 2))
    return Plan(*map(torch.from_numpy, (indices.astype(np.int64), offsets, flips, centers)))
