"""How each rule is fitted on some of the held-out samples, so that others can judge it: `make_fitter`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatch

import numpy as np

from ..core.adjustment import Adjustment, smooth_votes, toward
from ..core.class_names import listed, title
from ..core.rules import (
    RULES,
    Offsets,
    OneStrength,
    PerClass,
    Rescale,
    RescaleThenShift,
    Rule,
    Shift,
    Vector,
)
from ..path.curve import Curve
from ..path.envelope import CACHED_NUMBERS
from ..support.arrays import CheckedLogits, raise_masked, read_logits, widen
from ..support.errors import Advice, LevelheadError
from . import diagnostics
from .floors import FloorsFit, least_conflict, meet_floors, met_share, most_right
from .objective import Pull
from .offsets import OffsetFit, OffsetGoal, choose_pull, fit_offsets
from .path_metrics import (
    ERRORS,
    LOWER_FLOORS,
    TITLES,
    UnmetFloors,
    check_cost,
    check_floors,
    shown,
    value_form,
)
from .paths import Fitted, Fitter, PathFitter, Paths, RulePath
from .resample import FOLDS, draw_folds
from .samples import Samples, TuneOptions, class_shares, joined, kind_of_scores, sample_weights
from .vector import ONE_STEP, Ridge, VectorLoss, choose_ridge, vector_loss

MOST_NUMBERS = 8_000_000  # N times K, up to which rules are fitted that need all scores in memory for each fold
MOST_VECTOR_NUMBERS = (
    100_000  # up to which `auto` compares vector scaling on all samples; else on three times that
)
_LEAST_ROWS = 4  # for each class, in such a part
# N times K of the part that offsets are fitted on: for the choice of the pull, in a fold of the samples, and at last
_PULL_NUMBERS, _FOLD_NUMBERS, _LAST_NUMBERS = 100_000, 200_000, 2_000_000


@dataclass(frozen=True, eq=False)
class ShiftAfter:
    """RS at the strength that is best alone, and then the shift that is best after it, pulled toward none."""

    # Rules are compared at one of 33 strengths of RS: folds whose best differ by little share the path of the shift.

    paths: Paths
    first: PathFitter
    exact: bool = False  # once it is chosen
    _seconds: dict[float, PathFitter] = field(default_factory=dict, init=False)

    @property
    def curve(self) -> Curve | None:
        """The metric over the strength of RS alone."""
        return self.first.curve

    def fit(self, rows: np.ndarray) -> Fitted:
        """Choose both strengths on some rows."""
        samples, (low, high) = self.paths.samples, self.first.rule.path.range
        known = [
            gamma
            for how, own, gamma in self.first.rule.last
            if own is rows and how is samples.options
        ]
        alone, step = known[0] if known else self.first.fit(rows).gamma, (high - low) / 32
        gamma = alone if self.exact else min(max(step * round(alone / step), low), high)
        found = self.second(gamma).fit(rows)
        both = RescaleThenShift().adjustment(
            samples.counts, gamma, found.gamma, toward(samples.counts, samples.target)
        )
        return replace(found, gamma=gamma, second=found.gamma, scale=both.scale, offset=both.offset)

    @cached_property
    def settled(self) -> "ShiftAfter":
        """The rule once it is chosen, with the very strength of RS that is best alone."""
        return replace(self, exact=True)

    def second(self, gamma: float) -> PathFitter:
        """Return the shift of logits that are already rescaled; folds often choose the same gamma, so some are kept."""
        if gamma in self._seconds:
            return self._seconds[gamma]
        samples, options = self.paths.samples, self.paths.samples.options
        pairs = zip(self.first.rule.parts, samples.read(), strict=True)
        # What was float32 is so again: paths are found faster then.
        scaled = [
            Adjustment(*part.rule.affine(gamma)).narrow_scores(logits) for part, logits in pairs
        ]
        scaled = [one.view(CheckedLogits) if np.isfinite(one).all() else one for one in scaled]
        pull = None if options.metric not in ERRORS else Pull(0.0, samples.calibration[0], 0.5)
        if options.unlabelled is not None:
            unlabelled = read_logits(options.unlabelled, options.kind)
            options = replace(
                options, unlabelled=self.first.rule.parts[0].rule.scores(unlabelled, gamma)
            )
        if len(self._seconds) >= MOST_NUMBERS // samples.numbers:
            self._seconds.clear()
        path = RulePath.of(self.paths.parts(Shift.name, scaled), options, pull=pull)
        return self._seconds.setdefault(gamma, PathFitter(path, options))


@dataclass(frozen=True, eq=False)
class VectorFitter:
    """A scale and an offset for each class, by log loss (`vector.py`), where classes weigh as in the metric."""

    # The ridge is chosen once, on all samples. For a metric that is not an error, and for floors, the scores are then
    # shifted by the strength that is best on the rows: log loss does not know of those.

    paths: Paths
    most: int | None = (
        None  # N times K of the random part of the samples that is fitted on; all if None
    )
    chosen: Ridge | None = (
        None  # what is known already; then the numbers are fitted to their last digits
    )

    @property
    def curve(self) -> Curve | None:
        """The metric at 41 steps from the scores as they are (0) to the fitted ones (1), on all samples."""
        # Both are in the units of log-probabilities: the first are divided by their temperature.
        return curve_to(self.whole, self.scores, self.paths, self.temperature)

    @cached_property
    def whole(self) -> Fitted:
        """The fit on all samples."""
        return self._adjust(
            *self.loss.affine(self.parameters), np.arange(len(self.paths.samples.labels))
        )

    @property
    def temperature(self) -> float:
        """The temperature of the scores, where classes weigh as in training."""
        return 1 / self.loss.columns.inverse

    @cached_property
    def scores(self) -> np.ndarray:
        """The logits of all samples, [N, K], or the logarithms of their probabilities, smoothed."""
        return raise_masked(
            smooth_votes(widen(joined(self.paths.samples.read())), self.smoothing)[0]
        )

    @cached_property
    def smoothing(self) -> float:
        """What is added to probabilities before their logarithm; 0 for logits."""
        samples = self.paths.samples
        return (
            smooth_votes(np.concatenate(samples.read()))[1]
            if samples.options.kind == "probabilities"
            else 0.0
        )

    @cached_property
    def rows(self) -> np.ndarray:
        """The samples that are fitted on."""
        rows = np.arange(len(self.paths.samples.labels))
        return (
            rows if self.most is None else draw_rows(rows, self.most // self.paths.samples.classes)
        )

    @cached_property
    def loss(self) -> VectorLoss:
        """The log loss of these samples, where each class weighs what it does in the metric."""
        samples = self.paths.samples
        prior = class_shares(samples.labels, samples.classes, samples.options)
        return vector_loss(self.scores[self.rows], samples.labels[self.rows], samples.counts, prior)

    @cached_property
    def parameters(self) -> np.ndarray:
        """The parameters of all samples, [2, K], which those of some are near."""
        return (
            self.ridge.start
            if self.chosen is None
            else self.loss.fit(self.chosen.strength, self.chosen.start)
        )

    @cached_property
    def folds(self) -> np.ndarray:
        """The fold of each sample, [N], as rules are first compared by: without one of these, the fit is known."""
        return draw_folds(self.paths.samples.labels, FOLDS, np.random.default_rng(0))

    @cached_property
    def ridge(self) -> Ridge:
        """The strength of the penalty, and parameters to begin at."""
        return self.chosen or choose_ridge(self.loss, self.folds[self.rows])

    @cached_property
    def settled(self) -> "VectorFitter":
        """The rule once it is chosen: fitted on all samples that there is time for, exactly."""
        last = replace(self, most=None if self.most is None else _LAST_NUMBERS)
        share = len(self.rows) / len(
            last.rows
        )  # the penalty stands beside a mean: of more samples, it is less
        return replace(last, chosen=self.ridge._replace(strength=share * self.ridge.strength))

    @cached_property
    def near(self) -> tuple[VectorLoss, tuple[np.ndarray, np.ndarray]]:
        """The loss in float32, and what it sees at the parameters of all samples."""
        narrow = self.loss.narrow()
        return narrow, narrow.look(self.parameters)

    def fit(self, rows: np.ndarray) -> Fitted:
        """Fit the numbers on some rows."""
        n = len(self.paths.samples.labels)
        if len(rows) == n:
            return self.whole
        kept = np.zeros(n, bool)
        kept[rows] = True
        fold = int(self.folds[np.argmin(kept)])
        if fold in self.ridge.without and np.array_equal(kept, self.folds != fold):
            return self._adjust(*self.loss.affine(self.ridge.without[fold]), rows)
        loss, seen = self.near[0].on(kept[self.rows]), self.near[1]
        return self._adjust(
            *loss.affine(loss.fit(self.ridge.strength, self.parameters, seen, ONE_STEP)), rows
        )

    @cached_property
    def alone(self) -> TuneOptions:
        """The options of the shift after it, which the metric and the floors alone choose."""
        options = self.paths.samples.options
        return replace(
            options, unlabelled=None, goal=replace(options.goal, criterion="balanced_error")
        )

    def _adjust(self, scale: np.ndarray, offset: np.ndarray, rows: np.ndarray) -> Fitted:
        """Return what these numbers predict; for metrics that log loss does not know, after a shift fitted on rows."""
        samples, options = self.paths.samples, self.paths.samples.options
        known = {"scale": scale, "smoothing": self.smoothing}
        if options.metric in ERRORS and options.goal.floors is None:
            return Fitted(1.0, self._predicted(scale, offset, rows), offset=offset, **known)
        scores = scale * self.scores + offset
        cuts = np.cumsum([len(part) for _, part, _ in samples.parts])[:-1]
        shifted = self.paths.parts(Shift.name, np.split(scores.view(CheckedLogits), cuts))
        after = PathFitter(RulePath.of(shifted, self.alone), self.alone).fit(rows)
        moved = toward(samples.counts, samples.target)
        offset = offset + after.gamma * np.log(moved.max() / moved)
        return replace(after, gamma=1.0, second=after.gamma, offset=offset, **known)

    def _predicted(self, scale: np.ndarray, offset: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the class of each sample that is not among the rows, or of all if all are, [N]."""
        found, others = np.zeros(len(self.scores), np.int64), np.ones(len(self.scores), bool)
        others[rows] = len(rows) == len(self.scores)
        for some in np.array_split(np.flatnonzero(others), 1 + self.scores.size // CACHED_NUMBERS):
            found[some] = Adjustment(scale, offset).scores(self.scores[some]).argmax(axis=1)
        return found


@dataclass(frozen=True, eq=False)
class OffsetFitter:
    """An offset for each class, from the offsets of the shift, or of vector scaling with one scale for all."""

    # Which of the two, and how strong the pull toward it is, are chosen once, on all samples.

    paths: Paths

    @property
    def curve(self) -> Curve | None:
        """The metric at 41 steps from the scores as they are (0) to the fitted ones (1), on all samples."""
        return curve_to(self.fit(np.arange(len(self.scores))), self.scores, self.paths)

    @cached_property
    def scores(self) -> np.ndarray:
        """The logits of all samples, or the logarithms of their probabilities, [N, K]."""
        return np.concatenate(self.paths.samples.read(), dtype=np.float64)

    @cached_property
    def floors(self) -> np.ndarray | None:
        """The least recall of each class, [K], NaN for none; None for no floors."""
        options, samples = self.paths.samples.options, self.paths.samples
        given = options.goal.floors
        return (
            None
            if given is None
            else check_floors(given, samples.labels, samples.classes, options.names)
        )

    @cached_property
    def shift(self) -> PathFitter:
        """The shift, whatever the floors, from which offsets begin."""
        return PathFitter(self.paths.of(Shift.name), without_floors(self.paths.samples.options))

    @cached_property
    def begin(self) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
        """What gives the offsets to begin at, [K], fitted on rows; and the strength of the pull toward them."""
        rows = draw_rows(
            np.arange(len(self.paths.samples.labels)), _PULL_NUMBERS // self.paths.samples.classes
        )
        goal, tried = replace(self.goal(rows), floors=None), []
        for begin in (self.start_from_shift, self.start_from_vector):
            pull, loss = choose_pull(
                self.scores[rows], goal, lambda some, begin=begin: begin(rows[some])
            )
            tried.append((loss, pull, begin))
        _, pull, begin = min(tried, key=lambda one: one[0])
        return begin, pull

    @cached_property
    def whole(self) -> OffsetFit:
        """The fit on all samples, of the offsets in all."""
        return self._fit(np.arange(len(self.paths.samples.labels)))

    def start_from_shift(self, rows: np.ndarray) -> np.ndarray:
        """Return the offsets of the shift that is best on rows, [K]."""
        moved = toward(self.paths.samples.counts, self.paths.samples.target)
        return self.shift.fit(rows).gamma * np.log(moved.max() / moved)

    def start_from_vector(self, rows: np.ndarray) -> np.ndarray:
        """Return the offsets of vector scaling on rows, [K], where every class has the common scale 1 / T."""
        # A score at its class's mean logit stays what it is.
        fit = self.vector.fit(rows)
        weights, inverse = self.goal(rows).weights, 1 / self.vector.temperature
        mean = weights @ raise_masked(self.scores[rows]) / weights.sum()
        return (fit.offset + (fit.scale - inverse) * mean) / inverse

    @cached_property
    def vector(self) -> VectorFitter:
        """Vector scaling, whatever the floors: the same as the rule's own, where that is of all samples."""
        samples = self.paths.samples
        if samples.options.goal.floors is None and samples.numbers <= MOST_VECTOR_NUMBERS:
            return _fit_all(self.paths)
        return VectorFitter(
            Paths(replace(samples, options=without_floors(samples.options))), _FOLD_NUMBERS
        )

    def goal(self, rows: np.ndarray) -> OffsetGoal:
        """Return what is minimized on rows."""
        samples, options = self.paths.samples, self.paths.samples.options
        labels, size = samples.labels[rows], samples.classes
        weights = sample_weights(labels, size, options)
        cost = None if options.goal.cost is None else check_cost(options.goal.cost, size)
        return OffsetGoal(labels, weights / weights.max(), size, options.metric, cost, self.floors)

    def fit(self, rows: np.ndarray) -> Fitted:
        """Fit the offsets on some rows."""
        found = self.whole if len(rows) == len(self.paths.samples.labels) else self._fit(rows)
        predicted, met = (
            (self.scores + found.offset).argmax(axis=1),
            found.floors is None or found.floors.met,
        )
        return Fitted(
            1.0, predicted, scale=np.ones(len(found.offset)), offset=found.offset, floors_met=met
        )

    def unmet_floors(self) -> LevelheadError:
        """Return why the floors cannot be met: which classes conflict, and what each can reach instead."""
        labels, names = self.paths.samples.labels, self.paths.samples.options.names
        goal, scores, floors = (
            self.goal(np.arange(len(labels))),
            np.ascontiguousarray(self.scores.T),
            self.whole.floors,
        )
        assert floors is not None
        assert self.floors is not None
        if not floors.conflict:
            return LevelheadError(
                "no offsets that meet them were found; lower the floors", parameter="floors"
            )

        def reached(best: FloorsFit) -> tuple[np.ndarray, str]:
            predicted = (self.scores + best.offset).argmax(axis=1)
            value = format(shown(goal.metric, goal.loss(predicted)), value_form(goal.metric))
            return predicted == labels, f"with {TITLES[goal.metric]} {value}"

        group = least_conflict(scores, labels, goal.need, floors.conflict)
        wanted = listed([f"{self.floors[c]:.1%} in {title(c, names)}" for c in group])
        why = f"no offsets meet a recall of {wanted}" + (" together" if len(group) > 1 else "")
        if len(group) > 3:
            share, best = met_share(scores, labels, self.floors)
            reach = f"{share:.0%} of each floor can be met, {reached(best)[1]}"
        else:  # without any one of them, the others can be met
            need = np.where(np.isin(np.arange(len(goal.need)), group), goal.need, 0)
            each = []
            for c in group:
                right, value = reached(most_right(scores, labels, need, c))
                each.append(
                    f"{title(c, names)} reaches {right[labels == c].mean():.1%} at most, {value}"
                )
            reach = ("beside the others' floors, " if len(group) > 1 else "") + ", ".join(each)
        return LevelheadError(f"{why}; {reach}; lower the floors", parameter="floors")

    def _fit(self, rows: np.ndarray) -> OffsetFit:
        all_of_them = len(rows) == len(self.paths.samples.labels)
        some = draw_rows(
            rows, (_LAST_NUMBERS if all_of_them else _FOLD_NUMBERS) // self.paths.samples.classes
        )
        begin, pull = self.begin
        start = begin(rows)
        found = fit_offsets(
            self.scores[some] + start, self.goal(some), pull=pull, thorough=all_of_them
        )
        offset, goal = start + found.offset, self.goal(rows)
        if len(some) == len(rows) or not goal.need.any():
            return replace(found, offset=offset)
        met = meet_floors(np.ascontiguousarray(self.scores[rows].T), goal.labels, goal.need, offset)
        return replace(found, offset=met.offset, floors=met)


def draw_rows(rows: np.ndarray, n: int) -> np.ndarray:
    """Return at most n of the rows, drawn at random, always the same ones, of which fewer are a part; in order."""
    return (
        rows
        if len(rows) <= n
        else np.sort(rows[np.random.default_rng(0).permutation(len(rows))[:n]])
    )


def curve_to(fitted: Fitted, scores: np.ndarray, paths: Paths, temperature: float = 1.0) -> Curve:
    """Return the metric at 41 steps from some scores [N, K], divided by their temperature, to what was fitted."""
    options = paths.samples.options
    objective = paths.reference.objective(without_floors(options))
    predicted, last = scores.argmax(axis=1), fitted.predicted
    moves = np.flatnonzero(predicted != last)  # a class that wins at both ends wins between them
    first, last, each = predicted[moves], last[moves], np.arange(len(moves))
    begin = scores[moves] * scores.dtype.type(1 / temperature)
    change = scores[moves] * fitted.scale.astype(scores.dtype) + fitted.offset.astype(scores.dtype)
    change -= begin
    # Where the lines of both winners cross, any other that wins between is above them: most often there is none.
    gap, gain = begin[each, first] - begin[each, last], change[each, last] - change[each, first]
    at = np.clip(np.divide(gap, gain, out=np.zeros_like(gap), where=gain > 0), 0, 1)
    crossing = at[:, None] * change
    crossing += begin
    level = crossing[each, last] - 64 * np.finfo(scores.dtype).eps * np.abs(begin).max(axis=1)
    more = np.flatnonzero((crossing >= level[:, None]).sum(axis=1) > 2)
    begin, change, steps, losses = begin[more], change[more], np.linspace(0, 1, 41), []
    for step in steps:
        predicted[moves] = np.where(step <= at, first, last)
        predicted[moves[more]] = (begin + scores.dtype.type(step) * change).argmax(axis=1)
        losses.append(objective.loss_of(predicted))
    return Curve(
        np.append(0.0, (steps[1:] + steps[:-1]) / 2), shown(options.metric, np.array(losses)), 1.0
    )


@singledispatch
def make_fitter(rule: Rule, paths: Paths) -> Fitter | None:
    """Return what fits a rule on rows of the samples; None where it cannot act on them, or is nothing to fit."""
    return None


@make_fitter.register
def _(rule: OneStrength, paths: Paths) -> Fitter | None:
    lacks_norms = rule.needs_norms and paths.samples.options.norms is None
    if lacks_norms or (rule.multiplies and not _can_be_scaled(paths.samples)):
        return None
    return PathFitter(paths.of(rule.name), paths.samples.options)


@make_fitter.register
def _(rule: RescaleThenShift, paths: Paths) -> Fitter | None:
    samples = paths.samples
    too_much = (
        samples.options.bias is not None
        or samples.numbers > MOST_NUMBERS
        or samples.joined is not None
    )
    if too_much or not _can_be_scaled(samples):
        return None
    return ShiftAfter(paths, PathFitter(paths.of(rule.path_name), paths.samples.options))


@make_fitter.register
def _(rule: Vector, paths: Paths) -> Fitter | None:
    samples = paths.samples
    auto = samples.options.is_auto
    too_much = samples.joined is not None or (auto and is_too_large(rule, samples))
    if too_much or np.bincount(samples.labels).max() < 2:
        return None
    large = auto and samples.numbers > MOST_VECTOR_NUMBERS
    return VectorFitter(paths, 3 * MOST_VECTOR_NUMBERS) if large else _fit_all(paths)


def _fit_all(paths: Paths) -> VectorFitter:
    """Return what fits vector scaling on all samples, the same for every rule that begins there."""
    return paths.shared.setdefault(Vector.name, VectorFitter(paths))


@make_fitter.register
def _(rule: Offsets, paths: Paths) -> Fitter | None:
    samples, options = paths.samples, paths.samples.options
    unwanted = options.is_auto and (not options.may_take(rule) or is_too_large(rule, samples))
    left_out = unwanted or samples.joined is not None
    return None if left_out or np.bincount(samples.labels).max() < 2 else OffsetFitter(paths)


def is_too_large(rule: Rule, samples: Samples) -> bool:
    """Return whether samples or classes are too many for a rule with numbers for each class to be tried."""
    if not isinstance(rule, PerClass) or samples.numbers <= MOST_VECTOR_NUMBERS:
        return False
    too_few_rows = (
        not rule.follows_counts and _LEAST_ROWS * samples.classes**2 > 3 * MOST_VECTOR_NUMBERS
    )
    return samples.numbers > MOST_NUMBERS or too_few_rows


def left_out_text(samples: Samples) -> str:
    """Return which rules are not tried because samples or classes are too many; "" if none, or if chunks say so."""
    names = [
        rule.name
        for rule in RULES.values()
        if samples.options.may_take(rule) and is_too_large(rule, samples)
    ]
    if not names or samples.joined is not None:
        return ""
    *most, last = names
    text = f"{', '.join(most)} and {last}" if most else last
    were = f"{'were' if most else 'was'} not tried"
    return f"{text} would take too long on {len(samples.labels)} samples of {samples.classes} classes, and {were}"


def _can_be_scaled(samples: Samples) -> bool:
    """Return whether multiplying scores can change a prediction: not of probabilities, nor of two opposite logits."""
    kinds = (kind_of_scores(logits, samples.options.kind) for logits, *_ in samples.parts)
    binary = (diagnostics.diagnose_binary_head(logits, Rescale()) for logits, *_ in samples.parts)
    return "probabilities" not in kinds and not all(found is not None for found in binary)


def check_floors_met(fitters: Mapping[str, Fitter], fits: Mapping[str, Fitted]) -> None:
    """Raise LevelheadError with the proof if no rule meets the floors, and neither do any offsets."""
    offsets = fitters.get(Offsets.name)
    if isinstance(offsets, OffsetFitter) and not any(fit.floors_met for fit in fits.values()):
        raise offsets.unmet_floors()


def point_to_offsets(error: UnmetFloors, paths: Paths) -> LevelheadError:
    """Return the error of a rule that cannot meet the floors with the rule that can, if offsets can."""
    samples, advice, message = paths.samples, None, error.message
    if samples.options.background is None and not is_too_large(Offsets(), samples):
        fitter = make_fitter(Offsets(), paths)
        if (
            isinstance(fitter, OffsetFitter)
            and (met := fitter.whole.floors) is not None
            and met.met
        ):
            advice = Advice(
                "rule", Offsets.name, "to meet them by a number of its own for each class"
            )
            message = message.removesuffix(LOWER_FLOORS)
    return LevelheadError(message, parameter=error.parameter, advice=advice)


def without_floors(options: TuneOptions) -> TuneOptions:
    """Return options of the same goal without its floors."""
    return replace(options, goal=replace(options.goal, floors=None))
