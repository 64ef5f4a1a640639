"""What a gamma is chosen by: balanced error, and how far predicted shares are from the target prior.

``J(gamma) = balanced error + min(1, 20 s) * mismatch``. The balanced error of few labels is unbiased but noisy, with
standard error s. The mismatch (total variation between class-weighted predicted shares and the prior) is steadier but
biased, because a good classifier may err more toward one class than back. So it counts while labels are few, and fades.

Both are exact step functions of gamma. Their events are found and sorted once. Any weighting of the samples, and so
every bootstrap replicate, is then a gather and a cumulative sum.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ..path.envelope import Envelope
from ..support.types import Metric
from .gamma_path import GammaPath
from .path_metrics import ERRORS, RECALLS, MetricSteps, apply_floors
from .resample import SAME_VALUE, STRENGTH, Grid

Times = np.ndarray | None  # [N], how often each sample counts; None for once
FixedLoss = Callable[[Times], float]


@dataclass(frozen=True, eq=False)
class ShareMismatch:
    """Distance of the predicted shares from a prior [K], for any weighting of the samples, [N] (equal if None)."""

    changes: Envelope
    prior: np.ndarray
    grid: Grid
    weights: np.ndarray | None = None

    def values(self, times: Times = None) -> np.ndarray:
        """Return the distance on each interval, [G], with sample i counted times[i] times."""
        if times is None:
            return self._values
        return self._accumulate(times if self.weights is None else self.weights * times)

    @cached_property
    def _values(self) -> np.ndarray:
        return self._accumulate(self.weights)

    def _accumulate(self, weights: np.ndarray | None) -> np.ndarray:
        start, steps = self.changes.mismatch_steps(self.prior, weights)
        return self.grid.accumulate(start, self._bins, steps)

    def at(self, gamma: float) -> float:
        """Return the distance at one gamma."""
        return float(np.abs(self.changes.shares(gamma, self.weights) - self.prior).sum() / 2)

    def between(self, first: int, last: int) -> np.ndarray:
        """Return the distance on the intervals from `first` to `last`."""
        changes = self.changes.between(*self.grid.middles[[first, last]])
        return replace(self, changes=changes, grid=self.grid.part(first, last - first + 1)).values()

    @cached_property
    def _bins(self) -> np.ndarray:
        return self.grid.bins(self.changes.gamma)[
            self.changes.by_class[0]
        ]  # what is sorted is found faster


@dataclass(frozen=True)
class Pull:
    """``strength * s * |gamma - center| / unit``: toward the gamma that a calibrated model would need."""

    # It is measured in standard errors s of the balanced error, so it fades as labels become many.

    center: float
    unit: float = 1.0
    strength: float = 1.0

    def values(self, gammas: np.ndarray, standard_error: float) -> np.ndarray:
        """Return what the pull adds at each gamma, [G]."""
        return self.strength * standard_error * np.abs(gammas - self.center) / self.unit


@dataclass(frozen=True, eq=False)
class Objective:
    """Error of labelled samples and mismatch of shares, for any weighting of the samples, on `most` intervals."""

    path: GammaPath  # of the labelled samples
    target: np.ndarray  # [K], sums to 1: the weight of each class where the model will be used
    # The predictions whose shares are compared with the target; None for the error alone. For a metric that is not an
    # error, those of the path's samples; else they may be of other samples, `unlabelled`, drawn as in deployment.
    changes: Envelope | None = None
    unlabelled: bool = False
    most: int | None = None
    metric: Metric = "balanced_error"  # or a loss of `metrics.py`
    cost: np.ndarray | None = None  # [K, K], for the metric cost
    floors: np.ndarray | None = (
        None  # [K], the least recall of each class, NaN for none; None for no floors at all
    )
    pull: Pull | None = None
    kept: np.ndarray | None = (
        None  # [N] bool, the samples that count, for the two errors without floors; all if None
    )
    known: tuple[Grid, np.ndarray] | None = (
        None  # the grid and the interval of each event, where known already
    )
    _chosen: dict[float, tuple[float, tuple[float, float]]] = field(
        default_factory=dict, init=False
    )

    @cached_property
    def coarse(self) -> "Objective":
        """The same on at most 1000 intervals, for the many choices that judge the one on all samples."""
        return self if self.most == 1000 else replace(self, most=1000)

    def on(self, kept: np.ndarray, target: np.ndarray) -> "Objective":
        """Return the objective of some samples, [N] bool, and their target; what is sorted is not sorted again."""
        return replace(self, kept=kept, target=target, known=(self.grid, self._error_bins))

    def error(self, times: Times = None) -> np.ndarray:
        """Return the class-weighted error (or the loss) on each interval, [G], with sample i counted times[i] times."""
        if self.metric not in ERRORS:
            return self.steps.losses(self.grid.middles, self._masses(times))
        if times is None:
            return self._error
        return self._accumulate(self.weights * times)

    @cached_property
    def _error(self) -> np.ndarray:
        return self._accumulate(self.weights)

    def _accumulate(self, weight: np.ndarray) -> np.ndarray:
        start, _, sign, sample = self.path.events
        return 1 - self.grid.accumulate(
            weight[start].sum(), self._error_bins, sign * weight[sample]
        )

    def values(
        self,
        error: np.ndarray,
        times: Times = None,
        *,
        unlabelled_times: Times = None,
        strength: float = STRENGTH,
    ) -> np.ndarray:
        """Return J on each interval, [G], given `error(times)`. Samples count so many `times`, or once."""
        # The strength is the 20 of ``min(1, 20 s)``: 0 gives the error alone, infinity the sum with the whole mismatch.
        # Where a floor is not met, J is infinite; where no gamma meets them all, J is how far below the floors each is.
        pulled, guide = self.pulled(error, times, strength=strength)
        if self.mismatch is not None and guide:
            pulled = pulled + guide * self.mismatch.values(
                unlabelled_times if self.unlabelled else times
            )
        return pulled if self.floors is None else apply_floors(pulled, self.margins(times))

    def choose(self, strength: float = STRENGTH) -> tuple[float, tuple[float, float]]:
        """Return gamma and its plateau as ``grid.choose(values(error()))`` does; remembered."""
        if strength not in self._chosen:
            self._chosen[strength] = self._choose(self.error(), strength)
        return self._chosen[strength]

    def _choose(self, error: np.ndarray, strength: float) -> tuple[float, tuple[float, float]]:
        # Shares are followed only where J can be lowest: not where its other terms alone exceed J at the gamma at which
        # they are lowest.
        if self.mismatch is None or self.floors is not None:
            return self.grid.choose(self.values(error, strength=strength))
        pulled, guide = self.pulled(error, strength=strength)
        least = self.grid.lowest(pulled)
        most = pulled[least] + guide * self.mismatch.at(self.grid.middles[least])
        low = np.flatnonzero(pulled <= most + 2 * SAME_VALUE)
        first, last = (
            int(low[0]) & ~15,
            min(int(low[-1]) | 15, len(pulled) - 1),
        )  # often the same for all folds
        values = pulled[first : last + 1] + guide * self.mismatch.between(first, last)
        return self.grid.part(first, len(values)).choose(
            values, prefer_zero=len(values) == len(pulled)
        )

    def pulled(
        self, error: np.ndarray, times: Times = None, *, strength: float
    ) -> tuple[np.ndarray, float]:
        """Return the error with the pull on each interval, [G], and the weight of the mismatch."""
        if self.pull is None and (self.mismatch is None or strength == 0):
            return error, 0.0
        curve = self.grid.curve(error)
        s = self.standard_error(curve.middle(curve.plateau(SAME_VALUE)), times)
        guide = min(1.0, strength * s) if self.mismatch is not None and strength > 0 else 0.0
        return (
            error if self.pull is None else error + self.pull.values(self.grid.middles, s)
        ), guide

    def margins(self, times: Times = None) -> np.ndarray:
        """Return the least ``recall - floor`` of all classes on each interval, [G]."""
        assert self.floors is not None
        return (
            self._margins
            if times is None
            else self.steps.margins(self.grid.middles, self._masses(times), self.floors)
        )

    @cached_property
    def _margins(self) -> np.ndarray:
        return self.margins(np.ones(len(self.path.labels)))

    def fixed_loss(self, gamma: float) -> FixedLoss:
        """Return what gives the loss at one gamma for any `times` [N]: ``1 - accuracy`` if it is an error."""
        right = self.path.right(gamma)
        if self.metric in ERRORS:
            weighted = self.weights * right
            return lambda times: float(1 - (weighted if times is None else weighted * times).sum())
        predicted = None
        if self.metric not in RECALLS and self.changes is not None:
            bent = self.path.rule.bias is not None  # then the changes are known on a grid only
            predicted = self.path.predictions(gamma) if bent else self.changes.predictions(gamma)
        return lambda times: self.steps.loss_of(right, predicted, self._masses(times))

    def loss_of(self, predicted: np.ndarray, times: Times = None) -> float:
        """Return the loss of any predictions [N] of the path's samples, with sample i counted times[i] times."""
        right = predicted == self.path.labels
        if self.metric in ERRORS:
            return float(((self.weights if times is None else self.weights * times) * ~right).sum())
        return self.steps.loss_of(right, predicted, self._masses(times))

    def _masses(self, times: Times) -> np.ndarray:
        """Return the weights of the samples, [N]: whole numbers if no target weighs the classes."""
        weights = self.weights / self.weights.max()
        return weights if times is None else weights * times

    def standard_error(self, gamma: float, times: Times = None) -> float:
        """Return s of the class-weighted error: ``s^2 = sum_c prior_c^2 a_c (1 - a_c) / (n_c + 2)``."""
        # ``a_c = (right_c + 1) / (n_c + 2)``: each class gets one success and one failure more, so that a class with a
        # single sample does not count as certain.
        sizes = (
            self._sizes if times is None else np.bincount(self.path.labels, times, len(self.target))
        )
        times = self.kept if times is None else times
        right = (
            self.path.right(gamma).astype(np.float64)
            if times is None
            else times * self.path.right(gamma)
        )
        accuracy = (np.bincount(self.path.labels, right, len(self.target)) + 1) / (sizes + 2)
        return float(np.sqrt((self.prior**2 * accuracy * (1 - accuracy) / (sizes + 2)).sum()))

    @cached_property
    def prior(self) -> np.ndarray:
        """The target over the classes that have a labelled sample, [K]. All others are neutral."""
        present = self.target * (self._sizes > 0)
        return present / present.sum()

    @cached_property
    def weights(self) -> np.ndarray:
        """Weights of the labelled samples, [N]: those of class c sum to prior[c]."""
        weights = (self.prior / np.maximum(self._sizes, 1))[self.path.labels]
        return weights if self.kept is None else weights * self.kept

    @cached_property
    def _sizes(self) -> np.ndarray:
        """How many samples of each class count, [K]."""
        return np.bincount(self.path.labels, self.kept, len(self.target))

    @cached_property
    def grid(self) -> Grid:
        """The intervals between all gammas at which anything changes."""
        if self.known is not None:
            return self.known[0]
        events = [] if self.changes is None else [self.changes.gamma]
        if (
            not events or self.changes is not self.path.changes
        ):  # else these tell where samples are right
            events.append(self.path.events[1])
        return Grid.between(np.concatenate(events), self.path.range, self.most)

    @cached_property
    def mismatch(self) -> ShareMismatch | None:
        """Mismatch of the predicted shares. Labelled samples may be imbalanced, so they are class-weighted."""
        if self.changes is None or self.metric not in ERRORS:
            return None
        prior, weights = (self.target, None) if self.unlabelled else (self.prior, self.weights)
        return ShareMismatch(self.changes, prior, self.grid, weights)

    @cached_property
    def steps(self) -> MetricSteps:
        """The metric and the recalls over gamma."""
        return MetricSteps(
            self.metric,
            self.path.labels,
            len(self.target),
            self.path.events,
            self.changes,
            self.cost,
        )

    @cached_property
    def _error_bins(self) -> np.ndarray:
        if self.known is not None:
            return self.known[1]
        if (
            self.changes is not None and self.changes is self.path.changes
        ):  # an exact grid is of their gammas
            return self.grid.bins(self.changes.gamma)[self.path.turns]
        return self.grid.bins(self.path.events[1])


def class_effects(objective: Objective, gamma: float) -> np.ndarray:
    """Return about how much the loss falls as the recall of each class rises from 0 to 1, [K]."""
    present = np.bincount(objective.path.labels, minlength=len(objective.target)) > 0
    if objective.metric in ("macro_f1", "g_mean"):
        return present / present.sum()
    if objective.metric == "worst_recall":
        recall = np.nan_to_num(objective.path.class_accuracy(gamma), nan=np.inf)
        return (recall == recall.min()) / (recall == recall.min()).sum()
    if objective.cost is not None:
        size = len(present)
        return (
            objective.prior
            * (objective.cost.sum(axis=1) - size * np.diag(objective.cost))
            / (size - 1)
        )
    return objective.prior
