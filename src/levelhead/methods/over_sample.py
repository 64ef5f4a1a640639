"""Over-sampling: rare classes are repeated until every class is seen equally often.

Changes: sample.
Formula: an epoch has N / K samples of each class (the remainder goes to random classes), where N is the number of
    training samples. How often two samples of one class are drawn differs by at most one.
Knobs: epoch = "same" (N samples, so that every method takes the same number of steps; the paper does not say), or
    "largest" (K n_1 samples: every class is repeated up to the size of the largest, and no sample is left out), which
    is the method over-sample-largest.
Caveats: samples of rare classes are repeated often and memorized. With epoch = "same", samples of frequent classes wait
    several epochs for their turn.
Reference: Buda et al., A Systematic Study of the Class Imbalance Problem in Convolutional Neural Networks, 2018.
"""

from typing import Literal

import numpy as np

from ..core.errors import check_choice
from ._sampling import draw_per_class, indices_per_class
from .baseline import baseline_loss
from .method import Method


def over_sample(
    labels: np.ndarray,
    generator: np.random.Generator,
    progress: float = 0.0,
    *,
    epoch: Literal["same", "largest"] = "same",
) -> np.ndarray:
    """Draw every class equally often.

    >>> labels = np.array([0, 0, 0, 0, 0, 1])
    >>> np.bincount(labels[over_sample(labels, np.random.default_rng(0))])
    array([3, 3])
    >>> np.bincount(labels[over_sample(labels, np.random.default_rng(0), epoch="largest")])
    array([5, 5])
    """
    check_choice("epoch", epoch, ("same", "largest"))
    members = indices_per_class(labels)
    classes = len(members)
    if epoch == "largest":
        sizes = np.full(classes, max(map(len, members)))
    else:
        each, rest = divmod(len(labels), classes)
        sizes = each + (generator.permutation(classes) < rest)
    return draw_per_class(members, sizes, generator)


def over_sample_to_largest(labels: np.ndarray, generator: np.random.Generator, progress: float = 0.0) -> np.ndarray:
    """Draw every class as often as the largest has samples."""
    return over_sample(labels, generator, progress, epoch="largest")


METHOD = Method("over-sample", "Over-sample", baseline_loss, sample=over_sample, card=__doc__)
LARGEST = Method(
    "over-sample-largest", "Over-sample to the largest", baseline_loss, sample=over_sample_to_largest, card=__doc__
)
