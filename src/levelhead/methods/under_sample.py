"""Under-sampling: only as many of each class as the rarest has.

Changes: sample.
Formula: an epoch has n_min samples of each class, drawn anew every epoch, K n_min in all.
Knobs: none.
Caveats: an epoch is shorter by ``K n_min / N``, so a training of the same number of epochs takes far fewer steps: at
    ratio 100 on CIFAR-10 500 samples an epoch instead of 12,406. Much of what it loses in Table 1 is lost there.
Reference: Buda et al., A Systematic Study of the Class Imbalance Problem in Convolutional Neural Networks, 2018.
"""

from __future__ import annotations

import numpy as np

from . import baseline
from ._sampling import draw, members_of
from .method import Method


def sample(labels: np.ndarray, generator: np.random.Generator, progress: float = 0.0) -> np.ndarray:
    """As many of each class as the rarest has, drawn anew.

    >>> labels = np.array([0, 0, 0, 0, 0, 1, 1])
    >>> np.bincount(labels[sample(labels, np.random.default_rng(0))])
    array([2, 2])
    """
    members = members_of(labels)
    return draw(members, np.full(len(members), min(map(len, members))), generator)


METHOD = Method("under-sample", "Under-sample", baseline.loss, sample=sample, card=__doc__)
