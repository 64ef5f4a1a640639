"""The walk of `envelope.py` in torch operations, for logits on an accelerator: only changes are copied to the host.

The steps are those of `envelope.py`, one by one; where samples are right follows, or is found by Triton. Crossings are
computed in float64 on the device, whose logarithm may differ from the host's in the last bit: they are equal to a few
units in the last place, and to the bit at 0 and at multiples of 1/64000. Logarithms of probabilities are taken in their
own precision, with its last bit.
"""

from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from ..core.array import LARGEST_PROBABILITY, check_logits, not_finite
from ..core.choices import Kind
from ..rules.direction import FAR_FROM_ONE, NEAR_ONE, SMALLEST, Direction, TabulatedRule, fine_steps
from ..show.progress import RowProgress

_NARROW = (torch.float32, torch.float16, torch.bfloat16)  # whole numbers become float64, as in numpy
ExactWinners = Callable[[np.ndarray, Direction, float], np.ndarray]  # `winners_at` of envelope.py
_Event = tuple[Tensor, Tensor, Tensor, Tensor]  # sample, gamma, new class, old class


def _lower_masked(part: Tensor, rows: Tensor) -> Tensor:
    """Return what `lower_masked` of core/array.py does of logits [n, K], which are so many rows of all."""
    masked = part == -torch.inf
    refused = (~part.isfinite() & ~masked).any(dim=1) | masked.all(dim=1)
    if refused.any():
        raise not_finite(int(rows[refused.cpu()][0]))
    return part.masked_fill(masked, torch.finfo(part.dtype).min)


def has_triton(logits: Tensor) -> bool:
    """Return whether the kernel can find the intervals of these logits."""
    return logits.dtype in _NARROW and logits.is_cuda and _knows_triton()


@cache
def _knows_triton() -> bool:
    return find_spec("triton") is not None


def find_with_triton(
    logits: Tensor, labels: np.ndarray, rule: Direction, range: tuple[float, float], progress: RowProgress | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return lo and hi by one kernel, which reads the logits once. The host waits only for its result."""
    from .intervals_triton import find_intervals_triton

    negative = (logits[:100] < 0).any()
    lo, hi = find_intervals_triton(logits, labels, rule, range).cpu().numpy()
    if not negative:  # a negative number is no probability
        check_logits(logits[:1000])
    if (rows := np.flatnonzero(np.isnan(lo))).size:
        some = torch.from_numpy(rows)
        part = _lower_masked(logits[some.to(logits.device)].float(), some)
        lo[rows], hi[rows] = find_intervals_triton(part, labels[rows], rule, range).cpu().numpy()
    if progress is not None:
        progress(len(logits), len(logits))
    return lo, hi


def _crossing(true: Tensor, other: Tensor, rise: Tensor, multiplies: bool) -> Tensor:
    """Return what `crossing` of direction.py does, on the device."""
    if multiplies:
        a, b = torch.where(rise > 0, true, other), torch.where(rise > 0, other, true)
        gap = (a / b).log()
        gap = torch.where(gap.abs() < NEAR_ONE, ((a - b) / b).log1p(), gap)
        gap = torch.where(gap.abs() > FAR_FROM_ONE, a.abs().log() - b.abs().log(), gap)
        gap = torch.where((a < 0) == (b < 0), gap, torch.nan) * torch.where(rise > 0, 1.0, -1.0)
    else:
        gap = true - other
    at = gap / rise
    near = (at * 64000).round()
    off = (at * 64000 - near).abs()
    at = torch.where((off < 1e-4) & (off <= 1e-13 * near.abs()), near / 64000, at)
    if not multiplies:  # the quotient may underflow: that is not a tie at 0
        at = torch.where((at == 0) & (true != other), torch.full_like(at, SMALLEST).copysign(at), at)
    return at


@torch.no_grad()
def walk_on_device(
    logits: Tensor,
    rule: Direction,
    range: tuple[float, float],
    exact: ExactWinners,
    *,
    kind: Kind = "logits",
    size: int = 1 << 27,
    progress: RowProgress | None = None,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the class predicted at the start of the range, [N], and sample, gamma, new and old class of all changes.

    Changes are sorted by gamma. About `size` numbers of logits [N, K] are worked on at a time.
    """
    if kind != "logits" or not logits.is_floating_point() or not (logits[:100] < 0).any():  # these are no probabilities
        check_logits(logits[:1000], kind=kind)
    table = TabulatedRule.of(rule, range, np.float32 if logits.dtype in _NARROW else np.float64)
    slopes = torch.from_numpy(rule.slopes).to(logits.device)
    moves = (
        torch.linspace(*range, fine_steps(logits.shape[1]) + 1, dtype=slopes.dtype, device=slopes.device)[:, None]
        * slopes
    )
    moves -= moves.amax(1, keepdim=True)
    moves = (moves.exp_() if rule.multiplies else moves).to(torch.float32 if logits.dtype in _NARROW else torch.float64)
    lines, step = [], max(1, size // logits.shape[1])
    for first in np.arange(0, len(logits), step).tolist():
        x = logits[first : first + step].to(moves.dtype)
        if kind == "probabilities":
            if ((x < 0) | (x > LARGEST_PROBABILITY)).any():
                check_logits(x, kind=kind, first=first)  # raises, naming the row
            x = x.clamp_min(torch.finfo(x.dtype).tiny).log()
        if not (x @ x.new_ones(x.shape[1])).isfinite().all():
            x = _lower_masked(x, torch.arange(first, first + len(x)))
        start, end = (_winners(x, rule, moves, table, at, exact) for at in (0, -1))
        row, classes = _reaching(x, start, end, moves, slopes, rule, table)
        own = x.gather(1, start[:, None])[:, 0].double()
        lines.append((start, own, row + first, classes, x[row, classes].double()))
        if progress is not None:
            progress(min(first + step, len(logits)), len(logits))
    start, own, row, classes, values = (torch.cat(parts) for parts in zip(*lines, strict=True))
    events = _walk(start, own, row, classes, values, slopes, rule, range[1])
    fields = [torch.cat(parts) for parts in zip(*events, strict=True)]
    order = fields[1].argsort(stable=True)  # by gamma; the changes of a row stay in their order
    return start.cpu().numpy(), [field[order].cpu().numpy() for field in fields]


def _winners(x: Tensor, rule: Direction, moves: Tensor, table: TabulatedRule, at: int, exact: ExactWinners) -> Tensor:
    """Return the class that wins at one end of the range, [n]; where rounding could decide, by the host."""
    gamma = float(table.gammas[at])
    if gamma == 0:
        return x.argmax(dim=1)
    scores = x * moves[at] if rule.multiplies else x + moves[at]
    level, found = scores.max(dim=1)
    second = scores.scatter_(1, found[:, None], -torch.inf).amax(dim=1)
    close = (second >= level - 2 * (level.abs() * table.relative + table.absolute)).nonzero()[:, 0]
    if len(close):
        found[close] = torch.from_numpy(exact(x[close].cpu().numpy(), rule, gamma)).to(x.device)
    return found


def _reaching(
    x: Tensor, start: Tensor, end: Tensor, moves: Tensor, slopes: Tensor, rule: Direction, table: TabulatedRule
) -> tuple[Tensor, Tensor]:
    """Return (row, class) of each class that the row's envelope can touch after its first winner, row by row."""
    both = torch.stack([start, end], dim=1)
    height, slope = x.gather(1, both).double(), slopes[both]
    if rule.multiplies:
        sign = height.sign()
        height, slope = torch.where(sign == 0, 0.0, sign * height.abs().log()), sign * slope
    rise, (low, high) = slope[:, 1] - slope[:, 0], table.gammas[[0, -1]].tolist()
    meet = torch.where(rise > 0, (height[:, 0] - height[:, 1]) / rise, low).clamp(low, high)
    before = ((meet - low) / (high - low) * (len(moves) - 1)).floor().long().clamp_min(0)
    scores = moves[before]
    scores = scores.mul_(x) if rule.multiplies else scores.add_(x)
    level = scores.gather(1, end[:, None])
    floor = level - (level.abs() * table.relative + table.absolute)
    row, classes = (scores.scatter_(1, start[:, None], -torch.inf) >= floor).nonzero(as_tuple=True)
    return row, classes


def _walk(
    now: Tensor, own: Tensor, row: Tensor, classes: Tensor, values: Tensor, slopes: Tensor, rule: Direction, end: float
) -> Iterator[_Event]:
    """Yield what `walk` of envelope.py does; what it does with stretches of a row is done by the row's number here."""
    n, nothing, now, last = len(now), len(slopes), now.clone(), torch.full_like(own, -torch.inf)
    sign = own.sign() if rule.multiplies else torch.ones_like(own)
    steep, slope = sign[row] * slopes[classes], sign * slopes[now]
    if rule.multiplies:
        steep[values.sign() != sign[row]] = -torch.inf

    def each(begin: float, rows: Tensor, found: Tensor, how: str) -> Tensor:
        return found.new_full((n,), begin).scatter_reduce_(0, rows, found, how)

    yield row[:0], own[:0], now[:0], now[:0]
    while len(kept := (steep > slope[row]).nonzero()[:, 0]):
        row, classes, values, steep = row[kept], classes[kept], values[kept], steep[kept]
        at = _crossing(own[row], values, slopes[classes] - slopes[now[row]], rule.multiplies)
        when = torch.maximum(each(torch.inf, row, at, "amin"), last)
        moving = torch.zeros_like(now, dtype=torch.bool).index_fill_(0, row, True)
        last = torch.where(moving, when.masked_fill(when > end, torch.nan), last)
        slope = slope.masked_fill(moving, torch.inf)
        tied = (at <= last[row]).nonzero()[:, 0]
        rows = some = row[tied]
        lead, first = tied, classes[tied]
        if (rows[1:] == rows[:-1]).any():
            steepest = steep[tied] == each(-torch.inf, rows, steep[tied], "amax")[rows]
            height = torch.where(steepest, values[tied], -torch.inf)
            highest = height == each(-torch.inf, rows, height, "amax")[rows]
            place = torch.arange(len(tied), device=own.device).masked_fill(~highest, len(tied))
            lead = each(len(tied), rows, place, "amin")
            some = (lead < len(tied)).nonzero()[:, 0]
            lead = tied[lead[some]]
            first = each(nothing, rows, classes[tied].masked_fill(steepest & ~highest, nothing), "amin")[some]
        current, when = now[some], last[some]
        new, here = classes[lead], torch.minimum(first, current)
        alone = (here != current) & (here != new)
        yield some[alone], when[alone], here[alone], current[alone]
        enters = torch.where(here == new, when, when.nextafter(torch.full_like(when, torch.inf)))
        shown = (enters <= end).nonzero()[:, 0]
        old = torch.where(alone, here, current)[shown]
        some, lead, new, enters = some[shown], lead[shown], new[shown], enters[shown]
        yield some, enters, new, old
        now[some], own[some], slope[some], last[some] = new, values[lead], steep[lead], enters
