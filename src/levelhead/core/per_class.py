"""A number for each class, fitted by log loss: offsets, scales or both.

With T the temperature, ``z = scores / T``, n the training counts and m the held-out samples of each class,
the fitted scores are

    ``z_k + log(m_k / n_k) + c_k + a_k (z_k - mean_k) / spread_k``.

At a = c = 0 that is what a calibrated model has where classes occur as often as among the samples. The rule
`offsets` fits c alone, so that all scales stay 1; `scales` fits a alone, without any shift; `vector` fits
both. They minimize

    ``sum_i log loss_i + HELD / 2 sum_k (a_k^2 + c_k^2)``.

So each class is held near what the counts ask for as if by HELD samples: with few samples nothing moves
far, with many the hold does not matter, and there is nothing to choose. A fit without a fold has the m of the
samples that it sees: that of two samples of a class it sees one is no sign that the model expects too many.
log T is held near that of logits as if by CALM samples (calibration.py). How far the fit then goes from the
mix of the samples to that of the goal is one strength, by the metric itself (`metric_offsets.py`).
docs/decisions.md measures what each part is worth.

The sum is convex. Newton's steps are found by conjugate gradients (newton.py), which need two matrix products
each, on any device. Where samples are many, each fit without a fold is one such step from the fit on all.

The road: `fit_per_class` makes a `LogLoss` at its temperature and asks it for all fits (`fit_folds`).
`LogLoss.minimize` takes Newton's steps: it looks at the probabilities of a fit (`_shares_of`, which gives
`_Shares`), and from these has the loss (`_value`), its slopes (`_gradient`) and their slopes (`_curvature`).
`LogLoss.adjustment` turns a and c into a scale and an offset of the scores as they were given.

A fit is an array [P, K, C]: a and c, or the one of them that the rule fits, of K classes on C sets of samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from ..support.arrays import Array, is_torch, like, to_numpy
from ..support.backend import (
    column,
    exp,
    log,
    one_hot_sum,
    row_max,
    row_sum,
    stack,
    sums_by,
    total_sum,
)
from ..support.errors import LevelheadError
from ..support.logits import raise_masked
from .adjustment import Adjustment, Fits
from .calibration import fit_temperature
from .newton import Curvature, inner, solve
from .samples import Samples

HELD = 2.0  # samples by which each class is held near what the counts ask for
CALM = 10.0  # samples by which the temperature is held near that of logits
_LEAST_SCALE = 0.05  # a class whose own score hardly counts for it is overfitted
_FEW_NUMBERS = 300_000  # N times K up to which every fit is carried to its end, in float64
_STEPS = 30  # the most that Newton takes


class Mask(NamedTuple):
    """Which numbers of a class are fitted: the only way in which the three rules differ here."""

    scales: bool  # a
    offsets: bool  # c


def fit_per_class(samples: Samples, mask: Mask) -> tuple[Fits, float]:
    """Fit a rule without each fold and on all samples.

    Args:
        samples: N of K classes, in folds.
        mask: which numbers the rule fits.

    Returns:
        The fits, for classes that occur as in training: what a goal asks for is not added yet. And
        the temperature T that calibrates the scores.

    Raises:
        LevelheadError: no class has two samples, so that no fit could be judged by another sample of it.
    """
    if samples.sizes.max() < 2:
        reason = "expected a class with at least two samples, got one sample per class"
        raise LevelheadError(reason, parameter="labels")
    loss = LogLoss.of(samples, mask)
    whole, without = loss.fit_folds()
    fits = Fits([loss.adjustment(fit) for fit in without], loss.adjustment(whole))
    return fits, loss.temperature


@dataclass(frozen=True, eq=False)
class LogLoss:
    """The penalized log loss of some samples, as a function of a and c.

    What does not depend on a and c (odds, means, spreads) is computed once and kept, as all fits share it.
    """

    samples: Samples
    scores: Array  # [N, K], in the precision of the fit
    mask: Mask  # what is fitted; the rest stays 0
    temperature: float  # T
    base: np.ndarray  # [K], log(m_k / n_k), and -inf for a class without a sample

    @staticmethod
    def of(samples: Samples, mask: Mask) -> LogLoss:
        """Return the loss at the temperature that calibrates the scores.

        Of few numbers in float64, of many in float32, in half the memory; tensors stay as they are.
        """
        # Scales alone have no shift to begin with.
        base = np.zeros(samples.classes)
        if mask.offsets:
            base = mix_of(samples)
        temperature = fit_temperature(samples.scores, samples.labels, offset=base, held=CALM)
        scores = raise_masked(samples.scores)
        if not is_torch(scores):
            precision = np.float32
            if scores.size <= _FEW_NUMBERS:
                precision = np.float64
            scores = scores.astype(precision, copy=False)
        return LogLoss(samples, scores, mask, temperature, base)

    # ---- What is fitted ------------------------------------------------------------------------

    def fit_folds(self) -> tuple[Array, list[Array]]:
        """Return the fit on all samples, and one without each fold of `samples.folds`."""
        every = np.ones(len(self.samples.labels))
        whole = self.minimize(self._rows(every), self._nothing)
        kept = [(self.samples.fold != fold) * every for fold in self.samples.folds]
        n, classes = self.scores.shape
        if n * classes <= _FEW_NUMBERS:
            return whole, [self.minimize(self._rows(weights), whole) for weights in kept]
        return whole, self._step_from(whole, kept)

    def fit(self) -> Array:
        """Return the fit on all samples."""
        return self.minimize(self._rows(np.ones(len(self.samples.labels))), self._nothing)

    def refit(self, times: np.ndarray, whole: Array) -> Array:
        """Return the fit on samples that count so often, [N], by one step from the fit on all.

        That is what a bootstrap needs: its intervals are those of whole fits, six times sooner.
        """
        return self._step_from(whole, [times])[0]

    def minimize(self, rows: _Rows, start: Array) -> Array:
        """Return the minimum on some samples, by Newton's steps from a start.

        The loss is convex, so that a Newton step with halving cannot fail: it ends where no number would
        move far by itself, after 30 steps, or where only rounding is left.

        Args:
            rows: which samples count; one set of them.
            start: [P, K, 1]; that on all samples is near every fit without a fold.
        """
        fit = start * rows.free
        shares = self._shares_of(fit + rows.mix)
        value = self._value(rows, fit, shares)
        # A million samples tell the offset of their class to 1e-3: in float32 that is enough. In float64
        # it is right to about 1e-9, as the playground's fit in the browser is to be the same.
        enough = 1e-3
        if self.scores.itemsize > 4:
            enough = 1e-9
        for _ in range(_STEPS):
            gradient = self._gradient(rows, fit, shares)
            curvature = self._curvature(rows, shares)
            # The slope of a rare class is small beside the samples of all, and yet far from 0 beside its own.
            if float(abs(gradient / curvature.diagonal).max()) < enough:
                break
            step = solve(curvature, gradient)
            slope = float(inner(gradient, step).sum())
            # Half of the step, as long as the loss falls by less than its slope promises (Armijo).
            size = 1.0
            while True:
                tried = fit - size * step
                shares_there = self._shares_of(tried + rows.mix)
                lower = self._value(rows, tried, shares_there)
                if lower <= value - 1e-4 * size * slope or size < 1e-6:
                    break
                size /= 2
            if not lower < value:  # only rounding is left
                break
            fit = tried
            shares = shares_there
            value = lower
        return self._sound(fit)

    def _step_from(self, whole: Array, kept: list[np.ndarray]) -> list[Array]:
        """Return the fits on several sets of samples, each by one step from the fit on all.

        All steps are one computation, with a column for each set. With many samples, a fit without
        a fold is so near to that on all that one step is enough.

        Args:
            whole: the fit on all samples, [P, K, 1].
            kept: [N] each, how often each sample is in a set: 0 for those that are not.
        """
        rows = self._rows(np.stack(kept, axis=1))
        # With the mix of its set, each start has the probabilities of the whole, and these are found
        # once. A class that a set lacks is in them all the same.
        start = whole * rows.free - rows.mix
        shares = self._shares_of(whole)
        step = solve(self._curvature(rows, shares), self._gradient(rows, start, shares))
        fits = start - step
        return [self._sound(fits[:, :, i : i + 1]) for i in range(len(kept))]

    def _sound(self, fit: Array) -> Array:
        """Return a fit in which every class's own score counts for it: no scale is near 0 or below."""
        if not self.mask.scales:
            return fit
        # The scale of a class is ``1 + a / spread``.
        least = float((fit[0] / self._spread).min())
        if least >= _LEAST_SCALE - 1:
            return fit
        # All are drawn toward 1 alike, until the least of them is large enough.
        return stack([fit[0] * ((_LEAST_SCALE - 1) / least), *fit[1:]])

    def adjustment(self, fit: Array) -> Adjustment:
        """Return what a fit [P, K, 1] does to the scores as they were given.

        The fitted scores are T times too small, and their base is left out: it is what the mix of
        the samples asks for, and the fit is for that of the training.
        """
        fitted = to_numpy(fit)[:, :, 0].astype(np.float64)
        scale = np.ones(self.samples.classes)
        offset = np.zeros(self.samples.classes)
        if self.mask.offsets:
            offset = self.temperature * fitted[-1]
        if self.mask.scales:
            steepness = fitted[0] / to_numpy(self._spread)[:, 0]
            scale = 1 + steepness
            offset = offset - self.temperature * steepness * to_numpy(self._mean)[:, 0]
        return Adjustment(scale, offset + 0.0, self.samples.smoothing)

    # ---- The loss and its slopes ---------------------------------------------------------------

    def _rows(self, kept: np.ndarray) -> _Rows:
        """Return samples that count so often, with what is due to their labels.

        Args:
            kept: [N], or [N, C] for C fits at once.
        """
        if kept.ndim == 1:
            kept = kept[:, None]
        labels = self.samples.labels
        classes = self.samples.classes
        weights = like(kept, self.scores)
        # The log loss is ``log total - score of the true class``. The second part is linear in a and
        # c: its slopes are sums over the samples of each class, once and for all.
        sums = one_hot_sum(labels, weights, classes, self.scores)
        due = []
        if self.mask.scales:
            weighted = weights * column(self._standard, labels)[:, None]
            due.append(one_hot_sum(labels, weighted, classes, self.scores))
        if self.mask.offsets:
            due.append(sums)
        sizes = to_numpy(sums).astype(np.float64)
        free = like((sizes > 0).astype(np.float64), self.scores)
        return _Rows(weights, stack(due), free, self._mix_among(sizes))

    def _mix_among(self, kept: np.ndarray) -> Array:
        """Return what takes the mix of all samples to that of some, by the sizes of its classes [K, C].

        ``log(kept_k / m_k)`` for c, less that of all classes together; 0 for a class that is not kept.
        """
        mix = np.zeros((sum(self.mask), *kept.shape))
        if self.mask.offsets:
            share = kept / np.maximum(self.samples.sizes, 1)[:, None]
            share_of_all = kept.sum(axis=0) / len(self.samples.labels)
            np.log(share / share_of_all, out=mix[-1], where=kept > 0)
        return like(mix, self.scores)

    @property
    def _nothing(self) -> Array:
        """The fit that changes nothing, [P, K, 1], where the scores are."""
        return like(np.zeros((sum(self.mask), self.samples.classes, 1)), self.scores)

    @cached_property
    def _odds(self) -> Array:
        """``exp(z + base)``, [N, K], but for a factor of each sample; 0 for classes without any."""
        odds = self.scores * float(1 / self.temperature)
        odds += like(self.base, odds)
        odds -= row_max(odds)
        if is_torch(odds):
            return odds.exp_()
        return np.exp(odds, out=odds)

    @cached_property
    def _mean(self) -> Array:
        """What each column is centered by, [K, 1]; 0 where only scales are fitted."""
        if not self.mask.offsets:
            return like(np.zeros((self.samples.classes, 1)), self.scores)
        return self._z.mean(0)[:, None]

    @cached_property
    def _spread(self) -> Array:
        """What each column is divided by, [K, 1]: its standard deviation, 1 if it is constant."""
        square = ((self._z - self._mean[:, 0]) ** 2).mean(0)
        spread = np.sqrt(to_numpy(square).astype(np.float64))
        return like(np.where(spread > 1e-9, spread, 1.0)[:, None], self.scores)

    @cached_property
    def _z(self) -> Array:
        """``scores / T``, [N, K]."""
        return self.scores * float(1 / self.temperature)

    @cached_property
    def _standard(self) -> Array:
        """Scores of each class by which a is multiplied, [N, K]."""
        return (self._z - self._mean[:, 0]) / self._spread[:, 0]

    def _shares_of(self, fit: Array) -> _Shares:
        """Return the probabilities of a fit, and the logarithm of each sample's denominator."""
        if not self.mask.scales:
            # Offsets are factors of odds that are known: no exponential of [N, K] is needed.
            factor = exp(fit[0])
            total = self._odds @ factor
            return _FactoredShares(log(total), self._odds, factor, total)
        # Far scores may overflow: the largest exponent of each sample is taken out.
        exponent = self._standard * fit[0, :, 0] + self._z + like(self.base, self._z)
        if self.mask.offsets:
            exponent += fit[1, :, 0]
        top = row_max(exponent)
        shares = exp(exponent - top)
        total = row_sum(shares)
        shares /= total
        # The odds have the largest exponent of their own taken out, which the labels' do not know.
        first = row_max(self._z + like(self.base, self._z))
        log_total = log(total) + top - first
        return _ScaledShares(log_total, shares, self._standard, self.mask.offsets)

    def _value(self, rows: _Rows, fit: Array, shares: _Shares) -> float:
        """Return the loss with its penalty, for one set of samples: what halving a step compares.

        In float64: of very many samples, those of a rare class are but the last digits of the sum.
        """
        here = to_numpy(fit).astype(np.float64)
        held = HELD * float((here * here).sum()) / 2
        truth = float((here * to_numpy(rows.due)).sum())
        return total_sum(rows.weights * shares.log_total) - truth + held

    def _gradient(self, rows: _Rows, fit: Array, shares: _Shares) -> Array:
        """Return the slopes of the loss, [P, K, C]; 0 for classes without a sample."""
        # What the model expects, less what the labels say, and the pull of the penalty.
        expected = shares.back(rows.weights)
        return (HELD * fit + expected - rows.due) * rows.free

    def _curvature(self, rows: _Rows, shares: _Shares) -> Curvature:
        """Return the second derivatives, as what multiplies a direction by them.

        Written down they would be (P K)^2 numbers a fit: 32 MB for two of each of a thousand classes, in
        float64.
        """
        # ``diag(p) - p p^T`` of each sample, weighted: the first part is one number for a class and
        # two parameters, the second is a product with the tables and one with their transpose.
        squares = shares.squares(rows.weights)
        parts = range(len(squares))
        for part in parts:
            squares[part, part] += HELD

        def product(direction: Array) -> Array:
            moved = shares.back(shares.forward(direction) * rows.weights)
            return ((squares * direction).sum(1) - moved) * rows.free

        return Curvature(product, stack([squares[part, part] for part in parts]))


class _Shares(Protocol):
    """The probabilities of a fit, p [N, K], as what multiplies by them.

    There are two kinds: with offsets alone they are products that need not be written down; with
    scales they are a table.
    """

    @property
    def log_total(self) -> Array:
        """The logarithm of each sample's denominator, [N, 1]."""
        ...

    def forward(self, direction: Array) -> Array:
        """Return by how much the mean score of each sample moves along a direction, [N, C]."""
        ...

    def back(self, weights: Array) -> Array:
        """Return the sum over samples, weighted [N, C], of p times what a and c are multiplied by, [P, K, C].

        That is the standard score for a, and 1 for c.
        """
        ...

    def squares(self, weights: Array) -> Array:
        """Return such sums of p times the products of any two of these, [P, P, K, C]."""
        ...


@dataclass(frozen=True, eq=False)
class _FactoredShares:
    """Probabilities ``odds_k factor_k / total`` of offsets alone: odds are never written again.

    Products with p are products with the odds, scaled by rows and columns: no [N, K] is made at a step.
    """

    log_total: Array  # [N, 1]
    odds: Array  # [N, K]
    factor: Array  # [K, 1]
    total: Array  # [N, 1]

    def forward(self, direction: Array) -> Array:
        return (self.odds @ (self.factor * direction[0])) / self.total

    def back(self, weights: Array) -> Array:
        return (self.factor * sums_by(weights / self.total, self.odds))[None]

    def squares(self, weights: Array) -> Array:
        return self.back(weights)[None]


@dataclass(frozen=True, eq=False)
class _ScaledShares:
    """Probabilities of a fit with scales, as a table."""

    log_total: Array  # [N, 1]
    shares: Array  # [N, K]
    standard: Array  # [N, K]
    offsets: bool  # whether they are fitted, too

    @cached_property
    def _tables(self) -> list[Array]:
        """The shares times what a is multiplied by, and times what c is, [N, K] each."""
        scaled = self.shares * self.standard
        if self.offsets:
            return [scaled, self.shares]
        return [scaled]

    def forward(self, direction: Array) -> Array:
        return sum(table @ part for table, part in zip(self._tables, direction, strict=True))

    def back(self, weights: Array) -> Array:
        return stack([sums_by(weights, table) for table in self._tables])

    def squares(self, weights: Array) -> Array:
        of_a = sums_by(weights, self._tables[0] * self.standard)
        if not self.offsets:
            return of_a[None, None]
        both = self.back(weights)
        return stack([stack([of_a, both[0]]), both])


class _Rows(NamedTuple):
    """Samples that count in a fit; C of them at once."""

    weights: Array  # [N, C]
    due: Array  # [P, K, C], what of the slopes is due to the true classes alone
    free: Array  # [K, C], 1 for a class that has a sample and 0 for one that stays as it is
    mix: Array  # [P, K, C], what is added to c where classes do not occur as among all samples


def mix_of(samples: Samples) -> np.ndarray:
    """Return what takes a calibrated model from the mix of its training to that of the samples.

    ``log(m_k / n_k)``, [K], of m_k samples and counts n_k, up to a constant; -inf for a class without
    a sample, which is left out.
    """
    present = samples.sizes > 0
    mix = np.full(samples.classes, -np.inf)
    mix[present] = np.log(samples.sizes[present] / samples.counts[present])
    return mix - mix.max()


def calibrate(samples: Samples) -> float:
    """Return the temperature of the scores, given how often the classes occur among the samples."""
    return fit_temperature(samples.scores, samples.labels, offset=mix_of(samples), held=CALM)
