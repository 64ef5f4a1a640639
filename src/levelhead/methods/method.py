"""A method, as a record of what it does at the only points of a training where anything can be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..head import Head

if TYPE_CHECKING:
    import torch

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # logits [B, K], labels [B] -> one value per sample [B]


@dataclass(frozen=True)
class Method:
    """One row of Table 1.

    Args:
        name: how the command line calls it.
        title: how a table writes it.
        loss: (counts [K], progress) -> a loss of logits [B, K] and labels [B], one value per sample. Progress is the
            share of the training that is over, from 0 to 1, and may only matter at one of `stages`.
        sample: (labels [N], generator, progress) -> an epoch's indices; None is a plain shuffle of all samples.
        project: Head -> Head, at every step; None leaves the head alone.
        order: project `after` the optimizer's step (Algorithm 1) or `before` it (the released code).
        adjust: (Head, counts, strength) -> Head, once, after training. No part of a training's identity.
        head: `linear` (no bias), or `cosine`: unit weight vectors and unit features.
        stages: shares of the training at which loss or sample change.
    """

    name: str
    title: str
    loss: Callable[..., Loss]
    sample: Callable[[np.ndarray, np.random.Generator, float], np.ndarray] | None = None
    project: Callable[[Head], Head] | None = None
    order: Literal["after", "before"] = "after"
    adjust: Callable[[Head, np.ndarray, float], Head] | None = None
    head: Literal["linear", "cosine"] = "linear"
    stages: tuple[float, ...] = ()
