"""Tau-normalization: after plain training, each weight vector is divided by a power of its own length.

Changes: adjust; the training is the baseline's.
Formula: ``w_i <- w_i / ||w_i||^tau``.
Knobs: tau, chosen on held-out data; 0 changes nothing, 1 gives unit length.
Caveats: reads lengths, not counts: it works as far as lengths follow counts, which under Adam they need not.
Reference: Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, 2020.
"""

from __future__ import annotations

import numpy as np

from ..core.adjust import tau_normalize
from ..core.head import Head
from . import baseline
from .method import Method


def adjust(head: Head, counts: np.ndarray, tau: float) -> Head:
    """Weight vectors divided by their length^tau."""
    return tau_normalize(head, tau)


METHOD = Method("tau-norm", "tau-norm", baseline.loss, adjust=adjust, trained_as="baseline", card=__doc__)
