"""Resamples of a labelled set, as how often each sample is drawn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def resamples(
    labels: np.ndarray, n: int, rng: np.random.Generator, *, stratified: bool = True
) -> Iterator[np.ndarray]:
    """n times, how often each sample is drawn in a resample with replacement, [N]; within its class if stratified.

    >>> float(next(resamples(np.array([0, 1, 1, 1]), 1, np.random.default_rng(0)))[0])  # alone in its class
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
