"""A method: a record of what it does at the only points of a training where anything can be done."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..core.errors import LevelheadError, check_choice
from ..core.head import Head
from ._loss import Loss

Sample = Callable[[np.ndarray, np.random.Generator, float], np.ndarray]


@dataclass(frozen=True)
class Retrain:
    """A second stage, which trains a new head on frozen features.

    Everything but the head is frozen and in evaluation mode (augmentation continues). The head gets new weights, as at
    the start of the run, and is trained for ``max(1, round(share * epochs))`` epochs by a new optimizer of the recipe's
    kind, whose learning rate falls to 0 by half a cosine. Progress counts from 0 to 1 over this stage.

    Args:
        share, loss, sample: epochs of this stage over epochs of the first; as in `Method`.
    """

    share: float
    loss: Callable[..., Loss]
    sample: Sample | None = None

    def __post_init__(self) -> None:
        if not self.share > 0:
            raise LevelheadError(f"expected a positive share of the epochs, got {self.share}", parameter="share")


@dataclass(frozen=True)
class Method:
    """A training method, such as a row of Table 1.

    Args:
        name, title: what the command line and a table call it.
        loss: (counts [K], progress) -> a loss of logits [B, K] and labels [B], one value per sample. Progress is the
            share of the training that is over, from 0 to 1; the loss may only change with it at one of `stages`. The
            loss of a batch is the plain mean of its values.
        sample: (labels [N], generator, progress) -> the indices of an epoch; None is a plain shuffle of all samples.
        project: Head -> Head, at every step; None leaves the head alone.
        order: project `after` the optimizer's step (Algorithm 1) or `before` it (the released code).
        adjust: (Head, counts, strength) -> Head, once, after training. It is not part of a training's identity.
        head: `linear` (without a bias), or `cosine`: unit weight vectors and unit features, so that logits are cosines.
        stages: shares of the training at which `loss` or `sample` change.
        retrain: a second stage for the head alone; None for one stage.
        trained_as: name of the method with the same training, if only `adjust` differs.
        card: what a user should know, for `levelhead methods NAME`; usually the docstring of the method's file.

    >>> from levelhead.methods import METHODS
    >>> mine = Method("mine", "Mine", METHODS["focal"].loss, project=METHODS["wvn"].project)
    >>> mine.order, mine.head
    ('after', 'linear')
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
        check_choice("order", self.order, ("after", "before"))
        check_choice("head", self.head, ("linear", "cosine"))
        if any(not 0 < stage < 1 for stage in self.stages):
            raise LevelheadError(f"expected shares between 0 and 1, got {self.stages}", parameter="stages")
