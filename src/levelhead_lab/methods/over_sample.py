"""Over-sampling: rare classes are repeated until every class is seen equally often.

Changes: sample.
Formula: an epoch has N / K samples of each class (the remainder goes to random classes), where N is
    the number of training samples. How often two samples of one class are drawn differs by at most
    one.
Knobs: epoch = "same" (N samples, so that every method takes the same number of steps; the paper
    does not say), or "largest" (K n_1 samples: every class is repeated up to the size of the
    largest, and no sample is left out), which is the method over-sample-largest.
Caveats: samples of rare classes are repeated often and memorized. With epoch = "same", samples of
    frequent classes wait several epochs for their turn.
Reference: Buda et al., A Systematic Study of the Class Imbalance Problem in Convolutional Neural
    Networks, 2018.
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
    """Draw every class equally often.

    Args:
        labels: [N], of the training set.
        generator: everything random comes from it.
        progress: not used.
        epoch: `same` draws N samples, `largest` K n_1; see the card.

    Returns:
        Indices into labels, shuffled.

    >>> labels = np.array([0] * 6 + [1] * 2)
    >>> np.bincount(labels[over_sample(labels, np.random.default_rng(0))])
    array([4, 4])
    """
    check_choice("epoch", epoch, ("same", "largest"))
    members = indices_per_class(labels)
    if epoch == "largest":
        return draw_per_class(members, np.full(len(members), max(map(len, members))), generator)
    return draw_per_class(members, equal_sizes(labels, members, generator), generator)


def over_sample_to_largest(
    labels: np.ndarray, generator: np.random.Generator, progress: float = 0.0
) -> np.ndarray:
    """Draw every class as often as the largest has samples.

    A function of its own, not a `partial`, so that its docstring says in tables what it does.
    """
    return over_sample(labels, generator, progress, epoch="largest")


def indices_per_class(labels: np.ndarray) -> list[np.ndarray]:
    """Return the sample indices of each class that has any, in class order.

    Classes without samples are left out, so that nobody divides by their size.

    Args:
        labels: [N], class indices.

    Raises:
        LevelheadError: if there is no label at all, or labels are no class indices.

    >>> indices_per_class(np.array([2, 0, 2]))
    [array([1]), array([0, 2])]
    """
    labels = check_labels(labels)
    if not len(labels):
        raise LevelheadError(
            "expected at least one label to sample from, got none", parameter="labels"
        )
    # Sorted by class, and in file order within one: cut where the next class begins.
    ends = np.cumsum(np.bincount(labels))[:-1]
    by_class = np.split(np.argsort(labels, kind="stable"), ends)
    return [indices for indices in by_class if len(indices)]


def equal_sizes(
    labels: np.ndarray, members: list[np.ndarray], generator: np.random.Generator
) -> np.ndarray:
    """Return how many of each class are N in all: equally many, and one more of random classes.

    Args:
        labels: [N].
        members: indices of each class, as of `indices_per_class`.
        generator: says which classes get one more, where K does not divide N.

    >>> labels = np.array([0, 0, 0, 0, 1])
    >>> sorted(equal_sizes(labels, indices_per_class(labels), np.random.default_rng(0)).tolist())
    [2, 3]
    """
    size, rest = divmod(len(labels), len(members))
    # A random order of the classes: those at its first `rest` places get one more.
    return size + (generator.permutation(len(members)) < rest)


def draw_per_class(
    members: list[np.ndarray], sizes: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Draw sizes[i] of members[i], shuffled together.

    No sample is drawn k + 1 times before all others of its class are drawn k times: where a class
    is repeated, every sample of it is used. Independent draws would leave a third of them out.

    Args:
        members: indices of each class.
        sizes: [K], how many to draw of each; more than it has, or fewer.
        generator: everything random comes from it.

    >>> drawn = draw_per_class([np.array([0, 1, 2]), np.array([3])], np.array([2, 2]), np.random.default_rng(0))
    >>> drawn.tolist().count(3), len(set(drawn.tolist()))
    (2, 3)
    """
    chosen = []
    for indices, size in zip(members, sizes.tolist(), strict=True):
        rounds, rest = divmod(size, len(indices))  # whole passes over the class, and a part of one
        chosen += [np.tile(indices, rounds), generator.choice(indices, rest, replace=False)]
    return generator.permutation(np.concatenate(chosen))


METHOD = Method("over-sample", "Over-sample", baseline_loss, sample=over_sample, card=__doc__)
LARGEST = replace(
    METHOD,
    name="over-sample-largest",
    title="Over-sample to the largest",
    sample=over_sample_to_largest,
)
