"""Under-sampling: only as many samples of each class as the rarest has.

Changes: sample.
Formula: an epoch has n_min samples of each class, drawn anew every epoch, K n_min in all.
Knobs: draw = "anew" (every epoch has other samples of the frequent classes) or "once" (the same K
    n_min samples in all epochs, which is the method under-sample-once); epoch = "smallest" (K n_min
    samples), or "same" (N samples, so that every method takes the same number of steps: the method
    under-sample-long, where draw = "once").
Caveats: an epoch has only ``K n_min / N`` of the samples, so a training of the same number of
    epochs takes far fewer steps: at ratio 100 on CIFAR-10, 500 samples per epoch instead of 12,406.
    In as many steps as the others take, under-sample-long wins back less than half of what
    under-sample-once loses in Table 1.
Reference: Buda et al., A Systematic Study of the Class Imbalance Problem in Convolutional Neural
    Networks, 2018.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from levelhead.support.errors import check_choice

from .baseline import baseline_loss
from .method import Method
from .over_sample import draw_per_class, equal_sizes, indices_per_class


def under_sample(
    labels: np.ndarray,
    generator: np.random.Generator,
    progress: float = 0.0,
    *,
    draw: Literal["anew", "once"] = "anew",
    epoch: Literal["smallest", "same"] = "smallest",
) -> np.ndarray:
    """Draw as many of each class as the rarest has.

    Args:
        labels: [N], of the training set.
        generator: everything random comes from it, except which samples `draw = "once"` keeps.
        progress: not used.
        draw: whether every epoch has other samples of the frequent classes.
        epoch: `smallest` draws K n_min samples, `same` N; see the card.

    Returns:
        Indices into labels, shuffled.

    >>> labels = np.array([0] * 6 + [1] * 2)
    >>> np.bincount(labels[under_sample(labels, np.random.default_rng(0))])
    array([2, 2])
    """
    check_choice("draw", draw, ("anew", "once"))
    check_choice("epoch", epoch, ("smallest", "same"))
    members = indices_per_class(labels)
    sizes = np.full(len(members), min(map(len, members)))
    if draw == "once":  # by the labels alone, so the same in every epoch of every run
        kept = draw_per_class(members, sizes, np.random.default_rng(0))
        members = [kept[labels[kept] == label] for label in np.unique(labels)]
    if epoch == "same":
        sizes = equal_sizes(labels, members, generator)
    return draw_per_class(members, sizes, generator)


def under_sample_once(
    labels: np.ndarray, generator: np.random.Generator, progress: float = 0.0
) -> np.ndarray:
    """Draw the same samples in every epoch."""
    return under_sample(labels, generator, progress, draw="once")


def under_sample_long(
    labels: np.ndarray, generator: np.random.Generator, progress: float = 0.0
) -> np.ndarray:
    """Draw the same samples in every epoch, again and again until there are N."""
    return under_sample(labels, generator, progress, draw="once", epoch="same")


METHOD = Method("under-sample", "Under-sample", baseline_loss, sample=under_sample, card=__doc__)
ONCE = replace(
    METHOD, name="under-sample-once", title="Under-sample, drawn once", sample=under_sample_once
)
LONG = replace(
    ONCE,
    name="under-sample-long",
    title="Under-sample, drawn once, long epochs",
    sample=under_sample_long,
)
