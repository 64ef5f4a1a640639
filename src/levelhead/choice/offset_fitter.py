"""How the rule `offsets` is fitted on some of the held-out samples, and why floors cannot be met."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..core.array import to_numpy
from ..core.curve import Curve
from ..core.errors import LevelheadError
from ..core.logits import check_logits
from ..core.per_class import listed, title
from ..path.metrics import TITLES, check_cost, check_floors, shown, value_form
from ..rules.rule import Offsets, Shift
from .choose import class_shares
from .fitters import Fitted, Fitter, PathFitter, VectorFitter, curve_between, draw_rows, is_too_large, make_fitter
from .floors import FloorsFit, least_conflict, meet_floors, met_share, most_right
from .offsets import OffsetFit, OffsetGoal, choose_pull, fit_offsets
from .options import TuneOptions
from .samples import HeldOut

_PULL_NUMBERS, _FOLD_NUMBERS, _MOST_NUMBERS = 100_000, 200_000, 2_000_000  # N times K of the part that is fitted: for
# the choice of the pull, in a fold of the samples, and at last


@dataclass(frozen=True, eq=False)
class OffsetFitter:
    """An offset for each class, from the offsets of another rule: the shift, or vector scaling with one scale for all.

    Which rule, and how strong the pull toward it is, are chosen once, on all samples.
    """

    held_out: HeldOut

    @property
    def curve(self) -> Curve | None:
        """The metric at 41 steps from the scores as they are (0) to the fitted ones (1), on all samples."""
        return curve_between(self.held_out, self.scores, self.scores + self.whole.offset)

    @cached_property
    def scores(self) -> np.ndarray:
        """The logits of all samples, or the logarithms of their probabilities, [N, K]."""
        kind = self.held_out.options.kind
        known = [check_logits(to_numpy(logits), kind=kind).astype(np.float64) for logits, *_ in self.held_out.parts]
        return np.concatenate(known)

    @cached_property
    def floors(self) -> np.ndarray | None:
        """The least recall of each class, [K], NaN for none; None for no floors."""
        options, held_out = self.held_out.options, self.held_out
        given = options.floors
        return None if given is None else check_floors(given, held_out.labels, held_out.classes, options.names)

    @cached_property
    def shift(self) -> PathFitter:
        """The shift, whatever the floors, from which offsets begin."""
        return PathFitter(self.held_out.rule_path(Shift.name), without_floors(self.held_out.options))

    @cached_property
    def begin(self) -> tuple[Callable[[np.ndarray], np.ndarray], float]:
        """What gives the offsets to begin at, [K], fitted on rows; and the strength of the pull toward them."""
        every = np.arange(len(self.held_out.labels))
        rows = draw_rows(every, _PULL_NUMBERS // self.held_out.classes)
        tried = []
        for begin in (self.start_from_shift, self.start_from_vector):
            goal = replace(self.goal(rows), floors=None)
            pull, loss = choose_pull(self.scores[rows], goal, lambda some, begin=begin: begin(rows[some]))
            tried.append((loss, pull, begin))
        _, pull, begin = min(tried, key=lambda one: one[0])
        return begin, pull

    @cached_property
    def whole(self) -> OffsetFit:
        """The fit on all samples, of the offsets in all."""
        return self._fit(np.arange(len(self.held_out.labels)))

    def start_from_shift(self, rows: np.ndarray) -> np.ndarray:
        """Return the offsets of the shift that is best on rows, [K]."""
        counts = self.held_out.counts
        return self.shift.fit(rows).gamma * np.log(counts.max() / counts)

    def start_from_vector(self, rows: np.ndarray) -> np.ndarray:
        """Return the offsets of vector scaling on rows, [K], where every class has the common scale 1 / T instead of
        its own: a score at its class's mean logit stays what it is."""
        fit = self.vector.fit(rows)
        assert fit.scale is not None
        assert fit.offset is not None
        weights, inverse = self.goal(rows).weights, 1 / self.vector.temperature
        mean = weights @ self.scores[rows] / weights.sum()
        return (fit.offset + (fit.scale - inverse) * mean) / inverse

    @cached_property
    def vector(self) -> VectorFitter:
        """Vector scaling, whatever the floors."""
        return VectorFitter(replace(self.held_out, options=without_floors(self.held_out.options)), _FOLD_NUMBERS)

    def goal(self, rows: np.ndarray) -> OffsetGoal:
        """Return what is minimized on rows."""
        held_out, options = self.held_out, self.held_out.options
        labels, size = held_out.labels[rows], held_out.classes
        sizes = np.bincount(labels, minlength=size)
        shares = class_shares(labels, size, options) * (sizes > 0)
        weights = (shares / shares.sum() / np.maximum(sizes, 1))[labels]
        cost = None if options.cost is None else check_cost(options.cost, size)
        return OffsetGoal(labels, weights / weights.max(), size, options.metric, cost, self.floors)

    def fit(self, rows: np.ndarray) -> Fitted:
        """Fit the offsets on some rows."""
        found = self.whole if len(rows) == len(self.held_out.labels) else self._fit(rows)
        return Fitted(
            1.0,
            (self.scores + found.offset).argmax(axis=1),
            scale=np.ones(len(found.offset)),
            offset=found.offset,
            floors_met=found.floors is None or found.floors.met,
        )

    def unmet_floors(self) -> LevelheadError:
        """Return why the floors cannot be met: which classes conflict, and what each can reach instead."""
        labels, names = self.held_out.labels, self.held_out.options.names
        rows, zero = np.arange(len(labels)), np.zeros(self.held_out.classes)
        goal, scores, floors = self.goal(rows), np.ascontiguousarray(self.scores.T), self.whole.floors
        assert floors is not None
        assert self.floors is not None
        if not floors.conflict:
            return LevelheadError("no offsets that meet them were found; lower the floors", parameter="floors")

        def reached(best: FloorsFit) -> tuple[np.ndarray, str]:
            predicted = (self.scores + best.offset).argmax(axis=1)
            value = format(shown(goal.metric, goal.loss(predicted)), value_form(goal.metric))
            return predicted == labels, f"with {TITLES[goal.metric]} {value}"

        group = least_conflict(scores, labels, goal.need, floors.conflict)
        wanted = listed([f"{self.floors[c]:.1%} in {title(c, names)}" for c in group])
        why = f"no offsets meet a recall of {wanted}" + (" together" if len(group) > 1 else "")
        if len(group) > 3:
            share, best = met_share(scores, labels, self.floors, zero)
            reach = f"{share:.0%} of each floor can be met, {reached(best)[1]}"
        else:  # without any one of them, the others can be met
            need = np.where(np.isin(np.arange(len(zero)), group), goal.need, 0)
            each = []
            for c in group:
                best = most_right(scores, labels, need, c, zero)
                assert best is not None
                right, value = reached(best)
                each.append(f"{title(c, names)} reaches {right[labels == c].mean():.1%} at most, {value}")
            reach = ("beside the others' floors, " if len(group) > 1 else "") + ", ".join(each)
        return LevelheadError(f"{why}; {reach}; lower the floors", parameter="floors")

    def _fit(self, rows: np.ndarray) -> OffsetFit:
        all_of_them = len(rows) == len(self.held_out.labels)
        some = draw_rows(rows, (_MOST_NUMBERS if all_of_them else _FOLD_NUMBERS) // self.held_out.classes)
        begin, pull = self.begin
        start = begin(rows)
        found = fit_offsets(self.scores[some] + start, self.goal(some), pull=pull, thorough=all_of_them)
        offset, goal = start + found.offset, self.goal(rows)
        if len(some) == len(rows) or not goal.need.any():
            return replace(found, offset=offset)
        met = meet_floors(np.ascontiguousarray(self.scores[rows].T), goal.labels, goal.need, offset)
        return replace(found, offset=met.offset, floors=met)


@make_fitter.register
def _(rule: Offsets, held_out: HeldOut) -> Fitter | None:
    options = held_out.options
    left_out = held_out.joined is not None or (
        options.is_auto and (not options.may_take(rule) or is_too_large(rule, held_out))
    )
    return None if left_out or np.bincount(held_out.labels).max() < 2 else OffsetFitter(held_out)


def check_floors_met(fitters: Mapping[str, Fitter], fits: Mapping[str, Fitted]) -> None:
    """Raise LevelheadError with the proof if no rule meets the floors, and neither do any offsets."""
    if any(fit.floors_met for fit in fits.values()):
        return
    for fitter in fitters.values():
        if isinstance(fitter, OffsetFitter):
            raise fitter.unmet_floors()


def without_floors(options: TuneOptions) -> TuneOptions:
    """Return options of the same goal without its floors."""
    return replace(options, goal=replace(options.goal, floors=None))
