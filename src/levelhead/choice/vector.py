"""Class-balanced vector scaling: a scale and an offset per class, fitted on held-out scores.

``score_k = scale_k * logit_k + offset_k``. With ``z = logits / T``, and m_k and d_k the mean and the standard
deviation of column k, the scores are ``z_k + log(prior_k / n_k) + a_k (z_k - m_k) / d_k + c_k``. T is the temperature
of least log loss where classes weigh as in training. At a = c = 0 the scores are those of the counts' shift at 1, which
is all that a calibrated model needs. The 2 K numbers a and c minimize

    ``sum_i w_i (logsumexp(scores_i) - scores_i[y_i]) + ridge / 2 sum_k (a_k^2 + c_k^2)``

where the weights w of the samples of class k sum to prior_k. So the penalty is on how far the scores move from the
counts' shift, whatever the units of the logits. The sum is convex. Newton's steps, found by conjugate gradients, need
no table of second derivatives. The ridge is the one of `RIDGES` with the least cross-fitted log loss.

Without a fold, the minimum is near that of all samples, whose probabilities are known: one step from there is most
often enough. The temperature and the columns' means are those of all samples, as the ridge is. Fits that only compare
ridges or rules are in float32, and those without a fold are the same ones for both.

Reference: Guo et al., On Calibration of Modern Neural Networks, 2017; Alexandari et al., Maximum Likelihood with
Bias-Corrected Calibration is Hard-To-Beat at Label Shift Adaptation, 2020.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from ..support.arrays import SCRATCH, few_threads, fit_scale
from ..support.errors import LevelheadError
from .resample import FOLDS, draw_folds

RIDGES = (np.inf, 1.0, 0.3, 0.1, 0.03, 0.01)  # infinity is the counts' shift itself
_LEAST_SHARE = 1e-6  # a class that never occurs has an offset that is low but finite
_LEAST_SCALE = 0.05  # of the common scale: a class whose own logit hardly counts, or counts against it, is overfitted


class Until(NamedTuple):
    """Where a fit ends: at slopes within the tolerance, or after a step that gains less than what is enough."""

    tolerance: float
    enough: float


EXACTLY = Until(1e-7, 0.0)
_ROUGHLY = Until(1e-5, 1e-3)  # what is left is little beside what ridges differ by
ONE_STEP = Until(1e-5, 1e-2)  # a step that gains less than 0.01 leaves about the square of that
Seen = tuple[
    np.ndarray, np.ndarray
]  # log losses [N]; probabilities times standard logits, and alone, [2, K, N]


class Ridge(NamedTuple):
    """The penalty that was chosen, and about the parameters [2, K] with it: of all samples, and without each fold."""

    strength: float
    start: np.ndarray
    without: dict[int, np.ndarray]


def choose_ridge(loss: "VectorLoss", fold: np.ndarray | None = None) -> Ridge:
    """Return the one of `RIDGES` with the least log loss on samples that the numbers were not fitted on: five folds."""
    if np.bincount(loss.labels).max() < 2:
        raise LevelheadError(
            "expected a class with at least two samples, got one sample per class",
            parameter="labels",
        )
    fold = draw_folds(loss.labels, FOLDS, np.random.default_rng(0)) if fold is None else fold
    start, whole, found = np.zeros((2, len(loss.shift))), loss.narrow(), []
    each = np.unique(fold).tolist()
    kept, held = zip(*((whole.on(fold != i), whole.take(fold == i)) for i in each), strict=True)
    with ThreadPoolExecutor(few_threads()) as pool:
        # The held-out loss falls with the ridge down to one place: from the smallest on, till it rises.
        for ridge in (np.inf, *RIDGES[:0:-1]):
            start = whole.fit(ridge, start, None, _ROUGHLY)
            seen = whole.look(start)
            own = list(
                pool.map(
                    partial(VectorLoss.fit, ridge=ridge, start=start, seen=seen, until=ONE_STEP),
                    kept,
                )
            )
            value = sum(pool.map(lambda part, of: part.weights @ part.look(of)[0], held, own))
            found.append((value, Ridge(ridge, start, dict(zip(each, own, strict=True)))))
            if len(found) > 2 and value > found[-2][0]:
                break
    return min(found, key=lambda one: one[0])[1]


@dataclass(frozen=True, eq=False)
class Columns:
    """Calibrated logits; a class is a row, so that sums over classes are of long rows."""

    calibrated: np.ndarray  # ``logits / T``, [K, N]
    standard: np.ndarray  # the same of each class with mean 0 and standard deviation 1
    mean: np.ndarray  # [K]
    spread: np.ndarray  # [K], 1 if a column is constant
    inverse: float  # 1 / T

    @staticmethod
    def of(logits: np.ndarray, weights: np.ndarray, inverse: float) -> "Columns":
        """Return logits [N, K], whose mean and standard deviation are those of samples that weigh `weights` [N]."""
        calibrated = inverse * np.ascontiguousarray(logits.T)
        mean = calibrated @ weights
        spread = np.sqrt((calibrated - mean[:, None]) ** 2 @ weights)
        spread = np.where(spread > 1e-9 * (1 + np.abs(mean)), spread, 1.0)
        return Columns(
            calibrated, (calibrated - mean[:, None]) / spread[:, None], mean, spread, inverse
        )


@dataclass(frozen=True, eq=False)
class VectorLoss:
    """The penalized log loss of held-out samples: of parameters [2, K], a and c of the module's formula."""

    columns: Columns
    labels: np.ndarray  # [N]
    weights: np.ndarray  # [N], sum to 1
    shift: np.ndarray  # [K], ``log(prior_k / n_k)``

    def narrow(self) -> "VectorLoss":
        """Return the loss in float32."""
        both = (
            table.astype(np.float32) for table in (self.columns.calibrated, self.columns.standard)
        )
        return replace(
            self,
            columns=replace(
                self.columns, **dict(zip(("calibrated", "standard"), both, strict=True))
            ),
        )

    def take(self, rows: np.ndarray) -> "VectorLoss":
        """Return the loss of some samples, [N] bool, with the weights that they have."""
        both = {
            name: np.ascontiguousarray(getattr(self.columns, name)[:, rows])
            for name in ("calibrated", "standard")
        }
        columns = replace(self.columns, **both)
        return replace(self, columns=columns, labels=self.labels[rows], weights=self.weights[rows])

    def on(self, kept: np.ndarray) -> "VectorLoss":
        """Return the loss where only some samples count, [N] bool, and each class weighs what it did."""
        prior = np.bincount(self.labels, self.weights, len(self.shift))
        return replace(self, weights=_class_weights(self.labels, prior, kept))

    @cached_property
    def free(self) -> np.ndarray:
        """Whether a class has a sample, [K]. All others stay at the counts' shift."""
        return np.bincount(self.labels, self.weights, len(self.shift)) > 0

    def fit(
        self,
        ridge: float,
        start: np.ndarray | None = None,
        seen: Seen | None = None,
        until: Until = EXACTLY,
    ) -> np.ndarray:
        """Return the minimum, or that of the least larger ridge at which no scale is too small."""
        if self.is_sound(found := self.minimum(ridge, start, seen, until)):
            return found
        sound = np.zeros((2, len(self.shift)))
        for larger in (*(one for one in RIDGES if one > ridge), ridge):
            found = self.minimum(larger, sound, None, until)
            sound = found if self.is_sound(found) else sound
        return sound

    def is_sound(self, parameters: np.ndarray) -> bool:
        """Return whether every class's own logit counts for it."""
        return bool((1 + parameters[0] / self.columns.spread).min() >= _LEAST_SCALE)

    def minimum(
        self,
        ridge: float,
        start: np.ndarray | None = None,
        seen: Seen | None = None,
        until: Until = EXACTLY,
    ) -> np.ndarray:
        """Return the parameters [2, K] of least loss, from a start at which `look` has seen what is given, if any."""
        found = np.zeros((2, len(self.shift)))
        if not np.isfinite(ridge):
            return found
        if start is not None:
            found, seen = start * self.free, seen if self.free[start.any(axis=0)].all() else None
        shared, spare = seen is not None, None  # fresh memory costs more than what is done with it
        losses, tables = self.look(found) if seen is None else seen
        value = self.value(found, losses, ridge)
        for _ in range(100):
            gradient = self.gradient(found, tables, ridge)
            if np.abs(gradient).max() < until.tolerance:
                break
            # Newton's direction, and half of it as long as the loss falls by less than its slope promises (Armijo).
            step, size = _solve(self.curvature(tables, ridge), -gradient), 1.0
            decrease = float((gradient * step).sum())
            if -decrease < until.enough:
                return found + step
            while True:
                losses, spare = self.look(found + size * step, spare)
                lower = self.value(found + size * step, losses, ridge)
                if lower <= value + 1e-4 * size * decrease or size < 1e-8:
                    break
                size /= 2
            if lower >= value:
                break
            found, value = found + size * step, lower
            tables, spare, shared = spare, None if shared else tables, False
        return found

    def value(self, parameters: np.ndarray, losses: np.ndarray, ridge: float) -> float:
        """Return the loss with its penalty."""
        return float(0.5 * ridge * (parameters**2).sum() + self.weights @ losses)

    def look(self, parameters: np.ndarray, out: np.ndarray | None = None) -> Seen:
        """Return the log loss of each sample and its probabilities, in the tables given, if any."""
        standard, (a, c) = self.columns.standard, parameters
        tables = np.empty((2, *standard.shape), standard.dtype) if out is None else out
        found = np.multiply(
            a[:, None].astype(standard.dtype), standard, out=tables[1]
        )  # first the scores
        found += self.columns.calibrated
        found += (self.shift + c)[:, None].astype(standard.dtype)
        found -= found.max(axis=0)
        true = found[self.labels, np.arange(len(self.labels))]
        np.exp(found, out=found)
        total = found.sum(axis=0)
        found /= total
        np.multiply(found, standard, out=tables[0])
        return np.log(total) - true, tables

    def gradient(self, parameters: np.ndarray, tables: np.ndarray, ridge: float) -> np.ndarray:
        """Return the derivatives by the parameters, [2, K]."""
        return (
            self.free * (tables @ self.weights.astype(tables.dtype))
            - self._observed
            + ridge * parameters
        )

    def curvature(self, tables: np.ndarray, ridge: float) -> Callable[[np.ndarray], np.ndarray]:
        """Return what multiplies a direction [2, K] by the second derivatives."""
        # ``diag(p) - p p^T`` of each sample, weighted: the first part is one number for a class and two parameters,
        # the second is a product with the tables and one with their transpose.
        weights = self.weights.astype(tables.dtype)
        mixed, plain = tables @ weights
        room = SCRATCH.table("square", tables[0].shape, tables.dtype)
        square = np.multiply(tables[0], self.columns.standard, out=room) @ weights
        both = tables.reshape(-1, len(weights))

        def product(direction: np.ndarray) -> np.ndarray:
            moved = (
                direction.astype(both.dtype).reshape(-1) @ both
            )  # the mean move of each sample's scores
            a, c = direction
            own = np.stack([square * a + mixed * c, mixed * a + plain * c])
            return (
                self.free * (own - (both @ (weights * moved)).reshape(own.shape))
                + ridge * direction
            )

        return product

    def affine(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return scale and offset, [K] each, of the logits as they were given."""
        of, (a, c) = self.columns, parameters
        return of.inverse * (1 + a / of.spread), self.shift + c - a * of.mean / of.spread

    @cached_property
    def _observed(self) -> np.ndarray:
        """What of the derivatives is due to the true classes alone, [2, K]."""
        own = self.columns.standard[self.labels, np.arange(len(self.labels))] * self.weights
        return np.stack(
            [np.bincount(self.labels, of, len(self.shift)) for of in (own, self.weights)]
        )


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
    logits: np.ndarray, labels: np.ndarray, counts: np.ndarray, prior: np.ndarray | None = None
) -> VectorLoss:
    """Return the loss of some samples, calibrated for the training counts."""
    prior = np.full(len(counts), 1 / len(counts)) if prior is None else prior
    temperature = fit_scale(logits, labels, _class_weights(labels, counts / counts.sum()))
    shift = np.log(np.maximum(prior, _LEAST_SHARE) * counts.max() / counts)
    weights = _class_weights(labels, prior)
    return VectorLoss(
        Columns.of(logits.astype(np.float64, copy=False), weights, 1 / temperature),
        labels,
        weights,
        shift,
    )


def _class_weights(
    labels: np.ndarray, prior: np.ndarray, kept: np.ndarray | None = None
) -> np.ndarray:
    """Return weights [N] that sum to 1: those of class k in the proportion of prior_k, if it has a sample."""
    weights = (prior / np.maximum(np.bincount(labels, kept, len(prior)), 1))[labels]
    weights = weights if kept is None else weights * kept
    return weights / (weights.sum() or 1.0)
