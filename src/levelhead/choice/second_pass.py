"""The second pass over the shards: every change in the cells of the grid in which the choice can lie.

With w_c the weight of a sample of class c, the error in cell g is at least ``error(edges[g]) - sum_c w_c entered_c,g``
and at most ``error(edges[g]) + sum_c w_c left_c,g``. What is minimized is the error and, if guided, ``min(1, 20 s)``
times a mismatch between 0 and 1. A cell whose lower bound is above the least upper bound of all cannot hold the choice.
"""

from dataclasses import dataclass

import numpy as np

from ..core.array import Array, as_array
from ..core.curve import Curve
from ..path.chunks import read_chunks
from ..path.envelope import Envelope, compute_envelope
from .events import Events
from .frame import Frame
from .objective import STRENGTH
from .partial import Partial, shard_path

_CLOSE = 1e-9  # values this close may be equal but for rounding


@dataclass(frozen=True, eq=False)
class SecondPass:
    """What the second pass needs to know of the first: small, so that it travels to every shard.

    Args:
        frame: the rule and its grid.
        cells: [G] bool, in which the choice can lie.
        weights: [K], of a sample of each class.
        guided: whether the changes of predictions are needed too.

    >>> whole = Partial.of([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
    >>> second = SecondPass.of(whole, np.array([0.5, 0.5]), guided=False)
    >>> second.look([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1]).gamma.round(3)
    array([0.208, 0.5  ])
    """

    frame: Frame
    cells: np.ndarray
    weights: np.ndarray
    guided: bool

    @staticmethod
    def of(whole: Partial, prior: np.ndarray, *, guided: bool) -> "SecondPass":
        """Return the second pass over all samples of a partial, whose classes weigh prior [K]."""
        weights = prior / np.maximum(whole.sizes, 1)
        low, high = error_bounds(whole, weights)
        slack = min(1.0, STRENGTH * _largest_standard_error(whole, prior)) if guided else 0.0
        at_zero = 1 - float(weights @ whole.right[:, whole.frame.zero])
        return SecondPass(whole.frame, low <= min(high.min(), at_zero) + slack + _CLOSE, weights, guided)

    def look(self, logits: Array, labels: Array) -> Events:
        """Return every change in the cells, of one shard: logits [n, K], labels [n]."""
        logits, frame = as_array(logits), self.frame
        if not len(logits):
            return self.nothing()
        path = shard_path(frame, logits, labels)
        _, at, sign, sample = path.events
        inside = self.cells[frame.cells_of(at)]
        found = [_Moves.none(frame, self.guided)]
        if self.guided:
            for first, part in read_chunks(logits, kind=frame.kind):
                changes = compute_envelope(part, frame.rule, frame.range)
                found.append(self._moves(changes, self.weights[path.labels[first : first + len(part)]]))
        shares = np.sum([moves.shares for moves in found], axis=0)
        moved, old, new, weight = (np.concatenate(parts) for parts in zip(*(m.changes for m in found), strict=True))
        return Events(
            cells=self.cells,
            gamma=at[inside],
            label=path.labels[sample[inside]].astype(np.int32),
            sign=sign[inside].astype(np.int8),
            shares=shares,
            moved=moved,
            old=old,
            new=new,
            weight=weight,
        )

    def nothing(self) -> Events:
        """Return the events of no samples."""
        moves, whole = _Moves.none(self.frame, self.guided), np.zeros(0, np.int32)
        moved, old, new, weight = moves.changes
        return Events(self.cells, np.zeros(0), whole, whole.astype(np.int8), moves.shares, moved, old, new, weight)

    def agrees(self, whole: Partial, events: Events) -> bool:
        """Return whether the events are those of the samples that were summarized."""
        cell = self.frame.cells_of(events.gamma)
        changes = np.zeros(whole.left.shape, np.int64)
        np.add.at(changes, (events.label, cell), events.sign)
        losses = np.bincount(cell[events.sign < 0], minlength=self.frame.bins)
        return bool(
            (changes == np.diff(whole.right, axis=1))[:, self.cells].all()
            and (losses == whole.left.sum(axis=0))[self.cells].all()
        )

    def _moves(self, changes: Envelope, weight: np.ndarray) -> "_Moves":
        frame, mass = self.frame, weight[changes.sample]
        shares, cell = np.zeros((frame.classes, frame.bins + 1)), frame.cells_of(changes.gamma)
        np.add.at(shares[:, 0], changes.start, weight)
        np.add.at(shares, (changes.new_class, cell + 1), mass)
        np.add.at(shares, (changes.old_class, cell + 1), -mass)
        inside = self.cells[cell]
        old, new = (values[inside].astype(np.int32) for values in (changes.old_class, changes.new_class))
        return _Moves(np.cumsum(shares, axis=1), (changes.gamma[inside], old, new, mass[inside]))


@dataclass(frozen=True, eq=False)
class _Moves:
    shares: np.ndarray
    changes: tuple[np.ndarray, ...]

    @staticmethod
    def none(frame: Frame, guided: bool) -> "_Moves":
        shares = np.zeros((frame.classes, frame.bins + 1) if guided else (0, 0))
        return _Moves(shares, (np.zeros(0), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0)))


def error_bounds(whole: Partial, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest that the error can be in each cell, [G] each."""
    at_start = 1 - weights @ whole.right[:, :-1]
    return at_start - weights @ whole.entered, at_start + weights @ whole.left


def _largest_standard_error(whole: Partial, prior: np.ndarray) -> float:
    """Return what the standard error of the error is at most, whatever the recalls."""
    return float(np.sqrt((prior**2 / 4 / (whole.sizes + 2)).sum()))


def join_events(whole: Partial, events: Events | None, weights: np.ndarray) -> Curve:
    """Return the error over gamma: exact in the cells that were looked into, elsewhere at the gammas of the grid.

    The breakpoints are all gammas of the grid and every event, also of predictions.
    """
    edges = whole.frame.edges
    at_edges = 1 - weights @ whole.right
    if events is None:
        return Curve(edges, at_edges, float(edges[-1]))
    steps = -events.sign * weights[events.label]
    gammas = np.unique(np.concatenate([edges, events.gamma, events.moved]))
    return Curve(gammas, _fill(gammas, edges, at_edges, events.gamma, steps), float(edges[-1]))


def mismatch_values(whole: Partial, events: Events, prior: np.ndarray, gammas: np.ndarray) -> np.ndarray:
    """Return the distance of the predicted shares from the prior [K] at the breakpoints of `join_events`."""
    frame = whole.frame
    at_edges = np.abs(events.shares - prior[:, None]).sum(axis=0) / 2
    at = np.concatenate([events.moved, events.moved])
    changed = np.concatenate([events.new, events.old]).astype(np.int64)
    change = np.concatenate([events.weight, -events.weight])
    cell = frame.cells_of(at)
    order = np.lexsort((at, cell, changed))  # by class, then cell, then gamma
    at, changed, change, cell = at[order], changed[order], change[order], cell[order]
    first = np.r_[True, (np.diff(changed) != 0) | (np.diff(cell) != 0)][: len(at)]  # of a class in a cell
    opens = np.flatnonzero(first)
    sums = np.cumsum(change)
    group = np.cumsum(first) - 1
    before = (sums - change)[opens]
    off = (events.shares[changed, cell] - prior[changed]) if len(at) else np.zeros(0)
    after = off + sums - before[group] if len(at) else off
    was = np.where(first, off, np.r_[0.0, after[:-1]][: len(at)])
    steps = (np.abs(after) - np.abs(was)) / 2
    order = np.argsort(at, kind="stable")
    return _fill(gammas, frame.edges, at_edges, at[order], steps[order])


def _fill(gammas: np.ndarray, edges: np.ndarray, at_edges: np.ndarray, at: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return values at the gammas: those at the edges, and between two edges what the steps since the first add."""
    totals = np.bincount(np.searchsorted(gammas, at), steps, len(gammas)).cumsum() if len(at) else np.zeros(len(gammas))
    start = np.searchsorted(edges, gammas, side="right") - 1
    place = np.searchsorted(gammas, edges)
    found = at_edges[start] + totals - totals[place[start]]
    found[place] = at_edges
    return found
