"""Logits that were read in chunks and let go: the few rows of them that a choice still looks at."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import LevelheadError


@dataclass(frozen=True, eq=False)
class RowSample:
    """Rows of logits drawn by lot, which can be joined: those with the smallest numbers of all."""

    rows: np.ndarray  # [m], ascending
    lots: np.ndarray  # [m], the number that each has drawn
    values: np.ndarray  # [m, K], their logits
    size: int  # N, of which they are drawn

    def at_most(self, most: int) -> "RowSample":
        """Return so many of the rows, those with the smallest numbers."""
        if len(self.rows) <= most:
            return self
        kept = np.sort(np.argpartition(self.lots, most - 1)[:most])
        return RowSample(self.rows[kept], self.lots[kept], self.values[kept], self.size)

    def joined(self, other: "RowSample") -> "RowSample":
        """Return the rows of both, with those of the other after these."""
        rows = np.concatenate([self.rows, other.rows + self.size])
        lots, values = np.concatenate([self.lots, other.lots]), np.concatenate([self.values, other.values])
        return RowSample(rows, lots, values, self.size + other.size)


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Logits [N, K] of which only some rows are kept. Where all of them are needed, it raises LevelheadError.

    ``[:n]`` gives the first n rows that are kept, ``[rows, labels]`` every sample's logit of its own class.
    """

    rows: np.ndarray  # [m], ascending, those that a temperature is fitted on; all, if there are few
    values: np.ndarray  # [m, K], their logits
    winners: np.ndarray  # [N], the class of the largest logit of every row
    true: np.ndarray  # [N], the logit of its own class

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return len(self.winners), self.values.shape[1]

    def __len__(self) -> int:
        return len(self.winners)

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, tuple):
            return self.true
        if isinstance(index, slice) and index.start is None and index.step is None:
            return self.values[: index.stop]
        return self.__array__()

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise LevelheadError("this needs all logits at once, and they were read in chunks and not kept")
