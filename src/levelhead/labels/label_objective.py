"""What is minimized for one label, its best offset, and the same choice repeated on reweighted samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..core.choices import Metric
from ..show.progress import RowProgress
from .cuts import LabelCuts, label_loss

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


def cross_fitted_gain(
    label: LabelObjective, logits: np.ndarray, positive: np.ndarray, rng: np.random.Generator, folds: int = 10
) -> float:
    """Return what the choice of an offset gains where it was not chosen: each tenth decided by the rest's best offset.

    Args:
        label: of these logits [N] and of which samples are positive, [N].
        rng, folds: positives and negatives are dealt into so many folds at random.

    >>> z, y = np.array([-1.0, -2.0, -3.0, -1.5, -2.5, -3.5]), np.array([True, False, False] * 2)
    >>> cross_fitted_gain(LabelObjective(LabelCuts.of(z, y), "error"), z, y, np.random.default_rng(0))
    0.16666666666666666
    """
    fold = np.empty(len(logits), np.int64)
    for part in (positive, ~positive):
        fold[part] = rng.permutation(int(part.sum())) % folds
    predicted = np.empty(len(logits), bool)
    for i in range(folds):
        inside, rest = fold == i, fold != i
        known = positive[rest].any() and not positive[rest].all()
        offset = replace(label, cuts=LabelCuts.of(logits[rest], positive[rest])).offset if known else 0.0
        predicted[inside] = logits[inside] + offset > 0
    return float(label.losses[label.cuts.now] - label.loss(predicted[positive].mean(), predicted[~positive].mean()))


def draw_label_gains(
    labels: Sequence[LabelObjective], n: int, rng: np.random.Generator, progress: RowProgress | None = None
) -> np.ndarray:
    """Return what each label's best offset gains on n reweightings of the samples, [K, n].

    The weights are exponential, the Bayesian bootstrap, and the same for all labels. Within a label, positives and
    negatives keep their totals, so it is stratified. Each of the two has one sample more that is predicted only with
    the offset and one only without, so that few positives leave the gain in doubt.

    Args:
        labels: each of the same samples.
        n, rng: how many replicates.
        progress: called with how many are done, and n.

    >>> cuts = LabelCuts.of(np.arange(-9.0, 0.0), np.arange(9) > 5)
    >>> gains = draw_label_gains([LabelObjective(cuts, "balanced_error")], 500, np.random.default_rng(0))
    >>> gains.shape, bool(0.1 < gains.mean() < 0.5)
    ((1, 500), True)
    """
    gains = np.empty((len(labels), n))
    samples = sum(map(len, labels[0].cuts.order))
    step = max(1, _NUMBERS // samples)
    for first in range(0, n, step):
        some = slice(first, min(first + step, n))
        weights = rng.exponential(size=(samples, some.stop - first))
        for row, label in zip(gains, labels, strict=True):
            row[some] = _reweighted_gain(label, weights, rng)
        if progress is not None:
            progress(some.stop, n)
    return gains


def _reweighted_gain(label: LabelObjective, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the gain for each column of the weights [N, b]."""
    cuts, shares = label.cuts, []
    both = [cuts.now, cuts.cut(label.offset)]
    for order, above in zip(cuts.order, cuts.above, strict=True):  # negatives, positives
        predicted = np.stack([weights[order[:count]].sum(axis=0) for count in above[both]])
        more = rng.exponential(size=predicted.shape)  # one predicted only before, one only after
        shares.append((predicted + more) / (weights[order].sum(axis=0) + more.sum(axis=0)))
    before, after = label.loss(shares[1], shares[0])
    return before - after
