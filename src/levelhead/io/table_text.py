"""Tables as text, .csv or .tsv: their cells, titles and index.

The first row is titles or a sample, its cells are separated by one of several marks, and the first
column may be an index that pandas wrote. All this is told from the cells alone; where it cannot be
told, the file is refused, since a guess would shift every sample by one row.

Text goes this road: `split_cells` makes rows of cells (`find_separator` tells by which mark),
`_parse_rows` takes off titles (`_is_title` for one column, `_are_titles` for several) and an index,
and `_column` makes numbers of what is left. `text_table_parts` does the same with the first rows,
and trusts what it saw there for the others.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import islice
from pathlib import Path

import numpy as np

from ..support import text
from ..support.errors import LevelheadError, reported_as
from ..support.regular_file import unchanged_while_read
from ..support.text import is_decimal_comma, is_number, is_numeric
from .table import LABEL_TITLES, Table

MOST_CELLS = 1 << 17  # of a row: of more, each would be a column of its own for seconds
_LONGEST_LINE = 1 << 26  # letters that are looked at for the cells of a first row
_WHOLE = re.compile(r"[+-]?\d+")


def read_text_table(path: Path, titles: Sequence[str | None]) -> Table:
    """Read a whole table; a single column of text may be titled as in `titles`.

    Args:
        path: .tsv has tabs; of .csv, the first row tells.
        titles: words that are titles wherever they stand in the first row; None is passed over.

    Raises:
        LevelheadError: not UTF-8, empty, rows of different lengths, or a first row that may be
            titles or a sample.
    """
    separator = None
    if path.suffix.lower() == ".tsv":
        separator = "\t"
    titles_found, rows = _parse_rows(split_cells(text.read(path), separator), titles)
    return Table(titles_found, [_column(cells) for cells in zip(*rows, strict=True)])


def text_table_parts(path: Path, rows: int) -> Iterator[Table]:
    """Read a table so many rows at a time.

    Titles and an index are looked for in the first of them. Each `Table` also has its cells as they
    are written, for whoever copies columns into another file.

    Args:
        path: as for `read_text_table`.
        rows: of a part; the last may have fewer.
    """
    with (
        reported_as("not valid UTF-8; save the file as UTF-8", UnicodeDecodeError),
        reported_as("{}", csv.Error),
        unchanged_while_read(path, "a table"),
        path.open(encoding="utf-8-sig", newline="") as file,
    ):
        first_line = file.readline(_LONGEST_LINE)
        if not first_line.strip():
            raise LevelheadError("the file is empty, or its first line is")
        file.seek(0)
        separator = "\t"
        if path.suffix.lower() != ".tsv":
            separator = find_separator(first_line)
        _check_cells(first_line, separator)
        # Rows are parsed as they are asked for, so that the file never is in memory as a whole.
        reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
        cells_of_rows = ([cell.strip() for cell in row] for row in reader if row)
        head = list(islice(cells_of_rows, rows))
        width = len(head[0])
        titles, part = _parse_rows(head, ())
        index = width - len(part[0])  # 1 if the first column is one
        done = 0
        # Each part as columns; then the next rows, which must be as wide as the first.
        while part:
            written = list(zip(*part, strict=True))
            yield Table(titles, [_column(cells) for cells in written], written)
            done += len(part)
            part = []
            for at, row in enumerate(islice(cells_of_rows, rows), start=done):
                if len(row) != width:
                    got = f"data row {at} has {len(row)} values"
                    raise LevelheadError(f"{got}, but those before it have {width}")
                part.append(row[index:])


def _column(cells: Sequence[str]) -> np.ndarray:
    """Return a column of a text file: numbers if all are, else texts.

    As objects, texts take their own size; `Table.at` makes an array of them where one is asked for.
    """
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return np.array(cells, dtype=object)


def _parse_rows(
    cells: list[list[str]], titles: Sequence[str | None]
) -> tuple[list[str] | None, list[list[str]]]:
    """Return the titles of a table, if it has any, and its rows, without the index.

    All rows must be of one length.

    Args:
        cells: of each row.
        titles: by which a first row is known to be titles. A single column of names may be titled
            so; any other first cell is a name.

    Raises:
        LevelheadError: no rows under the titles, a row of another length, or a first column without
            a title that is no index.

    >>> _parse_rows([["", "cat", "dog"], ["0", "1.5", "2"], ["1", "0", "3.5"]], ())
    (['cat', 'dog'], [['1.5', '2'], ['0', '3.5']])
    """
    # Titles or a sample?
    first, *rest = cells
    if len(first) == 1:
        titled = first[0] in titles or _is_title(first[0], rest)
    else:
        titled = any(title in first for title in titles if title) or _are_titles(first, rest)
    rows = rest if titled else cells
    if not rows:
        raise LevelheadError("the file holds titles but no data")
    for at, row in enumerate(rows):
        if len(row) != len(first):
            if titled:
                expected = f"there are {len(first)} titles"
            else:
                expected = f"the first has {len(first)}"
            raise LevelheadError(f"data row {at} has {len(row)} values, but {expected}")
    # An index has no title.
    if len(first) == 1 or first[0]:
        if titled:
            return first, rows
        return None, rows
    # pandas numbers its rows; anything else without a title may be a column of scores.
    if any(row[0] != str(i) for i, row in enumerate(rows)):
        advice = "if it is an index, save the table without it (index=False in pandas)"
        raise LevelheadError(f"the first column has no title and is not 0, 1, 2, ...; {advice}")
    return first[1:], [row[1:] for row in rows]


def split_cells(content: str, separator: str | None = None) -> list[list[str]]:
    """Return the cells of each row; without a separator, by the one that the first row has.

    Quotes are read as the csv module reads them, and blanks around cells are taken off. An empty
    line is a cell of a single column, since a label that is missing must not move up those that
    follow.

    >>> split_cells("cat;dog\\n1,5;2,5")
    [['cat', 'dog'], ['1,5', '2,5']]
    """
    content = content.strip("\r\n")
    first = content.split("\n", 1)[0].split("\r", 1)[0]
    if separator is None:
        separator = find_separator(first)
    _check_cells(first, separator)
    lines = StringIO(content, newline="")
    with reported_as("{}", csv.Error):
        rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    # An empty line is an empty cell of a single column, and nothing in a table.
    if rows and len(rows[0]) != 1:
        rows = [row for row in rows if row]
    return [[cell.strip() for cell in row] or [""] for row in rows]


def _check_cells(first: str, separator: str) -> None:
    """Raise LevelheadError if a first row has more cells than any table of predictions.

    It counts marks, also those in quotes: a limit need not be exact.
    """
    cells = first.count(separator) + 1
    if cells > MOST_CELLS:
        most = f"expected at most {MOST_CELLS}"
        raise LevelheadError(f"a row of {cells} cells; {most}; save it as .npy")


def find_separator(first: str) -> str:
    """Return what separates the cells of a first row.

    That is a comma or, if it has those, semicolons, tabs or blanks.

    Between semicolons or tabs, a comma may only be that of a decimal, as spreadsheets of many
    countries write it. Blanks count only between numbers: a title may have them.

    >>> find_separator("1,5;2,5"), find_separator("0.1 0.9"), find_separator("cat,dog")
    (';', ' ', ',')
    """
    first = first.rstrip("\r\n")
    separator = ","
    blanks = " " in first.strip() and not first.startswith(" ")
    if blanks and all(map(is_number, first.split())):
        separator = " "
    for mark in "\t;":
        words = first.split(mark)
        decimals = all("," not in word or is_decimal_comma(word.strip(' "')) for word in words)
        if len(words) > 1 and decimals:
            separator = mark
    return separator


def _is_title(first: str, rest: list[list[str]]) -> bool:
    """Return whether the first cell of a single column is its title.

    It is a name over numbers, or 0 over fractions: pandas titles a column without a name 0.

    >>> _is_title("label", [["1"], ["0"]]), _is_title("cat", [["dog"], ["cat"]])
    (True, False)
    """
    others = [row[0] for row in rest if row[0]]
    if not others or not all(map(is_number, others)):
        return False
    return not is_numeric(first) or (first == "0" and not any(map(_WHOLE.fullmatch, others)))


def _are_titles(first: list[str], rest: list[list[str]]) -> bool:
    """Return whether a first row is titles; an ambiguous one is refused, not guessed.

    Titles are no numbers; or 0, 1, ..., K - 1, which pandas writes over columns without names; or
    the first cell is empty, as pandas writes it over an index.

    Args:
        first: the first row.
        rest: the others, which tell where the first are whole numbers: scores of a sample are
            fractions in some row.

    >>> _are_titles(["0", "1"], [["0.5", "2.5"]]), _are_titles(["0.1", "1.5"], [["0.5", "2.5"]])
    (True, False)
    """
    if not first[0] or not any(map(is_numeric, first)):
        return True
    # Some cells are numbers. Beside a title of labels, they may be the names of classes.
    numbers = [cell for cell in first if is_numeric(cell)]
    distinct = all(map(_WHOLE.fullmatch, numbers)) and len(set(numbers)) == len(numbers)
    if distinct and any(cell.lower() in LABEL_TITLES for cell in first):
        return True  # labels next to columns that are titled with numbers
    # Else all must be numbers: a name among the numbers of a sample is a cell that is damaged.
    names = [cell for cell in first if cell and not is_numeric(cell)]
    if names:
        raise LevelheadError(
            f"the first row holds {names[0]!r} next to numbers; expected only names or only numbers"
        )
    if not all(map(_WHOLE.fullmatch, first)) or len(set(first)) < len(first):
        return False  # scores: with a point, or one of them twice

    # Whole numbers that differ: the other rows tell, unless they hold whole numbers as well.
    whole = (bool(_WHOLE.fullmatch(cell)) for row in rest for cell in row)
    if first == [str(i) for i in range(len(first))]:
        if not all(whole):
            return True
    elif not rest or any(whole):
        return False
    shown = first
    if len(first) > 4:
        shown = [*first[:3], "..."]
    advice = "give the columns names, or write the numbers of a sample with a point (0.0)"
    raise LevelheadError(f"the first row, {','.join(shown)}, may be titles or a sample; {advice}")
