"""The exact path over gamma: intervals on which each sample is right (`engines.py`), whose ends give every curve."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.adjustment import check_range, target_prior
from ..core.counts import Counts, check_samples, flatten_positions, groups
from ..core.rules import Rule, find_path_rule
from ..path.curve import METRICS, Curve, Point, accumulate, ascending
from ..path.direction import Direction, intersect
from ..path.engines import Engine, find_changes, find_right
from ..path.envelope import Envelope, read_chunks, winners_at
from ..show import plot, style
from ..support.arrays import Array
from ..support.errors import LevelheadError, check_choice
from ..support.progress import RowProgress
from ..support.types import Kind, Metric
from ..support.warnings import warn
from . import path_metrics as metrics
from .path_metrics import ERRORS, RECALLS, Floors, MetricSteps, shown
from .resample import add_up, check_weights, class_mean_coefficients, draw_resamples

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class GammaPath:
    """Where each sample is right over gamma, and every curve that follows from it. `gamma_path` computes it.

    A sample is right at gamma if and only if ``lo <= gamma <= hi`` for one of its pieces (ties: `engines.py`). For
    top-1 without a kept bias, piece i is of sample i, with lo > hi if never right. Else a sample has any number.

    Args:
        sample, lo, hi: [M], the pieces.
        labels [N], counts [K], rule, range, k, weights [N], kind: as in `gamma_path`, checked.
        target: [K], what each class weighs in `balanced_error`; uniform over the classes present if None.
        logits: what the path was computed from, by reference, for `predictions`; () if not known. They are not pickled.
        changes: every change of every prediction, where it is known without the logits.

    >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
    >>> path
    GammaPath(3 samples, 2 classes, rule rescale, gamma 0 to 2)
    >>> path.right(0.3), path.at(0.3).balanced_error, path.class_curve(1).values
    (array([ True,  True, False]), 0.25, array([0. , 0.5, 1. ]))
    >>> path.confusion(0.3), path.shares(0.3)
    (array([[1, 0], [1, 1]]), array([0.75, 0.25]))
    >>> path.curve_of("macro_f1").values.round(3), path.curve_of("cost", cost=[[0, 1], [5, 0]]).values.round(3)
    (array([0.25 , 0.667, 0.25 , 0.4  ]), array([3.333, 1.667, 2.   , 0.333]))
    >>> path.best("error").gamma, round(path.best("error", floors={0: 1.0}).gamma, 3)
    (1.5, 0.354)
    """

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
    logits: tuple[Array, ...] = ()
    kind: Kind = "logits"
    changes: Envelope | None = None

    @staticmethod
    def of_changes(
        changes: Envelope, labels: np.ndarray, counts: np.ndarray, rule: Direction, **more: Any
    ) -> "GammaPath":
        """Return the path of samples whose changes are known: they tell where each is right."""
        ends = changes.where_right(labels)
        return GammaPath(
            np.arange(len(labels)),
            *ends,
            labels,
            counts,
            rule,
            changes.range,
            changes=changes,
            **more,
        )

    def curve(self, coefficients: np.ndarray) -> Curve:
        """Return ``sum_i coefficients[i] [sample i is right]`` over gamma: with ones, how many samples are right."""
        start, at, sign, sample = self.events
        return accumulate(
            float(coefficients[start].sum()), at, sign * coefficients[sample], self.range
        )

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
        """Return the accuracy of class i over gamma, on the breakpoints of that class; NaN if it has no sample."""
        if not 0 <= i < len(self.counts):
            raise LevelheadError(f"expected a class from 0 to {len(self.counts) - 1}, got {i}")
        if not self._class_totals[i]:
            return Curve(np.array(self.range[:1]), np.array([np.nan]), self.range[1])
        start, at, sign, sample = self.events
        own, weight = self.labels[sample] == i, self._weights / self._class_totals[i]
        base = float(weight[start][self.labels[start] == i].sum())
        return accumulate(base, at[own], (sign * weight[sample])[own], self.range)

    def class_accuracy(
        self, gammas: float | Sequence[float] | np.ndarray | None = None
    ) -> np.ndarray:
        """Return each class's accuracy, NaN without a sample, at given gammas, [..., K], or breakpoints, [B, K]."""
        if gammas is None:
            return np.stack(
                [self.class_curve(i).at(self.gammas) for i in range(len(self.counts))], axis=1
            )
        wanted = np.atleast_1d(np.asarray(gammas, np.float64))
        found = np.stack(
            [
                np.bincount(self.labels, self.right(g) * self._weights, len(self.counts))
                for g in wanted
            ]
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            found = found / self._class_totals
        return found[0] if np.ndim(gammas) == 0 else found

    @property
    def groups(self) -> dict[str, Curve]:
        """The mean class accuracy of the many-, medium- and few-shot classes (see `counts.groups`) over gamma."""
        each = {
            name: class_mean_coefficients(self.labels, self._weights, of)
            for name, of in self._groups.items()
        }
        return {name: self.curve(coefficients) for name, coefficients in each.items()}

    def right(self, gamma: float) -> np.ndarray:
        """Return whether each sample is right at gamma, [N] bool."""
        low, high = self.range
        if not low <= gamma <= high:
            within = f"expected a value within [{low:g}, {high:g}], got {gamma:g}; compute the path over a wider range"
            raise LevelheadError(within, parameter="gamma")
        within = (self.lo <= gamma) & (gamma <= self.hi)
        if self.single:
            return within
        found = np.zeros(len(self.labels), bool)
        found[self.sample[within]] = True
        return found

    @cached_property
    def single(self) -> bool:
        """Whether piece i is of sample i: each is right on one interval, if at all."""
        return len(self.sample) == len(self.labels) and bool(
            (self.sample == np.arange(len(self.labels))).all()
        )

    def at(self, gamma: float) -> Point:
        """Return everything at one gamma. No sample changes within the plateau of the point."""
        gamma, accuracy = float(gamma), self.class_accuracy(float(gamma))
        error, balanced = (
            float(curve.at(gamma)) for curve in (self.error_curve, self.balanced_error_curve)
        )
        i = int(np.searchsorted(self.gammas, gamma, side="right"))
        plateau = float(self.gammas[i - 1]), float(np.r_[self.gammas, self.range[1]][i])
        groups = {name: float(np.nanmean(accuracy[some])) for name, some in self._groups.items()}
        return Point(
            gamma,
            error,
            balanced,
            accuracy,
            groups,
            plateau,
            metric="balanced_error",
            value=balanced,
        )

    def curve_of(self, metric: Metric, *, cost: Array | None = None) -> Curve:
        """Return a metric over gamma, exact at every gamma at which it may change, as people know it: a higher F1.

        Args:
            metric: `error`, `balanced_error`, `macro_f1`, `mcc`, `kappa` (Cohen's), `g_mean` or `worst_recall` of the
                classes that have a sample; or `cost`, the mean cost of a sample. All but the first two are of top-1.
            cost: [K, K], row true, column predicted, for the metric `cost`.
        """
        check_choice("metric", metric, METRICS)
        metrics.check_cost_given(metric, cost)
        if metric in ERRORS:
            return self.error_curve if metric == "error" else self.balanced_error_curve
        steps = self._steps(metric, cost)
        cells = np.unique(np.append(steps.by_class.gamma, self.range[0]))
        return Curve(cells, shown(metric, steps.losses(cells, self._weights)), self.range[1])

    def best(
        self,
        metric: Metric = "balanced_error",
        *,
        cost: Array | None = None,
        floors: Floors | None = None,
    ) -> Point:
        """Return the middle of the widest plateau on which the metric is best, with the metric's value there.

        Args:
            metric, cost: as in `curve_of`.
            floors: {class: recall}, or a recall for all classes: only gammas at which no recall is below its floor.
        """
        curve = self.curve_of(metric, cost=cost)
        losses = replace(curve, values=shown(metric, curve.values))  # its own inverse
        if floors is not None:
            least = metrics.check_floors(floors, self.labels, len(self.counts))
            margins = self._steps(metric, cost).margins(curve.gammas, self._weights, least)
            losses = replace(losses, values=metrics.apply_floors(losses.values, margins))
        middle = losses.middle(plateau := losses.plateau())
        if floors is not None and not metrics.meets_floors(margins):
            raise metrics.unmet_floors(middle, self.class_accuracy(middle), least, self.range)
        return replace(
            self.at(middle), plateau=plateau, metric=metric, value=float(curve.at(middle))
        )

    def bootstrap(
        self,
        n: int,
        rng: np.random.Generator | int,
        *,
        metric: Metric = "balanced_error",
        cost: Array | None = None,
        stratified: bool = True,
        gammas: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return n curves [n, G] of the metric, each of one resample, on the breakpoints or on given gammas.

        Args:
            n, rng, metric, cost: how many; a generator, or a seed; as in `curve_of`.
            stratified: whether to resample within each class, so that none is lost, or all samples together.
            gammas: where, ascending; at all B breakpoints if not given, which takes 8 n B bytes.
        """
        check_choice("metric", metric, METRICS)
        metrics.check_cost_given(metric, cost)
        where = (
            self.curve_of(metric, cost=cost).gammas
            if gammas is None
            else np.asarray(gammas, np.float64)
        )
        if (
            where.ndim != 1
            or not (np.diff(where, prepend=self.range[0], append=self.range[1]) >= 0).all()
        ):
            within = "[{:g}, {:g}]".format(*self.range)
            raise LevelheadError(
                f"expected numbers [G], ascending within {within}", parameter="gammas"
            )
        drawn = draw_resamples(self.labels, n, np.random.default_rng(rng), stratified=stratified)
        weights = (self._weights * times for times in drawn)
        if metric not in ERRORS:
            steps = self._steps(metric, cost)
            return np.array([shown(metric, steps.losses(where, w)) for w in weights]).reshape(
                n, len(where)
            )
        coefficients = (
            w / w.sum() if metric == "error" else self._balanced_coefficients(w) for w in weights
        )
        (start, at, sign, sample), rows = self.events, np.empty((n, len(where)))
        bins = np.searchsorted(where, at)  # the first gamma at which the event has happened
        for row, c in zip(rows, coefficients, strict=True):
            row[:] = 1 - add_up(c[start].sum(), bins, sign * c[sample], len(where))
        return rows

    def predictions(self, gamma: float) -> np.ndarray:
        """Return the class predicted at gamma, [N], computed from the logits. Gamma may lie outside the range."""
        if not np.isfinite(gamma):
            raise LevelheadError(f"expected a finite number, got {gamma}", parameter="gamma")
        chunks = (
            chunk for part in self.whole_logits() for _, chunk in read_chunks(part, kind=self.kind)
        )
        return np.concatenate([winners_at(chunk, self.rule, gamma) for chunk in chunks])

    def confusion(self, gamma: float) -> np.ndarray:
        """Return the confusion matrix at gamma, [K, K], in counts or weights: true class by predicted class."""
        size = len(self.counts)
        return np.bincount(
            self.labels * size + self.predictions(gamma), self.weights, size**2
        ).reshape(size, size)

    @cached_property
    def envelope(self) -> Envelope:
        """Every change of every prediction over the range."""
        if self.changes is not None:
            return self.changes
        parts = [
            find_changes(part, self.rule, self.range, kind=self.kind)
            for part in self.whole_logits()
        ]
        return parts[0] if len(parts) == 1 else parts[0].joined(parts[1:])

    def shares(self, gamma: float) -> np.ndarray:
        """Return each class's predicted share at gamma, [K]: ``P(predicted | y)`` over y, weighted by `target`."""
        return np.bincount(
            self.predictions(gamma), self._balanced_coefficients(self._weights), len(self.counts)
        )

    def share_mismatch(self, target: Array | None = None) -> Curve:
        """Return the total variation between those shares and a target prior (uniform if not given), over gamma."""
        shares = target_prior(target, len(self.counts))
        return self.envelope.mismatch(shares, self._balanced_coefficients(self._weights))

    def whole_logits(self) -> tuple[Array, ...]:
        """Return the logits, in parts [n, K]."""
        if self.logits:
            return self.logits
        reason = "they are not pickled, nor kept when folds are merged"
        raise LevelheadError(f"this path has no logits: {reason}; compute the path again")

    def merge(self, other: "GammaPath") -> "GammaPath":
        """Return the path of both sets of samples, these first."""
        return join_paths([self, other])

    def merge_classes(self, other: "GammaPath") -> "GammaPath":
        """Return the path of the same samples against the classes of both shards. Deprecated, as `shard=` is."""
        warn(
            "merge_classes goes in levelhead 0.2; give gamma_path the logits of all classes",
            DeprecationWarning,
        )
        if (
            self.k > 1
            or self.rule.bias is not None
            or not np.array_equal(self.labels, other.labels)
        ):
            raise LevelheadError(
                "expected two shards of the same samples, for top-1 without a kept bias"
            )
        lo, hi = intersect(self.lo, self.hi, other.lo, other.hi)
        return replace(self, lo=lo, hi=hi, logits=())

    def take(self, rows: np.ndarray) -> "GammaPath":
        """Return the path of some samples, rows [n] in ascending order; logits are not kept."""
        place = np.full(len(self.labels), -1)
        place[rows] = np.arange(len(rows))
        kept = place[self.sample] >= 0
        sample, lo, hi = place[self.sample[kept]], self.lo[kept], self.hi[kept]
        return replace(
            self, sample=sample, lo=lo, hi=hi, labels=self.labels[rows], logits=(), changes=None
        )

    def within(self, range: tuple[float, float]) -> "GammaPath":
        """Return the path over a part of its range, as if it had been computed there."""
        if range == self.range:
            return self
        lo, hi = intersect(self.lo, self.hi, *range)
        return replace(
            self, lo=lo, hi=hi, range=range, changes=self.changes and self.changes.within(range)
        )

    def plot(self, ax: "Axes | None" = None, *, gamma: float | None = None) -> "Axes":
        """Draw both errors over gamma, and mark a given gamma, on the Axes given or on new ones (extra `plot`)."""
        title = f"{len(self.labels)} samples, {len(self.counts)} classes"
        return plot.draw_errors(
            self.error_curve, self.balanced_error_curve, ax, gamma=gamma, title=title
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the logits, and nothing that was computed from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"logits": ()}

    __copy__ = __deepcopy__ = lambda self, *_: replace(
        self
    )  # a copy, unlike a pickle, keeps the logits

    def __repr__(self) -> str:
        size, (low, high) = f"{len(self.labels)} samples, {len(self.counts)} classes", self.range
        return f"GammaPath({size}, rule {self.rule.name}, gamma {low:g} to {high:g})"

    def _repr_html_(self) -> str:
        (low, high), was, best = self.range, self.at(self.range[0]), self.best()
        rows = {
            "samples": f"{len(self.labels)} of {len(self.counts)} classes",
            "gamma": f"{low:g} to {high:g}, rule {self.rule.name}, {len(self.gammas)} breakpoints",
            "balanced error": f"{was.balanced_error:.2%} at {low:g}; lowest, {best.value:.2%}, at {best.gamma:.3f}",
            "error": f"{was.error:.2%} at {low:g}; {best.error:.2%} at {best.gamma:.3f}",
        }
        note = "the lowest error is optimistic; levelhead.tune says what to expect on new samples"
        picture = style.sparkline(self.balanced_error_curve, best.gamma)
        return style.html("GammaPath", rows, picture=picture, notes=[note])

    @cached_property
    def events(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The samples right at the start; then gamma, sign and sample of every change within the range, by gamma."""
        # A sample turns right at lo and wrong at the float after hi. What begins at the start of the range is no change
        # but a state, and what ends with the range does not change within it.
        if self.changes is not None:  # which are sorted
            start, sample = (
                np.flatnonzero(self.changes.start == self.labels),
                self.changes.sample[self.turns],
            )
            sign = np.where(self.changes.new_class[self.turns] == self.labels[sample], 1.0, -1.0)
            return start, self.changes.gamma[self.turns], sign, sample
        (begin, end), some = self.range, self.lo <= self.hi
        enters, leaves = (
            np.flatnonzero(some & (self.lo > begin)),
            np.flatnonzero(some & (self.hi < end)),
        )
        at = np.concatenate([self.lo[enters], np.nextafter(self.hi[leaves], np.inf)])
        order, sign = ascending(at), np.repeat([1.0, -1.0], [len(enters), len(leaves)])
        sample, first = (
            self.sample[np.concatenate([enters, leaves])],
            self.lo <= np.minimum(self.hi, begin),
        )
        return self.sample[first], at[order], sign[order], sample[order]

    @cached_property
    def turns(self) -> np.ndarray:
        """Which of the changes turn a sample right or wrong, where changes are known."""
        assert self.changes is not None
        label = self.labels[self.changes.sample]
        return np.flatnonzero((self.changes.new_class == label) | (self.changes.old_class == label))

    @cached_property
    def _weights(self) -> np.ndarray:
        return np.ones(len(self.labels)) if self.weights is None else self.weights

    @cached_property
    def _class_totals(self) -> np.ndarray:
        return np.bincount(self.labels, self._weights, len(self.counts))

    @property
    def _groups(self) -> dict[str, np.ndarray]:
        every, present = np.arange(len(self.counts)), self._class_totals > 0
        found = {
            name: np.isin(every, members) & present for name, members in groups(self.counts).items()
        }
        return {name: some for name, some in found.items() if some.any()}

    def _balanced_coefficients(self, weights: np.ndarray) -> np.ndarray:
        shares = np.ones(len(self.counts)) if self.target is None else self.target
        return class_mean_coefficients(self.labels, weights, shares)

    def _steps(self, metric: Metric, cost: Array | None = None) -> MetricSteps:
        if metric not in ERRORS and self.k > 1:
            reason = f"{metric!r} is of top-1 predictions, and this path is of top-{self.k}"
            raise LevelheadError(
                f"expected 'error' or 'balanced_error': {reason}", parameter="metric"
            )
        changes = None if metric in RECALLS else self.envelope
        matrix = None if cost is None else metrics.check_cost(cost, len(self.counts))
        return MetricSteps(metric, self.labels, len(self.counts), self.events, changes, matrix)


def join_paths(paths: Sequence[GammaPath], *, alike: bool = True) -> GammaPath:
    """Return the path of several sets of samples, one after another: of one rule, or else without what needs one."""
    kept: Any = [
        (p.range, p.k, p.kind, p.rule.name, p.rule.ratios, p.rule.bias, p.target) for p in paths
    ]
    if alike and not all(all(map(np.array_equal, kept[0], other)) for other in kept[1:]):
        raise LevelheadError(
            "expected paths over the same range, k, kind, rule, counts, bias and target"
        )
    offsets = np.cumsum([0, *(len(path.labels) for path in paths[:-1])])
    changes = [path.changes for path in paths if path.changes is not None]
    return replace(
        paths[0],
        sample=np.concatenate(
            [path.sample + offset for path, offset in zip(paths, offsets, strict=True)]
        ),
        **{
            name: np.concatenate([getattr(path, name) for path in paths])
            for name in ("lo", "hi", "labels")
        },
        weights=np.concatenate([p._weights for p in paths])
        if any(p.weights is not None for p in paths)
        else None,
        logits=sum((p.logits for p in paths), ()) if alike and all(p.logits for p in paths) else (),
        changes=changes[0].joined(changes[1:]) if len(changes) == len(paths) else None,
    )


def gamma_path(
    logits: Array,
    labels: Array,
    counts: Counts,
    *,
    rule: str | Rule = "rescale",
    range: tuple[float, float] | None = None,
    k: int = 1,
    weights: Array | None = None,
    target: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    engine: Engine = "auto",
    progress: RowProgress | None = None,
) -> GammaPath:
    """Compute the exact path over gamma: where each sample is right, with its curves.

    Args:
        logits: [N, K]: an array, a tensor on any device, or a memory-mapped file; tokens and pixels as in `tune`.
        labels, weights: [N], class indices; weights of the samples.
        rule: `rescale`, `tau` or `shift`; or such a rule with what it needs: ``lh.rules.Tau(norms=norms)``, or
            ``lh.rules.Rescale(bias=bias)`` for a bias [K] within the logits that is kept as the weights are scaled:
            ``(l_k - b_k) r_k^gamma + b_k``.
        range: of gamma, which need not hold 0; that of the rule, or (0, 2), if not given.
        k: right means among the first k.
        counts, target, names, kind: as in `tune`.
        engine: `numpy`, `torch` (on the tensor's device) or `auto`. The two may differ in the last bits of a gamma at
            which a sample changes, but not where scores tie at 0.
        progress: called with (rows done, rows in all).

    >>> path = gamma_path(np.array([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]]), np.array([0, 1, 1]), [400, 100])
    >>> path.gammas.round(3), path.error.round(3)
    (array([0.   , 0.208, 0.5  , 1.   ]), array([0.667, 0.333, 0.667, 0.333]))
    """
    made = find_path_rule(rule)
    reach = check_range(
        range if range is not None else made.range if made.range is not None else (0.0, 2.0)
    )
    logits, labels, weights = flatten_positions(logits, labels, weights)
    labels, n = check_samples(logits, labels, counts, names)
    direction = made.direction(n, kind=kind)
    masses = None if weights is None else check_weights(weights, len(labels))
    prior = None if target is None else target_prior(target, len(n), names)
    pieces = find_right(
        logits, labels, direction, reach, k, kind=kind, engine=engine, progress=progress
    )
    return GammaPath(*pieces, labels, n, direction, reach, k, masses, prior, (logits,), kind)
