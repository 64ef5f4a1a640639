"""For each sample, the interval of gammas on which its true class y wins.

The score of class k at gamma is ``l_k r_k^gamma`` (or ``l_k + gamma log r_k``). No logit changes its sign, and where
two logits have the same sign, the logarithms of their scores are straight lines in gamma. So "y comes before k" holds
on a half-line, and y wins on the intersection of K - 1 half-lines, which is an interval ``[lo, hi]``.

**Ties.** One rule holds for the path, the envelope, the objective and the choice. At the very gamma at which scores are
equal, the first of these classes wins, as in numpy's argmax; between such gammas no scores are equal. At 0, scores are
the logits, compared as they are. Elsewhere two scores are equal at the float nearest to their crossing, and a crossing
within 1e-13 of a multiple of 1/64000 is that multiple (see `snap`). An open end is stored as the next float inside, so
the sample is right if and only if ``lo <= gamma <= hi``. A sample that is never right has lo > hi. What is chosen
(`Curve.plateau`, `Curve.middle`) is 0, or a gamma away from every change. There an argmax of the adjusted logits in
float64 gives the same predictions, unless the logits are so large that float64 loses what gamma adds to them.

A crossing is right to about three units in its last place, given the float64 slopes. The engines numpy and
top-k compute it by the same operations of numpy; torch may differ in the last bits. `bench/trust/exact_numbers.py`
compares all engines with exact arithmetic.
"""

from dataclasses import dataclass

import numpy as np

from ..core.array import SCRATCH
from ..core.curve import ascending
from ..rules.direction import Direction

NEVER = (np.inf, -np.inf)
FEW_CLASSES = 32  # up to so many, it is faster to look at all classes
NEAR_ONE, FAR_FROM_ONE = 1 / 16, 700.0  # a logarithm of a quotient within or beyond these is computed otherwise
SMALLEST = float(np.nextafter(0, 1))
_BLOCK = 1 << 18  # numbers that fit in the cache, for several passes over them
_SMALL_BLOCK = 1 << 17  # the same of five tables


def winning_range(
    true: np.ndarray, other: np.ndarray, rise: np.ndarray, first: np.ndarray, *, multiplies: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each pair of logits, the half-line ``[lo, hi]`` on which `true` comes before `other`.

    Args:
        true, other: the two logits, float64.
        rise: slope of `other` minus slope of `true`, ``a_k - a_y``.
        first, multiplies: whether `true` wins a tie, by its smaller class index; whether the rule multiplies logits.
    """
    at = crossing(true, other, rise, multiplies=multiplies)
    below = (rise > 0) == (true > 0) if multiplies else rise > 0  # y wins below the crossing, or above it
    fixed = np.nonzero(~np.isfinite(at))  # no crossing: equal slopes, opposite signs, a zero
    at = np.where(first, at, np.nextafter(at, np.where(below, -np.inf, np.inf)))
    lo, hi = np.where(below, -np.inf, at), np.where(below, at, np.inf)
    leads = (true[fixed] > other[fixed]) | ((true[fixed] == other[fixed]) & first[fixed])
    lo[fixed], hi[fixed] = np.where(leads, -np.inf, NEVER[0]), np.where(leads, np.inf, NEVER[1])
    return lo, hi


def crossing(true: np.ndarray, other: np.ndarray, rise: np.ndarray, *, multiplies: bool) -> np.ndarray:
    """Return the gamma at which two classes have the same score; not finite if there is none, or every gamma is one."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        if multiplies:  # the same bits for either of the two
            steeper = rise > 0
            gap = log_ratio(np.where(steeper, true, other), np.where(steeper, other, true))
            return snap(gap / np.abs(rise))
        at = snap((true - other) / rise)
        unequal = np.nonzero((at == 0) & (true != other))  # the quotient underflows: not a tie at 0
        at[unequal] = np.copysign(SMALLEST, at[unequal])
        return at


def snap(gamma: np.ndarray) -> np.ndarray:
    """Return gamma, or the multiple of 1/64000 that it misses only by rounding.

    log 125 / log 5 is 3 in mathematics and 3.0000000000000004 in floats. Without this, the last bits of two logarithms
    would miss a tie at a round number such as 0.5, 0.1 or 3.
    """
    scaled = gamma * 64000
    near = np.rint(scaled)
    off = np.abs(scaled - near)
    few = np.nonzero(off < 1e-4)
    snapped = gamma.copy()
    snapped[few] = np.where(off[few] <= 1e-13 * np.abs(near[few]), near[few] / 64000, gamma[few])
    return snapped


@dataclass(frozen=True, eq=False)
class TabulatedRule:
    """A rule at evenly spaced gammas, in the precision of the logits, with bounds on the rounding of scores.

    At gammas[i], logits are multiplied by moves[i] [K], or moves[i] is added. Only the order of a row's scores counts,
    so factors are divided by their largest and none overflows.
    """

    gammas: np.ndarray
    moves: np.ndarray
    relative: float
    absolute: float
    apply: np.ufunc  # makes a score of a logit and a move

    @staticmethod
    def of(rule: Direction, range: tuple[float, float], dtype: np.dtype, steps: int = 64) -> "TabulatedRule":
        """Tabulate a rule for logits of one dtype, at `steps` + 1 gammas."""
        gammas, kind = np.linspace(*range, steps + 1), np.finfo(dtype)
        moves = gammas[:, None] * rule.slopes
        moves -= moves.max(axis=1, keepdims=True)
        absolute = kind.tiny if rule.multiplies else 64 * kind.eps * np.abs(moves).max()
        moves = (np.exp(moves) if rule.multiplies else moves).astype(dtype)
        return TabulatedRule(gammas, moves, 64 * kind.eps, absolute, np.multiply if rule.multiplies else np.add)

    def positions(self, gamma: np.ndarray) -> np.ndarray:
        """Return where each gamma lies in the table: a whole number is an index, a fraction lies between two."""
        return (gamma - self.gammas[0]) / (self.gammas[-1] - self.gammas[0]) * (len(self.gammas) - 1)

    def margin(self, own: np.ndarray) -> np.ndarray:
        """Return how far below y's own score [n] another can be and still be ahead of it without rounding."""
        return np.abs(own) * own.dtype.type(self.relative) + own.dtype.type(self.absolute)


def find_intervals(
    logits: np.ndarray, labels: np.ndarray, rule: Direction, table: TabulatedRule
) -> tuple[np.ndarray, np.ndarray]:
    """Return lo [N] and hi [N] of a block of logits [N, K].

    A half-line that cuts into the range covers one of its ends. So a class matters only if it is ahead of y at an end.
    """
    lo, hi = np.full(len(logits), table.gammas[0]), np.full(len(logits), table.gammas[-1])
    width, slopes = logits.shape[1], rule.slopes
    own = logits.take(np.arange(0, logits.size, width) + labels).astype(np.float64)

    def intersect(rows: np.ndarray, other: np.ndarray) -> None:
        true, rival = labels[rows], logits.take(rows * width + other).astype(np.float64)
        rise = slopes[other] - slopes[true]
        low, high = winning_range(own[rows], rival, rise, true < other, multiplies=rule.multiplies)
        np.maximum.at(lo, rows, low)
        np.minimum.at(hi, rows, high)

    if width <= FEW_CLASSES:
        never, step = np.empty(len(logits), bool), _SMALL_BLOCK // width
        for first in range(0, len(logits), step):
            part = slice(first, first + step)
            never[part], rows, other = _rivals_at_ends(logits[part], labels[part], table)
            intersect(rows + first, other)
        never |= lo > hi
    else:
        # The winner at an end bounds the interval. Few classes are ahead of y at that bound, rounded outward to a gamma
        # of the table.
        at_begin, at_end = (_winners_at_end(logits, labels, table, at) for at in (0, -1))
        late, early = np.flatnonzero(at_begin != labels), np.flatnonzero(at_end != labels)
        intersect(np.concatenate([late, early]), np.concatenate([at_begin[late], at_end[early]]))
        late, early = late[lo[late] <= hi[late]], early[lo[early] <= hi[early]]
        at = np.concatenate([np.floor(table.positions(lo[late])), np.ceil(table.positions(hi[early]))]).astype(np.int64)
        done = np.concatenate([at_begin[late], at_end[early]])
        intersect(*_rivals_at(logits, labels, table, np.concatenate([late, early]), at, done))
        never = lo > hi
    np.copyto(lo, NEVER[0], where=never)
    np.copyto(hi, NEVER[1], where=never)
    return lo, hi


def sorted_events(
    sample: np.ndarray, lo: np.ndarray, hi: np.ndarray, range: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the samples right at the start; then gamma, sign and sample of every change within the range, by gamma."""
    (begin, end), some = range, lo <= hi
    enters, leaves = np.flatnonzero(some & (lo > begin)), np.flatnonzero(some & (hi < end))
    at = np.concatenate([lo[enters], np.nextafter(hi[leaves], np.inf)])
    order = ascending(at)
    sign = np.repeat([1.0, -1.0], [len(enters), len(leaves)])
    return sample[lo <= np.minimum(hi, begin)], at[order], sign[order], sample[np.concatenate([enters, leaves])][order]


def _rivals_at_ends(
    logits: np.ndarray, labels: np.ndarray, table: TabulatedRule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows in which a class is ahead of y at both ends of the range, [N] bool, and for all other rows the
    (row, class) of each class that may be ahead of y at one end. Rows are short, so the array is transposed."""
    y, shape = labels * len(logits) + np.arange(len(logits)), logits.T.shape
    columns, scores = (SCRATCH.table(name, shape, logits.dtype) for name in ("columns", "scores of columns"))
    may, must, beats = (SCRATCH.table(name, shape, np.bool_) for name in ("may", "must", "beats"))
    columns[:], may[:], must[:] = logits.T, False, True
    for moves in table.moves[[0, -1]]:
        table.apply(columns, moves[:, None], out=scores)
        own = scores.take(y)
        margin = table.margin(own)
        may |= np.greater_equal(scores, own - margin, out=beats)
        must &= np.greater(scores, own + margin, out=beats)
    never = np.logical_or.reduce(must, axis=0)
    may &= ~never
    may.reshape(-1)[y] = False
    other, row = np.divmod(np.flatnonzero(may), len(logits))
    return never, row, other


def _winners_at_end(logits: np.ndarray, labels: np.ndarray, table: TabulatedRule, at: int) -> np.ndarray:
    """Return the winning class at one end of the range, [N]: y only where rounding cannot matter."""
    if table.gammas[at] == 0:
        return logits.argmax(axis=1)
    first, width = np.empty(len(logits), np.int64), logits.shape[1]
    step = max(1, _BLOCK // width)
    shape = min(step, len(logits)), width
    moves, scores = (SCRATCH.table(name, shape, logits.dtype) for name in ("moves of rows", "scores of rows"))
    moves[:] = table.moves[at]
    for start in range(0, len(logits), step):
        part = slice(start, start + step)
        n = len(labels[part])
        table.apply(logits[part], moves[:n], out=scores[:n])
        y = np.arange(0, n * width, width) + labels[part]
        own = scores.take(y)
        scores.reshape(-1)[y] = own - table.margin(own)
        np.argmax(scores[:n], axis=1, out=first[part])
    return first


def _rivals_at(
    logits: np.ndarray, labels: np.ndarray, table: TabulatedRule, rows: np.ndarray, at: np.ndarray, done: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (row, class) of each class, except those in `done`, that may be ahead of y in `rows` at gammas[at]."""
    width = logits.shape[1]
    step = min(max(1, _BLOCK // width), len(rows))
    scores, moves = (SCRATCH.table(name, (step, width), logits.dtype) for name in ("scores of rows", "moves of rows"))
    mask = SCRATCH.table("rivals", (step, width), np.bool_)
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for start in range(0, len(rows), step or 1):
        part = slice(start, start + step)
        here = rows[part]
        n = len(here)
        logits.take(here, axis=0, out=scores[:n], mode="clip")  # all within bounds: "clip" avoids a copy
        table.moves.take(at[part], axis=0, out=moves[:n], mode="clip")
        table.apply(scores[:n], moves[:n], out=scores[:n])
        each, flat = np.arange(0, n * width, width), scores.reshape(-1)
        y = each + labels[here]
        own = flat[y]
        flat[y] = flat[each + done[part]] = -np.inf
        np.greater_equal(scores[:n], (own - table.margin(own))[:, None], out=mask[:n])
        row, other = np.divmod(np.flatnonzero(mask[:n]), width)
        found.append((here[row], other))
    return np.concatenate([row for row, _ in found]), np.concatenate([other for _, other in found])


def log_ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return ``log(a / b)`` to its last bits: 0 only where a = b, not finite where signs differ or one is 0.

    Where a / b is near 1, most of its bits are lost; where it is very large or small, it overflows or is denormal.
    """
    gap = np.log(a / b)
    size = np.abs(gap)
    inexact = np.nonzero((size < NEAR_ONE) | (size > FAR_FROM_ONE))
    if len(inexact[0]):
        x, y, near = a[inexact], b[inexact], size[inexact] < 1
        apart = np.where((x < 0) == (y < 0), np.log(np.abs(x)) - np.log(np.abs(y)), np.nan)
        gap[inexact] = np.where(near, np.log1p(np.where(near, (x - y) / y, 0.0)), apart)
    return gap
