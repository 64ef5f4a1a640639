"""Crop and flip of a whole batch as one gather, standardization, cutout: from uint8 to the input of a network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.errors import LevelheadError


def crop_flip(images: Tensor, offsets: Tensor, flips: Tensor, *, pad: int) -> Tensor:
    """Pad with zeros, crop back to size at an offset, mirror left to right, for all samples at once.

    ``out[b, :, i, j] = padded[b, :, offset[b, 0] + i, offset[b, 1] + j']`` with ``j' = W - 1 - j`` where flipped.
    The zeros are black pixels, because padding comes before standardization, as in the paper's code.

    Args:
        images: [B, C, H, W], uint8.
        offsets: [B, 2], row and column of the crop in the padded image, each from 0 to 2 pad; (pad, pad) is the center.
        flips: [B], bool.
        pad: pixels added on every side.

    Returns:
        [B, C, H, W], uint8, in channels-last memory.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    >>> crop_flip(image, torch.tensor([[0, 1]]), torch.tensor([True]), pad=1)[0, 0].tolist()
    [[0, 0], [2, 1]]
    """
    batch, _, height, width = images.shape
    rows = torch.arange(height, device=images.device) + offsets[:, :1] - pad  # [B, H], in the image's own coordinates
    across = torch.arange(width, device=images.device)
    columns = torch.where(flips[:, None], width - 1 - across, across) + offsets[:, 1:] - pad  # [B, W]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    sample = torch.arange(batch, device=images.device)[:, None, None]
    found = images[sample, :, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None, :]]
    return (found * inside[..., None]).permute(0, 3, 1, 2)  # found is [B, H, W, C]


def standardize(
    images: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return ``(x / 255 - mean) / std``, channel by channel.

    Args:
        images: [B, C, H, W], uint8.
        mean: [C], of pixels from 0 to 1; a tensor on the device of the images is not copied.
        std: [C].
        dtype: of the result, which is computed in float32 or better.

    >>> standardize(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), [0.5], [0.25]).flatten().tolist()
    [-2.0, 2.0]
    """
    if not len(mean) == len(std) == images.shape[1]:
        raise LevelheadError(f"expected {images.shape[1]} means and stds, one per channel, got {len(mean)} and "
                             f"{len(std)}")
    wide = torch.promote_types(dtype, torch.float32)
    mean, std = (torch.as_tensor(x, dtype=wide, device=images.device)[:, None, None] for x in (mean, std))
    return ((images.to(wide) / 255 - mean) / std).to(dtype)


def cut_out(x: Tensor, centers: Tensor, *, side: int) -> Tensor:
    """Fill a square of each image with 0, the mean. Its center may be any pixel, so the square may reach outside.

    Rows ``c - side // 2 <= i < c + side // 2`` with ``c = floor(center[b, 0] * H)``, and columns likewise.

    Args:
        x: [B, C, H, W], standardized.
        centers: [B, 2], as shares of height and width from 0 to below 1.
        side: of the square; 0 leaves x as it is.

    >>> cut_out(torch.ones(1, 1, 3, 4), torch.tensor([[0.0, 0.5]]), side=2)[0, 0].tolist()
    [[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]

    Reference: DeVries and Taylor, Improved Regularization of Convolutional Neural Networks with Cutout, 2017.
    """
    if side == 0:
        return x
    height, width = x.shape[2:]
    rows = torch.arange(height, device=x.device) - (centers[:, :1] * height).floor()  # [B, H], from the center
    columns = torch.arange(width, device=x.device) - (centers[:, 1:] * width).floor()  # [B, W]
    down, across = ((from_center >= -(side // 2)) & (from_center < side // 2) for from_center in (rows, columns))
    return x.masked_fill((down[:, :, None] & across[:, None, :])[:, None], 0)
