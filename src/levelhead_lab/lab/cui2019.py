"""The losses of Cui et al., 2019, as their code has them: softmax, sigmoid, focal; balanced or not.

A sigmoid loss is summed over the classes. The head begins with ``log 1/(K-1)`` as its bias, so that
every class is rare at first (recipe `cui2019-sigmoid`). Class weights have mean 1 over the classes,
and a batch's loss is the plain mean.

`CUI_METHODS` are 25 methods, every loss with every beta of their search. They are no part of
`METHODS`, because nobody but the reproduction of that paper's rows trains all of them.

Reference: Cui et al., Class-Balanced Loss Based on Effective Number of Samples, 2019, and its
    released code.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
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
    """``sum_k (1 - p_k)^focus (-log p_k)``, one value per sample.

    p_k is the probability that the sigmoid of class k gives the truth: ``sigmoid(l_k)`` of the true
    class, ``1 - sigmoid(l_k)`` of the others. With m = l_k or -l_k, ``-log p_k = softplus(-m)`` and
    ``(1 - p_k)^focus = exp(-focus softplus(m))``: neither overflows, nor takes the log of 0.

    At logits of 0 every sigmoid is 1/2, and the loss is K log 2:

    >>> import torch
    >>> SigmoidLoss()(torch.zeros(1, 4), torch.tensor([2])) / 4
    tensor([0.6931])
    """

    focus: float = 0.0  # 0 is binary cross entropy

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        import torch.nn.functional as F  # the demo knows the names of methods without torch

        check_label_shape(logits, labels)
        if logits.dtype.itemsize >= 4:
            wide = logits
        else:
            wide = logits.float()
        # By how much each class is right, [..., K]: the logit of the true one, minus that of
        # others.
        margin = wide * (2 * F.one_hot(labels, wide.shape[-1]) - 1)
        return (F.softplus(-margin) * (-self.focus * F.softplus(margin)).exp()).sum(-1)


@dataclass(frozen=True)
class CuiLoss:
    """A method's `loss`: one of theirs, weighted by effective numbers or not."""

    focus: float | None  # None is softmax, 0 sigmoid, above it sigmoid focal
    beta: float | None  # None is without class weights; see `methods.class_balanced`

    def __call__(self, counts: Counts = None, progress: float = 0.0) -> Loss:
        loss = cross_entropy
        if self.focus is not None:
            loss = SigmoidLoss(self.focus)
        if self.beta is None:
            return loss
        return WeightedLoss(ClassConstant(class_balanced_weights(counts, self.beta)), loss)


_FOCUS = {"softmax": None, "sigmoid": 0.0, "focal-0.5": 0.5, "focal-1": 1.0, "focal-2": 2.0}
_BETAS = (None, 0.9, 0.99, 0.999, 0.9999)


def _make_methods() -> dict[str, Method]:
    """Return the methods by name: `cui-focal-0.5` and, class-balanced, `cui-focal-0.5-0.999`."""
    methods = {}
    for loss, beta in product(_FOCUS, _BETAS):
        variant = loss
        if beta is not None:
            variant = f"{loss}-{beta:g}"
        name = f"cui-{variant}"
        made_by = CuiLoss(_FOCUS[loss], beta)
        methods[name] = Method(name, f"Cui et al., {variant}", made_by, card=__doc__)
    return methods


CUI_METHODS = _make_methods()
