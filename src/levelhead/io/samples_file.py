"""Logits, labels [N] or [N, K] of 0 and 1, counts and class names from files, of which one may hold them all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.class_labels import are_names, as_positions, check_labels, find_labels
from ..core.class_names import are_numbers, as_mapping, check_names, in_order, listed
from ..core.counts import Counts, find_background, resolve
from ..support.arrays import check_shape, described
from ..support.errors import Advice, LevelheadError, in_file
from ..support.regular_file import Stamp, check_regular_file, check_unchanged
from . import arrays
from .table import TABLE_SUFFIXES
from .table_columns import columns_called, find_columns
from .table_file import read_table

Source = str | Path  # FILE or FILE:KEY
Names = Sequence[str] | None  # of the classes, in order
Say = Callable[[str], object]  # is told what was taken for what; `str` tells nobody
# What an array of class names is called in a file of several.
NAME_ARRAYS = (
    "names",
    "classes",
    "class_names",
)


@dataclass(frozen=True, eq=False)
class SamplesRead:
    """What a trained model says about samples.

    Args:
        logits: [N, K].
        labels: [N], class indices; or [N, K] of 0 and 1; None if there are none.
        counts: [K], training samples of each class; None if they are not known.
        names: of the K classes, where known.
        files: where logits, labels and counts were found, as far as they were in files.
        stamps: of those files, when they were opened.
    """

    logits: np.ndarray
    labels: np.ndarray | None
    counts: np.ndarray | None
    names: list[str] | None
    files: dict[str, Source]
    stamps: dict[Path, Stamp] = field(default_factory=dict)

    @property
    def classes(self) -> int:
        """K."""
        return self.logits.shape[1]

    def check_unchanged(self) -> None:
        """Check that no file has changed since it was read: large ones are mapped, and read as they are needed."""
        for path, stamp in self.stamps.items():
            check_unchanged(path, stamp)


def describe_sources(files: Mapping[str, Source | None]) -> dict[str, dict[str, str]]:
    """Return the files that a choice was made on, each with its sha256, for `Tuned.sources`."""
    given = {what: str(source) for what, source in files.items() if source is not None}
    return {
        "files": given,
        "sha256": {what: arrays.sha256(source) for what, source in given.items()},
    }


class _Scores(NamedTuple):
    """The logits, and what their file says besides."""

    source: Source
    values: np.ndarray
    names: list[str] | None = None
    label: Path | None = None


def read(
    logits: Source,
    labels: Source | None = None,
    counts: Source | Sequence[float] | None = None,
    *,
    names: Names = None,
    label_column: str | None = None,
    background: int | str | None = None,
    say: Say = str,
) -> SamplesRead:
    """Read logits, labels and counts; those not given are looked for next to the logits, under their names.

    Args:
        logits: FILE or FILE:KEY.
        labels, counts: files likewise, or the counts themselves; None where none are found.
        names: of the classes, in order.
        label_column: of the labels, in a table of logits.
        background: a class that may have no training samples, as it is left alone.
        say: is told what was taken for what.
    """
    if labels is not None and label_column is None:
        path, column = arrays.split_key(labels)
        if column is not None and path == Path(logits) and path.suffix.lower() in TABLE_SUFFIXES:
            label_column = column
            labels = None
    stamps = _stamps({"logits": logits, "labels": labels, "counts": counts})
    given_counts: Any = counts
    if isinstance(counts, str | Path):
        given_counts = arrays.read_counts(counts)
    scores = _read_scores(logits, names, label_column, given_counts, say)
    if label_column is not None and labels is not None:
        raise LevelheadError(
            "expected a column of the logits' table or a file of labels, got both",
            parameter="labels",
        )
    if label_column is not None:
        labels = scores.label
    names = scores.names
    classes = scores.values.shape[1]
    if names is not None and len(names) != classes:
        raise LevelheadError(
            f"expected {classes} class names, one per class, got {len(names)}", parameter="names"
        )
    alone = None
    if background is not None:
        alone = find_background(background, classes, names)
    found: dict[str, np.ndarray] = {}
    files: dict[str, Source] = {"logits": logits}
    for what, given, get in (
        ("labels", labels, lambda file: _read_labels(file, scores, names, say)),
        ("counts", counts, lambda file: _resolve_counts(file, scores, names, alone)),
    ):
        inside = arrays.array_next_to(logits, what)
        if what == "labels" and scores.label is not None:
            inside = scores.label
        source = inside if given is None else given
        if source is None:
            continue
        found[what] = get(source)
        if isinstance(source, str | Path) and not arrays.is_inline(source):
            files[what] = source
        both = given is not None and inside not in (None, given)
        if both and not _same_values(found[what], get, inside):
            here = files.get(what, f"the {what} given")
            way_out = f"name the logits alone: {logits}:logits"
            if inside == scores.label:
                way_out = "take that column out of the table"
            aside = f"{here} differs from them; leave out {here}, or {way_out}"
            raise LevelheadError(f"{logits}: holds {what} too, and {aside}")
    if "labels" in found:
        with in_file(files["labels"]):
            found["labels"] = as_positions(check_labels(found["labels"], classes))
            n = len(found["labels"])
            if n != len(scores.values):
                rows = f"{len(scores.values)} labels, one per row of {logits}"
                raise LevelheadError(f"expected {rows}, got {n}")
    given = {"labels": labels, "counts": counts}
    not_given = [what for what in given if given[what] is None and what in found]
    if not_given and scores.label is None:
        inside_it = f"{' and '.join(not_given)} are those in {logits}"
        say(f"{inside_it}; to leave them out, name the logits alone: {logits}:logits")
    return SamplesRead(
        scores.values, found.get("labels"), found.get("counts"), names, files, stamps
    )


def read_label_samples(
    logits: Source,
    labels: Source | None = None,
    counts: Source | None = None,
    *,
    names: Names = None,
    say: Say = str,
) -> SamplesRead:
    """Read logits and labels, [N, K] each, in one order, and counts, as `read` does."""
    scores, titles = _read_columns(logits, "logits", names)
    known = titles if names is None else list(names)
    source = labels
    if labels is None:
        source = arrays.array_next_to(logits, "labels")
    if source is None:
        raise _nothing_next_to(logits, "labels", "to give 0 or 1 for each label of each sample")
    truth, _ = _read_columns(source, "labels", known)
    files: dict[str, Source] = {"logits": logits, "labels": source}
    if labels is None:
        say(f"labels are those in {logits}")
    positives = None
    of_counts = counts
    if counts is None:
        of_counts = arrays.array_next_to(logits, "counts")
    if of_counts is not None:
        given = arrays.read_counts(of_counts)
        mapping = as_mapping(given)
        with in_file(of_counts):
            if mapping is None:
                positives = np.asarray(given)
            else:
                positives = in_order(mapping, scores.shape[-1], known)
        if not arrays.is_inline(of_counts):
            files["counts"] = of_counts
    return SamplesRead(scores, truth, positives, known, files, _stamps(files))


def _stamps(sources: Mapping[str, Any]) -> dict[Path, Stamp]:
    """Return what identifies the content of each file now, after checking that it is a regular file."""
    stamps = {}
    for what, source in sources.items():
        if not isinstance(source, str | Path) or arrays.is_inline(source):
            continue
        if arrays.has_known_suffix(source):
            path = arrays.file_of(source)
            stamps[path] = check_regular_file(path, what)
    return stamps


def _nothing_next_to(logits: Source, what: str, effect: str) -> LevelheadError:
    message = f"{logits}: no array {what!r} next to the logits in this file"
    return LevelheadError(message, advice=Advice(what, None, effect))


def _read_scores(
    source: Source, names: Names, label_column: str | None, counts: Counts, say: Say
) -> _Scores:
    """Read the logits, and find names and labels next to them; names that are given come first."""
    path, key = arrays.split_key(source)
    is_table = key is None and path.suffix.lower() in TABLE_SUFFIXES
    if label_column is not None and not is_table:
        known = f"a table ({', '.join(TABLE_SUFFIXES)})"
        raise LevelheadError(f"expected logits in {known}, got {source}", parameter="label_column")
    if not is_table:
        values = arrays.read(source)
        with in_file(source):
            check_shape(values.shape)
            if values.dtype.kind not in "fiu":
                raise LevelheadError(
                    f"expected logits as floating-point numbers, got {described(values)}"
                )
        return _Scores(
            source,
            values,
            names=names_next_to(source, values.shape[1]) if names is None else list(names),
        )
    with in_file(path):
        table = read_table(path, titles=("logits", label_column))
        if len(table.columns) == 1:  # lists of logits
            check_shape(table.columns[0].shape)
            return _Scores(source, table.columns[0], None if names is None else list(names))
        # A list may also be of labels.
        keys = []
        if isinstance(counts, Mapping):
            keys = [str(key) for key in counts]
        known = names
        if names is None and table.titles and keys and not are_numbers(keys):
            places = columns_called(table.titles, keys)
            if places is not None:  # in the order of the columns called so
                known = [key for _, key in sorted(zip(places, keys, strict=True))]
        if label_column is not None:
            table.column(label_column)  # there is one
            rest = [i for i, title in enumerate(table.titles or ()) if title != label_column]
            table = type(table)(
                [(table.titles or [])[i] for i in rest], [table.columns[i] for i in rest]
            )
        layout = find_columns(table, known, len(keys) or None)
        values = table.numbers(layout.logits)
        check_shape(values.shape)
    label = label_column or layout.label
    if layout.label and label_column is None:
        say(f"labels are the column {label!r} of {source}")
    if layout.ignored:
        ignored = "are not classes and are"
        if len(layout.ignored) == 1:
            ignored = "is not a class and is"
        if table.titles:
            shown = listed([table.titles[i] for i in layout.logits])
        else:
            shown = f"its {values.shape[1]} columns"
        say(f"{source}: {listed(layout.ignored)} {ignored} ignored; its classes are {shown}")
    label_path = None
    if label is not None:
        label_path = Path(f"{path}:{label}")
    return _Scores(source, values, layout.names if names is None else list(names), label_path)


def names_next_to(source: Source, classes: int) -> list[str] | None:
    """Return the class names that a file of several arrays holds, or None."""
    for name in NAME_ARRAYS:
        if (place := arrays.array_next_to(source, name)) is not None:
            values = arrays.read(place, wanted=name)
            if values.dtype.kind == "U":
                with in_file(place):
                    return check_names(values.reshape(-1).tolist(), classes)
    return None


def _read_labels(source: Source, scores: _Scores, names: Names, say: Say) -> np.ndarray:
    """Return labels as class indices; names are looked up among the names of the classes."""
    labels = arrays.read(source, wanted="labels")
    rows = len(scores.values)
    path, key = arrays.split_key(source)
    alone = labels.shape == (rows + 1,) and key is None and path.suffix.lower() == ".csv"
    # The first cell may be a title.
    if alone and read_table(path, titles=("labels",)).titles is None:
        is_text = labels.dtype.kind == "U"
        if is_text:
            is_title = str(labels[0]) not in (names or ())
        else:
            is_title = labels[0] == 0
        if is_title and not is_text:
            say(
                f"{source}: the first line, 0, is read as a title, because {scores.source} has one row less ({rows})"
            )
        labels = labels[1:] if is_title else labels
    with in_file(source):
        if labels.size == 0:
            raise LevelheadError("expected a label for each row of the logits, got none")
        if names is None and are_names(labels):
            unknown = (
                f"labels are names ({str(labels.flat[0])!r}), but class names are not known here"
            )
            how = "give class indices, or logits as .csv or .parquet with one title per class"
            advice = Advice(
                "names", None, "to list the classes in the order of the logits' columns"
            )
            raise LevelheadError(f"{unknown}; {how}", advice=advice)
        if names is None:
            return labels
        return find_labels(labels, names)


def _resolve_counts(
    source: Any, scores: _Scores, names: Sequence[str] | None, background: int | None
) -> np.ndarray:
    given = isinstance(source, str | Path)
    counts = arrays.read_counts(source) if given else source
    logits = scores.values
    where = "counts"
    if given and not arrays.is_inline(source):
        where = source
    classes = logits.shape[1]
    one_row = not isinstance(counts, dict) and getattr(counts, "ndim", 1) == 1
    if one_row and len(counts) < classes and not (len(counts) > 0 and are_names(counts)):
        numbered = len(logits) > 1 and np.array_equal(logits[:, 0], np.arange(len(logits)))
        index = ""
        if numbered:
            index = ", of which the first is 0, 1, 2, ...: is it an index?"
        if len(logits) == len(counts):
            index = f"; {scores.source} is {list(logits.shape)}: transpose it, to [N, K]"
        has = f"{scores.source} has {classes} columns{index}"
        raise LevelheadError(
            f"{where}: expected {classes} counts, one per class, got {len(counts)}; {has}"
        )
    with in_file(where):
        return resolve(counts, classes, names=names, background=background)


def _same_values(values: np.ndarray, get: Callable[[Any], np.ndarray], source: Any) -> bool:
    """Return whether a source holds these values; False if it cannot be read."""
    try:
        return np.array_equal(values, get(source))
    except ValueError:
        return False


def _read_columns(
    source: Source, what: str, names: Sequence[str] | None
) -> tuple[np.ndarray, list[str] | None]:
    """Return an array [N, K] and the titles of its columns, where it has any."""
    path, key = arrays.split_key(source)
    if key is not None or Path(path).suffix.lower() not in TABLE_SUFFIXES:
        return np.asarray(arrays.read(source, wanted=what)), None
    check_regular_file(path, what)
    with in_file(path):
        table = read_table(path)
        layout = find_columns(table, names)
        return table.numbers(layout.logits), layout.names
