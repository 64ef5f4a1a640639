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

from dataclasses import replace
from typing import Literal

import numpy as np

from levelhead.core.counts import check_labels
from levelhead.support.errors import LevelheadError, check_choice

from .baseline import baseline_loss
from .method import Method


def over_sample(
    labels: np.ndarray,
    generator: np.random.Generator,
    progress: float = 0.0,
    *,
    epoch: Literal["same", "largest"] = "same",
) -> np.ndarray:
    """Draw every class equally often."""
    check_choice("epoch", epoch, ("same", "largest"))
    members = indices_per_class(labels)
    if epoch == "largest":
        return draw_per_class(members, np.full(len(members), max(map(len, members))), generator)
    return draw_per_class(members, equal_sizes(labels, members, generator), generator)


def over_sample_to_largest(
    labels: np.ndarray, generator: np.random.Generator, progress: float = 0.0
) -> np.ndarray:
    """Draw every class as often as the largest has samples."""
    return over_sample(labels, generator, progress, epoch="largest")


def indices_per_class(labels: np.ndarray) -> list[np.ndarray]:
    """Return the sample indices of each class that has any, in class order."""
    labels = check_labels(labels)
    if not len(labels):
        raise LevelheadError(
            "expected at least one label to sample from, got none", parameter="labels"
        )
    ends = np.cumsum(np.bincount(labels))[:-1]
    return [
        indices for indices in np.split(np.argsort(labels, kind="stable"), ends) if len(indices)
    ]


def equal_sizes(
    labels: np.ndarray, members: list[np.ndarray], generator: np.random.Generator
) -> np.ndarray:
    """Return how many of each class are N in all: equally many, and one more of random classes."""
    each, rest = divmod(len(labels), len(members))
    return each + (generator.permutation(len(members)) < rest)


def draw_per_class(
    members: list[np.ndarray], sizes: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw sizes[i] of members[i], shuffled together; none k + 1 times before all others of its class k times."""
    chosen = []
    for indices, size in zip(members, sizes.tolist(), strict=True):
        rounds, rest = divmod(size, len(indices))
        chosen += [np.tile(indices, rounds), generator.choice(indices, rest, replace=False)]
    return generator.permutation(np.concatenate(chosen))


METHOD = Method("over-sample", "Over-sample", baseline_loss, sample=over_sample, card=__doc__)
LARGEST = replace(
    METHOD,
    name="over-sample-largest",
    title="Over-sample to the largest",
    sample=over_sample_to_largest,
)
