"""The logits [N, K] of a file, with names of classes and the labels of their table.

`read_scores` is the way in. An array has numbers only; names may be another array of its file
(`names_next_to`). In a table, `table_columns.find_columns` says which columns are classes; names of
the classes tell it best, whether they were given or are those of counts such as {"cat": 4000}. All
that was guessed is told to `say`, and ends as a line on the terminal.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.class_names import are_numbers, check_names, listed
from ..core.counts import Counts
from ..support.arrays import described
from ..support.errors import LevelheadError, in_file
from ..support.logits import check_shape
from . import arrays
from .table import TABLE_SUFFIXES, Table
from .table_columns import columns_called, find_columns
from .table_file import read_table

Source = str | Path  # FILE or FILE:KEY
Names = Sequence[str] | None  # of the classes, in order
Say = Callable[[str], object]  # is told what was taken for what; `str` tells nobody
# What an array of class names is called in a file of several.
NAME_ARRAYS = ("names", "classes", "class_names")


class Scores(NamedTuple):
    """The logits, and what their file says besides.

    Args:
        source: FILE or FILE:KEY, as it was given.
        values: [N, K], checked to be numbers of that shape; perhaps memory-mapped.
        names: of the classes, given or in the file.
        label: FILE:TITLE of the column of labels, in a table.
    """

    source: Source
    values: np.ndarray  # [N, K]
    names: list[str] | None = None  # of the classes
    label: Path | None = None  # FILE:TITLE of the column of labels, in a table


def read_scores(
    source: Source, names: Names, label_column: str | None, counts: Counts | None, say: Say
) -> Scores:
    """Read the logits, and find names and labels next to them; names that are given come first.

    Args:
        source: FILE or FILE:KEY.
        names: of the classes, in order, where they are given.
        label_column: the title of the labels, in a table of logits.
        counts: by whose names the columns of a table may be called.
        say: is told what was taken for what.

    Raises:
        LevelheadError: not [N, K], no numbers, or a column of labels where there is no table.
    """
    path, key = arrays.split_key(source)
    if key is None and path.suffix.lower() in TABLE_SUFFIXES:
        return _read_table_scores(path, source, names, label_column, counts, say)
    if label_column is not None:
        table = f"a table ({', '.join(TABLE_SUFFIXES)})"
        raise LevelheadError(f"expected logits in {table}, got {source}", parameter="label_column")
    # An array: names may be another array of the same file.
    values = arrays.read(source)
    with in_file(source):
        check_shape(values.shape)
        if values.dtype.kind not in "fiu":
            raise LevelheadError(
                f"expected logits as floating-point numbers, got {described(values)}"
            )
    if names is None:
        return Scores(source, values, names_next_to(source, values.shape[1]))
    return Scores(source, values, list(names))


def _read_table_scores(
    path: Path,
    source: Source,
    names: Names,
    label_column: str | None,
    counts: Counts | None,
    say: Say,
) -> Scores:
    """Read the logits of a table, and find out which columns are classes and which one labels.

    Labels are not read here: their column is handed on as FILE:TITLE, and goes the road of any
    other labels (`samples_file`). What was ignored is said, since a column of whole numbers that is
    called `split` or `rank` would be ignored even if it is a class.
    """
    names_given = None
    if names is not None:
        names_given = list(names)
    with in_file(path):
        table = read_table(path, titles=("logits", label_column))
        if len(table.columns) == 1:  # of lists, or there are no K logits
            check_shape(table.columns[0].shape)
        # Counts by name tell which columns are classes; a list may also be of labels.
        classes_counted = []
        if isinstance(counts, Mapping):
            classes_counted = [str(name) for name in counts]
        known_names = names
        if names is None:
            known_names = _counted_columns(table, classes_counted)
        # A label column that is named may hold anything, and must not be taken for a class.
        if label_column is not None:
            table = table.without(label_column)
        layout = find_columns(table, known_names, len(classes_counted) or None)
        values = table.numbers(layout.logits)
        check_shape(values.shape)
    if layout.label is not None and label_column is None:
        say(f"labels are the column {layout.label!r} of {source}")
    if layout.ignored:
        ignored = "are not classes and are"
        if len(layout.ignored) == 1:
            ignored = "is not a class and is"
        classes = f"its {values.shape[1]} columns"
        if table.titles:
            classes = listed([table.titles[i] for i in layout.logits])
        if len(layout.logits) < values.shape[1]:
            classes = f"the {values.shape[1]} numbers of each list in {classes}"
        say(f"{source}: {listed(layout.ignored)} {ignored} ignored; its classes are {classes}")
    label = label_column or layout.label
    label_path = None
    if label is not None:
        label_path = Path(f"{path}:{label}")
    if names_given is None:
        return Scores(source, values, layout.names, label_path)
    return Scores(source, values, names_given, label_path)


def _counted_columns(table: Table, classes: Sequence[str]) -> list[str] | None:
    """Return the classes that were counted in the order of the columns called like them.

    None if there are none, or if they are numbers: those may be positions. The order of the columns
    is taken, and not that of the counts, since the order of a table is that of the model's outputs.
    """
    if not table.titles or not classes or are_numbers(classes):
        return None
    places = columns_called(table.titles, classes)
    if places is None:
        return None
    return [name for _, name in sorted(zip(places, classes, strict=True))]


def names_next_to(source: Source, classes: int) -> list[str] | None:
    """Return the class names that a file of several arrays holds, or None.

    Args:
        source: FILE; of FILE:KEY, nothing next to the array is looked at.
        classes: K: as many names there must be.
    """
    for name in NAME_ARRAYS:
        place = arrays.array_next_to(source, name)
        if place is None:
            continue
        values = arrays.read(place, wanted=name)
        if values.dtype.kind == "U":
            with in_file(place):
                return check_names(values.reshape(-1).tolist(), classes)
    return None
