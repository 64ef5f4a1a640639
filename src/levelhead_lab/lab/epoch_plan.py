"""The plan of an epoch, drawn before it begins: the samples, their order, and how each is varied.

A plan is a function of (seed, epoch) alone, so any epoch can be drawn again. A run that was
interrupted resumes without the state of a random generator, and every engine, on any device and any
number of processes, sees the same batches and crops.

It is drawn on the host by numpy, whose generators give the same numbers everywhere; those of torch
depend on the device. What is drawn is only which and where: `preprocess` reads the pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from levelhead.support.errors import LevelheadError

from ..methods.method import Method
from .recipe import Recipe
from .trivial_augment import MAGNITUDE_BINS, OPERATIONS


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The samples of an epoch, or of a part of it, in order.

    The fast engine has plans of R runs at once; there each tensor begins with an axis of R.
    """

    # [n], into the training set.
    indices: Tensor
    # [n, 2], row and column of each crop in the padded image, each from 0 to 2 pad; pad is the
    # center.
    offsets: Tensor
    # [n], whether to mirror left to right.
    flips: Tensor
    # [n, 2], of the square to cut out, as shares of height and width; zeros without cutout.
    centers: Tensor
    # [n, 3], operation, magnitude and sign of TrivialAugment; zeros, the identity, without it.
    changes: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All of them, in the order of the fields: what is done to one of them is done to all."""
        return self.indices, self.offsets, self.flips, self.centers, self.changes

    def __len__(self) -> int:
        return len(self.indices)

    def batches(self, size: int, start: int = 0) -> Iterator[EpochPlan]:
        """Yield mini-batches of `size` samples, beginning with batch `start`.

        The last one may be smaller. `start` is not 0 where an epoch is resumed in its middle.
        """
        for at in range(start * size, len(self), size):
            yield self[at : at + size]

    def __getitem__(self, part: slice) -> EpochPlan:
        """Return some of the samples, with views of the same memory."""
        return EpochPlan(*(x[part] for x in self.tensors))

    def to(self, device: torch.device) -> EpochPlan:
        """Return the plan on a device: a copy of five small tensors, made once for an epoch."""
        return EpochPlan(*(x.to(device) for x in self.tensors))


def draw_plan(
    labels: np.ndarray, method: Method, recipe: Recipe, *, seed: int, epoch: int, progress: float
) -> EpochPlan:
    """Draw the samples by the method, or shuffle all, and how each is varied by the recipe.

    Args:
        labels: [N], of the training set.
        method: `Method.sample` says which samples an epoch has.
        recipe: which variations there are; for one that it has not, the plan says "no change".
        seed: of the run.
        epoch: counted from 0.
        progress: share of the training that is done before the epoch; samplers may go by it.

    Returns:
        The plan of the whole epoch, on the host.

    Raises:
        LevelheadError: if the sampler's result is not a vector of indices, such as a boolean mask.

    >>> from levelhead_lab.lab.recipe import find_recipe
    >>> from levelhead_lab.methods import METHODS
    >>> labels = np.array([0] * 6 + [1] * 2)
    >>> plan = draw_plan(labels, METHODS["over-sample"], find_recipe("kim2020"), seed=0, epoch=0, progress=0.0)
    >>> len(plan), np.bincount(labels[plan.indices.numpy()]), plan.offsets.shape
    (8, array([4, 4]), torch.Size([8, 2]))
    """
    # A generator for each of samples, crop and flip, cutout, and TrivialAugment: to add one of the
    # later ones to a recipe does not change what the others draw.
    draw, move, cut, change = (np.random.default_rng([seed, epoch, part]) for part in range(4))
    if method.sample is not None:
        indices = np.asarray(method.sample(labels, draw, progress))
    else:
        indices = draw.permutation(len(labels))
    is_vector = indices.ndim == 1 and indices.size and indices.dtype.kind in "iu"
    if not is_vector or indices.min() < 0 or indices.max() >= len(labels):
        raise LevelheadError(
            f"method {method.name}: expected indices of an epoch's samples, [n] from 0 to "
            f"{len(labels) - 1}, got {indices.dtype} of shape {list(indices.shape)}"
        )
    n = len(indices)
    offsets = move.integers(0, 2 * recipe.pad + 1, (n, 2))
    if recipe.flip:
        flips = move.random(n) < 0.5
    else:
        flips = np.zeros(n, bool)
    if recipe.cutout:
        centers = cut.random((n, 2))
    else:
        centers = np.zeros((n, 2))
    if recipe.augment == "trivial":
        choices = (len(OPERATIONS), MAGNITUDE_BINS, 2)
        changes = change.integers(0, choices, (n, 3))
    else:
        changes = np.zeros((n, 3), np.int64)
    return EpochPlan(
        indices=torch.from_numpy(indices.astype(np.int64)),
        offsets=torch.from_numpy(offsets),
        flips=torch.from_numpy(flips),
        centers=torch.from_numpy(centers),
        changes=torch.from_numpy(changes),
    )
