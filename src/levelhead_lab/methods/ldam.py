"""LDAM: the rarer a class, the larger the margin by which it must win; and LDAM-DRW, with weights in the last fifth.

Changes: loss; needs a cosine head.
Formula: ``-log softmax(scale (cos - margin_y e_y))_y``, where cos are the cosines of the feature
    with each weight vector, and ``margin_i = C n_i^(-1/4)`` with C such that the largest margin is
    0.5. LDAM-DRW multiplies this by class-balanced weights from progress 0.8 on (see
    `class-balanced`, beta = 0.9999).
Knobs: largest = 0.5, scale = 30, and for LDAM-DRW beta = 0.9999 and start = 160 of 200 epochs: all
    as in the code of Cao et al. for CIFAR.
Caveats: logits are cosines: multiply them by `scale` before reading them as probabilities. The
    reference divides the re-weighted loss by the batch's total weight; this takes the plain mean,
    unless the recipe says otherwise, as `cao2019` does, by which the published numbers were
    trained.
Reference: Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, 2019.
"""

from dataclasses import dataclass

import numpy as np

from levelhead.core.counts import Counts, resolve

from .class_balanced import class_balanced_weights
from .method import (
    ClassConstant,
    Loss,
    Method,
    Tensor,
    WeightedLoss,
    check_label_shape,
    cross_entropy,
    value_at_label,
)

DEFERRED = 0.8  # epoch 160 of 200, where the learning rate of Cao et al. drops first


def ldam_margins(counts: Counts, largest: float = 0.5) -> np.ndarray:
    """Return ``C n_i^(-1/4)``, the largest of them `largest`, [K].

    The exponent is what the trade-off between the margins of two classes comes to (Cao et al.,
    2019, section 3); C is not given by theory, so the rarest class is given the margin `largest`.

    >>> ldam_margins([1600, 100])
    array([0.25, 0.5 ])
    """
    n = resolve(counts)
    # C n_i^(-1/4) with C = largest n_min^(1/4), as one power.
    return largest * (n.min() / n) ** 0.25


@dataclass(frozen=True, eq=False)
class LDAMLoss:
    """Cross entropy of scaled cosines, less the margin of the true class: one value per sample."""

    margins: ClassConstant  # [K], in cosines
    scale: float  # of the cosines: between -1 and 1, a softmax of them could never be sure

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        check_label_shape(logits, labels)
        margins = self.margins.like(logits)
        cosines = logits.to(margins.dtype)
        # cos - margin_y e_y: only the true class of each sample loses its margin.
        of_samples = value_at_label(margins.expand_as(cosines), labels)
        lowered = cosines.scatter_add(-1, labels[..., None], -of_samples[..., None])
        return cross_entropy(self.scale * lowered, labels)


def ldam_loss(
    counts: Counts, progress: float = 0.0, *, largest: float = 0.5, scale: float = 30.0
) -> Loss:
    """Give rarer classes larger margins in cross entropy.

    Args:
        counts: [K], all positive.
        progress: not used.
        largest: margin of the rarest class, in cosines.
        scale: by which cosines are multiplied before the softmax.
    """
    return LDAMLoss(ClassConstant(ldam_margins(counts, largest)), scale)


def ldam_drw_loss(
    counts: Counts,
    progress: float = 0.0,
    *,
    largest: float = 0.5,
    scale: float = 30.0,
    beta: float = 0.9999,
) -> Loss:
    """Divide LDAM by the class's effective number in the last fifth.

    Deferred re-weighting: features are learned from plain LDAM first, and the weights come when the
    learning rate is small. A recipe with `deferred` moves the start to its own first drop.

    Args:
        counts: [K], all positive.
        progress: share of the training that is over; weights begin at 0.8.
        largest, scale: see `ldam_loss`.
        beta: see `class_balanced.effective_number`.
    """
    plain = ldam_loss(counts, largest=largest, scale=scale)
    if progress < DEFERRED:
        return plain
    return WeightedLoss(ClassConstant(class_balanced_weights(counts, beta)), plain)


METHOD = Method("ldam", "LDAM", ldam_loss, head="cosine", card=__doc__)
DRW = Method("ldam-drw", "LDAM-DRW", ldam_drw_loss, head="cosine", stages=(DEFERRED,), card=__doc__)
