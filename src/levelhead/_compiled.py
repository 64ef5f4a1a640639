"""`intervals` compiled by numba (the extra `fast`): the same bounds, the same half-lines, one read of the logits.

Imported only when it is asked for. A row stays in cache while it is passed over, in blocks whose largest score is found
with vector instructions; only a block in which something may come before y is looked at one by one.
"""

# pyright: reportMissingImports=false, reportArgumentType=false

from __future__ import annotations

import numpy as np
from numba import njit

from . import intervals as plain
from .rule import Rule

BLOCK = 128


def intervals(logits: np.ndarray, labels: np.ndarray, rule: Rule, table: plain.Table) -> tuple[np.ndarray, np.ndarray]:
    """lo [N] and hi [N] of a block of logits [N, K]: what `intervals.intervals` finds, which does all but float32."""
    if logits.dtype != np.float32:
        return plain.intervals(logits, labels, rule, table)
    lo, hi = np.empty(len(logits)), np.empty(len(logits))
    room = np.array([table.relative, table.absolute], np.float32)
    _rows(np.ascontiguousarray(logits), labels, rule.slopes, table.gammas, table.moves, room, rule.multiplies, lo, hi)
    return lo, hi


@njit(cache=True, nogil=True)
def _rows(logits, labels, slopes, gammas, moves, room, multiplies, lo, hi):
    last, width = len(gammas) - 1, logits.shape[1]
    scale, rivals = last / (gammas[last] - gammas[0]), np.empty(BLOCK, np.uint64)
    for i in range(len(labels)):
        y, low, high = labels[i], gammas[0], gammas[last]
        true, slope = np.float64(logits[i, y]), slopes[y]
        late = early = width  # the first class at each end of the range; none yet
        for end in range(2):
            at = last * end
            least = _least(logits[i, y], moves[at, y], room, multiplies)
            best, begin, stop = _key(least), 0, 0
            for side in range(2):
                a, b = (y + 1, width) if side else (0, y)
                for start in range(a, b, BLOCK):
                    top = _top(logits, i, moves, at, start, min(start + BLOCK, b), least > 0, multiplies)
                    if top >= best:
                        best, begin, stop = top, start, min(start + BLOCK, b)
            largest = _score_of(best)
            for k in range(np.uint64(begin), np.uint64(stop)):
                if _score(logits[i, k], moves[at, k], multiplies) >= largest:
                    low, high = _meet(true, np.float64(logits[i, k]), slopes[k] - slope, np.uint64(y) < k, multiplies,
                                      low, high)
                    late, early = (late, k) if end else (k, early)
                    break
        for end in range(2):
            if (early if end else late) == width or low > high:
                continue
            bound = np.ceil((high - gammas[0]) * scale) if end else np.floor((low - gammas[0]) * scale)
            at = min(max(int(bound), 0), last)
            least = _least(logits[i, y], moves[at, y], room, multiplies)
            for side in range(2):
                a, b = (y + 1, width) if side else (0, y)
                for start in range(a, b, BLOCK):
                    stop = min(start + BLOCK, b)
                    if _any(logits, i, moves, at, start, stop, least, multiplies):
                        count = 0
                        for k in range(np.uint64(start), np.uint64(stop)):  # without a branch, that would be mistaken
                            rivals[count] = k
                            count += _score(logits[i, k], moves[at, k], multiplies) >= least
                        for k in rivals[:count]:
                            if k != late and k != early:
                                low, high = _meet(true, np.float64(logits[i, k]), slopes[k] - slope, np.uint64(y) < k,
                                                  multiplies, low, high)
        lo[i], hi[i] = (low, high) if low <= high else (np.inf, -np.inf)


@njit(cache=True, nogil=True, inline="always")
def _score(logit, move, multiplies):
    return logit * move if multiplies else logit + move


@njit(cache=True, nogil=True, inline="always")
def _least(logit, move, room, multiplies):
    """The least score that may come before y's in truth."""
    own = _score(logit, move, multiplies)
    return own - (room[0] * abs(own) + room[1])


@njit(cache=True, nogil=True, inline="always")
def _key(score):
    """A score as an integer of the same order: the largest integer is found with vector instructions."""
    bits = np.float32(score).view(np.int32)
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit(cache=True, nogil=True, inline="always")
def _score_of(key):
    """The score of a key: turning is its own inverse."""
    return np.int32(key ^ ((key >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32)


@njit(cache=True, nogil=True, inline="always")
def _top(logits, i, moves, at, start, stop, positive, multiplies):
    """The largest key of a block; if only positive ones count, a score's own bits are in order."""
    top = np.int32(-2147483648)
    if multiplies and positive:
        for k in range(np.uint64(start), np.uint64(stop)):
            top = max(top, np.float32(logits[i, k] * moves[at, k]).view(np.int32))
    elif multiplies:
        for k in range(np.uint64(start), np.uint64(stop)):
            top = max(top, _key(logits[i, k] * moves[at, k]))
    else:
        for k in range(np.uint64(start), np.uint64(stop)):
            top = max(top, _key(logits[i, k] + moves[at, k]))
    return top


@njit(cache=True, nogil=True, inline="always")
def _any(logits, i, moves, at, start, stop, least, multiplies):
    """Whether a block holds a score of at least so much: counted, for a count, too, takes vector instructions."""
    found = np.int32(0)
    if multiplies:
        for k in range(np.uint64(start), np.uint64(stop)):
            found = np.int32(found + np.int32(logits[i, k] * moves[at, k] >= least))
    else:
        for k in range(np.uint64(start), np.uint64(stop)):
            found = np.int32(found + np.int32(logits[i, k] + moves[at, k] >= least))
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
