"""What log loss does not know: how far the goal asks to go, and floors.

**The strength.** A fit by log loss is right for classes that occur as in training. What the goal asks for is
added to it, ``offset_k + s T log(share_k / n_k)``, with the s of the least

    ``loss(s) + PULL (s - usual)^2 / N``.

Where log loss calibrates the scores well, s is about 1 for balanced error, and about 1/2 for macro-F1: that is
the metric's `usual`. Costs may be in any unit, so for them PULL is multiplied by their mean. The loss is of
tables that count a sample partly as its own class, and partly as what the calibrated model believes of it: as
if `BELIEF` samples were believed. Few labels alone are too noisy a guide. (docs/decisions.md measures what
each part is worth.)

**Floors.** Offsets are raised as little as possible until enough samples are right (`floors.py`).

The road: `move_for_goal` is called with the fits of per_class.py. It moves them along the goal (`move_along`:
the path over s, tables at 65 strengths, the best of them for each fit), shifts them so that one class stays
as it is (`leave_alone`), and raises what floors ask for (`raise_to_floors`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..path.direction import Direction
from ..path.engines import find_changes
from ..support.arrays import Array, like, to_numpy
from ..support.backend import exp, row_max, row_sum
from ..support.errors import LevelheadError
from .adjustment import Adjustment, Fits
from .class_names import listed, title
from .floors import (
    LESS_CERTAIN,
    FloorsFit,
    least_conflict,
    meet_floors,
    met_share,
    most_right,
    needed_right,
)
from .goal import Goal
from .metrics import Tables
from .one_strength import Truth, class_weights, tables_along
from .samples import FOLDS, Samples

STRENGTHS = np.linspace(0, 2, 65)  # s that are tried
BELIEF = 1000.0  # samples that are believed
PULL = 10.0  # how hard s is held near what is usual for the metric
_MOST_NUMBERS = 1 << 22  # N times K that a strength is chosen on
_LEAST_ROWS = 200  # N, however many classes there are: every fold has some of them


def move_for_goal(fits: Fits, samples: Samples, goal: Goal, temperature: float) -> Fits:
    """Return fits for classes that occur as in training, moved to what a goal asks for.

    It is the second half of every rule that adds a number per class; per_class.py is the first.

    Args:
        fits: of per_class.py, without each fold of the samples and on all.
        samples: what they were fitted on.
        goal: what they are to be good at.
        temperature: T, which calibrates the scores.

    Raises:
        LevelheadError: the goal has floors that no offsets meet.
    """
    # An offset more for all classes changes no prediction. So one class can stay as it is: the
    # background, or else the most frequent one.
    alone = samples.background
    if alone is None:
        alone = int(np.argmax(samples.counts))
    fits = leave_alone(move_along(fits, samples, goal, temperature), alone)
    if goal.floors is not None:
        fits = raise_to_floors(fits, samples, goal)
    return fits


@np.errstate(over="ignore")  # of masked scores, which stay the lowest
def move_along(fits: Fits, samples: Samples, goal: Goal, temperature: float) -> Fits:
    """Move all fits toward a goal, each by the strength that is best without its fold.

    The arguments are those of `move_for_goal`. All strengths are tried on the fit on all samples: its
    scores are near those of the others, and one path then serves them all.
    """
    along = temperature * samples.toward(goal)
    if not along.any():
        return fits

    # One number is known well enough from a part of many samples.
    most = max(_MOST_NUMBERS // samples.classes, _LEAST_ROWS)
    if len(samples.labels) > most:
        rows = np.random.default_rng(0).permutation(len(samples.labels))[:most]
        samples = samples.take(np.sort(rows))

    # Every change of a prediction as s grows, counted as tables of each fold at each strength. Large
    # scores, such as distances to a margin, are divided by T: their ratios would not fit a float.
    fitted = samples.scores * like(fits.whole.scale, samples.scores)
    fitted = fitted + like(fits.whole.offset, samples.scores)
    unit = max(1.0, temperature)
    direction = Direction("shift", np.exp(along / unit), multiplies=False)
    envelope = find_changes(fitted / unit, direction, (STRENGTHS[0], STRENGTHS[-1]))
    belief = believe(fitted, samples, temperature)
    truth = MixedTruth(samples, class_weights(samples, goal), belief)
    by_fold = tables_along(envelope, samples, goal, STRENGTHS, truth)
    total = by_fold.total()
    pull = PULL * (STRENGTHS - goal.metric.usual) ** 2
    if goal.cost is not None:
        # In euros or in cents, the choice is to be the same.
        pull = pull * goal.loss(total).mean()

    def move(adjustment: Adjustment, tables: Tables, n: int) -> Adjustment:
        """Return an adjustment moved by the best strength for tables [G, K] of n samples."""
        best = STRENGTHS[np.argmin(goal.loss(tables) + pull / n)]
        return replace(adjustment, offset=adjustment.offset + best * along)

    # Without a fold, the tables are all of them less those of the fold.
    n = len(samples.labels)
    without = []
    for fold, adjustment in zip(samples.folds, fits.without, strict=True):
        kept = n - int(np.count_nonzero(samples.fold == fold))
        without.append(move(adjustment, total - by_fold[fold], kept))
    return Fits(without, move(fits.whole, total, n))


class MixedTruth(Truth):
    """What each sample counts as: partly its own class, and partly what the model believes.

    Of n samples, the labels weigh n / (n + BELIEF) and the calibrated probabilities the rest. With few
    labels, a macro-F1 at 65 strengths is a saw whose lowest tooth is chance; belief smooths it. With many,
    the labels have it all. Each method mixes what `Truth` returns with its expectation under the belief.

    Args:
        samples, per_class: as in `Truth`.
        belief: [N, K], the probabilities of a calibrated model, wherever they are.
    """

    def __init__(self, samples: Samples, per_class: np.ndarray, belief: Array):
        super().__init__(samples, per_class)
        self.belief = belief
        n = len(samples.labels)
        self.believed = BELIEF / (n + BELIEF)

    def _mix(self, by_labels: np.ndarray, believed: Array) -> np.ndarray:
        """Return what labels say and what the model believes, each by how many samples it counts."""
        return (1 - self.believed) * by_labels + self.believed * to_numpy(believed).astype(
            np.float64
        )

    def at(self, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        believed = to_numpy(self.belief[rows, classes]) * self.per_class[classes]
        return self._mix(super().at(rows, classes), believed)

    def mass(self) -> np.ndarray:
        return self._mix(super().mass(), self.belief @ like(self.per_class, self.belief))

    def sizes(self) -> np.ndarray:
        of_fold = np.eye(FOLDS)[self.samples.fold]
        believed = to_numpy(like(of_fold, self.belief).T @ self.belief) * self.per_class
        return self._mix(super().sizes(), believed)

    def price(self, rows: np.ndarray, called: np.ndarray, cost: np.ndarray) -> np.ndarray:
        expected = self.belief @ like(self.per_class[:, None] * cost, self.belief)
        return self._mix(super().price(rows, called, cost), expected[rows, called])


def believe(fitted: Array, samples: Samples, temperature: float) -> Array:
    """Return the model's probabilities [N, K] where classes occur as often as among the samples.

    Args:
        fitted: [N, K], scores that are right where classes occur as in training.
        samples: whose mix is meant; half a sample stands for a class without any.
        temperature: T, which calibrates the scores.
    """
    mix = np.log(np.maximum(samples.sizes, 0.5) / samples.counts)
    scores = fitted * float(1 / temperature) + like(mix, fitted)
    odds = exp(scores - row_max(scores))
    return odds / row_sum(odds)


def leave_alone(fits: Fits, index: int) -> Fits:
    """Return fits that leave one class as it is: what is added to all classes changes nothing.

    Offsets are only known up to a constant. With this one, the numbers can be read: how much each class is
    raised beside the most frequent one.

    Args:
        fits: all of which are moved alike.
        index: the class whose offset becomes 0.
    """

    def less(adjustment: Adjustment) -> Adjustment:
        return replace(adjustment, offset=adjustment.offset - adjustment.offset[index])

    without = [less(adjustment) for adjustment in fits.without]
    return Fits(without, less(fits.whole), fits.strength)


def raise_to_floors(fits: Fits, samples: Samples, goal: Goal) -> Fits:
    """Raise the offsets of all fits until floors are met, with a margin for new samples.

    Args:
        fits: by the metric alone.
        samples: on which the floors are to be met: of a fit without a fold, the samples it has seen.
        goal: with its floors [K], NaN for none, and the certainty asked for.

    Raises:
        LevelheadError: no offsets meet the floors on all samples; it says which classes conflict.
    """
    # On the host and in float64: what is decided here are single samples.
    logits = to_numpy(samples.scores).astype(np.float64)
    # A masked score is the lowest number here (`lower_masked`); no offset is to reach it.
    logits[logits <= np.finfo(np.float32).min] = -np.inf
    whole = _meet(logits, samples.labels, goal, fits.whole)
    if whole is None:
        raise unmet_floors(_by_class(logits, fits.whole), samples.labels, goal)
    without = []
    for fold, adjustment in zip(samples.folds, fits.without, strict=True):
        rows = np.flatnonzero(samples.fold != fold)
        raised = _meet(logits[rows], samples.labels[rows], goal, adjustment)
        # Where some samples cannot meet them though all can, they are judged as they are.
        if raised is None:
            raised = adjustment
        without.append(raised)
    return Fits(without, whole, fits.strength)


def _by_class(logits: np.ndarray, adjustment: Adjustment) -> np.ndarray:
    """Return scaled scores of logits [N, K] as floors.py takes them, [K, N]: a class a row."""
    return np.ascontiguousarray((logits * adjustment.scale).T)


def _meet(
    logits: np.ndarray, labels: np.ndarray, goal: Goal, start: Adjustment
) -> Adjustment | None:
    """Return the least offsets that meet the floors as surely as can be; None if none do at all.

    Args:
        logits: [N, K], of some samples.
        labels: [N].
        goal: with its floors, [K], and the certainty asked for.
        start: whose offsets are raised; its scales stay.
    """
    scores = _by_class(logits, start)
    sizes = np.bincount(labels, minlength=len(scores))
    floors = np.where(sizes > 0, goal.floors, np.nan)
    # From the margin asked for to none.
    for certainty in (goal.certainty, *LESS_CERTAIN):
        need = needed_right(floors, sizes, certainty)
        fit = meet_floors(scores, labels, need, start.offset)
        if fit.met:
            return replace(start, offset=fit.offset)
    return None


def unmet_floors(scores: np.ndarray, labels: np.ndarray, goal: Goal) -> LevelheadError:
    """Return why floors cannot be met: which classes conflict, and what each can reach instead.

    Args:
        scores: [K, N], a class a row.
        labels: [N].
        goal: with its floors, [K].
    """
    floors = np.asarray(goal.floors)
    sizes = np.bincount(labels, minlength=len(scores))
    need = needed_right(floors, sizes, 0.0)
    conflict = meet_floors(scores, labels, need, np.zeros(len(need))).conflict
    if not conflict:
        reason = "no offsets that meet them were found; lower the floors"
        return LevelheadError(reason, parameter="floors")

    def value_at(best: FloorsFit) -> str:
        """Return the metric at some offsets, in words."""
        predicted = (scores + best.offset[:, None]).argmax(axis=0)
        value = goal.metric.value(goal.tables(labels, predicted, len(scores)))
        return f"with {goal.metric.title} {goal.metric.value_text(value)}"

    group = least_conflict(scores, labels, need, conflict)
    wanted = listed([f"{floors[k]:.1%} in {title(k, goal.names)}" for k in group])
    together = ""
    if len(group) > 1:
        together = " together"
    why = f"no offsets meet a recall of {wanted}{together}"
    if len(group) > 3:
        share, best = met_share(scores, labels, floors)
        reach = f"{share:.0%} of each floor can be met, {value_at(best)}"
        return LevelheadError(f"{why}; {reach}; lower the floors", parameter="floors")
    # Without any one of them, the others can be met: say what each can reach beside them.
    others = np.where(np.isin(np.arange(len(need)), group), need, 0)
    reached = []
    for k in group:
        best = most_right(scores, labels, others, k)
        right = (scores + best.offset[:, None]).argmax(axis=0) == labels
        recall = right[labels == k].mean()
        reached.append(f"{title(k, goal.names)} reaches {recall:.1%} at most, {value_at(best)}")
    beside = ""
    if len(group) > 1:
        beside = "beside the others' floors, "
    reach = f"{beside}{', '.join(reached)}"
    return LevelheadError(f"{why}; {reach}; lower the floors", parameter="floors")
