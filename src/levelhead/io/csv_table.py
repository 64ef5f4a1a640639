"""A table as text, from whatever program wrote it: what stands between its cells, which row is titles, what an index.

A first row is titles if none of it is a number; if it is 0, 1, ..., K - 1, which pandas writes over columns without
names; if its first cell is empty, which pandas writes over an index. What may be either is refused, not guessed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain

from ..core.errors import LevelheadError
from .text import is_number

_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_MAY_BE = "may be titles or a sample: give the columns names, or write the numbers of a sample with a point (0.0)"


@dataclass(frozen=True)
class Sheet:
    """The titles of a table, if it has any, and its rows, each as long as the others. An index is left out."""

    titles: list[str] | None
    rows: list[list[str]]


def parse(content: str, *, title: Sequence[str | None] = ()) -> Sheet:
    """The table that a text is.

    Args:
        content: the text, not empty.
        title: what a single column of names may be called; without its title it begins with a name.

    >>> parse("0,1\\n0.5,1\\n")
    Sheet(titles=['0', '1'], rows=[['0.5', '1']])
    """
    first, *rest = cells(content)
    titled = (first[0] in title or _is_over(first[0], rest)) if len(first) == 1 else _are_titles(first, rest)
    rows = rest if titled else [first, *rest]
    if not rows:
        raise LevelheadError("it holds titles and no data")
    for at, row in enumerate(rows):
        if len(row) != len(first):
            raise LevelheadError(f"data row {at} has {len(row)} values, "
                             + (f"there are {len(first)} titles" if titled else f"the first has {len(first)}"))
    if not _has_index(first):
        return Sheet(first if titled else None, rows)
    if any(row[0] != str(i) for i, row in enumerate(rows)):
        raise LevelheadError("its first column has no title and is not 0, 1, 2, ...: if it is an index, save without it: "
                         "index=False in pandas")
    return Sheet(first[1:], [row[1:] for row in rows])


def names(lines: Iterable[str]) -> list[str] | None:
    """The titles of a table if they are names, from its lines, of which no more than needed are read; else None.

    >>> names([",cat,dog"]), names(["0,1"])
    (['cat', 'dog'], None)
    """
    lines = (line for line in lines if line.strip())
    line = next(lines, "")
    first = next(_reader(chain([line], lines), line), [])
    first = [cell.strip() for cell in (first[1:] if _has_index(first) else first)]
    return None if not first or any(map(_is_figure, first)) else first


def cells(content: str) -> list[list[str]]:
    """The rows of a text, with commas between cells or, if the first row has them instead, semicolons, tabs or blanks.

    A line without a cell is left out of a table; in a single column it is a cell that is empty.

    >>> cells("cat;3\\n\\ndog;4")
    [['cat', '3'], ['dog', '4']]
    """
    content = content.strip("\r\n")
    try:
        rows = list(_reader(StringIO(content, newline=""), content.splitlines()[0]))
    except csv.Error as error:
        raise LevelheadError(str(error)) from None
    alone = len(rows[0]) == 1
    return [[cell.strip() for cell in row] or [""] for row in rows if row or alone]


def is_decimal_comma(cell: str) -> bool:
    """Whether it is a number with a comma for a point.

    >>> is_decimal_comma("-0,5"), is_decimal_comma("0.5")
    (True, False)
    """
    return _DECIMAL_COMMA.fullmatch(cell) is not None


def _is_figure(cell: str) -> bool:
    return is_number(cell) or is_decimal_comma(cell)


def _reader(lines: Iterable[str], first: str) -> Iterator[list[str]]:
    return csv.reader(lines, delimiter=_separator(first), skipinitialspace=True)


def _separator(line: str) -> str:
    """What stands between the cells of a table that begins with this line."""
    for separator in ";\t":
        words = line.split(separator)
        if len(words) > 1 and all("," not in word or is_decimal_comma(word.strip(' "')) for word in words):
            return separator
    return " " if " " in line.strip() and not line.startswith(" ") and all(map(is_number, line.split())) else ","


def _has_index(first: list[str]) -> bool:
    return len(first) > 1 and not first[0]


def _is_over(first: str, rest: list[list[str]]) -> bool:
    """Whether the first cell of a column is the title of the others: a name over numbers, or 0 over fractions."""
    others = [row[0] for row in rest if row[0]]
    if not others or not all(map(is_number, others)):
        return False
    return not _is_figure(first) or (first == "0" and not any(map(_WHOLE.fullmatch, others)))


def _are_titles(first: list[str], rest: list[list[str]]) -> bool:
    if _has_index(first) or not any(map(_is_figure, first)):
        return True
    name = next((cell for cell in first if cell and not _is_figure(cell)), None)
    if name is not None:
        raise LevelheadError(f"its first row holds {name!r} beside numbers; expected titles, all of them names, or numbers")
    if not all(map(_WHOLE.fullmatch, first)) or len(set(first)) < len(first):
        return False
    whole = (bool(_WHOLE.fullmatch(cell)) for row in rest for cell in row)
    if first == [str(i) for i in range(len(first))]:
        if not all(whole):
            return True
    elif not rest or any(whole):
        return False
    shown = ",".join(first if len(first) <= 4 else [*first[:3], "..."])
    raise LevelheadError(f"its first row, {shown}, {_MAY_BE}")
