"""What the summaries of shards have in common: the rule, its range, and a grid of gammas over it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.array import Array
from ..core.choices import Kind
from ..core.counts import Counts, resolve
from ..core.errors import LevelheadError
from ..rules.checks import check_range
from ..rules.direction import Direction
from ..rules.rule import find_path_rule

_BINS = 1024  # cells of the grid for up to 1,000 classes
MOST_BINS = 1 << 16
_CELLS = 1_024_000  # cells times classes, about: what 32 MB of state can hold


@dataclass(frozen=True, eq=False)
class Frame:
    """The rule, the training counts [K], the range of gamma, the number of cells in it, the kind of the scores, and
    whether predictions are counted, too."""

    rule: Direction
    counts: np.ndarray
    range: tuple[float, float]
    bins: int
    kind: Kind = "logits"
    shares: bool = True

    @staticmethod
    def of(
        counts: Counts,
        *,
        rule: str = "rescale",
        range: tuple[float, float] | None = None,
        bins: int | None = None,
        norms: Array | None = None,
        names: Sequence[str] | None = None,
        kind: Kind = "logits",
        shares: bool = True,
    ) -> "Frame":
        """Return the frame, checked. By default it has 1024 cells, or fewer where there are more than 1000 classes."""
        made = find_path_rule(rule)
        n = resolve(counts, names=names)
        if bins is None:
            bins = int(np.clip(_CELLS // len(n), 16, _BINS))
        if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or not 2 <= bins <= MOST_BINS:
            raise LevelheadError(f"expected a whole number from 2 to {MOST_BINS}, got {bins!r}", parameter="bins")
        reach = check_range(made.range_at() if range is None else range, holds_zero=True)
        return Frame(made.direction(n, norms=norms, kind=kind), n, reach, int(bins), kind, shares)

    @cached_property
    def edges(self) -> np.ndarray:
        """The gammas of the grid, [bins + 1], ascending; 0 is one of them."""
        low, high = self.range
        if low == 0:
            return np.linspace(low, high, self.bins + 1)
        below = int(np.clip(round(self.bins * -low / (high - low)), 1, self.bins - 1))
        return np.append(np.linspace(low, 0.0, below + 1)[:-1], np.linspace(0.0, high, self.bins - below + 1))

    @property
    def classes(self) -> int:
        """K."""
        return len(self.counts)

    @property
    def zero(self) -> int:
        """Which of the edges is 0."""
        return int(np.searchsorted(self.edges, 0.0))

    def cells_of(self, gammas: np.ndarray) -> np.ndarray:
        """Return the cell of each change: cell g holds what happens after edges[g], up to edges[g + 1]."""
        return np.searchsorted(self.edges, gammas) - 1

    def same_as(self, other: "Frame") -> bool:
        """Return whether two frames describe the same rule on the same grid."""
        mine, its = ((f.range, f.bins, f.kind, f.shares, f.rule.name, f.rule.ratios, f.counts) for f in (self, other))
        return all(map(np.array_equal, mine, its))
