"""The direction in which the features of held-out samples are 1, by which a head without a bias takes offsets.

A bias is the weight of a feature that is always 1. Where a head has none, its features f usually have a direction u
with ``f'u`` near 1 for every sample, all the same. It is found by ridge regression of 1 on the features:
``u = (F'F + ridge)^-1 F'1``. Then weights ``w_k + offset_k u`` add ``offset_k f'u`` to the score of class k: about the
offset. `f'u` is called the reach of the offsets: `tune` judges a choice by what arrives, and `heads.along` puts it
into the weights.

The alternative is to give the head a bias. Where a model's own code makes none, as of many models of transformers,
it would be lost when the model is saved and loaded; weights are not. The price is that the offset arrives with some
spread, which is measured here on samples that the direction has not seen, and told with the choice.

`check_features` checks what users give, `find_reach` is what `tune` calls, `constant_direction` the regression.
"""

from __future__ import annotations

import numpy as np

from ..support.arrays import Array, to_numpy
from ..support.errors import LevelheadError

MOST_SAMPLES = 10_000  # more tell nothing new, and cost N d^2
RIDGES = 10.0 ** np.arange(-8.0, 2.0)  # in units of the features' mean square
FARTHEST = 0.5  # of f'u from 1: farther, most of an offset would be lost


def check_features(
    features: Array, *, samples: int | None = None, width: int | None = None
) -> np.ndarray:
    """Return features [N, d] as an array, checked.

    Args:
        features: an array or a tensor of finite numbers.
        samples: N, if it is known.
        width: d, if it is known.

    Raises:
        LevelheadError: another shape, no floats, a single sample, or numbers that are not finite.
    """
    values = to_numpy(features)
    expected_shape = f"[{samples or 'N'}, {width or 'd'}]"
    fits = values.ndim == 2 and values.dtype.kind == "f" and values.shape[1] > 0
    if fits:
        fits = samples in (None, len(values)) and width in (None, values.shape[1])
    if not fits:
        shape_text = f"got {list(values.shape)} of {values.dtype}"
        expected = f"expected numbers {expected_shape}, what the head takes, of held-out samples"
        raise LevelheadError(f"{expected}, {shape_text}", parameter="features")
    if len(values) < 2:
        raise LevelheadError(f"expected several samples, got {len(values)}", parameter="features")
    if not np.isfinite(values).all():
        raise LevelheadError("expected finite numbers, got NaN or infinity", parameter="features")
    return values


def find_reach(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the direction u [d] of features [N, d], and of each sample ``f'u`` by a u that has not seen it, [N].

    Of many samples, some evenly spaced ones make u; all others are new to it. Those that make it are
    taken as if each had been left out (`constant_direction`).

    Raises:
        LevelheadError: if ``f'u`` is so far from 1 that most of an offset would be lost.
    """
    step = -(-len(features) // MOST_SAMPLES)
    direction, unseen = constant_direction(features[::step].astype(np.float64))
    # In blocks, as each is widened to float64.
    starts = range(0, len(features), MOST_SAMPLES)
    reach = np.concatenate([features[i : i + MOST_SAMPLES] @ direction for i in starts])
    reach[::step] = unseen
    distance = float(np.sqrt(np.mean((reach - 1) ** 2)))
    if not distance <= FARTHEST:
        near = f"{reach.mean():.2f} ± {reach.std():.2f}"
        reason = f"no direction in them is 1 for all samples ({near})"
        lost = "so that offsets would be lost in a head without a bias"
        instead = "tune with the rule scales or rescale, which only multiply"
        raise LevelheadError(f"{reason}, {lost}; {instead}", parameter="features")
    return direction, reach


def constant_direction(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the direction u [d] in which features [N, d] are nearest to 1, and each ``f'u`` where u has not seen f.

    The ridge is the one with the smallest error on samples left out, one by one. With F = U S V' and p_j = s_j^2 /
    (s_j^2 + ridge), a fit gives ``y = U p U'1``, its leverages are ``h_i = sum_j p_j U_ij^2``, and what the fit without
    sample i would give for it is ``(y_i - h_i) / (1 - h_i)``. So one decomposition serves every ridge and every sample.

    >>> features = np.column_stack([np.ones(50), np.random.default_rng(0).normal(size=50)])
    >>> direction, unseen = constant_direction(features)
    >>> bool(abs(direction[0] - 1) < 1e-3), bool(np.abs(unseen - 1).max() < 1e-3)
    (True, True)
    """
    left, lengths, right = np.linalg.svd(features, full_matrices=False)
    squares = lengths**2
    if not squares[0] > 0:  # all features are 0
        return np.zeros(features.shape[1]), np.zeros(len(features))
    ridges = RIDGES * squares.sum() / features.shape[1]
    kept = squares[:, None] / (squares[:, None] + ridges)  # p [d, ridges]
    onto = left.sum(axis=0)  # U'1
    # Of every ridge at once, [N, ridges]: what it fits, and what it would without each sample. Where
    # a sample decides its own fit alone, its leverage is 1 and nothing is known without it.
    fits = left @ (kept * onto[:, None])
    leverages = np.minimum(left**2 @ kept, 1 - 1e-9)
    unseen = (fits - leverages) / (1 - leverages)
    best = int(np.argmin(((unseen - 1) ** 2).mean(axis=0)))
    # u = V s / (s^2 + ridge) U'1
    weights = lengths / (squares + ridges[best]) * onto
    return right.T @ weights, unseen[:, best]
