"""Focal loss: samples the network is already sure of count less.

Changes: loss.
Formula: ``(1 - p_y)^focus (-log p_y)``, p = softmax(logits). focus = 0 is cross entropy.
Knobs: focus = 1.0, as in the CIFAR experiments of Cao et al., 2019. Lin et al. use 2 for detection;
    Cui et al. choose from 0.5, 1 and 2 for each set.
Caveats: it does not read counts: what it finds hard need not be rare. Lin and Cui apply it to one
    sigmoid per class; this is the softmax form, as Cao's. Its exponent is often called gamma; here
    gamma is the exponent of RS alone.
Reference: Lin et al., Focal Loss for Dense Object Detection, 2017.
"""

from dataclasses import dataclass

from levelhead.core.counts import Counts
from levelhead.support.errors import LevelheadError

from .method import Loss, Method, Tensor, cross_entropy


@dataclass(frozen=True)
class FocalLoss:
    """``(1 - p_y)^focus (-log p_y)``: one value per sample.

    Raises:
        LevelheadError: if `focus` is negative or NaN.
    """

    focus: float  # 0 is cross entropy; the larger, the less a sure sample counts

    def __post_init__(self) -> None:
        if not self.focus >= 0:
            raise LevelheadError(
                f"expected a number of at least 0, got {self.focus}", parameter="focus"
            )

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        entropy = cross_entropy(logits, labels)
        doubt = -(-entropy).expm1()  # 1 - p_y, exact near 0
        # For focus below 1 the power has infinite slope at 0, which would be 0 * inf in the
        # gradient. Below 1e-30 the loss is 0 in float32 anyway.
        return doubt.clamp_min(1e-30) ** self.focus * entropy


def focal_loss(counts: Counts = None, progress: float = 0.0, *, focus: float = 1.0) -> Loss:
    """Reduce cross entropy where the network is sure.

    Args:
        counts: not used; there, as every loss is made of counts and progress.
        progress: not used.
        focus: the exponent, at least 0.

    >>> import torch
    >>> even = torch.zeros(1, 2), torch.tensor([0])  # p_y = 1/2, so that (1 - p_y)^2 = 1/4
    >>> float(focal_loss(focus=2.0)(*even) / focal_loss(focus=0.0)(*even))
    0.25
    """
    return FocalLoss(focus)


METHOD = Method("focal", "Focal loss", focal_loss, card=__doc__)
