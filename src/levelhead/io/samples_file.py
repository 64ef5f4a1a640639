"""Logits, labels, counts and class names from files, of which one may hold them all.

Labels are [N], or [N, K] of 0 and 1.

`read` goes this way: the logits with the names and labels that their file has (`read_scores`),
then labels and counts, given or next to the logits (`_read_beside`), each as class positions or in
class order. Where something is given and is in the file of the logits too, both must be the same.
`read_label_samples` does so for several labels per sample.

What `read` returns fits together: as many labels as rows, as many counts and names as columns, and
every label a class. Whether the numbers are logits, and finite, is checked where they are used
(`support.logits`), part by part, as they may be larger than the memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.class_labels import are_names, as_positions, check_labels, find_labels
from ..core.class_names import as_mapping, in_order
from ..core.counts import Counts, find_background, resolve_as_trained, with_background
from ..support.errors import Advice, LevelheadError, in_file
from ..support.regular_file import Stamp, check_regular_file, check_unchanged
from . import arrays
from .scores_file import Names, Say, Scores, Source, read_scores
from .table import TABLE_SUFFIXES
from .table_columns import find_columns
from .table_file import read_table


@dataclass(frozen=True, eq=False)
class SamplesRead:
    """What a trained model says about samples.

    Args:
        logits: [N, K].
        labels: [N], class indices; or [N, K] of 0 and 1; None if there are none.
        counts: [K], training samples of each class; None if they are not known.
        names: of the K classes, where known.
        files: where logits, labels and counts were found, as far as they were in files: FILE or
            FILE:KEY, under those words.
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
        """Check that no file has changed since it was read.

        Large ones are mapped, and read as they are needed: what was chosen and what was judged
        could be on two versions of the data. Whoever writes a result calls this first.

        Raises:
            LevelheadError: one of them has another size, time or inode, or is gone.
        """
        for path, stamp in self.stamps.items():
            check_unchanged(path, stamp)


def describe_sources(files: Mapping[str, Source | None]) -> dict[str, dict[str, str]]:
    """Return the files that a choice was made on, each with its sha256, for `Tuned.sources`.

    Args:
        files: {"logits": FILE:KEY, ...}; those that are None are left out.
    """
    sources = {what: str(source) for what, source in files.items() if source is not None}
    digests = {what: arrays.sha256(source) for what, source in sources.items()}
    return {"files": sources, "sha256": digests}


class _Beside(NamedTuple):
    """Labels or counts, and the file that they are from; None if they were given themselves."""

    values: np.ndarray
    file: Source | None


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
    """Read logits, labels and counts.

    Those not given are looked for next to the logits, under their names.

    Args:
        logits: FILE or FILE:KEY. FILE:KEY takes that array alone: nothing is looked for next to it.
        labels, counts: files likewise, or the counts themselves; None where none are found.
        names: of the classes, in order.
        label_column: of the labels, in a table of logits.
        background: a class that may have no training samples, as it is left alone.
        say: is told what was taken for what.

    Returns:
        All of it, checked against each other.

    Raises:
        LevelheadError: a file cannot be read, numbers of classes or samples differ, a label is no
            class, or what is given differs from what the file of the logits holds.
    """
    # Labels given as a column of the table of logits.
    if labels is not None and label_column is None:
        path, column = arrays.split_key(labels)
        if column is not None and path == Path(logits) and path.suffix.lower() in TABLE_SUFFIXES:
            label_column = column
            labels = None
    # Before anything is read: `check_unchanged` compares with them when all is done.
    stamps = _stamps({"logits": logits, "labels": labels, "counts": counts})

    # The logits. Counts come first, since their names may tell which columns are classes.
    counts_given: Counts | None = counts
    if isinstance(counts, str | Path):
        counts_given = arrays.read_counts(counts)
    scores = read_scores(logits, names, label_column, counts_given, say)
    if label_column is not None:
        if labels is not None:
            raise LevelheadError(
                "expected a column of the logits' table or a file of labels, got both",
                parameter="labels",
            )
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

    # Labels and counts, given or in the same file. Those in both are read twice, to be compared.
    def get_labels(source: Source) -> np.ndarray:
        return _read_labels(source, scores, names, say)

    def get_counts(source: Source | Sequence[float]) -> np.ndarray:
        return _resolve_counts(source, scores, names, alone)

    # A table has its labels in a column, an archive in an array of that name.
    labels_inside = scores.label or arrays.array_next_to(logits, "labels")
    counts_inside = arrays.array_next_to(logits, "counts")
    labels_read = _read_beside("labels", labels, labels_inside, get_labels, scores)
    counts_read = _read_beside("counts", counts, counts_inside, get_counts, scores)

    # What was found, and where; what the caller did not ask for is said.
    files: dict[str, Source] = {"logits": logits}
    not_given = []
    positions = None
    if labels_read is not None:
        positions = _check_labels(labels_read, scores)
        if labels_read.file is not None:
            files["labels"] = labels_read.file
        if labels is None:
            not_given.append("labels")
    class_counts = None
    if counts_read is not None:
        class_counts = counts_read.values
        if counts_read.file is not None:
            files["counts"] = counts_read.file
        if counts is None:
            not_given.append("counts")
    if not_given and scores.label is None:
        inside_it = f"{' and '.join(not_given)} are those in {logits}"
        say(f"{inside_it}; to leave them out, name the logits alone: {logits}:logits")
    return SamplesRead(scores.values, positions, class_counts, names, files, stamps)


def _read_beside(
    what: str,
    given: Source | Sequence[float] | None,
    inside: Path | None,
    get: Callable[[Any], np.ndarray],
    scores: Scores,
) -> _Beside | None:
    """Read labels or counts: those given, else those in the file of the logits.

    None if there are none. Where both are there they are read both, since a file of labels that
    belongs to other logits is a mistake that no number would show.

    Args:
        what: labels or counts.
        given: a file, or counts themselves.
        inside: FILE:KEY of those that the file of the logits holds.
        get: reads and checks them.
        scores: the logits.

    Raises:
        LevelheadError: both are there, and differ.
    """
    source = inside if given is None else given
    if source is None:
        return None
    values = get(source)
    file = None
    if isinstance(source, str | Path) and not arrays.is_inline(source):
        file = source
    both = given is not None and inside not in (None, given)
    if both and not _same_values(values, get, inside):
        here = f"the {what} given"
        differ = "differ"
        if file is not None:
            here = str(file)
            differ = "differs"
        way_out = f"name the logits alone: {scores.source}:logits"
        if inside == scores.label:
            way_out = "take that column out of the table"
        aside = f"{here} {differ} from them; leave out {here}, or {way_out}"
        raise LevelheadError(f"{scores.source}: holds {what} too, and {aside}")
    return _Beside(values, file)


def _check_labels(labels: _Beside, scores: Scores) -> np.ndarray:
    """Return labels as positions of classes, one for each row of the logits."""
    with in_file(labels.file):
        positions = as_positions(check_labels(labels.values, scores.values.shape[1]))
        if len(positions) != len(scores.values):
            rows = f"{len(scores.values)} labels, one per row of {scores.source}"
            raise LevelheadError(f"expected {rows}, got {len(positions)}")
    return positions


def read_label_samples(
    logits: Source,
    labels: Source | None = None,
    counts: Source | None = None,
    *,
    names: Names = None,
    say: Say = str,
) -> SamplesRead:
    """Read logits and labels, [N, K] each, in one order, and counts of positives [K].

    Columns of two tables are brought together by their titles: the labels are read in the order of
    the names that the logits have.

    Args:
        logits, labels, counts: as in `read`; the labels are 0 or 1.
        names: of the labels, in order.
        say: is told what was taken for what.

    Raises:
        LevelheadError: there are no labels. That they are 0 or 1, and of the shape of the logits,
            is checked by `tune_labels`.
    """
    scores, titles = _read_columns(logits, "logits", names)
    known_names = titles
    if names is not None:
        known_names = list(names)
    labels_source = labels
    if labels is None:
        labels_source = arrays.array_next_to(logits, "labels")
    if labels_source is None:
        raise _nothing_next_to(logits, "labels", "to give 0 or 1 for each label of each sample")
    truth, _ = _read_columns(labels_source, "labels", known_names)
    files: dict[str, Source] = {"logits": logits, "labels": labels_source}
    if labels is None:
        say(f"labels are those in {logits}")

    positives = None
    counts_source = counts
    if counts is None:
        counts_source = arrays.array_next_to(logits, "counts")
    if counts_source is not None:
        values = arrays.read_counts(counts_source)
        by_name = as_mapping(values)
        with in_file(counts_source):
            if by_name is None:
                positives = np.asarray(values)
            else:
                positives = in_order(by_name, scores.shape[-1], known_names)
        if not arrays.is_inline(counts_source):
            files["counts"] = counts_source
    return SamplesRead(scores, truth, positives, known_names, files, _stamps(files))


def _stamps(sources: Mapping[str, object]) -> dict[Path, Stamp]:
    """Return what identifies the content of each file now.

    Each must be a regular file, and is not opened here: a pipe could never be read a second time.
    Counts that are given themselves have no file.
    """
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


def _read_labels(source: Source, scores: Scores, names: Names, say: Say) -> np.ndarray:
    """Return labels as class indices; names are looked up among the names of the classes.

    Args:
        source: FILE or FILE:KEY, or FILE:TITLE of a column in the table of the logits.
        scores: the logits, of which there is a row for each label.
        names: of the classes; without them, labels must be indices.
        say: is told of a first line that was read as a title.
    """
    labels = _without_title(arrays.read(source, wanted="labels"), source, scores, names, say)
    with in_file(source):
        if labels.size == 0:
            raise LevelheadError("expected a label for each row of the logits, got none")
        if names is not None:
            return find_labels(labels, names)
        if are_names(labels):
            example = repr(str(labels.flat[0]))
            unknown = f"labels are names ({example}), but class names are not known here"
            instead = "give class indices, or logits as .csv or .parquet with one title per class"
            effect = "to list the classes in the order of the logits' columns"
            raise LevelheadError(f"{unknown}; {instead}", advice=Advice("names", None, effect))
        return labels


def _without_title(
    labels: np.ndarray, source: Source, scores: Scores, names: Names, say: Say
) -> np.ndarray:
    """Return labels of a .csv file without their title.

    A first cell is taken for one if there is one cell too many.

    A single column of names has no title that could be told from a name, and pandas writes 0 over
    a column without a name. Only the number of logits tells: N + 1 cells for N rows. A cell that is
    the name of a class stays, so that a file with one label too many is refused for that.
    """
    path, key = arrays.split_key(source)
    rows = len(scores.values)
    if labels.shape != (rows + 1,) or key is not None or path.suffix.lower() != ".csv":
        return labels
    # A title that could be told from a sample was taken off already.
    if read_table(path, titles=("labels",)).titles is not None:
        return labels
    if labels.dtype.kind == "U":
        is_title = str(labels[0]) not in (names or ())
    else:
        is_title = labels[0] == 0
        if is_title:
            read_so = f"{source}: the first line, 0, is read as a title"
            say(f"{read_so}, because {scores.source} has one row less ({rows})")
    if is_title:
        return labels[1:]
    return labels


def _resolve_counts(
    source: Source | Sequence[float],
    scores: Scores,
    names: Sequence[str] | None,
    background: int | None,
) -> np.ndarray:
    """Return counts [K] in class order, from a file or as they were given.

    Too few of them are refused here, where the logits are at hand: they may be transposed, or have
    an index as their first column. `core.counts.resolve` does the rest.

    Args:
        source: a file, "4000,2000,500", or the counts themselves.
        scores: the logits.
        names: of the classes, where they are known.
        background: the position of a class that may have none.
    """
    counts: Counts = source
    where: Source = "counts"
    if isinstance(source, str | Path):
        counts = arrays.read_counts(source)
        if not arrays.is_inline(source):
            where = source
    classes = scores.values.shape[1]
    is_list = not isinstance(counts, dict) and getattr(counts, "ndim", 1) == 1
    if is_list and len(counts) < classes and not (len(counts) > 0 and are_names(counts)):
        expected = f"expected {classes} counts, one per class, got {len(counts)}"
        has = f"{scores.source} has {classes} columns{_why_too_wide(scores, len(counts))}"
        raise LevelheadError(f"{where}: {expected}; {has}")
    if background is not None:
        counts = with_background(counts, background)
    with in_file(where):
        return resolve_as_trained(counts, classes, names=names)


def _why_too_wide(scores: Scores, counts: int) -> str:
    """Return, for a message, why logits may have more columns than there are counts."""
    logits = scores.values
    if len(logits) == counts:
        return f"; {scores.source} is {list(logits.shape)}: transpose it, to [N, K]"
    if len(logits) > 1 and np.array_equal(logits[:, 0], np.arange(len(logits))):
        return ", of which the first is 0, 1, 2, ...: is it an index?"
    return ""


def _same_values(values: np.ndarray, get: Callable[[Any], np.ndarray], source: Path | None) -> bool:
    """Return whether a source holds these values; False if it cannot be read.

    What cannot be read differs from what was given, and the message about that says more than one
    about a file that the user did not name.
    """
    try:
        return np.array_equal(values, get(source))
    except ValueError:
        return False


def _read_columns(
    source: Source, what: str, names: Sequence[str] | None
) -> tuple[np.ndarray, list[str] | None]:
    """Return an array [N, K] and the titles of its columns, where it has any.

    Args:
        source: FILE or FILE:KEY.
        what: logits or labels.
        names: the columns to take, in this order, where they are known.
    """
    path, key = arrays.split_key(source)
    if key is not None or Path(path).suffix.lower() not in TABLE_SUFFIXES:
        return np.asarray(arrays.read(source, wanted=what)), None
    check_regular_file(path, what)
    with in_file(path):
        table = read_table(path)
        layout = find_columns(table, names)
        return table.numbers(layout.logits), layout.names
