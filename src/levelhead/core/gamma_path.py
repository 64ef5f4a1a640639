"""The exact path of labelled samples over one strength, gamma: every curve that follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..path.curve import Curve, Point, accumulate
from ..path.direction import Direction
from ..path.engines import find_changes
from ..path.envelope import Envelope
from ..path.winners import winners_at
from ..show import plot, style
from ..support.arrays import Array
from ..support.errors import LevelheadError, check_choice
from ..support.progress import RowProgress
from ..support.read import read_chunks
from ..support.types import Kind
from .arguments import check_range, target_prior
from .class_labels import (
    flatten_positions,
    refuse_label_table,
    refuse_swapped,
    resolve_labels,
)
from .class_names import names_of_columns
from .counts import Counts, check_samples, groups
from .metrics import Metric, Tables
from .rules import RULES, OneStrength, Rule
from .samples import Goal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NUMBERS = 1 << 21  # changes times classes that are counted at once


@dataclass(frozen=True, eq=False)
class GammaPath:
    """Every change of every prediction over gamma, and every curve that follows from it.

    Args:
        changes: what is predicted at the start of the range, and every change of it.
        labels, counts, rule, range, kind: as in `gamma_path`, checked; [N], [K].
        target: [K], what each class weighs in `balanced_error`; all the same if None.
        logits: what the path was computed from, by reference; None if not known, as in a pickle.

    >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
    >>> path
    GammaPath(3 samples, 2 classes, rule rescale, gamma 0 to 2)
    >>> path.right(0.3), path.at(0.3).balanced_error
    (array([ True,  True, False]), 0.25)
    >>> path.confusion(0.3)
    array([[1, 0], [1, 1]])
    >>> path.curve_of("macro_f1").values.round(3)
    array([0.25 , 0.667, 0.25 , 0.4  ])
    >>> path.best("error").gamma, round(path.best(Goal("error", floors={0: 1.0})).gamma, 3)
    (1.5, 0.354)
    """

    changes: Envelope
    labels: np.ndarray
    counts: np.ndarray
    rule: Direction
    range: tuple[float, float]
    target: np.ndarray | None = None
    logits: Array | None = None
    kind: Kind = "logits"

    # ---- Curves --------------------------------------------------------------------------------

    @cached_property
    def error_curve(self) -> Curve:
        """The share of samples that are wrong, over gamma."""
        return self._right_curve(np.full(len(self.labels), 1 / len(self.labels)))

    @cached_property
    def balanced_error_curve(self) -> Curve:
        """The mean of each class's own error, weighted by `target`, over gamma."""
        if self.target is None:
            shares = np.ones(len(self.counts))
        else:
            shares = self.target
        sizes = np.bincount(self.labels, minlength=len(self.counts))
        shares = np.where(sizes > 0, shares, 0.0)
        return self._right_curve((shares / shares.sum() / np.maximum(sizes, 1))[self.labels])

    def _right_curve(self, weights: np.ndarray) -> Curve:
        """Return 1 - the weight of the samples that are right, over gamma."""
        changes = self.changes
        true = self.labels[self.changes.sample]
        sign = (changes.new_class == true) * 1.0 - (changes.old_class == true) * 1.0
        turns = np.flatnonzero(sign)
        start = float(weights[changes.start == self.labels].sum())
        steps = sign[turns] * weights[changes.sample[turns]]
        return accumulate(start, changes.gamma[turns], steps, self.range).complement()

    @property
    def gammas(self) -> np.ndarray:
        """Every gamma at which a sample turns right or wrong, ascending, [B], from the start on."""
        return self.error_curve.gammas

    @property
    def error(self) -> np.ndarray:
        """The share of samples that are wrong from gammas[i] on, [B]."""
        return self.error_curve.values

    @property
    def balanced_error(self) -> np.ndarray:
        """The mean of each class's own error from gammas[i] on, [B]."""
        return self.balanced_error_curve.values

    def curve_of(self, metric: str | Metric | Goal, *, cost: Array | None = None) -> Curve:
        """Return a metric over gamma, exact at every change, as people know it: a higher F1.

        Args:
            metric: a name, a `Metric` or a `Goal`.
            cost: [K, K], row true, column predicted, for the metric `cost`.
        """
        goal = self._goal(metric, cost)
        gammas, losses, _ = self._losses(goal)
        return Curve(gammas, goal.metric.shown(losses), self.range[1])

    def best(
        self, metric: str | Metric | Goal = "balanced_error", *, cost: Array | None = None
    ) -> Point:
        """Return the middle of the widest stretch on which a metric, or a goal, is best."""
        goal = self._goal(metric, cost)
        gammas, losses, short = self._losses(goal)
        if goal.floors is not None:
            if short.min() > 1e-11:
                raise LevelheadError("no gamma meets them; lower the floors", parameter="floors")
            losses = np.where(short > 1e-11, np.inf, losses)
        curve = Curve(gammas, losses, self.range[1])
        plateau = curve.plateau()
        middle = curve.middle(plateau)
        value = float(goal.metric.shown(curve.at(middle)))
        return replace(self.at(middle), plateau=plateau, metric=goal.metric.name, value=value)

    def _goal(self, metric: str | Metric | Goal, cost: Array | None = None) -> Goal:
        if isinstance(metric, Goal):
            goal = metric
        else:
            goal = Goal(metric, cost=cost)
        target = None
        if goal.metric.name == "balanced_error":
            target = self.target
        return goal.on(self.labels, len(self.counts), None, target)

    def _losses(self, goal: Goal) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return gammas [G], the loss from each on, and how far the worst floor is missed there."""
        gammas = np.unique(np.append(self.changes.gamma, self.range[0]))
        losses, short = [], []
        for tables in self._tables_along(goal, gammas):
            losses.append(goal.loss(tables))
            if goal.floors is not None:
                miss = np.nan_to_num(goal.floors - tables.recall, nan=-1.0)
                short.append(miss.max(axis=-1))
        if short:
            missed = np.concatenate(short)
        else:
            missed = np.zeros(len(gammas))
        return gammas, np.concatenate(losses), missed

    def _tables_along(self, goal: Goal, gammas: np.ndarray) -> Iterator[Tables]:
        """Yield the tables from each gamma on, [g, K], some gammas at a time."""
        changes, classes = self.changes, len(self.counts)
        weights = goal.weights(self.labels, classes)
        mass = np.ones(len(self.labels))
        if weights is not None:
            mass = weights
        now = goal.tables(self.labels, changes.start, classes)
        step = max(1, _MOST_NUMBERS // classes)
        for first in range(0, len(gammas), step):
            block = gammas[first : first + step]
            # Changes up to the last of these gammas that the tables do not count yet.
            before = gammas[first - 1] if first else -np.inf
            begin, end = np.searchsorted(changes.gamma, [before, block[-1]], side="right")
            rows = changes.sample[begin:end]
            at = np.searchsorted(block, changes.gamma[begin:end], side="left") * classes
            old = changes.old_class[begin:end]
            new = changes.new_class[begin:end]
            true = self.labels[rows]
            moved, size = mass[rows], len(block) * classes
            right = np.bincount(at + new, moved * (new == true), size)
            right -= np.bincount(at + old, moved * (old == true), size)
            predicted = np.bincount(at + new, moved, size) - np.bincount(at + old, moved, size)
            paid = None
            if goal.cost is not None and now.paid is not None:
                price = moved * (goal.cost[true, new] - goal.cost[true, old])
                paid = now.paid + np.cumsum(np.bincount(at // classes, price, len(block)))
            shape = (len(block), classes)
            tables = Tables(
                right=now.right + np.cumsum(right.reshape(shape), axis=0),
                predicted=now.predicted + np.cumsum(predicted.reshape(shape), axis=0),
                sizes=np.broadcast_to(now.sizes, shape),
                paid=paid,
            )
            yield tables
            last = None if paid is None else paid[-1]
            now = Tables(tables.right[-1], tables.predicted[-1], now.sizes, last)

    # ---- One gamma -----------------------------------------------------------------------------

    def at(self, gamma: float) -> Point:
        """Return everything at one gamma. No sample changes within the plateau of the point."""
        gamma = float(gamma)
        accuracy = self.class_accuracy(gamma)
        error = float(self.error_curve.at(gamma))
        balanced = float(self.balanced_error_curve.at(gamma))
        i = int(np.searchsorted(self.gammas, gamma, side="right"))
        plateau = float(self.gammas[i - 1]), float(np.append(self.gammas, self.range[1])[i])
        means = {name: float(np.nanmean(accuracy[some])) for name, some in self._groups.items()}
        return Point(
            gamma,
            error,
            balanced,
            accuracy,
            means,
            plateau,
            metric="balanced_error",
            value=balanced,
        )

    def right(self, gamma: float) -> np.ndarray:
        """Return whether each sample is right at gamma, [N] bool."""
        return self._predictions(gamma) == self.labels

    def class_accuracy(self, gamma: float) -> np.ndarray:
        """Return the share of each class's samples that are right at gamma, [K], NaN for none."""
        predicted = self._predictions(gamma)
        return Tables.of(self.labels, predicted, len(self.counts)).recall

    def class_curve(self, i: int) -> Curve:
        """Return the accuracy of class i over gamma; NaN if it has no sample."""
        if not 0 <= i < len(self.counts):
            raise LevelheadError(f"expected a class from 0 to {len(self.counts) - 1}, got {i}")
        own = self.labels == i
        if not own.any():
            return Curve(np.array(self.range[:1]), np.array([np.nan]), self.range[1])
        return self._right_curve(own / own.sum()).complement()

    def predictions(self, gamma: float) -> np.ndarray:
        """Return the class predicted at gamma, [N]. Outside the range, the logits are needed."""
        if not np.isfinite(gamma):
            raise LevelheadError(f"expected a finite number, got {gamma}", parameter="gamma")
        low, high = self.range
        if low <= gamma <= high:
            return self.changes.predictions(gamma)
        if self.logits is None:
            reason = "this path has no logits: they are not pickled; compute the path again"
            raise LevelheadError(reason)
        chunks = (chunk for _, chunk in read_chunks(self.logits, kind=self.kind))
        return np.concatenate([winners_at(chunk, self.rule, gamma) for chunk in chunks])

    def _predictions(self, gamma: float) -> np.ndarray:
        low, high = self.range
        if not low <= gamma <= high:
            within = f"expected a value within [{low:g}, {high:g}], got {gamma:g}"
            instead = "compute the path over a wider range"
            raise LevelheadError(f"{within}; {instead}", parameter="gamma")
        return self.changes.predictions(gamma)

    def confusion(self, gamma: float) -> np.ndarray:
        """Return the confusion matrix at gamma, [K, K]: true class by predicted class."""
        size = len(self.counts)
        cells = self.labels * size + self.predictions(gamma)
        return np.bincount(cells, minlength=size**2).reshape(size, size)

    @property
    def _groups(self) -> dict[str, np.ndarray]:
        present = np.bincount(self.labels, minlength=len(self.counts)) > 0
        every = np.arange(len(self.counts))
        members = {name: np.isin(every, of) & present for name, of in groups(self.counts).items()}
        return {name: some for name, some in members.items() if some.any()}

    # ---- How it is shown -----------------------------------------------------------------------

    def plot(self, ax: Axes | None = None, *, gamma: float | None = None) -> Axes:
        """Draw both errors over gamma, and mark a given gamma (extra `plot`)."""
        title = f"{len(self.labels)} samples, {len(self.counts)} classes"
        return plot.draw_errors(
            self.error_curve, self.balanced_error_curve, ax, gamma=gamma, title=title
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the logits, and nothing that was computed from them."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state | {"logits": None}

    def __repr__(self) -> str:
        size = f"{len(self.labels)} samples, {len(self.counts)} classes"
        low, high = self.range
        return f"GammaPath({size}, rule {self.rule.name}, gamma {low:g} to {high:g})"

    def _repr_html_(self) -> str:
        low, high = self.range
        was, best = self.at(low), self.best()
        balanced = f"{was.balanced_error:.2%} at {low:g}; lowest, {best.value:.2%}"
        rows = {
            "samples": f"{len(self.labels)} of {len(self.counts)} classes",
            "gamma": f"{low:g} to {high:g}, rule {self.rule.name}, {len(self.gammas)} breakpoints",
            "balanced error": f"{balanced}, at {best.gamma:.3f}",
            "error": f"{was.error:.2%} at {low:g}; {best.error:.2%} at {best.gamma:.3f}",
        }
        note = "the lowest error is optimistic; levelhead.tune says what to expect on new samples"
        picture = style.sparkline(self.balanced_error_curve, best.gamma)
        return style.html("GammaPath", rows, picture=picture, notes=[note])


def gamma_path(
    logits: Array,
    labels: Array,
    counts: Counts,
    *,
    rule: str | Rule = "rescale",
    range: tuple[float, float] | None = None,
    target: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    progress: RowProgress | None = None,
) -> GammaPath:
    """Compute the exact path over gamma: every strength at which any prediction changes.

    Args:
        logits: [N, K]: an array, a tensor on any device, or a memory-mapped file; tokens and pixels
            as in `tune`.
        labels: [N], as in `tune`.
        counts: [K], training samples of each class.
        rule: `rescale`, `tau` or `shift`; or such a rule with what it needs:
            ``lh.rules.Tau(norms=norms)``.
        range: of gamma, which need not hold 0; that of the rule, or (0, 2), if not given.
        target, names, kind: as in `tune`.
        progress: called with (rows done, rows in all).

    >>> path = gamma_path(np.array([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]]), [0, 1, 1], [400, 100])
    >>> path.gammas.round(3), path.error.round(3)
    (array([0.   , 0.208, 0.5  , 1.   ]), array([0.667, 0.333, 0.667, 0.333]))
    """
    along = find_path_rule(rule)
    if range is None:
        if along.range is not None:
            range = along.range
        else:
            range = (0.0, 2.0)
    reach = check_range(range)
    refuse_swapped(logits, labels, counts)
    if names is None:
        names = names_of_columns(logits, counts)
    logits, labels, _ = flatten_positions(logits, labels)
    refuse_label_table(labels)
    labels, names = resolve_labels(logits, labels, counts, names)
    labels, n = check_samples(logits, labels, counts, names)
    along.refuse_kind(kind)
    direction = along.direction(n)
    shares = None
    if target is not None:
        shares = target_prior(target, len(n), names)
    changes = find_changes(logits, direction, reach, kind=kind, progress=progress)
    return GammaPath(changes, labels, n, direction, reach, shares, logits, kind)


def find_path_rule(rule: str | Rule) -> OneStrength:
    """Return a rule of one strength as it is, or the one that has a name."""
    if isinstance(rule, OneStrength):
        return rule
    able = [name for name, other_rule in RULES.items() if isinstance(other_rule, OneStrength)]
    check_choice("rule", rule, able)
    return RULES[rule]  # type: ignore[return-value, index]
