"""The scale of scores: a temperature fitted on held-out samples, by which any margin becomes a logit.

With ``z = logits / T`` calibrated, a model trained on counts n needs ``z_k + log(prior_k / n_k)`` where classes occur
as the prior says. That is a shift of the raw logits by T, whatever their units.
"""

import numpy as np

from ..core.array import Array, to_numpy
from ..core.measure import Kind, check_logits, log_softmax

_MOST_ROWS = 20_000  # of the samples a temperature is fitted on: its error is then far below that of any choice


def fit_scale(logits: np.ndarray, labels: np.ndarray, weights: np.ndarray, offset: np.ndarray | float = 0.0) -> float:
    """Return the T at which ``logits / T + offset`` has the least weighted log loss.

    The loss is convex in 1 / T, so its slope is bisected. T is within a factor of 50 of the scores' own spread.

    Args:
        logits, labels: [N, K]; [N].
        weights: [N], not all 0.
        offset: [K] or [N, K], added after the division.

    Returns:
        The temperature, above 0.

    >>> round(fit_scale(np.array([[2.0, 0.0]] * 3), np.array([0, 0, 1]), np.ones(3)), 3)  # 2 / log 2
    2.885
    """
    values = logits - logits.mean(axis=1, keepdims=True)
    spread = float(np.sqrt(np.mean(values**2))) or 1.0
    low, high = np.log(0.02 / spread), np.log(50 / spread)
    true = values[np.arange(len(labels)), labels]
    for _ in range(30):
        middle = (low + high) / 2
        probability = np.exp(log_softmax(np.exp(middle) * values + offset))
        slope = weights @ ((probability * values).sum(axis=1) - true)
        low, high = (low, middle) if slope > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def some_rows(logits: Array, labels: np.ndarray, *, kind: Kind = "logits") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits [n, K] and labels [n] of all samples or, of many, as many as are enough; and their rows, [n]."""
    rows = np.arange(len(labels))
    if len(rows) > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), _MOST_ROWS, replace=False))
    some = logits[rows] if len(rows) < len(labels) else logits
    return check_logits(to_numpy(some), kind=kind).astype(np.float64), labels[rows], rows
