"""`walk_lines` as a Triton kernel, for logits on a GPU: float32, float16 or bfloat16.

One program follows the lines of one row from bend to bend, all of them in registers, and writes each change
where the host expects it. In torch operations, every bend would be a dozen launches or more over all rows that
are left; here a row that is done is out of the way, and its lines are read once.

`walk_lines_triton` makes room for all changes there can be, launches `_walk_rows` with one program a row, and
takes out what was written. `_walk_rows` is the loop of `walk_lines` for one row, `_crossing` the same arithmetic
as direction.py's `crossing` and `snap`, `_up` numpy's nextafter toward infinity. A change of either file belongs
into the other as well. Tests compare the two in Triton's interpreter, which needs no GPU; on one,
bench/speed/path_gpu.py does.

This module is imported only when it is used.
"""

# pyright: reportIndexIssue=false

import numpy as np
import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

from .direction import Direction
from .walk import Lines


@torch.no_grad()
def walk_lines_triton(
    lines: Lines, counts: Tensor, most: int, direction: Direction, end: float
) -> list[Tensor]:
    """Return rows, gammas, new and old classes of the changes of `walk_lines`, ascending by gamma.

    Args:
        lines: as of `walk_lines`, on the device.
        counts: [n], how many lines each row has.
        most: the largest of them.
        direction, end: as of `walk_lines`.

    Returns:
        Four tensors [E] on the device, in the order of the fields of `Changes`.
    """
    start, own, row, classes, values = lines
    slopes_and_end = torch.from_numpy(np.append(direction.slopes, end)).to(start.device)
    # A row changes at most twice for each of its lines: it enters, and one more may win the tie. Each
    # line has two places to write to, and those that stay -1 are no change.
    at = values.new_empty(2 * len(row))
    new = classes.new_full((2 * len(row),), -1)
    block = max(32, triton.next_power_of_2(most))
    with torch.cuda.device_of(start):
        _walk_rows[(len(start),)](
            start, own, counts.cumsum(0), counts, classes, values,
            slopes_and_end, len(direction.slopes), at, new,
            MULTIPLIES=direction.multiplies, BLOCK=block, num_warps=max(1, block // 256),
        )  # fmt: skip
    used = (new >= 0).nonzero()[:, 0]
    sample = row[used // 2]
    at = at[used]
    new = new[used]
    # The old class of a change is the new one of the change before it or, of the first, the start.
    again = sample == sample.roll(1)
    again[:1] = False
    old = torch.where(again, new.roll(1), start[sample])
    order = at.argsort(stable=True)
    return [each[order] for each in (sample, at, new, old)]


@triton.jit
def _walk_rows(
    start, own, closes, counts, classes, values, slopes_and_end, width, out_at, out_new,
    MULTIPLIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Follow one row from change to change, as `walk_lines` does, whose comments say why.

    A lane is a line of the row; `left` says which lanes may still overtake. The arguments are pointers:
    those of `Lines`, `closes` and `counts` (where each row's lines end, and how many they are), the slopes
    [K] with the end of the range behind them, and the two arrays that changes are written to, in which
    the row has places from ``2 first`` on.
    """
    row = tl.program_id(0).to(tl.int64)
    infinity = float("inf")
    lanes = tl.arange(0, BLOCK)
    # The lines of this row, a lane each; lanes beyond them are masked.
    size = tl.load(counts + row)
    first = tl.load(closes + row) - size
    left = lanes < size  # the lines that may still overtake
    k = tl.load(classes + first + lanes, mask=left, other=0)
    other = tl.load(values + first + lanes, mask=left, other=0.0)
    lean = tl.load(slopes_and_end + k)
    end = tl.load(slopes_and_end + width)
    # Who wins now, its logit and slope, and since when: minus infinity, in the type of a slope.
    now = tl.load(start + row)
    true = tl.load(own + row)
    slope = tl.load(slopes_and_end + now)
    since = slope - infinity
    steep = lean
    out = 2 * first
    if MULTIPLIES:
        # Only lines of the winner's sign count: `sign * other > 0` is false for 0 and for the other sign.
        sign = tl.where(true < 0, -1.0, tl.where(true > 0, 1.0, 0.0))
        left = left & (sign * other > 0)
        steep = sign * lean
        slope = sign * slope
    left = left & (steep > slope)
    while tl.sum(left.to(tl.int32), 0) > 0:
        # The first crossing, and the lines that meet there: none if it is beyond the end.
        at = _crossing(true, other, lean - tl.load(slopes_and_end + now), MULTIPLIES)
        at = tl.where(left, at, infinity)
        when = tl.maximum(tl.min(at, 0), since)
        tied = left & (at <= tl.where(when <= end, when, -infinity))
        # The steepest leads after it; of equal slopes the largest logit, and then the first class.
        top = tl.max(tl.where(tied, steep, -infinity), 0)
        height = tl.max(tl.where(tied & (steep == top), other, -infinity), 0)
        new = tl.min(tl.where(tied & (steep == top) & (other == height), k, width), 0)
        # At the crossing itself the smallest class wins, which may be a third one.
        meets = tied & ((steep != top) | (other == height))
        here = tl.minimum(tl.min(tl.where(meets, k, width), 0), now)
        third = (here != now) & (here != new)
        tl.store(out_at + out, when, mask=third)
        tl.store(out_new + out, here, mask=third)
        out += third.to(tl.int64)
        enters = tl.where(here == new, when, _up(when))
        inside = (new < width) & (enters <= end)
        tl.store(out_at + out, enters, mask=inside)
        tl.store(out_new + out, new, mask=inside)
        out += inside.to(tl.int64)
        # On with the new winner; without one, an infinite slope leaves no line and ends the loop.
        now = tl.where(inside, new, now)
        true = tl.where(inside, height, true)
        since = tl.where(inside, enters, since)
        slope = tl.where(inside, top, infinity)
        left = left & (steep > slope)


@triton.jit
def _crossing(own, other, rise, MULTIPLIES: tl.constexpr):
    """Return what `crossing` of direction.py does; any number where there is none.

    Divisors that could be 0 are replaced first, as a lane cannot be left out of a division: what comes of
    such a lane is never looked at, since it is not `left`.
    """
    steeper = rise > 0
    if MULTIPLIES:
        a = tl.where(steeper, own, other)
        b = tl.where(steeper, other, own)
        ratio = a / tl.where(b == 0, 1.0, b)
        crosses = (ratio > 0) & (b != 0) & (rise != 0)
        gap = tl.log(tl.where(crosses, ratio, 1.0))
        # Near 1, Kahan's log1p: log(1 + x) x / ((1 + x) - 1).
        near = tl.abs(gap) < 0.0625
        part = tl.where(near & crosses, (a - b) / tl.where(crosses, b, 1.0), 0.0)
        one_more = 1.0 + part
        rounded = one_more - 1.0
        small = tl.log(one_more) * part / tl.where(rounded == 0, 1.0, rounded)
        gap = tl.where(near, tl.where(rounded == 0, part, small), gap)
        at = tl.where(steeper, gap, -gap) / tl.where(crosses, rise, 1.0)
    else:
        gap = own - other
        at = gap / tl.where(rise != 0, rise, 1.0)
    # `snap`: a multiple of 1/64000 that is missed only by rounding.
    scaled = at * 64000.0
    magic = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to the nearest whole number
    close = tl.where(tl.abs(scaled) < 1e15, (scaled + magic) - magic, scaled)
    off = tl.abs(scaled - close)
    at = tl.where((off < 1e-4) & (off <= 1e-13 * tl.abs(close)), close / 64000.0, at)
    if not MULTIPLIES:  # the quotient may underflow: that is not a tie at 0
        smallest = _up(gap - gap)
        toward = tl.where((gap > 0) == (rise > 0), smallest, -smallest)
        at = tl.where((at == 0) & (own != other), toward, at)
    return at


@triton.jit
def _up(value):
    """Return the next larger float64 of a finite one.

    The bits of positive floats, read as an integer, ascend with them, and those of negative ones descend.
    """
    bits = value.to(tl.int64, bitcast=True)
    bits = tl.where(value == 0, 1, tl.where(value > 0, bits + 1, bits - 1))
    return bits.to(tl.float64, bitcast=True)
