"""How good predictions are, from logits [N, K] and labels [N]: overall, per class, by group, and as probabilities.

Ties go to the first class, as argmax has it, in top-1 and in top-k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .array import Array, described, to_numpy
from .choices import Kind
from .counts import Counts, check_labels, groups, resolve
from .errors import LevelheadError

MOST = 1 + 1e-3  # that a probability may be: a softmax in half precision rounds up


def check_logits(logits: Array, *, kind: Kind = "logits", first: int = 0) -> np.ndarray:
    """logits [N, K] as a floating numpy array; probabilities are refused, or made their logarithms if said so.

    `first` is the number of their first row, where they are some of many.
    """
    values = to_numpy(logits)
    check_shape(values.shape)
    if values.dtype.kind not in "fiu":
        raise LevelheadError(f"expected logits as floating-point numbers, got {described(values)}")
    values = values if values.dtype.kind == "f" else values.astype(np.float64)
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values).all(axis=1)))
        raise LevelheadError(f"the logits hold NaN or infinite values, first in row {first + row}")
    if kind == "probabilities":
        outside = ((values < 0) | (values > MOST)).any(axis=1)
        if outside.any():
            at = int(np.argmax(outside))
            worst = values[at].min() if values[at].min() < 0 else values[at].max()
            raise LevelheadError(f"expected probabilities, from 0 to 1, got {worst:g} in row {first + at}; leave out "
                             "kind='probabilities' if these are logits")
        return np.log(np.maximum(values, np.finfo(values.dtype).tiny))
    if kind != "logits":
        raise LevelheadError(f"expected kind='logits' or 'probabilities', got {kind!r}")
    if looks_like_probabilities(values):
        raise LevelheadError(
            "expected logits, got what looks like probabilities, rows in [0, 1] that sum to 1; save the values before "
            "the softmax (or pass kind='probabilities' with rule='shift', which works on their logarithms)"
        )
    return values


def check_shape(shape: Sequence[int]) -> None:
    """That logits [N, K] have samples, and classes to choose between."""
    if len(shape) != 2 or shape[0] < 1 or shape[1] < 2:
        one = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
        raise LevelheadError(f"expected logits [N, K] of at least 1 sample and 2 classes, got shape {list(shape)}"
                         + ("; for one score z a sample, give (0, z), stacked, and rule shift" if one else ""))


def looks_like_probabilities(values: np.ndarray, sample: int = 1000) -> bool:
    """Rows within [0, 1] that each sum to 1: a softmax has been here already."""
    some = np.asarray(values[:sample], np.float64)
    return bool((some >= 0).all() and (some <= 1).all() and np.allclose(some.sum(axis=1), 1, atol=2e-3))


def predict(logits: Array) -> np.ndarray:
    """The first class of the largest logit, [N]."""
    return to_numpy(logits).argmax(axis=1)


def rank(logits: Array, labels: Array) -> np.ndarray:
    """How many classes come before the true one, [N]: 0 is right. Of equal logits the first class comes first, and a
    NaN is never right."""
    logits, labels = _pair(logits, labels)
    true = np.take_along_axis(logits, labels[:, None], axis=1)
    later = np.arange(logits.shape[1]) >= labels[:, None]
    return (~((logits < true) | ((logits == true) & later))).sum(axis=1)


def error(logits: Array, labels: Array, *, k: int = 1) -> float:
    """Share of samples whose class is not among the k best.

    >>> error(np.array([[2.0, 1.0], [2.0, 1.0]]), np.array([0, 1]))
    0.5
    """
    return float((rank(logits, labels) >= k).mean())


def balanced_error(logits: Array, labels: Array, *, k: int = 1) -> float:
    """Mean over the classes present of each class's own error: every class weighs the same."""
    return float(1 - np.nanmean(recall(logits, labels, k=k)))


def recall(logits: Array, labels: Array, *, k: int = 1) -> np.ndarray:
    """Share of each class's samples that are found, [K]; NaN for a class with no sample."""
    logits, labels = _pair(logits, labels)
    size = logits.shape[1]
    found = np.bincount(labels, weights=rank(logits, labels) < k, minlength=size)
    return _ratio(found, np.bincount(labels, minlength=size))


def precision(logits: Array, labels: Array) -> np.ndarray:
    """Share of each class's predictions that are right, [K]; NaN for a class never predicted."""
    table = confusion(logits, labels)
    return _ratio(np.diag(table), table.sum(axis=0))


def confusion(logits: Array, labels: Array) -> np.ndarray:
    """[K, K] counts: row is the true class, column the predicted one."""
    logits, labels = _pair(logits, labels)
    size = logits.shape[1]
    return np.bincount(labels * size + predict(logits), minlength=size * size).reshape(size, size)


def negative_share(logits: Array, labels: Array) -> float:
    """Share of samples whose true-class logit is negative: those that RS pushes the wrong way."""
    logits, labels = _pair(logits, labels)
    return float((np.take_along_axis(logits, labels[:, None], axis=1) < 0).mean())


def log_softmax(logits: Array) -> np.ndarray:
    """Log-probabilities [N, K], in float64."""
    scores = to_numpy(logits).astype(np.float64)
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def negative_log_likelihood(logits: Array, labels: Array, *, temperature: float = 1.0) -> float:
    """Mean of ``-log p(true class)``, with logits divided by the temperature."""
    logits, labels = _pair(logits, labels)
    scores = log_softmax(logits / _positive(temperature))
    return float(-np.take_along_axis(scores, labels[:, None], axis=1).mean())


def calibration_error(logits: Array, labels: Array, *, bins: int = 15, temperature: float = 1.0) -> float:
    """ECE: mean gap between confidence and accuracy over equal-width bins of confidence.

    Reference: Guo et al., On Calibration of Modern Neural Networks, 2017.
    """
    logits, labels = _pair(logits, labels)
    probability = np.exp(log_softmax(logits / _positive(temperature)))
    confidence, right = probability.max(axis=1), probability.argmax(axis=1) == labels
    where = np.minimum((confidence * bins).astype(int), bins - 1)
    gap = np.bincount(where, weights=confidence - right, minlength=bins)
    return float(np.abs(gap).sum() / len(right))


def fit_temperature(logits: Array, labels: Array, *, low: float = 0.05, high: float = 20.0) -> float:
    """The temperature of least negative log likelihood on held-out data, by golden section over its logarithm."""
    values = check_logits(logits)
    return float(np.exp(_golden(lambda t: negative_log_likelihood(values, labels, temperature=float(np.exp(t))),
                                np.log(low), np.log(high))))


@dataclass(frozen=True)
class Measures:
    """Everything we report of one set of predictions. Errors and recalls are shares, not percent."""

    n: int
    error: float
    balanced_error: float
    recall: np.ndarray
    precision: np.ndarray
    groups: dict[str, float]
    worst_class: int
    worst_recall: float
    negative_share: float
    calibration_error: float
    negative_log_likelihood: float


def measure(
    logits: Array, labels: Array, counts: Counts | None = None, *, names: Sequence[str] | None = None
) -> Measures:
    """All measures at once.

    Args:
        logits: [N, K].
        labels: [N], class indices.
        counts: training samples of each class, for the many/medium/few groups (rule: `counts.groups`).
        names: class names, if counts are given by name.
    """
    values = check_logits(logits)
    labels = check_labels(labels, values.shape[1])
    found = recall(values, labels)
    members = {} if counts is None else groups(resolve(counts, values.shape[1], names=names))
    worst = int(np.nanargmin(found))
    return Measures(
        n=len(labels),
        error=error(values, labels),
        balanced_error=float(1 - np.nanmean(found)),
        recall=found,
        precision=precision(values, labels),
        groups={name: float(np.nanmean(found[of])) for name, of in members.items() if not np.isnan(found[of]).all()},
        worst_class=worst,
        worst_recall=float(found[worst]),
        negative_share=negative_share(values, labels),
        calibration_error=calibration_error(values, labels),
        negative_log_likelihood=negative_log_likelihood(values, labels),
    )


def _pair(logits: Array, labels: Array) -> tuple[np.ndarray, np.ndarray]:
    """logits [N, K] and labels [N], checked against each other: -1 would else count as the last class."""
    logits = to_numpy(logits)
    check_shape(logits.shape)
    if logits.dtype.kind not in "fiu":
        raise LevelheadError(f"expected logits as floating-point numbers, got {described(logits)}")
    labels = check_labels(labels, logits.shape[1])
    if len(labels) != len(logits):
        raise LevelheadError(f"expected one label per row of logits, got {len(labels)} labels and {len(logits)} rows")
    return logits, labels


def _positive(temperature: float) -> float:
    if not 0 < temperature < np.inf:
        raise LevelheadError(f"expected a positive temperature, got {temperature}")
    return temperature


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


def _golden(f: Callable[[float], float], low: float, high: float, tolerance: float = 1e-5) -> float:
    shrink = (np.sqrt(5) - 1) / 2
    a, b = high - shrink * (high - low), low + shrink * (high - low)
    fa, fb = f(a), f(b)
    while high - low > tolerance:
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - shrink * (high - low)
            fa = f(a)
        else:
            low, a, fa = a, b, fb
            b = low + shrink * (high - low)
            fb = f(b)
    return (low + high) / 2
