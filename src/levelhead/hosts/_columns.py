"""Chunks that are tables on other machines: their columns as logits and labels, and results sent back.

`core.chunks.tune_mapped` asks an engine (Ray, Dask, Spark) to run some work on every chunk and to yield the results.
The engine's task gets a batch of its table, `ScoreTable.read` makes a chunk of it, and the result, which is small,
comes back: as it is (`apply`), or as bytes where the engine only moves tables (`send` there, `receive` here).

Everything here is pickled and sent to workers, so it holds names and no data. Errors of the user's data come back as
errors of ours, whatever the engine wraps its own in.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..core.chunks import Chunk, ChunkReader
from ..core.class_names import first_repeated, names_of_columns
from ..core.counts import Counts
from ..support.arrays import described
from ..support.columns import number_order
from ..support.errors import LevelheadError
from ..support.types import Kind

Columns = str | Sequence[str]
# A mapping of columns, or a data frame of any library: each gives its columns by name.
TableBatch: TypeAlias = Any
# What some work gives of a chunk: a `Reservoir` or `Outcomes`, which add up.
ChunkResult: TypeAlias = Any
Work: TypeAlias = Callable[[Chunk], ChunkResult]


class _Titled(NamedTuple):
    """What has titles of columns, as a data frame has."""

    columns: Sequence[str]


@dataclass(frozen=True)
class ScoreTable:
    """Where a table has its logits and labels.

    Args:
        logits: the name of a column with K numbers in each row, or the names of K columns, which are
            put in the order of their numbers if they are numbered, as logit_0 to logit_10.
        labels: the name of the column of labels.
    """

    logits: Columns
    labels: str

    @property
    def columns(self) -> list[str]:
        """The names of all columns that are needed."""
        if isinstance(self.logits, str):
            scores = [self.logits]
        else:
            scores = list(self.logits)
        return [*scores, self.labels]

    def reader(self, counts: Counts | None, names: Sequence[str] | None, kind: Kind) -> ChunkReader:
        """Return how chunks are read: names of K columns are those of the classes, as titles of a frame are.

        Args:
            counts, names, kind: as in `tune_chunks`.

        Raises:
            LevelheadError: the columns have the names of the classes in another order.
        """
        if not isinstance(self.logits, str):
            names = names_of_columns(_Titled(self.logits), counts, names)
        return ChunkReader(counts, names, kind)

    def check(self, table_columns: Iterable[str]) -> list[str]:
        """Return the names of all columns that are needed.

        Args:
            table_columns: the names of the table's columns. They are checked before any work is sent, and again in each
                batch, as not every table knows its columns beforehand.

        Raises:
            LevelheadError: one of them is missing, or asked for twice, or there are none of logits.
        """
        if not self.logits:
            raise LevelheadError("expected a column, or K of them, got none", parameter="logits")
        repeated = first_repeated(self.columns)
        if repeated is not None:
            raise LevelheadError(f"expected different columns, got {repeated!r} twice")
        table_columns = list(table_columns)
        for column in self.columns:
            if column not in table_columns:
                has = ", ".join(map(str, table_columns))
                raise LevelheadError(f"expected a column {column!r} in the table, which has {has}")
        return self.columns

    def read(self, batch: TableBatch) -> Chunk:
        """Return logits [n, K] and labels [n] of a mapping of columns, or of a data frame.

        Raises:
            LevelheadError: a column is missing or holds no numbers, or rows differ in how many they have.
        """
        self.check(batch)
        labels = np.asarray(batch[self.labels])
        if not isinstance(self.logits, str):
            order = number_order(self.logits) or range(len(self.logits))
            columns = [np.asarray(batch[self.logits[i]]) for i in order]
            return np.stack(columns, axis=1), labels
        logits = batch[self.logits]
        if not isinstance(logits, list):
            logits = np.asarray(logits)
        if not len(logits):
            return np.asarray(logits), labels
        # A column of lists is an array of objects or, of a bag, a list: one row becomes one array.
        if isinstance(logits, list) or logits.dtype == object:
            rows = [np.asarray(row) for row in logits]
            if len({row.shape for row in rows}) > 1:
                expected = f"expected as many numbers in every row of the column {self.logits!r}"
                raise LevelheadError(expected)
            logits = np.stack(rows)
        if logits.dtype.kind not in "fiu":
            expected = f"expected numbers in the column {self.logits!r}"
            raise LevelheadError(f"{expected}, got {described(logits)}")
        return logits, labels

    def apply(self, work: Work, batch: TableBatch) -> ChunkResult | None:
        """Return what work gives of the chunk in a batch; None for one without rows.

        Engines make empty partitions, by filters for instance, and no work could say how many classes those have.
        """
        logits, labels = self.read(batch)
        if len(labels):
            return work((logits, labels))
        return None

    def send(self, work: Work, batch: TableBatch) -> bytes:
        """Return the same as bytes, for `receive`.

        What is wrong with the samples is sent, too: an engine would wrap an error of its task in its
        own, over many lines, and the one line that helps would be lost.
        """
        try:
            return pickle.dumps(self.apply(work, batch))
        except LevelheadError as error:
            return pickle.dumps(error)


def receive(parts: Iterable[bytes]) -> Iterator[ChunkResult]:
    """Yield what `send` sent, which our own tasks have made; raise an error where that was sent."""
    for part in parts:
        value = pickle.loads(part)
        if isinstance(value, LevelheadError):
            raise value
        if value is not None:
            yield value
