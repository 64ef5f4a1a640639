"""From stored images to the input of a network."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.errors import LevelheadError
from .augment import crop_flip, cut_out, standardize
from .data import Data
from .epoch_plan import EpochPlan
from .recipe import Recipe


class Preprocess:
    """What a recipe does to images: crop and flip, standardize, cut out.

    Args:
        recipe: pad, cutout, and mean and std if it has them.
        data: the data whose training pixels are measured if it has not.
        dtype: of the network.
    """

    def __init__(self, recipe: Recipe, data: Data, dtype: torch.dtype = torch.float32):
        mean, std = (recipe.mean, recipe.std) if recipe.mean and recipe.std else data.mean_std
        if len(mean) != data.shape[0]:
            raise LevelheadError(f"recipe {recipe.name} has a mean and std for {len(mean)} channels, but the images "
                                 f"have {data.shape[0]}; leave them out of the recipe to have them measured")
        self.pad, self.cutout, self.mean, self.std, self.dtype = recipe.pad, recipe.cutout, mean, std, dtype
        self._on_device: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def augmented(self, images: Tensor, batch: EpochPlan) -> Tensor:
        """Return the samples of a batch, taken from the training images and varied as it says."""
        moved = crop_flip(images[batch.indices], batch.offsets, batch.flips, pad=self.pad)
        return cut_out(self.standardized(moved), batch.centers, side=self.cutout)

    def standardized(self, images: Tensor) -> Tensor:
        """Return images [B, C, H, W], uint8, as input of the network, without augmentation."""
        if images.device not in self._on_device:  # copied once: the host would wait for a copy in every step
            wide = torch.promote_types(self.dtype, torch.float32)
            mean, std = (torch.tensor(x, dtype=wide, device=images.device) for x in (self.mean, self.std))
            self._on_device[images.device] = mean, std
        mean, std = self._on_device[images.device]
        return standardize(images, mean, std, self.dtype)
