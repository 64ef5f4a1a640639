"""What imbalance does to a head and its features, as angles and lengths: the quantities that the paper draws.

Lengths of weight vectors (`relative_norms`, `norm_follows_count`) are what RS and WVN change. Angles between features
(`centers`, `angular_sigma`, `center_gap`) tell how well a class was learned, whatever the head does with it.
`boundary_angles` is where two classes meet, and `oracle_head` what a head that knows the labels does with the features.

Everything is a pure function of arrays, in float64, and angles are in degrees. `record` keeps the results, claims and
figures read them from there.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from levelhead.core import head_checks
from levelhead.core.counts import Counts, check_labels, resolve
from levelhead.core.head import Head
from levelhead.core.head_checks import rank_correlation
from levelhead.support.arrays import Array, to_numpy

__all__ = [
    "Oracle", "angular_sigma", "boundary_angles", "center_gap", "centers", "norm_follows_count", "oracle_head",
    "rank_correlation", "relative_norms",
]  # fmt: skip


def relative_norms(head: Head) -> np.ndarray:
    """Return each weight vector's length over the longest one's, [K].

    Args:
        head: weight [K, d]; a bias is not looked at.

    >>> relative_norms(Head(np.array([[3.0, 4.0], [0.0, 1.0]])))
    array([1. , 0.2])
    """
    norms = to_numpy(head.norms).astype(np.float64)
    return norms / norms.max()


def norm_follows_count(head: Head, counts: Counts) -> float:
    """Return the rank correlation (Spearman) of weight norms with counts; NaN if either are all equal, as after WVN.

    Args:
        head: weight [K, d].
        counts: training samples of each class, in any form that counts may have.

    >>> norm_follows_count(Head(np.array([[3.0, 4.0], [0.0, 1.0]])), [90, 10])
    1.0
    """
    return head_checks.norm_follows_count(head, resolve(counts, head.classes, names=head.names))


def centers(features: Array, labels: Array, classes: int) -> np.ndarray:
    """Return the direction of each class's mean unit-length feature, [K, d]; NaN for a class without samples.

    Args:
        features: [N, d]; only their directions count.
        labels: [N].
        classes: K.

    >>> centers(np.array([[2.0, 0.0], [0.0, 5.0]]), [0, 1], 2)
    array([[1., 0.], [0., 1.]])
    """
    unit = _unit(to_numpy(features).astype(np.float64))
    labels = check_labels(labels, classes)
    # The sum points where the mean does, and only the direction is asked for.
    total = np.zeros((classes, unit.shape[1]))
    np.add.at(total, labels, unit)
    total[np.bincount(labels, minlength=classes) == 0] = np.nan
    return _unit(total)


def angular_sigma(features: Array, labels: Array, classes: int) -> np.ndarray:
    """Return sigma: the angular standard deviation of each class's features around their center, in degrees, [K].

    Features are projected to the unit ball; the angle of each to its class's center is squared, averaged and rooted.
    NaN for a class without samples.

    Args:
        features, labels, classes: [N, d], [N] and K, as of `centers`.

    >>> angular_sigma(np.array([[1.0, 0.0], [0.0, 1.0]]), [0, 0], 1).round(6)
    array([45.])
    """
    labels = check_labels(labels, classes)
    middle = centers(features, labels, classes)
    unit = _unit(to_numpy(features).astype(np.float64))
    # Rounding may carry a cosine past 1, which has no angle.
    cosine = np.clip((unit * middle[labels]).sum(axis=1), -1, 1)
    square = np.degrees(np.arccos(cosine)) ** 2
    n = np.bincount(labels, minlength=classes)
    total = np.bincount(labels, square, classes)
    return np.sqrt(np.divide(total, n, out=np.full(classes, np.nan), where=n > 0))


def center_gap(train: tuple[Array, Array], test: tuple[Array, Array], classes: int) -> np.ndarray:
    """Return the angle between each class's centers in train and test, in degrees, [K].

    Args:
        train, test: features [N, d] and labels [N] of either split; a class that one of them lacks has NaN.
        classes: K.

    >>> center_gap((np.array([[1.0, 0.0]]), [0]), (np.array([[0.0, 1.0]]), [0]), 1)
    array([90.])
    """
    cosine = (centers(*train, classes) * centers(*test, classes)).sum(axis=1)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def boundary_angles(head: Head, i: int, j: int) -> tuple[float, float]:
    """Return the angles, in degrees, from w_i and from w_j to their decision boundary, in the plane of the two.

    The boundary ``w_i . x = w_j . x`` leans toward the shorter vector; at equal length it lies in the middle. A head
    with a bias has another one, which does not go through the origin: the bias is left out here.

    Args:
        head: weight [K, d].
        i, j: two classes.

    >>> boundary_angles(Head(np.array([[1.0, 0.0], [0.0, 1.0]])), 0, 1)
    (45.0, 45.0)
    >>> to_long, to_short = boundary_angles(Head(np.array([[2.0, 0.0], [0.0, 1.0]])), 0, 1)
    >>> round(to_long, 1), round(to_short, 1)
    (63.4, 26.6)
    """
    weight = to_numpy(head.weight).astype(np.float64)
    a = weight[i]
    b = weight[j]
    length = np.linalg.norm(a)
    other = np.linalg.norm(b)
    between = np.arccos(np.clip(a @ b / (length * other), -1, 1))
    # On the boundary, at an angle t from a, both scores are equal: |a| cos(t) = |b| cos(between - t). Expanded, that is
    # tan(t) = (|a| - |b| cos(between)) / (|b| sin(between)).
    angle = np.arctan2(length - other * np.cos(between), other * np.sin(between))
    return float(np.degrees(angle)), float(np.degrees(between - angle))


@dataclass(frozen=True)
class Oracle:
    """A head fitted to the features it is judged on, its error there, and how far from converged it is.

    Example:
        ``oracle_head(features, labels, 10).error`` is what no adjustment of the head can be better than.
    """

    head: Head  #: weight [K, d]
    error: float  #: on these features, a share
    loss: float  #: mean cross entropy, with the decay
    gradient: float  #: largest entry of its slope, in absolute value
    steps: int  #: how many were taken


def oracle_head(
    features: Array,
    labels: Array,
    classes: int,
    *,
    start: Head | None = None,
    decay: float = 0.0,
    steps: int = 2000,
    tolerance: float = 1e-5,
) -> Oracle:
    """Return the head of least cross entropy on given features: hardly another one has a lower error on them.

    This minimizes mean cross entropy + decay/2 ||W||^2 by L-BFGS. The samples count as they come: on a balanced test
    set that is the balanced loss.

    Args:
        features, labels, classes: [N, d], [N] and K.
        start: the head to begin with; zeros if None.
        decay: weight decay.
        steps, tolerance: fitting stops after so many steps, or when no entry of the gradient exceeds the tolerance.

    >>> oracle_head(np.array([[1.0, 0.0], [0.0, 1.0]]), [0, 1], 2, decay=0.1).error
    0.0
    """
    x = to_numpy(features).astype(np.float64)
    y = check_labels(labels, classes)
    if start is None:
        weight = np.zeros((classes, x.shape[1]))
    else:
        weight = to_numpy(start.weight).astype(np.float64)
    rows = np.arange(len(y))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss and its slope, both in float64, at weights [K * d]."""
        w = flat.reshape(weight.shape)
        scores = x @ w.T
        scores -= scores.max(axis=1, keepdims=True)  # so that no exponential overflows
        probability = np.exp(scores)
        total = probability.sum(axis=1, keepdims=True)
        value = (np.log(total[:, 0]) - scores[rows, y]).mean() + decay / 2 * (flat @ flat)
        # The slope by the scores is the softmax minus 1 at the label.
        probability /= total
        probability[rows, y] -= 1
        return float(value), (probability.T @ x / len(y) + decay * w).ravel()

    flat, value, gradient, taken = _lbfgs(loss, weight.ravel(), steps, tolerance)
    head = Head(flat.reshape(weight.shape))
    wrong = float((head.logits(x).argmax(axis=1) != y).mean())
    return Oracle(
        head=head, error=wrong, loss=value, gradient=float(np.abs(gradient).max()), steps=taken
    )


def _lbfgs(
    loss: Callable[[np.ndarray], tuple[float, np.ndarray]],
    at: np.ndarray,
    steps: int,
    tolerance: float,
    memory: int = 20,
) -> tuple[np.ndarray, float, np.ndarray, int]:
    """Minimize by two-loop recursion with a backtracking line search (Nocedal and Wright, Algorithms 7.4 and 3.1).

    By hand, although scipy has one: records hold its numbers, down to the steps it took.

    Args:
        loss: returns the loss and its slope [n] at a place [n].
        at: [n], where to start.
        steps: at most so many.
        tolerance: it stops where no entry of the slope is larger, in absolute value.
        memory: of how many steps the curvature is made.

    Returns:
        Where it ended, the loss and its slope there, and how many steps it took.

    >>> def parabola(x: np.ndarray) -> tuple[float, np.ndarray]:
    ...     return float((x - 3) @ (x - 3)), 2 * (x - 3)
    >>> place, value, slope, taken = _lbfgs(parabola, np.zeros(2), steps=50, tolerance=1e-8)
    >>> place
    array([3., 3.])
    """
    value, gradient = loss(at)
    # Of the last steps: by how much the place and the slope changed, and 1 over the product of the two.
    pairs: list[tuple[np.ndarray, np.ndarray, float]] = []
    step = 0
    for step in range(1, steps + 1):
        if np.abs(gradient).max() <= tolerance:
            return at, value, gradient, step - 1
        # The slope times an approximation of the inverse Hessian, from the newest pair to the oldest and back.
        direction = gradient.copy()
        alphas = []
        for s, z, rho in reversed(pairs):
            alphas.append(rho * (s @ direction))
            direction -= alphas[-1] * z
        if pairs:
            s, z, rho = pairs[-1]
            direction *= 1 / (rho * (z @ z))
        for (s, z, rho), alpha in zip(pairs, reversed(alphas), strict=True):
            direction += s * (alpha - rho * (z @ direction))
        # Half the length until the loss falls by enough (Armijo). The first direction is the slope itself, whose length
        # says nothing about how far to go.
        slope = -(gradient @ direction)
        length = 1.0
        if not pairs:
            length = 1 / max(1.0, float(np.linalg.norm(gradient)))
        while True:
            new = at - length * direction
            new_value, new_gradient = loss(new)
            if new_value <= value + 1e-4 * length * slope or length < 1e-12:
                break
            length /= 2
        s = new - at
        z = new_gradient - gradient
        if s @ z > 1e-12 * (z @ z):  # else the approximation would no longer be positive
            pairs = [*pairs[-(memory - 1) :], (s, z, 1 / float(s @ z))]
        if length < 1e-12:
            break
        at, value, gradient = new, new_value, new_gradient
    return at, value, gradient, step


def _unit(x: np.ndarray) -> np.ndarray:
    """Return rows of length 1; zeros stay zeros, NaN stays NaN."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    if not np.isnan(norms).any():
        return np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)
    return x / norms
