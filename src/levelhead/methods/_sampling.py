"""Class-wise sampling: a given number of samples of each class, drawn evenly within the class."""

import numpy as np

from ..core.counts import check_labels
from ..core.errors import LevelheadError


def indices_per_class(labels: np.ndarray) -> list[np.ndarray]:
    """Return the sample indices of each class that has any, in class order."""
    labels = check_labels(labels)
    if not len(labels):
        raise LevelheadError("expected at least one label to sample from, got none", parameter="labels")
    ends = np.cumsum(np.bincount(labels))[:-1]
    return [indices for indices in np.split(np.argsort(labels, kind="stable"), ends) if len(indices)]


def draw_per_class(members: list[np.ndarray], sizes: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw sizes[i] of members[i], shuffled together.

    Within a class no sample is drawn k + 1 times before every other is drawn k times. If a class is drawn at its own
    size, each of its samples comes exactly once; if all are, the draw is a plain shuffle.
    """
    chosen = []
    for indices, size in zip(members, sizes.tolist(), strict=True):
        rounds, rest = divmod(size, len(indices))
        chosen += [np.tile(indices, rounds), generator.choice(indices, rest, replace=False)]
    return generator.permutation(np.concatenate(chosen))
