"""The walk of `envelope.py` for logits on an accelerator: only changes are copied to the host.

The lines that a row can reach are found in torch operations, and followed by Triton, or else by the host. Crossings
are computed in float64, by the device's logarithm: they are equal to the host's to a few units in the last place, and
to the bit at 0 and at multiples of 1/64000. Logarithms of probabilities have their own precision, with its last bit.
"""

from functools import cache
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from ..support.arrays import LARGEST_PROBABILITY, check_logits, not_finite
from ..support.progress import RowProgress
from ..support.types import Kind
from .curve import ascending
from .direction import Direction, TabulatedRule, fine_steps
from .envelope import Envelope, Lines, walk_lines, winners_at

_NARROW = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
)  # whole numbers become float64, as in numpy
_MOST_LINES = 1024  # of a row that Triton follows


def _lower_masked(part: Tensor, rows: Tensor) -> Tensor:
    """Return what `lower_masked` of support/arrays.py does of logits [n, K], which are so many rows of all."""
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
    logits: Tensor,
    labels: np.ndarray,
    rule: Direction,
    range: tuple[float, float],
    progress: RowProgress | None,
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


@torch.no_grad()
def walk_on_device(
    logits: Tensor,
    rule: Direction,
    range: tuple[float, float],
    *,
    kind: Kind = "logits",
    size: int = 1 << 27,
    progress: RowProgress | None = None,
) -> Envelope:
    """Return every change of every prediction. About `size` numbers of logits [N, K] are worked on at a time."""
    if (
        kind != "logits" or not logits.is_floating_point() or not (logits[:100] < 0).any()
    ):  # these are no probabilities
        check_logits(logits[:1000], kind=kind)
    table = TabulatedRule.of(rule, range, np.float32 if logits.dtype in _NARROW else np.float64)
    slopes = torch.from_numpy(rule.slopes).to(logits.device)
    moves = (
        torch.linspace(
            *range, fine_steps(logits.shape[1]) + 1, dtype=slopes.dtype, device=slopes.device
        )[:, None]
        * slopes
    )
    moves -= moves.amax(1, keepdim=True)
    moves = (moves.exp_() if rule.multiplies else moves).to(
        torch.float32 if logits.dtype in _NARROW else torch.float64
    )
    lines, step = [], max(1, size // logits.shape[1])
    for first in np.arange(0, len(logits), step).tolist():
        x = logits[first : first + step].to(moves.dtype)
        if kind == "probabilities":
            if ((x < 0) | (x > LARGEST_PROBABILITY)).any():
                check_logits(x, kind=kind, first=first)  # raises, naming the row
            x = x.clamp_min(torch.finfo(x.dtype).tiny).log()
        if not (x @ x.new_ones(x.shape[1])).isfinite().all():
            x = _lower_masked(x, torch.arange(first, first + len(x)))
        start, end = (_winners(x, rule, moves, table, at) for at in (0, -1))
        row, classes = _reaching(x, start, end, moves, slopes, rule, table)
        own = x.gather(1, start[:, None])[:, 0].double()
        lines.append((start, own, row + first, classes, x[row, classes].double()))
        if progress is not None:
            progress(min(first + step, len(logits)), len(logits))
    found = Lines(*(torch.cat(parts) for parts in zip(*lines, strict=True)))
    counts = torch.bincount(found.row, minlength=len(logits))
    if has_triton(logits) and (most := int(counts.max())) <= _MOST_LINES:
        from .intervals_triton import walk_lines_triton

        changes = [
            each.cpu().numpy() for each in walk_lines_triton(found, counts, most, rule, range[1])
        ]
    else:
        here = Lines(*(each.cpu().numpy() for each in found))
        nothing = here.row[:0], here.own[:0], here.start[:0], here.start[:0]
        changes = [
            np.concatenate(parts)
            for parts in zip(nothing, *walk_lines(here, rule, range[1]), strict=True)
        ]
        order = ascending(changes[1])  # the changes of a row stay in their order
        changes = [each[order] for each in changes]
    return Envelope(found.start.cpu().numpy(), *changes, classes=logits.shape[1], range=range)


def _winners(x: Tensor, rule: Direction, moves: Tensor, table: TabulatedRule, at: int) -> Tensor:
    """Return the class that wins at one end of the range, [n]; where rounding could decide, by the host."""
    gamma = float(table.gammas[at])
    if gamma == 0:
        return x.argmax(dim=1)
    scores = x * moves[at] if rule.multiplies else x + moves[at]
    level, found = scores.max(dim=1)
    second = scores.scatter_(1, found[:, None], -torch.inf).amax(dim=1)
    close = (second >= level - 2 * (level.abs() * table.relative + table.absolute)).nonzero()[:, 0]
    if len(close):
        found[close] = torch.from_numpy(winners_at(x[close].cpu().numpy(), rule, gamma)).to(
            x.device
        )
    return found


def _reaching(
    x: Tensor,
    start: Tensor,
    end: Tensor,
    moves: Tensor,
    slopes: Tensor,
    rule: Direction,
    table: TabulatedRule,
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
