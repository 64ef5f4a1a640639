"""The exact path of labelled samples over one strength, gamma: every curve that follows from it.

`gamma_path` checks what it is given, asks path/ for every change of every prediction (`Envelope`), and
returns a `GammaPath`. Errors over gamma are sums over the changes that turn a sample right or wrong. Other
metrics are losses of the `Tables` from each change on. Both are exact: between two changes nothing moves.

It is for people who look: the path chooses nothing, and its best gamma is the best on these very samples. `tune`
has rules of one strength as well, judges them on samples that they were not fitted on (one_strength.py), and
needs tables of folds at some strengths, where this has one table at all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..path.curve import Curve, accumulate
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
from .counts import Counts, groups
from .goal import Goal
from .metrics import Metric, Tables
from .probabilities import smooth_votes
from .rules import RULES, OneStrength, Rule
from .samples import Given

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NUMBERS = 1 << 21  # changes times classes that are counted at once
_MET = 1e-11  # a floor that is missed by less is met: that is rounding


@dataclass(frozen=True, eq=False)
class Point:
    """The path at one gamma: what `GammaPath.at` and `GammaPath.best` return.

    Errors and accuracies are shares, not percent.

    Args:
        gamma: where it is.
        error: the share of samples that are wrong.
        balanced_error: the mean of each class's own error.
        class_accuracy: [K], NaN for a class without samples.
        groups: the mean accuracy of the many-, medium- and few-shot classes that have samples.
        plateau: the stretch around gamma on which the metric asked for does not change, from and to.
        metric: the name of that metric.
        value: the metric here, as people know it.
    """

    gamma: float
    error: float
    balanced_error: float
    class_accuracy: np.ndarray
    groups: dict[str, float]
    plateau: tuple[float, float]
    metric: str
    value: float


class _Losses(NamedTuple):
    """A goal over gamma, [G] each."""

    gammas: np.ndarray  # every gamma at which a prediction changes, ascending, from the start on
    losses: np.ndarray  # from each gamma on, up to the next
    short: np.ndarray  # by how much the worst floor is missed there; 0 without floors


@dataclass(frozen=True, eq=False)
class GammaPath:
    """Every change of every prediction over gamma, and every curve that follows from it.

    Args:
        changes: what is predicted at the start of the range, and every change of it.
        labels: [N], the true classes.
        counts: [K], training samples of each class.
        rule: how scores depend on gamma.
        range: of gamma, from and to.
        target: [K], how often classes occur in deployment, for metrics that depend on it; or None.
        logits: what the path was computed from, by reference (of votes, of which some are 0, their
            smoothed logarithms); None if not known, as in a pickle.
        kind: how the logits are read: `probabilities` by their logarithms, others as `logits`.
        names: of the classes, where they are known.

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
    names: Sequence[str] | None = None

    # ---- Curves --------------------------------------------------------------------------------

    @cached_property
    def error_curve(self) -> Curve:
        """The share of samples that are wrong, over gamma."""
        return self._right_curve(np.full(len(self.labels), 1 / len(self.labels)))

    @cached_property
    def balanced_error_curve(self) -> Curve:
        """The mean of each class's own error, weighted by `target`, over gamma."""
        shares = np.ones(len(self.counts))
        if self.target is not None:
            shares = self.target
        # A class without samples has no error: the others share its weight.
        sizes = np.bincount(self.labels, minlength=len(self.counts))
        shares = np.where(sizes > 0, shares, 0.0)
        per_sample = shares / shares.sum() / np.maximum(sizes, 1)
        return self._right_curve(per_sample[self.labels])

    def _right_curve(self, weights: np.ndarray) -> Curve:
        """Return 1 - the weight of the samples that are right, over gamma.

        A sum over the E changes, without any table: E log E for their order is all it costs.

        Args:
            weights: [N], which sum to 1.
        """
        changes = self.changes
        true = self.labels[changes.sample]
        # 1 where a change turns a sample right, -1 where it turns it wrong, 0 from wrong to wrong.
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
        along = self._losses(goal)
        return Curve(along.gammas, goal.metric.shown(along.losses), self.range[1])

    def best(
        self, metric: str | Metric | Goal = "balanced_error", *, cost: Array | None = None
    ) -> Point:
        """Return the middle of the widest stretch on which a metric, or a goal, is best.

        It is the best on these samples, which is more than new samples will show; `tune` says what
        to expect there.

        Args:
            metric: a name, a `Metric`, or a `Goal` with floors or a cost matrix.
            cost: [K, K], as in `curve_of`.

        Raises:
            LevelheadError: no gamma meets the floors of the goal.
        """
        goal = self._goal(metric, cost)
        along = self._losses(goal)
        losses = along.losses / goal.unit
        if goal.floors is not None:
            missed = along.short > _MET
            if missed.all():
                raise LevelheadError("no gamma meets them; lower the floors", parameter="floors")
            losses = np.where(missed, np.inf, losses)
        curve = Curve(along.gammas, losses, self.range[1])
        plateau = curve.plateau()
        middle = curve.middle(plateau)
        value = float(goal.metric.shown(np.asarray(curve.at(middle)) * goal.unit))
        return replace(self.at(middle), plateau=plateau, metric=goal.metric.name, value=value)

    def _goal(self, metric: str | Metric | Goal, cost: Array | None = None) -> Goal:
        """Return the goal for these samples, with the target of the path if its metric takes one."""
        goal = metric
        if not isinstance(goal, Goal):
            goal = Goal(goal, cost=cost)
        target = None
        if goal.metric.takes_target:
            target = self.target
        return goal.on(self.labels, len(self.counts), self.names, target)

    def _losses(self, goal: Goal) -> _Losses:
        """Return a goal over gamma, at every change."""
        gammas = np.unique(np.append(self.changes.gamma, self.range[0]))
        losses = []
        short = []
        for tables in self._tables_along(goal, gammas):
            losses.append(goal.loss(tables))
            shortfall = np.zeros(len(tables.right))
            if goal.floors is not None:
                # A class without a floor is NaN: it is never short.
                shortfall = np.nan_to_num(goal.floors - tables.recall, nan=-1.0).max(axis=-1)
            short.append(shortfall)
        return _Losses(gammas, np.concatenate(losses), np.concatenate(short))

    def _tables_along(self, goal: Goal, gammas: np.ndarray) -> Iterator[Tables]:
        """Yield the tables from each gamma on, [g, K], a block of gammas at a time.

        Args:
            goal: as whose metric weighs samples.
            gammas: [G], ascending; every change is at one of them.
        """
        changes = self.changes
        classes = len(self.counts)
        mass = goal.weights(self.labels, classes)
        if mass is None:
            mass = np.ones(len(self.labels))
        # The tables at the end of the last block, from which the next goes on.
        now = goal.tables(self.labels, changes.start, classes)
        step = max(1, _MOST_NUMBERS // classes)
        done = 0
        for first in range(0, len(gammas), step):
            block = gammas[first : first + step]
            # Changes up to the last of these gammas that the tables do not count yet.
            end = int(np.searchsorted(changes.gamma, block[-1], side="right"))
            rows = changes.sample[done:end]
            old = changes.old_class[done:end]
            new = changes.new_class[done:end]
            at = np.searchsorted(block, changes.gamma[done:end], side="left")
            done = end
            true = self.labels[rows]
            moved = mass[rows]

            # Each change is a step in the cells (gamma, new class) and (gamma, old class); added up
            # over the gammas, these are what the tables have gained since the start of the block.
            shape = (len(block), classes)
            size = len(block) * classes
            into = at * classes + new
            out_of = at * classes + old
            right = np.bincount(into, moved * (new == true), size)
            right -= np.bincount(out_of, moved * (old == true), size)
            predicted = np.bincount(into, moved, size) - np.bincount(out_of, moved, size)
            paid = None
            if goal.cost is not None and now.paid is not None:
                price = moved * (goal.cost[true, new] - goal.cost[true, old])
                paid = now.paid + np.cumsum(np.bincount(at, price, len(block)))
            tables = Tables(
                right=now.right + np.cumsum(right.reshape(shape), axis=0),
                predicted=now.predicted + np.cumsum(predicted.reshape(shape), axis=0),
                sizes=np.broadcast_to(now.sizes, shape),
                paid=paid,
            )
            yield tables
            now = tables[-1]

    # ---- One gamma -----------------------------------------------------------------------------

    def at(self, gamma: float) -> Point:
        """Return everything at one gamma: a `Point`.

        Errors, accuracies of classes and groups; its metric is the balanced error. Within its plateau no
        sample turns right or wrong. A gamma outside of the range of the path is refused.
        """
        gamma = float(gamma)
        accuracy = self.class_accuracy(gamma)
        balanced = float(self.balanced_error_curve.at(gamma))
        # The changes next to it, on both sides; after the last of them, the end of the range.
        i = int(np.searchsorted(self.gammas, gamma, side="right"))
        ends = np.append(self.gammas, self.range[1])
        return Point(
            gamma=gamma,
            error=float(self.error_curve.at(gamma)),
            balanced_error=balanced,
            class_accuracy=accuracy,
            groups={
                name: float(np.nanmean(accuracy[members])) for name, members in self._groups.items()
            },
            plateau=(float(ends[i - 1]), float(ends[i])),
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
        if not isinstance(i, int | np.integer) or not 0 <= i < len(self.counts):
            raise LevelheadError(f"expected a class from 0 to {len(self.counts) - 1}, got {i!r}")
        of_class = self.labels == i
        if not of_class.any():
            return Curve(np.array(self.range[:1]), np.array([np.nan]), self.range[1])
        return self._right_curve(of_class / of_class.sum()).complement()

    def predictions(self, gamma: float) -> np.ndarray:
        """Return the class predicted at gamma, [N]. Outside the range, the logits are needed.

        A path that comes out of a pickle has none, and refuses a gamma there.
        """
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
        """Return the class predicted at a gamma within the range, [N]."""
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
        """Many-, medium- and few-shot classes that have a sample here: {group: positions}."""
        sizes = np.bincount(self.labels, minlength=len(self.counts))
        present = {name: of[sizes[of] > 0] for name, of in groups(self.counts).items()}
        return {name: members for name, members in present.items() if len(members)}

    # ---- How it is shown -----------------------------------------------------------------------

    def plot(self, ax: Axes | None = None, *, gamma: float | None = None) -> Axes:
        """Draw both errors over gamma, on a new figure if `ax` is None; mark a given gamma (extra `plot`)."""
        title = f"{len(self.labels)} samples, {len(self.counts)} classes"
        return plot.draw_errors(
            self.error_curve, self.balanced_error_curve, ax, gamma=gamma, title=title
        )

    def __getstate__(self) -> dict[str, object]:
        """Return the fields without the logits, and nothing that was computed from them.

        Logits may be a file or a tensor of gigabytes; curves are computed again when they are asked for.
        """
        state: dict[str, object] = {f.name: getattr(self, f.name) for f in fields(self)}
        state["logits"] = None
        return state

    def __repr__(self) -> str:
        size = f"{len(self.labels)} samples, {len(self.counts)} classes"
        low, high = self.range
        return f"GammaPath({size}, rule {self.rule.name}, gamma {low:g} to {high:g})"

    def _repr_html_(self) -> str:
        low, high = self.range
        # At the start of the range, and where the balanced error is lowest.
        was = self.at(low)
        best = self.best()
        balanced = f"{was.balanced_error:.2%} at {low:g}; lowest, {best.value:.2%}"
        rows = {
            "samples": f"{len(self.labels)} of {len(self.counts)} classes",
            "gamma": f"{low:g} to {high:g}, rule {self.rule.name}, {len(self.gammas)} breakpoints",
            "balanced error": f"{balanced}, at {style.strength_text(best.gamma)}",
            "error": f"{was.error:.2%} at {low:g}; {best.error:.2%} at {style.strength_text(best.gamma)}",
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

    Returns:
        A `GammaPath`: curves, predictions at any gamma, and the gamma that is best for any metric.

    Raises:
        LevelheadError: a rule without a strength, a range that does not ascend, or whatever `tune`
            refuses of logits, labels and counts.

    >>> path = gamma_path(np.array([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]]), [0, 1, 1], [400, 100])
    >>> path.gammas.round(3), path.error.round(3)
    (array([0.   , 0.208, 0.5  , 1.   ]), array([0.667, 0.333, 0.667, 0.333]))
    """
    path_rule = find_path_rule(rule)
    if range is None:
        range = path_rule.range or (0.0, 2.0)
    reach = check_range(range)

    # What is given, checked against each other, as in `tune`.
    if counts is None:
        raise LevelheadError("expected counts, one per class, got None", parameter="counts")
    given = Given.of(logits, labels, counts, names=names, kind=kind)
    path_rule.refuse_kind(given.kind)
    shares = None
    if target is not None:
        shares = target_prior(target, len(given.counts), given.names)
    counts_of_rules = given.counts_of_rules
    direction = path_rule.direction(counts_of_rules, shares)

    scores, kind = _smoothed(given.logits, given.read_as)
    changes = find_changes(scores, direction, reach, kind=kind, progress=progress)
    return GammaPath(
        changes, given.labels, counts_of_rules, direction, reach, shares, scores, kind, given.names
    )


def _smoothed(scores: Array, kind: Kind) -> tuple[Array, Kind]:
    """Return scores [N, K] with their kind; of votes, of which some are 0, smoothed logarithms.

    `tune` smooths them so, too. All others stay where they are, and are read as they are walked along.
    """
    if kind != "probabilities":
        return scores, kind
    # Chunk by chunk first: only votes need be in memory all at once.
    if not any(smooth_votes(chunk)[1] for _, chunk in read_chunks(scores, kind=kind)):
        return scores, kind
    logs = np.concatenate([chunk for _, chunk in read_chunks(scores, kind=kind)])
    return smooth_votes(logs)[0], "logits"


def find_path_rule(rule: str | Rule) -> OneStrength:
    """Return a rule of one strength as it is, or the one that has a name.

    Raises:
        LevelheadError: a rule with numbers for each class, along which there is no path, or an unknown
            name.
    """
    if isinstance(rule, OneStrength):
        return rule
    able = [name for name, other_rule in RULES.items() if isinstance(other_rule, OneStrength)]
    check_choice("rule", rule, able)
    return RULES[rule]  # type: ignore[return-value, index]
