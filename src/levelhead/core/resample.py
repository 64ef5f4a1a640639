"""Resamples drawn with replacement, and checks of what they are asked for."""

from collections.abc import Iterator

import numpy as np

from ..support.errors import LevelheadError


def check_replicates(bootstrap: int, level: float) -> None:
    """Check the number of replicates and the level of the intervals that they give."""
    if isinstance(bootstrap, bool) or not isinstance(bootstrap, int | np.integer) or bootstrap < 0:
        raise LevelheadError(
            f"expected a number of replicates, 0 or more, got {bootstrap}", parameter="bootstrap"
        )
    if not 0 < level < 1:
        raise LevelheadError(f"expected a number between 0 and 1, got {level}", parameter="level")


def quantiles(values: np.ndarray, level: float) -> tuple[float, float] | None:
    """Return the interval that holds this share of the values; None if there are none."""
    if len(values) == 0:
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def draw_resamples(
    labels: np.ndarray, n: int, rng: np.random.Generator, *, stratified: bool = True
) -> Iterator[np.ndarray]:
    """Yield n times how often each sample is drawn with replacement, [N]. Each class keeps its size if stratified."""
    # Sorted by class, the samples of a class are neighbors: a place within the class is its first place plus a uniform
    # number times its size, and the places of all samples are drawn in one call.
    if stratified:
        order = np.argsort(labels, kind="stable")
    else:
        order = np.arange(len(labels))
    if stratified:
        group = labels[order]
    else:
        group = np.zeros(len(labels), np.int64)
    size = np.bincount(group)
    first = (np.cumsum(size) - size)[group]
    size = size[group]
    for _ in range(n):
        times = np.empty(len(labels))
        times[order] = np.bincount(
            first + (rng.random(len(labels)) * size).astype(np.int64), minlength=len(labels)
        )
        yield times
