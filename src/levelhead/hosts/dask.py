"""Dask: tuned on a dataframe or a bag in partitions, with the logits left where they are.

`core.chunks.tune_mapped` does the choosing: it asks `run` to do some work on every chunk and to yield the results.
Here each partition is a task, results are added up in a tree of further tasks, and one result comes back. Dask hands
errors of a task on as they are, so that results need not be bytes, as they are for Ray and Spark.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..core.chunks import tune_mapped
from ..core.counts import Counts
from ..core.goal import Goal
from ..core.metrics import Metric
from ..core.rules import DEFAULT, Rule
from ..core.tuned import Tuned
from ..support.arrays import Array
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing
from ..support.types import Kind
from ._columns import ChunkResult, Columns, ScoreTable, TableBatch, Work

with naming_what_is_missing():
    from dask.base import compute
    from dask.delayed import delayed

_AT_ONCE = 8  # results of partitions that are added up in one task
DaskCollection: TypeAlias = Any  # a dataframe or a bag, of which Dask has no common type


def tune_dataframe(
    dataframe: DaskCollection,
    counts: Counts | None = None,
    *,
    logits: Columns = "logits",
    labels: str = "labels",
    metric: str | Metric | Goal = "balanced_error",
    rule: str | Rule = DEFAULT,
    target: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    chosen_on: str = "held-out",
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
) -> Tuned:
    """Choose on a Dask dataframe or bag of held-out samples, as `levelhead.tune_chunks` does.

    Each partition is a chunk. It is computed by the scheduler that is set, where the partitions
    are; if there are more samples than a rule is fitted on, twice.

    Args:
        dataframe: a Dask dataframe with columns of logits and labels; or a bag of dicts with these
            keys. Dask makes text of a column of lists unless its option `dataframe.convert-string`
            is False.
        logits: the name of a column with K numbers in each row, or the names of K columns.
        labels: the name of the column of labels.
        counts, metric, rule, target, names, kind, chosen_on, level, rng: as in `tune_chunks`.

    Returns:
        The same `Tuned` as of `tune_chunks` on the partitions, in their order.

    Raises:
        LevelheadError: no Dask collection, a column is missing, or what `tune_chunks` refuses of a chunk.

    Example:
        ``tune_dataframe(dask.dataframe.read_parquet("held-out"), counts, logits=["cat", "dog"])``
    """
    if not hasattr(dataframe, "to_delayed"):
        expected = "expected a Dask dataframe, or a Dask bag of dicts"
        raise LevelheadError(f"{expected}, got {type(dataframe).__name__}", parameter="dataframe")
    # Only the columns that are needed are computed; a bag has none to choose from.
    table = ScoreTable(logits, labels)
    if hasattr(dataframe, "columns"):
        dataframe = dataframe[table.check(dataframe.columns)]

    def apply(work: Work, partition: TableBatch) -> ChunkResult | None:
        # A partition of a bag is dicts, one after another.
        if not hasattr(partition, "columns"):
            items = list(partition)
            for item in items:
                _check_dict(item)
                table.check(item)
            partition = {name: [item[name] for item in items] for name in table.columns}
        return table.apply(work, partition)

    def run(work: Work) -> Iterator[ChunkResult]:
        shared = delayed(work, traverse=False)  # sent once, and not with each task
        parts = [delayed(apply)(shared, part) for part in dataframe.to_delayed()]
        # Results are added up in a tree, so that few of them meet on one machine.
        while len(parts) > 1:
            firsts = range(0, len(parts), _AT_ONCE)
            parts = [delayed(_add_up)(parts[first : first + _AT_ONCE]) for first in firsts]
        return (part for part in compute(*parts) if part is not None)

    return tune_mapped(
        run,
        table.reader(counts, names, kind),
        metric=metric,
        rule=rule,
        target=target,
        chosen_on=chosen_on,
        level=level,
        rng=rng,
    )


def _check_dict(item: object) -> None:
    """Raise LevelheadError unless an item of a bag has its values by name."""
    if not isinstance(item, Mapping):
        expected = "expected a Dask dataframe, or a Dask bag of dicts"
        raise LevelheadError(
            f"{expected}, got a bag of {type(item).__name__}", parameter="dataframe"
        )


def _add_up(parts: list[ChunkResult | None]) -> ChunkResult | None:
    """Return the sum of results, in their order; None of those without rows."""
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total
