"""Rules judged on samples that they were not fitted on, and the choice of gamma on many resamples at once.

The samples are dealt into five folds, class by class, twice if they are few. Each rule is fitted on four folds, its
strength to a thousandth of the range, and predicts the fifth. So every sample gets, from every rule, as many
predictions as there are repeats, none by a fit that saw its label. A rule with more numbers to choose has no advantage
from choosing them.

Replicates can choose only on some intervals, and samples that are alike there are drawn together (see
`replicate_groups.py`). Apart from the chance that is left out there, choices are those of each replicate by itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from ..core.rules import Unchanged
from ..path.curve import runs, stable_order
from ..path.envelope import Envelope, read_chunks
from ..support.arrays import Array, KeptRows, is_torch, to_numpy
from ..support.progress import RowProgress
from ..support.types import Kind
from .objective import Objective, class_effects
from .path_metrics import ERRORS
from .paths import Fitted, Fitter
from .replicate_groups import (
    HOST,
    BlockShares,
    Groups,
    Tables,
    changing,
    draw_blocks,
    group_predictions,
    possible_intervals,
    tables_for,
)
from .resample import Grid, class_variance, draw_resamples
from .samples import Folds, Samples


class Block(NamedTuple):
    """Some replicates: what each chooses, its error there, and its loss at 0 and at the real gamma, [B] each."""

    gammas: np.ndarray
    errors: np.ndarray
    at_zero: np.ndarray
    at_gamma: np.ndarray


@dataclass(frozen=True, eq=False)
class ResampledChoice:
    """The choice repeated on samples drawn with replacement, each class by itself."""

    objective: Objective  # what is minimized, on a grid of at most a thousand intervals or so
    gamma: float  # what was chosen on all samples
    strength: float  # how much the mismatch of shares counts
    where: Tables = (
        HOST  # the tables of replicates, if the choice is made on all of them at once (`whole`)
    )

    @cached_property
    def tables(self) -> Tables:
        return self.where if self.whole else HOST

    def blocks(self, n: int, rng: np.random.Generator) -> Iterator[Block]:
        """Yield n replicates, in blocks that threads work on; the seed alone decides what is drawn."""
        return draw_blocks(self._draw_block, self.groups, n, rng, self.tables)

    def _draw_block(self, n: int, rng: np.random.Generator) -> Block:
        times, objective = self.tables.draw(self.groups, n, rng), self.objective
        free = None if self.free is None else self.tables.draw(self.free, n, rng, "free")
        if self.whole:
            gammas, errors, (at_zero, at_gamma) = self.choose(times, free)
        else:
            own = times[:, self.groups.member]
            errors, gammas = np.array([objective.error(row) for row in own]), np.empty(n)
            for i, row in enumerate(own):
                other = None if free is None or self.free is None else free[i, self.free.member]
                values = objective.values(
                    errors[i], row, unlabelled_times=other, strength=self.strength
                )
                gammas[i], _ = objective.grid.choose(values)
            losses = [objective.fixed_loss(gamma) for gamma in (0.0, self.gamma)]
            at_zero, at_gamma = (np.array([loss(row) for row in own]) for loss in losses)
        at = np.searchsorted(self.grid.edges[1:-1], gammas, side="right")
        return Block(gammas, errors[np.arange(n), at], at_zero, at_gamma)

    def choose(self, times: Any, free: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return each replicate's gamma [B], errors [B, G] and losses [2, B], by how often groups are drawn, [B, M]."""
        # What `Objective.values` does for one weighting, for a table of them: the error of every replicate on every
        # interval, its standard error at its own optimum, and with that the pull and the weight of the mismatch.
        objective, grid, tables = self.objective, self.grid, self.tables
        group, weights = self._ever_right[:2]
        own = tables.take(times, group, "own")
        at_zero, at_gamma, start = tables.host(own @ tables.place(weights)).T
        errors = self._errors(own, start)
        values, guided = errors, self._changes is not None
        if objective.pull is not None or guided:
            s = self._standard_errors(grid.choose_rows(errors, prefer_zero=False), own)
            if objective.pull is not None:
                values = errors + np.outer(s, objective.pull.values(grid.middles, 1.0))
            if guided:
                drawn, weights = (
                    (times, tables.place(self._weights))
                    if free is None
                    else (free, 1 / free[0].sum())
                )
                mass = tables.scale(drawn, weights, "mass")
                values = self._shares.add(values, mass, np.minimum(1.0, self.strength * s))
        gammas = grid.choose_rows(
            values, prefer_zero=len(grid.middles) == len(objective.grid.middles)
        )
        return gammas, errors, 1 - np.stack([at_zero, at_gamma])

    @cached_property
    def whole(self) -> bool:
        """Whether the metric is an error without floors, and each sample is right on one interval."""
        objective = self.objective
        return objective.metric in ERRORS and objective.floors is None and objective.path.single

    @cached_property
    def span(self) -> tuple[int, int]:
        """The first and the last interval on which a replicate can choose."""
        if not self.whole:
            return 0, len(self.objective.grid.middles) - 1
        return possible_intervals(self.objective, self.strength, self._own)

    @cached_property
    def _own(self) -> int:
        """The interval of the gamma that was chosen."""
        return int(np.searchsorted(self.objective.grid.edges[1:-1], self.gamma, side="right"))

    @cached_property
    def grid(self) -> Grid:
        """The intervals on which a replicate can choose."""
        first, last = self.span
        return self.objective.grid.part(first, last - first + 1)

    @cached_property
    def groups(self) -> Groups:
        """The samples, class by class, in groups that are right or wrong and predicted alike wherever that counts."""
        path = self.objective.path
        strata = (np.cumsum(np.bincount(path.labels) > 0) - 1)[
            path.labels
        ]  # the classes that have a sample
        if not self.whole:
            return Groups.of(strata, [], np.ones(len(strata), bool))
        # Right on the whole span, or wrong on all of it: such samples of a class differ in nothing that is computed,
        # but for whether they are right at 0 and at the real gamma, which may lie outside, and for what is predicted.
        begin, end = self.grid.edges[[0, -1]]
        right = (path.lo <= begin) & (end <= path.hi)
        alone = ~(right | (path.lo > path.hi) | (path.hi < begin) | (end < path.lo))
        keys = [right, *(path.right(gamma) for gamma in (0.0, self.gamma))]
        if self._changes is None or self.objective.unlabelled:
            return Groups.of(strata, keys, alone)
        # In the order of what is predicted where shares are followed from: their first sums need no gather then.
        start = self._changes.predictions(self.objective.grid.middles[self._likely[0]])
        return Groups.of(strata, [start, *keys], alone | changing(self._changes))

    @cached_property
    def _ever_right(self) -> tuple[np.ndarray, ...]:
        """Groups that are ever right, class by class; weights where they are; where that is; classes, their prior."""
        groups, path, at = (
            self.groups,
            self.objective.path,
            (0.0, self.gamma, float(self.grid.middles[0])),
        )
        ever = np.flatnonzero(path.lo[groups.first] <= path.hi[groups.first])
        ever = ever[stable_order(groups.stratum[ever])]
        first, (classes, opens) = groups.first[ever], runs(groups.stratum[ever])
        right = np.stack([path.right(gamma)[first] for gamma in at], axis=1)
        prior = self.objective.prior[np.bincount(path.labels, minlength=len(path.counts)) > 0]
        return (
            ever,
            right * self._weights[ever, None],
            path.lo[first],
            path.hi[first],
            classes,
            opens,
            prior,
        )

    @cached_property
    def free(self) -> Groups | None:
        """The unlabelled samples, in groups that are predicted alike; None if there are none."""
        changes = self.objective.changes if self.objective.unlabelled else None
        return (
            None
            if changes is None
            else group_predictions(changes, self.objective.grid, *self.span)[0]
        )

    @cached_property
    def _changes(self) -> Envelope | None:
        """The changes where a replicate can choose, if predicted shares count."""
        mismatch = self.objective.mismatch if self.strength > 0 else None
        return None if mismatch is None else mismatch.changes.between(*self.grid.middles[[0, -1]])

    @cached_property
    def _weights(self) -> np.ndarray:
        return self.objective.weights[self.groups.first]

    @cached_property
    def _events(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Place among those ever right, and signed weight, of each change; where intervals open, and which."""
        _, gammas, sign, sample = self.objective.path.events
        begin, end = np.searchsorted(gammas, self.grid.middles[[0, -1]], side="right")
        bins, opens = runs(self.grid.bins(gammas[begin:end]))
        group, place = (
            self.groups.member[sample[begin:end]],
            np.empty(len(self.groups.sizes), np.int64),
        )
        place[self._ever_right[0]] = np.arange(len(self._ever_right[0]))
        return place[group], sign[begin:end] * self._weights[group], opens, bins

    def _errors(self, own: Any, start: np.ndarray) -> np.ndarray:
        """Return the error on each interval, [B, G], of groups that are ever right, drawn so often, [B, R]."""
        # One sum for each interval that has a change, in the first column what is right at the start: the cumulative
        # sum along the row is then what is right on each interval.
        group, weights, opens, bins = self._events
        found = np.zeros((len(own), len(self.grid.middles)))
        changes = self.tables.take(own, group, "changes")
        changes *= self.tables.place(weights)
        found[:, bins] = self.tables.host(self.tables.sums(changes, opens))
        found[:, 0] += start
        return 1 - np.cumsum(found, axis=1, out=found)

    def _standard_errors(self, gammas: np.ndarray, own: Any) -> np.ndarray:
        """Return `Objective.standard_error` of each replicate at its own gamma, [B]; `own` [B, R] is overwritten."""
        # A class with one more success and one more failure; each class keeps its size in every replicate, so only
        # how many of it are right is counted anew, among the groups that are ever right.
        (_, _, lo, hi, classes, opens, prior), sizes = self._ever_right, self.groups.totals + 2
        right = self.tables.sums_within(own, gammas, lo, hi, opens)
        accuracy = self.tables.add_at(np.ones(len(sizes)), classes, right) / self.tables.place(
            sizes
        )
        return np.sqrt(
            self.tables.host((accuracy * (1 - accuracy)) @ self.tables.place(prior**2 / sizes))
        )

    @cached_property
    def _shares(self) -> BlockShares:
        mismatch, first = self.objective.mismatch, self.span[0]
        assert mismatch is not None
        assert self._changes is not None
        few = (self.groups if self.free is None else self.free).changes(self._changes)
        low, high = self._likely
        return BlockShares(
            replace(mismatch, changes=few, grid=self.grid), (low - first, high - first), self.tables
        )

    @cached_property
    def _likely(self) -> tuple[int, int]:
        """The first and the last interval on which replicates will choose, by the criterion on all samples."""
        if not self.tables.threads:  # of all replicates at once, some go further
            return self.span
        objective, mismatch = self.objective, self.objective.mismatch
        pulled, guide = objective.pulled(objective.error(), strength=self.strength)
        most = pulled[self._own] + 1.5 * objective.standard_error(self.gamma)
        if mismatch is not None and guide:
            most += guide * mismatch.at(objective.grid.middles[self._own])
        likely = np.flatnonzero(pulled <= most)
        return max(int(likely[0]), self.span[0]), min(int(likely[-1]), self.span[1])


class Replicates(NamedTuple):
    """The choice repeated on resamples."""

    # Gains are spread as if each class had one more sample that gains and one that loses: resampling a single sample
    # shows no doubt. The real choice flatters itself on the real samples by that optimism, too (Efron 1983).

    gammas: np.ndarray  # [B], what they choose
    gains: np.ndarray  # [B], what the real gamma gains on each
    optimism: (
        float  # how much more, on average, its own choice gains on a replicate than on all samples
    )


def draw_replicates(
    objective: Objective,
    gamma: float,
    strength: float,
    n: int,
    rng: np.random.Generator,
    progress: RowProgress | None = None,
) -> Replicates:
    """Repeat the whole choice on n resamples, each drawn within its class, on at most 1000 intervals."""
    objective = objective.coarse
    path, grid, error = objective.path, objective.grid, objective.error()
    change = path.right(gamma) - path.right(0.0).astype(np.float64)
    blocks = [Block(*(np.zeros(0) for _ in Block._fields))]
    for block in ResampledChoice(objective, gamma, strength, tables_for(path.logits)).blocks(
        n, rng
    ):
        blocks.append(block)
        if progress is not None:
            progress(sum(len(one.gammas) for one in blocks), n)
    gammas, again, zero, at_gamma = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    gains = zero - at_gamma
    at = np.searchsorted(grid.edges[1:-1], gammas, side="right")
    optimism = (error[at] - again) - (objective.fixed_loss(0.0)(None) - zero)
    if gamma == 0:  # nothing changes, on whatever samples
        return Replicates(gammas, np.zeros(n), 0.0)
    gains += rng.normal(scale=np.sqrt(_unseen_variance(objective, change, gamma)), size=n)
    return Replicates(gammas, gains, float(optimism.mean()) if n else 0.0)


def _unseen_variance(objective: Objective, change: np.ndarray, gamma: float) -> float:
    """Return how much the variance of a mean change (+1, 0, -1) grows if each class had one +1 and one -1 more."""
    labels, size = objective.path.labels, len(objective.target)
    seen, smoothed = (class_variance(change, labels, size, more) for more in (0, 1))
    return max(0.0, float((class_effects(objective, gamma) ** 2 * (smoothed - seen)).sum()))


_RESAMPLES = 200  # for the standard error of a metric that is not a mean over samples


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """What each rule predicts for samples that it was not fitted on."""

    samples: Samples
    objective: Objective  # the metric on the samples, of any rule
    predicted: Mapping[str, np.ndarray]  # {rule: [repeats, N]}; `none` is the model as it is
    fits: Mapping[
        str, Sequence[Fitted]
    ]  # {rule: what it chose in each fold, with its predictions for that fold}
    _gains: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict, init=False)

    def loss(self, rule: str) -> float:
        """Return the loss of a rule, the mean over the repeats."""
        return self._losses[rule]

    @cached_property
    def _losses(self) -> dict[str, float]:
        return {rule: self._loss(rule) for rule in self.predicted}

    def _loss(self, rule: str, times: np.ndarray | None = None) -> float:
        return float(np.mean([self.objective.loss_of(row, times) for row in self.predicted[rule]]))

    def criterion(self, rule: str) -> float:
        """Return what `tune` minimizes: the loss and, for errors, the mismatch of predicted shares."""
        strength = self.samples.options.guide_strength
        if not strength:
            return self.loss(rule)
        guide = min(
            1.0, strength * self.objective.standard_error(0.0)
        )  # where the model is as it is
        prior, weights = self.objective.prior, self.objective.weights
        shares = [np.bincount(row, weights, len(prior)) for row in self.predicted[rule]]
        return self.loss(rule) + guide * float(
            np.mean([0.5 * np.abs(share - prior).sum() for share in shares])
        )

    def gain(self, rule: str, over: str = Unchanged.name) -> tuple[float, float]:
        """Return by how much a rule's loss is lower than another's, and the standard error of that."""
        # The error counts, for each class, one sample more that gains and one that loses: a class with a single sample
        # is not taken for certain.
        if rule == over:
            return 0.0, 0.0
        known = self._gains.get((rule, over))
        return (
            known
            if known is not None
            else self._gains.setdefault((rule, over), self._gain(rule, over))
        )

    def _gain(self, rule: str, over: str) -> tuple[float, float]:
        change = self._right[rule] - self._right[over]
        if self.objective.metric in ERRORS:
            smoothed = class_variance(change, self.samples.labels, self.samples.classes, 1)
            variance = class_effects(self.objective, 0.0) ** 2 @ smoothed
        else:
            drawn = np.var(self._resampled_losses[over] - self._resampled_losses[rule])
            variance = drawn + _unseen_variance(self.objective, change, 0.0)
        return self.loss(over) - self.loss(rule), float(np.sqrt(variance))

    @cached_property
    def _right(self) -> dict[str, np.ndarray]:
        """The share of repeats in which each sample is right, [N], by each rule."""
        return {
            rule: (rows == self.samples.labels).mean(axis=0)
            for rule, rows in self.predicted.items()
        }

    def interval(self, rule: str, level: float, over: str = Unchanged.name) -> tuple[float, float]:
        """Return the interval of a rule's gain."""
        gain, error = self.gain(rule, over)
        reach = NormalDist().inv_cdf((1 + level) / 2) * error
        return gain - reach, gain + reach

    @cached_property
    def _resampled_losses(self) -> dict[str, np.ndarray]:
        """The loss of each rule on resampled samples, the same ones for every rule."""
        draws = draw_resamples(self.samples.labels, _RESAMPLES, np.random.default_rng(0))
        losses = zip(
            *([self._loss(rule, times) for rule in self.predicted] for times in draws), strict=True
        )
        return {rule: np.array(found) for rule, found in zip(self.predicted, losses, strict=True)}

    def meets_floors_as_trained(self) -> bool:
        """Return whether the model as it is meets the floors."""
        floors, recall = self.objective.floors, self.objective.path.class_accuracy(0.0)
        return floors is None or not (recall < floors).any()


def cross_fit_rules(
    samples: Samples, fitters: Mapping[str, Fitter], objective: Objective, dealt: Sequence[Folds]
) -> CrossFitted:
    """Fit every rule on all folds but one, and let it predict that one; again for each fold and repeat."""
    plain = np.concatenate(
        [find_winners(logits, samples.options.kind) for logits, *_ in samples.parts]
    )
    predicted = {rule: np.tile(plain, (len(dealt), 1)) for rule in (Unchanged.name, *fitters)}
    fits: dict[str, list[Fitted]] = {rule: [] for rule in fitters}
    for repeat, folds in enumerate(dealt):

        def fit(fitter: Fitter, folds: Folds = folds) -> list[Fitted]:
            each = ((judged, fitter.fit(rows)) for judged, rows in folds)
            return [
                replace(one, predicted=one.predicted[judged]) for judged, one in each
            ]  # all would be many numbers

        for rule, found in zip(fitters, samples.each(fit, fitters.values()), strict=True):
            fits[rule] += found
            for (judged, _), one in zip(folds, found, strict=True):
                predicted[rule][repeat, judged] = one.predicted
    return CrossFitted(samples, objective, predicted, fits)


def find_winners(logits: Array, kind: Kind) -> np.ndarray:
    """Return the class of each row's largest logit, [n]."""
    if isinstance(logits, KeptRows):
        return logits.winners
    if is_torch(logits):  # of any kind: logarithms keep their order
        return to_numpy(logits.argmax(1))
    return np.concatenate([chunk.argmax(axis=1) for _, chunk in read_chunks(logits, kind=kind)])
