"""A method, as a record of what it does at the only points of a training where anything can be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..core.errors import LevelheadError
from ..core.head import Head

if TYPE_CHECKING:
    import torch

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # logits [B, K], labels [B] -> one value per sample [B]

Sample = Callable[[np.ndarray, np.random.Generator, float], np.ndarray]


@dataclass(frozen=True)
class Retrain:
    """A second stage, in which the head alone is trained anew on frozen features.

    When the first stage's last epoch is over, the engine

    1. freezes everything but the head and puts the network in evaluation mode, so that no feature, no BatchNorm
       statistic and no dropout changes any more (augmentation goes on);
    2. draws the head's weights anew, as at the start of the run;
    3. trains ``max(1, round(share * epochs))`` epochs, drawn by `sample`, under `loss`, with a fresh optimizer of the
       recipe's kind over the head's parameters alone, its learning rate falling from the recipe's first value to 0 by
       half a cosine, step by step. Progress counts from 0 to 1 over this stage.

    Args:
        share: epochs of this stage over epochs of the first.
        loss: as in `Method`.
        sample: as in `Method`; None is a plain shuffle.
    """

    share: float
    loss: Callable[..., Loss]
    sample: Sample | None = None

    def __post_init__(self) -> None:
        if not self.share > 0:
            raise LevelheadError(f"expected a positive share of the epochs, got {self.share}")


@dataclass(frozen=True)
class Method:
    """One row of Table 1.

    Args:
        name: how the command line calls it.
        title: how a table writes it.
        loss: (counts [K], progress) -> a loss of logits [B, K] and labels [B], one value per sample. Progress is the
            share of the training that is over, from 0 to 1, and may only matter at one of `stages`. A batch's loss is
            the plain mean of its values.
        sample: (labels [N], generator, progress) -> an epoch's indices; None is a plain shuffle of all samples.
        project: Head -> Head, at every step; None leaves the head alone.
        order: project `after` the optimizer's step (Algorithm 1) or `before` it (the released code).
        adjust: (Head, counts, strength) -> Head, once, after training. No part of a training's identity.
        head: `linear` (no bias), or `cosine`: unit weight vectors and unit features, so that logits are cosines.
        stages: shares of the training at which loss or sample change.
        retrain: a second stage for the head alone; None for one stage.
        trained_as: name of the method whose training this is, where nothing but `adjust` differs.
        card: what a user should know, for `levelhead methods NAME`; a file's own docstring.
    """

    name: str
    title: str
    loss: Callable[..., Loss]
    sample: Sample | None = None
    project: Callable[[Head], Head] | None = None
    order: Literal["after", "before"] = "after"
    adjust: Callable[[Head, np.ndarray, float], Head] | None = None
    head: Literal["linear", "cosine"] = "linear"
    stages: tuple[float, ...] = ()
    retrain: Retrain | None = None
    trained_as: str | None = None
    card: str | None = None

    def __post_init__(self) -> None:
        if self.order not in ("after", "before"):
            raise LevelheadError(f"method {self.name}: expected order='after' or 'before', got {self.order!r}")
        if self.head not in ("linear", "cosine"):
            raise LevelheadError(f"method {self.name}: expected head='linear' or 'cosine', got {self.head!r}")
        if any(not 0 < stage < 1 for stage in self.stages):
            raise LevelheadError(f"method {self.name}: expected stages between 0 and 1, got {self.stages}")
