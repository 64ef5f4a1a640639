"""Class-balanced vector scaling: a scale and an offset per class, fitted on held-out scores.

``score_k = scale_k * logit_k + offset_k``. With ``z = logits / T``, and m_k and d_k the mean and the standard
deviation of column k, the scores are ``z_k + log(prior_k / n_k) + a_k (z_k - m_k) / d_k + c_k``. T is the temperature
of least log loss where classes weigh as in training. At a = c = 0 the scores are those of the counts' shift at 1, which
is all that a calibrated model needs. The 2 K numbers a and c minimize

    ``sum_i w_i (logsumexp(scores_i) - scores_i[y_i]) + ridge / 2 sum_k (a_k^2 + c_k^2)``

where the weights w of the samples of class k sum to prior_k. So the penalty is on how far the scores move from the
counts' shift, whatever the units of the logits. The sum is convex. Newton's steps, found by conjugate gradients, need
no table of second derivatives. The ridge is the one of `RIDGES` with the least cross-fitted log loss.

Reference: Guo et al., On Calibration of Modern Neural Networks, 2017; Alexandari et al., Maximum Likelihood with
Bias-Corrected Calibration is Hard-To-Beat at Label Shift Adaptation, 2020.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.array import SCRATCH, fit_scale, log_softmax
from ..core.errors import LevelheadError
from ..path.resample import draw_folds

RIDGES = (np.inf, 1.0, 0.3, 0.1, 0.03, 0.01)  # infinity is the counts' shift itself
_FOLDS = 5
_LEAST_SHARE = 1e-6  # a class that never occurs has an offset that is low but finite
_LEAST_SCALE = 0.05  # of the common scale: a class whose own logit hardly counts, or counts against it, is overfitted


def fit_vector(
    logits: np.ndarray,
    labels: np.ndarray,
    counts: np.ndarray,
    *,
    prior: np.ndarray | None = None,  # [K], the weight of each class; uniform if not given
    ridge: float | None = None,  # what `choose_ridge` returns if not given
    start: np.ndarray | None = None,  # [2, K], parameters of similar samples to begin at
    near: float | None = None,  # and their temperature
) -> tuple[np.ndarray, np.ndarray]:
    """Return a scale and an offset per class, [K] each, fitted by log loss with a ridge toward the counts' shift."""
    wide = logits.astype(np.float64)
    ridge = choose_ridge(wide, labels, counts, prior=prior) if ridge is None else ridge
    loss = vector_loss(wide, labels, counts, prior, near=near)
    scale, offset = loss.affine(loss.minimum_at(ridge, start))
    if scale.min() < _LEAST_SCALE * loss.inverse:
        scale, offset = _fit_path(loss, (*(r for r in RIDGES if r > ridge), ridge))[-1]
    return scale, offset


def choose_ridge(
    logits: np.ndarray, labels: np.ndarray, counts: np.ndarray, *, prior: np.ndarray | None = None
) -> float:
    """Return the one of `RIDGES` with the least log loss on samples that the numbers were not fitted on: five folds."""
    if np.bincount(labels).max() < 2:
        raise LevelheadError("expected a class with at least two samples, got one sample per class", parameter="labels")
    fold = draw_folds(labels, _FOLDS, np.random.default_rng(0))
    whole = vector_loss(logits, labels, counts, prior)
    losses, near = np.zeros(len(RIDGES)), 1 / whole.inverse
    for left_out in np.unique(fold):
        held = fold == left_out
        true, weights = labels[held], whole.weights[held]
        loss = vector_loss(logits[~held], labels[~held], counts, prior, near=near)
        for i, (scale, offset) in enumerate(_fit_path(loss, RIDGES, tolerance=1e-5)):
            losses[i] -= weights @ log_softmax(scale * logits[held] + offset)[np.arange(len(true)), true]
    return float(RIDGES[int(losses.argmin())])


@dataclass(eq=False)
class VectorLoss:
    """The penalized log loss of held-out samples: of parameters [2, K], a and c of the module's formula."""

    logits: np.ndarray  # [N, K] in float64
    labels: np.ndarray  # [N]
    weights: np.ndarray  # [N], sum to 1
    shift: np.ndarray  # [K], ``log(prior_k / n_k)``
    inverse: float  # 1 / T
    ridge: float = 0.0

    @cached_property
    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Weighted mean and standard deviation of the calibrated logits, [K] each; 1 if a column is constant."""
        mean = self.calibrated @ self.weights
        spread = np.sqrt((self.calibrated - mean[:, None]) ** 2 @ self.weights)
        return mean, np.where(spread > 1e-9 * (1 + np.abs(mean)), spread, 1.0)

    @cached_property
    def calibrated(self) -> np.ndarray:
        """``logits / T``, [K, N]: a class is a row, so that sums over classes are of long rows."""
        return self.inverse * np.ascontiguousarray(self.logits.T)

    @cached_property
    def standard(self) -> np.ndarray:
        """The calibrated logits of each class with mean 0 and standard deviation 1, [K, N]."""
        mean, spread = self.columns
        return (self.calibrated - mean[:, None]) / spread[:, None]

    @cached_property
    def free(self) -> np.ndarray:
        """Whether a class has a sample, [K]. All others stay at the counts' shift."""
        return np.bincount(self.labels, self.weights, len(self.shift)) > 0

    def minimum_at(self, ridge: float, parameters: np.ndarray | None = None, *, tolerance: float = 1e-7) -> np.ndarray:
        """Return the minimum with another ridge; an infinite one leaves the parameters at 0."""
        if not np.isfinite(ridge):
            return np.zeros((2, len(self.shift)))
        assert self._observed is not None  # computed now, with all it needs, none of which depends on the ridge
        other = copy(self)
        other.ridge = ridge
        return other.minimum(parameters, tolerance=tolerance)

    def minimum(self, parameters: np.ndarray | None = None, *, tolerance: float = 1e-7) -> np.ndarray:
        """Return the parameters [2, K] of least loss, from those given or from 0, to where slopes are within this."""
        found = np.zeros((2, len(self.shift))) if parameters is None else parameters * self.free
        value, probability = self.look(found)
        spare = np.empty_like(probability)  # fresh memory costs more than what is done with it
        for _ in range(100):
            gradient = self.gradient(found, probability)
            if np.abs(gradient).max() < tolerance:
                break
            # Newton's direction, and half of it as long as the loss falls by less than its slope promises (Armijo).
            step, size = _solve(self.curvature(probability), -gradient), 1.0
            decrease = float((gradient * step).sum())
            while True:
                lower, spare = self.look(found + size * step, spare)
                if lower <= value + 1e-4 * size * decrease or size < 1e-8:
                    break
                size /= 2
            if lower >= value:
                break
            found, value, probability, spare = found + size * step, lower, spare, probability
        return found

    def look(self, parameters: np.ndarray, out: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        """Return the loss with its penalty, and the probabilities [K, N], in the table given, if any."""
        a, c = parameters
        found = np.multiply(a[:, None], self.standard, out=out)  # first the scores
        found += self.calibrated
        found += (self.shift + c)[:, None]
        found -= found.max(axis=0)
        true = found[self.labels, np.arange(len(self.labels))]
        np.exp(found, out=found)
        total = found.sum(axis=0)
        found /= total
        return float(0.5 * self.ridge * (parameters**2).sum() + self.weights @ (np.log(total) - true)), found

    def gradient(self, parameters: np.ndarray, probability: np.ndarray) -> np.ndarray:
        """Return the derivatives by the parameters, [2, K]."""
        return self._collect(probability) - self._observed + self.ridge * parameters

    def curvature(self, probability: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return what multiplies a direction [2, K] by the second derivatives."""

        def product(direction: np.ndarray) -> np.ndarray:
            room = SCRATCH.table("moved", probability.shape)
            moved = np.multiply(direction[0][:, None], self.standard, out=room)
            moved += direction[1][:, None]
            moved -= np.einsum("ki,ki->i", probability, moved)
            moved *= probability  # (diag(p) - p p^T) times how the direction moves the scores
            return self._collect(moved) + self.ridge * direction

        return product

    def affine(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return scale and offset, [K] each, of the logits as they were given."""
        (mean, spread), (a, c) = self.columns, parameters
        return self.inverse * (1 + a / spread), self.shift + c - a * mean / spread

    def _collect(self, by_score: np.ndarray) -> np.ndarray:
        """Return derivatives by the parameters, [2, K], from those by the scores of each sample, [K, N]."""
        return self.free * np.stack([np.einsum("ki,ki->k", by_score, self._weighted), by_score @ self.weights])

    @cached_property
    def _weighted(self) -> np.ndarray:
        """The standard logits times the weight of each sample, [K, N]."""
        return self.standard * self.weights

    @cached_property
    def _observed(self) -> np.ndarray:
        """What of the derivatives is due to the true classes alone, [2, K]."""
        own = self._weighted[self.labels, np.arange(len(self.labels))]
        return np.stack([np.bincount(self.labels, of, len(self.shift)) for of in (own, self.weights)])


def _solve(product: Callable[[np.ndarray], np.ndarray], right: np.ndarray) -> np.ndarray:
    """Return x with ``product(x) = right`` by conjugate gradients, to a hundredth of the right side's length."""
    found, rest = np.zeros_like(right), right
    direction, length = rest, float((rest * rest).sum())
    least = 1e-4 * length
    for _ in range(2 * right.size):
        along = product(direction)
        bend = float((direction * along).sum())
        if bend <= 0:
            break
        found = found + length / bend * direction
        rest = rest - length / bend * along
        length, before = float((rest * rest).sum()), length
        if length < least:
            break
        direction = rest + length / before * direction
    return found if found.any() else right


def vector_loss(
    logits: np.ndarray,
    labels: np.ndarray,
    counts: np.ndarray,
    prior: np.ndarray | None = None,
    *,
    near: float | None = None,
) -> VectorLoss:
    """Return the loss of some samples, calibrated for the training counts; `near` is the T of similar samples."""
    prior = np.full(len(counts), 1 / len(counts)) if prior is None else prior
    temperature = fit_scale(logits, labels, _class_weights(labels, counts / counts.sum()), near=near)
    shift = np.log(np.maximum(prior, _LEAST_SHARE) * counts.max() / counts)
    return VectorLoss(logits, labels, _class_weights(labels, prior), shift, 1 / temperature)


def _class_weights(labels: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return weights [N] that sum to 1: those of class k in the proportion of prior_k, if it has a sample."""
    sizes = np.bincount(labels, minlength=len(prior))
    weights = (prior / np.maximum(sizes, 1))[labels]
    return weights / weights.sum()


def _fit_path(
    loss: VectorLoss, ridges: tuple[float, ...], *, tolerance: float = 1e-7
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return scale and offset at each of the descending ridges; if a scale is too small, those of the ridge before."""
    start = np.zeros((2, len(loss.shift)))
    found = []
    for ridge in ridges:
        fitted = loss.minimum_at(ridge, start, tolerance=tolerance)
        if loss.affine(fitted)[0].min() >= _LEAST_SCALE * loss.inverse:
            start = fitted
        found.append(loss.affine(start))
    return found
