"""Logits [N, K]: their probabilities, and the temperature that makes them calibrated.

A temperature T, fitted on held-out samples, makes a logit of any margin: with ``z = logits / T`` calibrated, a model
trained on counts n needs ``z_k + log(prior_k / n_k)`` where classes occur as the prior says. That is a shift of the raw
logits by T, whatever their units.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .array import LARGEST_PROBABILITY, SCRATCH, Array, read_logits, to_numpy, usable_cores
from .choices import Kind
from .kept_rows import KeptRows

_MOST_ROWS, _MOST_NUMBERS = 20_000, 1 << 21  # that a temperature is fitted on: its error is then below any choice's
_LEAST_ROWS, _FIRST_ROWS = 200, 500
_BLOCK = 1 << 15  # numbers that fit in the cache
_FEW_BLOCKS = 4  # that are not worth threads
_WIDEST = 1e15  # spread of scores whose squares float32 can hold


def log_softmax(logits: Array) -> np.ndarray:
    """Return log-probabilities [N, K], in float64.

    >>> np.exp(log_softmax(np.array([[5.0, 5.0]])))
    array([[0.5, 0.5]])
    """
    scores = to_numpy(logits).astype(np.float64)
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def are_log_probabilities(logits: Array) -> bool:
    """Return whether scores [N, K] are logarithms of probabilities, which sum to 1; 1000 rows are looked at.

    In half precision the sums are a little off. Without a row they are not.

    >>> are_log_probabilities(np.log([[0.7, 0.3], [0.5, 0.5]])), are_log_probabilities(np.array([[2.0, 1.0]]))
    (True, False)
    """
    some = to_numpy(logits[:1000]).astype(np.float64)
    if not len(some) or not (some <= LARGEST_PROBABILITY - 1).all():
        return False
    return bool((np.abs(np.exp(some).sum(axis=1) - 1) < 0.02).all())


def fit_scale(
    logits: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    offset: np.ndarray | float = 0.0,
    *,
    near: float | None = None,
) -> float:
    """Return the T at which ``logits / T + offset`` has the least weighted log loss."""
    logits = raise_masked(logits)
    values = logits - logits.mean(axis=1, keepdims=True)
    spread = float(np.sqrt(np.vdot(values, values) / values.size)) or 1.0
    start, step = 1 / (near or spread), len(labels) // _FIRST_ROWS
    # Of many rows, a few tell nearly as much; float32 tells more of all, and leaves one look at them in float64.
    if step > 1 and near is None:
        few, added = slice(None, None, step), np.asarray(offset)
        some = added[few] if added.ndim == 2 else added
        if weights[few].any():
            start = 1 / _minimize(values[few], labels[few], weights[few], some, 1 / spread, spread)
        if spread < _WIDEST:
            narrow = values.astype(np.float32), labels, weights, added.astype(np.float32)
            start = 1 / _minimize(*narrow, start, spread, enough=5e-3)
    return _minimize(values, labels, weights, offset, start, spread)


def raise_masked(logits: np.ndarray) -> np.ndarray:
    """Return logits [N, K] without scores far below any that matter, as masks are: they would set the scale.

    Where one is 10^4 times further below the largest of its row than is usual, those 10 times further are raised to
    that. They win nowhere, before or after.
    """
    with np.errstate(over="ignore"):
        below = logits.max(axis=1, keepdims=True) - logits
    some = below[:: max(1, len(below) // 1000)]
    some = some[some > 0]  # the largest of each row is not below itself
    if not len(some) or below.max() <= 1e4 * (usual := float(np.median(some))):
        return logits
    return logits.max(axis=1, keepdims=True) - np.minimum(below, 10 * usual)


def most_rows(classes: int) -> int:
    """Return how many rows are enough."""
    return min(_MOST_ROWS, max(_LEAST_ROWS, _MOST_NUMBERS // classes))


def pick_rows(n: int, classes: int) -> np.ndarray:
    """Return the rows of logits [n, K] that a temperature is fitted on, ascending: all, or a sample of many."""
    if n <= (most := most_rows(classes)):
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def some_rows(logits: Array, labels: np.ndarray, *, kind: Kind = "logits") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits [n, K] and labels [n] of all samples or, of many, as many as are enough; and their rows, [n]."""
    if isinstance(logits, KeptRows):
        rows, some = logits.rows, logits.values
    else:
        rows = pick_rows(*logits.shape)
        some = logits[rows] if len(rows) < len(labels) else logits
    return read_logits(some, kind).astype(np.float64), labels[rows], rows


def _minimize(
    values: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    offset: np.ndarray | float,
    start: float,
    spread: float,
    *,
    enough: float = 1e-8,
) -> float:
    """Return the temperature of least loss: Newton's steps in 1 / T, till one changes it by less than `enough`."""
    # The steps stay within a bracket, which is halved (in logarithms) where a step leaves it.
    least, most = 0.02 / spread, 50 / spread
    low, high, inverse = least, most, start
    for _ in range(100):
        slope, bend = _slopes(values, labels, weights, offset, inverse)
        if (inverse == most and slope <= 0) or (inverse == least and slope >= 0):
            break
        low, high = (low, np.nextafter(inverse, 0)) if slope > 0 else (np.nextafter(inverse, np.inf), high)
        after = inverse - slope / bend if bend > 0 else np.inf if slope < 0 else 0.0
        sure = bend > 1e-6 * spread**2 * weights.sum()  # and not rounding alone
        near = sure and abs(after - inverse) <= 1e-5 * inverse  # then the step squares what is left
        if not near and not low < after < high:
            untried = (after >= high == most) or (after <= low == least)
            after = (most if slope < 0 else least) if untried else np.sqrt(low * high)
        inverse, before = after, inverse
        if near or abs(inverse - before) <= enough * before:
            break
    return float(1 / inverse)


def _slopes(
    values: np.ndarray, labels: np.ndarray, weights: np.ndarray, offset: np.ndarray | float, inverse: float
) -> tuple[float, float]:
    """Return the first and second derivative of the weighted log loss by 1 / T, block after block of rows."""
    step = max(1, _BLOCK // values.shape[1])
    table = isinstance(offset, np.ndarray) and offset.ndim == 2

    def look(first: int) -> tuple[float, float]:
        rows = slice(first, first + step)
        part, true, mass = values[rows], labels[rows], weights[rows]
        scores = np.multiply(part, inverse, out=SCRATCH.table("scores" + part.dtype.name, part.shape, part.dtype.type))
        scores += offset[rows] if table else offset  # type: ignore[index]
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        total = scores.sum(axis=1)
        mean = np.einsum("ik,ik->i", scores, part) / total
        scores *= part
        square = np.einsum("ik,ik->i", scores, part) / total
        return float(mass @ (mean - part[np.arange(len(true)), true])), float(mass @ (square - mean**2))

    firsts = range(0, len(labels), step)
    if len(firsts) <= _FEW_BLOCKS:
        found = [look(first) for first in firsts]
    else:
        each = -(-len(firsts) // usable_cores())
        parts = [firsts[i : i + each] for i in range(0, len(firsts), each)]
        with ThreadPoolExecutor(len(parts)) as pool:
            found = [one for part in pool.map(lambda some: [look(first) for first in some], parts) for one in part]
    return sum(slope for slope, _ in found), sum(bend for _, bend in found)
