"""From stored images to the input of a network, and what a trained network makes of them.

In training, images [N, C, H, W] of uint8 and the plan of a batch become an input [B, C, H, W] of
floats: cropped and flipped in one gather (`crop_flip`), varied by TrivialAugment, standardized
(`standardize`) and cut out (`cut_out`). Where Triton runs, one kernel does all of that, to the same
bits (`augment_kernel`). In evaluation they are standardized and nothing else.

A trained network gives features, a snapshot, and errors on the evaluation splits.
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from levelhead.support.errors import LevelheadError

from .data import Data, Split
from .epoch_plan import EpochPlan
from .nets import Net, head_inputs, head_of
from .recipe import Recipe
from .snapshot import Snapshot
from .trivial_augment import make_tables, trivial_augment

MOST_KERNEL_PIXELS = 4096  # of an image, which the augmentation's kernel holds in registers


def has_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the Triton kernels run on this device, for activations of this dtype.

    They are made for CUDA and for at most 32 bits. Triton comes with torch on Linux only.
    """
    narrow = dtype in (torch.float16, torch.bfloat16, torch.float32)
    return device.type == "cuda" and narrow and find_spec("triton") is not None


class Preprocess:
    """What a recipe does to images, for a network of a dtype.

    Mean and std that the recipe does not have are those of the training images.

    Args:
        recipe: padding, augmentation, cutout, and perhaps mean and std.
        data: whose training images are measured, and whose shape decides how large a cutout can be.
        dtype: of the network's input.

    Raises:
        LevelheadError: if they have another number of channels than the images, or TrivialAugment
            is asked for with other channels than 1 or 3.
    """

    def __init__(self, recipe: Recipe, data: Data, dtype: torch.dtype = torch.float32):
        if recipe.mean and recipe.std:
            mean = recipe.mean
            std = recipe.std
        else:  # a pass over all training images
            mean, std = data.mean_std
        if len(mean) != data.shape[0]:
            raise LevelheadError(
                f"recipe {recipe.name} has a mean and std for {len(mean)} channels, but the images "
                f"have {data.shape[0]}; leave them out of the recipe to have them measured"
            )
        if recipe.augment == "trivial" and data.shape[0] not in (1, 3):
            raise LevelheadError(
                f"recipe {recipe.name}: augment: 'trivial' needs images with 1 or 3 channels, got {data.shape[0]}"
            )
        self.augment = recipe.augment
        self.pad = recipe.pad
        self.mean = mean
        self.std = std
        self.dtype = dtype
        # Of an image that is smaller than the square, half of its side: nothing else would be left.
        shorter = min(data.shape[1:])
        if recipe.cutout <= shorter:
            self.cutout = recipe.cutout
        else:
            self.cutout = shorter // 4 * 2  # an even number
        self._on_device: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def augmented(self, images: Tensor, batch: EpochPlan) -> Tensor:
        """Return the samples of a batch, taken from the training images and varied as it says.

        Args:
            images: [N, C, H, W], uint8, all of the training split, on the device.
            batch: [B] samples of the plan of an epoch, on the same device.

        Returns:
            [B, C, H, W], in `dtype`.
        """
        if self._has_kernel(images):
            return self._augmented_at_once(images, batch)
        moved = crop_flip(images[batch.indices], batch.offsets, batch.flips, pad=self.pad)
        if self.augment == "trivial":
            moved = trivial_augment(moved, *batch.changes.unbind(1))
        return cut_out(self.standardized(moved), batch.centers, side=self.cutout)

    def standardized(self, images: Tensor) -> Tensor:
        """Return images as the network takes them, without any variation: for evaluation.

        Args:
            images: [B, C, H, W], uint8; on any device, on which the result is too.
        """
        return standardize(images, *self._mean_std(images.device), self.dtype)

    def _mean_std(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return mean and std [C] on a device, in float32 or better."""
        # Copied once: the host would wait for a copy in every step.
        if device not in self._on_device:
            wide = torch.promote_types(self.dtype, torch.float32)
            mean = torch.tensor(self.mean, dtype=wide, device=device)
            std = torch.tensor(self.std, dtype=wide, device=device)
            self._on_device[device] = mean, std
        return self._on_device[device]

    def _has_kernel(self, images: Tensor) -> bool:
        """Say whether all of the augmentation can be one kernel, for images stored like these.

        It takes 1 or 3 channels of uint8 in channels-last memory, images small enough for the registers
        of a program, and a device that runs Triton.
        """
        _, channels, height, width = images.shape
        if channels not in (1, 3) or height * width > MOST_KERNEL_PIXELS:
            return False
        channels_last = images.permute(0, 2, 3, 1).is_contiguous()
        stored = channels_last and images.dtype == torch.uint8
        return stored and has_kernels(images.device, self.dtype)

    def _augmented_at_once(self, images: Tensor, batch: EpochPlan) -> Tensor:
        """Do what `augmented` does, to the bit, without anything stored between the steps."""
        from .augment_kernel import augment

        mean, std = self._mean_std(images.device)
        tables = None
        if self.augment == "trivial":
            tables = make_tables(*images.shape[2:], images.device)
        return augment(
            images,
            batch,
            pad=self.pad,
            cutout=self.cutout,
            mean=mean,
            std=std,
            dtype=self.dtype,
            tables=tables,
        )


def crop_flip(images: Tensor, offsets: Tensor, flips: Tensor, *, pad: int) -> Tensor:
    """Pad images with black, crop them back to their size, and mirror some.

    Args:
        images: [B, C, H, W].
        offsets: [B, 2], row and column of the crop in the padded image, from 0 to 2 pad.
        flips: [B], whether to mirror left to right, after the crop.
        pad: pixels on each side.

    Returns:
        [B, C, H, W], in channels-last memory.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]])
    >>> crop_flip(image, torch.tensor([[1, 0]]), torch.tensor([True]), pad=1).tolist()
    [[[[1, 0], [3, 0]]]]
    """
    batch, _, height, width = images.shape
    # Where each row [B, H] and each column [B, W] of the result comes from, in the image's own
    # coordinates: in the padding they are below 0, or past the end.
    rows = torch.arange(height, device=images.device) + offsets[:, :1] - pad
    across = torch.arange(width, device=images.device)
    columns = torch.where(flips[:, None], width - 1 - across, across) + offsets[:, 1:] - pad
    rows_inside = (rows >= 0) & (rows < height)
    columns_inside = (columns >= 0) & (columns < width)
    inside = rows_inside[:, :, None] & columns_inside[:, None, :]
    # One gather of all pixels; those of the padding are taken from the border, then blackened.
    sample = torch.arange(batch, device=images.device)[:, None, None]
    row = rows.clamp(0, height - 1)[:, :, None]
    column = columns.clamp(0, width - 1)[:, None, :]
    pixels = images[sample, :, row, column]  # [B, H, W, C]
    return (pixels * inside[..., None]).permute(0, 3, 1, 2)


def standardize(
    images: Tensor,
    mean: Sequence[float] | Tensor,
    std: Sequence[float] | Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return ``(x / 255 - mean) / std``, channel by channel, computed in float32 or better.

    Args:
        images: [B, C, H, W], levels from 0 to 255.
        mean, std: [C], of pixels from 0 to 1.
        dtype: of the result; a narrow one rounds once, at the end.

    >>> standardize(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), [0.5], [0.25]).flatten().tolist()
    [-2.0, 2.0]
    """
    if not len(mean) == len(std) == images.shape[1]:
        raise LevelheadError(
            f"expected {images.shape[1]} means and stds, one per channel, got {len(mean)} and {len(std)}"
        )
    wide = torch.promote_types(dtype, torch.float32)
    mean = torch.as_tensor(mean, dtype=wide, device=images.device)[:, None, None]
    std = torch.as_tensor(std, dtype=wide, device=images.device)[:, None, None]
    return ((images.to(wide) / 255 - mean) / std).to(dtype)


def cut_out(x: Tensor, centers: Tensor, *, side: int) -> Tensor:
    """Fill a square of each standardized image with 0, the mean. It may reach outside the image.

    Rows ``c - side // 2 <= i < c + side // 2`` with ``c = floor(center[b, 0] * H)``, and columns
    likewise.

    Args:
        x: [B, C, H, W], standardized.
        centers: [B, 2], as shares of height and width from 0 to below 1.
        side: of the square, an even number of pixels; 0 changes nothing.

    >>> cut_out(torch.ones(1, 1, 2, 3), torch.tensor([[0.0, 0.4]]), side=2).tolist()
    [[[[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]]]

    Reference: DeVries and Taylor, Improved Regularization of Convolutional Neural Networks with
        Cutout, 2017.
    """
    if side == 0:
        return x
    height, width = x.shape[2:]
    half = side // 2
    # How far each row [B, H] and each column [B, W] is from the center.
    rows = torch.arange(height, device=x.device) - (centers[:, :1] * height).floor()
    columns = torch.arange(width, device=x.device) - (centers[:, 1:] * width).floor()
    down = (rows >= -half) & (rows < half)
    across = (columns >= -half) & (columns < half)
    return x.masked_fill((down[:, :, None] & across[:, None, :])[:, None], 0)


@torch.no_grad()
def features(net: Net, split: Split, preprocess: Preprocess, *, batch: int = 512) -> np.ndarray:
    """Return what the head multiplies, [N, d] of float32, with the network in evaluation mode.

    Args:
        net: trained. It is left in evaluation mode.
        split: of N samples.
        preprocess: as in training, for the dtype of the network.
        batch: images at a time.
    """
    net.eval()
    device = next(net.parameters()).device
    parts = []
    for at in range(0, len(split), batch):
        images = torch.from_numpy(split.images[at : at + batch]).to(device)
        parts.append(head_inputs(net, preprocess.standardized(images)))
    return torch.cat(parts).float().cpu().numpy()


def snapshot(
    net: Net,
    data: Data,
    preprocess: Preprocess,
    *,
    meta: dict[str, Any] | None = None,
    half: bool = False,
) -> Snapshot:
    """Return the head, the counts, and the features and labels of every split.

    Args:
        net: trained.
        data: what it was trained on.
        preprocess: as in training.
        meta: facts to keep with it, as JSON can hold them.
        half: store features as float16.
    """
    kept = {}
    for name, part in data.splits.items():
        kept[name] = features(net, part, preprocess)
        if half:
            kept[name] = kept[name].astype(np.float16)
    return Snapshot(
        head=replace(head_of(net).numpy(), names=data.names),
        counts=data.counts,
        meta=meta or {},
        features=kept,
        labels={name: part.labels for name, part in data.splits.items()},
    )


def errors(net: Net, data: Data, preprocess: Preprocess) -> dict[str, float]:
    """Return the share of wrong predictions on each split but that of training, {split: error}.

    Raises:
        LevelheadError: if a logit is not finite. The loss of the last step may have been: no loss
            has seen what that step made of the weights.
    """
    head = head_of(net).numpy()
    shares = {}
    for name, part in data.splits.items():
        if name == "train":
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            logits = head.logits(features(net, part, preprocess))
        if not np.isfinite(logits).all():
            raise LevelheadError(
                f"the logits of {name} images are not finite: the training has diverged; lower the learning rate"
            )
        shares[name] = float((logits.argmax(axis=1) != part.labels).mean())
    return shares
