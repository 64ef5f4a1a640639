"""How the samplers draw: so many of each class, each sample as often as any other of its class."""

from __future__ import annotations

import numpy as np

from ..core.counts import check_labels
from ..core.errors import LevelheadError


def members_of(labels: np.ndarray) -> list[np.ndarray]:
    """Indices of each class that has any, in class order."""
    labels = check_labels(labels)
    if not len(labels):
        raise LevelheadError("expected labels to sample from, got none")
    counts = np.bincount(labels)
    return [some for some in np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1]) if len(some)]


def draw(members: list[np.ndarray], wanted: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """wanted[i] of members[i], shuffled together.

    Within a class no sample is drawn k + 1 times before every other is drawn k times: with as many wanted as there are,
    each comes exactly once, and the draw is a plain shuffle.
    """
    chosen = []
    for some, size in zip(members, wanted.tolist(), strict=True):
        rounds, rest = divmod(size, len(some))
        chosen += [np.tile(some, rounds), generator.choice(some, rest, replace=False)]
    return generator.permutation(np.concatenate(chosen))
