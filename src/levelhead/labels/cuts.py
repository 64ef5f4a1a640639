"""Every threshold of one label, and what each decides: exact, by sorting once.

A label is predicted where ``logit + offset > 0``, which is where the logit is above the threshold ``-offset``. Only
thresholds between two distinct logits decide differently, so m distinct logits have m + 1 cuts: cut j predicts the
label where the logit is one of the j largest distinct ones. Equal logits are never separated.

Metrics are losses, lower is better, of two shares: the recall (of the positives that are predicted) and the false
alarms (of the negatives that are).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.choices import Metric

SAME_LOSS = 1e-10  # losses closer than this are equal: they differ by rounding


@dataclass(frozen=True, eq=False)
class LabelCuts:
    """The cuts of one label that has positive and negative samples.

    Args:
        values: [m], its distinct logits, descending.
        above: [2, m + 1], how many negatives and how many positives each cut predicts.
        order: positions of the negatives and of the positives, each by descending logit.

    >>> cuts = LabelCuts.of(np.array([2.0, -1.0, -1.0, -3.0]), np.array([True, True, False, False]))
    >>> cuts.recall, cuts.alarms, cuts.now
    (array([0. , 0.5, 1. , 1. ]), array([0. , 0. , 0.5, 1. ]), 1)
    >>> cuts.offset(label_loss("balanced_error", cuts.recall, cuts.alarms, cuts.share))
    0.0
    """

    values: np.ndarray
    above: np.ndarray
    order: tuple[np.ndarray, np.ndarray]

    @staticmethod
    def of(logits: np.ndarray, positive: np.ndarray) -> "LabelCuts":
        """Return the cuts of logits [N], given which samples have the label, [N]."""
        order = np.argsort(-logits, kind="stable")
        ordered, true = logits[order], positive[order]
        last = np.append(ordered[1:] != ordered[:-1], True)  # of equal logits
        above = [np.concatenate([[0], np.cumsum(part)[last]]) for part in (~true, true)]
        return LabelCuts(ordered[last], np.stack(above), (order[~true], order[true]))

    @property
    def recall(self) -> np.ndarray:
        """The share of the positives that each cut predicts, [m + 1]."""
        return self.above[1] / self.above[1, -1]

    @property
    def alarms(self) -> np.ndarray:
        """The share of the negatives that each cut predicts, [m + 1]."""
        return self.above[0] / self.above[0, -1]

    @property
    def share(self) -> float:
        """The share of the positives among the samples."""
        return float(self.above[1, -1] / self.above[:, -1].sum())

    @property
    def now(self) -> int:
        """The cut of offset 0."""
        return self.cut(0.0)

    def cut(self, offset: float) -> int:
        """Return the cut that an offset makes."""
        return int((self.values > -offset).sum())

    def offset(self, losses: np.ndarray) -> float:
        """Return the offset of least loss [m + 1]: 0 if it is one, else the middle of the widest range of them.

        Above all logits and below them, where thresholds have no end, a range is as wide as distinct logits are apart
        on average.
        """
        best = losses <= losses.min() + SAME_LOSS
        if best[self.now]:
            return 0.0
        values = self.values
        apart = (values[0] - values[-1]) / (len(values) - 1) if len(values) > 1 else 1.0
        edges = np.concatenate([[values[0] + apart], values, [values[-1] - apart]])  # cut j: edges j + 1 to j
        first = np.flatnonzero(best & ~np.append(False, best[:-1]))
        last = np.flatnonzero(best & ~np.append(best[1:], False))
        high, low = edges[first], edges[last + 1]
        widest = int(np.argmax(high - low))
        middle = low[widest] + (high[widest] - low[widest]) / 2
        return float(-(middle if middle < high[widest] else low[widest]))  # between neighbors, rounded up to the higher


def label_loss(
    metric: Metric, recall: np.ndarray, alarms: np.ndarray, share: Any, cost: np.ndarray | None = None
) -> np.ndarray:
    """Return the loss of a label at each recall and share of false alarms, given the share of its positives.

    Args:
        metric: any but of K classes: F1 is that of the positives, the worst recall the lower of the two recalls.
        recall, alarms: of any shape.
        share: of the positives, above 0 and below 1.
        cost: [2, 2], row true, column predicted, for the metric cost.

    >>> label_loss("macro_f1", np.array([0.5, 1.0]), np.array([0.0, 0.5]), 0.5).round(3)
    array([0.333, 0.2  ])
    """
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
        "cost": lambda: _expected_cost(recall, alarms, share, cost),
    }
    return losses[metric]()


def _phi(recall: np.ndarray, alarms: np.ndarray, share: Any, predicted: np.ndarray) -> np.ndarray:
    """Return Matthews' coefficient of two classes; 0 where all or none are predicted."""
    spread = np.maximum(predicted * (1 - predicted), 0)
    over = np.sqrt(spread / (share * (1 - share)))
    return np.divide(recall - alarms, over, out=np.zeros_like(over), where=spread > 1e-11)


def _expected_cost(recall: np.ndarray, alarms: np.ndarray, share: Any, cost: np.ndarray | None) -> np.ndarray:
    assert cost is not None
    return (1 - share) * (cost[0, 0] + (cost[0, 1] - cost[0, 0]) * alarms) + share * (
        cost[1, 0] + (cost[1, 1] - cost[1, 0]) * recall
    )
