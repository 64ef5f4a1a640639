"""Class-balanced loss: a class is weighted by its effective number of samples, to which each new one adds less.

Changes: loss.
Formula: ``w_y loss(logits, y)`` with ``w_i`` in proportion to ``1 / E_i``, scaled to a mean of 1
    over the classes, and ``E_i = (1 - beta^n_i) / (1 - beta)``. beta = 0 weights all classes alike;
    beta -> 1 is inverse frequency. `class-balanced` weights cross entropy, `class-balanced-focal`
    the focal loss.
Knobs: beta = 0.9999, which Cui et al. find best on CIFAR-10 (smaller on CIFAR-100) and Cao et al.,
    2019, use for both; focus = 1.0 (see `focal`).
Caveats: with beta = 0.9999 and at most 500 samples per class (CIFAR-100), ``E_i`` is within 3 % of
    n_i: there it is inverse frequency in all but name. The weights multiply the focal loss from
    outside; code that passes them into the cross entropy first computes ``exp(-w ce)``, which is
    not a probability, and trains something else.
Reference: Cui et al., Class-Balanced Loss Based on Effective Number of Samples, 2019.
"""

import numpy as np

from levelhead.core.counts import Counts, resolve
from levelhead.support.errors import LevelheadError

from .focal import FocalLoss
from .method import ClassConstant, Loss, Method, WeightedLoss, scale_to_mean_one


def effective_number(counts: Counts, beta: float = 0.9999) -> np.ndarray:
    """Return ``E_i = (1 - beta^n_i) / (1 - beta)``, [K].

    The sum ``1 + beta + ... + beta^(n_i - 1)``: the j-th sample adds ``beta^(j - 1)``, how
    likely it is that it shows something new. So it is 1 for a single sample, and near
    ``1 / (1 - beta)`` for very many.

    Args:
        counts: [K], all positive.
        beta: from 0 (any number of samples counts as one) to below 1 (they all count).

    Raises:
        LevelheadError: if beta is outside of [0, 1).

    >>> effective_number([1, 2, 1000], beta=0.9)
    array([ 1. ,  1.9, 10. ])
    """
    if not 0 <= beta < 1:
        raise LevelheadError(f"expected a number from 0 to below 1, got {beta}", parameter="beta")
    return (1 - beta ** resolve(counts)) / (1 - beta)


def class_balanced_weights(counts: Counts, beta: float = 0.9999) -> np.ndarray:
    """Return ``1 / E_i`` scaled to a mean of 1, [K]; LDAM-DRW has the same ones.

    >>> class_balanced_weights([2, 1], beta=0.5).round(3)
    array([0.8, 1.2])
    """
    return scale_to_mean_one(1 / effective_number(counts, beta))


def class_balanced_loss(counts: Counts, progress: float = 0.0, *, beta: float = 0.9999) -> Loss:
    """Divide cross entropy by the class's effective number.

    Args:
        counts: [K], all positive.
        progress: not used.
        beta: see `effective_number`.
    """
    return WeightedLoss(ClassConstant(class_balanced_weights(counts, beta)))


def class_balanced_focal_loss(
    counts: Counts, progress: float = 0.0, *, beta: float = 0.9999, focus: float = 1.0
) -> Loss:
    """Divide the focal loss by the class's effective number.

    Args:
        counts: [K], all positive.
        progress: not used.
        beta: see `effective_number`.
        focus: see `focal.FocalLoss`.
    """
    return WeightedLoss(ClassConstant(class_balanced_weights(counts, beta)), FocalLoss(focus))


METHOD = Method("class-balanced", "CB", class_balanced_loss, card=__doc__)
FOCAL = Method("class-balanced-focal", "CB Focal", class_balanced_focal_loss, card=__doc__)
