"""Every threshold of one label, and what each decides: exact, by sorting once.

A label is predicted where ``logit + offset > 0``, which is where the logit is above the threshold
``-offset``. Only thresholds between two distinct logits decide differently, so m distinct logits
have m + 1 *cuts*: cut j predicts the label where the logit is one of the j largest distinct ones.
Equal logits are never separated.

What a cut counts are `Tables` of two classes, the samples without the label and those with it, so
every `Metric` is a loss of cuts as well.

The road: `Cuts.of` sorts the N logits of a label once, in N log N, and counts by running sums what each of the
m + 1 cuts predicts. `best_offset` takes the metric of all of them at once, drops those with too few positives for a
floor, and returns the middle of the widest range of thresholds that are equally good. Without folds dealt and labels
checked (tune_labels.py), this knows nothing but one column of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.metrics import Metric, Tables

SAME_LOSS = 1e-10  # losses closer than this are equal: they differ by rounding


@dataclass(frozen=True, eq=False)
class Cuts:
    """The cuts of one label that has positive and negative samples.

    Cut 0 predicts the label nowhere, cut m everywhere.

    Args:
        values: [m], its distinct logits, descending.
        tables: [m + 1, 2], of the samples without and with it, at each cut.

    >>> cuts = Cuts.of(np.array([2.0, -1.0, -3.0]), np.array([True, True, False]))
    >>> cuts.tables.right.astype(int).tolist()
    [[1, 0], [1, 1], [1, 2], [0, 2]]
    >>> from levelhead.core.metrics import METRICS
    >>> cuts.best_offset(METRICS["error"])
    2.0
    """

    values: np.ndarray
    tables: Tables

    @staticmethod
    def of(logits: np.ndarray, positive: np.ndarray, cost: np.ndarray | None = None) -> Cuts:
        """Return the cuts of logits [N] in any order, given which samples have the label, [N].

        Args:
            logits, positive, cost: as in `of_sorted`.
        """
        order = np.argsort(-logits, kind="stable")
        return Cuts.of_sorted(logits[order], positive[order], cost)

    @staticmethod
    def of_sorted(logits: np.ndarray, positive: np.ndarray, cost: np.ndarray | None = None) -> Cuts:
        """Return the cuts of logits [N] that descend, so that a part of them need no sorting.

        Args:
            logits: [N], descending.
            positive: [N] bool, which of them have the label.
            cost: [2, 2], row true, column predicted; the tables then have what each cut pays.
        """
        last = np.append(logits[1:] != logits[:-1], True)  # of equal logits
        # How many positives and negatives are above each cut: none above the first.
        # A running sum over all samples, read at the last of each run of equal logits.
        hits = np.append(0.0, np.cumsum(positive)[last])
        alarms = np.append(0.0, np.cumsum(~positive)[last])
        sizes = np.array([alarms[-1], hits[-1]])
        right = np.stack([sizes[0] - alarms, hits], axis=1)
        predicted = np.stack([sizes.sum() - hits - alarms, hits + alarms], axis=1)
        paid = None
        if cost is not None:
            wrong = sizes - right
            paid = right @ np.diag(cost) + wrong @ np.array([cost[0, 1], cost[1, 0]])
        tables = Tables(right, predicted, np.broadcast_to(sizes, right.shape), paid)
        return Cuts(logits[last], tables)

    @cached_property
    def edges(self) -> np.ndarray:
        """The ends of the cuts, [m + 2], descending: thresholds of cut j lie from edges[j + 1] to just below edges[j].

        Above all logits and below them, where thresholds have no end, a cut is taken to be as wide
        as distinct logits are apart on average.
        """
        values = self.values
        apart = 1.0
        if len(values) > 1:
            apart = (values[0] - values[-1]) / (len(values) - 1)
        return np.concatenate([[values[0] + apart], values, [values[-1] - apart]])

    def at(self, offset: float) -> int:
        """Return the cut that an offset makes: how many distinct logits are above ``-offset``."""
        return int((self.values > -offset).sum())

    def best_offset(self, metric: Metric, need: int = 0) -> float:
        """Return the offset of least loss at which enough positives are right.

        The last cut predicts everything, so some cut has as many as there are.

        Args:
            metric: a loss of two classes (`Metric.for_labels`).
            need: how many positives must be right (`needed_right`); 0 without a floor.
        """
        meets = self.tables.right[:, 1] >= need
        return self.offset_of_least(np.where(meets, metric.losses(self.tables), np.inf))

    def offset_of_least(self, losses: np.ndarray) -> float:
        """Return the offset of least loss [m + 1].

        It is 0 if that is one of them, else the middle of the widest range of them, as far as can be
        from the logits on either side: those of new samples lie a little elsewhere.

        Args:
            losses: of each cut; infinite for those that are out of the question. One is finite.
        """
        best = losses <= losses.min() + SAME_LOSS
        if best[self.at(0.0)]:
            return 0.0
        # Neighboring cuts that are equally good are one range of thresholds.
        first = np.flatnonzero(best & ~np.append(False, best[:-1]))
        last = np.flatnonzero(best & ~np.append(best[1:], False))
        high = self.edges[first]
        low = self.edges[last + 1]
        widest = int(np.argmax(high - low))
        middle = low[widest] + (high[widest] - low[widest]) / 2
        # Between two neighboring floats, the middle may round to the upper one, which is then out.
        if not middle < high[widest]:
            middle = low[widest]
        return float(-middle)
