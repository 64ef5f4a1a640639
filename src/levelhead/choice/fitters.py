"""How each rule is fitted on some of the held-out samples, so that others can judge it.

`make_fitter` has one function for each kind of rule: of one strength, on its path; RS, then shift; vector scaling. What
it returns chooses on some rows alone, and says which class it would predict for every sample, with `scale` and `offset`
where those are what it chose. `auto.py` and `compare.py` do the rest: they cross-fit it, choose it where it is clearly
better, and make its `Tuned`.
"""

from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import Protocol

import numpy as np

from ..core.array import to_numpy
from ..core.curve import Curve
from ..core.logits import check_logits
from ..path.envelope import Envelope
from ..path.metrics import ERRORS, meets_floors, shown
from ..rules.adjustment import smooth_votes
from ..rules.rule import RULES, OneStrength, PerClass, Rescale, RescaleThenShift, Rule, Shift, Vector
from . import diagnostics
from .choose import RulePath, class_shares, guide_strength, labelled_changes
from .objective import Pull
from .options import TuneOptions
from .samples import HeldOut
from .vector import choose_ridge, fit_vector, vector_loss

MOST_NUMBERS = 8_000_000  # N times K, up to which rules are fitted that need all scores in memory for each fold
MOST_VECTOR_NUMBERS = (
    100_000  # up to which `auto` fits vector scaling on all samples; else on a part of three times that
)
_LEAST_ROWS = 4  # for each class, in such a part


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a rule chose on some samples: its strengths, or its numbers for each class, and what it then predicts.

    Args:
        gamma, second: the strengths; the second of `rescale+shift`, and of a shift after `vector`.
        predicted: [N], the class of every sample, also of those that it was not fitted on.
        scale, offset: [K] each, for rules with numbers for each class.
        plateau, reach: the strengths that do as well, and the range; of the second, where there is one.
        floors_met: whether some strength meets the floors on these samples.
        smoothing: what is added to probabilities before their logarithm, for `vector`.
    """

    gamma: float
    predicted: np.ndarray
    second: float | None = None
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None
    plateau: tuple[float, float] = (0.0, 0.0)
    reach: tuple[float, float] = (0.0, 1.0)
    floors_met: bool = True
    smoothing: float = 0.0


class Fitter(Protocol):
    """A rule that can be fitted on rows of the held-out samples."""

    @property
    def curve(self) -> Curve | None:
        """The metric over gamma on all samples; None for a rule that is not a path."""
        ...

    def fit(self, rows: np.ndarray) -> Fitted:
        """Choose on rows [n] alone."""
        ...


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
        gamma, plateau = objective.choose(objective.error(), strength=guide_strength(self.options))
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

    held_out: HeldOut
    first: PathFitter

    @property
    def curve(self) -> Curve | None:
        """The metric over the strength of RS alone."""
        return self.first.curve

    def fit(self, rows: np.ndarray) -> Fitted:
        """Choose both strengths on some rows."""
        gamma = self.first.fit(rows).gamma
        found = self.second(gamma).fit(rows)
        both = RescaleThenShift().adjustment(self.held_out.counts, gamma, found.gamma)
        return replace(found, gamma=gamma, second=found.gamma, scale=both.scale, offset=both.offset)

    def second(self, gamma: float) -> PathFitter:
        """Return the shift of logits that are already rescaled; folds often choose the same gamma, so some are kept."""
        found = self._seconds.get(gamma)
        if found is None:
            found = self._shift_after(gamma)
            if len(self._seconds) >= MOST_NUMBERS // self.held_out.numbers:
                self._seconds.clear()
            self._seconds[gamma] = found
        return found

    @cached_property
    def _seconds(self) -> dict[float, PathFitter]:
        return {}

    def _shift_after(self, gamma: float) -> PathFitter:
        held_out, options = self.held_out, self.held_out.options
        scaled = [
            part.rule.scores(check_logits(to_numpy(logits), kind=options.kind), gamma)
            for part, (logits, *_) in zip(self.first.rule.parts, held_out.parts, strict=True)
        ]
        pull = None if options.metric not in ERRORS else Pull(0.0, held_out.calibration[0], 0.5)
        if options.unlabelled is not None:
            rule = self.first.rule.parts[0].rule
            unlabelled = rule.scores(check_logits(to_numpy(options.unlabelled), kind=options.kind), gamma)
            options = replace(options, unlabelled=unlabelled)
        return PathFitter(RulePath.of(held_out.paths(Shift.name, scaled), options, pull=pull), options)


@dataclass(frozen=True, eq=False)
class VectorFitter:
    """A scale and an offset for each class, by log loss (`vector.py`), where classes weigh as in the metric.

    The ridge is chosen once, on all samples. For a metric that is not an error, and for floors, the scores are then
    shifted by the strength that is best on the rows: log loss does not know of those.

    Args:
        most: N times K of the random part of the samples that the numbers are fitted on; all if None.
    """

    held_out: HeldOut
    most: int | None = None

    @property
    def curve(self) -> Curve | None:
        """The metric at 41 steps from the scores as they are (0) to the fitted ones (1), on all samples.

        Both are in the units of log-probabilities: the first are divided by their temperature.
        """
        held_out = self.held_out
        fitted = self.fit(np.arange(len(held_out.labels)))
        assert fitted.scale is not None
        assert fitted.offset is not None
        return curve_between(held_out, self.scores / self.temperature, fitted.scale * self.scores + fitted.offset)

    @cached_property
    def temperature(self) -> float:
        """The temperature of the scores, where classes weigh as in training."""
        scores, labels = self._part()
        return 1 / vector_loss(scores, labels, self.held_out.counts).inverse

    @cached_property
    def scores(self) -> np.ndarray:
        """The logits of all samples, [N, K], or the logarithms of their probabilities, smoothed."""
        kind = self.held_out.options.kind
        known = [check_logits(to_numpy(logits), kind=kind).astype(np.float64) for logits, *_ in self.held_out.parts]
        return smooth_votes(np.concatenate(known), self.smoothing if kind == "probabilities" else 0.0)[0]

    @cached_property
    def smoothing(self) -> float:
        """What is added to probabilities before their logarithm; 0 for logits."""
        if self.held_out.options.kind != "probabilities":
            return 0.0
        logs = [check_logits(to_numpy(logits), kind="probabilities") for logits, *_ in self.held_out.parts]
        return smooth_votes(np.concatenate(logs))[1]

    @cached_property
    def ridge(self) -> float:
        """The strength of the penalty."""
        return choose_ridge(*self._part(), self.held_out.counts, prior=self.prior)

    @cached_property
    def start(self) -> np.ndarray:
        """The parameters of all samples, [2, K], which those of some are near."""
        return vector_loss(*self._part(), self.held_out.counts, self.prior).minimum_at(self.ridge)

    @cached_property
    def prior(self) -> np.ndarray:
        """What each class weighs in the metric, [K]."""
        return class_shares(self.held_out.labels, self.held_out.classes, self.held_out.options)

    def fit(self, rows: np.ndarray) -> Fitted:
        """Fit the numbers on some rows."""
        held_out, options = self.held_out, self.held_out.options
        given = {"prior": self.prior, "ridge": self.ridge, "start": self.start, "near": self.temperature}
        fit = fit_vector(*self._part(rows), held_out.counts, **given)
        scores = fit.scores(self.scores)
        found = Fitted(1.0, scores.argmax(axis=1), scale=fit.scale, offset=fit.offset, smoothing=self.smoothing)
        if options.metric in ERRORS and options.floors is None:
            return found
        cuts = np.cumsum([len(part) for _, part, _ in held_out.parts])[:-1]
        options = replace(options, unlabelled=None, goal=replace(options.goal, criterion="balanced_error"))
        after = PathFitter(RulePath.of(held_out.paths(Shift.name, np.split(scores, cuts)), options), options).fit(rows)
        rarity = np.log(held_out.counts.max() / held_out.counts)
        return replace(
            after,
            gamma=1.0,
            second=after.gamma,
            scale=fit.scale,
            offset=fit.offset + after.gamma * rarity,
            smoothing=self.smoothing,
        )

    def _part(self, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and labels of some rows, or of all: as many as are fitted."""
        rows = np.arange(len(self.held_out.labels)) if rows is None else rows
        rows = rows if self.most is None else draw_rows(rows, self.most // self.held_out.classes)
        return self.scores[rows], self.held_out.labels[rows]


def draw_rows(rows: np.ndarray, n: int) -> np.ndarray:
    """Return at most n of the rows, drawn at random, always the same ones, in order."""
    return rows if len(rows) <= n else np.sort(np.random.default_rng(0).choice(rows, n, replace=False))


def curve_between(held_out: HeldOut, plain: np.ndarray, after: np.ndarray) -> Curve:
    """Return the metric at 41 steps from some scores [N, K] to others."""
    options = held_out.options
    objective = held_out.reference.objective(replace(options, goal=replace(options.goal, floors=None)))
    steps = np.linspace(0, 1, 41)
    losses = [objective.loss_of(((1 - step) * plain + step * after).argmax(axis=1)) for step in steps]
    starts = np.concatenate([[0.0], (steps[1:] + steps[:-1]) / 2])
    return Curve(starts, shown(options.metric, np.array(losses)), 1.0)


@singledispatch
def make_fitter(rule: Rule, held_out: HeldOut) -> Fitter | None:
    """Return what fits a rule on rows of the samples; None where it cannot act on them, or is nothing to fit."""
    return None


@make_fitter.register
def _(rule: OneStrength, held_out: HeldOut) -> Fitter | None:
    if rule.multiplies and not _can_be_scaled(held_out):
        return None
    if rule.needs_norms and held_out.options.norms is None:
        return None
    return PathFitter(held_out.rule_path(rule.name), held_out.options)


@make_fitter.register
def _(rule: RescaleThenShift, held_out: HeldOut) -> Fitter | None:
    too_much = held_out.options.bias is not None or held_out.numbers > MOST_NUMBERS or held_out.joined is not None
    if too_much or not _can_be_scaled(held_out):
        return None
    return ShiftAfter(held_out, PathFitter(held_out.rule_path(rule.path_name), held_out.options))


@make_fitter.register
def _(rule: Vector, held_out: HeldOut) -> Fitter | None:
    most = 3 * MOST_VECTOR_NUMBERS if held_out.options.is_auto and held_out.numbers > MOST_VECTOR_NUMBERS else None
    too_much = held_out.joined is not None or (held_out.options.is_auto and is_too_large(rule, held_out))
    return None if too_much or np.bincount(held_out.labels).max() < 2 else VectorFitter(held_out, most)


def is_too_large(rule: Rule, held_out: HeldOut) -> bool:
    """Return whether samples or classes are too many for a rule with numbers for each class to be tried."""
    if not isinstance(rule, PerClass) or held_out.numbers <= MOST_VECTOR_NUMBERS:
        return False
    most = 3 * MOST_VECTOR_NUMBERS
    too_few_rows = not rule.follows_counts and most < _LEAST_ROWS * held_out.classes**2
    return held_out.numbers > MOST_NUMBERS or too_few_rows


def left_out_text(held_out: HeldOut) -> str:
    """Return which rules are not tried because samples or classes are too many; "" if none, or if chunks say so."""
    options = held_out.options
    names = [rule.name for rule in RULES.values() if options.may_take(rule) and is_too_large(rule, held_out)]
    if not names or held_out.joined is not None:
        return ""
    size = f"{len(held_out.labels)} samples of {held_out.classes} classes"
    *most, last = names
    text = f"{', '.join(most)} and {last}" if most else last
    return f"{text} would take too long on {size}, and {'were' if len(names) > 1 else 'was'} not tried"


def _can_be_scaled(held_out: HeldOut) -> bool:
    """Return whether multiplying scores can change a prediction: not those of probabilities, nor where two classes have
    opposite logits, or one is always 0."""
    binary = (diagnostics.diagnose_binary_head(logits, Rescale()) for logits, *_ in held_out.parts)
    return not (held_out.of_probabilities or all(found is not None for found in binary))
