"""Rules judged on samples that they were not fitted on.

The samples are dealt into five folds, class by class, twice. Each rule is fitted on four folds and predicts the fifth.
So every sample gets, from every rule, as many predictions as there are repeats, none by a fit that saw its label. A
rule with more numbers to choose has no advantage from choosing them.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np

from ..core.array import Array, usable_cores
from ..core.choices import Kind
from ..core.kept_rows import KeptRows
from ..path.chunks import read_chunks
from ..path.metrics import ERRORS
from ..path.resample import class_variance, draw_folds, draw_resamples
from ..rules.rule import Unchanged
from .objective import Objective, class_effects
from .paths import Fitted, Fitter
from .samples import Samples

FOLDS, REPEATS = 5, 2
_FEW_NUMBERS = 500_000  # N times K, up to which threads would wait for each other
_RESAMPLES = 200  # for the standard error of a metric that is not a mean over samples


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """What each rule predicts for samples that it was not fitted on.

    Args:
        samples, objective: the samples; the metric on them, of any rule.
        predicted: {rule: [repeats, N]}; `none` is the model as it is.
        fits: {rule: what it chose in each fold, with its predictions for that fold}.
    """

    samples: Samples
    objective: Objective
    predicted: Mapping[str, np.ndarray]
    fits: Mapping[str, Sequence[Fitted]]

    def loss(self, rule: str, times: np.ndarray | None = None) -> float:
        """Return the loss of a rule, the mean over the repeats, with sample i counted times[i] times."""
        return float(np.mean([self.loss_of(row, times) for row in self.predicted[rule]]))

    def criterion(self, rule: str) -> float:
        """Return what `tune` minimizes: the loss and, for errors, the mismatch of predicted shares."""
        return self.loss(rule) + self.guide * self._mismatch(rule)

    def gain(self, rule: str, over: str = Unchanged.name) -> tuple[float, float]:
        """Return by how much a rule's loss is lower than another's, and the standard error of that.

        The error counts, for each class, one sample more that gains and one that loses: a class with a single sample
        is not taken for certain.
        """
        if rule == over:
            return 0.0, 0.0
        labels, size = self.samples.labels, self.samples.classes
        change = self._right(rule) - self._right(over)
        effects = class_effects(self.objective, 0.0)
        seen, smoothed = (class_variance(change, labels, size, more) for more in (0, 1))
        if self.objective.metric in ERRORS:
            variance = effects**2 @ smoothed
        else:
            drawn = np.var(self._resampled_losses(over) - self._resampled_losses(rule))
            variance = drawn + max(0.0, float(effects**2 @ (smoothed - seen)))
        return self.loss(over) - self.loss(rule), float(np.sqrt(variance))

    def interval(self, rule: str, level: float, over: str = Unchanged.name) -> tuple[float, float]:
        """Return the interval of a rule's gain."""
        gain, error = self.gain(rule, over)
        reach = NormalDist().inv_cdf((1 + level) / 2) * error
        return gain - reach, gain + reach

    @cached_property
    def guide(self) -> float:
        """The weight of the mismatch, of ``min(1, 20 s)`` where the model is as it is."""
        strength = self.samples.options.guide_strength
        return min(1.0, strength * self.objective.standard_error(0.0)) if strength else 0.0

    def _resampled_losses(self, rule: str) -> np.ndarray:
        """Return the loss of a rule on resampled samples, the same ones for every rule; computed once."""
        if rule not in self._known_losses:
            draws = draw_resamples(self.samples.labels, _RESAMPLES, np.random.default_rng(0))
            self._known_losses[rule] = np.array([self.loss(rule, times) for times in draws])
        return self._known_losses[rule]

    @cached_property
    def _known_losses(self) -> dict[str, np.ndarray]:
        return {}

    def _mismatch(self, rule: str) -> float:
        if not self.guide:
            return 0.0
        prior, weights = self.objective.prior, self.objective.weights
        shares = [np.bincount(row, weights, len(prior)) for row in self.predicted[rule]]
        return float(np.mean([0.5 * np.abs(share - prior).sum() for share in shares]))

    def _right(self, rule: str) -> np.ndarray:
        """Return the share of repeats in which each sample is right, [N]."""
        return (self.predicted[rule] == self.samples.labels).mean(axis=0)

    def meets_floors_as_trained(self) -> bool:
        """Return whether the model as it is meets the floors."""
        floors, recall = self.objective.floors, self.objective.path.class_accuracy(0.0)
        return floors is None or not (recall < floors).any()

    def loss_of(self, predicted: np.ndarray, times: np.ndarray | None = None) -> float:
        """Return the loss of predictions [N], with sample i counted times[i] times."""
        return self.objective.loss_of(predicted, times)


def cross_fit_rules(
    samples: Samples,
    fitters: Mapping[str, Fitter],
    objective: Objective,
    *,
    folds: int = FOLDS,
    repeats: int = REPEATS,
    rng: np.random.Generator | int = 0,
) -> CrossFitted:
    """Fit every rule on all folds but one, and let it predict that one; again for each fold and repeat."""
    labels, rng = samples.labels, np.random.default_rng(rng)
    plain = as_trained(samples)
    predicted = {rule: np.tile(plain, (repeats, 1)) for rule in (Unchanged.name, *fitters)}
    fits: dict[str, list[Fitted]] = {rule: [] for rule in fitters}
    tasks = []
    for repeat in range(repeats):
        fold = draw_folds(labels, folds, rng).astype(np.uint8)
        for i in range(folds):
            judged = fold == i
            if judged.any() and objective.weights[~judged].any():
                tasks += [(repeat, fold, i, rule) for rule in fitters]

    def fit(repeat: int, fold: np.ndarray, i: int, rule: str) -> Fitted:
        judged = fold == i
        found = fitters[rule].fit(np.flatnonzero(~judged))
        predicted[rule][repeat, judged] = found.predicted[judged]
        return replace(found, predicted=found.predicted[judged])  # N numbers for each fold are many

    first = len(fitters) if tasks else 0  # what fits share is computed in the first
    found = [fit(*task) for task in tasks[:first]]
    if samples.numbers < _FEW_NUMBERS:
        found += [fit(*task) for task in tasks[first:]]
    else:
        with ThreadPoolExecutor(usable_cores()) as pool:
            found += pool.map(lambda task: fit(*task), tasks[first:])
    for (*_, rule), one in zip(tasks, found, strict=True):
        fits[rule].append(one)
    return CrossFitted(samples, objective, predicted, fits)


def as_trained(samples: Samples) -> np.ndarray:
    """Return the class that each sample gets as the model is, [N]."""
    return np.concatenate([find_winners(logits, samples.options.kind) for logits, *_ in samples.parts])


def find_winners(logits: Array, kind: Kind) -> np.ndarray:
    """Return the class of each row's largest logit, [n]."""
    if isinstance(logits, KeptRows):
        return logits.winners
    return np.concatenate([chunk.argmax(axis=1) for _, chunk in read_chunks(logits, kind=kind)])
