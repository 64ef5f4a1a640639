"""Two ways to estimate how often classes occur among unlabelled samples, under label shift.

Under label shift the classes look as they did in training, but occur in other proportions: ``p(x | k)``
stays. Then

- `Em` maximizes the likelihood of the unlabelled samples, ``sum_i log sum_k share_k p(k | x_i) / prior_k``, by
  ``share_k <- mean_i p_new(k | x_i)`` with ``p_new(k | x) ~ share_k p(k | x) / prior_k``. It needs
  probabilities that are calibrated for the training prior. Held-out samples calibrate them, as in
  per_class.py. One sample more of each class keeps rare classes, of which a few hundred samples tell little,
  from being taken for absent.
- `Bbse` needs no probabilities. It solves ``confusion @ shares = predicted``: the share of each class's
  held-out samples that is predicted as each class, and the shares of the predictions among the unlabelled
  samples.

Both are made of the samples once, and then asked for `shares`: of all samples, or of a resample, in which
unlabelled samples weigh `weights` [M] and held-out ones count `times` [N].

References: Saerens et al., Adjusting the Outputs of a Classifier to New a Priori Probabilities, 2002; Lipton
et al., Detecting and Correcting for Label Shift with Black Box Predictors, 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from ..support.arrays import Array
from ..support.errors import LevelheadError
from ..support.logits import log_softmax
from ..support.warnings import LevelheadWarning, PriorWarning
from .class_names import title
from .per_class import LogLoss, Mask
from .samples import Samples

_LEAST_SHARE = 1e-12  # EM never takes a share from 0
_MORE = 1.0  # samples that EM counts of each class beside those seen
# Samples that EM counts beside those seen for a decision: so many times K, as the roots of the training
# counts. Chosen among 4 to 32 on the sets of bench/decisions at five mixes; docs/decisions.md has what comes
# of it. As training's shares they gain less there, as equal ones they risk more.
_USUAL = 16.0
_STEPS = 500  # the most that EM takes, two at once
# Of the confusion matrix: below, errors of the predicted shares may grow tenfold.
_LEAST_SINGULAR_VALUE = 0.1


class Labelled(NamedTuple):
    """Held-out samples."""

    scores: np.ndarray  # [N, K]
    labels: np.ndarray  # [N]


class Estimator(Protocol):
    """A way to estimate the shares of the classes: what `estimate_prior` asks, of either."""

    def shares(
        self, weights: np.ndarray | None = None, times: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the shares, [K].

        Args:
            weights: [M], what each unlabelled sample counts; 1 if None.
            times: [N], how often each held-out sample does; once if None.
        """
        ...

    def target(self) -> np.ndarray:
        """Return shares to decide by, [K]: where samples say little, what is usual may count more."""
        ...

    def doubt(self) -> LevelheadWarning | None:
        """Return what speaks against the estimate, if anything."""
        ...


@dataclass(frozen=True, eq=False)
class Em:
    """Shares of greatest likelihood, by expectation and maximization (Saerens et al. 2002).

    The ratios ``p(k | x) / prior_k`` [M, K] are computed once; each resample only weighs their rows anew,
    and moves the calibration by one Newton step instead of fitting it again.

    Args:
        unlabelled: [M, K], logits or logarithms of probabilities.
        counts: [K], of the training.
        labelled: held-out samples that calibrate them; without these, they are taken as they are.
    """

    unlabelled: np.ndarray
    counts: np.ndarray
    labelled: Labelled | None

    def shares(
        self, weights: np.ndarray | None = None, times: np.ndarray | None = None
    ) -> np.ndarray:
        if weights is None and times is None:
            return self._whole
        ratios = self._ratios
        if times is not None and self._loss is not None:
            ratios = self._ratios_by(self._loss, self._loss.refit(times, self._fit))
        if weights is None:
            weights = self._every
        return maximize_shares(ratios, weights, self._whole, _MORE)

    def target(self) -> np.ndarray:
        """Return shares nearer to what is usual where the samples leave it open, [K].

        As if some samples more had been seen, in shares as the square roots of the training counts: halfway
        between training's mix and equal shares.
        """
        roots = np.sqrt(self.counts)
        usual = _USUAL * len(roots) * roots / roots.sum()
        return maximize_shares(self._ratios, self._every, more=usual)

    def doubt(self) -> None:
        return None

    @property
    def _every(self) -> np.ndarray:
        return np.ones(len(self.unlabelled))

    @cached_property
    def _whole(self) -> np.ndarray:
        """The shares of all samples, [K]; those of resamples are looked for from there."""
        return maximize_shares(self._ratios, self._every, more=_MORE)

    @cached_property
    def _loss(self) -> LogLoss | None:
        """What the calibration minimizes on the held-out samples."""
        if self.labelled is None:
            return None
        return calibrated_loss(self.labelled, self.counts)

    @cached_property
    def _fit(self) -> Array:
        """The calibration by all held-out samples."""
        assert self._loss is not None
        return self._loss.fit()

    @cached_property
    def _ratios(self) -> np.ndarray:
        """``p(k | x_i) / prior_k``, [M, K], up to a factor for each sample: that is p(x_i | k)."""
        if self._loss is None:
            return np.exp(log_softmax(self.unlabelled - np.log(self.counts)))
        return self._ratios_by(self._loss, self._fit)

    def _ratios_by(self, loss: LogLoss, fit: Array) -> np.ndarray:
        """Return the ratios of scores that a fit has calibrated for the training mix."""
        calibrated = loss.adjustment(fit).scores(self.unlabelled) / loss.temperature
        return np.exp(log_softmax(calibrated - np.log(self.counts)))


@dataclass(frozen=True, eq=False)
class Bbse:
    """Shares that explain the predictions, by the confusion matrix of held-out samples (Lipton et al. 2018).

    ``confusion [K, K] @ shares = predicted``: how often each class is predicted among the unlabelled
    samples is a mix of how often it is predicted for each true class. Solved by least squares, and
    taken to the nearest shares that there can be.

    Predictions are of calibrated logits, shifted by the counts: a class that is never predicted leaves
    no trace.

    Args:
        unlabelled: [M, K], logits or logarithms of probabilities.
        counts: [K], of the training.
        labelled: held-out samples.
        names: of the classes, where they are known, for messages.
    """

    unlabelled: np.ndarray
    counts: np.ndarray
    labelled: Labelled
    names: Sequence[str] | None

    def __post_init__(self) -> None:
        sizes = np.bincount(self.labelled.labels, minlength=len(self.counts))
        if not sizes.all():
            which = f"{title(int(np.argmin(sizes)), self.names)} has no held-out sample"
            reason = f"{which}, so 'bbse' cannot know how it is predicted; add some, or use 'em'"
            raise LevelheadError(reason, parameter="held_out")

    def shares(
        self, weights: np.ndarray | None = None, times: np.ndarray | None = None
    ) -> np.ndarray:
        if weights is None:
            weights = np.ones(len(self.unlabelled))
        predicted = np.bincount(self._predicted, weights, len(self.counts)) / weights.sum()
        solution = np.linalg.lstsq(self._confusion(times), predicted, rcond=None)[0]
        return project_on_simplex(solution)

    def target(self) -> np.ndarray:
        return self.shares()

    def doubt(self) -> LevelheadWarning | None:
        """Return a warning if the confusion matrix is near singular."""
        least = float(np.linalg.svd(self._confusion(None), compute_uv=False)[-1])
        if least >= _LEAST_SINGULAR_VALUE:
            return None
        singular = f"near singular (least singular value {least:.2g})"
        return PriorWarning(
            f"the confusion matrix of the held-out samples is {singular}: some classes are "
            "predicted alike, and their shares are hardly known; see the interval, or use 'em'"
        )

    def _predict(self, scores: np.ndarray) -> np.ndarray:
        return (scores / self._temperature - np.log(self.counts)).argmax(axis=1)

    @cached_property
    def _temperature(self) -> float:
        return calibrated_loss(self.labelled, self.counts).temperature

    @cached_property
    def _predicted(self) -> np.ndarray:
        """What the unlabelled samples are predicted, [M]."""
        return self._predict(self.unlabelled)

    @cached_property
    def _held_out_predicted(self) -> np.ndarray:
        """What the held-out samples are predicted, [N]."""
        return self._predict(self.labelled.scores)

    def _confusion(self, times: np.ndarray | None) -> np.ndarray:
        """Return the share of each class's samples, the columns, that is predicted each class, [K, K]."""
        size = len(self.counts)
        cells = self._held_out_predicted * size + self.labelled.labels
        table = np.bincount(cells, times, size * size).reshape(size, size)
        return table / table.sum(axis=0)


def calibrated_loss(labelled: Labelled, counts: np.ndarray) -> LogLoss:
    """Return the log loss of held-out samples, of which vector scaling is the calibration.

    All samples are in one fold: nothing is judged here. Its `fit` is a scale and an offset for each class,
    its `temperature` the T before these.
    """
    one_fold = np.zeros(len(labelled.labels), np.uint8)
    samples = Samples(labelled.scores, labelled.labels, counts.astype(np.float64), one_fold)
    return LogLoss.of(samples, Mask(scales=True, offsets=True))


def maximize_shares(
    ratios: np.ndarray,
    weights: np.ndarray,
    start: np.ndarray | None = None,
    more: float | np.ndarray = 0.0,
) -> np.ndarray:
    """Return the shares [K] of greatest ``sum_i w_i log(ratios share)_i + sum_k more_k log share_k``.

    Two steps of EM give a direction and its bend; a longer step along both is taken if it raises the
    likelihood (SQUAREM, Varadhan and Roland 2008).

    Args:
        ratios: [M, K], ``p(k | x_i) / prior_k``, up to a factor for each sample.
        weights: [M], what each sample counts.
        start: [K], shares to begin with; equal ones if None.
        more: samples that are counted of each class, or [K] of each, beside those seen. A Dirichlet
            prior, in other words, under which no share becomes 0.

    Returns:
        [K], which sum to 1.

    >>> certain = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> maximize_shares(certain, np.ones(4)).round(6)
    array([0.75, 0.25])
    """
    size = ratios.shape[1]
    beside = np.broadcast_to(more, size)
    total = weights.sum() + beside.sum()
    mass = weights / total
    added = beside / total

    def step(shares: np.ndarray) -> np.ndarray:
        """Return the shares after a step of EM: the mean of each sample's probabilities by them."""
        return np.maximum(shares * (ratios.T @ (mass / (ratios @ shares))) + added, _LEAST_SHARE)

    def likelihood(shares: np.ndarray) -> float:
        return float(mass @ np.log(ratios @ shares) + added @ np.log(shares))

    # From equal shares, or near a solution that is known; never from 0, which EM cannot leave.
    shares = np.full(size, 1 / size)
    if start is not None:
        shares = np.maximum(start, 1e-6)
    shares = shares / shares.sum()
    for _ in range(_STEPS):
        once = step(shares)
        twice = step(once)
        if np.abs(twice - once).max() < 1e-9:
            return twice / twice.sum()
        # Along a parabola through the three, as far as its bend lets expect.
        moved = once - shares
        bend = twice - 2 * once + shares
        length = max(1.0, float(np.sqrt((moved @ moved) / max(bend @ bend, 1e-300))))
        far = np.maximum(shares + 2 * length * moved + length**2 * bend, _LEAST_SHARE)
        far /= far.sum()
        if likelihood(far) >= likelihood(twice):
            shares = step(far)
        else:
            shares = twice
    return shares / shares.sum()


def project_on_simplex(values: np.ndarray) -> np.ndarray:
    """Return the nearest numbers [K] that are not negative and sum to 1 (Duchi et al. 2008).

    >>> project_on_simplex(np.array([0.9, 0.3, -0.1])).round(3)
    array([0.8, 0.2, 0. ])
    """
    # The same number is taken from all that stay above 0: from the largest m, the m-th entry here.
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(values) + 1)
    last = np.flatnonzero(descending > excess)[-1]
    return np.maximum(values - excess[last], 0)
