"""`Goal`: what a choice is to be good at, a metric with its costs, floors and target.

A user writes `Goal("macro_f1", floors={"cat": 0.8})` before any samples are known. `Goal.on` then checks it
against them: floors and costs become arrays, and a target sets how much each class weighs. From there on,
rules and the judge ask it for two things: the loss of `Tables` (`loss`), and how often classes occur where
the goal is measured (`shares`).

The three parts say different things. A metric says what is good. A target says in which mix of classes it is
measured: samples of a class then weigh its share together. Costs say which mistakes are worse than others, and
are a metric of their own. Floors are conditions: whatever the metric gains, these recalls are to be reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..support.arrays import Array, described, to_numpy
from ..support.columns import number_order, titles_of
from ..support.errors import Advice, LevelheadError, named
from .arguments import finite_number, target_prior
from .class_names import as_mapping, check_titles, find_classes, names_of_columns, title
from .metrics import COST, Metric, Tables, find_metric


@dataclass(frozen=True, eq=False)
class Goal:
    """What a choice of classes is to be good at: `metric=` where a name is not enough.

    Args:
        metric: a name, such as `balanced_error`, `macro_f1` or scikit-learn's `f1_macro`; or a
            `Metric` of one's own.
        cost: [K, K], row true, column predicted: the metric is then the mean cost of a sample. Rows
            and columns of a data frame must be titled in one order, that of the classes. Of several
            labels per sample, [2, 2] or one such matrix for each, [K, 2, 2].
        floors: {class: recall}, or a recall for all classes, that new samples should reach, too.
        certainty: how likely each floor is to hold on new samples, from 0.5 to below 1. Where it cannot
            be had, less is tried; the `Tuned` says what came of it.

    Raises:
        LevelheadError: an unknown metric, a cost matrix beside another metric, or the metric `cost`
            without one. What depends on the samples is checked in `on`.

    >>> Goal("f1_macro").metric.name, Goal(cost=[[0, 1], [5, 0]]).metric.name
    ('macro_f1', 'cost')
    """

    # Any, as two of them change their type: a name becomes its `Metric` at once, and floors become
    # an array [K], NaN for none, in `on`.
    metric: Any = "balanced_error"
    cost: Array | None = None
    floors: Any = None
    certainty: float = 0.9
    #: [K], set by `on`
    target: np.ndarray | None = field(default=None, init=False, repr=False)
    #: of the classes, set by `on`
    names: Sequence[str] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        metric = find_metric(self.metric)
        # A cost matrix is a metric of its own. Next to the default, that is what is meant.
        if self.cost is not None and metric.name == "balanced_error":
            metric = find_metric(COST)
        if metric.name == COST and self.cost is None:
            advice = Advice("cost", None, "with it")
            reason = "'cost' needs a cost matrix [K, K]"
            raise LevelheadError(reason, parameter="metric", advice=advice)
        if metric.name != COST and self.cost is not None:
            reason = f"expected no other metric next to a cost matrix, got {metric.name!r}"
            raise LevelheadError(f"{reason}; leave out one of them", parameter="cost")
        if not 0.5 <= finite_number("certainty", self.certainty) < 1:
            raise LevelheadError(
                f"expected a probability from 0.5 to 1, got {self.certainty!r}",
                parameter="certainty",
            )
        object.__setattr__(self, "metric", metric)

    @staticmethod
    def of(metric: str | Metric | Goal) -> Goal:
        """Return a goal as it is, or that of a metric."""
        if isinstance(metric, Goal):
            return metric
        return Goal(metric)

    def on(
        self,
        labels: np.ndarray,
        classes: int,
        names: Sequence[str] | None,
        target: Array | Mapping[object, float] | None = None,
    ) -> Goal:
        """Return the goal for some samples: cost [K, K], floors [K] and target [K], all checked.

        Args:
            labels: [N], of the samples.
            classes: K.
            names: of the classes, where they are known.
            target: [K] or {class: share}, how often classes occur where the model is used.

        Raises:
            LevelheadError: costs, floors or a target that do not fit these classes; a floor for a class
                without a sample; a target for a metric that leaves none open.
        """
        cost = self.cost
        if cost is not None:
            cost = check_cost(cost, classes, names)
        floors = self.floors
        if floors is not None:
            floors = check_floors(floors, np.bincount(labels, minlength=classes), names)
        metric = self.metric
        shares = None
        if target is not None:
            shares = self._check_target(target, labels, classes, names)
            metric = metric.toward(shares)
        goal = replace(self, metric=metric, cost=cost, floors=floors)
        # Only here are these two known: nobody gives them to a goal.
        object.__setattr__(goal, "names", names)
        object.__setattr__(goal, "target", shares)
        return goal

    def _check_target(
        self,
        target: Array | Mapping[object, float],
        labels: np.ndarray,
        classes: int,
        names: Sequence[str] | None,
    ) -> np.ndarray:
        """Return a target as shares [K], after checking that it says something about these samples."""
        # A metric that is the same in every mix of classes leaves nothing for a target to say.
        if not self.metric.takes_target:
            reason = f"the metric {self.metric.name} weighs classes the same in every mix"
            instead = "leave out the target, or choose the metric error"
            raise LevelheadError(f"{reason}; {instead}", parameter="target")
        shares = target_prior(target, classes, names)
        present = np.bincount(labels, minlength=classes) > 0
        if not shares[present].any():
            reason = "expected a share above 0 for some class that has a sample here"
            raise LevelheadError(reason, parameter="target")
        return shares

    def weights(self, labels: np.ndarray, classes: int) -> np.ndarray | None:
        """Return what each sample weighs in tables, [N], toward a target; None for 1 each.

        ``target_k / m_k`` for each of the m_k samples of class k: together they weigh its share.

        Args:
            labels: [N], class indices.
            classes: K.
        """
        if self.target is None:
            return None
        sizes = np.bincount(labels, minlength=classes)
        return (self.target / np.maximum(sizes, 1))[labels]

    def tables(self, labels: np.ndarray, predicted: np.ndarray, classes: int) -> Tables:
        """Count predictions as the metric weighs them: tables [K].

        Args:
            labels, predicted: [N], class indices.
            classes: K.
        """
        weights = self.weights(labels, classes)
        return Tables.of(labels, predicted, classes, weights, self.cost)

    def loss(self, tables: Tables) -> np.ndarray:
        """Return the metric as a loss, [...], of tables [..., K], checked (`Metric.losses`)."""
        return self.metric.losses(tables)

    @property
    def unit(self) -> float:
        """What a loss is measured in: 1, or the largest cost. Losses closer than 1e-12 of it are equal."""
        if self.cost is None:
            return 1.0
        return float(np.max(self.cost)) or 1.0

    def shares(self, sizes: np.ndarray) -> np.ndarray:
        """Return how often classes occur where the goal is measured, [K]; they sum to 1.

        As a target says, as they come among the samples, or all alike. Costs count as often as they
        are paid: a class whose errors cost twice as much weighs as one that is twice as frequent.

        It is where a fit by log loss is moved to (`Samples.toward`). No share is 0: its logarithm would
        ask for an offset of -inf.

        Args:
            sizes: [K], how many samples each class has.

        >>> Goal("balanced_error").shares(np.array([90, 10])), Goal("error").shares(np.array([90, 10]))
        (array([0.5, 0.5]), array([0.9, 0.1]))
        """
        if self.target is not None:
            shares = np.maximum(self.target, 1e-3 / len(sizes))
        elif self.metric.as_they_come:
            shares = np.maximum(sizes, 0.5)
        else:
            shares = np.ones(len(sizes))
        if self.cost is not None:
            cost = np.asarray(self.cost)
            # What an error in each class costs more than being right, on average.
            dear = (cost - np.diag(cost)[:, None]).mean(axis=1)
            if dear.any():
                shares = shares * np.maximum(dear, 1e-3 * dear.max())
        return shares / shares.sum()


def check_cost(cost: Array, classes: int, names: Sequence[str] | None = None) -> np.ndarray:
    """Return a cost matrix [K, K], row true, column predicted, in float64.

    Args:
        cost: the matrix, of which a data frame may have titles.
        classes: K.
        names: of the classes, where they are known.

    Raises:
        LevelheadError: one that is not of this shape, is titled with the classes in another order, has
            an entry that is negative or not finite, or in which an error costs less than a right
            prediction: the best choice would be to err.
    """
    with named("cost"):
        matrix = _in_order_of_titles(cost, names)
        if matrix.dtype.kind not in "fiu":
            raise LevelheadError(f"expected numbers, got {described(matrix)}")
        if matrix.shape != (classes, classes):
            size = f"[{classes}, {classes}], row true, column predicted"
            raise LevelheadError(f"expected numbers {size}, got shape {list(matrix.shape)}")
        matrix = matrix.astype(np.float64)
        for bad, expected in ((~np.isfinite(matrix), "finite numbers"), (matrix < 0, "0 or more")):
            if bad.any():
                row, column = np.argwhere(bad)[0]
                entry_text = f"got {matrix[row, column]:g} in row {row}, column {column}"
                raise LevelheadError(f"expected {expected}, {entry_text}")
        # Row by row against its own diagonal.
        cheaper = matrix < np.diag(matrix)[:, None]
        if cheaper.any():
            row, column = np.argwhere(cheaper)[0]
            costs = f"class {row} costs {matrix[row, row]:g} if right"
            costs += f", {matrix[row, column]:g} if called {column}"
            raise LevelheadError(
                f"expected an error to cost no less than a right prediction; {costs}"
            )
    return matrix


def _in_order_of_titles(cost: Array, names: Sequence[str] | None) -> np.ndarray:
    """Return a cost matrix with rows and columns in the order of their titles, where these are numbers.

    Raises:
        LevelheadError: rows or columns are titled with the classes in another order.
    """
    matrix = to_numpy(cost)
    names = names_of_columns(cost, None, names)
    index = getattr(cost, "index", None)
    if titles_of(cost) is None or index is None or callable(index):
        return matrix  # only a data frame of pandas has titles of rows
    # Rows are the columns of the transposed frame.
    turned = cost.T
    if names is not None:
        check_titles(turned, names, what="rows")
    order = number_order(titles_of(turned) or [])
    if order is not None:
        matrix = matrix[order]
    return matrix


def check_floors(
    floors: float | Mapping[object, float],
    sizes: np.ndarray,
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Return the least recall of each class, [K], NaN where there is none.

    Args:
        floors: a recall for all classes that have a sample, or {class: recall}.
        sizes: [K], the samples of each class that the floors are to be met on.
        names: of the classes, where they are known.

    Raises:
        LevelheadError: recalls outside of 0 to 1 (percentages are recognized), an unknown class, or
            one without a sample here, whose recall nothing could be said about.

    >>> check_floors({"dog": 0.8}, np.array([1, 2]), ["cat", "dog"])
    array([nan, 0.8])
    """
    classes = len(sizes)
    mapping = as_mapping(floors)
    with named("floors"):
        try:
            if mapping is None:
                where = np.flatnonzero(sizes > 0).tolist()
                recalls = [float(floors)] * len(where)  # type: ignore[arg-type]
            else:
                where = find_classes(mapping, classes, names, what="floor")
                recalls = [float(recall) for recall in mapping.values()]
        except LevelheadError:
            raise
        except (TypeError, ValueError):
            expected = "expected a recall, or a recall for each class named"
            raise LevelheadError(f"{expected}, got {floors!r}") from None
        for recall in recalls:
            if not 0 <= recall <= 1:
                percent = ""
                if 1 < recall <= 100:
                    percent = f"; {recall:g} % is {recall / 100:g}"
                raise LevelheadError(f"expected recalls from 0 to 1, got {recall:g}{percent}")
        for k in sorted(where):
            if sizes[k] == 0:
                unknown = f"{title(k, names)} has no sample here, so its recall is not known"
                raise LevelheadError(f"{unknown}; leave out its floor")
    least = np.full(classes, np.nan)
    least[where] = recalls
    return least
