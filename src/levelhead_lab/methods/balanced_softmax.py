"""Balanced softmax, the logit-adjusted loss: a class must win by a margin that grows with how frequent the others are.

Changes: loss.
Formula: ``-log softmax(logits + tau log(n_i / n_1))_y``. Training sees logits with the log prior
    added; prediction uses the logits alone. Dividing by n_1 changes no probability and makes the
    shift 0 on a balanced set.
Knobs: tau = 1, the value for which the balanced error is minimized in the limit (Menon et al.,
    theorem 1).
Caveats: the trained weights already contain the adjustment: do not shift the logits again after
    training.
Reference: Ren et al., Balanced Meta-Softmax for Long-Tailed Visual Recognition, 2020; Menon et al.,
    Long-tail Learning via Logit Adjustment, 2021.
"""

from dataclasses import dataclass

import numpy as np

from levelhead.core.counts import Counts, resolve

from .method import ClassConstant, Method, Tensor, cross_entropy


@dataclass(frozen=True, eq=False)
class ShiftedCrossEntropy:
    """Cross entropy of logits with a constant added for each class: one value per sample."""

    shift: ClassConstant  # [K], added to the logits

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(logits + self.shift.like(logits), labels)


def balanced_softmax_loss(
    counts: Counts, progress: float = 0.0, *, tau: float = 1.0
) -> ShiftedCrossEntropy:
    """Add log counts to the logits in cross entropy.

    Args:
        counts: [K], all positive.
        progress: not used.
        tau: strength of the shift; 0 is plain cross entropy.

    >>> balanced_softmax_loss([100, 10]).shift.values.round(3)
    array([ 0.   , -2.303])
    """
    n = resolve(counts)
    return ShiftedCrossEntropy(ClassConstant(tau * np.log(n / n.max())))


METHOD = Method("balanced-softmax", "Balanced softmax", balanced_softmax_loss, card=__doc__)
