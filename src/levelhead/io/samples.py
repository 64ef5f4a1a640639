"""Logits, labels and counts from files; one .npz or .safetensors may hold them all, under these names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.counts import check_labels, resolve
from ..core.errors import Advice, LevelheadError, in_file
from ..core.measure import check_shape
from ..core.per_class import first_repeated, listed
from . import arrays
from .counts_file import read_counts

Source = str | Path  # FILE or FILE:KEY


@dataclass(frozen=True, eq=False)
class Samples:
    """What a trained model says about samples."""

    logits: np.ndarray  # [N, K]
    labels: np.ndarray | None  # [N], class indices
    counts: np.ndarray  # [K], training samples of each class
    names: list[str] | None  # of the K classes, where known
    files: dict[str, Source]  # where logits, labels and counts were found


def read(
    logits: Source,
    labels: Source | None = None,
    counts: Source | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Samples:
    """Read logits, labels and counts. Those not given are looked for next to the logits, under their names.

    Args:
        logits, labels: what `arrays.read` reads; FILE:KEY names one array of several, and has nothing next to it.
        counts: what `counts_file.read_counts` reads.
        say: called with a line about what was found but not given.
    """
    scores, names = arrays.read(logits), arrays.column_titles(logits)
    with in_file(logits):
        check_shape(scores.shape)
    alone = f"name the logits alone: {logits}:logits"
    found: dict[str, np.ndarray] = {}
    files: dict[str, Source] = {"logits": logits}
    not_given = []
    for what, given, get in (
        ("labels", labels, lambda file: _read_labels(file, logits, len(scores), names, say)),
        ("counts", counts, lambda file: _read_counts(file, logits, scores, names)),
    ):
        inside = arrays.array_next_to(logits, what)
        if (file := given or inside) is None:
            continue
        files[what], found[what] = file, get(file)
        if given is None:
            not_given.append(what)
        elif inside is not None and not _same_values(found[what], get, inside):
            aside = f"{given} differs from them; leave out {given}, or {alone}"
            raise LevelheadError(f"{logits}: holds {what} too, and {aside}")
    if "counts" not in found:
        raise LevelheadError(
            f"{logits}: no array 'counts' next to the logits in this file",
            advice=Advice("counts", None, "to give the training samples of each class"),
        )
    if "labels" in found:
        with in_file(files["labels"]):
            found["labels"] = check_labels(found["labels"], scores.shape[1])
            if (n := len(found["labels"])) != len(scores):
                raise LevelheadError(f"expected {len(scores)} labels, one per row of {logits}, got {n}")
    if not_given:
        say(f"{' and '.join(not_given)} are those in {logits}; to leave them out, {alone}")
    return Samples(scores, found.get("labels"), found["counts"], names, files)


def _class_indices(labels: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """Return labels as class indices; class names are looked up among the column titles of the logits."""
    if labels.size == 0:
        raise LevelheadError("expected a label for each row of the logits, got none")
    if labels.dtype.kind not in "UO":
        return labels
    if labels.ndim != 1:
        raise LevelheadError(f"expected labels [N], got shape {list(labels.shape)}")
    if names is None:
        raise LevelheadError(
            f"labels are names ({str(labels[0])!r}), but the logits have no column titles; give class "
            "indices, or logits as .csv or .parquet with one title per class"
        )
    index = {name: i for i, name in enumerate(names)}
    if len(index) < len(names):
        raise LevelheadError(
            f"labels are names, but two columns of the logits are called {first_repeated(names)!r}; give class indices"
        )
    try:
        return np.array([index[str(label)] for label in labels])
    except KeyError as unknown:
        raise LevelheadError(f"unknown class {unknown}; the columns of the logits are {listed(names)}") from None


def _read_labels(
    source: Source, logits: Source, rows: int, names: Sequence[str] | None, say: Callable[[str], None]
) -> np.ndarray:
    labels = arrays.read(source, wanted="labels")
    if labels.shape == (rows + 1,) and arrays.may_begin_with_a_title(source):
        is_text = labels.dtype.kind == "U"
        is_title = str(labels[0]) not in (names or ()) if is_text else labels[0] == 0
        if is_title and not is_text:
            say(f"{source}: the first line, 0, is read as a title, because {logits} has one row less ({rows})")
        labels = labels[1:] if is_title else labels
    with in_file(source):
        return _class_indices(labels, names)


def _read_counts(source: Source, logits: Source, scores: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    counts, classes = read_counts(source), scores.shape[1]
    if not isinstance(counts, dict) and getattr(counts, "ndim", 1) == 1 and len(counts) < classes:
        numbered = len(scores) > 1 and np.array_equal(scores[:, 0], np.arange(len(scores)))
        index = ", of which the first is 0, 1, 2, ...: is it an index?" if numbered else ""
        raise LevelheadError(
            f"{source}: expected {classes} counts, one per class, got {len(counts)}; {logits} has "
            f"{classes} columns{index}"
        )
    with in_file(source):
        return resolve(counts, classes, names=names)


def _same_values(values: np.ndarray, get: Callable[[Source], np.ndarray], source: Path) -> bool:
    """Return whether a source holds these values; False if it cannot be read."""
    try:
        return np.array_equal(values, get(source))
    except ValueError:
        return False
