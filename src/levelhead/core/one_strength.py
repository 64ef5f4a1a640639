"""Rules of one strength: tables of every fold at every strength, of which each fit is a sum.

The path knows every strength at which a prediction changes. Added up, these changes are the tables of
each fold at a thousand strengths or so; the tables without a fold are a difference of two sums, and
each fit takes the middle of the strengths at which its loss is lowest. The last fit, on all samples,
then looks at every single change around the place that it has found.

The road: `fit_strength` asks path/ for the changes (`Envelope`), `best_strengths` chooses a grid of
strengths [G] (`choose_strengths`), adds the changes up to `Tables` [folds, G, K] (`tables_along`), and
takes the best of each difference (`losses_with_floors`, `best_of`). metric_offsets.py goes the same road
for the strength of a goal, with a `Truth` of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..path.curve import Curve
from ..path.direction import Direction
from ..path.engines import find_changes
from ..path.envelope import Envelope
from .adjustment import Adjustment, Fits
from .floors import LESS_CERTAIN, needed_right
from .goal import Goal
from .metrics import Tables
from .samples import FOLDS, Samples

MOST_STRENGTHS = 1024  # at which tables are counted
_MOST_NUMBERS = 4_000_000  # folds times strengths times classes: what the tables hold in memory


def fit_strength(
    samples: Samples,
    goal: Goal,
    direction: Direction,
    reach: tuple[float, float],
    at: Callable[[float], Adjustment],
) -> Fits:
    """Fit a rule whose predictions change along a direction, without each fold and on all samples.

    One walk over all samples serves every fit: who is predicted at a strength does not depend on the fold.

    Args:
        samples: N of K classes, in folds.
        goal: what the strength is to be best for.
        direction: how scores depend on the strength.
        reach: the strengths to try, from and to.
        at: returns what the rule does at a strength.
    """
    envelope = find_changes(samples.scores, direction, reach)
    without, whole = best_strengths(envelope, samples, goal)
    return Fits([at(strength) for strength in without], at(whole), whole)


def best_strengths(envelope: Envelope, samples: Samples, goal: Goal) -> tuple[list[float], float]:
    """Return the strength that is best without each fold, and the one that is best on all.

    Args:
        envelope: of all samples over the strengths to try.
        samples: their labels and folds.
        goal: what the strengths are to be best for.

    Returns:
        A strength for each of `samples.folds`, and that on all samples.
    """
    # Tables on a grid of strengths; without a fold, they are all tables less those of the fold.
    strengths = choose_strengths(envelope, samples.classes)
    truth = Truth(samples, class_weights(samples, goal))
    by_fold = tables_along(envelope, samples, goal, strengths, truth)
    total = by_fold.total()
    without = []
    for fold in samples.folds:
        kept = np.bincount(samples.labels[samples.fold != fold], minlength=samples.classes)
        losses = losses_with_floors(total - by_fold[fold], goal, kept)
        without.append(best_of(strengths, losses, envelope.range))

    # On all samples, a rough place first.
    rough = best_of(strengths, losses_with_floors(total, goal, samples.sizes), envelope.range)
    # Then every change around it, up to `MOST_STRENGTHS`: between the strengths of the grid next to it.
    place = int(np.searchsorted(strengths, rough, side="right")) - 1
    low = float(strengths[max(place - 1, 0)])
    high = float(envelope.range[1])
    if place + 2 < len(strengths):
        high = float(strengths[place + 2])
    inside = np.unique(envelope.gamma[(envelope.gamma > low) & (envelope.gamma < high)])
    if len(inside) >= MOST_STRENGTHS:
        # Of too many, those nearest to that place, which is one of them.
        first = int(np.searchsorted(inside, strengths[place])) - MOST_STRENGTHS // 2
        first = int(np.clip(first, 0, len(inside) - MOST_STRENGTHS))
        nearest = inside[first : first + MOST_STRENGTHS]
        low = float(nearest[0])
        high = float(nearest[-1])
        inside = nearest[1:-1]
    fine = np.append(low, inside)
    tables = tables_along(envelope, samples, goal, fine, truth).total()
    return without, best_of(fine, losses_with_floors(tables, goal, samples.sizes), (low, high))


def choose_strengths(envelope: Envelope, classes: int) -> np.ndarray:
    """Return strengths [G] at which predictions change, ascending, from the start of the range on.

    All of them if the tables have room for that, else as many, evenly spaced among the changes: where
    many predictions change, strengths are close.

    Args:
        envelope: with its changes.
        classes: K, by which the tables grow.
    """
    most = int(np.clip(_MOST_NUMBERS // (FOLDS * classes), 64, MOST_STRENGTHS))
    changes = np.unique(envelope.gamma)
    if len(changes) > most:
        changes = changes[np.linspace(0, len(changes) - 1, most).astype(np.int64)]
    return np.unique(np.append(envelope.range[0], changes))


class Truth:
    """What each sample counts as: certainly as its own class.

    `tables_along` asks it for every number that goes into the tables. metric_offsets.py has another one, in
    which a sample counts partly as what the model believes of it.

    Args:
        samples: whose labels are true.
        per_class: [K], what a sample weighs as one of each class.
    """

    def __init__(self, samples: Samples, per_class: np.ndarray):
        self.samples = samples
        self.per_class = per_class

    def at(self, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Return what sample rows[i] counts as one of classes[i]."""
        return self.per_class[classes] * (self.samples.labels[rows] == classes)

    def mass(self) -> np.ndarray:
        """Return what each sample counts in all, [N]."""
        return self.per_class[self.samples.labels]

    def sizes(self) -> np.ndarray:
        """Return what the samples of each fold count as each class, [folds, K]."""
        cells = self.samples.fold * np.int64(self.samples.classes) + self.samples.labels
        sizes = np.bincount(cells, minlength=FOLDS * self.samples.classes)
        return sizes.reshape(FOLDS, -1) * self.per_class

    def price(self, rows: np.ndarray, called: np.ndarray, cost: np.ndarray) -> np.ndarray:
        """Return what it costs to call sample rows[i] called[i]."""
        true = self.samples.labels[rows]
        return self.per_class[true] * cost[true, called]


def tables_along(
    envelope: Envelope, samples: Samples, goal: Goal, strengths: np.ndarray, truth: Truth
) -> Tables:
    """Return the tables of each fold from each strength on, [folds, G, K].

    A change moves one sample from one class to another: a step up and a step down. All steps are put into
    their cells by `bincount`, and running sums along the strengths make tables of them; the time is that
    of the changes and the cells, whatever the number of strengths that a sample passes.

    Args:
        envelope: what is predicted at the start, and every change of it.
        samples: the samples it is of, with their folds.
        goal: whose cost matrix, if it has one, is paid.
        strengths: [G], ascending, from the start of the envelope's range on.
        truth: what each sample counts as.
    """
    classes = samples.classes
    shape = (FOLDS, len(strengths), classes)

    # A change counts from the first strength on that is not below it. Those beyond the last are out.
    at = np.searchsorted(strengths, envelope.gamma, side="left")
    inside = at < len(strengths)
    at = at[inside]
    sample = envelope.sample[inside]
    old = envelope.old_class[inside]
    new = envelope.new_class[inside]

    # Steps are written into cells (fold, strength), then added up along the strengths. What samples
    # begin with is a step at the first strength.
    every = np.arange(len(samples.labels))
    fold = samples.fold.astype(np.int64)
    first_cell = fold * len(strengths)
    cell = fold[sample] * len(strengths) + at

    def add_up(begin: np.ndarray, gained: np.ndarray, lost: np.ndarray) -> np.ndarray:
        """Return running sums [folds, G, K].

        Args:
            begin: [N], what each sample adds to the class that it begins with.
            gained, lost: [changes], what each change adds to its new class and takes from its old.
        """
        steps = np.bincount(first_cell * classes + envelope.start, begin, np.prod(shape))
        steps += np.bincount(cell * classes + new, gained, np.prod(shape))
        steps -= np.bincount(cell * classes + old, lost, np.prod(shape))
        return np.cumsum(steps.reshape(shape), axis=1)

    # What is paid has no class: cells alone, in the same way.
    paid = None
    if goal.cost is not None:
        cells = FOLDS * len(strengths)
        begin = truth.price(every, envelope.start, goal.cost)
        change = truth.price(sample, new, goal.cost) - truth.price(sample, old, goal.cost)
        steps = np.bincount(first_cell, begin, cells) + np.bincount(cell, change, cells)
        paid = np.cumsum(steps.reshape(shape[:2]), axis=1)

    mass = truth.mass()
    return Tables(
        right=add_up(truth.at(every, envelope.start), truth.at(sample, new), truth.at(sample, old)),
        predicted=add_up(mass, mass[sample], mass[sample]),
        sizes=np.broadcast_to(truth.sizes()[:, None], shape),
        paid=paid,
    )


def class_weights(samples: Samples, goal: Goal) -> np.ndarray:
    """Return what a sample of each class weighs in tables, [K]: 1, or toward a target its share.

    Those of a part stand for all that they were drawn from, of which it has more of the rare classes.
    """
    if goal.target is not None:
        return goal.target / np.maximum(samples.sizes, 1)
    if samples.drawn_from is not None:
        return samples.drawn_from / np.maximum(samples.sizes, 1)
    return np.ones(samples.classes)


def losses_with_floors(tables: Tables, goal: Goal, sizes: np.ndarray) -> np.ndarray:
    """Return the loss at each strength in units of the goal, [G]; where floors are missed, more than any, by how much.

    So the best strength meets all floors if one does, and otherwise comes nearest to them. They are met
    with the margin for new samples that the goal asks for or, where no strength has that, with less.

    Args:
        tables: [G, K].
        goal: with its floors [K], NaN for none.
        sizes: [K], how many samples the tables are of.
    """
    losses = goal.loss(tables) / goal.unit
    if goal.floors is None:
        return losses
    for certainty in (goal.certainty, *LESS_CERTAIN):
        needed = needed_right(goal.floors, sizes, certainty) / np.maximum(sizes, 1)
        least = np.where(np.isnan(goal.floors), np.nan, needed)
        # The largest shortfall of any class; one without a floor is NaN, and never short.
        short = np.nan_to_num(least - tables.recall, nan=-1.0).max(axis=-1)
        if short.min() <= 1e-11:
            break
    return np.where(short > 1e-11, 10 + losses.max() + short, losses)


def best_of(strengths: np.ndarray, losses: np.ndarray, reach: tuple[float, float]) -> float:
    """Return the middle of the widest stretch on which losses [G] are lowest; 0 if they never change.

    Args:
        strengths: [G], from each of which on a loss holds, up to the next.
        losses: [G].
        reach: from and to; the last loss holds up to its end.
    """
    curve = Curve(strengths, losses, reach[1])
    if curve.plateau_at_zero() is not None:  # the loss is the same everywhere
        return 0.0
    return curve.middle(curve.plateau())
