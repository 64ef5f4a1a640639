"""For each sample, the interval of gammas on which its true class wins, chunk by chunk, by the engine that fits."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, get_args

import numpy as np

from ..support.arrays import SCRATCH, Array, is_torch, usable_cores
from ..support.errors import LevelheadError, check_choice
from ..support.progress import RowProgress
from ..support.types import Kind
from ..support.warnings import warn
from .direction import NEVER, Direction, TabulatedRule, snap, winning_range
from .envelope import TINY, Envelope, compute_envelope, read_chunks

FEW_CLASSES = 32  # up to so many, it is faster to look at all classes
_BLOCK = 1 << 18  # numbers that fit in the cache, for several passes over them
_SMALL_BLOCK = 1 << 17  # the same of five tables
Pieces = tuple[np.ndarray, np.ndarray, np.ndarray]  # sample [M], lo [M], hi [M]


@np.errstate(over="ignore")  # of masked scores, which stay the lowest
def find_intervals(
    logits: np.ndarray, labels: np.ndarray, rule: Direction, table: TabulatedRule
) -> tuple[np.ndarray, np.ndarray]:
    """Return lo [N] and hi [N] of a block of logits [N, K]."""
    # What another class takes from y's range is a half-line, so it covers an end of the range: a class matters only if
    # it is ahead of y at one of the two ends.
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
        # Every class that is ahead of y at an end is intersected. One ahead at both ends is ahead everywhere between:
        # what it leaves of the range is not one interval but nothing.
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
        at = np.concatenate(
            [np.floor(table.positions(lo[late])), np.ceil(table.positions(hi[early]))]
        ).astype(np.int64)
        done = np.concatenate([at_begin[late], at_end[early]])
        intersect(*_rivals_at(logits, labels, table, np.concatenate([late, early]), at, done))
        never = lo > hi
    np.copyto(lo, NEVER[0], where=never)
    np.copyto(hi, NEVER[1], where=never)
    return lo, hi


def _rivals_at_ends(
    logits: np.ndarray, labels: np.ndarray, table: TabulatedRule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which rows have a class ahead of y at both ends, [N]; of the others, (row, class) of each ahead at one."""
    # Rows are short, so the array is transposed: each operation runs over all rows of a class. `may` and `must` differ
    # by what rounding in the logits' precision can move a score.
    y, shape = labels * len(logits) + np.arange(len(logits)), logits.T.shape
    columns, scores = (
        SCRATCH.table(name, shape, logits.dtype) for name in ("columns", "scores of columns")
    )
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


def _winners_at_end(
    logits: np.ndarray, labels: np.ndarray, table: TabulatedRule, at: int
) -> np.ndarray:
    """Return the winning class at one end of the range, [N]: y only where rounding cannot matter."""
    if table.gammas[at] == 0:
        return logits.argmax(axis=1)
    first, width = np.empty(len(logits), np.int64), logits.shape[1]
    step = max(1, _BLOCK // width)
    shape = min(step, len(logits)), width
    moves, scores = (
        SCRATCH.table(name, shape, logits.dtype) for name in ("moves of rows", "scores of rows")
    )
    moves[:] = table.moves[at]
    # y's own score is lowered by what rounding can move the two: where y still wins, it does without rounding.
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
    logits: np.ndarray,
    labels: np.ndarray,
    table: TabulatedRule,
    rows: np.ndarray,
    at: np.ndarray,
    done: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (row, class) of each class, except those in `done`, that may be ahead of y in `rows` at gammas[at]."""
    width = logits.shape[1]
    step = min(max(1, _BLOCK // width), len(rows))
    scores, moves = (
        SCRATCH.table(name, (step, width), logits.dtype)
        for name in ("scores of rows", "moves of rows")
    )
    mask = SCRATCH.table("rivals", (step, width), np.bool_)
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for start in range(0, len(rows), step or 1):
        part = slice(start, start + step)
        here = rows[part]
        n = len(here)
        logits.take(
            here, axis=0, out=scores[:n], mode="clip"
        )  # all within bounds: "clip" avoids a copy
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


@np.errstate(over="ignore")  # of masked scores, which stay the lowest
def find_pieces(
    logits: np.ndarray, labels: np.ndarray, rule: Direction, range: tuple[float, float], k: int
) -> Pieces:
    """Return the intervals on which each sample of one chunk is among the first k, sorted by sample and gamma."""
    # There may be several: for k > 1, and where a bias is kept. y is among the first k where fewer than k classes are
    # *ahead* of it. The gammas where one is are half-open stretches ``[start, stop)`` of floats, so counting means
    # adding 1 at start and -1 at stop.
    stop = np.nextafter(range[1], np.inf)
    sample, other = np.nonzero(_can_be_ahead(logits, labels, rule, range))
    true, wide = labels[sample], logits.astype(np.float64)
    a, b, first = wide[sample, true], wide[sample, other], true < other
    if rule.bias is None:
        lo, hi = winning_range(
            a, b, rule.slopes[other] - rule.slopes[true], first, multiplies=rule.multiplies
        )
        never = lo > hi
        stretches = [  # ahead before y's half-line, and after it
            (sample, np.full(len(sample), range[0]), np.where(never, stop, lo)),
            (sample, np.where(never, stop, np.nextafter(hi, np.inf)), np.full(len(sample), stop)),
        ]
    else:
        a, b = a - rule.bias[true], b - rule.bias[other]
        stretches = _stretches_with_kept_bias(sample, a, b, true, other, first, rule, range)
    sample, start, until = (np.concatenate(parts) for parts in zip(*stretches, strict=True))
    start, until = np.clip(start, range[0], stop), np.clip(until, range[0], stop)
    some = start < until
    return _covered_by_fewer(k, len(labels), sample[some], start[some], until[some], range[0], stop)


def _can_be_ahead(
    logits: np.ndarray, labels: np.ndarray, rule: Direction, range: tuple[float, float]
) -> np.ndarray:
    """Return [n, K]: whether a class can be ahead of y. Each score is monotone in gamma, so its ends bound it."""
    # Scores round by their largest term, and huge ones overflow: a class is left out only if it is behind for certain.
    with np.errstate(over="ignore", invalid="ignore"):
        ends = [rule.scores(logits, gamma) for gamma in range]
        low, high = np.minimum(*ends), np.maximum(*ends)
        floor = np.take_along_axis(low, labels[:, None], axis=1)
        added = 0.0 if rule.bias is None else np.abs(rule.bias).max()
        added = added if rule.multiplies else np.abs(rule.slopes).max() * max(map(abs, range))
        can = ~(high < floor - (1e-9 * (np.abs(floor) + added) + np.finfo(np.float64).tiny))
    np.put_along_axis(can, labels[:, None], False, axis=1)
    return can


def _covered_by_fewer(k: int, n: int, sample, start, stop, begin: float, end: float) -> Pieces:
    """Return where fewer than k of the stretches cover a sample, as closed intervals of floats."""
    who = np.concatenate([np.arange(n), sample, sample, np.arange(n)])
    at = np.concatenate([np.full(n, begin), start, stop, np.full(n, end)])
    step = np.concatenate(
        [np.zeros(n, np.int64), np.ones_like(sample), -np.ones_like(sample), np.zeros(n, np.int64)]
    )
    order = np.lexsort((at, who))
    who, at, depth = (
        who[order],
        at[order],
        np.cumsum(step[order]),
    )  # a sample's steps sum to 0: no reset is needed
    last = np.r_[(who[1:] != who[:-1]) | (at[1:] != at[:-1]), True]  # of several steps at one place
    who, at, free = who[last], at[last], depth[last] < k
    free &= at < end
    opens = free & ~np.r_[False, free[:-1] & (who[1:] == who[:-1])]
    closes = (
        np.r_[False, free[:-1]] & ~free
    )  # every sample's last place is `end`, which is not free
    return who[opens], at[opens], np.nextafter(at[closes], -np.inf)


def _stretches_with_kept_bias(
    sample, a, b, true, other, first, rule: Direction, range: tuple[float, float]
) -> list[Pieces]:
    """Return where ``b r_k^g + b_k`` is ahead of ``a r_y^g + b_y``. A difference of exponentials is monotone on either
    side of at most one stationary point, so bisection of floats finds each change of sign."""
    assert rule.bias is not None
    slope_y, slope_k, bias_y, bias_k = (
        rule.slopes[true],
        rule.slopes[other],
        rule.bias[true],
        rule.bias[other],
    )

    def is_ahead(gamma: np.ndarray, of: np.ndarray | slice = slice(None)) -> np.ndarray:
        y = a[of] * rule.ratios[true[of]] ** gamma + bias_y[of]
        k = b[of] * rule.ratios[other[of]] ** gamma + bias_k[of]
        return (k > y) | ((k == y) & ~first[of])

    with np.errstate(divide="ignore", invalid="ignore"):
        turn = np.log((a * slope_y) / (b * slope_k)) / (slope_k - slope_y)
        turn = np.where(
            np.abs(turn) < 1e-12, 0.0, snap(turn)
        )  # two scores that only touch tie there or nowhere
    turn = np.where((turn > range[0]) & (turn < range[1]), turn, range[1])
    begin, end, stop = (
        np.full(len(a), range[0]),
        np.full(len(a), range[1]),
        np.nextafter(range[1], np.inf),
    )
    leads = is_ahead(begin)
    switches = []
    for left, right in ((begin, turn), (turn, end)):
        before = is_ahead(left)
        change = np.flatnonzero(before != is_ahead(right))
        switch = np.full(len(a), stop)
        switch[change] = _first_change(
            lambda g, of=change, was=before[change]: is_ahead(g, of) != was,
            left[change],
            right[change],
        )
        switches.append(switch)
    one, two = np.minimum(*switches), np.maximum(*switches)
    return [
        (sample, np.where(leads, begin, one), np.where(leads, one, two)),
        (sample[leads], two[leads], np.full(int(leads.sum()), stop)),
    ]


def _first_change(changed, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the first float at which `changed` holds, not at left but at right: 64 halvings in the order of floats."""
    low, high = (_flip_negative(end.view(np.int64)) for end in (left, right))
    while np.any(low + 1 < high):  # their difference may be more than an int64 holds
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        moved = changed(_flip_negative(middle).view(np.float64))
        low, high = np.where(moved, low, middle), np.where(moved, middle, high)
    return _flip_negative(high).view(np.float64)


def _flip_negative(bits: np.ndarray) -> np.ndarray:
    """Return the bits of floats as integers in the order of the floats, or such integers as bits again."""
    return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))


Engine = Literal["auto", "numpy", "torch"]
_MANY_NUMBERS = 1 << 26  # N times K, from which on threads share the rows


def find_right(
    logits: Array,
    labels: np.ndarray,
    rule: Direction,
    range: tuple[float, float],
    k: int = 1,
    *,
    kind: Kind = "logits",
    engine: Engine = "auto",
    progress: RowProgress | None = None,
) -> Pieces:
    """Return (sample [M], lo [M], hi [M]): the intervals of gamma on which each sample is among the first k."""
    if not (isinstance(k, int | np.integer) and 1 <= k < len(rule.ratios)):
        raise LevelheadError(
            f"expected a whole number from 1 to {len(rule.ratios) - 1}, got {k}", parameter="k"
        )
    single = k == 1 and rule.bias is None
    engine = _choose_engine(engine, logits) if single else "numpy"
    if engine == "torch" and not _needs_host(logits, rule):
        from .intervals_torch import find_with_triton, has_triton, walk_on_device

        if kind == "logits" and has_triton(logits):
            ends = find_with_triton(logits, labels, rule, range, progress)
        else:
            ends = walk_on_device(logits, rule, range, kind=kind, progress=progress).where_right(
                labels
            )
        return np.arange(len(labels)), *ends
    table, pieces = None, []
    threads = usable_cores() if np.prod(logits.shape) >= _MANY_NUMBERS else 1
    for first, chunk in read_chunks(logits, kind=kind, progress=progress):
        rows, sample = slice(first, first + len(chunk)), np.arange(len(chunk))
        if not single:
            sample, lo, hi = find_pieces(chunk, labels[rows], rule, range, k)
        else:
            table = table or TabulatedRule.of(rule, range, chunk.dtype)
            lo, hi = _find_in_parts(chunk, labels[rows], rule, table, threads)
        pieces.append((sample + first, lo, hi))
    sample, lo, hi = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return sample, lo, hi


def find_changes(
    logits: Array,
    rule: Direction,
    range: tuple[float, float],
    *,
    kind: Kind = "logits",
    progress: RowProgress | None = None,
) -> Envelope:
    """Return every change of every prediction, found on the device that the logits are on."""
    if rule.bias is None and _is_on_accelerator(logits) and not _needs_host(logits, rule):
        from .intervals_torch import walk_on_device

        return walk_on_device(logits, rule, range, kind=kind, progress=progress)
    return compute_envelope(logits, rule, range, kind=kind, progress=progress)


def _find_in_parts(
    chunk: np.ndarray, labels: np.ndarray, rule: Direction, table: TabulatedRule, threads: int
) -> Iterable[np.ndarray]:
    """Return lo and hi of a chunk, a part of its rows in each thread."""
    if threads == 1:
        return find_intervals(chunk, labels, rule, table)
    with ThreadPoolExecutor(threads) as pool:
        parts = np.array_split(chunk, threads), np.array_split(labels, threads)
        found = list(pool.map(lambda x, y: find_intervals(x, y, rule, table), *parts))
    return (np.concatenate(ends) for ends in zip(*found, strict=True))


def _needs_host(logits: Any, rule: Direction) -> bool:
    """Return whether a tensor has logits so near 0 that crossings have few bits, which only the host enlarges."""
    return (
        not rule.multiplies
        and logits.element_size() > 4
        and bool(((logits != 0) & (logits.abs() < TINY)).any())
    )


def _choose_engine(engine: Engine, logits: Array) -> Engine:
    """Return the engine; `auto` is torch for a tensor on an accelerator, or else numpy."""
    if engine == "auto":
        return "torch" if _is_on_accelerator(logits) else "numpy"
    if engine == "numba":
        warn(
            "engine 'numba' is gone and runs 'numpy'; levelhead 0.2 refuses it", DeprecationWarning
        )
        engine = "numpy"
    check_choice("engine", engine, get_args(Engine))
    if engine == "torch" and not is_torch(logits):
        raise LevelheadError(
            "'torch' needs a tensor, got an array; use 'numpy'", parameter="engine"
        )
    return engine


def _is_on_accelerator(logits: Array) -> bool:
    return is_torch(logits) and logits.device.type not in ("cpu", "mps")  # mps: no float64
