"""Ray Data: tuned on a data set that lies on many machines, with the logits left where they are.

`core.chunks.tune_mapped` does the choosing: it asks `run` to do some work on every chunk and to yield the results,
first to draw the samples that a rule is fitted on, and then, if these are not all, to judge the choice on all of them.
Here `run` is a `map_batches` that turns each block into its small result.
"""

from collections.abc import Iterator, Sequence

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
    from ray.data import Dataset


def tune_dataset(
    dataset: Dataset,
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
    """Choose on a Ray data set of held-out samples, as `levelhead.tune_chunks` does on chunks.

    Each block of the data set is a chunk. If there are more samples than a rule is fitted on, the
    data set is read twice, and must give the same samples both times.

    Args:
        dataset: with a column of labels, and of logits.
        logits: the name of a column with K numbers in each row, or the names of K columns.
        labels: the name of the column of labels.
        counts, metric, rule, target, names, kind, chosen_on, level, rng: as in `tune_chunks`.

    Returns:
        The same `Tuned` as of `tune_chunks` on the blocks, in their order.

    Raises:
        LevelheadError: a column is missing, or what `tune_chunks` refuses of a chunk; in one line, however many
            machines it went through.

    Example:
        ``tune_dataset(ray.data.read_parquet("held-out"), counts, labels="species")``
    """
    table = ScoreTable(logits, labels)
    needed = dataset.select_columns(table.check(dataset.columns() or table.columns))

    def run(work: Work) -> Iterator[ChunkResult]:
        # Ray moves tables: each block becomes a table of one row, whose only column holds the result.
        def send(batch: dict[str, np.ndarray]) -> dict[str, list[bytes]]:
            return {"part": [table.send(work, batch)]}

        parts = needed.map_batches(
            send,  # type: ignore[arg-type]
            batch_size=None,  # a block as it is
            batch_format="numpy",
            zero_copy_batch=True,
        )
        # In the order of the blocks, so that the choice is the same every time.
        parts.context.execution_options.preserve_order = True
        return receive(row["part"] for row in parts.iter_rows())

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
