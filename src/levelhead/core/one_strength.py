"""Rules of one strength: tables of every fold at every strength, of which each fit is a sum.

The path knows every strength at which a prediction changes. Added up, these changes are the tables of
each fold at a thousand strengths or so; the tables without a fold are a difference of two sums, and
each fit takes the middle of the strengths at which its loss is lowest. The last fit, on all samples,
then looks at every single change around the place that it has found.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..path.curve import Curve
from ..path.direction import Direction
from ..path.engines import find_changes
from ..path.envelope import Envelope
from .adjustment import Adjustment, Fits
from .metrics import Tables
from .samples import FOLDS, Goal, Samples

MOST_STRENGTHS = 1024
_MOST_NUMBERS = 4_000_000  # folds times strengths times classes


def fit_strength(
    samples: Samples,
    goal: Goal,
    direction: Direction,
    reach: tuple[float, float],
    at: Callable[[float], Adjustment],
) -> Fits:
    """Fit a rule whose predictions change along a direction, within a range of strengths."""
    envelope = find_changes(samples.scores, direction, reach)
    without, whole = best_strengths(envelope, samples, goal)
    return Fits([at(strength) for strength in without], at(whole), whole)


def best_strengths(envelope: Envelope, samples: Samples, goal: Goal) -> tuple[list[float], float]:
    """Return the strength that is best without each fold, and the one that is best on all."""
    strengths = choose_strengths(envelope, samples.classes)
    truth = Truth(samples, class_weights(samples, goal))
    by_fold = tables_along(envelope, samples, goal, strengths, truth)
    total = sum_folds(by_fold)
    without = []
    for fold in samples.folds:
        kept = total - take(by_fold, fold)
        without.append(best_of(strengths, losses_with_floors(kept, goal), envelope.range))
    rough = best_of(strengths, losses_with_floors(total, goal), envelope.range)
    # Every change around the best place: between the strengths next to it.
    place = int(np.searchsorted(strengths, rough, side="right")) - 1
    low = strengths[max(place - 1, 0)]
    if place + 2 < len(strengths):
        high = strengths[place + 2]
    else:
        high = envelope.range[1]
    inside = envelope.gamma[(envelope.gamma > low) & (envelope.gamma < high)]
    fine = np.unique(np.append(low, inside))[:MOST_STRENGTHS]
    tables = sum_folds(tables_along(envelope, samples, goal, fine, truth))
    return without, best_of(fine, losses_with_floors(tables, goal), (float(low), float(high)))


def choose_strengths(envelope: Envelope, classes: int) -> np.ndarray:
    """Return strengths [G] at which predictions change, ascending, from the start of the range on."""
    most = int(np.clip(_MOST_NUMBERS // (FOLDS * classes), 64, MOST_STRENGTHS))
    changes = np.unique(envelope.gamma)
    if len(changes) > most:
        changes = changes[np.linspace(0, len(changes) - 1, most).astype(np.int64)]
    return np.unique(np.append(envelope.range[0], changes))


class Truth:
    """What each sample counts as: certainly as its own class.

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
    """Return the tables of each fold from each strength on, [folds, G, K]."""
    classes = samples.classes
    shape = (FOLDS, len(strengths), classes)
    every = np.arange(len(samples.labels))
    mass = truth.mass()

    # A change counts from the first strength on that is not below it. Those beyond the last are out.
    at = np.searchsorted(strengths, envelope.gamma, side="left")
    inside = at < len(strengths)
    at, sample = at[inside], envelope.sample[inside]
    old = envelope.old_class[inside]
    new = envelope.new_class[inside]
    cell = samples.fold[sample].astype(np.int64) * shape[1] + at
    first = samples.fold.astype(np.int64) * shape[1]

    def add_up(begin: np.ndarray, gained: np.ndarray, lost: np.ndarray) -> np.ndarray:
        """Return running sums, [folds, G, K], of what samples begin with, gain and lose."""
        steps = np.bincount(first * classes + envelope.start, begin, np.prod(shape))
        steps += np.bincount(cell * classes + new, gained, np.prod(shape))
        steps -= np.bincount(cell * classes + old, lost, np.prod(shape))
        return np.cumsum(steps.reshape(shape), axis=1)

    paid = None
    if goal.cost is not None:
        cells = shape[0] * shape[1]
        steps = np.bincount(first, truth.price(every, envelope.start, goal.cost), cells)
        change = truth.price(sample, new, goal.cost) - truth.price(sample, old, goal.cost)
        steps += np.bincount(cell, change, cells)
        paid = np.cumsum(steps.reshape(shape[:2]), axis=1)
    return Tables(
        right=add_up(truth.at(every, envelope.start), truth.at(sample, new), truth.at(sample, old)),
        predicted=add_up(mass, mass[sample], mass[sample]),
        sizes=np.broadcast_to(truth.sizes()[:, None], shape),
        paid=paid,
    )


def class_weights(samples: Samples, goal: Goal) -> np.ndarray:
    """Return what a sample of each class weighs in tables, [K]: 1, or toward a target its share."""
    if goal.target is None:
        return np.ones(samples.classes)
    return goal.target / np.maximum(samples.sizes, 1)


def take(tables: Tables, fold: int) -> Tables:
    """Return the tables of one fold."""
    paid = None if tables.paid is None else tables.paid[fold]
    return Tables(tables.right[fold], tables.predicted[fold], tables.sizes[fold], paid)


def sum_folds(tables: Tables) -> Tables:
    """Return the tables of all folds together."""
    paid = None
    if tables.paid is not None:
        paid = tables.paid.sum(axis=0)
    return Tables(
        tables.right.sum(axis=0), tables.predicted.sum(axis=0), tables.sizes.sum(axis=0), paid
    )


def losses_with_floors(tables: Tables, goal: Goal) -> np.ndarray:
    """Return the loss at each strength, [G]; where floors are missed, 1 more and by how much."""
    losses = goal.loss(tables)
    if goal.floors is None:
        return losses
    short = np.nan_to_num(goal.floors - tables.recall, nan=-1.0).max(axis=-1)
    return np.where(short > 1e-11, 10 + losses.max() + short, losses)


def best_of(strengths: np.ndarray, losses: np.ndarray, reach: tuple[float, float]) -> float:
    """Return the middle of the widest stretch on which losses [G] are lowest; 0 if that is in it."""
    curve = Curve(strengths, losses, reach[1])
    around_zero = curve.plateau_at_zero()
    if around_zero is not None:  # nothing changes anywhere
        return 0.0
    return curve.middle(curve.plateau())
