"""Ray Data: gamma chosen on a data set that lies on many machines, with the logits left where they are."""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..choice.chunked import ChunkPath, chunk_path, tune_chunks
from ..choice.samples import Goal
from ..choice.tuned import Tuned
from ..core.counts import Counts
from ..core.rules import AUTO, Rule, rule_with
from ..support.arrays import Array
from ..support.errors import LevelheadError, reported_as
from ..support.extras import naming_what_is_missing
from ..support.types import Criterion, Kind
from ..support.warnings import warn

with naming_what_is_missing():
    from ray.data import Dataset

_NUMBERS = 1 << 25  # logits of a batch, about: 128 MB of float32


def tune_dataset(
    dataset: Dataset,
    counts: Counts,
    *,
    logits: str = "logits",
    labels: str = "labels",
    exact: bool | None = None,
    metric: str | Goal = "balanced_error",
    criterion: Criterion | None = None,
    rule: str | Rule = AUTO,
    range: tuple[float, float] | None = None,
    target: Array | None = None,
    chosen_on: str = "held-out",
    bootstrap: int = 500,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    norms: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    batch_size: int | None = None,
) -> Tuned:
    """Choose a rule and its strength on a Ray data set of held-out samples, as `tune_chunks` does on chunks.

    Args:
        dataset, logits, labels: with a column of logits, K numbers in each row, and one of class indices; their names.
        exact, criterion, range, norms: deprecated. Every choice is exact; the others are of a `Goal` and of a rule.
        counts, metric, rule, target, chosen_on, bootstrap, level, rng, names, kind: as in `tune_chunks`.
        batch_size: rows in a batch; by default about 32 million numbers.
    """
    old = {"exact": exact, "criterion": criterion, "range": range, "norms": norms}
    for name in [name for name, value in old.items() if value is not None]:
        warn(
            f"tune_dataset({name}=...) goes in levelhead 0.2: use lh.Goal and lh.rules",
            DeprecationWarning,
        )
    goal = Goal.of(metric) if criterion is None else replace(Goal.of(metric), criterion=criterion)
    if batch_size is None:
        first = dataset.take_batch(1, batch_format="numpy") if dataset.limit(1).count() else None
        width = 1 if first is None else _read_batch(first, logits, labels)[0].shape[1]  # type: ignore[arg-type]
        batch_size = max(1, _NUMBERS // width)
    given: dict[str, Any] = {
        "rule": rule_with(rule, range=range, norms=norms),
        "names": names,
        "kind": kind,
    }
    make: Any = partial(_path_of_batch, counts=counts, columns=(logits, labels), options=given)
    parts = dataset.map_batches(
        make, batch_size=batch_size, batch_format="numpy", zero_copy_batch=True
    )
    parts.context.execution_options.preserve_order = (
        True  # so that replicates draw the same samples every time
    )
    paths: Iterator[ChunkPath] = (
        pickle.loads(row["path"]) for row in parts.iter_rows()
    )  # made by our own tasks
    more = {
        "metric": goal,
        "target": target,
        "chosen_on": chosen_on,
        "bootstrap": bootstrap,
        "level": level,
    }
    return tune_chunks(paths, counts, **given, **more, rng=rng)


def _path_of_batch(
    batch: Mapping[str, Any], counts: Counts, columns: tuple[str, str], options: Mapping[str, Any]
) -> dict[str, list[bytes]]:
    logits, labels = _read_batch(batch, *columns)
    paths = [chunk_path(logits, labels, counts, **options)] if len(labels) else []
    return {"path": [pickle.dumps(path) for path in paths]}


def _read_batch(
    batch: Mapping[str, Any], logits: str, labels: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits [n, K] and labels [n] of a batch."""
    for column in (logits, labels):
        if column not in batch:
            raise LevelheadError(
                f"expected a column {column!r} in the table, which has {', '.join(map(str, batch))}"
            )
    rows, known = np.asarray(batch[logits]), np.asarray(batch[labels])
    if rows.dtype == object and len(rows):  # a column of lists
        with reported_as(
            f"expected as many numbers in every row of the column {logits!r} ({{}})", ValueError
        ):
            rows = np.stack([np.asarray(row) for row in rows])
    return rows, known
