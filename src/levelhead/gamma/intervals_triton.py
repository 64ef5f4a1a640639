"""`find_intervals` as one Triton kernel, for logits on a GPU: float32, float16 or bfloat16, read as they are.

One warp follows a row. It reads the row once, in blocks, for the strongest rival of y at each end of the range. The
exact half-lines of these two, in float64, bound the interval. At the two bounds, the row (in the cache by now) is
compared again in float32; only classes that may be ahead of y there, by more than rounding, get half-lines of their
own. Bounds and half-lines are those of `intervals.py`. This module is imported only when it is used.
"""

# pyright: reportIndexIssue=false

import numpy as np
import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

from .intervals import TabulatedRule
from .rule import Rule

_BLOCK, _WARPS, _FEW = (
    128,
    1,
    4,
)  # classes read at a time; warps per row; so many rivals of a block are taken one by one


@torch.no_grad()
def find_intervals_triton(
    logits: Tensor,
    labels: np.ndarray,
    rule: Rule,
    range: tuple[float, float],
    *,
    block: int = _BLOCK,
    warps: int = _WARPS,
    few: int = _FEW,
) -> tuple[Tensor, Tensor]:
    """Return lo [N] and hi [N] of logits [N, K], on their device; NaN where a row is not finite."""
    table, device = TabulatedRule.of(rule, range, np.dtype(np.float32), steps=1), logits.device
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    slopes, eps = rule.slopes, float(np.finfo(np.float32).eps)
    unit = np.log2(np.e) if rule.multiplies else 1.0  # scores use powers of two
    scaled = slopes * unit
    reach = float(np.abs(table.gammas).max() * np.abs(scaled).max())
    exact = torch.from_numpy(np.concatenate([slopes, table.gammas])).to(device)
    fast = torch.from_numpy(np.concatenate([scaled.astype(np.float32), *table.moves])).to(device)
    label = torch.from_numpy(labels.astype(np.int32)).to(device)
    lo, hi = torch.empty((2, len(logits)), dtype=torch.float64, device=device)
    absolute = float(table.absolute) if rule.multiplies else 256 * eps * max(reach, 1e-30)
    _find_rows[(len(logits),)](
        logits, logits.stride(0), label, exact, fast, lo, hi, logits.shape[1],
        eps * (64 + 8 * reach) if rule.multiplies else 64 * eps, absolute, float(scaled.max()), float(scaled.min()),
        MULTIPLIES=rule.multiplies, BLOCK=block, FEW=few, num_warps=warps,
    )  # fmt: skip
    return lo, hi


@triton.jit
def _find_rows(
    logits, stride, labels, exact, fast, out_lo, out_hi, width, relative, absolute, steepest, flattest,
    MULTIPLIES: tl.constexpr, BLOCK: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Find lo and hi of one row. `exact`: slopes [K], both ends; `fast`: slopes of scores [K], moves at the ends."""
    row = tl.program_id(0).to(tl.int64)
    infinity = float("inf")
    logits += row * stride
    y = tl.load(labels + row)
    own, slope = tl.load(logits + y).to(tl.float32), tl.load(exact + y)
    true = own.to(tl.float64)
    lo, hi = tl.load(exact + width), tl.load(exact + width + 1)
    lanes = tl.arange(0, BLOCK)
    best_0, best_1 = tl.full([BLOCK], -infinity, tl.float32), tl.full([BLOCK], -infinity, tl.float32)
    at_0, at_1, broken = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        k = start + lanes
        inside = k < width
        x = tl.load(logits + k, mask=inside, other=0.0).to(tl.float32)
        broken += x - x  # 0, or NaN
        move_0 = tl.load(fast + width + k, mask=inside, other=0.0)
        move_1 = tl.load(fast + 2 * width + k, mask=inside, other=0.0)
        rival = inside & (k != y)
        score_0, score_1 = _score(x, move_0, MULTIPLIES), _score(x, move_1, MULTIPLIES)
        better_0, better_1 = rival & (score_0 > best_0), rival & (score_1 > best_1)
        best_0, at_0 = tl.where(better_0, score_0, best_0), tl.where(better_0, k, at_0)
        best_1, at_1 = tl.where(better_1, score_1, best_1), tl.where(better_1, k, at_1)
    top_0, top_1 = tl.max(best_0, 0), tl.max(best_1, 0)
    first_0 = tl.max(tl.where(best_0 == top_0, at_0, 0), 0)  # any of the strongest rivals will do
    first_1 = tl.max(tl.where(best_1 == top_1, at_1, 0), 0)
    some_0 = top_0 >= _least(_score(own, tl.load(fast + width + y), MULTIPLIES), relative, absolute)
    some_1 = top_1 >= _least(_score(own, tl.load(fast + 2 * width + y), MULTIPLIES), relative, absolute)
    if some_0:
        low, high = _against(true, slope, y, logits, exact, first_0, MULTIPLIES)
        lo, hi = tl.maximum(lo, low), tl.minimum(hi, high)
    if some_1:
        low, high = _against(true, slope, y, logits, exact, first_1, MULTIPLIES)
        lo, hi = tl.maximum(lo, low), tl.minimum(hi, high)
    if (some_0 | some_1) & (lo <= hi):
        gamma_0, gamma_1 = lo.to(tl.float32), hi.to(tl.float32)
        largest_0 = tl.maximum(gamma_0 * steepest, gamma_0 * flattest)
        largest_1 = tl.maximum(gamma_1 * steepest, gamma_1 * flattest)
        tilt = tl.load(fast + y)
        least_0 = _least(_moved(own, gamma_0 * tilt - largest_0, MULTIPLIES), relative, absolute)
        least_1 = _least(_moved(own, gamma_1 * tilt - largest_1, MULTIPLIES), relative, absolute)
        least_0, least_1 = tl.where(some_0, least_0, infinity), tl.where(some_1, least_1, infinity)
        done_0, done_1 = tl.where(some_0, first_0, y), tl.where(some_1, first_1, y)
        for start in range(0, width, BLOCK):
            k = start + lanes
            inside = (k < width) & (k != y) & (k != done_0) & (k != done_1)
            x = tl.load(logits + k, mask=inside, other=0.0).to(tl.float32)
            tilts = tl.load(fast + k, mask=inside, other=0.0)
            ahead = _moved(x, gamma_0 * tilts - largest_0, MULTIPLIES) >= least_0
            ahead = (ahead | (_moved(x, gamma_1 * tilts - largest_1, MULTIPLIES) >= least_1)) & inside
            count = tl.sum(ahead.to(tl.int32), 0)
            if count > FEW:
                rise = tl.load(exact + k, mask=ahead, other=0.0) - slope
                lows, highs = _winning_range(true, x.to(tl.float64), rise, y < k, MULTIPLIES)
                lo = tl.maximum(lo, tl.max(tl.where(ahead, lows, -infinity), 0))
                hi = tl.minimum(hi, tl.min(tl.where(ahead, highs, infinity), 0))
            elif count > 0:
                left = tl.where(ahead, k, -1)
                for _ in range(count):
                    one = tl.max(left, 0)
                    left = tl.where(left == one, -1, left)
                    low, high = _against(true, slope, y, logits, exact, one, MULTIPLIES)
                    lo, hi = tl.maximum(lo, low), tl.minimum(hi, high)
    never, nothing = lo > hi, tl.sum(broken, 0).to(tl.float64)
    tl.store(out_lo + row, tl.where(never, infinity, lo) + nothing)
    tl.store(out_hi + row, tl.where(never, -infinity, hi) + nothing)


@triton.jit
def _score(logit, move, MULTIPLIES: tl.constexpr):
    return logit * move if MULTIPLIES else logit + move


@triton.jit
def _moved(logit, exponent, MULTIPLIES: tl.constexpr):
    """Return a score, given its exponent of two, or what is added to the logit."""
    return logit * tl.exp2(exponent) if MULTIPLIES else logit + exponent


@triton.jit
def _least(own, relative, absolute):
    """Return the least score that may be ahead of y's without rounding."""
    return own - (relative * tl.abs(own) + absolute)


@triton.jit
def _against(true, slope, y, logits, exact, other, MULTIPLIES: tl.constexpr):
    """Return the half-line on which y comes before one other class."""
    logit = tl.load(logits + other).to(tl.float32).to(tl.float64)
    return _winning_range(true, logit, tl.load(exact + other) - slope, y < other, MULTIPLIES)


@triton.jit
def _winning_range(true, other, rise, first, MULTIPLIES: tl.constexpr):
    """Return what `winning_range` of intervals.py does."""
    infinity = float("inf")
    steeper = rise > 0
    if MULTIPLIES:
        a, b = tl.where(steeper, true, other), tl.where(steeper, other, true)
        ratio = a / tl.where(b == 0, 1.0, b)
        crosses = (ratio > 0) & (b != 0) & (rise != 0)
        gap = tl.log(tl.where(crosses, ratio, 1.0))
        near = tl.abs(gap) < 0.0625
        part = tl.where(near & crosses, (a - b) / tl.where(crosses, b, 1.0), 0.0)
        one_more = 1.0 + part
        rounded = one_more - 1.0
        small = tl.log(one_more) * part / tl.where(rounded == 0, 1.0, rounded)  # Kahan's log1p
        gap = tl.where(near, tl.where(rounded == 0, part, small), gap)
        at = tl.where(steeper, gap, -gap) / tl.where(crosses, rise, 1.0)
        below = steeper == (true > 0)
    else:
        gap, crosses, below = true - other, rise != 0, steeper
        at = gap / tl.where(crosses, rise, 1.0)
    scaled = at * 64000.0
    magic = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to the nearest whole number
    close = tl.where(tl.abs(scaled) < 1e15, (scaled + magic) - magic, scaled)
    off = tl.abs(scaled - close)
    at = tl.where((off < 1e-4) & (off <= 1e-13 * tl.abs(close)), close / 64000.0, at)
    if not MULTIPLIES:  # the quotient may underflow: that is not a tie at 0
        smallest = _up(gap - gap)
        toward = tl.where((gap > 0) == (rise > 0), smallest, -smallest)
        at = tl.where((at == 0) & (true != other), toward, at)
    crosses = crosses & (tl.abs(at) < infinity)
    at = tl.where(first, at, tl.where(below, -_up(-at), _up(at)))
    leads = (true > other) | ((true == other) & first)
    lo = tl.where(crosses, tl.where(below, -infinity, at), tl.where(leads, -infinity, infinity))
    hi = tl.where(crosses, tl.where(below, at, infinity), tl.where(leads, infinity, -infinity))
    return lo, hi


@triton.jit
def _up(value):
    """Return the next larger float64 of a finite one."""
    bits = value.to(tl.int64, bitcast=True)
    bits = tl.where(value == 0, 1, tl.where(value > 0, bits + 1, bits - 1))
    return bits.to(tl.float64, bitcast=True)
