"""`intervals` compiled by numba (the extra `fast`): the same bounds, the same half-lines, one read of the logits.

Imported only when it is asked for. A row stays in cache while it is passed over, in blocks whose largest score the
compiler finds with vector instructions; only a block in which something may come before y is looked at one by one.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import numpy as np
from numba import njit

from .intervals import Table
from .rule import Rule

BLOCK = 64


def intervals(logits: np.ndarray, labels: np.ndarray, rule: Rule, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """lo [N] and hi [N] of a block of logits [N, K]; the same as `intervals.intervals`."""
    lo, hi = np.empty(len(logits)), np.empty(len(logits))
    room = np.array([table.relative, table.absolute], logits.dtype)
    _rows(np.ascontiguousarray(logits), labels, rule.slopes, table.gammas, table.moves, room, rule.multiplies, lo, hi)
    return lo, hi


@njit(cache=True, nogil=True)
def _rows(logits, labels, slopes, gammas, moves, room, multiplies, lo, hi):
    for i in range(len(labels)):
        row, y = logits[i], labels[i]
        low, high = _tighten(row, y, False, slopes, gammas, moves, room, multiplies, gammas[0], gammas[-1])
        if low <= high:
            low, high = _tighten(row, y, True, slopes, gammas, moves, room, multiplies, low, high)
        lo[i], hi[i] = (low, high) if low <= high else (np.inf, -np.inf)


@njit(cache=True, nogil=True)
def _tighten(row, y, early, slopes, gammas, moves, room, multiplies, low, high):
    """Intersect [low, high] with the half-lines that bound it from above (early), or from below.

    Each class that comes before y at the bound, rounded outward to a gamma of the table, gives a nearer bound, and the
    next must come before y at that one: so one pass meets few.
    """
    last = len(gammas) - 1
    scale = last / (gammas[last] - gammas[0])
    at = last if early else 0
    least = _floor(row[y], moves[at, y], room, multiplies)
    for block in range(np.uint64(len(row) + BLOCK - 1) // np.uint64(BLOCK)):
        start = block * np.uint64(BLOCK)
        stop = min(start + np.uint64(BLOCK), np.uint64(len(row)))
        if stop - start < np.uint64(BLOCK) or _any(row, moves, at, start, least, multiplies):
            for k in range(start, stop):
                score = row[k] * moves[at, k] if multiplies else row[k] + moves[at, k]
                if score >= least and k != np.uint64(y):
                    low, high = _meet(np.float64(row[y]), np.float64(row[k]), slopes[k] - slopes[y], np.uint64(y) < k,
                                      multiplies, low, high)
                    if low > high:
                        return low, high
                    bound = np.ceil((high - gammas[0]) * scale) if early else np.floor((low - gammas[0]) * scale)
                    at = min(max(int(bound), 0), last)
                    least = _floor(row[y], moves[at, y], room, multiplies)
    return low, high


@njit(cache=True, nogil=True)
def _floor(logit, move, room, multiplies):
    """The least score that may come before y's in truth."""
    own = logit * move if multiplies else logit + move
    return own - (room[0] * abs(own) + room[1])


@njit(cache=True, nogil=True, inline="always")
def _any(row, moves, at, start, least, multiplies):
    """Whether a block holds a score of at least so much: counted, for a count compiles to vector instructions."""
    found = np.int32(0)
    if multiplies:
        for k in range(np.uint64(BLOCK)):
            found = np.int32(found + np.int32(row[start + k] * moves[at, start + k] >= least))
    else:
        for k in range(np.uint64(BLOCK)):
            found = np.int32(found + np.int32(row[start + k] + moves[at, start + k] >= least))
    return found > 0


@njit(cache=True, nogil=True)
def _meet(true, other, rise, first, multiplies, low, high):
    """`intervals.wins` of one pair, intersected with [low, high]."""
    if rise == 0 or (multiplies and (true == 0 or other == 0 or (true > 0) != (other > 0))):
        return (low, high) if true > other or (true == other and first) else (np.inf, -np.inf)
    if multiplies:
        gap = np.log(true / other)
        if gap == 0:
            gap = (true - other) / other
        elif np.isinf(gap):
            gap = np.log(abs(true)) - np.log(abs(other))
    else:
        gap = true - other
    at = _snap(gap / rise)
    if (rise > 0) == (true > 0 or not multiplies):
        return low, min(high, at if first else np.nextafter(at, -np.inf))
    return max(low, at if first else np.nextafter(at, np.inf)), high


@njit(cache=True, nogil=True)
def _snap(gamma):
    scaled = gamma * 64000
    near = np.rint(scaled)
    return near / 64000 if abs(scaled - near) <= 1e-13 * abs(near) else gamma
