"""For each sample, the one interval of gammas at which its class wins.

The score of class k at gamma is ``l_k r_k^gamma`` (or ``l_k + gamma log r_k``). No logit changes sign, and of two
logits of one sign the logarithms of the scores are straight lines in gamma: so "y comes before k" holds on a half-line,
and y wins on the intersection of K - 1 half-lines, an interval ``[lo, hi]``.

Ends are exact: a tie goes to the first class, as argmax has it, and an end that is open is given as the next float
inside, so that the sample is right if and only if ``lo <= gamma <= hi``. A sample that is never right has lo > hi.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .rule import Rule

NEVER = (np.inf, -np.inf)
FEW = 32  # classes, up to which it costs less to look at all of them


def wins(
    true: np.ndarray, other: np.ndarray, rise: np.ndarray, first: np.ndarray, *, multiplies: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The half-line ``[lo, hi]`` on which a logit `true` comes before a logit `other`, pair by pair.

    Args:
        true, other: the two logits, float64.
        rise: slope of `other` minus slope of `true`, ``a_k - a_y``.
        first: whether `true` wins a tie, being of the smaller class index.
        multiplies: the rule's kind.

    >>> wins(np.array([4.0]), np.array([2.0]), np.log([4.0]), np.array([True]), multiplies=True)
    (array([-inf]), array([0.5]))
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        gap = _log_ratio(true, other) if multiplies else true - other
        at = snap(gap / rise)
    below = (rise > 0) == (true > 0) if multiplies else rise > 0  # y wins below the crossing, or above it
    fixed = np.nonzero(~np.isfinite(at))  # no crossing: equal slopes, opposite signs, a zero
    at = np.where(first, at, np.nextafter(at, np.where(below, -np.inf, np.inf)))
    lo, hi = np.where(below, -np.inf, at), np.where(below, at, np.inf)
    leads = (true[fixed] > other[fixed]) | ((true[fixed] == other[fixed]) & first[fixed])
    lo[fixed], hi[fixed] = np.where(leads, -np.inf, NEVER[0]), np.where(leads, np.inf, NEVER[1])
    return lo, hi


def snap(gamma: np.ndarray) -> np.ndarray:
    """gamma, or the multiple of 1/64000 that it misses by rounding alone.

    log 125 / log 5 is 3 in mathematics and 3.0000000000000004 in floats: a tie made on purpose, at 0.5 or 0.1 or 3,
    would be missed by the last bits of two logarithms.
    """
    scaled = gamma * 64000
    near = np.rint(scaled)
    off = np.abs(scaled - near)
    few = np.nonzero(off < 1e-4)
    snapped = gamma.copy()
    snapped[few] = np.where(off[few] <= 1e-13 * np.abs(near[few]), near[few] / 64000, gamma[few])
    return snapped


@dataclass(frozen=True, eq=False)
class Table:
    """Scores at evenly spaced gammas, at the precision of the logits, and how far rounding may have taken them.

    Only the order of a row's scores counts, so the factors are divided by their largest: none overflows.
    """

    gammas: np.ndarray
    moves: np.ndarray
    relative: float
    absolute: float
    multiplies: bool

    @staticmethod
    def of(rule: Rule, range: tuple[float, float], dtype: np.dtype, steps: int = 64) -> Table:
        """For logits of one dtype; `steps` apart from each other, the first and last gamma being the range's ends."""
        gammas, kind = np.linspace(*range, steps + 1), np.finfo(dtype)
        moves = gammas[:, None] * rule.slopes
        moves -= moves.max(axis=1, keepdims=True)
        absolute = kind.tiny if rule.multiplies else 64 * kind.eps * np.abs(moves).max()
        return Table(gammas, (np.exp(moves) if rule.multiplies else moves).astype(dtype), 64 * kind.eps, absolute,
                     rule.multiplies)

    @property
    def apply(self) -> np.ufunc:
        """What makes a score of a logit and a move."""
        return np.multiply if self.multiplies else np.add

    def before(self, gamma: np.ndarray) -> np.ndarray:
        """Which gamma of the table is the last that is not above each of these."""
        return np.floor(self._places(gamma)).astype(np.int64)

    def after(self, gamma: np.ndarray) -> np.ndarray:
        """Which gamma of the table is the first that is not below each of these."""
        return np.ceil(self._places(gamma)).astype(np.int64)

    def _places(self, gamma: np.ndarray) -> np.ndarray:
        begin, end, last = self.gammas[0], self.gammas[-1], len(self.gammas) - 1
        return (gamma - begin) / (end - begin) * last

    def room(self, own: np.ndarray) -> np.ndarray:
        """How far another score may lie below y's own [n] and yet come before it in truth."""
        return np.abs(own) * own.dtype.type(self.relative) + own.dtype.type(self.absolute)


def intervals(logits: np.ndarray, labels: np.ndarray, rule: Rule, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """lo [N] and hi [N] of a block of logits [N, K].

    A half-line meets a range only at an end of it: so a class matters to y only if it comes before y at one end.
    """
    lo, hi = np.full(len(logits), table.gammas[0]), np.full(len(logits), table.gammas[-1])
    width, slopes = logits.shape[1], rule.slopes
    own = logits.take(np.arange(0, logits.size, width) + labels).astype(np.float64)

    def meet(rows: np.ndarray, other: np.ndarray) -> None:
        """Intersect the intervals of `rows` with the half-lines against the classes `other`."""
        true, rival = labels[rows], logits.take(rows * width + other).astype(np.float64)
        low, high = wins(own[rows], rival, slopes[other] - slopes[true], true < other, multiplies=rule.multiplies)
        np.maximum.at(lo, rows, low)
        np.minimum.at(hi, rows, high)

    if width <= FEW:
        never, rows, other = _ahead(logits, labels, table)
        meet(rows, other)
        never |= lo > hi
    else:
        # The class that comes first at an end bounds the interval; classes that come before y at that bound, rounded
        # outward to a gamma of the table, are few.
        at_begin, at_end = (_first(logits, labels, table, at) for at in (0, -1))
        late, early = np.flatnonzero(at_begin != labels), np.flatnonzero(at_end != labels)
        meet(np.concatenate([late, early]), np.concatenate([at_begin[late], at_end[early]]))
        late, early = late[lo[late] <= hi[late]], early[lo[early] <= hi[early]]
        at = np.concatenate([table.before(lo[late]), table.after(hi[early])])
        met = np.concatenate([at_begin[late], at_end[early]])
        meet(*_rivals(logits, labels, table, np.concatenate([late, early]), at, met))
        never = lo > hi
    np.copyto(lo, NEVER[0], where=never)
    np.copyto(hi, NEVER[1], where=never)
    return lo, hi


def shard_intervals(
    logits: np.ndarray, labels: np.ndarray, rule: Rule, range: tuple[float, float], classes: np.ndarray,
    true: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """lo [N] and hi [N] against some of the classes: logits [N, k] of `classes` [k], and the true class's logit [N]."""
    lo, hi = wins(np.broadcast_to(true[:, None], logits.shape).astype(np.float64), logits.astype(np.float64),
                  rule.slopes[classes] - rule.slopes[labels][:, None], labels[:, None] <= classes,
                  multiplies=rule.multiplies)
    lo, hi = np.maximum(lo.max(axis=1), range[0]), np.minimum(hi.min(axis=1), range[1])
    return np.where(lo > hi, NEVER[0], lo), np.where(lo > hi, NEVER[1], hi)


def _ahead(logits: np.ndarray, labels: np.ndarray, table: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows where a class comes before y at both ends of the range, [N] bool; for the others, (row, class) of each class
    that may come before y at one end. Short rows are laid on their side, to be passed over in long strides."""
    lying, y = np.ascontiguousarray(logits.T), labels * len(logits) + np.arange(len(logits))
    may, must = np.zeros(lying.shape, bool), np.ones(lying.shape, bool)
    scores, beats = np.empty_like(lying), np.empty_like(may)
    for moves in table.moves[[0, -1]]:
        table.apply(lying, moves[:, None], out=scores)
        own = scores.take(y)
        room = table.room(own)
        may |= np.greater_equal(scores, own - room, out=beats)
        must &= np.greater(scores, own + room, out=beats)
    never = np.logical_or.reduce(must, axis=0)
    may &= ~never
    may.reshape(-1)[y] = False
    other, row = np.divmod(np.flatnonzero(may), len(logits))
    return never, row, other


def _first(logits: np.ndarray, labels: np.ndarray, table: Table, at: int) -> np.ndarray:
    """The first class at one end of the range, [N]: y only if it is so for certain."""
    if table.gammas[at] == 0:
        return logits.argmax(axis=1)
    first, width = np.empty(len(logits), np.int64), logits.shape[1]
    step = _step(width)
    moves, scores = np.tile(table.moves[at], (min(step, len(logits)), 1)), np.empty_like(logits[:step])
    for start in range(0, len(logits), step):
        part = slice(start, start + step)
        n = len(labels[part])
        table.apply(logits[part], moves[:n], out=scores[:n])
        y = np.arange(0, n * width, width) + labels[part]
        own = scores.take(y)
        scores.reshape(-1)[y] = own - table.room(own)
        np.argmax(scores[:n], axis=1, out=first[part])
    return first


def _rivals(
    logits: np.ndarray, labels: np.ndarray, table: Table, rows: np.ndarray, at: np.ndarray, met: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(row, class) of the classes that may come before y in `rows` at the table's gammas `at`, but for those `met`."""
    width = logits.shape[1]
    step = min(_step(width), len(rows))
    scores, moves, mask = (np.empty((step, width), kind) for kind in (logits.dtype, logits.dtype, np.bool_))
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for start in range(0, len(rows), step or 1):
        part = slice(start, start + step)
        here = rows[part]
        n = len(here)
        logits.take(here, axis=0, out=scores[:n], mode="clip")  # within bounds: "clip" spares numpy a copy of its own
        table.moves.take(at[part], axis=0, out=moves[:n], mode="clip")
        table.apply(scores[:n], moves[:n], out=scores[:n])
        each, flat = np.arange(0, n * width, width), scores.reshape(-1)
        y = each + labels[here]
        own = flat[y]
        flat[y] = flat[each + met[part]] = -np.inf
        np.greater_equal(scores[:n], (own - table.room(own))[:, None], out=mask[:n])
        row, other = np.divmod(np.flatnonzero(mask[:n]), width)
        found.append((here[row], other))
    return np.concatenate([row for row, _ in found]), np.concatenate([other for _, other in found])


def _step(width: int, size: int = 1 << 18) -> int:
    """So many rows at a time that several passes over them stay in cache."""
    return max(1, size // width)


def _log_ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``log(a / b)``: 0 only where a = b, NaN or infinite where the signs differ."""
    gap = np.log(a / b)
    odd = np.nonzero((gap == 0) | np.isinf(gap))
    x, y = a[odd], b[odd]
    near = (x - y) / y  # one float apart, the quotient is 1; it may also leave the floats
    gap[odd] = np.where(gap[odd] == 0, near, np.log(np.abs(x)) - np.log(np.abs(y)))
    return gap
