"""Every threshold of one label, and what each decides: exact, by sorting once.

A label is predicted where ``logit + offset > 0``, which is where the logit is above the threshold ``-offset``. Only
thresholds between two distinct logits decide differently, so m distinct logits have m + 1 cuts: cut j predicts the
label where the logit is one of the j largest distinct ones. Equal logits are never separated.

Metrics are losses, lower is better, of two shares: the recall (of the positives that are predicted) and the false
alarms (of the negatives that are). The same choice is repeated on other samples, for its gain and the interval of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..support.progress import RowProgress
from ..support.types import Metric

SAME_LOSS = 1e-10  # losses closer than this are equal: they differ by rounding
_ROUNDING = 1e-11  # of a recall
_NUMBERS = 2_000_000  # weights drawn at once, about


@dataclass(frozen=True, eq=False)
class LabelCuts:
    """The cuts of one label that has positive and negative samples, and what is minimized over them."""

    values: np.ndarray  # [m], its distinct logits, descending
    above: np.ndarray  # [2, m + 1], how many negatives and how many positives each cut predicts
    order: tuple[
        np.ndarray, np.ndarray
    ]  # positions of the negatives and of the positives, each by descending logit
    metric: Metric
    cost: np.ndarray | None = None  # [2, 2], row true, column predicted, for the metric cost
    floor: float = 0.0  # least recall of the positives; 0 for none

    @staticmethod
    def of(
        logits: np.ndarray,
        positive: np.ndarray,
        metric: Metric,
        cost: np.ndarray | None = None,
        floor: float = 0.0,
    ) -> "LabelCuts":
        """Return the cuts of logits [N], given which samples have the label, [N]."""
        order = np.argsort(-logits, kind="stable")
        ordered, true = logits[order], positive[order]
        last = np.append(ordered[1:] != ordered[:-1], True)  # of equal logits
        above = [np.concatenate([[0], np.cumsum(part)[last]]) for part in (~true, true)]
        return LabelCuts(
            ordered[last], np.stack(above), (order[~true], order[true]), metric, cost, floor
        )

    @cached_property
    def recall(self) -> np.ndarray:
        """The share of the positives that each cut predicts, [m + 1]."""
        return self.above[1] / self.above[1, -1]

    @cached_property
    def allowed(self) -> np.ndarray:
        """Whether each cut meets the floor, [m + 1]. The last one does: its recall is 1."""
        return self.recall >= self.floor - _ROUNDING

    @cached_property
    def losses(self) -> np.ndarray:
        """The loss of each cut on these samples, [m + 1]."""
        return self.loss(self.recall, self.above[0] / self.above[0, -1])

    @cached_property
    def offset(self) -> float:
        """The best offset on these samples that meets the floor."""
        return self.offset_of_least(np.where(self.allowed, self.losses, np.inf))

    @cached_property
    def ends(self) -> list[int]:
        """The cuts without the offset and with it."""
        return [self.cut(0.0), self.cut(self.offset)]

    def cut(self, offset: float) -> int:
        """Return the cut that an offset makes."""
        return int((self.values > -offset).sum())

    def loss(self, recall: np.ndarray, alarms: np.ndarray) -> np.ndarray:
        """Return the loss at each recall and share of false alarms."""
        share = float(self.above[1, -1] / self.above[:, -1].sum())
        return label_loss(self.metric, recall, alarms, share, self.cost)

    def offset_of_least(self, losses: np.ndarray) -> float:
        """Return the offset of least loss [m + 1]: 0 if it is one, else the middle of the widest range of them."""
        # Above all logits and below them, where thresholds have no end, a range is as wide as distinct logits are apart
        # on average.
        best = losses <= losses.min() + SAME_LOSS
        if best[self.cut(0.0)]:
            return 0.0
        values = self.values
        apart = (values[0] - values[-1]) / (len(values) - 1) if len(values) > 1 else 1.0
        edges = np.concatenate(
            [[values[0] + apart], values, [values[-1] - apart]]
        )  # cut j: edges j + 1 to j
        first = np.flatnonzero(best & ~np.append(False, best[:-1]))
        last = np.flatnonzero(best & ~np.append(best[1:], False))
        high, low = edges[first], edges[last + 1]
        widest = int(np.argmax(high - low))
        middle = low[widest] + (high[widest] - low[widest]) / 2
        return float(
            -(middle if middle < high[widest] else low[widest])
        )  # between neighbors, rounded up to the higher


def label_loss(
    metric: Metric,
    recall: np.ndarray,
    alarms: np.ndarray,
    share: Any,
    cost: np.ndarray | None = None,
) -> np.ndarray:
    """Return the loss at each recall and share of false alarms, given the share of positives; F1 is of those."""
    predicted = share * recall + (1 - share) * alarms
    wrong = share * (1 - recall) + (1 - share) * alarms
    losses: dict[str, Callable[[], np.ndarray]] = {
        "error": lambda: wrong,
        "balanced_error": lambda: (1 - recall + alarms) / 2,
        "macro_f1": lambda: 1 - 2 * share * recall / (share + predicted),
        "mcc": lambda: 1 - _phi(recall, alarms, share, predicted),
        "kappa": lambda: wrong / (share * (1 - predicted) + (1 - share) * predicted),
        "g_mean": lambda: 1 - np.sqrt(np.maximum(recall * (1 - alarms), 0)),
        "worst_recall": lambda: 1 - np.minimum(recall, 1 - alarms),
        "cost": lambda: (
            (1 - share) * _mean_cost(cost, 0, alarms) + share * _mean_cost(cost, 1, recall)
        ),
    }
    return losses[metric]()


def _phi(recall: np.ndarray, alarms: np.ndarray, share: Any, predicted: np.ndarray) -> np.ndarray:
    """Return Matthews' coefficient of two classes; 0 where all or none are predicted."""
    spread = np.maximum(predicted * (1 - predicted), 0)
    over = np.sqrt(spread / (share * (1 - share)))
    return np.divide(recall - alarms, over, out=np.zeros_like(over), where=spread > 1e-11)


def _mean_cost(cost: np.ndarray | None, true: int, predicted: np.ndarray) -> np.ndarray:
    """Return the mean cost of negatives (0) or positives (1), of which a share is predicted."""
    assert cost is not None
    return cost[true, 0] + (cost[true, 1] - cost[true, 0]) * predicted


def cross_fitted_gain(
    label: LabelCuts,
    logits: np.ndarray,
    positive: np.ndarray,
    rng: np.random.Generator,
    folds: int = 10,
) -> float:
    """Return what the choice of an offset gains where it was not made: each tenth decided by the rest's best offset."""
    fold = np.empty(len(logits), np.int64)
    for part in (positive, ~positive):
        fold[part] = rng.permutation(int(part.sum())) % folds
    predicted = np.empty(len(logits), bool)
    for i in range(folds):
        inside, rest = fold == i, fold != i
        known = positive[rest].any() and not positive[rest].all()
        objective = label.metric, label.cost, label.floor
        offset = LabelCuts.of(logits[rest], positive[rest], *objective).offset if known else 0.0
        predicted[inside] = logits[inside] + offset > 0
    return float(
        label.losses[label.ends[0]]
        - label.loss(predicted[positive].mean(), predicted[~positive].mean())
    )


def draw_label_gains(
    labels: Sequence[LabelCuts],
    n: int,
    rng: np.random.Generator,
    progress: RowProgress | None = None,
) -> np.ndarray:
    """Return what each label's best offset gains on n reweightings of the samples, [K, n]."""
    # The weights are exponential, the Bayesian bootstrap, and the same for all labels. Within a label, positives and
    # negatives keep their totals, so it is stratified. Each of the two has one sample more that is predicted only with
    # the offset and one only without, so that few positives leave the gain in doubt.
    gains = np.empty((len(labels), n))
    samples = sum(map(len, labels[0].order))
    step = max(1, _NUMBERS // samples)
    for first in range(0, n, step):
        some = slice(first, min(first + step, n))
        weights = rng.exponential(size=(samples, some.stop - first))
        for row, label in zip(gains, labels, strict=True):
            shares = []
            for order, above in zip(label.order, label.above, strict=True):  # negatives, positives
                predicted = np.stack(
                    [weights[order[:count]].sum(axis=0) for count in above[label.ends]]
                )
                more = rng.exponential(
                    size=predicted.shape
                )  # one predicted only before, one only after
                shares.append((predicted + more) / (weights[order].sum(axis=0) + more.sum(axis=0)))
            before, after = label.loss(shares[1], shares[0])
            row[some] = before - after
        if progress is not None:
            progress(some.stop, n)
    return gains
