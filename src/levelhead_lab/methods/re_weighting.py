"""Re-weighting: a sample counts by how rare its class is.

Changes: loss.
Formula: ``w_y (-log p_y)`` with ``w_i`` in proportion to ``1 / n_i``, scaled to a mean of 1 over
    the classes.
Knobs: none.
Caveats: the loss of a batch is the plain mean of its values.
    `torch.nn.CrossEntropyLoss(weight=...)` divides by the batch's total weight instead, which makes
    steps without a rare sample larger; so does a recipe with `weights = "batch"`. At high ratios
    the few heavy samples make gradients noisy: Table 1 has it behind the baseline.
Reference: Huang et al., Learning Deep Representation for Imbalanced Classification, 2016.
"""

from levelhead.core.counts import Counts, resolve

from .method import ClassConstant, Method, WeightedLoss, scale_to_mean_one


def re_weighting_loss(counts: Counts, progress: float = 0.0) -> WeightedLoss:
    """Multiply cross entropy by inverse class frequency.

    Args:
        counts: [K], all positive.
        progress: not used.

    Example: with 9 and 1 samples the weights are 1/9 and 1, scaled to a mean of 1.

    >>> re_weighting_loss([9, 1]).weights.values
    array([0.2, 1.8])
    """
    return WeightedLoss(ClassConstant(scale_to_mean_one(1 / resolve(counts))))


METHOD = Method("re-weighting", "Re-weighting", re_weighting_loss, card=__doc__)
