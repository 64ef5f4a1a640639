"""Class-balanced loss: a class weighs by its effective number of samples, in which later ones count less.

Changes: loss.
Formula: ``w_y loss(logits, y)`` with ``w_i`` in proportion to ``1 / E_i``, their mean over the classes 1, and
    ``E_i = (1 - beta^n_i) / (1 - beta)``.  beta = 0 weighs all classes alike; beta -> 1 is inverse frequency.
    `class-balanced` weighs cross entropy, `class-balanced-focal` the focal loss.
Knobs: beta = 0.9999, which Cui et al. find best on CIFAR-10 (smaller on CIFAR-100) and Cao et al., 2019, use for both;
    focus = 1.0 (see `focal`).
Caveats: with beta = 0.9999 and at most 500 samples a class (CIFAR-100), ``E_i`` is within 3 % of n_i: there it is
    inverse frequency in all but name. The weights multiply the focal loss from outside; code that passes them into the
    cross entropy first computes ``exp(-w ce)``, which is no probability, and trains something else.
Reference: Cui et al., Class-Balanced Loss Based on Effective Number of Samples, 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core.counts import Counts, resolve
from ..core.errors import LevelheadError
from ._loss import Constant, Weighted, mean_one
from .focal import Focal
from .method import Method

if TYPE_CHECKING:
    from .method import Loss


def effective_number(counts: Counts, beta: float = 0.9999) -> np.ndarray:
    """``E_i = (1 - beta^n_i) / (1 - beta)``, [K].

    >>> effective_number([1, 2, 10**9], 0.9)
    array([ 1. ,  1.9, 10. ])
    """
    if not 0 <= beta < 1:
        raise LevelheadError(f"expected beta from 0 to below 1, got {beta}")
    return (1 - beta ** resolve(counts)) / (1 - beta)


def weights(counts: Counts, beta: float = 0.9999) -> np.ndarray:
    """``1 / E_i`` with mean 1, [K]."""
    return mean_one(1 / effective_number(counts, beta))


def loss(counts: Counts, progress: float = 0.0, *, beta: float = 0.9999) -> Loss:
    """Cross entropy over the class's effective number."""
    return Weighted(Constant(weights(counts, beta)))


def focal_loss(counts: Counts, progress: float = 0.0, *, beta: float = 0.9999, focus: float = 1.0) -> Loss:
    """Focal loss over the class's effective number."""
    return Weighted(Constant(weights(counts, beta)), Focal(focus))


METHOD = Method("class-balanced", "CB", loss, card=__doc__)
FOCAL = Method("class-balanced-focal", "CB Focal", focal_loss, card=__doc__)
