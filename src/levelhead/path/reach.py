"""The lines that can matter: those that the envelope of a row can touch, which are few.

Of 1000 classes, most never win between the two ends of a range. `reaching_lines` looks at all
scores of a row at one gamma only, and what it leaves out need not be followed at all.

Its answer may have lines too many, which the walk drops later, but never one too few. So the work here is done
in float32, in blocks that stay in the cache, with a margin for rounding (`_narrow_scores`); for float64
logits it is done in float64 (`_wide_scores`).
"""

from __future__ import annotations

import numpy as np

from ..support.threads import SCRATCH
from .direction import Direction, MoveTable
from .winners import winners_at_end

CACHED_NUMBERS = 1 << 18  # numbers worked on at a time: what fits in a cache


def reaching_lines(
    logits: np.ndarray,
    start: np.ndarray,
    direction: Direction,
    range: tuple[float, float],
    table: MoveTable | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (row, class) of each line that a row's envelope can touch after its first winner.

    A line that wins at both ends of the range wins everywhere between: such rows have no other lines.
    Elsewhere, the lines of the winners at the two ends meet at one gamma. A line that is below both
    there is below the first winner's line from the start up to that gamma, and below the last
    winner's from there to the end: it is never part of the envelope. The same holds for a line that
    is below the last winner's a little before they meet, so float32 and a table of factors will do.

    Args:
        logits: [n, K], finite.
        start: [n], who wins at the start of the range.
        direction: how scores depend on gamma.
        range: from and to.
        table: the direction over this range for float32 logits; None for others.

    Returns:
        Two arrays [L], by row, and within a row by class.
    """
    width = logits.shape[1]
    step = max(1, CACHED_NUMBERS // width)
    blocks = [slice(first, first + step) for first in np.arange(0, max(1, len(logits)), step)]
    end = np.concatenate(
        [winners_at_end(logits[block], direction, range[1], table) for block in blocks]
    )
    rows = []
    classes = []
    for block in blocks:
        # Rows that are predicted the same at both ends have no change between.
        changing = np.flatnonzero(start[block] != end[block]) + block.start
        changing_logits = logits.take(changing, axis=0)
        # Flat positions are taken several times as fast as (row, class).
        opens = np.arange(0, changing_logits.size, width)
        first = opens + start.take(changing)
        last = opens + end.take(changing)
        # Scores where the two winners' lines meet, or just before; a line reaches theirs, or not.
        meet = _where_meet(changing_logits, first, last, direction, range)
        if table is not None:
            scores, floor = _narrow_scores(changing_logits, meet, last, table)
        else:
            scores, floor = _wide_scores(changing_logits, meet, first, direction)
        scores.reshape(-1)[first] = -np.inf  # the first winner's own line
        reaches = SCRATCH.table("reaches", changing_logits.shape, np.bool_)
        np.greater_equal(scores, floor[:, None], out=reaches)
        row, of_class = np.divmod(np.flatnonzero(reaches), width)
        rows.append(changing.take(row))
        classes.append(of_class)
    return np.concatenate(rows), np.concatenate(classes)


def _where_meet(
    logits: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    direction: Direction,
    range: tuple[float, float],
) -> np.ndarray:
    """Return the gamma within the range at which two lines of each row meet, [n].

    By plain logarithms, not as exact as `crossing`: it is only where scores are looked at, and any gamma
    near it does.

    Args:
        logits: [n, K].
        first, last: [n] each, where the logits of the two stand in `logits`, as flat positions.
    """
    pairs = np.stack([first, last], axis=1)
    height = logits.take(pairs).astype(np.float64)
    slope = direction.slopes.take(pairs % logits.shape[1])
    if direction.multiplies:  # logarithms of scores; a winner of the highest sign has a line of it
        sign = np.sign(height)
        with np.errstate(divide="ignore", invalid="ignore"):
            height = np.where(sign == 0, 0.0, sign * np.log(np.abs(height)))
        slope = sign * slope
    rise = slope[:, 1] - slope[:, 0]
    gap = height[:, 0] - height[:, 1]
    meet = np.divide(gap, rise, out=np.full(len(first), float(range[0])), where=rise > 0)
    return np.clip(meet, *range)


def _narrow_scores(
    logits: np.ndarray, meet: np.ndarray, last: np.ndarray, table: MoveTable
) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 scores [n, K] at the gamma of the table before `meet`, and their floors [n].

    The floor of a row is the score of its last winner (flat positions `last` [n]), less what
    rounding may add to another: a line below it does not matter.
    """
    before = np.maximum(np.floor(table.positions(meet)).astype(np.int64), 0)
    scores = SCRATCH.table("scores of lines", logits.shape, np.float32)
    table.moves.take(before, axis=0, out=scores, mode="clip")  # all within: "clip" avoids a copy
    table.apply(scores, logits, out=scores)
    level = scores.take(last)
    return scores, level - table.margin(level)


def _wide_scores(
    logits: np.ndarray, meet: np.ndarray, first: np.ndarray, direction: Direction
) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 scores [n, K] at `meet`, and their floors [n], as `_narrow_scores` does.

    Both winners have the same score there, so it does not matter whose is taken.
    """
    scores = meet[:, None] * direction.slopes
    if direction.multiplies:
        scores -= scores.max(axis=1, keepdims=True)  # no factor overflows
        np.exp(scores, out=scores)
        scores *= logits
    else:
        scores += logits
    level = scores.take(first)
    rounding = 1e-9 * (np.abs(level) + np.abs(meet) * np.abs(direction.slopes).max())
    return scores, level - (rounding + np.finfo(np.float64).tiny)
