"""Weights of samples: given by the user, or drawn by a bootstrap."""

from collections.abc import Iterator

import numpy as np

from ..core.array import Array, to_numpy
from ..core.errors import LevelheadError


def check_weights(weights: Array, size: int) -> np.ndarray:
    """Return the weights of the samples, [N], in float64."""
    masses = to_numpy(weights)
    if masses.shape != (size,) or masses.dtype.kind not in "fiub":
        raise LevelheadError(f"expected numbers [{size}], one per sample, got {masses.dtype} of shape "
                             f"{list(masses.shape)}", parameter="weights")
    if not np.isfinite(masses).all() or (masses < 0).any() or not masses.any():
        raise LevelheadError("expected finite numbers, none negative and not all 0", parameter="weights")
    return masses.astype(np.float64)


def draw_resamples(
    labels: np.ndarray, n: int, rng: np.random.Generator, *, stratified: bool = True
) -> Iterator[np.ndarray]:
    """Yield n times how often each sample is drawn with replacement, [N]. Each class keeps its size if stratified.

    >>> float(next(draw_resamples(np.array([0, 1, 1, 1]), 1, np.random.default_rng(0)))[0])  # alone in its class
    1.0
    """
    order = np.argsort(labels, kind="stable") if stratified else np.arange(len(labels))
    group = labels[order] if stratified else np.zeros(len(labels), np.int64)
    size = np.bincount(group)
    first, size = (np.cumsum(size) - size)[group], size[group]
    for _ in range(n):
        times = np.empty(len(labels))
        times[order] = np.bincount(first + (rng.random(len(labels)) * size).astype(np.int64), minlength=len(labels))
        yield times
