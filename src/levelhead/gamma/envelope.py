"""What is predicted along the whole path: the upper envelope of each sample's scores.

The winner of a row is always among its logits of the highest sign, whose (log) scores are straight lines in gamma: the
prediction changes where the upper envelope of these lines bends, and only to a class of a steeper line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..core.curve import Curve, accumulate
from ..core.errors import LevelheadError
from ..core.measure import Kind
from ..show.progress import RowProgress
from .chunks import read_chunks
from .intervals import snap
from .rule import Rule

_BLOCK = 1 << 18  # numbers worked on at a time: what fits in a cache


@dataclass(frozen=True, eq=False)
class Envelope:
    """Every change of every prediction over a range of gammas.

    Args:
        start: [N], the class predicted at the range's beginning.
        sample, gamma, new_class: [E], sorted by gamma: from `gamma` on, `sample` is predicted to be of class `new_class`.
        old_class: [E], the class it was predicted to be of until then.
        classes: K.
        range: of gamma.
    """

    start: np.ndarray
    sample: np.ndarray
    gamma: np.ndarray
    new_class: np.ndarray
    old_class: np.ndarray
    classes: int
    range: tuple[float, float]

    def predictions(self, gamma: float) -> np.ndarray:
        """The class predicted at gamma, [N]."""
        found = self.start.copy()
        upto = np.searchsorted(self.gamma, gamma, side="right")
        found[self.sample[:upto]] = self.new_class[:upto]  # in order of gamma: the last assignment stays
        return found

    def joined(self, others: Sequence[Envelope]) -> Envelope:
        """The envelope of these samples and then those of others."""
        offsets = np.cumsum([len(self.start), *(len(other.start) for other in others)])
        every = [self, *others]
        gamma = np.concatenate([part.gamma for part in every])
        order = np.argsort(gamma, kind="stable")
        sample = np.concatenate([self.sample, *(o.sample + n for o, n in zip(others, offsets, strict=False))])
        return replace(self, start=np.concatenate([part.start for part in every]), sample=sample[order],
                       gamma=gamma[order], new_class=np.concatenate([part.new_class for part in every])[order],
                       old_class=np.concatenate([part.old_class for part in every])[order])

    def shares(self, gamma: float, weights: np.ndarray | None = None) -> np.ndarray:
        """The share of each class among the predictions at gamma, [K]; samples weigh `weights` [N]."""
        return np.bincount(self.predictions(gamma), self._weights(weights), self.classes)

    def mismatch(self, target: np.ndarray | None = None, weights: np.ndarray | None = None) -> Curve:
        """Half the sum over classes of ``|share - target|``, along the path: 0 if predicted shares are the target's.

        Args:
            target: prior of the K classes, summing to 1; uniform if not given.
            weights: [N], of the samples; equal if not given.
        """
        start, gammas, steps = self.mismatch_steps(target, weights)
        order = np.argsort(gammas)
        return accumulate(start, gammas[order], steps[order], self.range)

    def mismatch_steps(
        self, target: np.ndarray | None = None, weights: np.ndarray | None = None
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """The same as its value at the range's beginning, then the gamma and the size of each step.

        A class's own changes, in order, give its share after each, and its own term is all of the sum that one of them
        moves: so no table of changes by classes is made. Their order, by class, does not depend on the arguments.
        """
        target = np.full(self.classes, 1 / self.classes) if target is None else np.asarray(target, np.float64)
        weight = self._weights(weights)
        off = np.bincount(self.start, weight, self.classes) - target
        gammas, signed, sizes, opens = self._by_class
        steps = np.empty(len(signed) + 1)
        steps[0] = 0.0
        np.cumsum(np.concatenate([weight, -weight])[signed], out=steps[1:])
        steps[1:] += np.repeat(off - steps[opens], sizes)  # how far each class is off after each of its changes
        np.abs(steps, out=steps)
        before, had = steps[opens[sizes > 0]], np.abs(off[sizes > 0])
        steps = np.diff(steps)
        steps[opens[sizes > 0]] += before - had
        return float(np.abs(off).sum() / 2), gammas, steps / 2

    def _weights(self, weights: np.ndarray | None) -> np.ndarray:
        n = len(self.start)
        return np.full(n, 1 / n) if weights is None else np.asarray(weights, np.float64) / np.sum(weights)

    @cached_property
    def _by_class(self) -> tuple[np.ndarray, ...]:
        """Gains and losses by class, then by gamma: independent of the weights, so sorted once.

        Their gammas, their places in the weights followed by the weights negated, how many each class has, and where
        its first one is.
        """
        changed, n = np.concatenate([self.new_class, self.old_class]), len(self.start)
        gamma = np.concatenate([self.gamma, self.gamma])
        order = np.lexsort((gamma, changed))
        sizes = np.bincount(changed, minlength=self.classes)
        return gamma[order], np.concatenate([self.sample, self.sample + n])[order], sizes, np.cumsum(sizes) - sizes


def compute_envelope(
    logits: Any, rule: Rule, range: tuple[float, float], *, kind: Kind = "logits", progress: RowProgress | None = None
) -> Envelope:
    """The envelope under a rule (without a kept bias), chunk by chunk."""
    if rule.bias is not None:
        raise LevelheadError("the envelope is of straight lines, which a kept bias bends; ask at single gammas")

    def block(first: int, part: np.ndarray) -> tuple[np.ndarray, list[tuple]]:
        start = (rule.scores(part, range[0]) if range[0] else part).argmax(axis=1)  # at 0 scores are the logits
        return start, [(rows + first, gamma, new, old) for rows, gamma, new, old in _walk(part, start, rule, range)]

    starts, events = [], []
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy lets go of the interpreter while it works
        for offset, chunk in read_chunks(logits, kind=kind, progress=progress):
            step = max(1, _BLOCK // chunk.shape[1])
            firsts = np.arange(0, len(chunk), step)
            for start, found in pool.map(block, firsts + offset, [chunk[i : i + step] for i in firsts]):
                starts.append(start)
                events += found
    if not events:
        events = [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))]
    sample, gamma, new_class, old_class = (np.concatenate(parts) for parts in zip(*events, strict=True))
    order = np.argsort(gamma, kind="stable")
    return Envelope(np.concatenate(starts), sample[order], gamma[order], new_class[order], old_class[order],
                    logits.shape[1], range)


def _walk(logits: np.ndarray, start: np.ndarray, rule: Rule, range: tuple[float, float]) -> Iterator[tuple]:
    """Follow each row's envelope: from the winner's line to the first line that crosses it, until the range ends."""
    classes = _contenders(logits, start, rule, range)
    height, slope = _lines(logits, classes, rule)
    rows, column = np.arange(len(start)), np.zeros(len(start), np.int64)
    while len(rows):
        h, s, current = (np.take_along_axis(x, column[:, None], 1) for x in (height, slope, classes))
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.where(slope > s, snap((h - height) / (slope - s)), np.inf)
        when = at.min(axis=1)
        tied = at == when[:, None]
        column = np.where(tied, slope, -np.inf).argmax(axis=1)
        new = np.take_along_axis(classes, column[:, None], 1)[:, 0]
        here = np.where(tied | (classes == current), classes, logits.shape[1]).min(axis=1)  # wins the tie itself
        current, alive = current[:, 0], when <= range[1]
        alone = alive & (here != current) & (here != new)
        if alone.any():  # three lines or more through one point, and one that leads nowhere else comes first
            yield rows[alone], when[alone], here[alone], current[alone]
        enters = np.where(here == new, when, np.nextafter(when, np.inf))
        shown = alive & (enters <= range[1])
        yield rows[shown], enters[shown], new[shown], np.where(alone, here, current)[shown]
        rows, column, height, slope, classes = (x[shown] for x in (rows, column, height, slope, classes))


def _contenders(logits: np.ndarray, start: np.ndarray, rule: Rule, range: tuple[float, float]) -> np.ndarray:
    """The classes that each row's envelope can touch, [n, C]: the first winner first, which also fills short rows.

    The lines of the winners at the two ends of the range cross at one gamma. A line that is below both there is below
    the first one all the way from the beginning, where that one wins, and below the last one all the way to the end.
    """
    end = rule.scores(logits, range[1]).argmax(axis=1)
    height, slope = _lines(logits, np.stack([start, end], axis=1), rule)
    rise = slope[:, 1] - slope[:, 0]
    crossing = np.divide(height[:, 0] - height[:, 1], rise, out=np.full(len(start), range[0]), where=rise > 0)
    at = np.clip(crossing, *range)[:, None]
    scores = at * rule.slopes
    if rule.multiplies:
        np.exp(scores, out=scores)
        scores *= logits
    else:
        scores += logits
    level = np.take_along_axis(scores, start[:, None], 1)
    reaches = scores >= level - 1e-9 * (np.abs(level) + np.abs(at) * np.abs(rule.slopes).max())
    np.put_along_axis(reaches, start[:, None], False, 1)
    row, reached = np.nonzero(reaches)
    size = reaches.sum(axis=1)
    found = np.repeat(start[:, None], 1 + size.max(initial=0), axis=1)
    found[row, 1 + np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)] = reached
    return found


def _lines(logits: np.ndarray, classes: np.ndarray, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """Height at 0 and slope of the lines of each row's classes [n, C]; -inf where the sign is not the highest."""
    values, slopes = np.take_along_axis(logits, classes, 1).astype(np.float64), rule.slopes[classes]
    if not rule.multiplies:
        return values, slopes
    sign = np.sign(values)
    top = sign.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        height = np.where(top == 0, 0.0, sign * np.log(np.abs(values)))
    return np.where(sign == top, height, -np.inf), np.where(sign == top, top * slopes, -np.inf)
