"""Scores of a model read a part at a time: tables row by row, arrays as large as a disk.

`read_parts` opens a file and says how many classes it has; its parts are then read one after the
other, once. Of a table, the first part tells which columns are scores; the others are handed on
beside them, so that they can be written again.

This is the reader of `levelhead apply`, which adjusts each part and hands it to `parts_written`.
Unlike `scores_file.read_scores`, it may neither hold all rows nor go through the file twice, and it
leaves columns that are called like classes in the order of the file: that another order than the
one tuned on is refused, and not mended, is for its caller (`core.tuned_checks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.class_names import listed
from ..support.arrays import described
from ..support.columns import column_numbers, number_order
from ..support.errors import LevelheadError, in_file
from ..support.read import read_rows
from ..support.regular_file import check_regular_file
from . import arrays
from .scores_file import names_next_to
from .table import TABLE_SUFFIXES, Table
from .table_columns import check_places, check_titled_once, columns_called, find_columns
from .table_file import table_parts

# A part of many classes would have a row or two, in which whole numbers may be scores by chance.
_LEAST_ROWS = 100  # of a table: enough to tell ids and labels from scores


class Part(NamedTuple):
    """Some rows of scores, as the file has them.

    Args:
        first: the row of the file that is the first of these.
        scores: [n, K].
        others: {title: [n]}, the columns of a table that are not scores.
    """

    first: int
    scores: np.ndarray
    others: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class ScoreParts:
    """Scores of a file that is open.

    Args:
        source: FILE or FILE:KEY, for messages.
        classes: K, the number of columns of every part.
        names: of its classes, as far as it says them, in the order of the columns.
        parts: the rows, in the order of the file. They can be gone through once.
    """

    source: str  # FILE or FILE:KEY
    classes: int  # K
    names: tuple[str, ...] | None  # of its classes, as far as it says them
    parts: Iterator[Part]  # once


def read_parts(
    source: str | Path, classes: int, names: Sequence[str] | None = None, *, size: int = 1 << 20
) -> ScoreParts:
    """Open the scores of FILE or FILE:KEY, of K classes, to be read a part at a time.

    Args:
        source: in any format that `arrays.read` knows.
        classes: how many classes to look for among the columns of a table.
        names: of the classes, by which the columns of a table may be called.
        size: how many numbers there are in a part; of a table, at least 100 rows.

    Returns:
        What the file says of its classes, and its parts. The caller compares `classes` and `names`
        with those that were tuned on; an array with another K is not refused here.

    Raises:
        LevelheadError: these are no scores; of what is damaged further on, while the parts are
            read.
    """
    path, key = arrays.split_key(source)
    if key is None and path.suffix.lower() in TABLE_SUFFIXES:
        check_regular_file(path, "scores")
        return _of_table(path, classes, names, max(_LEAST_ROWS, size // classes))
    # A large array is mapped, and its rows are read as parts are asked for.
    values = arrays.read(source)
    with in_file(source):
        if values.ndim != 2 or values.dtype.kind not in "fiu" or not values.size:
            came = f"{described(values)} of shape {list(values.shape)}"
            raise LevelheadError(f"expected scores [N, K] as numbers, got {came}")
    names_inside = names_next_to(source, values.shape[1])
    parts = (Part(first, rows, {}) for first, rows in read_rows(values, size))
    return ScoreParts(str(source), values.shape[1], _as_tuple(names_inside), _named(source, parts))


def _as_tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    return tuple(names)


def _of_table(path: Path, classes: int, names: Sequence[str] | None, rows: int) -> ScoreParts:
    """Open the scores of a table, so many rows at a time.

    The first part is read here, to see what the columns are, and is then put before the others
    again. A .parquet file may have all scores of a sample as a list in one column.
    """
    tables = table_parts(path, rows)
    with in_file(path):
        first = next(tables)
        columns, called = _score_columns(first, classes, names)
        width = len(columns)
        if width == 1:
            width = int(np.prod(first.columns[columns[0]].shape[1:]))
    parts = _table_parts(chain([first], tables), columns)
    return ScoreParts(str(path), width, _as_tuple(called), _named(path, parts))


def _score_columns(
    table: Table, classes: int, names: Sequence[str] | None
) -> tuple[list[int], list[str] | None]:
    """Return the places of the columns of scores, and the classes they are called after.

    Both are in one order: that of the file, unless the classes are named with numbers. Those have
    their own order everywhere ("10" after "2"), whatever order a file has.

    Args:
        table: the first rows.
        classes: K.
        names: of the classes that were tuned on, where they are known.
    """
    titles = table.titles or []
    if names and titles:
        class_names = list(names)
        places = columns_called(titles, class_names)
        if places is not None:
            # Classes named with numbers keep the order of these numbers, whatever the file has.
            if number_order(class_names) is None and column_numbers(class_names) is not None:
                return places, class_names
            pairs = sorted(zip(places, class_names, strict=True))  # as they stand in the file
            return [place for place, _ in pairs], [name for _, name in pairs]
    # Not called like the classes: then as many columns as there are classes must be scores.
    layout = find_columns(table, classes=classes)
    if len(layout.logits) == 1 and table.columns[layout.logits[0]].ndim == 2:  # lists of scores
        return layout.logits, None
    if len(layout.logits) != classes and titles:
        shown = listed([titles[i] for i in layout.logits])
        raise LevelheadError(
            f"expected {classes} columns of scores, got {len(layout.logits)} ({shown})"
        )
    if names is not None and len(layout.logits) == len(names):
        check_places(layout.names, names)
    return layout.logits, layout.names


def _table_parts(tables: Iterator[Table], columns: list[int]) -> Iterator[Part]:
    """Return the parts of a table.

    Args:
        tables: its rows, so many at a time.
        columns: those of the scores, or the one of lists of them.
    """
    done = 0
    for table in tables:
        part = Part(done, table.numbers(columns), _others(table, columns))
        yield part
        done += len(part.scores)


def _others(table: Table, columns: list[int]) -> dict[str, np.ndarray]:
    """Return the columns that are not scores; of a text file, as they are written there.

    So `007` stays `007` in the file that is written, and is no 7.0.

    Raises:
        LevelheadError: two of them have one title, by which only one could be written.
    """
    titles = table.titles or []
    copied = [i for i in range(len(titles)) if i not in columns]
    check_titled_once(titles, copied)
    others = {}
    for i in copied:
        title = titles[i]
        if table.written is not None:
            others[title] = np.array(table.written[i], object)
        elif table.columns[i].ndim == 2:  # a list in each cell
            others[title] = np.fromiter(table.columns[i].tolist(), object)
        else:
            others[title] = table.columns[i]
    return others


def _named(source: str | Path, parts: Iterator[Part]) -> Iterator[Part]:
    """Put the name of the file before what is said of its parts.

    A generator of its own, since parts are read long after `read_parts` has returned.
    """
    with in_file(source):
        yield from parts
