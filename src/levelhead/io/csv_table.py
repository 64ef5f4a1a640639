"""CSV as other programs write it: which separator it has, whether the first row is titles, the first column an index.

A first row is titles if none of it is a number; if it is 0, 1, ..., K - 1, which pandas writes over columns without
names; or if its first cell is empty, which pandas writes over an index. An ambiguous first row is refused, not guessed.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

from ..core.errors import LevelheadError
from .text import is_number

_WHOLE = re.compile(r"[+-]?\d+")


LABEL_TITLES = ("label", "labels", "y", "target", "targets", "y_true", "true_label", "ground_truth", "gt")


def parse(
    content: str, *, titles: Sequence[str | None] = (), separator: str | None = None
) -> tuple[list[str] | None, list[list[str]]]:
    """Return the titles of a table, if it has any, and its rows, all of one length, without the index.

    A single column of names may be titled as in `titles`; any other first cell is a name. The first row shows the
    separator if it is not given.

    >>> parse("0,1\\n0.5,1\\n")
    (['0', '1'], [['0.5', '1']])
    """
    first, *rest = split_cells(content, separator)
    if len(first) == 1:
        titled = first[0] in titles or _is_title(first[0], rest)
    else:
        titled = any(title in first for title in titles if title) or _are_titles(first, rest)
    rows = rest if titled else [first, *rest]
    if not rows:
        raise LevelheadError("the file holds titles but no data")
    for at, row in enumerate(rows):
        if len(row) != len(first):
            expected = f"there are {len(first)} titles" if titled else f"the first has {len(first)}"
            raise LevelheadError(f"data row {at} has {len(row)} values, but {expected}")
    if not _has_index(first):
        return first if titled else None, rows
    if any(row[0] != str(i) for i, row in enumerate(rows)):
        raise LevelheadError(
            "the first column has no title and is not 0, 1, 2, ...; if it is an index, save the table "
            "without it (index=False in pandas)"
        )
    return first[1:], [row[1:] for row in rows]


def split_cells(content: str, separator: str | None = None) -> list[list[str]]:
    """Return the cells of each row, separated by commas or, if the first row has those, semicolons, tabs or blanks.

    An empty line is left out of a table; in a single column it is an empty cell.
    """
    content = content.strip("\r\n")
    try:
        first = content.split("\n", 1)[0].split("\r", 1)[0]
        rows = list(_reader(StringIO(content, newline=""), first, separator))
    except csv.Error as error:
        raise LevelheadError(str(error)) from None
    alone = len(rows[0]) == 1
    return [[cell.strip() for cell in row] or [""] for row in rows if row or alone]


def is_numeric(cell: str) -> bool:
    """Return whether a cell is a number, with a decimal point or comma."""
    return is_number(cell) or is_decimal_comma(cell)


def is_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number with a decimal comma."""
    return re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?", cell) is not None


def _reader(lines: Iterable[str], first: str, separator: str | None) -> Iterator[list[str]]:
    """Return a reader of the rows of a table, whose separator its first line shows if it is not given."""
    if separator is not None:
        return csv.reader(lines, delimiter=separator, skipinitialspace=True)
    blanks = " " in first.strip() and not first.startswith(" ") and all(map(is_number, first.split()))
    separators = [
        mark
        for mark in ";\t"
        if mark in first and all("," not in word or is_decimal_comma(word.strip(' "')) for word in first.split(mark))
    ]
    return csv.reader(lines, delimiter=[*separators, " " if blanks else ","][0], skipinitialspace=True)


def _has_index(first: list[str]) -> bool:
    return len(first) > 1 and not first[0]


def _is_title(first: str, rest: list[list[str]]) -> bool:
    """Return whether the first cell of a single column is its title: a name over numbers, or 0 over fractions."""
    others = [row[0] for row in rest if row[0]]
    if not others or not all(map(is_number, others)):
        return False
    return not is_numeric(first) or (first == "0" and not any(map(_WHOLE.fullmatch, others)))


def _are_titles(first: list[str], rest: list[list[str]]) -> bool:
    if _has_index(first) or not any(map(is_numeric, first)):
        return True
    numbers = [cell for cell in first if is_numeric(cell)]
    counted = numbers == [str(i) for i in range(len(numbers))]
    if counted and any(cell.lower() in LABEL_TITLES for cell in first):  # labels next to columns that pandas numbered
        return True
    if name := next((cell for cell in first if cell and not is_numeric(cell)), None):
        raise LevelheadError(f"the first row holds {name!r} next to numbers; expected only names or only numbers")
    if not all(map(_WHOLE.fullmatch, first)) or len(set(first)) < len(first):
        return False
    whole = (bool(_WHOLE.fullmatch(cell)) for row in rest for cell in row)
    if first == [str(i) for i in range(len(first))]:
        if not all(whole):
            return True
    elif not rest or any(whole):
        return False
    shown = ",".join(first if len(first) <= 4 else [*first[:3], "..."])
    raise LevelheadError(
        f"the first row, {shown}, may be titles or a sample; give the columns names, or write the "
        "numbers of a sample with a point (0.0)"
    )
