"""Weights of samples: given by the user, drawn by a bootstrap, or dealt into folds; and the curves that they give."""

from collections.abc import Iterable, Iterator

import numpy as np

from ..core.array import Array, to_numpy
from ..core.errors import LevelheadError


def check_weights(weights: Array, size: int) -> np.ndarray:
    """Return the weights of the samples, [N], in float64."""
    masses = to_numpy(weights)
    if masses.shape != (size,) or masses.dtype.kind not in "fiub":
        got = f"{masses.dtype} of shape {list(masses.shape)}"
        raise LevelheadError(f"expected numbers [{size}], one per sample, got {got}", parameter="weights")
    if not np.isfinite(masses).all() or (masses < 0).any() or not masses.any():
        raise LevelheadError("expected finite numbers, none negative and not all 0", parameter="weights")
    return masses.astype(np.float64)


def check_replicates(bootstrap: int, level: float) -> None:
    """Check the number of replicates and the level of the intervals that they give."""
    if isinstance(bootstrap, bool) or not isinstance(bootstrap, int | np.integer) or bootstrap < 0:
        raise LevelheadError(f"expected a number of replicates, 0 or more, got {bootstrap}", parameter="bootstrap")
    if not 0 < level < 1:
        raise LevelheadError(f"expected a number between 0 and 1, got {level}", parameter="level")


def class_mean_coefficients(labels: np.ndarray, weights: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the coefficients [N] of a mean of class accuracies, weighted by shares [K], over the classes present."""
    totals = np.bincount(labels, weights, len(shares))
    share = np.where(totals == 0, 0.0, shares)
    each = np.divide(share / share.sum(), totals, out=np.zeros_like(share), where=totals > 0)
    return weights * each[labels]


def class_variance(change: np.ndarray, labels: np.ndarray, size: int, more: int) -> np.ndarray:
    """Return the variance of each class's mean change, [K], with `more` samples of +1 and as many of -1 in each."""
    n = np.maximum(np.bincount(labels, minlength=size) + 2 * more, 1)
    total, square = (np.bincount(labels, values, size) for values in (change, change**2))
    return ((square + 2 * more) / n - (total / n) ** 2) / n


def draw_resamples(
    labels: np.ndarray, n: int, rng: np.random.Generator, *, stratified: bool = True
) -> Iterator[np.ndarray]:
    """Yield n times how often each sample is drawn with replacement, [N]. Each class keeps its size if stratified."""
    # Sorted by class, the samples of a class are neighbors: a place within the class is its first place plus a uniform
    # number times its size, and the places of all samples are drawn in one call.
    order = np.argsort(labels, kind="stable") if stratified else np.arange(len(labels))
    group = labels[order] if stratified else np.zeros(len(labels), np.int64)
    size = np.bincount(group)
    first, size = (np.cumsum(size) - size)[group], size[group]
    for _ in range(n):
        times = np.empty(len(labels))
        times[order] = np.bincount(first + (rng.random(len(labels)) * size).astype(np.int64), minlength=len(labels))
        yield times


def draw_folds(labels: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Return the fold of each sample, [N]: each class in a random order, dealt out from a random fold on."""
    order = np.argsort(rng.random(len(labels)))
    own = labels[order]
    narrow = own.astype(np.uint16) if own.max(initial=0) < 1 << 16 else own  # 16 bits are sorted by radix
    order = order[np.argsort(narrow, kind="stable")]
    sizes = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # the place within its class
    found = np.empty(len(labels), np.int64)
    found[order] = (rank + rng.integers(folds, size=len(sizes))[labels[order]]) % folds
    return found


def error_rows(
    n: int, coefficients: Iterable[np.ndarray], events: tuple[np.ndarray, ...], gammas: np.ndarray
) -> np.ndarray:
    """Return ``1 - sum_i c[i] [sample i is right]`` at the gammas, [n, G], for each c; `events` as in `GammaPath`."""
    start, at, sign, sample = events
    bins = np.searchsorted(gammas, at)  # the first gamma at which the event has happened
    rows = np.empty((n, len(gammas)))
    for row, c in zip(rows, coefficients, strict=True):
        steps = np.bincount(bins, sign * c[sample], len(gammas) + 1)[: len(gammas)]
        row[:] = 1 - (c[start].sum() + np.cumsum(steps))
    return rows
