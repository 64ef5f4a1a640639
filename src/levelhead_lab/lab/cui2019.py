"""The losses of Cui et al., 2019, as their code has them: softmax, sigmoid and sigmoid focal, class-balanced or not.

A sigmoid loss is summed over the classes. The head begins with ``log 1/(K-1)`` as its bias, so that every class is rare
at first (recipe `cui2019-sigmoid`). Class weights have mean 1 over the classes, and a batch's loss is the plain mean.

Reference: Cui et al., Class-Balanced Loss Based on Effective Number of Samples, 2019, and its released code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from levelhead.core.counts import Counts

from ..methods.class_balanced import class_balanced_weights
from ..methods.method import (
    ClassConstant,
    Loss,
    Method,
    WeightedLoss,
    check_label_shape,
    cross_entropy,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SigmoidLoss:
    """``sum_k (1 - p_k)^focus (-log p_k)``, p_k the probability that the sigmoid of class k gives the truth."""

    focus: float = 0.0

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        import torch.nn.functional as F  # the demo knows the names of methods without torch

        check_label_shape(logits, labels)
        if logits.dtype.itemsize >= 4:
            wide = logits
        else:
            wide = logits.float()
        margin = wide * (2 * F.one_hot(labels, wide.shape[-1]) - 1)
        return (F.softplus(-margin) * (-self.focus * F.softplus(margin)).exp()).sum(-1)


@dataclass(frozen=True)
class CuiLoss:
    """Softmax (focus None), sigmoid (0) or sigmoid focal, weighted by effective numbers unless beta is None."""

    focus: float | None
    beta: float | None

    def __call__(self, counts: Counts = None, progress: float = 0.0) -> Loss:
        loss = cross_entropy
        if self.focus is not None:
            loss = SigmoidLoss(self.focus)
        if self.beta is None:
            return loss
        return WeightedLoss(ClassConstant(class_balanced_weights(counts, self.beta)), loss)


_LOSSES = {"softmax": None, "sigmoid": 0.0, "focal-0.5": 0.5, "focal-1": 1.0, "focal-2": 2.0}
CUI_METHODS = {  # such as `cui-focal-0.5` and, class-balanced, `cui-focal-0.5-0.999`
    name: Method(name, f"Cui et al., {name[4:]}", CuiLoss(focus, beta), card=__doc__)
    for loss, focus in _LOSSES.items()
    for beta in (None, 0.9, 0.99, 0.999, 0.9999)
    for name in [f"cui-{loss}{'' if beta is None else f'-{beta:g}'}"]
}
