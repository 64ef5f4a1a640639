"""`intervals` in torch operations, for logits that lie on an accelerator: only lo and hi come to the host.

The same bounds and half-lines as `intervals.py`, line by line; crossings in float64 on the device, whose logarithm may
differ from the host's in the last bit.
"""

from __future__ import annotations

import numpy as np
import torch

from ..core.errors import LevelheadError
from ..core.measure import MOST, Kind, check_logits
from ..show.progress import RowProgress
from .intervals import Table
from .rule import Rule

Tensor = torch.Tensor


@torch.no_grad()
def intervals(
    logits: Tensor, labels: np.ndarray, rule: Rule, range: tuple[float, float], *, kind: Kind = "logits",
    size: int = 1 << 27, progress: RowProgress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """lo [N] and hi [N] of logits [N, K] on any device with float64, about `size` numbers at a time."""
    check_logits(logits[:1000], kind=kind)
    table = Table.of(rule, range, np.dtype(np.float64 if logits.dtype == torch.float64 else np.float32))
    moves, slopes = (torch.from_numpy(part).to(logits.device) for part in (table.moves, rule.slopes))
    label, found, step = torch.from_numpy(labels).to(logits.device), [], max(1, size // logits.shape[1])
    for first in np.arange(0, len(logits), step).tolist():
        part = logits[first : first + step].to(moves.dtype)
        if kind == "probabilities" and ((part < 0) | (part > MOST)).any():
            check_logits(part, kind=kind, first=first)  # says which
        part = part.clamp_min(torch.finfo(part.dtype).tiny).log() if kind == "probabilities" else part
        _check_finite(part, first)
        found.append(_block(part, label[first : first + step], moves, slopes, rule, table))
        if progress is not None:
            progress(min(first + step, len(logits)), len(logits))
    return torch.cat([lo for lo, _ in found]).cpu().numpy(), torch.cat([hi for _, hi in found]).cpu().numpy()


def _block(x: Tensor, label: Tensor, moves: Tensor, slopes: Tensor, rule: Rule, table: Table) -> tuple[Tensor, Tensor]:
    lo = x.new_full((len(x),), table.gammas[0], dtype=torch.float64)
    hi = x.new_full((len(x),), table.gammas[-1], dtype=torch.float64)
    own = x.gather(1, label[:, None])[:, 0].double()

    def meet(rows: Tensor, other: Tensor) -> None:
        true = label[rows]
        rise = slopes[other] - slopes[true]
        low, high = _wins(own[rows], x[rows, other].double(), rise, true < other, rule.multiplies)
        lo.scatter_reduce_(0, rows, low, "amax")
        hi.scatter_reduce_(0, rows, high, "amin")

    at_begin, at_end = (_first(x, label, moves[at], float(table.gammas[at]), rule, table) for at in (0, -1))
    late, early = (at_begin != label).nonzero()[:, 0], (at_end != label).nonzero()[:, 0]
    meet(torch.cat([late, early]), torch.cat([at_begin[late], at_end[early]]))
    late, early = late[lo[late] <= hi[late]], early[lo[early] <= hi[early]]
    scale, last = (len(table.gammas) - 1) / float(table.gammas[-1] - table.gammas[0]), len(table.gammas) - 1
    at = torch.cat([((lo[late] - table.gammas[0]) * scale).floor(), ((hi[early] - table.gammas[0]) * scale).ceil()])
    rows, met = torch.cat([late, early]), torch.cat([at_begin[late], at_end[early]])
    if len(rows):
        scores = _scores(x[rows], moves[at.clamp_(0, last).long()], rule, into=True)
        y = label[rows][:, None]
        least = scores.gather(1, y)
        least = least - _room(least, table)
        scores.scatter_(1, y, -torch.inf).scatter_(1, met[:, None], -torch.inf)
        item, other = (scores >= least).nonzero(as_tuple=True)
        meet(rows[item], other)
    never = lo > hi
    return lo.masked_fill_(never, torch.inf), hi.masked_fill_(never, -torch.inf)


def _first(x: Tensor, label: Tensor, move: Tensor, gamma: float, rule: Rule, table: Table) -> Tensor:
    """The first class at one end of the range, [n]: y only if it is so for certain."""
    if gamma == 0:
        return x.argmax(dim=1)
    scores = _scores(x, move, rule)
    own = scores.gather(1, label[:, None])
    return scores.scatter_(1, label[:, None], own - _room(own, table)).argmax(dim=1)


def _scores(x: Tensor, moves: Tensor, rule: Rule, *, into: bool = False) -> Tensor:
    if into:
        return x.mul_(moves) if rule.multiplies else x.add_(moves)
    return x * moves if rule.multiplies else x + moves


def _room(own: Tensor, table: Table) -> Tensor:
    return own.abs() * table.relative + table.absolute


def _wins(true: Tensor, other: Tensor, rise: Tensor, first: Tensor, multiplies: bool) -> tuple[Tensor, Tensor]:
    """`intervals.wins`, on the device."""
    if multiplies:
        gap = (true / other).log()
        gap = torch.where((gap == 0) & (true != other), (true - other) / other, gap)
        gap = torch.where(gap.isinf(), true.abs().log() - other.abs().log(), gap)
        below = (rise > 0) == (true > 0)
    else:
        gap, below = true - other, rise > 0
    at = gap / rise
    near = (at * 64000).round()
    at = torch.where((at * 64000 - near).abs() <= 1e-13 * near.abs(), near / 64000, at)
    fixed, infinite = ~at.isfinite(), torch.full_like(at, torch.inf)
    at = torch.where(first, at, torch.nextafter(at, torch.where(below, -infinite, infinite)))
    lo, hi = torch.where(below | fixed, -infinite, at), torch.where(below & ~fixed, at, infinite)
    loses = fixed & ((true < other) | ((true == other) & ~first))
    return torch.where(loses, infinite, lo), torch.where(loses, -infinite, hi)


def _check_finite(x: Tensor, first: int) -> None:
    sums = x @ x.new_ones(x.shape[1])
    for row in (~sums.isfinite()).nonzero()[:, 0].tolist():
        if not x[row].isfinite().all():
            raise LevelheadError(f"the logits hold NaN or infinite values, first in row {first + row}")
