"""What is minimized for one label, its best offset, and the same choice repeated on reweighted samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.choices import Metric
from ..show.progress import RowProgress
from .label_cuts import LabelCuts, label_loss

_ROUNDING = 1e-11
_NUMBERS = 2_000_000  # weights drawn at once, about


@dataclass(frozen=True, eq=False)
class LabelObjective:
    """The loss of one label at each of its cuts, and the least recall of its positives.

    Args:
        cuts, metric: of the label; what the loss is.
        cost: [2, 2], row true, column predicted, for the metric cost.
        floor: least recall, 0 for none.

    >>> cuts = LabelCuts.of(np.array([-1.0, -2.0, -3.0]), np.array([True, False, True]))
    >>> LabelObjective(cuts, "balanced_error").offset, LabelObjective(cuts, "error", floor=0.9).offset
    (1.5, 3.5)
    """

    cuts: LabelCuts
    metric: Metric
    cost: np.ndarray | None = None
    floor: float = 0.0

    def loss(self, recall: np.ndarray, alarms: np.ndarray) -> np.ndarray:
        """Return the loss at each recall and share of false alarms."""
        return label_loss(self.metric, recall, alarms, self.cuts.share, self.cost)

    def allowed(self, losses: np.ndarray, recall: np.ndarray) -> np.ndarray:
        """Return the losses, infinite where the recall is below its floor."""
        return np.where(recall >= self.floor - _ROUNDING, losses, np.inf)

    @cached_property
    def losses(self) -> np.ndarray:
        """The loss of each cut on these samples."""
        return self.loss(self.cuts.recall, self.cuts.alarms)

    @cached_property
    def offset(self) -> float:
        """The best offset on these samples that meets the floor; there is one, because recall 1 is within reach."""
        return self.cuts.offset(self.allowed(self.losses, self.cuts.recall))

    @property
    def needs_floor(self) -> bool:
        """Whether its recall is too low as it is."""
        return bool(self.cuts.recall[self.cuts.now] < self.floor - _ROUNDING)

    @property
    def apparent_gain(self) -> float:
        """How much less the loss is at the best offset, on these samples."""
        return float(self.losses[self.cuts.now] - self.losses[self.cuts.cut(self.offset)])


def draw_label_gains(
    labels: Sequence[LabelObjective], n: int, rng: np.random.Generator, progress: RowProgress | None = None
) -> np.ndarray:
    """Return what each label's best offset gains on new samples, [K, n]: n replicates, less the optimism of the choice.

    A replicate weighs the samples at random (exponential weights, the Bayesian bootstrap), the same for all labels.
    Within a label, positives and negatives keep their totals, so it is stratified. Each of the two has one sample more
    that gains by the offset and one that loses, so that a label with few positives has a gain in doubt.

    The optimism is how much more, on average, the best cut of a replicate gains on it than on the samples themselves.

    Args:
        labels: each of the same samples.
        n, rng: how many replicates.
        progress: called with how many are done, and n.

    >>> cuts = LabelCuts.of(np.arange(-9.0, 0.0), np.arange(9) > 5)
    >>> gains = draw_label_gains([LabelObjective(cuts, "balanced_error")], 500, np.random.default_rng(0))
    >>> gains.shape, 0.1 < gains.mean() < 0.5
    ((1, 500), True)
    """
    gains, optimism = np.empty((len(labels), n)), np.zeros((len(labels), n))
    samples = sum(map(len, labels[0].cuts.order))
    step = max(1, _NUMBERS // samples)
    for first in range(0, n, step):
        some = slice(first, min(first + step, n))
        weights = rng.exponential(size=(samples, some.stop - first))
        for label, row, flattery in zip(labels, gains, optimism, strict=True):
            row[some], flattery[some] = _replicate(label, weights, rng)
        if progress is not None:
            progress(some.stop, n)
    return gains - optimism.mean(axis=1, keepdims=True) if n else gains


def _replicate(label: LabelObjective, weights: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the gain of the best offset, and how much more a replicate's own best cut gains on it, [b] each."""
    cuts = label.cuts
    now, best, contenders = cuts.now, cuts.cut(label.offset), cuts.contenders
    where = np.append(contenders, [now, best])
    shares, smoothed = [], []
    for order, above in zip(cuts.order, cuts.above, strict=True):  # negatives, positives
        total = np.concatenate([np.zeros((1, weights.shape[1])), np.cumsum(weights[order], axis=0)])
        predicted, whole = total[above[where]], total[-1]
        shares.append(predicted / whole)
        more = rng.exponential(size=(2, weights.shape[1]))  # one predicted only before, one only after
        smoothed.append((predicted[-2:] + more) / (whole + more.sum(axis=0)))
    losses = label.loss(shares[1], shares[0])
    own = label.allowed(losses[:-2], shares[1][:-2]).argmin(axis=0)
    own_gain = losses[-2] - np.take_along_axis(losses[:-2], own[None], axis=0)[0]
    really = label.losses[now] - label.losses[contenders[own]]
    at = label.loss(smoothed[1], smoothed[0])
    return at[0] - at[1], own_gain - really
