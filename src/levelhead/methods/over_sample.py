"""Over-sampling: rare classes are repeated until every class is seen equally often.

Changes: sample.
Formula: an epoch has N / K samples of each class (the remainder goes to random classes), N all training samples. Within
    a class each sample comes equally often, up to one.
Knobs: epoch = "same" (N samples, so that every method takes the same number of steps; the paper does not say), or
    "largest" (K n_1 samples: every class is repeated up to the size of the largest, and no sample is left out).
Caveats: samples of rare classes come again and again and are learned by heart. With epoch = "same" samples of frequent
    classes wait several epochs for their turn.
Reference: Buda et al., A Systematic Study of the Class Imbalance Problem in Convolutional Neural Networks, 2018.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..core.errors import LevelheadError
from . import baseline
from ._sampling import draw, members_of
from .method import Method


def sample(
    labels: np.ndarray, generator: np.random.Generator, progress: float = 0.0, *,
    epoch: Literal["same", "largest"] = "same",
) -> np.ndarray:
    """Every class equally often.

    >>> labels = np.array([0, 0, 0, 0, 0, 1])
    >>> np.bincount(labels[sample(labels, np.random.default_rng(0))])
    array([3, 3])
    >>> np.bincount(labels[sample(labels, np.random.default_rng(0), epoch="largest")])
    array([5, 5])
    """
    members = members_of(labels)
    classes = len(members)
    if epoch == "largest":
        wanted = np.full(classes, max(map(len, members)))
    elif epoch == "same":
        each, rest = divmod(len(labels), classes)
        wanted = each + (generator.permutation(classes) < rest)
    else:
        raise LevelheadError(f"expected epoch='same' or 'largest', got {epoch!r}")
    return draw(members, wanted, generator)


METHOD = Method("over-sample", "Over-sample", baseline.loss, sample=sample, card=__doc__)
