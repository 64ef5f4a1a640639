"""What a trained network makes of a data set: its features, its snapshot, and its errors on the evaluation splits."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from levelhead.choice.snapshot import Snapshot
from levelhead.core.errors import LevelheadError

from .data import Data, Split
from .nets import Net, head_inputs, head_of
from .preprocess import Preprocess


@torch.no_grad()
def features(net: Net, split: Split, preprocess: Preprocess, *, batch: int = 512) -> np.ndarray:
    """Return what the head multiplies, [N, d], with the network in evaluation mode."""
    net.eval()
    device = next(net.parameters()).device
    parts = [
        head_inputs(net, preprocess.standardized(torch.from_numpy(split.images[at : at + batch]).to(device)))
        for at in range(0, len(split), batch)
    ]
    return torch.cat(parts).float().cpu().numpy()


def snapshot(
    net: Net, data: Data, preprocess: Preprocess, *, meta: dict[str, Any] | None = None, half: bool = False
) -> Snapshot:
    """Return the head, the counts, and the features and labels of every split; `half` stores features as float16."""
    kept = {name: features(net, part, preprocess) for name, part in data.splits.items()}
    return Snapshot(
        head=replace(head_of(net).numpy(), names=data.names),
        counts=data.counts,
        meta=meta or {},
        features={name: x.astype(np.float16) if half else x for name, x in kept.items()},
        labels={name: part.labels for name, part in data.splits.items()},
    )


def errors(net: Net, data: Data, preprocess: Preprocess) -> dict[str, float]:
    """Return the share of wrong predictions on every split but the training split."""
    head, found = head_of(net).numpy(), {}
    for name, part in data.splits.items():
        if name != "train":
            with np.errstate(over="ignore", invalid="ignore"):
                logits = head.logits(features(net, part, preprocess))
            if not np.isfinite(logits).all():  # after the last step of an epoch, which no loss has seen
                raise LevelheadError(
                    f"the logits of {name} images are not finite: the training has diverged; lower the learning rate"
                )
            found[name] = float((logits.argmax(axis=1) != part.labels).mean())
    return found
