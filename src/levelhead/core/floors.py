"""Floors of recall by offsets: the least offsets that meet them, or a proof that none do.

A class j that must be right on m samples needs an offset of at least ``f_j(d)``: the m-th smallest lead that
its samples' best rivals have over it, at the offsets d of the others. f is monotone (rivals that rise ask for
more) and moves with a common constant. So

- raising each class to what it needs, again and again, ends at the *least* offsets that meet all floors, if
  any do (`_raise`);
- floors cannot be met if, at some d, every class of a group needs more than it has though it competes within
  the group only. For take offsets that meet them, and shift them until they are nowhere in the group below d
  but touch it: the class that touches needs at least what it needs at d, which is more than it has. Steps of
  half the need come to such a d, if there is one (Akian, Gaubert and Guterman 2012, of maps of this kind;
  `_prove`).

`needed_right` turns recalls into numbers of samples, with a margin for new samples, and `meet_floors` finds
the offsets. The other three help to say what is wrong where there are none: `least_conflict`, `met_share`
and `most_right`. Scores are [K, N] throughout, a class a row, as the leads are taken over classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .class_names import title as class_title

_SWEEPS = (30, 30, 300, 1000)  # steps of each kind, in turns
# How far above its rival a score is lifted, of the size of scores: 64 roundings of float32.
_ABOVE = 2.0**-18
_MOST_TOLD = 4  # floors that are told one by one where there are more
_MOST_CONFLICTING = 12  # classes of which a least conflict is looked for


@dataclass(frozen=True)
class Floor:
    """A recall that was asked for, and how sure it is to hold."""

    index: int  # the position of the class
    least: float  # the recall asked for
    probability: float  # that it holds on new samples
    held_before: bool  # whether the model as it is has it on these samples

    def text(self, names: tuple[str, ...] | None) -> str:
        """Return the floor in words: with which probability it holds, or that this is unlikely.

        A choice meets the floors of the classes it moves; one that is left alone may miss its own.
        """
        recall = f"{class_title(self.index, names)}: recall of at least {self.least:.1%}"
        if self.probability < 0.5:
            return f"{recall} is unlikely ({self.probability:.0%})"
        before = ""
        if self.held_before:
            before = "; so has the model as it is"
        return f"{recall} with {self.probability:.0%}{before}"


def floors_text(floors: Sequence[Floor], names: tuple[str, ...] | None) -> str:
    """Return floors in words; of many, those that are least sure, and how sure the others are."""
    told = list(floors)
    rest = ""
    if len(told) > _MOST_TOLD:
        told = sorted(told, key=lambda floor: floor.probability)
        least = told[_MOST_TOLD].probability
        rest = f"; those of {len(told) - _MOST_TOLD} other classes with {least:.0%} or more"
        told = told[:_MOST_TOLD]
    return "; ".join(floor.text(names) for floor in told) + rest


@dataclass(frozen=True, eq=False)
class FloorsFit:
    """Offsets that meet floors, or come near."""

    offset: np.ndarray  # [K], added to the scores
    met: bool  # whether they meet all floors
    # Classes whose floors no offsets at all meet together, proven; () if none is known.
    conflict: tuple[int, ...] = ()


# Of floors on new samples: what is tried, one after the other, where the one asked for cannot be had. At
# 0, the recall on these samples is the floor itself.
LESS_CERTAIN = (0.75, 0.5, 0.0)


def needed_right(floors: np.ndarray, sizes: np.ndarray, certainty: float = 0.5) -> np.ndarray:
    """Return how many samples of each class must be right, [K]; 0 without a floor.

    It is the least number at which the recall on new samples is at least the floor with the
    certainty asked for. Where even n right of n are not enough, it is as many as the floor itself
    asks for.

    Args:
        floors: [K], recalls; NaN for no floor.
        sizes: [K], how many samples each class has.
        certainty: how likely each floor is to hold on new samples.

    >>> needed_right(np.array([0.9, np.nan]), np.array([100, 100]), certainty=0.9)
    array([95,  0])
    """
    # A recall that is met but for rounding is met.
    plain = np.ceil(np.nan_to_num(floors) * sizes - 1e-9).astype(np.int64)
    needed = plain.copy()
    for k in np.flatnonzero(plain > 0):
        # From what the floor itself asks for to all of them: the first number that is sure enough.
        right = np.arange(plain[k], sizes[k] + 1)
        enough = holds_with(right, sizes[k], floors[k]) >= certainty
        if enough.any():
            needed[k] = right[np.argmax(enough)]
    return needed


def holds_with(right: np.ndarray | float, size: np.ndarray | float, floor: float) -> np.ndarray:
    """Return the probability that the recall on new samples is at least a floor.

    Of m right of n samples it is spread as Beta(m + 1, n - m + 1), where every recall was as likely
    before. That offsets were raised on these very samples is left out of account; measured on test
    samples, floors hold about as often as this says (docs/decisions.md).

    >>> holds_with(np.array([95, 90]), 100, 0.9).round(2)
    array([0.95, 0.43])
    """
    from scipy.special import betainc

    # From the other end, as `betaincc` of scipy 1.12 does it: small probabilities keep their digits.
    right = np.asarray(right, np.float64)
    return betainc(np.asarray(size) - right + 1, right + 1, 1 - np.asarray(floor, np.float64))


def meet_floors(
    scores: np.ndarray,
    labels: np.ndarray,
    need: np.ndarray,
    start: np.ndarray,
) -> FloorsFit:
    """Raise offsets as little as possible until enough samples of each class are right.

    Args:
        scores: [K, N], a class a row; -inf for a class that is masked.
        labels: [N].
        need: [K], how many samples must be right; 0 without a floor.
        start: [K], the offsets to begin with.

    Returns:
        The offsets; or `start`, not met, with a group of classes that conflict where that was proven.

    >>> scores = np.array([[2.0, 2.0, 2.0], [0.0, 1.0, 1.5]])  # the second class is always behind
    >>> fit = meet_floors(scores, np.array([0, 1, 1]), np.array([0, 1]), np.zeros(2))
    >>> fit.met, fit.offset.round(3)
    (True, array([0. , 0.5]))
    """
    # The sample that a floor hangs on is right by as much as a score is lifted above its rival. That
    # must not be lost where scores are rounded to float32. Only the best scores count for it, of which
    # none is masked.
    size = float(np.abs((scores + start[:, None]).max(axis=0)).max(initial=0.0))
    asked = _Asked(scores, labels, need, max(_ABOVE * size, 1e-12))
    # Steps up to the least offsets, and steps toward a proof that there are none, in turns: either may
    # be long. Both go on from where they were.
    up = start.astype(np.float64)
    even = start.astype(np.float64)
    for sweeps in _SWEEPS:
        fit = _raise(asked, up, sweeps)
        if fit is None:
            fit = _prove(asked, even, sweeps)
        if fit is not None:
            if fit.met:
                return fit
            return replace(fit, offset=start)
    return FloorsFit(start, False)


def _raise(asked: _Asked, offset: np.ndarray, sweeps: int) -> FloorsFit | None:
    """Raise each class with a floor to what it needs, so many times; None if that is not enough.

    The offsets are changed in place.

    Args:
        asked: scores, labels and needs.
        offset: [K], from which to go on. No class is raised by more than it needs, and a hair (`above`):
            so the least offsets from the start on are reached, and not passed.
        sweeps: how many times all classes are gone through.

    Returns:
        A fit that meets all floors; or the proof that a class cannot be raised enough by any offset.
    """
    everyone = np.arange(len(offset))
    for _ in range(sweeps):
        rise = asked.rise(offset, everyone)
        if (rise < 0).all():
            return FloorsFit(offset, True)
        beyond = np.isinf(rise)  # scores of -inf are beyond every offset
        if beyond.any():
            return FloorsFit(offset, False, tuple(asked.classes[beyond].tolist()))
        offset[asked.classes] += np.where(rise < 0, 0.0, rise + asked.above)
    return None


def _prove(asked: _Asked, offset: np.ndarray, sweeps: int) -> FloorsFit | None:
    """Move each class with a floor by half of what it needs, up or down, so many times.

    Only classes with a floor compete. The offsets are changed in place. Returns the proof that some
    classes conflict, or offsets that meet all floors; None if neither was found.
    """
    for _ in range(sweeps):
        rise = asked.rise(offset, asked.classes)
        if (rise < 0).all():
            # All of them can rise together until no other class is above them.
            offset[asked.classes] += asked.common_rise(offset)
            return FloorsFit(offset, True)
        group = asked.rising_group(offset, rise)
        if len(group):
            return FloorsFit(offset, False, tuple(group.tolist()))
        offset[asked.classes] += (rise + asked.above) / 2
    return None


@dataclass(frozen=True, eq=False)
class _Asked:
    """What the classes with a floor need."""

    scores: np.ndarray  # [K, N]
    labels: np.ndarray  # [N]
    need: np.ndarray  # [K], samples that must be right; 0 without a floor
    above: float  # how far above its rival a score is lifted

    @cached_property
    def classes(self) -> np.ndarray:
        """The classes with a floor."""
        return np.flatnonzero(self.need > 0)

    @cached_property
    def scores_of(self) -> dict[int, np.ndarray]:
        """The scores of the n samples of each of them: {class: [K, n]}."""
        return {
            c: np.ascontiguousarray(self.scores[:, self.labels == c]) for c in self.classes.tolist()
        }

    def rise(self, offset: np.ndarray, group: np.ndarray) -> np.ndarray:
        """Return by how much classes must rise; below 0 where they have what they need.

        Args:
            offset: [K].
            group: the classes that compete; of these, one number is returned for each with a floor.
        """
        rises = []
        for c in group[self.need[group] > 0]:
            lead = self._lead(offset, c, group[group != c])
            rises.append(_smallest(lead, int(self.need[c])))
        return np.array(rises)

    def common_rise(self, offset: np.ndarray) -> float:
        """Return by how much all classes with a floor must rise together to be met among all.

        Among themselves they are met already.
        """
        others = np.flatnonzero(self.need == 0)
        rise = -self.above
        for c in self.classes:
            # Where another class with a floor leads, rising together makes no sample right.
            ahead = self._lead(offset, c, self.classes[self.classes != c]) < 0
            lead = np.where(ahead, self._lead(offset, c, others), np.inf)
            rise = max(rise, _smallest(lead, int(self.need[c])))
        return rise + self.above

    def _lead(self, offset: np.ndarray, c: int, rivals: np.ndarray) -> np.ndarray:
        """Return by how much the best rival is ahead of class c, on each of its samples, [n]."""
        scores = self.scores_of[c]
        with np.errstate(invalid="ignore"):  # -inf less -inf, which is set below
            best_rival = (scores[rivals] + offset[rivals, None]).max(axis=0, initial=-np.inf)
            lead = best_rival - (scores[c] + offset[c])
        lead[np.isneginf(scores[c])] = np.inf
        return lead

    def rising_group(self, offset: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """Return classes that all need to rise though they compete with each other only; or none.

        Args:
            offset: [K].
            rise: of all classes with a floor, as `rise` gives it.
        """
        # Who needs no rise leaves, which makes it easier for the rest; so again, until all do, or none is left.
        group = self.classes
        while len(group) and not (rise > self.above).all():
            group = group[rise > self.above]
            rise = self.rise(offset, group)
        return group


def _smallest(values: np.ndarray, n: int) -> float:
    """Return the n-th smallest of the values."""
    return float(np.partition(values, n - 1)[n - 1])


def least_conflict(
    scores: np.ndarray, labels: np.ndarray, need: np.ndarray, group: Sequence[int]
) -> tuple[int, ...]:
    """Return the least part of a conflicting group whose floors still conflict.

    Class after class is left out, and stays out if the rest conflict without it. Each takes a fit, so
    a group of many classes is returned as it is.

    Args:
        scores, labels, need: as in `meet_floors`.
        group: the classes of a conflict.
    """
    if len(group) > _MOST_CONFLICTING:
        return tuple(group)
    conflict = list(group)
    for c in group:
        rest = [other for other in conflict if other != c]
        if len(rest) < 2:
            continue
        need_of_rest = np.where(np.isin(np.arange(len(need)), rest), need, 0)
        if meet_floors(scores, labels, need_of_rest, np.zeros(len(need))).conflict:
            conflict = rest
    return tuple(conflict)


def met_share(
    scores: np.ndarray, labels: np.ndarray, floors: np.ndarray
) -> tuple[float, FloorsFit]:
    """Return the largest share of all floors that offsets meet together, and the offsets.

    Args:
        scores, labels: as in `meet_floors`.
        floors: [K], recalls; NaN for no floor.

    Returns:
        The share, from 0 to 1, within a hundredth; and the fit that meets ``share * floors``.
    """
    start = np.zeros(len(floors))
    sizes = np.bincount(labels, minlength=len(floors))
    best = FloorsFit(start, True)
    low, high = 0.0, 1.0
    for _ in range(7):  # 2^-7 is less than a hundredth
        share = (low + high) / 2
        fit = meet_floors(scores, labels, needed_right(share * floors, sizes, 0.0), start)
        if fit.met:
            best = fit
            low = share
        else:
            high = share
    return low, best


def most_right(scores: np.ndarray, labels: np.ndarray, need: np.ndarray, of: int) -> FloorsFit:
    """Return offsets by which most samples of one class are right and all others have their need.

    Args:
        scores, labels, need: as in `meet_floors`.
        of: the class.

    Returns:
        A fit that is not met if the others cannot have their need even without it.
    """
    low = 0
    high = int((labels == of).sum())
    best = FloorsFit(np.zeros(len(need)), False)
    while low <= high:  # more is never easier, so the most is found by halving
        middle = (low + high) // 2
        wanted = need.copy()
        wanted[of] = middle
        fit = meet_floors(scores, labels, wanted, np.zeros(len(need)))
        if fit.met:
            best = fit
            low = middle + 1
        else:
            high = middle - 1
    return best
