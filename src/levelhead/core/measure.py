"""How good predictions are, from logits [N, K] and labels [N]. Ties go to the first class, for top-1 and for top-k.

`measure` returns all measures at once; the other functions one each. They read the logits. What `tune`
chooses by are losses of tables, which have forgotten them (metrics.py). Logits and labels are arrays, tensors or
lists; errors, recalls and the like are shares, not percent.

>>> logits = np.array([[2.0, 1.0], [2.0, 1.0]])
>>> labels = [0, 1]
>>> error(logits, labels), recall(logits, labels), precision(logits, labels)
(0.5, array([1., 0.]), array([0.5, nan]))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..support.arrays import Array, to_numpy
from ..support.errors import LevelheadError
from ..support.logits import (
    are_log_probabilities,
    check_logits,
    check_shape,
    log_softmax,
    looks_like_probabilities,
    lower_masked,
    numeric_logits,
)
from . import calibration
from .arguments import check_whole
from .class_labels import check_labels, check_one_per_row, refuse_swapped, resolve_labels
from .counts import Counts, groups, resolve

__all__ = [
    "Measures",
    "are_log_probabilities",
    "balanced_error",
    "calibration_error",
    "check_logits",
    "check_shape",
    "confusion",
    "error",
    "fit_temperature",
    "log_softmax",
    "looks_like_probabilities",
    "measure",
    "negative_log_likelihood",
    "negative_share",
    "precision",
    "predict",
    "rank",
    "recall",
]


def predict(logits: Array) -> np.ndarray:
    """Return the first class with the largest logit, [N], of logits [N, K].

    >>> predict(np.array([[1.0, 3.0], [2.0, 2.0]]))
    array([1, 0])
    """
    return to_numpy(logits).argmax(axis=1)


def rank(logits: Array, labels: Array) -> np.ndarray:
    """Return how many classes come before the true one, [N]; 0 is a correct prediction and NaN never is.

    A sample is right by top-k if its rank is below k. Of equal logits the first class comes first, so that
    top-k and `predict` agree.

    Args:
        logits, labels: [N, K] and [N].

    >>> rank(np.array([[1.0, 3.0, 2.0], [1.0, 1.0, 0.0]]), [2, 1])
    array([1, 1])
    """
    logits, labels = _pair(logits, labels)
    true = np.take_along_axis(logits, labels[:, None], axis=1)
    # Behind the true class are lower logits, equal ones of later classes, and itself. All else comes
    # before it: with a NaN no comparison holds, so that a NaN is always before.
    not_earlier = np.arange(logits.shape[1]) >= labels[:, None]
    behind = (logits < true) | ((logits == true) & not_earlier)
    return (~behind).sum(axis=1)


def error(logits: Array, labels: Array, *, k: int = 1) -> float:
    """Return the share of samples whose class is not among the k best.

    Args:
        logits, labels: [N, K] and [N].
        k: how many classes a sample may be predicted.

    >>> logits = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    >>> error(logits, [0, 1]), error(logits, [0, 1], k=2)
    (0.5, 0.0)
    """
    return float((rank(logits, labels) >= check_whole("k", k)).mean())


def balanced_error(logits: Array, labels: Array, *, k: int = 1) -> float:
    """Return the mean of each class's own error, over the classes present: all weigh the same.

    Args:
        logits, labels: [N, K] and [N].
        k: how many classes a sample may be predicted.

    >>> balanced_error(np.array([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0]]), [0, 0, 1])
    0.5
    """
    return float(1 - np.nanmean(recall(logits, labels, k=k)))


def recall(logits: Array, labels: Array, *, k: int = 1) -> np.ndarray:
    """Return the share of each class's samples that have it among the k best, [K].

    ``right_k / n_k``; NaN for a class without samples.

    Args:
        logits, labels: [N, K] and [N].
        k: how many classes a sample may be predicted.

    >>> recall(np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0]]), [0, 1, 1])
    array([1. , 0.5])
    """
    logits, labels = _pair(logits, labels)
    size = logits.shape[1]
    is_right = rank(logits, labels) < check_whole("k", k)
    correct = np.bincount(labels, weights=is_right, minlength=size)
    return _ratio(correct, np.bincount(labels, minlength=size))


def precision(logits: Array, labels: Array) -> np.ndarray:
    """Return the share of each class's predictions that are correct, [K]; NaN for one never predicted.

    ``right_k / predicted_k``. Unlike recall it depends on how often classes occur among the samples.

    Args:
        logits, labels: [N, K] and [N].

    >>> precision(np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0]]), [0, 1, 1])
    array([0.5, 1. ])
    """
    table = confusion(logits, labels)
    return _ratio(np.diag(table), table.sum(axis=0))


def confusion(logits: Array, labels: Array) -> np.ndarray:
    """Return counts [K, K]: the row is the true class, the column the predicted one.

    Args:
        logits, labels: [N, K] and [N].

    >>> confusion(np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0]]), [0, 1, 1])
    array([[1, 0],
           [1, 1]])
    """
    logits, labels = _pair(logits, labels)
    # Each (true, predicted) is one cell of a flat table.
    size = logits.shape[1]
    return np.bincount(labels * size + predict(logits), minlength=size * size).reshape(size, size)


def negative_share(logits: Array, labels: Array) -> float:
    """Return the share of samples whose true-class logit is negative: RS moves those the wrong way.

    Args:
        logits, labels: [N, K] and [N].

    >>> negative_share(np.array([[-1.0, 2.0], [3.0, 1.0]]), [0, 0])
    0.5
    """
    logits, labels = _pair(logits, labels)
    return float((np.take_along_axis(logits, labels[:, None], axis=1) < 0).mean())


def negative_log_likelihood(
    logits: Array, labels: Array, *, temperature: float = 1.0, weights: Array | None = None
) -> float:
    """Return the mean of ``-log p(true class)``.

    Args:
        logits, labels: [N, K] and [N].
        temperature: by which logits are divided before the softmax.
        weights: [N], of the samples; all the same if None.

    >>> round(negative_log_likelihood(np.array([[0.0, 0.0]]), [1]), 3)  # log 2
    0.693
    """
    scores, labels = _log_probabilities(logits, labels, temperature)
    # Of each sample, what its true class has.
    losses = -np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    return float(np.average(losses, weights=_check_weights(weights, len(losses))))


def calibration_error(
    logits: Array, labels: Array, *, bins: int = 15, temperature: float = 1.0
) -> float:
    """Return the ECE: the mean gap between confidence and accuracy over equal-width bins of confidence.

    ``sum over bins of n_b / N |confidence_b - accuracy_b|``, of the probability of the predicted class.

    Args:
        logits, labels: [N, K] and [N].
        bins: how many.
        temperature: by which logits are divided before the softmax.

    >>> logits = np.log([[3.0, 1.0], [3.0, 1.0]])  # both say 75 % for the first class, and one is right
    >>> round(calibration_error(logits, [0, 1]), 6)
    0.25

    Reference: Guo et al., On Calibration of Modern Neural Networks, 2017.
    """
    scores, labels = _log_probabilities(logits, labels, temperature)
    probability = np.exp(scores)
    confidence = probability.max(axis=1)
    correct = probability.argmax(axis=1) == labels
    # Of each bin the sum of both gaps: its mean, times its share of the samples.
    bins = check_whole("bins", bins)
    where = np.minimum((confidence * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(where, confidence - correct, bins)).sum() / len(correct))


def fit_temperature(
    logits: Array,
    labels: Array,
    *,
    low: float = 0.05,
    high: float = 20.0,
    weights: Array | None = None,
) -> float:
    """Return the temperature of least negative log-likelihood on held-out data.

    Args:
        logits, labels: [N, K] and [N].
        low, high: the temperatures between which it is.
        weights: [N], how often samples count: ``1 / n_k`` for those of class k makes it right for a
            uniform prior.

    Returns:
        T; ``softmax(logits / T)`` are then calibrated probabilities. It changes no prediction.

    >>> round(fit_temperature(np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]]), [0, 0, 1]), 3)  # 2 / log 2
    2.885
    """
    if not 0 < low < high:
        reason = f"expected two numbers above 0 that ascend, got {low} and {high}"
        raise LevelheadError(reason, parameter="low, high")
    values, checked_labels = _pair(check_logits(logits), labels)
    mass = _check_weights(weights, len(checked_labels))
    best = calibration.fit_temperature(values, checked_labels, mass)
    return float(np.clip(best, low, high))  # the loss has one minimum


@dataclass(frozen=True, eq=False)
class Measures:
    """All measures of one set of predictions. Errors and recalls are shares, not percent.

    >>> measures = measure(np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0]]), [0, 1, 1])
    >>> measures.worst_class, measures.worst_recall, measures.balanced_error
    (1, 0.5, 0.25)
    """

    n: int  #: how many samples there are
    error: float  #: the share that is wrong
    balanced_error: float  #: the mean of each class's own error
    recall: np.ndarray  #: [K], NaN for a class without samples
    precision: np.ndarray  #: [K], NaN for a class that is never predicted
    groups: dict[str, float]  #: the mean recall of many-, medium- and few-shot classes
    worst_class: int  #: the class of the least recall
    worst_recall: float  #: its recall
    negative_share: float  #: of samples whose true-class logit is negative
    calibration_error: float  #: the ECE, of 15 bins
    negative_log_likelihood: float  #: the mean, in nats


def measure(
    logits: Array,
    labels: Array,
    counts: Counts | None = None,
    *,
    names: Sequence[str] | None = None,
) -> Measures:
    """Return all measures at once.

    Args:
        logits, labels: [N, K] and [N], as in `tune`.
        counts: training samples of each class, for the mean recall of `counts.groups`.
        names: class names, if counts are given by name.

    Raises:
        LevelheadError: logits that are probabilities or not finite, labels that are no classes, or
            counts that do not fit.

    >>> measure(np.array([[2.0, 1.0], [2.0, 1.0]]), [0, 1], [500, 5]).groups
    {'many': 1.0, 'few': 0.0}
    """
    refuse_swapped(logits, labels, counts)
    values = check_logits(logits)
    labels, names = resolve_labels(values, labels, counts, names)
    labels = check_labels(labels, values.shape[1])
    # Groups by training counts, of those classes that have samples here.
    recalls = recall(values, labels)
    group_recalls = {}
    if counts is not None:
        for name, members in groups(resolve(counts, values.shape[1], names=names)).items():
            if not np.isnan(recalls[members]).all():  # a group without samples has none
                group_recalls[name] = float(np.nanmean(recalls[members]))
    worst = int(np.nanargmin(recalls))
    return Measures(
        n=len(labels),
        error=error(values, labels),
        balanced_error=float(1 - np.nanmean(recalls)),
        recall=recalls,
        precision=precision(values, labels),
        groups=group_recalls,
        worst_class=worst,
        worst_recall=float(recalls[worst]),
        negative_share=negative_share(values, labels),
        calibration_error=calibration_error(values, labels),
        # As they were given: -inf, a masked score, is but the lowest number among the values.
        negative_log_likelihood=negative_log_likelihood(logits, labels),
    )


def _pair(logits: Array, labels: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return logits [N, K] and labels [N], checked against each other."""
    logits = numeric_logits(logits)
    labels = check_labels(labels, logits.shape[1])
    check_one_per_row(labels, len(logits))
    return logits, labels


def _check_weights(weights: Array | None, n: int) -> np.ndarray | None:
    """Return the weights of n samples in float64, [N]; None, which is 1 each, as it is."""
    if weights is None:
        return None
    mass = to_numpy(weights)
    if mass.shape != (n,) or mass.dtype.kind not in "fiu":
        expected = f"expected numbers [{n}], one per sample"
        raise LevelheadError(f"{expected}, got shape {list(mass.shape)}", parameter="weights")
    if not (np.isfinite(mass).all() and (mass >= 0).all() and mass.any()):
        reason = "expected finite numbers, none negative and not all 0"
        raise LevelheadError(reason, parameter="weights")
    return mass.astype(np.float64)


def _log_probabilities(
    logits: Array, labels: Array, temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithms of the probabilities at a temperature, [N, K], and the labels [N]."""
    logits, labels = _pair(logits, labels)
    if not 0 < temperature < np.inf:
        raise LevelheadError(
            f"expected a positive number, got {temperature}", parameter="temperature"
        )
    lower_masked(logits)  # refuses what has no probabilities: NaN, and rows without a class
    return log_softmax(logits.astype(np.float64) / temperature), labels


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole, [K], and NaN where the whole is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
