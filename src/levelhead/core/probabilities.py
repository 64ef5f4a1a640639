"""Probabilities as scores: their logarithms, and votes of which some are 0.

A rule adds to logits. Of probabilities, the logarithm is such a score: the softmax of ``log p + offset``
is ``p exp(offset)``, scaled to sum to 1. Of several labels per sample, which do not compete, it is
``log p / (1 - p)``, whose sigmoid is p.

`Given.samples` smooths what a rule is fitted on, and keeps by how much; `Tuned.apply` takes logarithms in the
same way and smooths by the same number, so that the scores of new samples are of the kind that was tuned on.
"""

from __future__ import annotations

import numpy as np

from ..support.arrays import Array, is_torch
from ..support.errors import Advice, LevelheadError
from ..support.logits import LARGEST_PROBABILITY, log_of_shares, refuse_percentages

# What `log_of_shares` makes of a probability of 0 is less: of float64, and of whatever it widens to float32.
_LOG_OF_ZERO = -708.0
_LOG_OF_ZERO_IN_FLOAT32 = -87.0
_LEAST_VOTE = 1e-4  # the smallest probability that 0 is taken for


def log_of_probabilities(values: Array) -> Array:
    """Return the logarithms of probabilities, in float32 or better; 0 becomes the least that this holds.

    Args:
        values: [..., K], an array or a tensor.

    Raises:
        LevelheadError: a number below 0 or above 1 (but for rounding), such as logits or percentages.
    """
    _refuse_others(values)
    return log_of_shares(values)


def logit_of_probabilities(values: Array) -> Array:
    """Return ``log p / (1 - p)`` in float64, where 0 and 1 are 2^-53 and 1 - 2^-53.

    So both ends are finite, about -36.7 and 36.7: no offset of a usual size turns a label around that the
    model is certain of.

    >>> logit_of_probabilities(np.array([0.5, 0.75])).round(3)
    array([0.   , 1.099])
    """
    _refuse_others(values)
    least = 2.0**-53
    if is_torch(values):
        return values.double().clamp(least, 1 - least).logit()
    inside = np.clip(np.asarray(values, np.float64), least, 1 - least)
    return np.log(inside) - np.log1p(-inside)


def smooth_votes(logs: Array, smoothing: float | None = None) -> tuple[Array, float]:
    """Return ``log(p + smoothing)`` of logarithms of probabilities, and the smoothing.

    Votes of an ensemble are often 0, which says "fewer than one vote", and whose logarithm no
    offset can use: a class without a vote would stay without a sample. Smoothed, it is as if each class
    had one vote more.

    Args:
        logs: [..., K], logarithms of probabilities, an array or, where the smoothing is given, a tensor.
        smoothing: what is added to probabilities. If None, it is the least positive probability, at
            least 0.0001, if there are zeros, and 0 otherwise.

    >>> logs, smoothing = smooth_votes(np.array([[-np.inf, np.log(0.25), np.log(0.75)]]))
    >>> np.exp(logs), smoothing
    (array([[0.25, 0.5 , 1.  ]]), 0.25)
    """
    if smoothing is None:
        # Below what float32 holds, float64 has small probabilities of its own, which are no votes of 0.
        least = logs.min(initial=0.0)
        log_of_zero = _LOG_OF_ZERO
        if least > _LOG_OF_ZERO_IN_FLOAT32 - 1:
            log_of_zero = _LOG_OF_ZERO_IN_FLOAT32
        if least > log_of_zero:
            return logs, 0.0
        least_vote = float(np.exp(logs[logs > log_of_zero].min(initial=0.0)))
        smoothing = max(_LEAST_VOTE, least_vote)
    if smoothing == 0:
        return logs, 0.0
    if is_torch(logs):
        return logs.logaddexp(logs.new_tensor(np.log(smoothing))), smoothing
    return np.logaddexp(logs, np.log(smoothing)), smoothing


def _refuse_others(values: Array) -> None:
    """Raise LevelheadError unless all values can be probabilities; the message shows the worst of them."""
    negative = bool((values < 0).any())
    if not negative and not bool((values > LARGEST_PROBABILITY).any()):
        return
    # Percentages are a mistake of their own, with a message of their own.
    refuse_percentages(values.reshape(-1, values.shape[-1]))
    worst = float(values.max())
    if negative:
        worst = float(values.min())
    raise LevelheadError(
        f"expected probabilities, from 0 to 1, got {worst:g}; this was tuned on probabilities",
        parameter="scores",
        advice=Advice("kind", "logits", "to `tune` if these are logits"),
    )
