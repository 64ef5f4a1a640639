"""How each rule is fitted on some of the held-out samples, so that others can judge it.

`make_fitter` has one function for each kind of rule: of one strength, on its path; RS, then shift; vector scaling. What
it returns chooses on some rows alone, and says which class it would predict for every sample, with `scale` and `offset`
where those are what it chose. `auto.py` and `compare.py` do the rest: they cross-fit it, choose it where it is clearly
better, and make its `Tuned`.
"""

from dataclasses import dataclass, replace
from functools import cached_property, singledispatch

import numpy as np

from ..core.array import to_numpy
from ..core.curve import Curve
from ..core.logits import check_logits
from ..path.envelope import Envelope
from ..path.metrics import ERRORS, meets_floors, shown
from ..rules.adjustment import smooth_votes
from ..rules.checks import toward
from ..rules.rule import OneStrength, Rescale, RescaleThenShift, Rule, Shift, Vector
from . import diagnostics
from .cross_fit import Fitted, Fitter
from .goal import TuneOptions
from .objective import Pull
from .paths import Paths, RulePath, labelled_changes
from .samples import Samples, class_shares
from .vector import choose_ridge, fit_vector, vector_loss

MOST_VECTOR_NUMBERS = 100_000  # the same for rules with numbers for each class, fitted by Newton's steps
MOST_NUMBERS = 8_000_000  # N times K, up to which rules are fitted that need a path of their own for each fold


@dataclass(frozen=True, eq=False)
class PathFitter:
    """A rule of one strength: its exact path is computed once, and rows are taken from it."""

    rule: RulePath
    options: TuneOptions

    @cached_property
    def predictions(self) -> Envelope:
        """Every change of the predictions of the labelled samples."""
        known = None if self.options.unlabelled is not None else self.rule.changes
        return labelled_changes(self.rule.parts, self.options) if known is None else known

    @property
    def curve(self) -> Curve | None:
        """The metric over gamma on all samples."""
        objective = self.rule.objective(self.options)
        return objective.grid.curve(shown(self.options.metric, objective.error()))

    def fit(self, rows: np.ndarray) -> Fitted:
        """Choose gamma on some rows, as `tune` does."""
        objective = self.rule.objective(self.options, rows)
        gamma, plateau = objective.choose(objective.error(), strength=self.options.guide_strength)
        return Fitted(
            gamma,
            self.predictions.predictions(gamma),
            plateau=plateau,
            reach=self.rule.path.range,
            floors_met=objective.floors is None or meets_floors(objective.margins()),
        )


@dataclass(frozen=True, eq=False)
class ShiftAfter:
    """RS at the strength that is best alone, and then the shift that is best after it, pulled toward none."""

    paths: Paths
    first: PathFitter

    @property
    def curve(self) -> Curve | None:
        """The metric over the strength of RS alone."""
        return self.first.curve

    def fit(self, rows: np.ndarray) -> Fitted:
        """Choose both strengths on some rows."""
        samples, gamma = self.paths.samples, self.first.fit(rows).gamma
        found = self.second(gamma).fit(rows)
        both = RescaleThenShift().adjustment(samples.counts, gamma, found.gamma, toward(samples.counts, samples.target))
        return replace(found, gamma=gamma, second=found.gamma, scale=both.scale, offset=both.offset)

    def second(self, gamma: float) -> PathFitter:
        """Return the shift of logits that are already rescaled; folds often choose the same gamma, so some are kept."""
        found = self._seconds.get(gamma)
        if found is None:
            found = self._shift_after(gamma)
            if len(self._seconds) >= MOST_NUMBERS // self.paths.samples.numbers:
                self._seconds.clear()
            self._seconds[gamma] = found
        return found

    @cached_property
    def _seconds(self) -> dict[float, PathFitter]:
        return {}

    def _shift_after(self, gamma: float) -> PathFitter:
        samples, options = self.paths.samples, self.paths.samples.options
        scaled = [
            part.rule.scores(check_logits(to_numpy(logits), kind=options.kind), gamma)
            for part, (logits, *_) in zip(self.first.rule.parts, samples.parts, strict=True)
        ]
        pull = None if options.metric not in ERRORS else Pull(0.0, samples.calibration[0], 0.5)
        if options.unlabelled is not None:
            rule = self.first.rule.parts[0].rule
            unlabelled = rule.scores(check_logits(to_numpy(options.unlabelled), kind=options.kind), gamma)
            options = replace(options, unlabelled=unlabelled)
        return PathFitter(RulePath.of(self.paths.parts(Shift.name, scaled), options, pull=pull), options)


@dataclass(frozen=True, eq=False)
class VectorFitter:
    """A scale and an offset for each class, by log loss (`vector.py`), where classes weigh as in the metric.

    The ridge is chosen once, on all samples. For a metric that is not an error, and for floors, the scores are then
    shifted by the strength that is best on the rows: log loss does not know of those.
    """

    paths: Paths

    @property
    def curve(self) -> Curve | None:
        """The metric at 41 steps from the scores as they are (0) to the fitted ones (1), on all samples.

        Both are in the units of log-probabilities: the first are divided by their temperature.
        """
        samples, options = self.paths.samples, self.paths.samples.options
        fitted = self.fit(np.arange(len(samples.labels)))
        assert fitted.scale is not None
        assert fitted.offset is not None
        plain, after = self.scores / self.temperature, fitted.scale * self.scores + fitted.offset
        objective = self.paths.reference.objective(replace(options, goal=replace(options.goal, floors=None)))
        steps = np.linspace(0, 1, 41)
        losses = [objective.loss_of(((1 - step) * plain + step * after).argmax(axis=1)) for step in steps]
        starts = np.concatenate([[0.0], (steps[1:] + steps[:-1]) / 2])
        return Curve(starts, shown(options.metric, np.array(losses)), 1.0)

    @cached_property
    def temperature(self) -> float:
        """The temperature of the scores, where classes weigh as in training."""
        return 1 / vector_loss(self.scores, self.paths.samples.labels, self.paths.samples.counts).inverse

    @cached_property
    def scores(self) -> np.ndarray:
        """The logits of all samples, [N, K], or the logarithms of their probabilities, smoothed."""
        samples, kind = self.paths.samples, self.paths.samples.options.kind
        known = [check_logits(to_numpy(logits), kind=kind).astype(np.float64) for logits, *_ in samples.parts]
        return smooth_votes(np.concatenate(known), self.smoothing if kind == "probabilities" else 0.0)[0]

    @cached_property
    def smoothing(self) -> float:
        """What is added to probabilities before their logarithm; 0 for logits."""
        if self.paths.samples.options.kind != "probabilities":
            return 0.0
        logs = [check_logits(to_numpy(logits), kind="probabilities") for logits, *_ in self.paths.samples.parts]
        return smooth_votes(np.concatenate(logs))[1]

    @cached_property
    def ridge(self) -> float:
        """The strength of the penalty."""
        samples = self.paths.samples
        return choose_ridge(self.scores, samples.labels, samples.counts, prior=self.prior)

    @cached_property
    def start(self) -> np.ndarray:
        """The parameters of all samples, [2, K], which those of some are near."""
        samples = self.paths.samples
        return vector_loss(self.scores, samples.labels, samples.counts, self.prior).minimum_at(self.ridge)

    @cached_property
    def prior(self) -> np.ndarray:
        """What each class weighs in the metric, [K]."""
        return class_shares(self.paths.samples.labels, self.paths.samples.classes, self.paths.samples.options)

    def fit(self, rows: np.ndarray) -> Fitted:
        """Fit the numbers on some rows."""
        samples, options = self.paths.samples, self.paths.samples.options
        labels = samples.labels[rows]
        given = {"prior": self.prior, "ridge": self.ridge, "start": self.start, "near": self.temperature}
        fit = fit_vector(self.scores[rows], labels, samples.counts, **given)
        scores = fit.scores(self.scores)
        found = Fitted(1.0, scores.argmax(axis=1), scale=fit.scale, offset=fit.offset, smoothing=self.smoothing)
        if options.metric in ERRORS and options.floors is None:
            return found
        cuts = np.cumsum([len(part) for _, part, _ in samples.parts])[:-1]
        options = replace(options, unlabelled=None, goal=replace(options.goal, criterion="balanced_error"))
        shifted = self.paths.parts(Shift.name, np.split(scores, cuts))
        after = PathFitter(RulePath.of(shifted, options), options).fit(rows)
        moved = toward(samples.counts, samples.target)
        return replace(
            after,
            gamma=1.0,
            second=after.gamma,
            scale=fit.scale,
            offset=fit.offset + after.gamma * np.log(moved.max() / moved),
            smoothing=self.smoothing,
        )


@singledispatch
def make_fitter(rule: Rule, paths: Paths) -> Fitter | None:
    """Return what fits a rule on rows of the samples; None where it cannot act on them, or is nothing to fit."""
    return None


@make_fitter.register
def _(rule: OneStrength, paths: Paths) -> Fitter | None:
    if rule.multiplies and not _can_be_scaled(paths.samples):
        return None
    if rule.needs_norms and paths.samples.options.norms is None:
        return None
    return PathFitter(paths.of(rule.name), paths.samples.options)


@make_fitter.register
def _(rule: RescaleThenShift, paths: Paths) -> Fitter | None:
    samples = paths.samples
    too_much = samples.options.bias is not None or samples.numbers > MOST_NUMBERS or samples.joined is not None
    if too_much or not _can_be_scaled(samples):
        return None
    return ShiftAfter(paths, PathFitter(paths.of(rule.path_name), paths.samples.options))


@make_fitter.register
def _(rule: Vector, paths: Paths) -> Fitter | None:
    samples = paths.samples
    too_much = samples.joined is not None or (samples.options.is_auto and samples.numbers > MOST_VECTOR_NUMBERS)
    return None if too_much or np.bincount(samples.labels).max() < 2 else VectorFitter(paths)


def _can_be_scaled(samples: Samples) -> bool:
    """Return whether multiplying scores can change a prediction: not those of probabilities, nor where two classes have
    opposite logits, or one is always 0."""
    binary = (diagnostics.diagnose_binary_head(logits, Rescale()) for logits, *_ in samples.parts)
    return not (samples.of_probabilities or all(found is not None for found in binary))
