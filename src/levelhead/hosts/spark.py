"""Spark: tuned on a DataFrame that lies on many machines, with the logits left where they are.

`core.chunks.tune_mapped` does the choosing: it asks `run` to do some work on every chunk and to yield the results.
Here `run` is a `mapInArrow`, which moves whole Arrow batches between Spark and Python and no rows, and each batch comes
back as its small result. The executors need levelhead, numpy, scipy and pyarrow; the driver also needs pandas, without
which `mapInArrow` refuses to begin.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core.chunks import tune_mapped
from ..core.counts import Counts
from ..core.goal import Goal
from ..core.metrics import Metric
from ..core.rules import DEFAULT, Rule
from ..core.tuned import Tuned
from ..support.arrays import Array
from ..support.extras import naming_what_is_missing
from ..support.types import Kind
from ._columns import ChunkResult, Columns, ScoreTable, Work, receive

with naming_what_is_missing():
    from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from pyarrow import RecordBatch


def tune_dataframe(
    dataframe: DataFrame,
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
    """Choose on a Spark DataFrame of held-out samples, as `levelhead.tune_chunks` does on chunks.

    Each Arrow batch of a partition is a chunk. If there are more samples than a rule is fitted on,
    the DataFrame is computed twice and must give the same rows: cache it where that is not so.

    Args:
        dataframe: with a column of labels, and of logits.
        logits: the name of a column with an array of K numbers in each row, or the names of K
            columns. Of a column of ML vectors, give ``pyspark.ml.functions.vector_to_array``.
        labels: the name of the column of labels.
        counts, metric, rule, target, names, kind, chosen_on, level, rng: as in `tune_chunks`.

    Returns:
        The same `Tuned` as of `tune_chunks` on the batches, in their order.

    Raises:
        LevelheadError: a column is missing, or what `tune_chunks` refuses of a chunk.

    Example:
        ``tune_dataframe(spark.read.parquet("held-out"), counts, labels="species")``
    """
    table = ScoreTable(logits, labels)
    needed = dataframe.select(*table.check(dataframe.columns))

    def run(work: Work) -> Iterator[ChunkResult]:
        # Spark moves Arrow tables: each becomes one of a single row, which holds the result.
        def send(batches: "Iterable[RecordBatch]") -> "Iterator[RecordBatch]":
            import pyarrow

            for batch in batches:
                arrays = zip(batch.schema.names, batch.columns, strict=True)
                columns = {name: array.to_numpy(zero_copy_only=False) for name, array in arrays}
                part = pyarrow.array([table.send(work, columns)], pyarrow.binary())
                yield pyarrow.RecordBatch.from_arrays([part], ["part"])

        # `toLocalIterator` alone would compute one partition after the other. Counting computes all in parallel, where
        # the rows are; kept, they are then fetched one partition at a time.
        parts = needed.mapInArrow(send, "part binary").persist()
        try:
            parts.count()
            yield from receive(bytes(row["part"]) for row in parts.toLocalIterator())
        finally:
            parts.unpersist()

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
