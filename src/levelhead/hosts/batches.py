"""The two passes over tables of predictions, for any engine that maps a function over parts of a table.

A part is a batch, or several one after another: a data frame, or a dict of arrays, with a column of logits (a row holds
K numbers) and a column of labels. `hosts/ray.py` runs them on Ray; docs/scale.md shows Spark and Dask.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..choice.events import Events
from ..choice.partial import Partial
from ..choice.second_pass import SecondPass
from ..core.array import Array
from ..core.choices import Kind
from ..core.counts import Counts
from ..core.errors import LevelheadError


def summarize_batches(
    batches: Iterable[Any],
    counts: Counts,
    *,
    rule: str = "rescale",
    range: tuple[float, float] | None = None,
    bins: int | None = None,
    norms: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    shares: bool = False,
    logits: str = "logits",
    labels: str = "labels",
) -> Partial:
    """Summarize batches of a table: the first pass.

    Args:
        batches: data frames, or dicts of arrays.
        counts, rule, range, bins, norms, names, kind, shares: as in `Partial.empty`.
        logits, labels: the names of the columns.

    Returns:
        The partial of all their samples. Partials of other parts of the table can be added to it.

    >>> batch = {"logits": np.array([[4.0, 2.0], [4.0, 3.0]]), "labels": np.array([0, 1])}
    >>> summarize_batches([batch, batch], [400, 100]).samples
    4
    """
    empty = Partial.empty(counts, rule=rule, range=range, bins=bins, norms=norms, names=names, kind=kind, shares=shares)
    pairs = (read_batch(batch, logits=logits, labels=labels) for batch in batches)
    return empty.extended(pair for pair in pairs if len(pair[1]))


def look_into_batches(
    batches: Iterable[Any], second: SecondPass, *, logits: str = "logits", labels: str = "labels"
) -> Events:
    """Find every change in the cells where the choice can lie: the second pass.

    Args:
        batches: as in `summarize_batches`.
        second: what `plan_second_pass` gave for the partial of the whole table.
        logits, labels: the names of the columns.

    Returns:
        The events, to which those of other parts can be added.

    >>> from levelhead.choice.tune_partial import plan_second_pass
    >>> batch = {"logits": np.array([[4.0, 2.0], [4.0, 3.0]]), "labels": np.array([0, 1])}
    >>> look_into_batches([batch], plan_second_pass(summarize_batches([batch], [400, 100]))).gamma.round(3)
    array([0.208, 0.5  ])
    """
    pairs = (read_batch(batch, logits=logits, labels=labels) for batch in batches)
    return (
        Events.joined([second.nothing(), *(second.look(*pair) for pair in pairs if len(pair[1]))]) or second.nothing()
    )


def read_batch(batch: Any, *, logits: str = "logits", labels: str = "labels") -> tuple[np.ndarray, np.ndarray]:
    """Return the logits [n, K] and labels [n] of a batch.

    Args:
        batch: a data frame, or a dict of arrays.
        logits, labels: the names of the columns.

    >>> read_batch({"logits": [[4.0, 2.0]], "labels": [1]})[0].shape
    (1, 2)
    """
    for column in (logits, labels):
        if column not in batch:
            known = ", ".join(map(str, batch))
            raise LevelheadError(f"expected a column {column!r} in the table, which has {known}")
    rows, known = np.asarray(batch[logits]), np.asarray(batch[labels])
    if rows.dtype == object and len(rows):  # a column of lists
        try:
            rows = np.stack([np.asarray(row) for row in rows])
        except ValueError as error:
            raise LevelheadError(f"expected as many numbers in every row of the column {logits!r} ({error})") from None
    return rows, known
