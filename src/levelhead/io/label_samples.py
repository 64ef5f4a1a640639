"""Logits and labels [N, K] of a model with several labels per sample, from files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import Advice, LevelheadError, in_file
from ..core.per_class import as_mapping, in_order
from ..core.regular_file import check_regular_file
from . import arrays
from .counts_file import is_inline, read_counts
from .samples import Samples, Source
from .table import TABLE_SUFFIXES, find_columns, read_table


def read_label_samples(
    logits: Source,
    labels: Source | None = None,
    counts: Source | None = None,
    *,
    names: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Samples:
    """Read logits, labels and counts; those not given are looked for next to the logits, under their names.

    Args:
        logits, labels: [N, K] each, what `arrays.read` reads. Columns of two tables with the same titles are put in the
            order of the logits.
        counts: training samples that have each label; where there are none, positives are counted in the labels.
        names: of the labels, in order; otherwise the titles of a table of logits.
        say: called with a line about what was found but not given.
    """
    scores, titles = _read_table(logits, "logits", names)
    known = list(names) if names is not None else titles
    source = labels if labels is not None else arrays.array_next_to(logits, "labels")
    if source is None:
        raise LevelheadError(
            f"{logits}: no array 'labels' next to the logits in this file",
            advice=Advice("labels", None, "to give 0 or 1 for each label of each sample"),
        )
    truth, _ = _read_table(source, "labels", known)
    files: dict[str, Source] = {"logits": logits, "labels": source}
    if labels is None:
        say(f"labels are those in {logits}")
    given = counts if counts is not None else arrays.array_next_to(logits, "counts")
    if given is None:
        positives: Any = truth.sum(axis=0) if truth.ndim == 2 and truth.dtype.kind in "biuf" else np.zeros(0)
    else:
        found = read_counts(given)
        mapping = as_mapping(found)
        with in_file(given):
            positives = in_order(mapping, scores.shape[-1], known) if mapping is not None else np.asarray(found)
        if not is_inline(given):
            files["counts"] = given
    stamps = {arrays.file_of(file): check_regular_file(arrays.file_of(file), what) for what, file in files.items()}
    return Samples(scores, truth, positives, known, files, stamps)


def _read_table(source: Source, what: str, names: Sequence[str] | None) -> tuple[np.ndarray, list[str] | None]:
    """Return an array [N, K] and the titles of its columns, where it has any."""
    path, key = arrays.split_key(source)
    if key is not None or Path(path).suffix.lower() not in TABLE_SUFFIXES:
        return np.asarray(arrays.read(source, wanted=what)), None
    check_regular_file(path, what)
    with in_file(path):
        table = read_table(path)
        layout = find_columns(table, names)
        return table.numbers(layout.logits), layout.names
