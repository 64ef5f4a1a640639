"""How a network sees a data set: images to its input, its features, and its errors on what it was not trained on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import LevelheadError
from ..io.snapshot import Snapshot
from .augment import crop_flip, cut_out, normalize
from .data import Data, Split
from .epoch_plan import Plan
from .nets import Net, embed, head_of
from .recipe import Recipe


class View:
    """From stored images to a network's input: gather, crop and flip, normalize, cut out.

    Args:
        recipe: pad, cutout, and mean and std if it has them.
        data: whose training pixels are measured if not.
        dtype: of the network.
    """

    def __init__(self, recipe: Recipe, data: Data, dtype: torch.dtype = torch.float32):
        mean, std = (recipe.mean, recipe.std) if recipe.mean and recipe.std else data.mean_std
        if len(mean) != data.shape[0]:
            raise LevelheadError(f"recipe {recipe.name} has mean and std of {len(mean)} channels, the images have "
                             f"{data.shape[0]}; leave them out of the recipe to have them measured")
        self.pad, self.cutout, self.mean, self.std, self.dtype = recipe.pad, recipe.cutout, mean, std, dtype
        self._there: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __call__(self, images: Tensor, batch: Plan) -> Tensor:
        """Samples of the training set as their plan says."""
        moved = crop_flip(images[batch.indices], batch.offsets, batch.flips, pad=self.pad)
        return cut_out(self.plain(moved), batch.centers, side=self.cutout)

    def plain(self, images: Tensor) -> Tensor:
        """images [B, C, H, W], uint8, as they are."""
        if images.device not in self._there:  # copied once: a copy at every step is one that the host waits for
            wide = torch.promote_types(self.dtype, torch.float32)
            mean, std = (torch.tensor(x, dtype=wide, device=images.device) for x in (self.mean, self.std))
            self._there[images.device] = mean, std
        mean, std = self._there[images.device]
        return normalize(images, mean, std, self.dtype)


@torch.no_grad()
def features(net: Net, split: Split, view: View, *, batch: int = 512) -> np.ndarray:
    """What the head multiplies, [N, d], with the network in evaluation mode."""
    net.eval()
    device = next(net.parameters()).device
    parts = [embed(net, view.plain(torch.from_numpy(split.images[at:at + batch]).to(device)))
             for at in range(0, len(split), batch)]
    return torch.cat(parts).float().cpu().numpy()


def snapshot(net: Net, data: Data, view: View, *, meta: dict[str, Any] | None = None, half: bool = False) -> Snapshot:
    """What is left of a training: head, counts, and features with labels of every split; `half` halves the features."""
    kept = {title: features(net, part, view) for title, part in data.splits.items()}
    return Snapshot(
        head=replace(head_of(net).numpy(), names=data.names),
        counts=data.counts,
        features={title: x.astype(np.float16) if half else x for title, x in kept.items()},
        labels={title: part.labels for title, part in data.splits.items()},
        meta=meta or {},
    )


def errors(net: Net, data: Data, view: View) -> dict[str, float]:
    """Share of wrong predictions on every split but the training one."""
    head, found = head_of(net).numpy(), {}
    for title, part in data.splits.items():
        if title != "train":
            with np.errstate(over="ignore", invalid="ignore"):
                logits = head.logits(features(net, part, view))
            if not np.isfinite(logits).all():  # lost in an epoch's last step, which no loss has seen
                raise LevelheadError(f"the logits of {title} images are not finite: the training has diverged; lower the "
                                 "learning rate")
            found[title] = float((logits.argmax(axis=1) != part.labels).mean())
    return found
