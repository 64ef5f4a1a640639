"""Balanced softmax, the logit-adjusted loss: a class must win by how much more frequent the others are.

Changes: loss.
Formula: ``-log softmax(logits + tau log(n_i / n_1))_y``: training sees logits with the log prior added, prediction uses
    them without. Adding n_1 changes no probability, and makes the shift 0 on a balanced set.
Knobs: tau = 1, the value for which the balanced error is minimized in the limit (Menon et al., theorem 1).
Caveats: the adjustment is in the network's weights already: do not shift its logits again after training.
Reference: Ren et al., Balanced Meta-Softmax for Long-Tailed Visual Recognition, 2020; Menon et al., Long-tail Learning
    via Logit Adjustment, 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.counts import Counts, resolve
from ._loss import Constant, cross_entropy
from .method import Method

if TYPE_CHECKING:
    import torch

    from .method import Loss


@dataclass(frozen=True, eq=False)
class Shifted:
    """Cross entropy of logits with a constant added for each class: one value per sample."""

    shift: Constant

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(logits + self.shift.like(logits), labels)


def loss(counts: Counts, progress: float = 0.0, *, tau: float = 1.0) -> Loss:
    """Cross entropy of logits plus log counts.

    >>> import torch
    >>> loss([3, 1])(torch.zeros(2, 2), torch.tensor([0, 1])).neg().exp()
    tensor([0.7500, 0.2500])
    """
    n = resolve(counts)
    return Shifted(Constant(tau * np.log(n / n.max())))


METHOD = Method("balanced-softmax", "Balanced softmax", loss, card=__doc__)
