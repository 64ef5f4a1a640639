"""Re-weighting: a sample counts by how rare its class is.

Changes: loss.
Formula: ``w_y (-log p_y)`` with ``w_i`` in proportion to ``1 / n_i``, their mean over the classes 1.
Knobs: none.
Caveats: a batch's loss is the plain mean of its values. `torch.nn.CrossEntropyLoss(weight=...)` divides by the batch's
    total weight instead, which makes steps with no rare sample larger. At high ratios the few heavy samples make
    gradients noisy: Table 1 has it behind the baseline.
Reference: Huang et al., Learning Deep Representation for Imbalanced Classification, 2016.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.counts import Counts, resolve
from ._loss import Constant, Weighted, mean_one
from .method import Method

if TYPE_CHECKING:
    from .method import Loss


def loss(counts: Counts, progress: float = 0.0) -> Loss:
    """Cross entropy times inverse class frequency.

    >>> import torch
    >>> loss([300, 100])(torch.zeros(2, 2), torch.tensor([0, 1])) / torch.tensor(2.0).log()
    tensor([0.5000, 1.5000])
    """
    return Weighted(Constant(mean_one(1 / resolve(counts))))


METHOD = Method("re-weighting", "Re-weighting", loss, card=__doc__)
