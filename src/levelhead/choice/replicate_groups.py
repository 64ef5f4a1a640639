"""What replicates share: groups of samples that they cannot tell apart, intervals on which they can choose, and shares.

A replicate draws the samples of each stratum with replacement. Where several samples of a stratum are the same for all
that is computed, only how often they are drawn together counts, and that is binomial. So a large group costs one number
instead of one per sample, and every replicate has the same distribution as if its samples were drawn one by one.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ..path.curve import runs, stable_order
from ..path.envelope import Envelope
from ..support.arrays import SCRATCH, are_on_gpu, few_threads
from .objective import Objective, ShareMismatch
from .resample import SAME_VALUE, Grid

_Block = TypeVar("_Block")
CHANCE = 1e-12  # that one replicate would choose on one of the intervals left out


def possible_intervals(objective: Objective, strength: float, best: int) -> tuple[int, int]:
    """Return the first and the last interval where a replicate can choose, by an error; where all do best is `best`."""
    # Far from the best gamma, no error alone can be as low as the whole criterion at the best one.
    # Left out are intervals g for which ``error(g) - error(best) - t(g) > allowance``. By Bernstein's inequality, the
    # difference of a replicate's errors falls by t(g) only with the chance above. The allowance is the most that pull
    # and mismatch add at the best gamma: ``E |x| <= sqrt((E x)^2 + var x)`` for each class's share, and McDiarmid's
    # inequality for the distance of their sum from its mean.
    grid, weights, error = objective.grid, objective.weights, objective.error()
    doubt, path = -np.log(CHANCE), objective.path
    _, gammas, _, sample = path.events
    moved = grid.accumulate(0.0, grid.bins(gammas), weights[sample] ** 2)
    variance, least = np.abs(moved - moved[best]), 2 / 3 * doubt * weights.max()
    falls = least + np.sqrt(least**2 + 2 * doubt * variance)
    return _ends(error - error[best] - falls <= _most_added(objective, strength, best, doubt))


def possible_by_shares(mismatch: ShareMismatch) -> tuple[int, int]:
    """Return the first and the last interval on which a replicate can choose by the mismatch of shares alone."""
    # The mismatch is ``max_S share(S) - prior(S)`` over sets of classes. For the S of all samples, which weigh the
    # same, that is a mean of independent draws, which Hoeffding's inequality keeps near the mismatch of all samples.
    values, n, doubt = mismatch.values(), len(mismatch.changes.start), -np.log(CHANCE)
    best = mismatch.grid.lowest(values)
    most = _most_mismatch(mismatch, np.full(n, 1 / n), mismatch.grid.middles[best], doubt)
    return _ends(values - np.sqrt(doubt / 2 / n) <= most)


def _ends(low: np.ndarray) -> tuple[int, int]:
    """Return the first and the last interval that is low."""
    return int(np.argmax(low)), int(len(low) - 1 - np.argmax(low[::-1]))


def _most_added(objective: Objective, strength: float, best: int, doubt: float) -> float:
    """Return the most that pull and mismatch add to a replicate's error on the interval `best`."""
    sizes, gamma = (
        np.bincount(objective.path.labels, minlength=len(objective.target)),
        objective.grid.middles[best],
    )
    largest = float(
        np.sqrt((objective.prior**2 / (sizes + 2)).sum() / 4)
    )  # of any replicate's standard error
    added = (
        0.0
        if objective.pull is None
        else float(objective.pull.values(np.array([gamma]), largest)[0])
    )
    if objective.mismatch is None or strength == 0:
        return added
    n, weights = len(objective.mismatch.changes.start), objective.mismatch.weights
    mismatch = _most_mismatch(
        objective.mismatch, np.full(n, 1 / n) if weights is None else weights, gamma, doubt
    )
    return added + min(1.0, strength * largest) * mismatch


def _most_mismatch(
    mismatch: ShareMismatch, weights: np.ndarray, gamma: float, doubt: float
) -> float:
    """Return the largest mismatch that a replicate of samples that weigh `weights` [N] can have at gamma."""
    predicted, prior = mismatch.changes.predictions(gamma), mismatch.prior
    off = np.bincount(predicted, weights, len(prior)) - prior
    square = np.bincount(predicted, weights**2, len(prior))
    return float(np.sqrt(off**2 + square).sum() / 2 + np.sqrt(doubt / 2 * square.sum()))


TABLE_NUMBERS, DRAWN_AT_ONCE = (
    1 << 18,
    1 << 15,
)  # numbers of tables that stay in the cache, and in the fastest one
LARGE_GROUP = 16  # a group of so many samples is drawn as one number, which takes about as long as to draw so many
MOST_SAMPLES = 0.5  # if at least this share of the samples is in such groups


@dataclass(frozen=True, eq=False)
class Groups:
    """Samples in groups, each of one stratum."""

    member: np.ndarray  # [N], the group of each sample
    first: np.ndarray  # [M], a sample of each group
    sizes: np.ndarray  # [M], how many it has
    stratum: np.ndarray  # [M], from 0 on

    @staticmethod
    def of(strata: np.ndarray, keys: Sequence[np.ndarray], alone: np.ndarray) -> "Groups":
        """Return samples of one stratum and equal keys ([N] each) as one group, those `alone` [N] by themselves."""
        key = np.zeros(len(strata), np.int64)
        for other in (*keys, strata, alone):
            key = key * (int(other.max(initial=0)) + 1) + other
        order = stable_order(key)
        ordered = key[order]
        opens = np.flatnonzero((np.diff(ordered, prepend=-1) != 0) | alone[order])
        sizes = np.diff(opens, append=len(order))
        member = np.empty(len(order), np.int64)
        member[order] = np.repeat(np.arange(len(opens)), sizes)
        return Groups(member, order[opens], sizes, strata[order[opens]])

    def changes(self, of: Envelope) -> Envelope:
        """Return changes of samples with groups in their place."""
        return replace(of, start=of.start[self.first], sample=self.member[of.sample])

    def draw(self, n: int, rng: np.random.Generator, name: str = "times") -> np.ndarray:
        """Return how often each group is drawn, [n, M], in the table of this name; every stratum keeps its size."""
        large, chances, group, rows, digits, bounds, members = self._plan
        width, each = len(self.sizes), np.broadcast_to(self.totals, (n, len(self.totals)))
        found = SCRATCH.table(name, (n, width))
        counts = rng.multinomial(each, chances) if len(group) else None
        each = each if counts is None else counts[:, :, -1]
        # A sample of a stratum is a place among its places: the first plus the whole part of a uniform number times how
        # many there are. The fraction that is left is uniform again, and independent of the whole part: while it has
        # bits enough, the next replicates are drawn by it, from the same strata.
        for first in range(0, n, rows):
            some = each[first : first + rows]
            size = int(some.sum())
            if first % (rows * digits) == 0:
                uniform = rng.random(out=SCRATCH.table("uniform", (size,)))
            span, start = (
                bounds
                if counts is None
                else (np.repeat(x[: some.size], some.reshape(-1)) for x in bounds)
            )
            uniform = uniform[:size]
            uniform *= span[:size]
            place = np.floor(uniform, out=SCRATCH.table("place", (size,)))
            uniform -= place
            place += start[:size]
            index = members.take(place.astype(np.int64), mode="clip")
            found[first : first + rows] = np.bincount(index, minlength=len(some) * width).reshape(
                -1, width
            )
        if counts is not None:
            found[:, group] = counts[:, large[0], large[1]]
        return found

    @cached_property
    def totals(self) -> np.ndarray:
        """How many samples each stratum has."""
        return np.bincount(self.stratum, self.sizes).astype(np.int64)

    @cached_property
    def _plan(self) -> tuple:
        """What is drawn from: large groups by their chances, all others sample by sample."""
        # The place of each large group in a table of chances, that table, which groups these are; for all others, how
        # many replicates are drawn at once and, for so many, the number of places of each stratum and the first (for
        # each draw, if no large group takes some), and the group of each place, as a cell of a table of replicates.
        strata, is_large = len(self.totals), self.sizes >= LARGE_GROUP
        is_large &= self.sizes[is_large].sum() >= MOST_SAMPLES * self.sizes.sum()
        ordered = stable_order(self.stratum)
        group, rest = ordered[is_large[ordered]], ordered[~is_large[ordered]]
        row = self.stratum[group]
        column = np.arange(len(row)) - np.searchsorted(row, row)
        chances = np.zeros((strata, int(column.max(initial=-1)) + 2))
        chances[row, column] = self.sizes[group] / self.totals[row]
        spans = np.bincount(self.stratum[rest], self.sizes[rest], strata)
        chances[:, -1] = spans / np.maximum(self.totals, 1)
        members = np.repeat(rest, self.sizes[rest])
        rows = max(1, DRAWN_AT_ONCE // max(1, len(members)))
        each = np.arange(rows)[:, None]
        starts = np.cumsum(spans) - spans + each * len(members)
        bounds, digits = (
            [
                x.reshape(-1).astype(np.float64)
                for x in (np.broadcast_to(spans, starts.shape), starts)
            ],
            1,
        )
        if not len(
            group
        ):  # a number of 53 bits gives so many places, and each has 16 bits more than it needs
            bounds = [np.repeat(x, np.tile(self.totals, rows)) for x in bounds]
            digits = max(1, int(37 / np.log2(spans.max() + 1)))
        return (
            (row, column),
            chances,
            group,
            rows,
            digits,
            bounds,
            (members + each * len(self.sizes)).reshape(-1),
        )


class Tables:
    """What is done with tables [B, M] of replicates, here of numpy."""

    # Tables of a name use the same memory again. What is summed or accumulated along rows is one long row: while numpy
    # sums the rows of a table, no other thread can run.

    numbers, threads = (
        TABLE_NUMBERS,
        True,
    )  # of a table that a block of replicates has, and whether threads share these

    def draw(self, groups: Groups, n: int, rng: np.random.Generator, name: str = "times") -> Any:
        """Return how often each group is drawn, [n, M]."""
        return groups.draw(n, rng, name)

    def take(self, table: Any, columns: np.ndarray, name: str) -> Any:
        """Return some columns."""
        room = SCRATCH.table(name, (len(table), len(columns)))
        return table.take(
            columns, axis=1, out=room, mode="clip"
        )  # all within bounds: "clip" avoids a copy

    def scale(self, table: Any, row: Any, name: str) -> Any:
        """Return each row times a row [M]."""
        return np.multiply(table, row, out=SCRATCH.table(name, table.shape))

    def add_at(self, row: np.ndarray, columns: np.ndarray, table: Any) -> Any:
        """Return a row [K] for every row of a table [B, C], with that table added to some of its columns."""
        found = np.tile(row, (len(table), 1))
        found[:, columns] += table
        return found

    def sums(self, table: Any, opens: np.ndarray) -> Any:
        """Return the sums of stretches of each row, [B, R]; they open at these columns, first at 0."""
        every = (opens + table.shape[1] * np.arange(len(table))[:, None]).reshape(-1)
        return np.add.reduceat(table.reshape(-1), every).reshape(len(table), len(opens))

    def sums_within(
        self, table: Any, at: np.ndarray, low: np.ndarray, high: np.ndarray, opens: np.ndarray
    ) -> Any:
        """Return the sums of the columns for which low [M] <= at [B] <= high [M]; the table is overwritten."""
        right, other = (SCRATCH.table(name, table.shape, np.bool_) for name in ("right", "other"))
        np.less_equal(low, at[:, None], out=right)
        right &= np.less_equal(at[:, None], high, out=other)
        table *= right
        return self.sums(table, opens)

    def running_at(self, table: Any, columns: np.ndarray, heads: np.ndarray) -> tuple[Any, Any]:
        """Return the running sum of each row at some columns, [B, C]; and what it was before some of these, the first
        among them. Both may begin at any number."""
        table = np.cumsum(table.reshape(-1), out=SCRATCH.table("running", (table.size,))).reshape(
            table.shape
        )
        found = self.take(table, columns, "steps")
        before = found[:, heads - 1]
        before[1:, :1], before[:1, :1] = found[:-1, -1:], 0.0
        return found, before

    def distances(
        self, table: Any, begins: Any, heads: np.ndarray, owner: np.ndarray, first: Any
    ) -> Any:
        """Return by how much ``|table + begins[owner]|`` grows from column to column, from `first` at `heads`."""
        table += self.take(begins, owner, "opened")
        np.abs(table, out=table)
        moved = SCRATCH.table("moved", table.shape)
        np.subtract(table[:, 1:], table[:, :-1], out=moved[:, 1:])
        moved[:, heads] = table[:, heads] - first
        return moved

    def place(self, values: np.ndarray) -> Any:
        """Return an array of numpy where the tables are."""
        return values

    def host(self, values: Any) -> np.ndarray:
        """Return what was computed of tables as an array of numpy."""
        return values


class DeviceTables(Tables):
    """The same of torch, on one device; only some numbers for each replicate are copied to the host."""

    # What is drawn is not what the host draws of the same seed: intervals differ as those of two seeds do.

    numbers, threads = 1 << 25, False  # 256 MB a table

    def __init__(self, device: Any):
        import torch

        self.torch, self.device = torch, device

    def place(self, values: np.ndarray) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(values)).to(
            self.device, non_blocking=True
        )

    def host(self, values: Any) -> np.ndarray:
        return values.cpu().numpy()

    def draw(self, groups: Groups, n: int, rng: np.random.Generator, name: str = "times") -> Any:
        # Sorted by stratum, a sample is a place: the first of its stratum, plus a uniform number times the stratum's
        # size. A part of the replicates at a time, whose numbers take as much memory as the table.
        order = stable_order(groups.stratum)
        members = self.place(np.repeat(order, groups.sizes[order]))
        sizes = np.repeat(groups.totals, groups.totals)
        span, start = (
            self.place(sizes),
            self.place(np.repeat(np.cumsum(groups.totals) - groups.totals, groups.totals)),
        )
        source = self.torch.Generator(self.device).manual_seed(int(rng.integers(1 << 63)))
        on: dict[str, Any] = {"dtype": self.torch.float64, "device": self.device}
        width, found = len(groups.sizes), self.torch.empty((n, len(groups.sizes)), **on)
        step = max(1, self.numbers // len(members))
        for first in range(0, n, step):
            rows = found[first : first + step]
            uniform = self.torch.rand((len(rows), len(members)), generator=source, **on)
            index = members[uniform.mul_(span).long().clamp_max_(span - 1).add_(start)]
            index += width * self.torch.arange(len(rows), device=self.device)[:, None]
            rows.copy_(
                self.torch.bincount(index.reshape(-1), minlength=rows.numel()).reshape(rows.shape)
            )
        return found

    def take(self, table: Any, columns: np.ndarray, name: str) -> Any:
        return table[:, self.place(columns)]

    def scale(self, table: Any, row: Any, name: str) -> Any:
        return table * row

    def add_at(self, row: np.ndarray, columns: np.ndarray, table: Any) -> Any:
        return self.place(row).repeat(len(table), 1).index_add_(1, self.place(columns), table)

    def sums(self, table: Any, opens: np.ndarray) -> Any:
        total = table.cumsum(1)[:, self.place(np.append(opens[1:], table.shape[1]) - 1)]
        return total.diff(dim=1, prepend=self.torch.zeros_like(total[:, :1]))

    def sums_within(
        self, table: Any, at: np.ndarray, low: np.ndarray, high: np.ndarray, opens: np.ndarray
    ) -> Any:
        here = self.place(at)[:, None]
        return self.sums(table * ((self.place(low) <= here) & (here <= self.place(high))), opens)

    def running_at(self, table: Any, columns: np.ndarray, heads: np.ndarray) -> tuple[Any, Any]:
        found = table.cumsum(1)[:, self.place(columns)]
        before = found[:, self.place(heads - 1)]
        before[:, 0] = 0.0
        return found, before

    def distances(
        self, table: Any, begins: Any, heads: np.ndarray, owner: np.ndarray, first: Any
    ) -> Any:
        table = table.add_(begins[:, self.place(owner)]).abs_()
        moved, at = table.diff(dim=1, prepend=table[:, :1]), self.place(heads)
        moved[:, at] = table[:, at] - first
        return moved


HOST = Tables()


def tables_for(logits: Sequence[Any]) -> Tables:
    """Return the tables of the device that all logits are on: an accelerator's, or the host's."""
    return DeviceTables(logits[0].device) if are_on_gpu(logits) else HOST


@dataclass(frozen=True, eq=False)
class BlockShares:
    """The mismatch of predicted shares on some intervals, for a block of replicates."""

    mismatch: ShareMismatch
    likely: tuple[int, int]  # the first and the last interval on which the choice is likely to fall
    tables: Tables = HOST
    known: dict[tuple[int, int], tuple] = field(
        default_factory=dict
    )  # what `_steps` returned, by its intervals

    def add(self, values: np.ndarray, mass: Any, guide: np.ndarray) -> np.ndarray:
        """Return values [B, G] plus `guide` [B] times the mismatch, or infinity where that cannot be the lowest."""
        # Shares are followed on the likely intervals first. Elsewhere the rest of the criterion alone is a lower bound:
        # only where that is not above the lowest found can the choice fall, so the stretch grows until it holds those.
        first, last = self.likely
        while True:
            part = values[:, first : last + 1] + guide[:, None] * self.between(first, last, mass)
            open_still = values <= part.min(axis=1, keepdims=True) + 2 * SAME_VALUE
            open_still[:, first : last + 1] = False
            outside = np.flatnonzero(open_still.any(axis=0))
            if not len(outside):
                break
            first, last = min(first, int(outside[0])), max(last, int(outside[-1]))
        found = np.full_like(values, np.inf)
        found[:, first : last + 1] = part
        return found

    def between(self, first: int, last: int, mass: Any) -> np.ndarray:
        """Return the mismatch on the intervals from `first` to `last`, [B, ...]; the masses [B, M] sum to 1."""
        known, tables = self._steps(first, last), self.tables
        (
            by_start,
            opens,
            classes,
            samples,
            signs,
            cells,
            (some, heads, owner),
            by_bin,
            bins,
            firsts,
        ) = known
        # How far each class's share is off its prior on the first interval: sums over samples sorted by prediction.
        start = mass if by_start is None else tables.take(mass, by_start, "start")
        off = tables.add_at(-self.mismatch.prior, classes, tables.sums(start, opens))
        found = np.zeros((len(mass), last - first + 1))
        found[:, 0] = tables.host(abs(off).sum(axis=1))
        moves = tables.take(mass, samples, "moves")
        moves *= tables.place(signs)
        # One running sum over the changes of all classes, class by class, read after a class's last on each interval.
        # Less its value where the class opens, and plus what it was off at first, that is how far off the class is.
        steps, before = tables.running_at(moves, cells, heads)
        # The sum of distances moves by their differences; the first of a class is from its start. Sorted by
        # interval and added up, a running sum of them is the mismatch on each interval, doubled.
        begins = tables.take(off, some, "begins")
        moved = tables.distances(steps, begins - before, heads, owner, abs(begins))
        found[:, bins - first] += tables.host(
            tables.sums(tables.take(moved, by_bin, "steps"), firsts)
        )
        return np.cumsum(found, axis=1, out=found) / 2

    def _steps(self, first: int, last: int) -> tuple:
        """Return the samples by their prediction on the interval `first`, and every change up to `last`; remembered."""
        if (first, last) not in self.known:
            changes, grid = self.mismatch.changes, self.mismatch.grid
            start = changes.predictions(grid.middles[first])
            by_start = stable_order(start)
            classes, opens = runs(start[by_start])
            by_start = by_start if (np.diff(start) < 0).any() else None  # sorted already
            order, sample, sign, sizes, _ = changes.by_class
            bins = grid.bins(changes.gamma)[order]
            kept = np.flatnonzero((bins > first) & (bins <= last))
            changed, bins = np.repeat(np.arange(len(sizes)), sizes)[kept], bins[kept]
            new = (np.diff(changed, prepend=-1) != 0) | (np.diff(bins, prepend=-1) != 0)
            cells = np.flatnonzero(
                np.append(new, True)[1:]
            )  # the last change of each class on each interval
            changed, bins = changed[cells], bins[cells]
            by_bin = stable_order(bins)
            by_class = *runs(changed), np.cumsum(np.diff(changed, prepend=changed[:1]) > 0)
            cells = sample[kept], sign[kept], cells
            self.known[first, last] = (
                by_start,
                opens,
                classes,
                *cells,
                by_class,
                by_bin,
                *runs(bins[by_bin]),
            )
        return self.known[first, last]


def choose_by_shares(
    mismatch: ShareMismatch, n: int, rng: np.random.Generator, tables: Tables = HOST
) -> np.ndarray:
    """Return the gamma that each of n resamples chooses by the mismatch of shares alone, [n]."""
    changes, (first, last) = mismatch.changes, possible_by_shares(mismatch)
    groups, few = group_predictions(changes, mismatch.grid, first, last)
    grid, whole = (
        mismatch.grid.part(first, last - first + 1),
        last - first + 1 == len(mismatch.grid.middles),
    )
    shares = BlockShares(replace(mismatch, changes=few, grid=grid), (0, last - first), tables)

    def choose(count: int, rng: np.random.Generator) -> np.ndarray:
        mass = tables.draw(groups, count, rng)
        mass /= len(changes.start)
        return grid.choose_rows(shares.between(*shares.likely, mass), prefer_zero=whole)

    return np.concatenate([np.zeros(0), *draw_blocks(choose, groups, n, rng, tables)])


def draw_blocks(
    draw: Callable[[int, np.random.Generator], _Block],
    groups: Groups,
    n: int,
    rng: np.random.Generator,
    tables: Tables = HOST,
) -> Iterator[_Block]:
    """Yield n replicates of groups, in blocks that threads draw; the seed alone decides what is drawn."""
    size = max(1, min(64 if tables.threads else n, tables.numbers // len(groups.sizes)))
    sizes = [min(size, n - first) for first in range(0, n, size)]
    rngs = [
        np.random.Generator(np.random.SFC64(seed))
        for seed in rng.integers(1 << 63, size=len(sizes)).tolist()
    ]
    with ThreadPoolExecutor(few_threads() if tables.threads else 1) as pool:
        yield from pool.map(draw, sizes, rngs)


def group_predictions(
    changes: Envelope, grid: Grid, first: int, last: int
) -> tuple[Groups, Envelope]:
    """Return unlabelled samples in groups that are predicted alike on some intervals, and the groups' changes."""
    some = changes.between(*grid.middles[[first, last]])
    groups = Groups.of(np.zeros(len(some.start), np.int64), [some.start], changing(some))
    return groups, groups.changes(some)


def changing(changes: Envelope) -> np.ndarray:
    """Return which samples have a change, [N] bool."""
    found = np.zeros(len(changes.start), bool)
    found[changes.sample] = True
    return found
