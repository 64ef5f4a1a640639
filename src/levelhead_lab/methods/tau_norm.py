"""Tau-normalization: after plain training, each weight vector is divided by a power of its own length.

Changes: adjust; the training is the baseline's.
Formula: ``w_i <- w_i / ||w_i||^tau``.
Knobs: tau, chosen on held-out data; 0 changes nothing, 1 gives unit length.
Caveats: it reads lengths, not counts, so it works only as far as lengths follow counts; under Adam
    they need not.
Reference: Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, 2020.
"""

import numpy as np

from levelhead.core.head import Head
from levelhead.core.rules import Tau

from .baseline import baseline_loss
from .method import Method


def tau_normalize_head(head: Head, counts: np.ndarray, tau: float) -> Head:
    """Divide weight vectors by their length^tau.

    Args:
        head: weight [K, d].
        counts: [K], not read: the rule goes by lengths. It is here because every `adjust` gets it.
        tau: strength; 0 changes nothing, 1 gives unit length.

    >>> tau_normalize_head(Head(np.diag([4.0, 1.0])), np.array([9, 1]), 0.5).norms
    array([2., 1.])
    """
    return Tau(tau).on_head(head, counts).head(head)


METHOD = Method(
    "tau-norm",
    "tau-norm",
    baseline_loss,
    adjust=tau_normalize_head,
    trained_as="baseline",
    card=__doc__,
)
