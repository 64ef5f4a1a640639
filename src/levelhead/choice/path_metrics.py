"""Metrics, costs and floors over gamma, known at every gamma at which a prediction changes.

Each metric is a function of a few sums over the classes, and a change of a prediction moves the totals of two classes
only (`ClassChanges`). Inside, it is a loss, lower is better: ``1 - macro F1``. `shown` turns it into what people know.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..core.class_names import as_mapping, find_classes, title
from ..path.envelope import Envelope
from ..support.arrays import described, to_numpy
from ..support.errors import Advice, LevelheadError, named
from ..support.types import Metric
from .resample import add_up

TITLES = {
    "macro_f1": "macro F1",
    "mcc": "MCC",
    "kappa": "Cohen's kappa",
    "g_mean": "G-mean",
    "cost": "expected cost",
}
TITLES |= {"error": "error", "balanced_error": "balanced error", "worst_recall": "worst recall"}
ERRORS = (
    "error",
    "balanced_error",
)  # sums over samples that are right: `GammaPath` and `Objective` compute these
CLASSES_ALIKE = ("balanced_error",)  # as if all classes were equally frequent
LOWER_IS_BETTER = (*ERRORS, "cost")
Floors = float | Mapping[Any, float]  # a recall for all classes, or {class: recall}
NAME_CLASSES = ("cost", "macro_f1")  # one class may have to move by itself to be good at these
RECALLS = (
    *ERRORS,
    "g_mean",
    "worst_recall",
)  # follow from where samples are right, whatever wrong class is predicted
_NOTHING = 1e-11  # shares below this are 0: they differ from it by rounding


class Totals(NamedTuple):
    """Weights per class, [K], or after each change, [S]: of the right samples, of the predictions, of the samples."""

    right: np.ndarray
    predicted: np.ndarray
    true: np.ndarray


@dataclass(frozen=True, eq=False)
class ClassChanges:
    """Every change of what is right or predicted in a class, sorted by class and then by gamma."""

    labels: np.ndarray  # [N], true classes
    right_first: np.ndarray  # [N], whether each sample is right at the start of the range
    predicted_first: (
        np.ndarray | None
    )  # [N], the class predicted there; None if only right and wrong are known
    gamma: np.ndarray  # [S], of each change, as `sample` and `classes`
    sample: np.ndarray
    classes: np.ndarray
    right: np.ndarray  # [S], +1, 0 or -1: what the sample adds to the right of its class
    predicted: np.ndarray  # [S], and to the predicted
    sizes: np.ndarray  # [K], how many changes each class has

    @staticmethod
    def of_events(
        labels: np.ndarray, events: tuple[np.ndarray, ...], classes: int
    ) -> "ClassChanges":
        """Return the changes of `GammaPath.events`."""
        start, gamma, sign, sample = events
        first = np.zeros(len(labels), bool)
        first[start] = True
        order = order_by_class(labels[sample], classes)
        changed = labels[sample][order]
        moves, sizes = (sign[order], np.zeros(len(order))), np.bincount(changed, minlength=classes)
        return ClassChanges(
            labels, first, None, gamma[order], sample[order], changed, *moves, sizes
        )

    @staticmethod
    def of_envelope(labels: np.ndarray, changes: Envelope) -> "ClassChanges":
        """Return the changes of an envelope: each is one of the new class and one of the old."""
        # Loss and gain of a change are neighbors, in the order of gamma: a stable sort by class keeps that order.
        changed = np.stack([changes.old_class, changes.new_class], axis=1).reshape(-1)
        order = order_by_class(changed, changes.classes)
        changed, sample, gamma = (
            changed[order],
            changes.sample[order // 2],
            changes.gamma[order // 2],
        )
        sign, sizes = (
            np.where(order % 2, 1.0, -1.0),
            np.bincount(changed, minlength=changes.classes),
        )
        moves = (
            sign * (labels[sample] == changed),
            sign,
        )  # of what is right, and of what is predicted
        return ClassChanges(
            labels, changes.start == labels, changes.start, gamma, sample, changed, *moves, sizes
        )

    def first(self, weights: np.ndarray) -> Totals:
        """Return the totals of each class at the start of the range, [K]."""
        return count_totals(
            self.labels, self.right_first, self.predicted_first, weights, len(self.sizes)
        )

    def after(self, weights: np.ndarray, first: Totals) -> Totals:
        """Return the totals of its class after each change, [S]."""
        mass = weights[self.sample]
        right, predicted = (
            self._running(change * mass) + start[self.classes]
            for change, start in ((self.right, first.right), (self.predicted, first.predicted))
        )
        return Totals(right, predicted, first.true[self.classes])

    def steps(self, first: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return by how much each change moves a term that is `first` [K] and then `after` [S]."""
        # A difference to the change before, but for the first change of a class: that is from the start of the range.
        steps = after.copy()
        steps[1:] -= after[:-1]
        some = self.sizes > 0
        steps[self.opens[some]] = after[self.opens[some]] - first[some]
        return steps

    @cached_property
    def opens(self) -> np.ndarray:
        """The first change of each class, [K]."""
        return np.cumsum(self.sizes) - self.sizes

    def _running(self, values: np.ndarray) -> np.ndarray:
        """Return the cumulative sum of values [S] within each class."""
        # One sum over all classes, less what it is where each class opens.
        total = np.concatenate([[0.0], np.cumsum(values)])
        return total[1:] - np.repeat(total[self.opens], self.sizes)


def count_totals(
    labels: np.ndarray,
    right: np.ndarray,
    predicted: np.ndarray | None,
    weights: np.ndarray,
    classes: int,
) -> Totals:
    """Return the totals of each class, [K], given true classes, whether samples are right, and what is predicted."""
    return Totals(
        np.bincount(labels, weights * right, classes),
        np.zeros(classes) if predicted is None else np.bincount(predicted, weights, classes),
        np.bincount(labels, weights, classes),
    )


def order_by_class(changed: np.ndarray, classes: int) -> np.ndarray:
    """Return the order of changes by class, in their order within a class; 16 bits are sorted by radix."""
    return np.argsort(changed.astype(np.uint16) if classes <= 1 << 16 else changed, kind="stable")


class _Formula(NamedTuple):
    """The terms of a metric's sums, given totals and the weight of all samples; the loss, given sums and weights."""

    terms: Callable[[Totals, float], tuple[np.ndarray, ...]]
    loss: Callable[..., np.ndarray]


def _f1(totals: Totals, _: float) -> tuple[np.ndarray, ...]:
    """Return ``2 right / (true + predicted)`` of each class that has a sample."""
    right, predicted, true = totals
    return (np.divide(2 * right, true + predicted, out=np.zeros(len(right)), where=true > 0),)


def _mcc_terms(totals: Totals, weight: float) -> tuple[np.ndarray, ...]:
    return (
        totals.right,
        totals.predicted * totals.true,
        totals.predicted * (weight - totals.predicted),
    )


def _mcc_loss(
    right: np.ndarray, both: np.ndarray, spread: np.ndarray, *, true: np.ndarray, weight: float
) -> np.ndarray:
    """``(n right - sum p_c t_c) / sqrt((n^2 - sum p_c^2) (n^2 - sum t_c^2))``; 0 if all predictions are one class."""
    of_true = (true * (weight - true)).sum()
    over, known = (
        np.sqrt(np.maximum(spread, 0) * of_true),
        np.minimum(spread, of_true) > _NOTHING * weight**2,
    )
    return 1 - np.divide(weight * right - both, over, out=np.zeros_like(over), where=known)


def _kappa_loss(
    right: np.ndarray, both: np.ndarray, *, true: np.ndarray, weight: float
) -> np.ndarray:
    """``(observed - expected) / (1 - expected)``, of agreements; 0 if nothing but agreement is to be expected."""
    observed, expected = right / weight, both / weight**2
    known = 1 - expected > _NOTHING
    return 1 - np.divide(
        observed - expected, 1 - expected, out=np.zeros_like(expected), where=known
    )


def _log_recall(totals: Totals, _: float) -> tuple[np.ndarray, ...]:
    recall = np.divide(
        totals.right, totals.true, out=np.ones(len(totals.right)), where=totals.true > 0
    )
    return np.log(np.where(recall > _NOTHING, recall, 1.0)), (recall <= _NOTHING).astype(np.float64)


FORMULAS: dict[str, _Formula] = {
    "macro_f1": _Formula(_f1, lambda f1, *, true, weight: 1 - f1 / (true > 0).sum()),
    "mcc": _Formula(_mcc_terms, _mcc_loss),
    "kappa": _Formula(lambda totals, weight: _mcc_terms(totals, weight)[:2], _kappa_loss),
    "g_mean": _Formula(
        _log_recall,
        lambda logs, zeros, *, true, weight: (
            1 - np.where(zeros > 0.5, 0.0, np.exp(np.minimum(logs / (true > 0).sum(), 0)))
        ),
    ),
}


@dataclass(eq=False)
class MetricSteps:
    """A metric over gamma and the margin over floors, for any weighting of the samples."""

    metric: Metric
    labels: np.ndarray  # [N]
    classes: int  # K
    events: tuple[
        np.ndarray, ...
    ]  # where each sample turns right or wrong, as in `GammaPath.events`
    changes: Envelope | None = (
        None  # of every prediction, for metrics that are not of recalls alone
    )
    cost: np.ndarray | None = None  # [K, K], row true, column predicted, for the metric cost
    _last: tuple[np.ndarray, ...] = field(
        default=(), init=False, repr=False
    )  # gammas, cells and bins: see `_bins`

    @cached_property
    def by_class(self) -> ClassChanges:
        """The changes, by class."""
        if self.metric in RECALLS:
            return ClassChanges.of_events(self.labels, self.events, self.classes)
        assert self.changes is not None
        return ClassChanges.of_envelope(self.labels, self.changes)

    def losses(self, cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the loss at each of the ascending gammas `cells`, [G], of any metric but the two errors."""
        weight, changes = float(weights.sum()), self.changes
        if self.metric == "worst_recall":
            return 1 - self.margins(cells, weights, np.zeros(self.classes))
        if self.metric == "cost":
            assert changes is not None
            assert self.cost is not None
            true = self.labels[changes.sample]
            steps = self.cost[true, changes.new_class] - self.cost[true, changes.old_class]
            start, bins = (
                float(weights @ self.cost[self.labels, changes.start]),
                self._bins(changes.gamma, cells),
            )
            return add_up(start, bins, steps * weights[changes.sample], len(cells)) / weight
        # Each of the metric's sums over classes begins at its value at the start of the range. A change moves one
        # class's term, from what it was after the change before it; added up by cell, these steps give the sum there.
        formula, first = FORMULAS[self.metric], self.by_class.first(weights)
        after = self.by_class.after(weights, first)
        bins = self._bins(self.by_class.gamma, cells)
        sums = [
            add_up(at_first.sum(), bins, self.by_class.steps(at_first, at_change), len(cells))
            for at_first, at_change in zip(
                formula.terms(first, weight), formula.terms(after, weight), strict=True
            )
        ]
        return formula.loss(*sums, true=first.true, weight=weight)

    def margins(self, cells: np.ndarray, weights: np.ndarray, floors: np.ndarray) -> np.ndarray:
        """Return the least ``recall - floor`` of all classes that have a sample and a floor [K] (NaN: none), [G]."""
        # Class after class, so that there is never a table of gammas by classes. A class's recall holds from the cell
        # of one change of it to that of the next: it is repeated over as many cells.
        changes, least = self.by_class, np.full(len(cells), np.inf)
        first = changes.first(weights)
        right = changes.after(weights, first).right
        bins = np.minimum(self._bins(changes.gamma, cells), len(cells))
        for c in np.flatnonzero((first.true > 0) & ~np.isnan(floors)):
            own = slice(changes.opens[c], changes.opens[c] + changes.sizes[c])
            recall = np.concatenate([first.right[c : c + 1], right[own]]) / first.true[c]
            lengths = np.diff(bins[own], prepend=0, append=len(cells))
            np.minimum(least, np.repeat(recall - floors[c], lengths), out=least)
        return least

    def loss_of(
        self, right: np.ndarray, predicted: np.ndarray | None, weights: np.ndarray
    ) -> float:
        """Return the loss of given predictions [N], of any metric but the two errors."""
        weight = float(weights.sum())
        if self.metric == "cost":
            assert self.cost is not None
            assert predicted is not None
            return float(weights @ self.cost[self.labels, predicted]) / weight
        totals = count_totals(self.labels, right, predicted, weights, self.classes)
        if self.metric == "worst_recall":
            some = totals.true > 0
            return float(1 - (totals.right[some] / totals.true[some]).min())
        formula = FORMULAS[self.metric]
        sums = [np.asarray(term.sum()) for term in formula.terms(totals, weight)]
        return float(formula.loss(*sums, true=totals.true, weight=weight))

    def _bins(self, gamma: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Return the first cell by which each change has happened. The last cells asked for are remembered."""
        if not self._last or self._last[0] is not gamma or self._last[1] is not cells:
            self._last = gamma, cells, np.searchsorted(cells, gamma)
        return self._last[2]


def shown(metric: str, loss: Any) -> Any:
    """Return a loss as the metric that people know: ``1 - loss`` where higher is better."""
    return loss if metric in LOWER_IS_BETTER else 1 - loss


def value_form(metric: str) -> str:
    """Return the format of a metric: shares in percent, coefficients and costs as numbers; never -0."""
    return {"cost": "z.4g", "mcc": "z.3f", "kappa": "z.3f"}.get(metric, "z.2%")


def gain_text(metric: str, gain: float, interval: tuple[float, float] | None) -> str:
    """Return a gain, of shares in points, with its interval: '1.00 points (-1.00 to 2.00)'."""
    form, factor, unit = (
        ("z.2f", 100, " points") if "%" in value_form(metric) else (value_form(metric), 1, "")
    )
    between = (
        ""
        if interval is None
        else f" ({factor * interval[0]:{form}} to {factor * interval[1]:{form}})"
    )
    return f"{factor * gain:{form}}{unit}{between}"


def check_cost(cost: Any, classes: int) -> np.ndarray:
    """Return a cost matrix [K, K], row true, column predicted, in float64."""
    found = to_numpy(cost)
    with named("cost"):
        if found.dtype.kind not in "fiu":
            raise LevelheadError(f"expected numbers, got {described(found)}")
        if found.shape != (classes, classes):
            size = f"[{classes}, {classes}], row true, column predicted"
            raise LevelheadError(f"expected numbers {size}, got shape {list(found.shape)}")
        found = found.astype(np.float64)
        for bad, expected in ((~np.isfinite(found), "finite numbers"), (found < 0, "0 or more")):
            for row, column in np.argwhere(bad)[:1]:
                raise LevelheadError(
                    f"expected {expected}, got {found[row, column]:g} in row {row}, column {column}"
                )
        for row, column in np.argwhere(found < np.diag(found)[:, None])[:1]:
            costs = f"class {row} costs {found[row, row]:g} if right, {found[row, column]:g} if called {column}"
            raise LevelheadError(
                f"expected an error to cost no less than a right prediction; {costs}"
            )
    return found


def check_cost_given(metric: str, cost: Any) -> None:
    """Check that there is a cost matrix if, and only if, the metric is cost."""
    if metric == "cost" and cost is None:
        advice = Advice("cost", None, "with it")
        raise LevelheadError("'cost' needs a cost matrix [K, K]", parameter="metric", advice=advice)
    if metric != "cost" and cost is not None:
        both = (
            f"expected no other metric next to a cost matrix, got {metric!r}; leave out one of them"
        )
        raise LevelheadError(both, parameter="cost")


def check_floors(floors: Any, labels: np.ndarray, classes: int, names: Any = None) -> np.ndarray:
    """Return the least recall of each class, [K], NaN where there is none: a number for all, or {class: recall}."""
    sizes, found = np.bincount(labels, minlength=classes), np.full(classes, np.nan)
    mapping = as_mapping(floors)
    with named("floors"):
        try:
            where = (
                sizes > 0
                if mapping is None
                else find_classes(mapping, classes, names, what="floor")
            )
            found[where] = given = [
                float(value) for value in ([floors] if mapping is None else mapping.values())
            ]
        except LevelheadError:
            raise
        except (TypeError, ValueError):
            raise LevelheadError(
                f"expected a recall, or a recall for each class named, got {floors!r}"
            ) from None
        if not all(0 <= (wrong := value) <= 1 for value in given):
            raise LevelheadError(f"expected recalls from 0 to 1, got {wrong:g}")
        for i in np.flatnonzero((sizes == 0) & ~np.isnan(found)):
            unknown = f"{title(int(i), names)} has no sample here, so its recall is not known"
            raise LevelheadError(f"{unknown}; leave out its floor")
    return found


def apply_floors(losses: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """Return losses [G], infinite where a floor is not met; if that is so everywhere, how far below each gamma is."""
    return np.where(margins >= -_NOTHING, losses, np.inf) if meets_floors(margins) else -margins


def meets_floors(margins: np.ndarray) -> bool:
    """Return whether all floors are met somewhere."""
    return bool(margins.max() >= -_NOTHING)


LOWER_FLOORS = "; lower the floors"


class UnmetFloors(LevelheadError):
    """No strength of a rule meets the floors."""


def unmet_floors(
    gamma: float,
    recall: np.ndarray,
    floors: np.ndarray,
    range: tuple[float, float],
    names: Any = None,
) -> UnmetFloors:
    """Return the error for floors [K] that no gamma meets, given the gamma that comes nearest and its recalls [K]."""
    short = np.nan_to_num(floors - recall, nan=-np.inf)
    worst = int(np.argmax(short))
    return UnmetFloors(
        f"no gamma from {range[0]:g} to {range[1]:g} meets them; nearest is gamma = {gamma:.3f}, where "
        f"{title(worst, names)} has recall {recall[worst]:.1%}, {100 * short[worst]:.1f} points below its floor of "
        f"{floors[worst]:.1%}{LOWER_FLOORS}",
        parameter="floors",
    )
