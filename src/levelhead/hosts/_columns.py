"""Chunks that are tables on other machines: their columns as logits and labels, and results sent back."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..support.columns import number_order
from ..support.errors import LevelheadError

Columns = str | Sequence[str]


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

    def check(self, known: Iterable[str]) -> list[str]:
        """Return the names of all columns that are needed; raise LevelheadError if one is missing."""
        known = list(known)
        for column in self.columns:
            if column not in known:
                has = ", ".join(map(str, known))
                raise LevelheadError(f"expected a column {column!r} in the table, which has {has}")
        return self.columns

    def read(self, batch: Mapping[str, Any] | Any) -> tuple[np.ndarray, np.ndarray]:
        """Return logits [n, K] and labels [n] of a mapping of columns, or of a data frame."""
        self.check(batch)
        labels = np.asarray(batch[self.labels])
        if not isinstance(self.logits, str):
            order = number_order(self.logits) or range(len(self.logits))
            columns = [np.asarray(batch[self.logits[i]]) for i in order]
            return np.stack(columns, axis=1), labels
        logits = np.asarray(batch[self.logits])
        if logits.dtype == object and len(logits):  # a column of lists
            rows = [np.asarray(row) for row in logits]
            if len({row.shape for row in rows}) > 1:
                expected = f"expected as many numbers in every row of the column {self.logits!r}"
                raise LevelheadError(expected)
            logits = np.stack(rows)
        return logits, labels

    def apply(self, work: Callable[[Any], Any], batch: Any) -> Any:
        """Return what work gives of the chunk in a batch; None for one without rows."""
        logits, labels = self.read(batch)
        if len(labels):
            return work((logits, labels))
        return None

    def send(self, work: Callable[[Any], Any], batch: Any) -> bytes:
        """Return the same as bytes, for `receive`. What is wrong with the samples is sent, too."""
        try:
            return pickle.dumps(self.apply(work, batch))
        except LevelheadError as error:
            return pickle.dumps(error)


def receive(parts: Iterable[bytes]) -> Iterator[Any]:
    """Yield what `send` sent, which our own tasks have made; raise an error where that was sent."""
    for part in parts:
        value = pickle.loads(part)
        if isinstance(value, LevelheadError):
            raise value
        if value is not None:
            yield value
