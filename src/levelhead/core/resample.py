"""Resamples drawn with replacement, and how many there can be.

A resample is not a list of rows but how often each row is in it, [N]: estimators weigh their samples by that, and
no scores are copied. Only `priors.estimate_prior` draws them. The interval of a gain needs none (judge.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..support.errors import LevelheadError


def check_replicates(bootstrap: int) -> None:
    """Raise LevelheadError unless there can be so many replicates.

    Args:
        bootstrap: a whole number, 0 for none. True is refused: it would be one replicate.
    """
    if isinstance(bootstrap, bool) or not isinstance(bootstrap, int | np.integer) or bootstrap < 0:
        raise LevelheadError(
            f"expected a number of replicates, 0 or more, got {bootstrap}", parameter="bootstrap"
        )


def draw_resamples(labels: np.ndarray, n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield n times how often each sample is drawn with replacement, [N]; each class keeps its size.

    Args:
        labels: [N]; all the same for samples of which nothing is known.
        n: how many resamples.
        rng: draws them.

    >>> labels = np.array([0, 0, 0, 1])
    >>> [int(times.sum()) for times in draw_resamples(labels, 2, np.random.default_rng(0))]
    [4, 4]
    """
    # Sorted by class, the samples of a class are neighbors: a place within the class is its first
    # place plus a uniform number times its size, and the places of all samples are drawn in one call.
    order = np.argsort(labels, kind="stable")
    in_order = labels[order]
    sizes = np.bincount(labels)
    first = (np.cumsum(sizes) - sizes)[in_order]
    size = sizes[in_order]
    for _ in range(n):
        places = first + (rng.random(len(labels)) * size).astype(np.int64)
        times = np.empty(len(labels))
        times[order] = np.bincount(places, minlength=len(labels))
        yield times
