"""Two numbers for each class as one vector, and Newton's step on it: what the fit of per_class.py is made of.

A Newton step x solves ``curvature x = gradient``. With K classes the curvature has (2 K)^2 numbers, which
nobody writes down: conjugate gradients only ask for its product with a direction, which is two matrix
products with the samples. C fits that share their samples are solved at once, a column each.

`Fit` is the vector with its few operations, `Curvature` what `per_class.LogLoss` makes at a place, `solve` the
step from there. Steps are in terms of `+`, `*` and `sum`, which arrays and tensors have alike: the numbers stay
where they are.

Reference: Nocedal and Wright, Numerical Optimization, 2006, section 7.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..support.arrays import Array, to_numpy

_STEPS = 12  # of conjugate gradients: Newton's step need not be exact, as others follow
_ENOUGH = 1e-4  # of the squared length of the residual, at which it is exact enough


class Fit(NamedTuple):
    """Two numbers for each class, [K, C] each for C fits: a and c of the formula in per_class.py.

    It stands for fitted numbers, and for directions and slopes in them.
    """

    a: Array  # of the scales
    c: Array  # of the offsets

    def times(self, factor: Array | float) -> Fit:
        """Return both, multiplied by one factor."""
        return Fit(self.a * factor, self.c * factor)

    def plus(self, other: Fit, size: Array | float = 1.0) -> Fit:
        """Return ``self + size other``, with one size, or one for each column, [C]."""
        return Fit(self.a + size * other.a, self.c + size * other.c)

    def over(self, other: Fit) -> Fit:
        """Return ``self / other``, entry by entry."""
        return Fit(self.a / other.a, self.c / other.c)

    def in_float64(self) -> Fit:
        """Return both as arrays of float64 on the host."""
        return Fit(to_numpy(self.a).astype(np.float64), to_numpy(self.c).astype(np.float64))

    def inner(self, other: Fit) -> Array:
        """Return the inner product of each column, [C]."""
        return (self.a * other.a).sum(0) + (self.c * other.c).sum(0)


class Curvature(NamedTuple):
    """Second derivatives of a sum."""

    product: Callable[[Fit], Fit]  # what multiplies a direction by them
    diagonal: Fit  # [K, C] each, no less than their own, and above 0


def solve(curvature: Curvature, right: Fit) -> Fit:
    """Return x with ``curvature x = right``, for C columns at once, by conjugate gradients.

    They are preconditioned by the diagonal: divided by it, the classes have about the same curvature,
    however many samples each has.

    Args:
        curvature: positive definite, as the penalty makes it.
        right: [K, C] each, the gradient.

    Returns:
        x, to a hundredth of the length that the residual began with, or as near as 12 steps come.
    """
    solution = right.times(0.0)
    residual = right
    eased = residual.over(curvature.diagonal)
    direction = eased
    length = residual.inner(eased)
    least = _ENOUGH * length
    for _ in range(_STEPS):
        along = curvature.product(direction)
        bend = direction.inner(along)
        # A column that is done has no direction left: its bend is 0, and it stays where it is.
        size = length / (bend + (bend <= 0))
        size = size * (bend > 0)
        solution = solution.plus(direction, size)
        residual = residual.plus(along, -size)
        eased = residual.over(curvature.diagonal)
        length_before = length
        length = residual.inner(eased)
        if bool((length <= least).all()):
            break
        # The next direction is conjugate to the ones before it.
        again = length / (length_before + (length_before <= 0))
        direction = eased.plus(direction, again)
    return solution
