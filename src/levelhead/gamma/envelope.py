"""Predictions along the whole path: the upper envelope of each sample's scores.

The winner of a row is always among its logits of the highest sign, whose (log) scores are straight lines in gamma. The
prediction changes where the upper envelope of these lines bends, and only to a class of a steeper line.
"""

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
from .intervals import crossing, winning_range
from .rule import Rule

_BLOCK = 1 << 18  # numbers worked on at a time: what fits in a cache


@dataclass(frozen=True, eq=False)
class Envelope:
    """Every change of every prediction over a range of gammas.

    Args:
        start: [N], the class predicted at the start of the range.
        sample, gamma, new_class, old_class: [E], sorted by gamma: there, the prediction for `sample` changes from
            `old_class` to `new_class`.
        classes, range: K; of gamma.
    """

    start: np.ndarray
    sample: np.ndarray
    gamma: np.ndarray
    new_class: np.ndarray
    old_class: np.ndarray
    classes: int
    range: tuple[float, float]

    def predictions(self, gamma: float) -> np.ndarray:
        """Return the class predicted at gamma, [N]."""
        found = self.start.copy()
        upto = np.searchsorted(self.gamma, gamma, side="right")
        found[self.sample[:upto]] = self.new_class[:upto]  # in order of gamma, so the last assignment wins
        return found

    def joined(self, others: Sequence["Envelope"]) -> "Envelope":
        """Return the envelope of these samples and then those of others."""
        every = [self, *others]
        offsets = np.cumsum([0, *(len(part.start) for part in every[:-1])])
        gamma = np.concatenate([part.gamma for part in every])
        order = np.argsort(gamma, kind="stable")
        sample = np.concatenate([part.sample + offset for part, offset in zip(every, offsets, strict=True)])
        return replace(
            self,
            start=np.concatenate([part.start for part in every]),
            sample=sample[order],
            gamma=gamma[order],
            new_class=np.concatenate([part.new_class for part in every])[order],
            old_class=np.concatenate([part.old_class for part in every])[order],
        )

    def shares(self, gamma: float, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the share of each class among the predictions at gamma, [K]. Samples weigh `weights` [N]."""
        return np.bincount(self.predictions(gamma), self._weights(weights), self.classes)

    def mismatch(self, target: np.ndarray | None = None, weights: np.ndarray | None = None) -> Curve:
        """Return half the sum of ``|share - target|`` over gamma. The target [K] sums to 1, and is uniform if None."""
        start, gammas, steps = self.mismatch_steps(target, weights)
        order = np.argsort(gammas)
        return accumulate(start, gammas[order], steps[order], self.range)

    def mismatch_steps(
        self, target: np.ndarray | None = None, weights: np.ndarray | None = None
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the mismatch as its value at the start of the range, and the gamma and size of each step.

        A change moves only one class's term of the sum, and the changes of a class, in order, give its share after
        each. So no table of changes by classes is needed. The order of the steps does not depend on the arguments.
        """
        target = np.full(self.classes, 1 / self.classes) if target is None else np.asarray(target, np.float64)
        weight = self._weights(weights)
        off = np.bincount(self.start, weight, self.classes) - target
        gammas, signed, sizes, opens = self.by_class
        steps = np.empty(len(signed) + 1)
        steps[0] = 0.0
        np.cumsum(np.concatenate([weight, -weight])[signed], out=steps[1:])
        steps[1:] += np.repeat(off - steps[opens], sizes)  # how far off each class is after each of its changes
        np.abs(steps, out=steps)
        before, had = steps[opens[sizes > 0]], np.abs(off[sizes > 0])
        steps = np.diff(steps)
        steps[opens[sizes > 0]] += before - had
        return float(np.abs(off).sum() / 2), gammas, steps / 2

    def _weights(self, weights: np.ndarray | None) -> np.ndarray:
        n = len(self.start)
        return np.full(n, 1 / n) if weights is None else np.asarray(weights, np.float64) / np.sum(weights)

    @cached_property
    def by_class(self) -> tuple[np.ndarray, ...]:
        """Gains and losses of samples, by class and then by gamma, sorted once for all weights: their gammas, places in
        the weights followed by the negated weights, and for each class how many there are and which is the first."""
        changed, n = np.concatenate([self.new_class, self.old_class]), len(self.start)
        gamma = np.concatenate([self.gamma, self.gamma])
        order = np.lexsort((gamma, changed))
        sizes = np.bincount(changed, minlength=self.classes)
        return gamma[order], np.concatenate([self.sample, self.sample + n])[order], sizes, np.cumsum(sizes) - sizes


def compute_envelope(
    logits: Any, rule: Rule, range: tuple[float, float], *, kind: Kind = "logits", progress: RowProgress | None = None
) -> Envelope:
    """Compute the envelope under a rule without a kept bias, chunk by chunk."""
    if rule.bias is not None:
        raise LevelheadError("the envelope needs straight lines, which a kept bias bends; use predictions(gamma)")

    def walk_block(first: int, part: np.ndarray) -> tuple[np.ndarray, list[tuple]]:
        part = _scale_rows(part) if rule.multiplies and part.dtype.itemsize > 4 else part
        start = _winners(part, rule, range[0])
        return start, [(rows + first, gamma, new, old) for rows, gamma, new, old in _walk(part, start, rule, range)]

    starts, events = [], [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy releases the interpreter lock
        for offset, chunk in read_chunks(logits, kind=kind, progress=progress):
            step = max(1, _BLOCK // chunk.shape[1])
            firsts = np.arange(0, len(chunk), step)
            each = pool.map if len(firsts) > 1 else map  # a thread costs more than a small block
            for start, found in each(walk_block, firsts + offset, [chunk[i : i + step] for i in firsts]):
                starts.append(start)
                events += found
    sample, gamma, new_class, old_class = (np.concatenate(parts) for parts in zip(*events, strict=True))
    order = np.argsort(gamma, kind="stable")
    return Envelope(
        start=np.concatenate(starts),
        sample=sample[order],
        gamma=gamma[order],
        new_class=new_class[order],
        old_class=old_class[order],
        classes=logits.shape[1],
        range=range,
    )


def _walk(logits: np.ndarray, start: np.ndarray, rule: Rule, range: tuple[float, float]) -> Iterator[tuple]:
    """Follow each row's envelope: from the winner's line to the first line that crosses it, until the range ends."""
    classes = _contenders(logits, start, rule, range)
    values, slope = np.take_along_axis(logits, classes, 1).astype(np.float64), _lines(logits, classes, rule)[1]
    rows, column, last = np.arange(len(start)), np.zeros(len(start), np.int64), np.full(len(start), -np.inf)
    while len(rows):
        value, s = (np.take_along_axis(x, column[:, None], 1) for x in (values, slope))
        current = np.take_along_axis(classes, column[:, None], 1)
        steeper, at = np.nonzero(slope > s), np.full(slope.shape, np.inf)
        own, rise = current[steeper[0], 0], rule.slopes[classes[steeper]]
        rise -= rule.slopes[own]
        at[steeper] = crossing(value[steeper[0], 0], values[steeper], rise, multiplies=rule.multiplies)
        when = np.maximum(at.min(axis=1), last)  # where three lines meet, rounding must not change their order
        tied = at <= when[:, None]
        column = np.where(tied, slope, -np.inf).argmax(axis=1)
        new = np.take_along_axis(classes, column[:, None], 1)[:, 0]
        here = np.where(tied | (classes == current), classes, logits.shape[1]).min(axis=1)  # wins the tie itself
        current, alive = current[:, 0], when <= range[1]
        alone = alive & (here != current) & (here != new)
        if alone.any():  # three or more lines meet, and one that leads nowhere else wins there
            yield rows[alone], when[alone], here[alone], current[alone]
        enters = np.where(here == new, when, np.nextafter(when, np.inf))
        shown = alive & (enters <= range[1])
        yield rows[shown], enters[shown], new[shown], np.where(alone, here, current)[shown]
        rows, column, classes = (x[shown] for x in (rows, column, classes))
        values, slope, last = (x[shown] for x in (values, slope, enters))


def _winners(logits: np.ndarray, rule: Rule, gamma: float) -> np.ndarray:
    """Return the class that wins at gamma, [n]. Where rounding could decide, scores are compared by their crossings."""
    if gamma == 0:
        return logits.argmax(axis=1)
    scores = rule.scores(logits, gamma)
    found = scores.argmax(axis=1)
    level = np.take_along_axis(scores, found[:, None], 1)
    added = 0.0 if rule.multiplies else abs(gamma) * np.abs(rule.slopes).max()
    near = scores >= level - 1e-12 * (np.abs(level) + added)
    rows = np.flatnonzero(near.sum(axis=1) > 1)
    for other in np.flatnonzero(near[rows].any(axis=0)):
        some = rows[near[rows, other] & (found[rows] != other)]
        own = found[some]
        pair = logits[some, own].astype(np.float64), logits[some, other].astype(np.float64)
        lo, hi = winning_range(*pair, rule.slopes[other] - rule.slopes[own], own < other, multiplies=rule.multiplies)
        found[some[(lo > gamma) | (gamma > hi)]] = other
    return found


def _contenders(logits: np.ndarray, start: np.ndarray, rule: Rule, range: tuple[float, float]) -> np.ndarray:
    """Return the classes that each row's envelope can touch, [n, C]: the first winner first, which fills short rows.

    The lines of the winners at the two ends of the range cross at one gamma. A line below both there is below the first
    winner's line from the start up to that gamma, and below the last winner's line from there to the end.
    """
    end = rule.scores(logits, range[1]).argmax(axis=1)
    height, slope = _lines(logits, np.stack([start, end], axis=1), rule)
    rise = slope[:, 1] - slope[:, 0]
    meet = np.divide(height[:, 0] - height[:, 1], rise, out=np.full(len(start), range[0]), where=rise > 0)
    at = np.clip(meet, *range)[:, None]
    scores = at * rule.slopes
    if rule.multiplies:
        np.exp(scores, out=scores)
        scores *= logits
    else:
        scores += logits
    level = np.take_along_axis(scores, start[:, None], 1)
    margin = 1e-9 * (np.abs(level) + np.abs(at) * np.abs(rule.slopes).max())
    reaches = scores >= level - (margin + np.finfo(np.float64).tiny)
    np.put_along_axis(reaches, start[:, None], False, 1)
    row, reached = np.nonzero(reaches)
    size = reaches.sum(axis=1)
    found = np.repeat(start[:, None], 1 + size.max(initial=0), axis=1)
    found[row, 1 + np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)] = reached
    return found


def _scale_rows(logits: np.ndarray) -> np.ndarray:
    """Return logits with no score that overflows or is denormal: each row times a power of two, where there is need.

    What is then too large is below 0, and what is too small above 0: neither is ever the winner.
    """
    largest, smallest = np.abs(logits).max(), np.abs(logits).min(initial=np.inf, where=logits != 0)
    if largest < 1e150 and smallest > 1e-150:
        return logits
    _, exponent = np.frexp(logits.max(axis=1, keepdims=True))
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(np.ldexp(logits, -exponent), -1e300, 1e300)


def _lines(logits: np.ndarray, classes: np.ndarray, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """Return height at 0 and slope of the lines of each row's classes [n, C]; -inf if the sign is not the highest."""
    values, slopes = np.take_along_axis(logits, classes, 1).astype(np.float64), rule.slopes[classes]
    if not rule.multiplies:
        return values, slopes
    sign = np.sign(values)
    top = sign.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        height = np.where(top == 0, 0.0, sign * np.log(np.abs(values)))
    return np.where(sign == top, height, -np.inf), np.where(sign == top, top * slopes, -np.inf)
