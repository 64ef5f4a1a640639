"""Newton's step on the numbers of all classes: what the fit of per_class.py is made of.

A Newton step x solves ``curvature x = gradient``. With P numbers for each of K classes the curvature has
(P K)^2 of them, which nobody writes down: conjugate gradients only ask for its product with a direction,
which is two matrix products with the samples. C fits that share their samples are solved at once.

What is fitted, its slopes and directions are arrays [P, K, C]. `Curvature` is what `per_class.LogLoss` makes
at a place, `solve` the step from there. Steps are in terms of `+`, `*` and `sum`, which arrays and tensors
have alike: the numbers stay where they are.

Reference: Nocedal and Wright, Numerical Optimization, 2006, section 7.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..support.arrays import Array

_STEPS = 12  # of conjugate gradients: Newton's step need not be exact, as others follow
_ENOUGH = 1e-4  # of the squared length of the residual, at which it is exact enough


class Curvature(NamedTuple):
    """Second derivatives of a sum."""

    product: Callable[[Array], Array]  # what multiplies a direction by them
    diagonal: Array  # [P, K, C], no less than their own, and above 0


def solve(curvature: Curvature, right: Array) -> Array:
    """Return x with ``curvature x = right``, for C columns at once, by conjugate gradients.

    They are preconditioned by the diagonal: divided by it, the classes have about the same curvature,
    however many samples each has.

    Args:
        curvature: positive definite, as the penalty makes it.
        right: [P, K, C], the gradient.

    Returns:
        x, to a hundredth of the length that the residual began with, or as near as 12 steps come.
    """
    solution = right * 0.0
    residual = right
    eased = residual / curvature.diagonal
    direction = eased
    length = inner(residual, eased)
    least = _ENOUGH * length
    for _ in range(_STEPS):
        along = curvature.product(direction)
        bend = inner(direction, along)
        # A column that is done has no direction left: its bend is 0, and it stays where it is.
        size = length / (bend + (bend <= 0))
        size = size * (bend > 0)
        solution = solution + size * direction
        residual = residual - size * along
        eased = residual / curvature.diagonal
        length_before = length
        length = inner(residual, eased)
        if bool((length <= least).all()):
            break
        # The next direction is conjugate to the ones before it.
        again = length / (length_before + (length_before <= 0))
        direction = eased + again * direction
    return solution


def inner(x: Array, y: Array) -> Array:
    """Return the inner product of each column of x and y, each [P, K, C], as [C]."""
    return (x * y).sum((0, 1))
