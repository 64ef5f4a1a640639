"""Where each sample is right over gamma, and the curves that follow from that alone: errors and accuracies."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.counts import groups
from ..core.curve import Curve, Point, accumulate
from ..core.errors import LevelheadError
from ..rules.direction import Direction
from .bootstrap import class_mean_coefficients
from .intervals import sorted_events


@dataclass(frozen=True, eq=False)
class PathCurves:
    """Where each sample is right over gamma. `GammaPath` adds what needs the logits, and explains the fields."""

    sample: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    rule: Direction
    range: tuple[float, float]
    k: int = 1
    weights: np.ndarray | None = None
    target: np.ndarray | None = None

    def curve(self, coefficients: np.ndarray) -> Curve:
        """Return ``sum_i coefficients[i] [sample i is right]`` over gamma: with ones, how many samples are right.

        >>> from levelhead import gamma_path
        >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100]).curve(np.ones(3)).values
        array([1., 2., 1., 2.])
        """
        start, at, sign, sample = self.events
        return accumulate(float(coefficients[start].sum()), at, sign * coefficients[sample], self.range)

    @cached_property
    def error_curve(self) -> Curve:
        """The share of samples that are wrong, over gamma."""
        return self.curve(self._weights / self._weights.sum()).complement()

    @cached_property
    def balanced_error_curve(self) -> Curve:
        """The mean over the classes of each class's own error, over gamma."""
        return self.curve(self._balanced_coefficients(self._weights)).complement()

    @property
    def gammas(self) -> np.ndarray:
        """Every gamma at which a sample turns right or wrong, ascending, [B]. The first is the start of the range."""
        return self.error_curve.gammas

    @property
    def error(self) -> np.ndarray:
        """The share of samples that are wrong from gammas[i] on, [B]."""
        return self.error_curve.values

    @property
    def balanced_error(self) -> np.ndarray:
        """The mean over the classes (weighted by `target`) of each class's own error from gammas[i] on, [B]."""
        return self.balanced_error_curve.values

    def class_curve(self, i: int) -> Curve:
        """Return the accuracy of class i over gamma, on the breakpoints of that class; NaN if it has no sample.

        >>> from levelhead import gamma_path
        >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100]).class_curve(1).values
        array([0. , 0.5, 1. ])
        """
        if not 0 <= i < len(self.counts):
            raise LevelheadError(f"expected a class from 0 to {len(self.counts) - 1}, got {i}")
        if not self._class_totals[i]:
            return Curve(np.array(self.range[:1]), np.array([np.nan]), self.range[1])
        start, at, sign, sample = self.events
        own, weight = self.labels[sample] == i, self._weights / self._class_totals[i]
        base = weight[start][self.labels[start] == i].sum()
        return accumulate(float(base), at[own], (sign * weight[sample])[own], self.range)

    def class_accuracy(self, gammas: float | Sequence[float] | np.ndarray | None = None) -> np.ndarray:
        """Return the accuracy of every class, NaN without a sample, at given gammas, [..., K], or breakpoints, [B, K].

        >>> from levelhead import gamma_path
        >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100]).class_accuracy(0.3)
        array([1. , 0.5])
        """
        if gammas is None:
            return np.stack([self.class_curve(i).at(self.gammas) for i in range(len(self.counts))], axis=1)
        wanted = np.atleast_1d(np.asarray(gammas, np.float64))
        found = np.stack([np.bincount(self.labels, self.right(g) * self._weights, len(self.counts)) for g in wanted])
        with np.errstate(invalid="ignore", divide="ignore"):
            found = found / self._class_totals
        return found[0] if np.ndim(gammas) == 0 else found

    @property
    def groups(self) -> dict[str, Curve]:
        """The mean class accuracy of the many-, medium- and few-shot classes (see `counts.groups`) over gamma."""
        return {
            name: self.curve(class_mean_coefficients(self.labels, self._weights, some))
            for name, some in self._groups.items()
        }

    def right(self, gamma: float) -> np.ndarray:
        """Return whether each sample is right at gamma, [N] bool.

        >>> from levelhead import gamma_path
        >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100]).right(0.3)
        array([ True,  True, False])
        """
        if not self.range[0] <= gamma <= self.range[1]:
            raise LevelheadError(
                f"expected a value within [{self.range[0]:g}, {self.range[1]:g}], got {gamma:g}; "
                "compute the path over a wider range",
                parameter="gamma",
            )
        found = np.zeros(len(self.labels), bool)
        found[self.sample[(self.lo <= gamma) & (gamma <= self.hi)]] = True
        return found

    def at(self, gamma: float) -> Point:
        """Return everything at one gamma. No sample changes within the plateau of the point.

        >>> from levelhead import gamma_path
        >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100]).at(0.3).balanced_error
        0.25
        """
        gamma, accuracy = float(gamma), self.class_accuracy(float(gamma))
        i = int(np.searchsorted(self.gammas, gamma, side="right"))
        return Point(
            gamma=gamma,
            error=float(self.error_curve.at(gamma)),
            class_accuracy=accuracy,
            balanced_error=float(self.balanced_error_curve.at(gamma)),
            groups={name: float(np.nanmean(accuracy[some])) for name, some in self._groups.items()},
            plateau=(float(self.gammas[i - 1]), float(np.r_[self.gammas, self.range[1]][i])),
            metric="balanced_error",
            value=float(self.balanced_error_curve.at(gamma)),
        )

    @cached_property
    def events(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The samples right at the start; then gamma, sign and sample of every change within the range, by gamma."""
        return sorted_events(self.sample, self.lo, self.hi, self.range)

    @cached_property
    def _weights(self) -> np.ndarray:
        return np.ones(len(self.labels)) if self.weights is None else self.weights

    @cached_property
    def _class_totals(self) -> np.ndarray:
        return np.bincount(self.labels, self._weights, len(self.counts))

    @property
    def _groups(self) -> dict[str, np.ndarray]:
        return {
            name: some
            for name, members in groups(self.counts).items()
            if (some := np.isin(np.arange(len(self.counts)), members) & (self._class_totals > 0)).any()
        }

    def _balanced_coefficients(self, weights: np.ndarray) -> np.ndarray:
        shares = np.ones(len(self.counts)) if self.target is None else self.target
        return class_mean_coefficients(self.labels, weights, shares)
