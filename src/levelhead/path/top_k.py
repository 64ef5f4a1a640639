"""Samples that can be right on several intervals of gamma: top-k accuracy, and a bias that is kept.

y is among the first k where fewer than k classes are *ahead* of it. The gammas where one is are half-open stretches
``[start, stop)`` of floats, so counting means adding 1 at start and -1 at stop.
"""

import numpy as np

from ..rules.direction import Direction, snap, winning_range

Pieces = tuple[np.ndarray, np.ndarray, np.ndarray]  # sample [M], lo [M], hi [M]


@np.errstate(over="ignore")  # of masked scores, which stay the lowest
def find_pieces(logits: np.ndarray, labels: np.ndarray, rule: Direction, range: tuple[float, float], k: int) -> Pieces:
    """Return the intervals on which each sample of one chunk is among the first k, sorted by sample and gamma."""
    stop = np.nextafter(range[1], np.inf)
    sample, other = np.nonzero(_can_be_ahead(logits, labels, rule, range))
    true, wide = labels[sample], logits.astype(np.float64)
    a, b, first = wide[sample, true], wide[sample, other], true < other
    if rule.bias is None:
        lo, hi = winning_range(a, b, rule.slopes[other] - rule.slopes[true], first, multiplies=rule.multiplies)
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


def _can_be_ahead(logits: np.ndarray, labels: np.ndarray, rule: Direction, range: tuple[float, float]) -> np.ndarray:
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
    step = np.concatenate([np.zeros(n, np.int64), np.ones_like(sample), -np.ones_like(sample), np.zeros(n, np.int64)])
    order = np.lexsort((at, who))
    who, at, depth = who[order], at[order], np.cumsum(step[order])  # a sample's steps sum to 0: no reset is needed
    last = np.r_[(who[1:] != who[:-1]) | (at[1:] != at[:-1]), True]  # of several steps at one place
    who, at, free = who[last], at[last], depth[last] < k
    free &= at < end
    opens = free & ~np.r_[False, free[:-1] & (who[1:] == who[:-1])]
    closes = np.r_[False, free[:-1]] & ~free  # every sample's last place is `end`, which is not free
    return who[opens], at[opens], np.nextafter(at[closes], -np.inf)


def _stretches_with_kept_bias(
    sample, a, b, true, other, first, rule: Direction, range: tuple[float, float]
) -> list[Pieces]:
    """Return where ``b r_k^g + b_k`` is ahead of ``a r_y^g + b_y``. A difference of exponentials is monotone on either
    side of at most one stationary point, so bisection of floats finds each change of sign."""
    assert rule.bias is not None
    slope_y, slope_k, bias_y, bias_k = rule.slopes[true], rule.slopes[other], rule.bias[true], rule.bias[other]

    def is_ahead(gamma: np.ndarray, of: np.ndarray | slice = slice(None)) -> np.ndarray:
        y = a[of] * rule.ratios[true[of]] ** gamma + bias_y[of]
        k = b[of] * rule.ratios[other[of]] ** gamma + bias_k[of]
        return (k > y) | ((k == y) & ~first[of])

    with np.errstate(divide="ignore", invalid="ignore"):
        turn = np.log((a * slope_y) / (b * slope_k)) / (slope_k - slope_y)
        turn = np.where(np.abs(turn) < 1e-12, 0.0, snap(turn))  # two scores that only touch tie there or nowhere
    turn = np.where((turn > range[0]) & (turn < range[1]), turn, range[1])
    begin, end, stop = np.full(len(a), range[0]), np.full(len(a), range[1]), np.nextafter(range[1], np.inf)
    leads = is_ahead(begin)
    switches = []
    for left, right in ((begin, turn), (turn, end)):
        before = is_ahead(left)
        change = np.flatnonzero(before != is_ahead(right))
        switch = np.full(len(a), stop)
        switch[change] = _first_change(
            lambda g, of=change, was=before[change]: is_ahead(g, of) != was, left[change], right[change]
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
