"""Baseline: plain training.

Changes: nothing. Every sample comes once per epoch, in random order.
Formula: the mean over the batch of ``-log p_y``, p = softmax(logits).
Knobs: none.
Caveats: the norm of a class's weight vector grows with its count, which moves decision boundaries
    toward rare classes (the paper's finding); Baseline+RS undoes this after training.
Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020, Table 1.
"""

from levelhead.core.counts import Counts

from .method import Loss, Method, cross_entropy


def baseline_loss(counts: Counts = None, progress: float = 0.0) -> Loss:
    """Use cross entropy, whatever the counts.

    By this function methods that do not touch the loss are known: `table.changes` compares it.
    """
    return cross_entropy


METHOD = Method("baseline", "Baseline", baseline_loss, card=__doc__)
