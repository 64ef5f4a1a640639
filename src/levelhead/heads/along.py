"""Offsets in a head without a bias: along the direction in which the features of held-out samples are 1.

A bias is the weight of a feature that is always 1. Where a head has none, features usually have such a direction all
the same: a u with ``f'u`` near 1 for every sample, by ridge regression of 1 on the features:
``u = (F'F + ridge)^-1 F'1``. Then ``w_k + offset_k u`` adds about ``offset_k`` to each score of class k, and only
weights change, which every library saves and loads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.adjustment import Adjustment
from ..core.head import Head
from ..support.arrays import Array, like, narrow, to_numpy, widen
from ..support.errors import LevelheadError
from .candidates import TUNE_SCALES

MOST_SAMPLES = 10_000  # more tell nothing new, and cost N d^2
RIDGES = 10.0 ** np.arange(-8.0, 2.0)  # in units of the features' mean square
FARTHEST = 0.5  # of f'u from 1: farther, most of an offset would be lost


@dataclass(frozen=True, eq=False)
class Along:
    """How offsets were put into the weights of a head that has no bias: ``w_k + offset_k u``.

    Args:
        direction: u [d], for which ``f'u`` is near 1 for the features f of held-out samples.
        mean, spread: mean and standard deviation of ``f'u`` on samples that u has not seen: each
            logit of class k gets this much of its offset.
        samples: how many features there were.
        agrees: share of them that are predicted as the offsets themselves would.
    """

    direction: np.ndarray
    mean: float
    spread: float
    samples: int
    agrees: float

    @property
    def text(self) -> str:
        """What the result says of it."""
        reach = f"the logits get {self.mean:.2f} ± {self.spread:.2f} of each offset"
        return f"no bias: {reach}, and {self.agrees:.1%} of the predictions are those of a bias"


def put_along(head: Head, adjustment: Adjustment, features: Array) -> tuple[Head, Along]:
    """Return an adjusted head without a bias, and how the offsets are in its weights.

    Args:
        head: weight [K, d], without a bias.
        adjustment: what is done to each class.
        features: [N, d], what the head takes, of held-out samples.
    """
    values = _check_features(features, head.weight.shape[1])
    direction, reach = constant_direction(values)
    distance = float(np.sqrt(np.mean((reach - 1) ** 2)))
    mean = float(reach.mean())
    spread = float(reach.std())
    if not distance <= FARTHEST:
        reason = f"no direction in them is 1 for all samples ({mean:.2f} ± {spread:.2f})"
        lost = "so that offsets would be lost in a head without a bias"
        raise LevelheadError(f"{reason}, {lost}; {TUNE_SCALES}", parameter="features")
    by = adjustment.for_rows(head.classes)
    scaled = replace(by, offset=np.zeros(by.classes)).head(head)
    wide = widen(scaled.weight)
    shifted = wide + like(by.offset[:, None] * direction, wide)
    after = replace(scaled, weight=narrow(shifted, scaled.weight)).checked("the shifted head")
    agrees = _agreement(head, after, by, values)
    return after, Along(direction, mean, spread, len(values), agrees)


def constant_direction(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the direction u [d] in which features [N, d] are nearest to 1, and each ``f'u`` where u has not seen f.

    The ridge is the one with the smallest error on samples left out, one by one. With F = U S V' and p_j = s_j^2 /
    (s_j^2 + ridge), a fit gives ``y = U p U'1``, its leverages are ``h_i = sum_j p_j U_ij^2``, and what the fit without
    sample i would give for it is ``(y_i - h_i) / (1 - h_i)``.
    """
    left, lengths, right = np.linalg.svd(features, full_matrices=False)
    squares = lengths**2
    if not squares[0] > 0:
        return np.zeros(features.shape[1]), np.zeros(len(features))
    ridges = RIDGES * squares.sum() / features.shape[1]
    kept = squares[:, None] / (squares[:, None] + ridges)  # p [d, ridges]
    onto = left.sum(axis=0)  # U'1
    fits = left @ (kept * onto[:, None])
    leverages = np.minimum(left**2 @ kept, 1 - 1e-9)
    unseen = (fits - leverages) / (1 - leverages)
    best = int(np.argmin(((unseen - 1) ** 2).mean(axis=0)))
    weights = lengths / (squares + ridges[best]) * onto
    return right.T @ weights, unseen[:, best]


def _check_features(features: Any, width: int) -> np.ndarray:
    """Return features [N, d] in float64, at most so many of them."""
    values = to_numpy(features)
    if values.ndim != 2 or values.shape[1] != width or values.dtype.kind != "f":
        got = f"got {list(values.shape)} of {values.dtype}"
        expected = f"expected numbers [N, {width}], what the head takes, of held-out samples"
        raise LevelheadError(f"{expected}, {got}", parameter="features")
    if len(values) < 2:
        raise LevelheadError(f"expected several samples, got {len(values)}", parameter="features")
    step = -(-len(values) // MOST_SAMPLES)
    values = values[::step].astype(np.float64)
    if not np.isfinite(values).all():
        raise LevelheadError("expected finite numbers, got NaN or infinity", parameter="features")
    return values


def _agreement(before: Head, after: Head, by: Adjustment, features: np.ndarray) -> float:
    """Return the share of samples that a head predicts as the offsets themselves would."""
    plain, put = (to_numpy(head.weight).astype(np.float64) for head in (before, after))
    wanted = by.scores(features @ plain.T)
    given = features @ put.T
    if by.classes == 1:
        return float(np.mean((wanted > 0) == (given > 0)))
    return float(np.mean(wanted.argmax(axis=1) == given.argmax(axis=1)))
