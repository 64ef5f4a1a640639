"""Predictions along the whole path: the walk from one change of a prediction to the next, and shares of classes.

The winner of a row is always among its logits of the highest sign, whose (log) scores are straight lines in gamma. The
prediction changes where the upper envelope of these lines bends, and only to a class of a steeper line.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..support.arrays import (
    SCRATCH,
    CheckedLogits,
    check_logits,
    few_threads,
    is_torch,
    lower_masked,
    to_numpy,
)
from ..support.errors import LevelheadError
from ..support.progress import RowProgress
from ..support.types import Kind
from .curve import Curve, accumulate, ascending, stable_order
from .direction import Direction, TabulatedRule, crossing, winning_range

CACHED_NUMBERS = 1 << 18  # numbers worked on at a time: what fits in a cache
TINY, ENLARGED = 1e-290, 200  # logits nearer to 0 than this are multiplied by this power of two


def compute_envelope(
    logits: Any,
    rule: Direction,
    range: tuple[float, float],
    *,
    kind: Kind = "logits",
    progress: RowProgress | None = None,
) -> Envelope:
    """Compute the envelope under a rule without a kept bias, chunk by chunk."""
    if rule.bias is not None:
        raise LevelheadError(
            "the envelope needs straight lines, which a kept bias bends; use predictions(gamma)"
        )
    # float32 logits are compared with a table of factors; others, by their scores in float64.
    table = TabulatedRule.of(rule, range, np.float32, fine=True)

    @np.errstate(over="ignore")  # of masked scores, which stay the lowest
    def walk_block(first: int, part: np.ndarray) -> tuple[np.ndarray, list[tuple]]:
        start = winners_at(part, rule, range[0])
        narrow = table if part.dtype == np.float32 else None
        # Only float64 holds logits so near 0 that crossings have few bits: such rows are walked apart, enlarged.
        tiny = (
            np.flatnonzero(has_tiny(part))
            if not rule.multiplies and part.dtype.itemsize > 4
            else ()
        )
        rest = np.setdiff1d(np.arange(len(part)), tiny) if len(tiny) else slice(None)
        places = np.arange(first, first + len(part))
        found = [
            (places[rest][rows], *event)
            for rows, *event in walk(part[rest], start[rest], rule, range, narrow)
        ]
        if len(tiny):
            again = walk_enlarged(part[tiny], start[tiny], rule, range)
            found += [(places[tiny][rows], *event) for rows, *event in again]
        return start, found

    starts, events = (
        [],
        [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))],
    )
    with ThreadPoolExecutor(few_threads()) as pool:  # numpy releases the interpreter lock
        for offset, chunk in read_chunks(logits, kind=kind, progress=progress):
            step = max(1, 8 * CACHED_NUMBERS // chunk.shape[1])
            if chunk.size >= 2 * CACHED_NUMBERS:
                step = min(step, -(-len(chunk) // 2))
            firsts = np.arange(0, len(chunk), step)
            each = pool.map if len(firsts) > 1 else map  # a thread costs more than a small block
            for start, found in each(
                walk_block, (firsts + offset).tolist(), [chunk[i : i + step] for i in firsts]
            ):
                starts.append(start)
                events += found
    fields = [np.concatenate(parts) for parts in zip(*events, strict=True)]
    order = ascending(fields[1])  # the changes of a row stay in their order
    return Envelope(
        np.concatenate(starts),
        *(each[order] for each in fields),
        classes=logits.shape[1],
        range=range,
    )


def walk(
    logits: np.ndarray,
    start: np.ndarray,
    rule: Direction,
    range: tuple[float, float],
    table: TabulatedRule | None,
) -> Iterator[tuple]:
    """Yield rows, gammas, new and old classes of the changes, those of one row in order."""
    row, classes = _reaching(logits, start, rule, range, table)
    own = logits.take(np.arange(0, logits.size, logits.shape[1]) + start).astype(np.float64)
    values = logits.take(row * logits.shape[1] + classes).astype(np.float64)
    return walk_lines(Lines(start, own, row, classes, values), rule, range[1])


class Lines(NamedTuple):
    """The lines that rows can reach after their first winner, row by row and then by class: arrays, or tensors."""

    start: Any  # [n], the first winner of each row
    own: Any  # [n], its logit
    row: Any  # [L], as all that follow
    classes: Any
    values: Any  # logits


def walk_lines(lines: Lines, rule: Direction, end: float) -> Iterator[tuple]:
    """Yield what `walk` does; the logits of first winners are overwritten."""
    start, own, row, classes, values = lines
    slopes, now, last = rule.slopes, start.copy(), np.full(len(start), -np.inf)
    # The logarithms of negative scores fall where the scores grow; 0 stays 0. Only lines of the winner's sign count.
    sign = np.sign(own) if rule.multiplies else np.ones(len(own))
    steep, slope = sign.take(row) * slopes.take(classes), sign * slopes.take(now)
    if rule.multiplies:
        steep[np.sign(values) != sign.take(row)] = -np.inf
    # Each turn of the loop moves all rows that are left by one bend: where the winner's line is first crossed by a
    # steeper one. A line that is not steeper never overtakes it and is dropped, so the loop ends.
    while len(kept := np.flatnonzero(steep > slope.take(row))):
        row, classes, values, steep = (
            row.take(kept),
            classes.take(kept),
            values.take(kept),
            steep.take(kept),
        )
        rise = slopes.take(classes) - slopes.take(now.take(row))
        at = crossing(own.take(row), values, rise, multiplies=rule.multiplies)
        opens = np.flatnonzero(
            np.diff(row, prepend=-1)
        )  # the lines of a row stand next to each other, by class
        some = row.take(opens)
        when = np.maximum(
            np.minimum.reduceat(at, opens), last.take(some)
        )  # rounding must not change their order
        last[some], slope[some] = np.where(when <= end, when, np.nan), np.inf
        # Of several lines that cross at once, the steepest leads after it. At the very crossing all of them tie with
        # the winner so far, and the smallest class index wins: for that one float it may be a third class (`alone`).
        tied = np.flatnonzero(at <= last.take(row))
        opens = np.flatnonzero(np.diff(row.take(tied), prepend=-1))
        some, first, sizes = (
            row.take(tied.take(opens)),
            classes.take(tied),
            np.diff(opens, append=len(tied)),
        )
        lead = tied
        if len(tied) > len(opens):
            steepest = steep[tied] == np.repeat(np.maximum.reduceat(steep[tied], opens), sizes)
            # Of equal slopes, which never cross, only the largest logit leads, by however little.
            height = np.where(steepest, values[tied], -np.inf)
            highest = height == np.repeat(np.maximum.reduceat(height, opens), sizes)
            lead = tied[highest]
            lead = lead[np.diff(row[lead], prepend=-1) > 0]
            first = np.minimum.reduceat(np.where(steepest & ~highest, len(slopes), first), opens)
        new, current, when = classes.take(lead), now.take(some), last.take(some)
        here = np.minimum(first, current)  # wins the tie itself
        alone = (here != current) & (here != new)
        if alone.any():  # three or more lines meet, and one that leads nowhere else wins there
            yield some[alone], when[alone], here[alone], current[alone]
        # A new winner that loses the tie leads from the next float on.
        enters = np.where(here == new, when, np.nextafter(when, np.inf))
        shown = np.flatnonzero(enters <= end)
        some, lead, new, enters = (
            some.take(shown),
            lead.take(shown),
            new.take(shown),
            enters.take(shown),
        )
        yield some, enters, new, np.where(alone, here, current).take(shown)
        now[some], own[some], slope[some], last[some] = (
            new,
            values.take(lead),
            steep.take(lead),
            enters,
        )


def walk_enlarged(
    logits: np.ndarray, start: np.ndarray, rule: Direction, range: tuple[float, float]
) -> Iterator[tuple]:
    """Walk rows whose logits are near 1e-323 under a rule that adds, with logits and gamma a power of two larger."""
    # Crossings of such logits are a few floats from 0: rounded, they would lose their order.
    with np.errstate(over="ignore"):
        larger = np.clip(np.ldexp(logits, ENLARGED), -1e300, 1e300)
    ends = math.ldexp(range[0], ENLARGED), math.ldexp(range[1], ENLARGED)
    for rows, enters, new, old in walk(larger, start, rule, ends, None):
        with np.errstate(under="ignore"):
            gamma = np.ldexp(enters, -ENLARGED)
        below = np.ldexp(gamma, ENLARGED) < enters  # of two floats, a class enters at the upper one
        yield rows, np.where(below, np.nextafter(gamma, np.inf), gamma), new, old


def has_tiny(logits: np.ndarray) -> np.ndarray:
    """Return which rows have their largest logit so near 0 that its crossings may have few bits, [n]."""
    few = (np.abs(logits) < TINY) & (logits != 0)
    return np.asarray(np.any(few, axis=1) & (np.abs(logits.max(axis=1)) < TINY))


@np.errstate(over="ignore")  # of a margin, within which every class is then looked at
def winners_at(logits: np.ndarray, rule: Direction, gamma: float) -> np.ndarray:
    """Return the class that wins at gamma, [n]. Where rounding could decide, scores are compared by their crossings."""
    if rule.bias is not None:  # which bends the lines: the path compares these scores as well
        return rule.scores(logits, gamma).argmax(axis=1)
    if gamma == 0:
        return logits.argmax(axis=1)
    # The largest factor is 1, or the largest addend 0, so that no score overflows.
    slopes = rule.slopes
    moves = gamma * (slopes - (slopes.max() if gamma > 0 else slopes.min()))
    scores = logits * np.exp(moves) if rule.multiplies else logits + moves
    found = scores.argmax(axis=1)
    level = np.take_along_axis(scores, found[:, None], 1)
    # A class within rounding of the winner takes its place if the crossing of the two lines, exact to its last bits,
    # says so. One class after another, so that the winner of all pairs is left.
    near = scores >= level - 1e-12 * (1 + abs(gamma) * np.abs(slopes).max()) * (1 + np.abs(level))
    rows = np.flatnonzero(near.sum(axis=1) > 1)
    for other in np.flatnonzero(near[rows].any(axis=0)):
        some = rows[near[rows, other] & (found[rows] != other)]
        own = found[some]
        pair = logits[some, own].astype(np.float64), logits[some, other].astype(np.float64)
        lo, hi = winning_range(
            *pair, slopes[other] - slopes[own], own < other, multiplies=rule.multiplies
        )
        found[some[(lo > gamma) | (gamma > hi)]] = other
    return found


def _reaching(
    logits: np.ndarray,
    start: np.ndarray,
    rule: Direction,
    range: tuple[float, float],
    table: TabulatedRule | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (row, class) of each class that the row's envelope can touch after its first winner."""
    # The lines of the winners at the two ends of the range cross at one gamma. A line below both there is below the
    # first winner's line from the start up to that gamma, and below the last winner's from there to the end. The same
    # holds for a line below the last winner's a little before they cross. So float32 and a table of factors do.
    step, width = (
        max(1, CACHED_NUMBERS // logits.shape[1]),
        logits.shape[1],
    )  # block by block: what fits in a cache
    parts = [slice(first, first + step) for first in np.arange(0, max(1, len(logits)), step)]
    end = np.concatenate([_last_winners(logits[part], rule, range[1], table) for part in parts])
    both = np.stack([start, end], axis=1)
    opens = np.arange(0, logits.size, width)  # flat positions are taken several times faster
    height, slope = _lines(logits.take(opens[:, None] + both).astype(np.float64), both, rule)
    rise = slope[:, 1] - slope[:, 0]
    meet = np.divide(
        height[:, 0] - height[:, 1], rise, out=np.full(len(start), range[0]), where=rise > 0
    )
    at, found = np.clip(meet, *range), []
    for part in parts:
        some, own = logits[part], opens[: len(start[part])]
        if table is not None:
            before = np.maximum(np.floor(table.positions(at[part])).astype(np.int64), 0)
            scores = SCRATCH.table("scores of lines", some.shape, np.float32)
            table.moves.take(
                before, axis=0, out=scores, mode="clip"
            )  # all within bounds: "clip" avoids a copy
            table.apply(scores, some, out=scores)
            level = scores.take(own + end[part])
            floor = level - table.margin(level)
        else:
            scores = at[part, None] * rule.slopes
            if rule.multiplies:
                scores -= scores.max(axis=1, keepdims=True)  # no factor overflows
                np.exp(scores, out=scores)
                scores *= some
            else:
                scores += some
            level = scores.take(own + start[part])
            margin = 1e-9 * (np.abs(level) + np.abs(at[part]) * np.abs(rule.slopes).max())
            floor = level - (margin + np.finfo(np.float64).tiny)
        scores.reshape(-1)[own + start[part]] = -np.inf
        reaches = np.greater_equal(
            scores, floor[:, None], out=SCRATCH.table("reaches", some.shape, np.bool_)
        )
        found.append(np.flatnonzero(reaches) + part.start * width)
    return np.divmod(np.concatenate(found), width)


def _last_winners(
    logits: np.ndarray, rule: Direction, gamma: float, table: TabulatedRule | None
) -> np.ndarray:
    """Return the class that wins at the end of the range, [n]: of float32, where rounding cannot decide."""
    if table is None:
        return winners_at(logits, rule, gamma)
    scores = table.apply(
        logits, table.moves[-1], out=SCRATCH.table("scores of lines", logits.shape, np.float32)
    )
    found = scores.argmax(axis=1)
    own = np.arange(0, logits.size, logits.shape[1]) + found
    level = scores.take(own)
    scores.reshape(-1)[own] = -np.inf
    close = np.flatnonzero(scores.max(axis=1) >= level - 2 * table.margin(level))
    if len(close):
        found[close] = winners_at(logits[close], rule, gamma)
    return found


def _lines(
    values: np.ndarray, classes: np.ndarray, rule: Direction
) -> tuple[np.ndarray, np.ndarray]:
    """Return height at 0 and slope of the lines of logits [n, C] of `classes`, all of the highest sign of their row."""
    if not rule.multiplies:
        return values, rule.slopes[classes]
    sign = np.sign(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        height = np.where(sign == 0, 0.0, sign * np.log(np.abs(values)))
    return height, sign * rule.slopes[classes]


_EVENT = ("sample", "gamma", "new_class", "old_class")  # the fields that describe a change


@dataclass(eq=False)
class Envelope:
    """Every change of every prediction over a range of gammas; at gamma[e], that for sample[e] gets a new class."""

    start: np.ndarray  # [N], the class predicted at the start of the range
    sample: np.ndarray  # [E], as all that follow, sorted by gamma
    gamma: np.ndarray
    new_class: np.ndarray
    old_class: np.ndarray
    classes: int  # K
    range: tuple[float, float]
    _part: tuple[tuple[float, float], Envelope] | None = field(
        default=None, init=False
    )  # the last of `between`

    def predictions(self, gamma: float) -> np.ndarray:
        """Return the class predicted at gamma, [N]."""
        found = self.start.copy()
        upto = np.searchsorted(self.gamma, gamma, side="right")
        found[self.sample[:upto]] = self.new_class[
            :upto
        ]  # in order of gamma, so the last assignment wins
        return found

    def where_right(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the interval [lo, hi] on which each sample's label is predicted, [N] each; lo > hi if none is."""
        (begin, end), true = self.range, labels[self.sample]
        enters, leaves = (np.flatnonzero(of == true) for of in (self.new_class, self.old_class))
        lo, hi = np.where(self.start == labels, begin, np.inf), np.full(len(labels), end)
        lo[self.sample[enters]], hi[self.sample[leaves]] = (
            self.gamma[enters],
            np.nextafter(self.gamma[leaves], -np.inf),
        )
        return lo, np.where(lo < np.inf, hi, -np.inf)

    def joined(self, others: Sequence[Envelope]) -> Envelope:
        """Return the envelope of these samples and then those of others."""
        every = [self, *others]
        offsets = np.cumsum([0, *(len(part.start) for part in every[:-1])])
        sample = [part.sample + offset for part, offset in zip(every, offsets, strict=True)]
        gamma, new, old = (
            np.concatenate([getattr(part, name) for part in every]) for name in _EVENT[1:]
        )
        # A stable sort keeps the changes of one sample, which come from one part, in their order.
        order = np.argsort(gamma, kind="stable")
        events = dict(
            zip(
                _EVENT,
                (each[order] for each in (np.concatenate(sample), gamma, new, old)),
                strict=True,
            )
        )
        return replace(self, start=np.concatenate([part.start for part in every]), **events)

    def within(self, range: tuple[float, float]) -> Envelope:
        """Return the envelope over a part of the range."""
        return replace(self.between(*range), range=range)

    def between(self, low: float, high: float) -> Envelope:
        """Return the changes after `low` and up to `high`, from what is predicted at `low`."""
        known = self._part
        if known is None or known[0] != (low, high):
            begin, end = np.searchsorted(self.gamma, [low, high], side="right")
            some = {name: getattr(self, name)[begin:end] for name in _EVENT}
            known = self._part = (low, high), replace(self, start=self.predictions(low), **some)
        return known[1]

    def shares(self, gamma: float, weights: np.ndarray | None = None) -> np.ndarray:
        """Return the share of each class among the predictions at gamma, [K]. Samples weigh `weights` [N]."""
        return np.bincount(self.predictions(gamma), self._weights(weights), self.classes)

    def mismatch(
        self, target: np.ndarray | None = None, weights: np.ndarray | None = None
    ) -> Curve:
        """Return half the sum of ``|share - target|`` over gamma. The target [K] sums to 1, and is uniform if None."""
        (start, steps), gammas = self.mismatch_steps(target, weights), self.gamma[self.by_class[0]]
        order = np.argsort(gammas)
        return accumulate(start, gammas[order], steps[order], self.range)

    def mismatch_steps(
        self, target: np.ndarray | None = None, weights: np.ndarray | None = None
    ) -> tuple[float, np.ndarray]:
        """Return the mismatch at the start of the range, and the size of each step, in the order of `by_class`."""
        # A gain or a loss moves only its own class's term of the sum, and the changes of a class, in order, give its
        # share after each. So no table of changes by classes is needed.
        target = (
            np.full(self.classes, 1 / self.classes)
            if target is None
            else np.asarray(target, np.float64)
        )
        weight = self._weights(weights)
        off = (
            np.bincount(self.start, weight, self.classes) - target
        )  # share - target of each class at the start
        _, sample, sign, sizes, opens = self.by_class
        # One cumulative sum over the changes of all classes, one class after another. Less its value where a class
        # opens, and plus what that class was off at the start, it says how far off the class is after each change.
        steps = np.empty(len(sample) + 1)
        steps[0] = 0.0
        np.cumsum(weight[sample] * sign, out=steps[1:])
        steps[1:] += np.repeat(off - steps[opens], sizes)
        # The mismatch moves by the differences of the distances. The first of a class is from its start, and not from
        # the last change of the class before it.
        np.abs(steps, out=steps)
        before, had = steps[opens[sizes > 0]], np.abs(off[sizes > 0])
        steps = np.diff(steps)
        steps[opens[sizes > 0]] += before - had
        return float(np.abs(off).sum() / 2), steps / 2

    def _weights(self, weights: np.ndarray | None) -> np.ndarray:
        n = len(self.start)
        return (
            np.full(n, 1 / n)
            if weights is None
            else np.asarray(weights, np.float64) / np.sum(weights)
        )

    @cached_property
    def by_class(self) -> tuple[np.ndarray, ...]:
        """Gains and losses of samples, by class and then by gamma, sorted once for all weights: the change of each, its
        sample, and whether the class gains it (1) or loses it (-1); and for each class how many and the first."""
        # The gain and the loss of a change stand next to each other, in the order of the changes, which is that of
        # gamma: a stable sort by class then leaves every class's changes in the order of gamma.
        changed = np.empty(2 * len(self.sample), np.uint16 if self.classes <= 1 << 16 else np.int64)
        changed[::2], changed[1::2] = self.new_class, self.old_class
        order, sizes = stable_order(changed), np.bincount(changed, minlength=self.classes)
        sign = 1.0 - 2 * (
            order & 1
        )  # a gain and a loss of a class at one gamma may come in any order
        order >>= 1
        return order, self.sample[order], sign, sizes, np.cumsum(sizes) - sizes

    def take(self, rows: np.ndarray) -> Envelope:
        """Return the changes of some samples, rows [n] in ascending order. What is sorted is not sorted again."""
        position = np.full(len(self.start), -1)
        position[rows] = np.arange(len(rows))
        place = position[self.sample]
        kept = place >= 0
        events = {name: getattr(self, name)[kept] for name in _EVENT} | {"sample": place[kept]}
        found = replace(self, start=self.start[rows], **events)
        # What is left of a sorted order is sorted: the gains and losses of the kept changes, with each change's number
        # among the kept ones (how many are kept up to it, less one) and each sample's place among the rows.
        order, _, sign, sizes, _ = self.by_class
        some = kept[order]
        left = np.bincount(np.repeat(np.arange(self.classes), sizes)[some], minlength=self.classes)
        order = (np.cumsum(kept) - 1)[order[some]]
        found.by_class = order, found.sample[order], sign[some], left, np.cumsum(left) - left
        return found


def read_chunks(
    logits: Any,
    *,
    kind: Kind = "logits",
    size: int = 1 << 22,
    check: bool = True,
    progress: RowProgress | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, logits [n, K]) of each chunk of about `size` numbers, with logarithms of probabilities."""
    # No more than one chunk of a memory-mapped file stays in memory. `check` is whether all values must be finite.
    if getattr(logits, "ndim", None) != 2:
        logits, kind = (
            check_logits(logits, kind=kind),
            "logits",
        )  # raises, or turns a list into an array
    total, step, checked = (
        len(logits),
        max(1, size // max(1, logits.shape[1])),
        isinstance(logits, CheckedLogits),
    )
    for first in range(0, total, step):
        _check_not_shorter(logits)
        part = logits[first : first + step]
        part = to_numpy(part) if is_torch(part) else np.asarray(part)
        part = (
            part.astype(np.float32) if part.dtype == np.float16 else part
        )  # sums of float16 overflow
        if not checked and (kind != "logits" or part.dtype.kind != "f"):
            part = check_logits(part, kind=kind, first=first)
        elif not checked and first == 0 and part.shape[1] > 1:
            check_logits(part[:1000])
        yield first, lower_masked(part, first) if check and not checked else part
        file = (
            logits._mmap  # pyright: ignore
            if isinstance(logits, np.memmap) and logits.mode in ("r", "r+")
            else None
        )
        if file is not None and hasattr(
            mmap, "MADV_DONTNEED"
        ):  # drop its pages; the system reads them again if needed
            file.madvise(mmap.MADV_DONTNEED)
        if progress is not None:
            progress(min(first + step, total), total)


def _check_not_shorter(values: Any) -> None:
    """Check that a memory-mapped file is still as long as its map: reading what is gone would end the process."""
    if (
        isinstance(values, np.memmap)
        and isinstance(values.base, mmap.mmap)
        and values.filename is not None
    ):
        with suppress(FileNotFoundError):  # its name is gone, its content is not
            if os.stat(values.filename).st_size < values.offset + values.nbytes:
                shorter = "became shorter while it was read; try again when nothing writes to it"
                raise LevelheadError(f"{values.filename}: {shorter}")
