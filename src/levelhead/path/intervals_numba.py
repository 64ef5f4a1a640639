"""`find_intervals` compiled by numba (extra `fast`): the same bounds and half-lines, in one pass over the logits.

This module is imported only when it is used. A row stays in cache and is read in blocks. Vector instructions find the
largest score of a block. Only blocks in which a class may be ahead of y are read class by class.
"""

# pyright: reportMissingImports=false, reportArgumentType=false

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from ..rules.direction import Direction
from .intervals import NEAR_ONE, TabulatedRule, find_intervals

BLOCK = np.uint64(256)
POSITION = np.int32(255)  # the bits that hold a position in a block


def find_intervals_numba(
    logits: np.ndarray, labels: np.ndarray, rule: Direction, table: TabulatedRule
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `find_intervals` returns, which is called for all but float32; NaN where a row is not finite."""
    if logits.dtype != np.float32:
        if np.isfinite(logits).all():
            return find_intervals(logits, labels, rule, table)
        return np.full(len(logits), np.nan), np.full(len(logits), np.nan)
    lo, hi = np.empty(len(logits)), np.empty(len(logits))
    margin = np.array([table.relative, table.absolute], np.float32)
    fill, logits = _compile_rows(logits.shape[1] <= BLOCK), np.ascontiguousarray(logits)
    fill(logits, labels, rule.slopes, table.gammas, table.moves, margin, rule.multiplies, lo, hi)
    zero = np.flatnonzero(np.isnan(lo) & ~np.isnan(hi))
    if len(zero):
        lo[zero], hi[zero] = find_intervals(logits[zero], labels[zero], rule, table)
    return lo, hi


@cache
def _compile_rows(narrow: bool) -> Any:
    """Return the loop over rows, compiled for rows of one block or of several."""

    @njit(cache=True, nogil=True)
    def fill(logits, labels, slopes, gammas, moves, margin, multiplies, lo, hi):
        """Fill lo and hi. Both become NaN where the row is not finite, and lo alone where y's score is too near 0."""
        # y must not be its own rival. To need no branch, a pass replaces its move: its score becomes 0 or -inf.
        last, width = len(gammas) - 1, np.uint64(logits.shape[1])
        scale, rivals = last / (gammas[last] - gammas[0]), np.empty(BLOCK, np.uint64)
        for i in range(len(labels)):
            if not _finite(logits, i, width):
                lo[i] = hi[i] = np.nan
                continue
            y, low, high = np.uint64(labels[i]), gammas[0], gammas[last]
            logit, true, slope = logits[i, y], np.float64(logits[i, y]), slopes[y]
            away = np.float32(-np.inf if not multiplies else 0 if logit > 0 else np.inf)
            late = early = width  # the first class at each end of the range
            if multiplies and logit >= 0:
                smallest = logit * min(moves[0, y], moves[last, y])
                if smallest <= 2 * margin[1]:
                    lo[i], hi[i] = np.nan, 0
                    continue
            for end in range(2):
                at = np.uint64(last * end)
                own = moves[at, y]
                least = _least(logit, own, margin, multiplies)
                best, block, first = _key(least), np.uint64(0), width
                moves[at, y] = away
                if not narrow:
                    block = width
                    for start in range(np.uint64(0), width, BLOCK):
                        stop = min(start + BLOCK, width)
                        top = _largest_key(logits, i, moves, at, start, stop, least > 0, multiplies)
                        if top >= best:
                            best, block = top, start
                elif multiplies and least > 0:
                    block = width
                    top = _largest_positive(logits, i, moves, at, width)
                    if top | POSITION >= best:
                        first = np.uint64(top & POSITION)
                if block < width:
                    top = _largest_with_position(logits, i, moves, at, block, min(block + BLOCK, width), multiplies)
                    if top | POSITION >= best:
                        first = block + np.uint64(top & POSITION)
                moves[at, y] = own
                if first < width:
                    other, rise = np.float64(logits[i, first]), slopes[first] - slope
                    low, high = _intersect(true, other, rise, y < first, multiplies, low, high)
                    late, early = (late, first) if end else (first, early)
                    if low > high:  # it is ahead of y over the whole range
                        break
            for end in range(2):
                if (early if end else late) == width or low > high:
                    continue
                bound = np.ceil((high - gammas[0]) * scale) if end else np.floor((low - gammas[0]) * scale)
                at = np.uint64(min(max(int(bound), 0), last))
                done = y, late if late < width else y, early if early < width else y  # none of these is a new rival
                kept = moves[at, done[0]], moves[at, done[1]], moves[at, done[2]]
                least = _least(logit, kept[0], margin, multiplies)
                for k in done:
                    moves[at, k] = away
                for start in range(np.uint64(0), width, BLOCK):
                    stop = min(start + BLOCK, width)
                    if _count(logits, i, moves, at, start, stop, least, multiplies) > 0:
                        count = 0
                        for k in range(start, stop):  # no branch, which would often be mispredicted
                            rivals[count] = k
                            count += _score(logits[i, k], moves[at, k], multiplies) >= least
                        for k in rivals[:count]:
                            other, rise = np.float64(logits[i, k]), slopes[k] - slope
                            low, high = _intersect(true, other, rise, y < k, multiplies, low, high)
                for j in range(3):
                    moves[at, done[j]] = kept[j]
            lo[i], hi[i] = (low, high) if low <= high else (np.inf, -np.inf)

    return fill


@njit(cache=True, nogil=True, inline="always")
def _finite(logits, i, width):
    """Return whether a row is finite: NaN and infinity have the largest exponent."""
    top = np.int32(0)
    for k in range(width):
        top = max(top, np.int32(np.float32(logits[i, k]).view(np.int32) & np.int32(0x7FFFFFFF)))
    return top < np.int32(0x7F800000)


@njit(cache=True, nogil=True, inline="always")
def _score(logit, move, multiplies):
    return logit * move if multiplies else logit + move


@njit(cache=True, nogil=True, inline="always")
def _least(logit, move, margin, multiplies):
    """Return the least score that may be ahead of y's without rounding."""
    own = _score(logit, move, multiplies)
    return own - (margin[0] * abs(own) + margin[1])


@njit(cache=True, nogil=True, inline="always")
def _key(score):
    """Return a score as an integer of the same order. Vector instructions find the largest integer."""
    bits = np.float32(score).view(np.int32)
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(cache=True, nogil=True, inline="always")
def _largest_key(logits, i, moves, at, start, stop, positive, multiplies):
    """Return the largest key of a block. If only positive scores count, their own bits are in order."""
    top = np.int32(-2147483648)
    if multiplies and positive:
        for k in range(start, stop):
            top = max(top, np.float32(logits[i, k] * moves[at, k]).view(np.int32))
    elif multiplies:
        for k in range(start, stop):
            top = max(top, _key(logits[i, k] * moves[at, k]))
    else:
        for k in range(start, stop):
            top = max(top, _key(logits[i, k] + moves[at, k]))
    return top


@njit(cache=True, nogil=True, inline="always")
def _largest_with_position(logits, i, moves, at, start, stop, multiplies):
    """Return the largest key of a block, with its position in the last bits: any of the strongest rivals will do."""
    top = np.int32(-2147483648)
    for k in range(start, stop):
        key = _key(_score(logits[i, k], moves[at, k], multiplies))
        top = max(top, np.int32((key & ~POSITION) | np.int32(k - start)))
    return top


@njit(cache=True, nogil=True)
def _largest_positive(logits, i, moves, at, width):
    """Return the same for a row of one block, if only positive scores count."""
    top = np.int32(-2147483648)
    for k in range(width):
        bits = np.float32(logits[i, k] * moves[at, k]).view(np.int32)
        top = max(top, np.int32((bits & ~POSITION) | np.int32(k)))
    return top


@njit(cache=True, nogil=True, inline="always")
def _count(logits, i, moves, at, start, stop, least, multiplies):
    """Return how many scores of a block are at least `least`."""
    found = np.int32(0)
    if multiplies:
        for k in range(start, stop):
            found = np.int32(found + np.int32(logits[i, k] * moves[at, k] >= least))
    else:
        for k in range(start, stop):
            found = np.int32(found + np.int32(logits[i, k] + moves[at, k] >= least))
    return found


@njit(cache=True, nogil=True, inline="always")
def _intersect(true, other, rise, first, multiplies, low, high):
    """Intersect [low, high] with `winning_range` of one pair."""
    if rise == 0 or (multiplies and (true == 0 or other == 0 or (true > 0) != (other > 0))):
        return (low, high) if true > other or (true == other and first) else (np.inf, -np.inf)
    if multiplies:
        flat, steep = (true, other) if rise > 0 else (other, true)  # the same bits for either of the two
        gap = np.log(flat / steep)  # of two float32: no quotient overflows
        if abs(gap) < NEAR_ONE:
            gap = np.log1p((flat - steep) / steep)
        gap = gap if rise > 0 else -gap
    else:
        gap = true - other
    at = _snap(gap / rise)
    if (rise > 0) == (true > 0 or not multiplies):
        return low, min(high, at if first else np.nextafter(at, -np.inf))
    return max(low, at if first else np.nextafter(at, np.inf)), high


@njit(cache=True, nogil=True, inline="always")
def _snap(gamma):
    scaled = gamma * 64000
    near = np.rint(scaled)
    off = abs(scaled - near)
    return near / 64000 if off < 1e-4 and off <= 1e-13 * abs(near) else gamma
