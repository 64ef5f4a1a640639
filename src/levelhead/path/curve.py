"""Step functions of gamma, known at every breakpoint; the names of the metrics that are such functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np

from ..support.errors import LevelheadError
from ..support.types import Metric

SLIVER = 1e-9  # a stretch of gammas narrower than this is between two changes that nobody can choose between
METRICS: tuple[Metric, ...] = get_args(Metric)
# What others call these metrics. Where theirs is an accuracy, ours is the error: the best gamma is the same.
METRIC_ALIASES: dict[str, Metric] = {
    "accuracy": "error",
    "balanced_accuracy": "balanced_error",
    "recall_macro": "balanced_error",
    "f1_macro": "macro_f1",
    "matthews_corrcoef": "mcc",
    "cohen_kappa": "kappa",
    "geometric_mean": "g_mean",
}


def metric_name(name: str) -> Metric:
    """Return our name of a metric that is given by it, or by another name that it has."""
    known: dict[str, Metric] = {**dict(zip(METRICS, METRICS, strict=True)), **METRIC_ALIASES}
    if not isinstance(name, str) or name not in known:
        others = ", ".join(f"{other} for {metric}" for other, metric in METRIC_ALIASES.items())
        raise LevelheadError(
            f"expected {', '.join(METRICS)} (also {others}), got {name!r}", parameter="metric"
        )
    return known[name]


@dataclass(frozen=True, eq=False)
class Curve:
    """A step function: values[i] holds from gammas[i] to just before gammas[i + 1], the last up to `end`, inclusive."""

    gammas: np.ndarray  # [B], the breakpoints, ascending; the first is where the curve begins
    values: np.ndarray  # [B]
    end: float

    def at(self, gamma: float | np.ndarray | list[float]) -> np.ndarray | float:
        """Return the value at one gamma, or the values at many."""
        where = np.asarray(gamma, np.float64)
        if np.any((where < self.gammas[0]) | (where > self.end)) or np.isnan(where).any():
            bounds = f"[{self.gammas[0]:g}, {self.end:g}]"
            raise LevelheadError(
                f"expected a value within {bounds}, got {gamma}", parameter="gamma"
            )
        found = self.values[np.searchsorted(self.gammas, where, side="right") - 1]
        return float(found) if found.ndim == 0 else found

    def plateau(self, tolerance: float = 1e-12) -> tuple[float, float]:
        """Return the widest stretch (a, b) on which the curve is lowest, the first of equally wide ones."""
        # Values as close as the tolerance count as equal: they may be sums of the same terms in another order. A
        # sliver, narrower than 1e-9, is not taken for its value unless 0 is in it: rounding of scores, and not gamma,
        # would decide which side of its ends one is on. At 0, scores are the logits themselves.
        a, b, _ = self._lowest(tolerance)
        widest = int(np.argmax(b - a))
        return float(a[widest]), float(b[widest])

    def plateau_at_zero(self, tolerance: float = 1e-12) -> tuple[float, float] | None:
        """Return the stretch around 0 if the curve is as low there as anywhere, and nowhere but on slivers higher."""
        a, b, flat = self._lowest(tolerance)
        around = np.flatnonzero((a <= 0) & (b > 0))
        return (float(a[around[0]]), float(b[around[0]])) if flat and len(around) else None

    def middle(self, plateau: tuple[float, float]) -> float:
        """Return the gamma to choose on a plateau: its middle, where no change is near, or 0 on a sliver around 0."""
        a, b = plateau
        if b - a <= SLIVER:
            return 0.0 if a <= 0 < b else a
        at = a + (b - a) / 2
        steps = self.gammas[
            np.searchsorted(self.gammas, a, side="right") : np.searchsorted(self.gammas, b)
        ]
        if not len(steps) or np.abs(steps - at).min() > SLIVER / 2:
            return at
        edges = np.concatenate(
            [[a], steps, [b]]
        )  # changes at the middle cancel, unless rounding parts them
        widest = int(np.argmax(np.diff(edges)))
        return float(edges[widest] + (edges[widest + 1] - edges[widest]) / 2)

    def _lowest(self, tolerance: float) -> tuple[np.ndarray, np.ndarray, bool]:
        """Return the ends of each stretch on which the curve is lowest, and whether no part but slivers is higher."""
        ends = np.append(self.gammas[1:], self.end)
        counts = (ends - self.gammas > SLIVER) | ((self.gammas <= 0) & (ends > 0))
        if not np.isfinite(
            self.values[counts]
        ).any():  # a narrow range, or floors that only slivers meet
            counts[:] = True
        low = self.values <= self.values[counts].min() + tolerance
        starts = np.flatnonzero(low & ~np.r_[False, low[:-1]])
        stops = np.flatnonzero(low & ~np.r_[low[1:], False])
        some = np.flatnonzero(np.add.reduceat(low & counts, starts)) if len(starts) else starts
        return self.gammas[starts[some]], ends[stops[some]], bool(low[counts].all())

    def complement(self) -> Curve:
        """Return ``1 - self``: errors from accuracies."""
        return Curve(self.gammas, 1 - self.values, self.end)


@dataclass(frozen=True)
class Point:
    """The path at one gamma. Errors and accuracies are shares."""

    gamma: float
    error: float
    balanced_error: float
    class_accuracy: np.ndarray  # [K], NaN for a class without samples
    groups: dict[str, float]
    plateau: tuple[
        float, float
    ]  # the stretch around gamma on which the metric asked for does not change
    metric: Metric
    value: float  # of that metric here


def accumulate(
    start: float, gammas: np.ndarray, steps: np.ndarray, range: tuple[float, float]
) -> Curve:
    """Return the curve that begins at `start` and changes by steps[i] at gammas[i], which ascend."""
    gammas, totals = (
        np.concatenate([range[:1], gammas]),
        np.cumsum(np.concatenate([[start], steps])),
    )
    if (same := gammas[1:] == gammas[:-1]).any():
        last = np.append(~same, True)  # the last of several steps at one gamma
        gammas, totals = gammas[last], totals[last]
    return Curve(gammas, totals, range[1])


def ascending(gammas: np.ndarray) -> np.ndarray:
    """Return np.argsort(gammas, kind="stable"), in a third of the time."""
    # The last bits of each gamma are replaced by its position, and the numbers are sorted as integers. Where that is
    # not their order (two differ in those bits only), np.argsort is used.
    taken, bits = (
        (1 << len(gammas).bit_length()) - 1,
        (gammas + 0.0).view(np.int64),
    )  # no -0, which is before 0
    whole = bits ^ (
        (bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)
    )  # of negative ones, all other bits are turned
    order = np.sort(whole & ~taken | np.arange(len(gammas))) & taken
    ordered = gammas[order]
    return order if (ordered[1:] >= ordered[:-1]).all() else np.argsort(gammas, kind="stable")


def runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different ones of whole numbers that ascend, none negative, and the place of the first of each."""
    first = np.flatnonzero(np.diff(values, prepend=-1))
    return values[first], first


def stable_order(values: np.ndarray) -> np.ndarray:
    """Return np.argsort(values, kind="stable") of whole numbers, none negative, in a fraction of the time."""
    most, bits = int(values.max(initial=0)), len(values).bit_length()
    if most < 1 << 16:  # these are sorted by radix
        return np.argsort(values.astype(np.uint16, copy=False), kind="stable")
    if most >> (63 - bits):
        return np.argsort(values, kind="stable")
    return np.sort(values.astype(np.int64) << bits | np.arange(len(values))) & ((1 << bits) - 1)
