"""Focal loss: samples the network is already sure of count less.

Changes: loss.
Formula: ``(1 - p_y)^focus (-log p_y)``, p = softmax(logits). focus = 0 is cross entropy.
Knobs: focus = 1.0, as in the CIFAR experiments of Cao et al., 2019. Lin et al. use 2 for detection; Cui et al. choose
    from 0.5, 1 and 2 for each set.
Caveats: it reads no counts: what it calls hard need not be rare. Lin and Cui apply it to one sigmoid per class; this is
    the softmax form, as Cao's. Its exponent is often called gamma; here gamma is the exponent of RS alone.
Reference: Lin et al., Focal Loss for Dense Object Detection, 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.counts import Counts
from ..core.errors import LevelheadError
from ._loss import cross_entropy
from .method import Method

if TYPE_CHECKING:
    import torch

    from .method import Loss


@dataclass(frozen=True)
class Focal:
    """``(1 - p_y)^focus (-log p_y)``: one value per sample."""

    focus: float

    def __post_init__(self) -> None:
        if not self.focus >= 0:
            raise LevelheadError(f"expected focus of at least 0, got {self.focus}")

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        entropy = cross_entropy(logits, labels)
        doubt = -(-entropy).expm1()  # 1 - p_y, exact near 0
        # For focus below 1 the power has infinite slope at 0, which would be 0 * inf in the gradient.
        return doubt.clamp_min(1e-30) ** self.focus * entropy


def loss(counts: Counts = None, progress: float = 0.0, *, focus: float = 1.0) -> Loss:
    """Cross entropy, less for samples already sure.

    >>> import torch
    >>> p = torch.tensor([[0.9, 0.1]])
    >>> loss(focus=2.0)(p.log(), torch.tensor([0])) / -p[:, 0].log()
    tensor([0.0100])
    """
    return Focal(focus)


METHOD = Method("focal", "Focal loss", loss, card=__doc__)
