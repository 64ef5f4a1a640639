"""Samples from files: logits, and what is known of them. One file may hold it all, under the names it goes by here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core import counts
from ..core.errors import LevelheadError
from ..core.measure import check_shape
from . import arrays
from .counts_file import read_counts


@dataclass(frozen=True, eq=False)
class Samples:
    """What a trained model says of samples.

    Args:
        logits: [N, K].
        labels: [N] class indices, or None.
        counts: [K], training samples of each class.
        names: the K class names, where known.
        files: where each of the first three was found.
    """

    logits: np.ndarray
    labels: np.ndarray | None
    counts: np.ndarray
    names: list[str] | None
    files: dict[str, str | Path]


def read(
    logits: str | Path, labels: str | Path | None = None, counts_file: str | Path | None = None, *,
    say: Callable[[str], None] = lambda _: None,
) -> Samples:
    """Read logits, labels and counts; those not given are looked for beside the logits, under their names.

    Args:
        logits, labels: what `arrays.read` reads; FILE:KEY names one array of several, and has nothing beside it.
        counts_file: what `counts_file.read_counts` reads.
        say: told in a line what was found and not given.
    """
    scores, names = arrays.read(logits), arrays.titles(logits)
    with _of(logits):
        check_shape(scores.shape)

    def counted(source: str | Path) -> np.ndarray:
        with _of(source):
            found = read_counts(source)
            try:
                return counts.resolve(found, scores.shape[1], names=names)
            except ValueError as error:
                if isinstance(found, dict) or len(found) == scores.shape[1]:
                    raise
                raise LevelheadError(f"{error} ({_width(logits, scores)})") from None

    def indexed(source: str | Path) -> np.ndarray:
        found = arrays.read(source, wanted="labels")
        if found.shape == (len(scores) + 1,) and arrays.may_begin_with_a_title(source):
            if found.dtype.kind != "U" and found[0] == 0:
                say(f"{source}: its first line, 0, is taken for a title: it is one more than the {len(scores)} rows of "
                    f"{logits}")
                found = found[1:]
            elif found.dtype.kind == "U" and str(found[0]) not in (names or ()):
                found = found[1:]
        return class_indices(found, names, source)

    alone = f"name the logits alone: {logits}:logits"
    found: dict[str, np.ndarray] = {}
    files: dict[str, str | Path] = {"logits": logits}
    taken = []
    for what, given, get in (("labels", labels, indexed), ("counts", counts_file, counted)):
        inside = arrays.beside(logits, what)
        if (file := given or inside) is None:
            continue
        files[what], found[what] = file, get(file)
        if given is None:
            taken.append(what)
        elif inside is not None and not _is(found[what], get, inside):
            raise LevelheadError(f"{logits} holds {what} too, and {given} differs from them; leave out --{what}, or "
                             f"{alone}")
    if "counts" not in files:
        raise LevelheadError(f"{logits}: expected --counts, the training samples of each class, or an array `counts` "
                         "beside the logits in an .npz or .safetensors")
    if "labels" in found:
        with _of(files["labels"]):
            found["labels"] = counts.check_labels(found["labels"], scores.shape[1])
            if len(found["labels"]) != len(scores):
                raise LevelheadError(f"expected {len(scores)} labels, one per row of {logits}, got {len(found['labels'])}")
    if taken:
        say(f"{' and '.join(taken)} are those in {logits}; to leave them out, {alone}")
    return Samples(scores, found.get("labels"), found["counts"], names, files)


@contextmanager
def _of(source: str | Path) -> Iterator[None]:
    """What is wrong is wrong with this file, and says so."""
    try:
        yield
    except ValueError as error:
        said = str(error)
        raise LevelheadError(said if said.startswith(str(arrays.file_of(source))) else f"{source}: {said}") from None


def _width(source: str | Path, logits: np.ndarray) -> str:
    numbered = len(logits) > 1 and np.array_equal(logits[:, 0], np.arange(len(logits)))
    index = ", the first of them 0, 1, 2, ...: an index?" if numbered else ""
    return f"{source} has {logits.shape[1]} columns{index}"


def _is(values: np.ndarray, get: Callable[[str | Path], np.ndarray], source: Path) -> bool:
    """Whether these are the values of a source; one that cannot be read as such holds others."""
    try:
        return np.array_equal(values, get(source))
    except ValueError:
        return False


def class_indices(labels: np.ndarray, names: Sequence[str] | None, source: str | Path) -> np.ndarray:
    """Labels as class indices; class names are looked up among the titles of the logits' columns."""
    if labels.size == 0:
        raise LevelheadError(f"{source}: expected a label for each row of the logits, got none")
    if labels.dtype.kind not in "UO":
        return labels
    if labels.ndim != 1:
        raise LevelheadError(f"{source}: expected labels [N], got shape {list(labels.shape)}")
    if names is None:
        raise LevelheadError(f"{source}: labels are names ({str(labels[0])!r}), and the logits have no column titles to "
                         "find them among; give class indices, or logits as .csv or .parquet with a title a class")
    place = {name: i for i, name in enumerate(names)}
    if len(place) < len(names):
        both = next(name for name in names if names.count(name) > 1)  # type: ignore[attr-defined]
        raise LevelheadError(f"{source}: labels are names, and two of the logits' columns are called {both!r}; give class "
                         "indices")
    unknown = next((str(label) for label in labels if str(label) not in place), None)
    if unknown is not None:
        raise LevelheadError(f"{source}: unknown class {unknown!r}; the logits' columns are {', '.join(names[:8])}"
                         f"{', ...' if len(names) > 8 else ''}")
    return np.array([place[str(label)] for label in labels])
