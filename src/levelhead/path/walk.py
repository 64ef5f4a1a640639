"""The walk from one change of a prediction to the next, for all rows at once.

The winner of a row is always among its logits of the highest sign, whose (log) scores are straight lines
in gamma. What is predicted is the upper envelope of these lines: it changes where the envelope bends, and
only to the class of a steeper line.

1. `winners_at` (winners.py) says who wins at the start of the range.
2. `reaching_lines` (reach.py) finds out who wins at its end, and leaves out the lines that cannot be part of
   the envelope between the two: nearly all.
3. `walk_lines` follows what is left from bend to bend.

`compute_envelope` does that for all rows: it reads chunks (`read_chunks`), cuts them into blocks for a few
threads, calls `walk_rows` on each, and sorts all changes by gamma into an `Envelope`. Rows never meet before
that sort: a row's changes follow from its own K logits. A block of logits [n, K] becomes `Lines`, a flat list of
the L lines that matter, and that a list of `Changes`.

The first two steps go through all N K scores, the third only through the lines that are left of them.
walk_torch.py does the first two on a GPU, and calls `walk_lines` where it has no kernel for the third.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ..support.arrays import Array
from ..support.progress import RowProgress
from ..support.read import read_chunks
from ..support.threads import few_threads
from ..support.types import Kind
from .curve import ascending
from .direction import Direction, MoveTable, crossing
from .envelope import Envelope
from .reach import CACHED_NUMBERS, reaching_lines
from .winners import winners_at

TINY = 1e-290  # logits nearer to 0 than this ...
ENLARGED = 200  # ... are multiplied by this power of two


class Changes(NamedTuple):
    """Changes of predictions, [E] each; those of one row are in the order of gamma."""

    row: np.ndarray  # whose prediction changes
    gamma: np.ndarray  # the first float at which it has changed
    new_class: np.ndarray  # what is predicted from there on
    old_class: np.ndarray  # what was predicted before

    @staticmethod
    def none() -> Changes:
        """Return no changes at all."""
        whole = np.zeros(0, np.int64)
        return Changes(whole, np.zeros(0), whole, whole)

    def of_rows(self, rows: np.ndarray) -> Changes:
        """Return the same changes, where row i is called rows[i]."""
        return self._replace(row=rows[self.row])


class Lines(NamedTuple):
    """The lines that rows can reach after their first winner: arrays, or tensors of a GPU.

    Those of a row stand next to each other, by class.
    """

    start: Array  # [n], the first winner of each row
    own: Array  # [n], its logit in float64
    row: Array  # [L], of each line, ascending
    classes: Array  # [L], whose scores the lines are; ascending within a row
    values: Array  # [L], their logits in float64


# ---- All rows ----------------------------------------------------------------------------------


def compute_envelope(
    logits: Array,
    direction: Direction,
    range: tuple[float, float],
    *,
    kind: Kind = "logits",
    progress: RowProgress | None = None,
) -> Envelope:
    """Return every change of every prediction of logits [N, K], on the host.

    Chunks are read one after another, as a file may be larger than the memory; the blocks of a
    chunk are walked by a few threads; and all changes are put in the order of gamma at the end.

    Args:
        logits, direction, range, kind, progress: as in `find_changes`.
    """
    table = MoveTable.of(direction, range, np.float32)

    def walk_block(first: int, block: np.ndarray) -> tuple[np.ndarray, list[Changes]]:
        """Return first winners and changes of a block of rows, the first of which is `first`."""
        start, changes = walk_rows(block, direction, range, table)
        rows = np.arange(first, first + len(block))
        return start, [part.of_rows(rows) for part in changes]

    starts = []
    changes = [Changes.none()]  # so that there is something to join where nothing changes
    with ThreadPoolExecutor(few_threads()) as pool:  # numpy releases the interpreter lock
        for offset, chunk in read_chunks(logits, kind=kind, progress=progress):
            # A block is eight caches of numbers, which reach.py goes through one cache at a time.
            step = max(1, 8 * CACHED_NUMBERS // chunk.shape[1])
            if chunk.size >= 2 * CACHED_NUMBERS:
                step = min(step, -(-len(chunk) // 2))  # one for each of two threads at least
            firsts = np.arange(0, len(chunk), step)
            blocks = [chunk[first : first + step] for first in firsts]
            run = pool.map if len(firsts) > 1 else map  # a thread costs more than a small block
            for start, block_changes in run(walk_block, (firsts + offset).tolist(), blocks):
                starts.append(start)
                changes += block_changes
    joined = Changes(*(np.concatenate(parts) for parts in zip(*changes, strict=True)))
    order = ascending(joined.gamma)  # stable: the changes of a row stay in their order
    return Envelope(
        start=np.concatenate(starts),
        sample=joined.row[order],
        gamma=joined.gamma[order],
        new_class=joined.new_class[order],
        old_class=joined.old_class[order],
        classes=logits.shape[1],
        range=range,
    )


@np.errstate(over="ignore")  # of masked scores, which stay the lowest
def walk_rows(
    logits: np.ndarray, direction: Direction, range: tuple[float, float], table: MoveTable
) -> tuple[np.ndarray, list[Changes]]:
    """Return the class that wins at the start of the range, [n], and the changes of these rows.

    The table is for float32 logits; others are compared by their scores in float64.

    Args:
        logits: [n, K], finite.
        direction, range: as in `find_changes`.
        table: the direction over this range, in float32.
    """
    start = winners_at(logits, direction, range[0])
    narrow = None
    if logits.dtype == np.float32:
        narrow = table
    # Only float64 holds logits so near 0 that crossings have few bits: such rows are walked apart.
    tiny = np.zeros(0, np.int64)
    if not direction.multiplies and logits.dtype.itemsize > 4:
        tiny = np.flatnonzero(has_tiny(logits))
    if not len(tiny):
        return start, list(walk(logits, start, direction, range, narrow))
    # The two kinds of rows are walked by themselves, and called by their old numbers again.
    rest = np.setdiff1d(np.arange(len(logits)), tiny)
    changes = []
    for part in walk(logits[rest], start[rest], direction, range, narrow):
        changes.append(part.of_rows(rest))
    for part in walk_enlarged(logits[tiny], start[tiny], direction, range):
        changes.append(part.of_rows(tiny))
    return start, changes


def walk(
    logits: np.ndarray,
    start: np.ndarray,
    direction: Direction,
    range: tuple[float, float],
    table: MoveTable | None,
) -> Iterator[Changes]:
    """Yield the changes of rows [n, K] whose first winners are known, those of one row in order.

    Args:
        logits: [n, K].
        start: [n], the first winners.
        direction, range: as in `find_changes`.
        table: for float32 logits; None for others.
    """
    width = logits.shape[1]
    row, classes = reaching_lines(logits, start, direction, range, table)
    own = logits.take(np.arange(0, logits.size, width) + start).astype(np.float64)
    values = logits.take(row * width + classes).astype(np.float64)
    return walk_lines(Lines(start, own, row, classes, values), direction, range[1])


def walk_enlarged(
    logits: np.ndarray, start: np.ndarray, direction: Direction, range: tuple[float, float]
) -> Iterator[Changes]:
    """Walk rows whose logits are near 1e-323 under a direction that adds.

    Crossings of such logits are a few floats from 0: rounded, they would lose their order. So logits
    and gamma are both taken a power of two larger, which changes no order, and gamma is taken back.
    """
    with np.errstate(over="ignore"):
        larger = np.clip(np.ldexp(logits, ENLARGED), -1e300, 1e300)
    ends = math.ldexp(range[0], ENLARGED), math.ldexp(range[1], ENLARGED)
    for changes in walk(larger, start, direction, ends, None):
        with np.errstate(under="ignore"):
            gamma = np.ldexp(changes.gamma, -ENLARGED)
        # Between two floats, a class enters at the upper one.
        too_low = np.ldexp(gamma, ENLARGED) < changes.gamma
        gamma = np.where(too_low, np.nextafter(gamma, np.inf), gamma)
        yield changes._replace(gamma=gamma)


def has_tiny(logits: np.ndarray) -> np.ndarray:
    """Return which rows have their largest logit so near 0 that its crossings have few bits, [n]."""
    near_zero = (np.abs(logits) < TINY) & (logits != 0)
    return near_zero.any(axis=1) & (np.abs(logits.max(axis=1)) < TINY)


# ---- From bend to bend -------------------------------------------------------------------------


def walk_lines(lines: Lines, direction: Direction, end: float) -> Iterator[Changes]:
    """Yield the changes that lines make up to the end of the range; `lines.own` is overwritten.

    All rows take their first bend together, then their second, and so on: each turn of the loop is a
    handful of array operations on what is left, which is less at every turn. A row leaves the loop
    when no line is steeper than its winner's, or its next crossing is beyond the end.

    Args:
        lines: the lines that may overtake, row by row.
        direction: how scores depend on gamma.
        end: the last gamma, inclusive.

    Yields:
        One or two `Changes` a turn. The changes of one row come in the order of gamma.
    """
    slopes = direction.slopes
    multiplies = direction.multiplies
    # Of each row: who wins now, since when, its logit and its slope.
    now = lines.start.copy()
    since = np.full(len(now), -np.inf)
    own = lines.own
    # The logarithms of negative scores fall where the scores grow, and 0 stays 0. Only lines of the
    # winner's sign count: no other can overtake it.
    sign = np.ones(len(own))
    if multiplies:
        sign = np.sign(own)
    slope = sign * slopes.take(now)
    # Of each line: its row, class, logit, and how steep it is.
    row = lines.row
    classes = lines.classes
    values = lines.values
    steep = sign.take(row) * slopes.take(classes)
    if multiplies:
        steep[np.sign(values) != sign.take(row)] = -np.inf
    # Each turn moves all rows that are left by one bend: where the winner's line is first crossed by
    # a steeper one. A line that is not steeper never overtakes it and is dropped, so the loop ends.
    while len(kept := np.flatnonzero(steep > slope.take(row))):
        row = row.take(kept)
        classes = classes.take(kept)
        values = values.take(kept)
        steep = steep.take(kept)
        rise = slopes.take(classes) - slopes.take(now.take(row))
        at = crossing(own.take(row), values, rise, multiplies=multiplies)
        # The first crossing of each row; not before the last one, whatever rounding says.
        opens = _first_of_each(row)
        left = row.take(opens)
        when = np.maximum(np.minimum.reduceat(at, opens), since.take(left))
        # Rows whose next crossing is beyond the end are done: no line is steeper than infinity, and
        # none is tied at NaN. So are those that change now, until their new slope is known below.
        since[left] = np.where(when <= end, when, np.nan)
        slope[left] = np.inf
        tied = np.flatnonzero(at <= since.take(row))
        bend = _find_leaders(row, classes, values, steep, tied, len(slopes))
        bent = bend.row
        new = classes.take(bend.leader)
        old = now.take(bent)
        when = since.take(bent)
        # At the very crossing, all tied lines and the winner so far are equal, and the smallest class
        # wins. If that is neither the old nor the new winner, it wins at this one float only.
        here = np.minimum(bend.first, old)
        third = (here != old) & (here != new)
        if third.any():
            yield Changes(bent[third], when[third], here[third], old[third])
        # A new winner that loses the tie leads from the next float on.
        enters = np.where(here == new, when, np.nextafter(when, np.inf))
        inside = np.flatnonzero(enters <= end)
        bent = bent.take(inside)
        leader = bend.leader.take(inside)
        new = new.take(inside)
        enters = enters.take(inside)
        yield Changes(bent, enters, new, np.where(third, here, old).take(inside))
        # On from here, with the new winner's line.
        now[bent] = new
        since[bent] = enters
        own[bent] = values.take(leader)
        slope[bent] = steep.take(leader)


class _Bend(NamedTuple):
    """Who takes over, of each row that bends, [b] each."""

    row: np.ndarray
    leader: np.ndarray  # the place of the line that leads after the crossing
    first: np.ndarray  # the smallest class of those that tie at the crossing


def _find_leaders(
    row: np.ndarray,
    classes: np.ndarray,
    values: np.ndarray,
    steep: np.ndarray,
    tied: np.ndarray,
    width: int,
) -> _Bend:
    """Return who takes over where lines at places `tied` [t] cross their rows' winners at once.

    The steepest leads after the crossing. Of equal slopes, which never cross, only the largest logit
    leads, by however little; of equal logits, too, the first class. Three lines through one point are no
    rare thing: classes of equal counts and logits in few digits make them.

    Args:
        row, classes, values, steep: [L] each, of the lines that are left, by row and class.
        tied: [t], the places among these L of lines that cross now, ascending.
        width: K, which is beyond every class.
    """
    row = row.take(tied)
    classes = classes.take(tied)
    opens = _first_of_each(row)
    if len(tied) == len(opens):  # one line in each row, as nearly always
        return _Bend(row, tied, classes)
    # Of several lines in a row: the steepest, then the highest of these, then the first class, as lines
    # of a row are in the order of classes.
    sizes = np.diff(opens, append=len(tied))
    steep = steep.take(tied)
    steepest = steep == np.repeat(np.maximum.reduceat(steep, opens), sizes)
    height = np.where(steepest, values.take(tied), -np.inf)
    highest = height == np.repeat(np.maximum.reduceat(height, opens), sizes)
    leaders = tied[highest]
    leaders = leaders[_first_of_each(row[highest])]
    # A line below another of the same slope is below it at the crossing as well: it ties with none.
    first = np.minimum.reduceat(np.where(steepest & ~highest, width, classes), opens)
    return _Bend(row.take(opens), leaders, first)


def _first_of_each(row: np.ndarray) -> np.ndarray:
    """Return the place of the first of each of rows that ascend."""
    opens = np.empty(len(row), np.bool_)
    opens[:1] = True
    np.not_equal(row[1:], row[:-1], out=opens[1:])
    return np.flatnonzero(opens)
