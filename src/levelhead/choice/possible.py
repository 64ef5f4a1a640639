"""The intervals of gamma on which a replicate can choose at all.

A replicate's error at a gamma differs from that at the best gamma by the samples that change between the two, and sums
of independent draws keep near their mean. So far from the best gamma, no replicate's error alone can be as low as the
whole criterion at the best one, except with a chance too small to be seen.
"""

from typing import Any

import numpy as np

CHANCE = 1e-12  # that one replicate would choose on one of the intervals left out


def possible_intervals(objective: Any, strength: float) -> tuple[int, int]:
    """Return the first and the last interval on which a replicate can choose.

    Left out are intervals g for which ``error(g) - error(best) - t(g) > allowance``. By Bernstein's inequality, the
    difference of a replicate's errors falls by t(g) only with the chance above. The allowance is the most that pull
    and mismatch add at the best gamma: ``E |x| <= sqrt((E x)^2 + var x)`` for each class's share, and McDiarmid's
    inequality for the distance of their sum from its mean.

    Args:
        objective: an `Objective` whose metric is an error, without floors.
        strength: how much the mismatch of shares counts.
    """
    grid, weights, error = objective.grid, objective.weights, objective.error()
    best = grid.lowest(objective.values(error, strength=strength))
    doubt, path = -np.log(CHANCE), objective.path
    _, _, _, sample = path.events
    moved = grid.accumulate(0.0, grid.bins(path.events[1]), weights[sample] ** 2)
    variance, least = np.abs(moved - moved[best]), 2 / 3 * doubt * weights.max()
    falls = least + np.sqrt(least**2 + 2 * doubt * variance)
    low = error - error[best] - falls <= _most_added(objective, strength, best, doubt)
    return _ends(low)


def possible_by_shares(mismatch: Any) -> tuple[int, int]:
    """Return the first and the last interval on which a replicate can choose by the mismatch of shares alone.

    The mismatch is ``max_S share(S) - prior(S)`` over sets of classes. For the S of all samples that is a mean of
    independent draws, which Hoeffding's inequality keeps near the mismatch of all samples.

    Args:
        mismatch: a `ShareMismatch` of samples that weigh the same.
    """
    values, n, doubt = mismatch.values(), len(mismatch.changes.start), -np.log(CHANCE)
    best = mismatch.grid.lowest(values)
    most = _most_mismatch(mismatch, np.full(n, 1 / n), mismatch.grid.middles[best], doubt)
    return _ends(values - np.sqrt(doubt / 2 / n) <= most)


def _ends(low: np.ndarray) -> tuple[int, int]:
    """Return the first and the last interval that is low."""
    return int(np.argmax(low)), int(len(low) - 1 - np.argmax(low[::-1]))


def _most_added(objective: Any, strength: float, best: int, doubt: float) -> float:
    """Return the most that pull and mismatch add to a replicate's error on the interval `best`."""
    sizes, gamma = np.bincount(objective.path.labels, minlength=len(objective.target)), objective.grid.middles[best]
    largest = float(np.sqrt((objective.prior**2 / (sizes + 2)).sum() / 4))  # of any replicate's standard error
    added = 0.0 if objective.pull is None else float(objective.pull.values(np.array([gamma]), largest)[0])
    if objective.mismatch is None or strength == 0:
        return added
    n, weights = len(objective.changes.start), objective.mismatch.weights
    mismatch = _most_mismatch(objective.mismatch, np.full(n, 1 / n) if weights is None else weights, gamma, doubt)
    return added + min(1.0, strength * largest) * mismatch


def _most_mismatch(mismatch: Any, weights: np.ndarray, gamma: float, doubt: float) -> float:
    """Return the largest mismatch that a replicate of samples that weigh `weights` [N] can have at gamma."""
    predicted, prior = mismatch.changes.predictions(gamma), mismatch.prior
    off = np.bincount(predicted, weights, len(prior)) - prior
    square = np.bincount(predicted, weights**2, len(prior))
    return float(np.sqrt(off**2 + square).sum() / 2 + np.sqrt(doubt / 2 * square.sum()))
