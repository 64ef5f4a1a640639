"""WVN, weight vector normalization: every weight vector has unit length all through training.

Changes: project.
Formula: after every optimizer step ``w_i <- w_i / ||w_i||`` (Algorithm 1). `wvn-released` does it before the step,
    between backward and update, as the authors' released code does by a backward hook.
Knobs: none.
Caveats: logits are bounded by the feature's length, so features grow instead. Under `wvn-released` weights are one step
    off unit length whenever they are used, at evaluation too. WVN alone does not favor rare classes; what it gives is a
    head on which RS depends on counts alone, and a flat optimum over gamma.
Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.adjust import unit
from ..core.head import Head
from . import baseline
from .method import Method


def project(head: Head) -> Head:
    """Weight vectors to unit length.

    For inside a training step: nothing is checked, and a head on a device is not waited for.

    >>> import numpy as np
    >>> project(Head(np.array([[3.0, 4.0], [0.0, 2.0]]))).norms
    array([1., 1.])
    """
    return replace(head, weight=unit(head.weight))


METHOD = Method("wvn", "WVN", baseline.loss, project=project, card=__doc__)
RELEASED = Method("wvn-released", "WVN (released code)", baseline.loss, project=project, order="before", card=__doc__)
