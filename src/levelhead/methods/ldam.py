"""LDAM: the rarer a class, the larger the margin by which it must win; and LDAM-DRW, with weights in the last fifth.

Changes: loss; needs a cosine head.
Formula: ``-log softmax(scale (cos - margin_y e_y))_y``, cos the cosines of the feature with each weight vector, and
    ``margin_i = C n_i^(-1/4)`` with C such that the largest margin is 0.5. LDAM-DRW: from progress 0.8 on, times
    class-balanced weights (see `class-balanced`, beta = 0.9999).
Knobs: largest = 0.5, scale = 30, and for LDAM-DRW beta = 0.9999 and start = 160 of 200 epochs: all as in the code of
    Cao et al. for CIFAR.
Caveats: logits are cosines: multiply by `scale` before reading them as probabilities. The reference divides the
    re-weighted loss by the batch's total weight, this takes the plain mean. Its published numbers come from another
    recipe (weight decay 2e-4, 200 epochs, warm-up) than the rest of Table 1.
Reference: Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.counts import Counts, resolve
from . import class_balanced
from ._loss import Constant, Weighted, check_labels, cross_entropy, pick
from .method import Method

if TYPE_CHECKING:
    import torch

    from .method import Loss

DEFERRED = 0.8  # epoch 160 of 200


def margins(counts: Counts, largest: float = 0.5) -> np.ndarray:
    """``C n_i^(-1/4)``, the largest of them `largest`, [K].

    >>> margins([10000, 16, 1])
    array([0.05, 0.25, 0.5 ])
    """
    n = resolve(counts)
    return largest * (n.min() / n) ** 0.25


@dataclass(frozen=True, eq=False)
class LDAM:
    """Cross entropy of scaled cosines, the true class's less its margin: one value per sample."""

    margins: Constant
    scale: float

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        check_labels(logits, labels)
        margin = self.margins.like(logits)
        wide = logits.to(margin.dtype)
        less = -pick(margin.expand_as(wide), labels)
        return cross_entropy(self.scale * wide.scatter_add(-1, labels[..., None], less[..., None]), labels)


def loss(counts: Counts, progress: float = 0.0, *, largest: float = 0.5, scale: float = 30.0) -> Loss:
    """Cross entropy with larger margins for rarer classes."""
    return LDAM(Constant(margins(counts, largest)), scale)


def deferred_loss(
    counts: Counts, progress: float = 0.0, *, largest: float = 0.5, scale: float = 30.0, beta: float = 0.9999
) -> Loss:
    """LDAM, over the class's effective number in the last fifth."""
    plain = loss(counts, largest=largest, scale=scale)
    return plain if progress < DEFERRED else Weighted(Constant(class_balanced.weights(counts, beta)), plain)


METHOD = Method("ldam", "LDAM", loss, head="cosine", card=__doc__)
DRW = Method("ldam-drw", "LDAM-DRW", deferred_loss, head="cosine", stages=(DEFERRED,), card=__doc__)
