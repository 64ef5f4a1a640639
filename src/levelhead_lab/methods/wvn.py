"""WVN, weight vector normalization: every weight vector has unit length throughout training.

Changes: project.
Formula: after every optimizer step ``w_i <- w_i / ||w_i||`` (Algorithm 1). `wvn-released` does it
    before the step, between backward and update, as the authors' released code does by a backward
    hook.
Knobs: none.
Caveats: logits are bounded by the feature's length, so features grow instead. Under `wvn-released`
    weights are one step off unit length whenever they are used, at evaluation too. WVN alone does
    not favor rare classes; what it gives is a head on which RS depends on counts alone, and a flat
    optimum over gamma.
Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020, Algorithm
    1.
"""

from dataclasses import replace

from levelhead.core.head import Head, unit

from .baseline import baseline_loss
from .method import Method


def project_to_unit_length(head: Head) -> Head:
    """Scale weight vectors to unit length.

    Args:
        head: weight [K, d], of numpy or torch; a bias stays as it is.

    >>> import numpy as np
    >>> project_to_unit_length(Head(np.array([[3.0, 4.0], [0.0, 2.0]]))).weight
    array([[0.6, 0.8],
           [0. , 1. ]])
    """
    # Inside a training step: unchecked, and no wait for the device.
    return replace(head, weight=unit(head.weight))


METHOD = Method("wvn", "WVN", baseline_loss, project=project_to_unit_length, card=__doc__)
WVN_RELEASED = replace(METHOD, name="wvn-released", title="WVN (released code)", order="before")
