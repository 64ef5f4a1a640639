"""`find_intervals` and `walk_lines` as Triton kernels, for logits on a GPU: float32, float16 or bfloat16.

One warp follows a row and reads it once, in blocks. Each class gets its crossing with y in float32, moved towards y by
more than rounding. The nearest crossing on either side is computed again in float64, by the half-lines of
`engines.py`. If no other one in float32 is as near as this, it is the end of the interval. In the few other rows, all
classes are compared again in float32 at the two bounds, and each that may be ahead of y there gets its half-line.
This module is imported only when it is used.
"""

# pyright: reportIndexIssue=false

from collections.abc import Callable

import numpy as np
import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

from .direction import Direction
from .envelope import Lines

_BLOCK, _WARPS = 128, 1  # classes read at a time; warps per row
_ROUNDING = 2.0**-20  # of logarithms and slopes, with room to spare


def find_intervals_triton(
    logits: Tensor, labels: np.ndarray, rule: Direction, range: tuple[float, float]
) -> Tensor:
    """Return lo and hi, [2, N], of logits [N, K], on their device; NaN where a row is not finite."""
    return prepare(logits, labels, rule, range)()


@torch.no_grad()
def prepare(
    logits: Tensor,
    labels: np.ndarray,
    rule: Direction,
    range: tuple[float, float],
    *,
    block: int = _BLOCK,
    warps: int = _WARPS,
    stages: int = 1,
    approximate: bool = True,
) -> Callable[[], Tensor]:
    """Return the launch of the kernel, with all that it needs on the device; it returns lo and hi, [2, N]."""
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    n, width = logits.shape
    slopes, eps = rule.slopes, float(np.finfo(np.float32).eps)
    scaled = (slopes * (np.log2(np.e) if rule.multiplies else 1.0)).astype(
        np.float32
    )  # scores use powers of two
    reach = max(map(abs, range)) * float(np.abs(scaled).max())
    flat = max(
        1.5 * 2.0**-21 * float(np.abs(scaled).max()), 1e-30
    )  # what float32 may not tell from 0
    exact, fast, label = _to_device(
        [np.append(slopes, range), scaled, labels.astype(np.int32)], logits.device
    )
    relative = eps * (64 + 8 * reach) if rule.multiplies else 64 * eps
    absolute = (
        float(np.finfo(np.float32).tiny) if rule.multiplies else 256 * eps * max(reach, 1e-30)
    )
    ends = torch.empty((2, n), dtype=torch.float64, device=logits.device)

    def launch() -> Tensor:
        with torch.cuda.device_of(logits):
            _find_rows[(n,)](
                logits, logits.stride(0), label, exact, fast, ends[0], ends[1], width,
                relative, absolute, float(scaled.max()), float(scaled.min()), flat, 4 * reach,
                MULTIPLIES=rule.multiplies, BLOCK=block, NARROW=32 * warps, STAGES=stages,
                APPROXIMATE=approximate, ROUNDING=_ROUNDING, num_warps=warps,
            )  # fmt: skip
        return ends

    return launch


def _to_device(arrays: list[np.ndarray], device: torch.device) -> list[Tensor]:
    """Return arrays on a device, by one copy."""
    places = np.cumsum([0, *(-(-array.nbytes // 16) * 16 for array in arrays)])
    whole = np.empty(places[-1], np.uint8)
    for array, place in zip(arrays, places, strict=False):
        whole[place : place + array.nbytes] = array.view(np.uint8)
    there, kinds = (
        torch.from_numpy(whole).to(device),
        [torch.from_numpy(array[:0]).dtype for array in arrays],
    )
    spans = [
        slice(place, place + array.nbytes) for array, place in zip(arrays, places, strict=False)
    ]
    return [there[span].view(kind) for span, kind in zip(spans, kinds, strict=True)]


@torch.no_grad()
def walk_lines_triton(
    lines: Lines, counts: Tensor, most: int, rule: Direction, end: float
) -> list[Tensor]:
    """Return the changes of `walk_lines`, sorted by gamma; of the lines, each row has `counts` [n], at most `most`."""
    start, own, row, classes, values = lines
    opens, (exact,) = counts.cumsum(0), _to_device([np.append(rule.slopes, end)], start.device)
    at, new = (
        values.new_empty(2 * len(row)),
        classes.new_full((2 * len(row),), -1),
    )  # one line enters, one more may tie
    block = max(32, triton.next_power_of_2(most))
    with torch.cuda.device_of(start):
        _walk_rows[(len(start),)](
            start, own, opens, counts, classes, values, exact, len(rule.slopes), at, new,
            MULTIPLIES=rule.multiplies, BLOCK=block, num_warps=max(1, block // 256),
        )  # fmt: skip
    used = (new >= 0).nonzero()[:, 0]
    sample, at, new = row[used // 2], at[used], new[used]
    again = sample == sample.roll(1)
    again[:1] = False
    old, order = torch.where(again, new.roll(1), start[sample]), at.argsort(stable=True)
    return [each[order] for each in (sample, at, new, old)]


@triton.jit
def _walk_rows(
    start, own, opens, counts, classes, values, exact, width, out_at, out_new,
    MULTIPLIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Follow one row from change to change, as `walk_lines` does. `exact`: slopes [K], end of the range."""
    row = tl.program_id(0).to(tl.int64)
    lanes, size, infinity = tl.arange(0, BLOCK), tl.load(counts + row), float("inf")
    first, left = tl.load(opens + row) - size, lanes < size
    k = tl.load(classes + first + lanes, mask=left, other=0)
    other = tl.load(values + first + lanes, mask=left, other=0.0)
    lean, end = tl.load(exact + k), tl.load(exact + width)
    now, true = tl.load(start + row), tl.load(own + row)
    slope = tl.load(exact + now)
    last, steep, out = slope - infinity, lean, 2 * first
    if MULTIPLIES:
        sign = tl.where(true < 0, -1.0, tl.where(true > 0, 1.0, 0.0))
        left = left & (sign * other > 0)
        steep, slope = sign * lean, sign * slope
    left = left & (steep > slope)
    while tl.sum(left.to(tl.int32), 0) > 0:
        at, _ = _crossing(true, other, lean - tl.load(exact + now), MULTIPLIES)
        at = tl.where(left, at, infinity)
        when = tl.maximum(tl.min(at, 0), last)
        tied = left & (at <= tl.where(when <= end, when, -infinity))
        top = tl.max(tl.where(tied, steep, -infinity), 0)
        height = tl.max(tl.where(tied & (steep == top), other, -infinity), 0)
        new = tl.min(tl.where(tied & (steep == top) & (other == height), k, width), 0)
        here = tl.minimum(
            tl.min(tl.where(tied & ((steep != top) | (other == height)), k, width), 0), now
        )
        alone = (here != now) & (here != new)
        tl.store(out_at + out, when, mask=alone)
        tl.store(out_new + out, here, mask=alone)
        out += alone.to(tl.int64)
        enters = tl.where(here == new, when, _up(when))
        shown = (new < width) & (enters <= end)
        tl.store(out_at + out, enters, mask=shown)
        tl.store(out_new + out, new, mask=shown)
        out += shown.to(tl.int64)
        now, true = tl.where(shown, new, now), tl.where(shown, height, true)
        last, slope = tl.where(shown, enters, last), tl.where(shown, top, infinity)
        left = left & (steep > slope)


@triton.jit
def _find_rows(
    logits, stride, labels, exact, fast, out_lo, out_hi, width,
    relative, absolute, steepest, flattest, flat, reach,
    MULTIPLIES: tl.constexpr, BLOCK: tl.constexpr, NARROW: tl.constexpr, STAGES: tl.constexpr,
    APPROXIMATE: tl.constexpr, ROUNDING: tl.constexpr,
):  # fmt: skip
    """Find lo and hi of one row. `exact`: slopes [K], both ends; `fast`: slopes of scores [K]."""
    row = tl.program_id(0).to(tl.int64)
    infinity = float("inf")
    logits += row * stride
    y = tl.load(labels + row)
    own, slope, tilt = tl.load(logits + y).to(tl.float32), tl.load(exact + y), tl.load(fast + y)
    true = own.to(tl.float64)
    lo, hi = tl.load(exact + width), tl.load(exact + width + 1)
    sign, level, error, suits = 1.0, own, tl.maximum(ROUNDING * reach, 1e-28), own == own
    if MULTIPLIES:
        sign, level = tl.where(own < 0, -1.0, 1.0), tl.log2(tl.where(own == 0, 1.0, tl.abs(own)))
        error = ROUNDING * (1 + tl.abs(level) + reach)
        suits = (own != 0) & (tl.abs(level) + reach < 120)
    tilted = flat - sign * tilt  # classes as steep as y count as steeper: by less than the error
    lanes = tl.arange(0, BLOCK)
    high_1, high_2 = tl.full([BLOCK], infinity, tl.float32), tl.full([BLOCK], infinity, tl.float32)
    low_1, low_2 = tl.full([BLOCK], -infinity, tl.float32), tl.full([BLOCK], -infinity, tl.float32)
    at_high, at_low, broken = (
        tl.zeros([BLOCK], tl.int32),
        tl.zeros([BLOCK], tl.int32),
        tl.zeros([BLOCK], tl.float32),
    )
    mine, whole = y // BLOCK, width // BLOCK
    for step in tl.range(
        0, tl.where(mine < whole, whole - 1, whole), num_stages=STAGES
    ):  # all but two blocks
        k = tl.where(step < mine, step, step + 1) * BLOCK + lanes
        x = tl.load(logits + k).to(tl.float32)
        broken += x * 0.0  # 0, or NaN
        slack = _slack(x, level, sign, error, MULTIPLIES, APPROXIMATE)
        high, low = _bounds(slack, sign * tl.load(fast + k) + tilted, APPROXIMATE)
        at_high, at_low = tl.where(high < high_1, k, at_high), tl.where(low > low_1, k, at_low)
        high_2, low_2 = (
            tl.minimum(high_2, tl.maximum(high_1, high)),
            tl.maximum(low_2, tl.minimum(low_1, low)),
        )
        high_1, low_1 = tl.minimum(high_1, high), tl.maximum(low_1, low)
    for last in range(2):  # the last block; and that of y, if it is another
        k = tl.where(last == 0, whole, mine) * BLOCK + lanes
        inside = (k < width) & ((last == 0) | (mine < whole))
        x = tl.load(logits + k, mask=inside, other=0.0).to(tl.float32)
        broken += x * 0.0
        slack = _slack(x, level, sign, error, MULTIPLIES, APPROXIMATE)
        slack = tl.where(inside & (k != y), slack, infinity)
        high, low = _bounds(
            slack, sign * tl.load(fast + k, mask=inside, other=0.0) + tilted, APPROXIMATE
        )
        at_high, at_low = tl.where(high < high_1, k, at_high), tl.where(low > low_1, k, at_low)
        high_2, low_2 = (
            tl.minimum(high_2, tl.maximum(high_1, high)),
            tl.maximum(low_2, tl.minimum(low_1, low)),
        )
        high_1, low_1 = tl.minimum(high_1, high), tl.maximum(low_1, low)
    nearest_1, nearest_0 = tl.min(high_1, 0), tl.max(low_1, 0)
    first_1 = tl.max(tl.where(high_1 == nearest_1, at_high, 0), 0)  # any of the nearest will do
    first_0 = tl.max(tl.where(low_1 == nearest_0, at_low, 0), 0)
    next_1 = tl.min(tl.where((high_1 == nearest_1) & (at_high == first_1), high_2, high_1), 0).to(
        tl.float64
    )
    next_0 = tl.max(tl.where((low_1 == nearest_0) & (at_low == first_0), low_2, low_1), 0).to(
        tl.float64
    )
    narrow = tl.arange(0, NARROW)
    if suits & ((nearest_1.to(tl.float64) <= hi) | (nearest_0.to(tl.float64) >= lo)):
        both = tl.where(narrow % 2 == 0, first_0, first_1)
        lo, hi = _cut(lo, hi, true, slope, y, logits, exact, both, width, MULTIPLIES)
    more_0, more_1 = (next_0 >= lo) | (suits == 0), (next_1 <= hi) | (suits == 0)
    if (more_0 | more_1) & (lo <= hi):
        gamma_0, gamma_1 = lo.to(tl.float32), hi.to(tl.float32)
        largest_0 = tl.maximum(gamma_0 * steepest, gamma_0 * flattest)
        largest_1 = tl.maximum(gamma_1 * steepest, gamma_1 * flattest)
        least_0 = _least(_moved(own, gamma_0 * tilt - largest_0, MULTIPLIES), relative, absolute)
        least_1 = _least(_moved(own, gamma_1 * tilt - largest_1, MULTIPLIES), relative, absolute)
        least_0, least_1 = tl.where(more_0, least_0, infinity), tl.where(more_1, least_1, infinity)
        for start in range(0, width, BLOCK):
            k = start + lanes
            rival = (k < width) & (k != y)
            x = tl.load(logits + k, mask=rival, other=0.0).to(tl.float32)
            tilts = tl.load(fast + k, mask=rival, other=0.0)
            ahead = _moved(x, gamma_0 * tilts - largest_0, MULTIPLIES) >= least_0
            ahead = (
                ahead | (_moved(x, gamma_1 * tilts - largest_1, MULTIPLIES) >= least_1)
            ) & rival
            if tl.sum(ahead.to(tl.int32), 0) > 0:
                for first in range(0, BLOCK, NARROW):
                    every = start + first + narrow
                    lo, hi = _cut(lo, hi, true, slope, y, logits, exact, every, width, MULTIPLIES)
    never, nothing = lo > hi, tl.sum(broken, 0).to(tl.float64)
    tl.store(out_lo + row, tl.where(never, infinity, lo) + nothing)
    tl.store(out_hi + row, tl.where(never, -infinity, hi) + nothing)


@triton.jit
def _slack(x, level, sign, error, MULTIPLIES: tl.constexpr, APPROXIMATE: tl.constexpr):
    """Return how far y is ahead at gamma 0, less what rounding may add: y leads where gamma times rise is less."""
    if MULTIPLIES:  # of the other sign, a class is behind, or ahead, by infinity
        same = tl.maximum(sign * x, 0.0)
        power = _quick("lg2.approx.ftz.f32 $0, $1;", same) if APPROXIMATE else tl.log2(same)
        return (sign * level - error) - sign * power
    return (level - x) - error


@triton.jit
def _bounds(slack, rise, APPROXIMATE: tl.constexpr):
    """Return the gamma up to which y is surely ahead, and that from which on it is; infinite where there is none."""
    at = slack * _quick("rcp.approx.ftz.f32 $0, $1;", rise) if APPROXIMATE else slack / rise
    return tl.where(rise > 0, at, float("inf")), tl.where(rise > 0, -float("inf"), at)


@triton.jit
def _quick(instruction: tl.constexpr, x):
    return tl.inline_asm_elementwise(
        instruction, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _moved(logit, exponent, MULTIPLIES: tl.constexpr):
    """Return a score, given its exponent of two, or what is added to the logit."""
    return logit * tl.exp2(exponent) if MULTIPLIES else logit + exponent


@triton.jit
def _least(own, relative, absolute):
    """Return the least score that may be ahead of y's without rounding."""
    return own - (relative * tl.abs(own) + absolute)


@triton.jit
def _cut(lo, hi, true, slope, y, logits, exact, k, width, MULTIPLIES: tl.constexpr):
    """Return the part of [lo, hi] on which y comes before each of the classes k."""
    infinity = float("inf")
    rival = (k < width) & (k != y)
    other = tl.load(logits + k, mask=rival, other=0.0).to(tl.float32).to(tl.float64)
    rise = tl.load(exact + k, mask=rival, other=0.0) - slope
    low, high = _winning_range(true, other, rise, y < k, MULTIPLIES)
    lo = tl.maximum(lo, tl.max(tl.where(rival, low, -infinity), 0))
    return lo, tl.minimum(hi, tl.min(tl.where(rival, high, infinity), 0))


@triton.jit
def _winning_range(true, other, rise, first, MULTIPLIES: tl.constexpr):
    """Return what `winning_range` of direction.py does."""
    infinity = float("inf")
    at, crosses = _crossing(true, other, rise, MULTIPLIES)
    below = (rise > 0) == (true > 0) if MULTIPLIES else rise > 0
    crosses = crosses & (tl.abs(at) < infinity)
    at = tl.where(first, at, tl.where(below, -_up(-at), _up(at)))
    leads = (true > other) | ((true == other) & first)
    lo = tl.where(crosses, tl.where(below, -infinity, at), tl.where(leads, -infinity, infinity))
    hi = tl.where(crosses, tl.where(below, at, infinity), tl.where(leads, infinity, -infinity))
    return lo, hi


@triton.jit
def _crossing(true, other, rise, MULTIPLIES: tl.constexpr):
    """Return what `crossing` of direction.py does, and whether there is one."""
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
    else:
        gap, crosses = true - other, rise != 0
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
    return at, crosses


@triton.jit
def _up(value):
    """Return the next larger float64 of a finite one."""
    bits = value.to(tl.int64, bitcast=True)
    bits = tl.where(value == 0, 1, tl.where(value > 0, bits + 1, bits - 1))
    return bits.to(tl.float64, bitcast=True)
