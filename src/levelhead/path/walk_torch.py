"""The walk of `walk.py` for logits on an accelerator: only changes are copied to the host.

`walk_on_device` goes the road of `compute_envelope`, a slice of about 128 million numbers at a time: `_read`
checks a slice, `_winners` finds who wins at both ends, and `_reaching` which lines can matter between. What is
left of all slices, a small part of the logits, is then followed at once (`_follow`): by Triton, or else by the
host.

Crossings are computed in float64, by the device's logarithm: they are equal to the host's to a few units in
the last place, and to the bit at 0 and at multiples of 1/64000. Logarithms of probabilities have their own
precision, with its last bit.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from ..support.logits import LARGEST_PROBABILITY, check_logits, not_finite
from ..support.progress import RowProgress
from ..support.types import Kind
from .curve import ascending
from .direction import Direction, MoveTable
from .envelope import Envelope
from .walk import Changes, Lines, walk_lines
from .winners import winners_at

# Others, and whole numbers, become float64, as in numpy.
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_MOST_LINES = 1024  # of a row that Triton follows


@torch.no_grad()
def walk_on_device(
    logits: Tensor,
    direction: Direction,
    range: tuple[float, float],
    *,
    kind: Kind = "logits",
    size: int = 1 << 27,
    progress: RowProgress | None = None,
) -> Envelope:
    """Return every change of every prediction of logits [N, K], which are on a device.

    The lines that rows can reach are found for about `size` numbers at a time, as scores take as
    much memory as logits, and followed together.

    Args:
        logits, direction, range, kind, progress: as in `find_changes`.
        size: how many scores are held at a time; 2^27 of float32 are 512 MiB.

    Raises:
        LevelheadError: logits that are not finite, or of another kind than said, with their row.
    """
    # A negative number is no probability: then nothing need be copied to be looked at.
    certain = kind == "logits" and logits.is_floating_point() and bool((logits[:100] < 0).any())
    if not certain:
        check_logits(logits[:1000], kind=kind)
    # Slice after slice, the few lines that can matter.
    width = logits.shape[1]
    moved = _Moved(direction, range, logits)
    parts = []
    step = max(1, size // width)
    for first in np.arange(0, len(logits), step).tolist():
        x = _read(logits[first : first + step], kind, moved.moves.dtype, first)
        start = _winners(x, direction, moved, 0)
        end = _winners(x, direction, moved, -1)
        row, classes = _reaching(x, start, end, direction, moved)
        own = x.gather(1, start[:, None])[:, 0].double()
        parts.append(Lines(start, own, row + first, classes, x[row, classes].double()))
        if progress is not None:
            progress(min(first + step, len(logits)), len(logits))
    # All of them together, from bend to bend.
    lines = Lines(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
    changes = _follow(lines, direction, range[1], has_triton(logits))
    return Envelope(
        start=lines.start.cpu().numpy(),
        sample=changes.row,
        gamma=changes.gamma,
        new_class=changes.new_class,
        old_class=changes.old_class,
        classes=width,
        range=range,
    )


def has_triton(logits: Tensor) -> bool:
    """Return whether the kernel can follow the lines of these logits: float32 or narrower, on CUDA, with Triton."""
    return logits.dtype in _NARROW and logits.is_cuda and _knows_triton()


@cache
def _knows_triton() -> bool:
    return find_spec("triton") is not None


class _Moved:
    """A direction on the device: its slopes [K], and its `MoveTable` with the moves [G, K] as a tensor.

    Both are made on the host and copied once.
    """

    def __init__(self, direction: Direction, range: tuple[float, float], logits: Tensor) -> None:
        dtype = np.float64
        if logits.dtype in _NARROW:
            dtype = np.float32
        self.range = range
        self.table = MoveTable.of(direction, range, dtype)
        self.slopes = torch.from_numpy(direction.slopes).to(logits.device)
        self.moves = torch.from_numpy(self.table.moves).to(logits.device)

    def margin(self, level: Tensor) -> Tensor:
        """Return how far below a score another can be and still, unrounded, be ahead of it."""
        return level.abs() * self.table.relative + self.table.absolute


def _read(part: Tensor, kind: Kind, dtype: torch.dtype, first: int) -> Tensor:
    """Return rows of logits, or logarithms of probabilities, that are checked and finite.

    Args:
        part: [n, K], a slice of what was given.
        kind: what that is.
        dtype: in which scores are computed: float32, or float64 of float64 logits.
        first: the number of its first row, for messages.
    """
    x = part.to(dtype)
    if kind == "probabilities":
        if ((x < 0) | (x > LARGEST_PROBABILITY)).any():
            check_logits(x, kind=kind, first=first)  # raises, naming the row
        x = x.clamp_min(torch.finfo(x.dtype).tiny).log()
    # The sum of a row is finite if all of it is; a product is the fastest sum.
    if not (x @ x.new_ones(x.shape[1])).isfinite().all():
        x = _lower_masked(x, torch.arange(first, first + len(x)))
    return x


def _lower_masked(part: Tensor, rows: Tensor) -> Tensor:
    """Return what `lower_masked` of support/logits.py does of logits [n, K], which are these rows."""
    masked = part == -torch.inf
    refused = (~part.isfinite() & ~masked).any(dim=1) | masked.all(dim=1)
    if refused.any():
        raise not_finite(int(rows[refused.cpu()][0]))
    return part.masked_fill(masked, torch.finfo(part.dtype).min)


def _winners(x: Tensor, direction: Direction, moved: _Moved, at: int) -> Tensor:
    """Return who wins at the start (0) or the end (-1) of the range, [n].

    Where rounding could decide, the host does, by crossings: those rows are few, and `winners_at` is then
    the same code for both engines.
    """
    gamma = moved.range[at]
    if gamma == 0:
        return x.argmax(dim=1)
    if direction.multiplies:
        scores = x * moved.moves[at]
    else:
        scores = x + moved.moves[at]
    level, winner = scores.max(dim=1)
    second = scores.scatter_(1, winner[:, None], -torch.inf).amax(dim=1)
    close = (second >= level - 2 * moved.margin(level)).nonzero()[:, 0]
    if len(close):
        exact = winners_at(x[close].cpu().numpy(), direction, gamma)
        winner[close] = torch.from_numpy(exact).to(x.device)
    return winner


def _reaching(
    x: Tensor, start: Tensor, end: Tensor, direction: Direction, moved: _Moved
) -> tuple[Tensor, Tensor]:
    """Return (row, class) of each line that a row can reach, row by row: as `reaching_lines` of reach.py.

    That function says why it is right. Here rows that are predicted the same at both ends are not taken
    out first: they are looked at at the start of the range, where only a near tie reaches their winner.

    Args:
        x: [n, K], finite.
        start, end: [n] each, who wins at the two ends.
        direction, moved: how scores depend on gamma, and the same on the device.
    """
    # Where the lines of the winners at the two ends meet.
    pairs = torch.stack([start, end], dim=1)
    height = x.gather(1, pairs).double()
    slope = moved.slopes[pairs]
    if direction.multiplies:
        sign = height.sign()
        height = torch.where(sign == 0, 0.0, sign * height.abs().log())
        slope = sign * slope
    rise = slope[:, 1] - slope[:, 0]
    low, high = moved.range
    meet = torch.where(rise > 0, (height[:, 0] - height[:, 1]) / rise, low).clamp(low, high)
    # All scores at the gamma of the table before that.
    place = (meet - low) / (high - low) * (len(moved.moves) - 1)
    scores = moved.moves[place.floor().long().clamp_min(0)]
    if direction.multiplies:
        scores = scores.mul_(x)
    else:
        scores = scores.add_(x)
    # The lines that are not below the last winner's there.
    level = scores.gather(1, end[:, None])
    floor = level - moved.margin(level)
    scores.scatter_(1, start[:, None], -torch.inf)  # the first winner's own line
    row, classes = (scores >= floor).nonzero(as_tuple=True)
    return row, classes


def _follow(lines: Lines, direction: Direction, end: float, by_triton: bool) -> Changes:
    """Return the changes that lines make, on the host, ascending by gamma.

    The kernel holds all lines of a row in registers. Where a row has too many for that, or without
    Triton, the lines are copied to the host, which follows them: they are few beside the logits.
    """
    if by_triton:
        counts = torch.bincount(lines.row, minlength=len(lines.start))
        most = int(counts.max())
        if most <= _MOST_LINES:
            from .walk_triton import walk_lines_triton

            tensors = walk_lines_triton(lines, counts, most, direction, end)
            return Changes(*(tensor.cpu().numpy() for tensor in tensors))
    here = Lines(*(tensor.cpu().numpy() for tensor in lines))
    parts = [Changes.none(), *walk_lines(here, direction, end)]
    joined = Changes(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    order = ascending(joined.gamma)  # stable: the changes of a row stay in their order
    return Changes(*(array[order] for array in joined))
