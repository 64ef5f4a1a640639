"""The few operations by which numpy and torch differ, for arithmetic on either.

What both spell alike (+, *, @, indexing) needs nothing from here. The fit of a number for each
class (core/per_class.py) is written in these, once, for the host and for any device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arrays import Array, is_torch, like, to_numpy

__all__ = [
    "column",
    "exp",
    "log",
    "one_hot_sum",
    "row_max",
    "row_min",
    "row_sum",
    "stack",
    "sums_by",
    "total_sum",
]

_BLOCK = 4096  # rows that are added up in float32


def exp(x: Array) -> Array:
    """Return ``e^x`` of every number."""
    if is_torch(x):
        return x.exp()
    return np.exp(x)


def log(x: Array) -> Array:
    """Return the natural logarithm of every number."""
    if is_torch(x):
        return x.log()
    return np.log(x)


def row_max(x: Array) -> Array:
    """Return the largest number of each row of x [N, K], as a column [N, 1]."""
    if is_torch(x):
        return x.amax(1, keepdim=True)
    return x.max(axis=1, keepdims=True)


def row_min(x: Array) -> Array:
    """Return the smallest number of each row of x [N, K], as a column [N, 1]."""
    if is_torch(x):
        return x.amin(1, keepdim=True)
    return x.min(axis=1, keepdims=True)


def row_sum(x: Array) -> Array:
    """Return the sum of each row of x [N, K], as a column [N, 1]."""
    if is_torch(x):
        return x.sum(1, keepdim=True)
    return x.sum(axis=1, keepdims=True)


def stack(parts: Sequence[Array]) -> Array:
    """Return arrays of one shape as one, along a new axis in front."""
    if is_torch(parts[0]):
        import torch

        return torch.stack(tuple(parts))
    return np.stack(parts)


def total_sum(x: Array) -> float:
    """Return the sum of all numbers of x, added up in float64."""
    if is_torch(x):
        import torch

        return float(x.sum(dtype=torch.float64))
    return float(x.sum(dtype=np.float64))


def sums_by(weights: Array, x: Array) -> Array:
    """Return the sums of x [N, K] over its rows, by each column of weights [N, C]: ``x^T weights``, [K, C].

    Processors differ in how they add up numbers of float32: one after the other, hundreds of thousands lose
    more than a rare class has. So blocks of rows are added up in float64; a GPU has blocks of its own.

    >>> sums_by(np.ones((9999, 1), "f"), np.full((9999, 2), 0.5, "f"))
    array([[4999.5],
           [4999.5]], dtype=float32)
    """
    on_gpu = is_torch(x) and x.is_cuda
    if on_gpu or x.itemsize > 4 or len(x) <= _BLOCK:
        return x.T @ weights
    total = np.zeros((x.shape[1], weights.shape[1]))
    for first in range(0, len(x), _BLOCK):
        rows = slice(first, first + _BLOCK)
        total += to_numpy(x[rows].T @ weights[rows])
    return like(total, x)


def column(x: Array, labels: np.ndarray) -> Array:
    """Return the number of each row of x [N, K] that its label [N] names, [N].

    >>> column(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0]))
    array([2., 3.])
    """
    if is_torch(x):
        import torch

        index = torch.as_tensor(labels, device=x.device)
        return x.gather(1, index[:, None])[:, 0]
    return x[np.arange(len(labels)), labels]


def one_hot_sum(labels: np.ndarray, weights: Array, classes: int, as_is: Array) -> Array:
    """Return the sum of weights [N, C] over the samples of each class, [K, C], like `as_is`.

    That is ``one_hot(labels).T @ weights`` without the one-hot matrix, [N, K].

    Args:
        labels: [N], from 0 to K - 1, on the host.
        weights: [N, C]; a column for each fit that is made at once.
        classes: K.
        as_is: an array whose kind, dtype and device the sums get, if weights are numpy's; a tensor
            of weights gives its own.

    >>> one_hot_sum(np.array([0, 1, 0]), np.array([[1.0], [2.0], [3.0]]), 2, np.zeros(0))
    array([[4.],
           [2.]])
    """
    if is_torch(weights):
        import torch

        sums = torch.zeros(classes, weights.shape[1], dtype=weights.dtype, device=weights.device)
        return sums.index_add_(0, torch.as_tensor(labels, device=weights.device), weights)
    sums = [np.bincount(labels, column_weights, classes) for column_weights in weights.T]
    return like(np.stack(sums, axis=1), as_is)
