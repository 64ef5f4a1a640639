"""What a gamma is judged by: balanced error, and how far predicted shares lie from the target prior.

``J(gamma) = balanced error + min(1, 20 s) * mismatch``. The balanced error of few labels is unbiased but noisy, with
standard error s. The mismatch (total variation between class-weighted predicted shares and the prior) is steadier but
biased: a good classifier may err more toward one class than back. So it counts while labels are few, and fades.

Both are exact step functions of gamma. Their events are found and sorted once; any weighting of the samples, and so
every bootstrap replicate, is then a gather and a cumulative sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..core.curve import Curve
from ..show.progress import RowProgress
from .bootstrap import draw_resamples
from .envelope import Envelope
from .path import GammaPath

STRENGTH = 20.0
_APART = 1e-9  # breakpoints nearer than this are one: nobody can choose between them
_EQUAL = 1e-10  # values nearer than this are one: they differ by rounding


@dataclass(frozen=True, eq=False)
class Landscape:
    """Error and mismatch between all breakpoints, for any weighting of the samples.

    Args:
        path: of the labelled samples, if there are any.
        changes: the predictions whose shares are compared with the prior, if that is asked for.
        target: [K], sums to 1: what each class weighs where the model will be used.
        unlabelled: whether `changes` are of other samples than the path, drawn as in deployment.
        most: so many intervals are enough: where there are more breakpoints, the range is cut evenly instead, and the
            values are those in the middle of each interval.
    """

    path: GammaPath | None
    changes: Envelope | None
    target: np.ndarray
    unlabelled: bool = False
    most: int | None = None

    def error(self, times: np.ndarray | None = None) -> np.ndarray:
        """Class-weighted error on each interval, [G], sample i counted times[i] times."""
        assert self.path is not None
        start, _, sign, sample = self.path._events
        weight = self.weights if times is None else self.weights * times
        return 1 - self._sum(weight[start].sum(), self._error_bins, sign * weight[sample])

    def mismatch(self, times: np.ndarray | None = None) -> np.ndarray:
        """Distance of the predicted shares from the prior on each interval, [G], sample i counted times[i] times.

        The shares of labelled samples are class-weighted, as the error is: a long-tailed hold-out is no excuse.
        """
        assert self.changes is not None
        base, prior = (None, self.target) if self.unlabelled else (self.weights, self.prior)
        weight = base if times is None else times if base is None else base * times
        start, _, steps = self.changes.mismatch_steps(prior, weight)
        return self._sum(start, self._share_bins, steps)

    def best(self, values: np.ndarray) -> tuple[float, float]:
        """The widest plateau on which values [G] are lowest."""
        return self.curve(values).plateau(_EQUAL)

    def choose(self, values: np.ndarray) -> tuple[float, tuple[float, float]]:
        """The middle of that plateau, and the plateau. 0 if it is the whole range: then gamma changes nothing."""
        plateau = self.best(values)
        return (0.0 if plateau == (self.edges[0], self.edges[-1]) else middle(plateau)), plateau

    def curve(self, values: np.ndarray) -> Curve:
        return Curve(self.edges[:-1], values, float(self.edges[-1]))

    def judge(
        self, error: np.ndarray | None, times: np.ndarray | None = None, *, unlabelled_times: np.ndarray | None = None,
        strength: float = STRENGTH,
    ) -> np.ndarray:
        """The criterion on each interval, [G], or what of it there is data for.

        Args:
            error: what `error(times)` gave; None without labels.
            times, unlabelled_times: how often each sample counts; once if not given.
            strength: the 20 of ``min(1, 20 s)``; 0 is the error alone, infinity the sum with the whole mismatch.
        """
        if error is None:
            return self.mismatch(unlabelled_times)
        if self.changes is None or strength == 0:
            return error
        weight = min(1.0, strength * self.standard_error(middle(self.best(error)), times))
        return error + weight * self.mismatch(unlabelled_times if self.unlabelled else times)

    def standard_error(self, gamma: float, times: np.ndarray | None = None) -> float:
        """Of the class-weighted error: ``s^2 = sum_c prior_c^2 a_c (1 - a_c) / (n_c + 2)``.

        ``a_c = (right_c + 1) / (n_c + 2)``: one success and one failure are added to each class, so that one with a
        single sample is not thought certain.
        """
        assert self.path is not None
        right = self.path.right(gamma).astype(np.float64) if times is None else times * self.path.right(gamma)
        sizes = np.bincount(self.path.labels, times, len(self.target))
        accuracy = (np.bincount(self.path.labels, right, len(self.target)) + 1) / (sizes + 2)
        return float(np.sqrt((self.prior**2 * accuracy * (1 - accuracy) / (sizes + 2)).sum()))

    @cached_property
    def prior(self) -> np.ndarray:
        """[K], the target over the classes that have a labelled sample: what is missing is neutral."""
        assert self.path is not None
        present = self.target * (np.bincount(self.path.labels, minlength=len(self.target)) > 0)
        return present / present.sum()

    @cached_property
    def weights(self) -> np.ndarray:
        """[N] of the labelled samples: class c as a whole weighs prior[c]."""
        assert self.path is not None
        sizes = np.bincount(self.path.labels, minlength=len(self.target))
        return (self.prior / np.maximum(sizes, 1))[self.path.labels]

    @cached_property
    def edges(self) -> np.ndarray:
        """Every gamma at which anything changes, or as many as are wanted, ends of the range included, [G + 1]."""
        low, high = self.path.range if self.path is not None else self.changes.range  # type: ignore[union-attr]
        events = np.concatenate([*([] if self.path is None else [self.path._events[1]]),
                                 *([] if self.changes is None else [self.changes.gamma])])
        inside = np.unique(events[(events > low + _APART) & (events < high - _APART)])
        inside = inside[np.diff(inside, prepend=low) > _APART]
        if self.most is not None and len(inside) >= self.most:
            return np.linspace(low, high, self.most + 1)
        return np.concatenate([[low], inside, [high]])

    @cached_property
    def _error_bins(self) -> np.ndarray:
        assert self.path is not None
        return self._bins(self.path._events[1])

    @cached_property
    def _share_bins(self) -> np.ndarray:
        assert self.changes is not None
        return self._bins(self.changes.mismatch_steps()[1])

    def _bins(self, gammas: np.ndarray) -> np.ndarray:
        """The first interval by whose middle each event has happened."""
        return np.searchsorted((self.edges[1:] + self.edges[:-1]) / 2, gammas)

    def _sum(self, start: float, bins: np.ndarray, steps: np.ndarray) -> np.ndarray:
        intervals = len(self.edges) - 1
        return start + np.cumsum(np.bincount(bins, steps, intervals + 1)[:intervals])


@dataclass(frozen=True, eq=False)
class Replicates:
    """What became of the choice when the samples were drawn again.

    Args:
        gammas: [B], what each replicate chose.
        gains: [B], what the gamma chosen on the real samples gains on each replicate, spread as if every class had one
            more sample that gains by it and one that loses: resampling a single sample knows no doubt.
        optimism: what a replicate's own choice gains on that replicate above what it gains on the samples it was drawn
            from, on average: by this much our choice, too, flatters itself on our samples (Efron 1983).
    """

    gammas: np.ndarray
    gains: np.ndarray
    optimism: float


def replicates(
    landscape: Landscape, gamma: float, strength: float, n: int, rng: np.random.Generator,
    progress: RowProgress | None = None,
) -> Replicates:
    """Repeat the whole choice on n draw_resamples of the samples, each drawn within its class, on at most 1000 intervals."""
    landscape = replace(landscape, most=1000)
    assert landscape.path is not None
    weights, before = landscape.weights, landscape.path.right(0.0).astype(np.float64)
    change = landscape.path.right(gamma) - before
    error = landscape.error()
    others = len(landscape.changes.start) if landscape.unlabelled and landscape.changes is not None else 0
    gammas, gains, optimism = np.empty(n), np.empty(n), np.zeros(n)
    for i, times in enumerate(draw_resamples(landscape.path.labels, n, rng)):
        again = landscape.error(times)
        unlabelled = np.bincount(rng.integers(others, size=others), minlength=others) if others else None
        values = landscape.judge(again, times, unlabelled_times=unlabelled, strength=strength)
        gammas[i], _ = landscape.choose(values)
        gains[i] = (weights * times) @ change
        at = np.searchsorted(landscape.edges[1:-1], gammas[i])
        optimism[i] = (error[at] - again[at]) - (weights * (times - 1)) @ before
        if progress is not None:
            progress(i + 1, n)
    if gamma == 0:  # nothing is done, on whatever samples
        return Replicates(gammas, np.zeros(n), 0.0)
    gains += rng.normal(scale=np.sqrt(_unseen_variance(landscape, change)), size=n)
    return Replicates(gammas, gains, float(optimism.mean()) if n else 0.0)


def _unseen_variance(landscape: Landscape, change: np.ndarray) -> float:
    """By how much the variance of a mean change (+1, 0, -1) grows if each class had one +1 and one -1 more."""
    assert landscape.path is not None
    labels, size = landscape.path.labels, len(landscape.target)
    up, down, n = (np.bincount(labels, x, size) for x in (change > 0, change < 0, np.ones(len(labels))))

    def variance(more: int) -> np.ndarray:
        m = np.maximum(n + 2 * more, 1)
        return ((up + down + 2 * more) / m - ((up - down) / m) ** 2) / m

    grown = landscape.prior**2 * (variance(1) - variance(0))
    return max(0.0, float(grown.sum()))


def middle(plateau: tuple[float, float]) -> float:
    return plateau[0] + (plateau[1] - plateau[0]) / 2
