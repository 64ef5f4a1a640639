"""Tables of predictions, .csv, .tsv or .parquet: which columns are logits, which one labels, and which are neither."""

import csv
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.class_names import listed
from ..support import text
from ..support.errors import LevelheadError, reported_as
from ..support.extras import install_command
from ..support.regular_file import bytes_at, unchanged_while_read
from ..support.text import is_decimal_comma, is_number, is_numeric
from .numpy_file import check_expansion, text_array

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
LABEL_TITLES = (
    "label",
    "labels",
    "y",
    "target",
    "targets",
    "y_true",
    "true_label",
    "ground_truth",
    "gt",
)
ID_TITLES = re.compile(
    r"(.*[_ .-])?(id|ids|index|idx|uuid|key|pred|preds|prediction|predicted|fold|split|rank)|y_pred|unnamed: ?\d+|"
    r"__index_level_\d+__|(image|img|file|sample|row)([_ ]?(name|path|id|no|number))?|filename|path"
)
_LOGITS = re.compile(
    r"(logits?|scores?|outputs?|probs?|proba|probability|p)[ _.:-]?[\[(]?(.*?)[\])]?", re.IGNORECASE
)
_WHOLE = re.compile(r"[+-]?\d+")
# Kinds of values in the footer of a .parquet file.
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (
    (1, 2),
    3,
    (4, 5, 6),
    7,
    8,
    (9, 10),
    12,
)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of numbers or text, all of one length."""

    titles: list[str] | None  # of the columns, where the file has any
    columns: Sequence[np.ndarray]  # [N] each: floats, other numbers, or objects that are texts
    written: Sequence[Sequence[str]] | None = None  # the same, as they are written in a text file

    def column(self, title: str) -> np.ndarray:
        """Return the column with a title."""
        if title not in (self.titles or ()):
            raise LevelheadError(
                f"no column {title!r}; the file has {listed(self.titles or []) or 'no titles'}"
            )
        return self.at((self.titles or []).index(title))

    def at(self, i: int) -> np.ndarray:
        """Return the column at a place; one of texts as an array of texts, which those that nobody reads never are."""
        values = self.columns[i]
        return text_array(list(map(str, values.tolist()))) if values.dtype.kind == "O" else values

    def numbers(self, at: Sequence[int]) -> np.ndarray:
        """Return the columns at these places, [N, K], after checking that they are numbers."""
        if not len(at):
            raise LevelheadError(
                f"no column holds logits; the file has {listed(self.titles or []) or 'no titles'}"
            )
        for i in at:
            if self.columns[i].dtype.kind not in "iufb":
                raise _not_numbers(
                    self.columns[i], f" of {self.titles[i]!r}" if self.titles else ""
                )
        return np.column_stack([self.columns[i] for i in at])


class Layout(NamedTuple):
    """What the columns of a table are."""

    logits: list[int]  # places of the K columns of logits, in class order
    names: list[str] | None  # of the K classes, where the titles say them
    label: str | None = None  # the title of the column of labels, if there is one
    ignored: tuple[str, ...] = ()  # titles of columns that are neither


def read_table(path: Path, *, titles: Sequence[str | None] = ()) -> Table:
    """Read a table; a single column of text may be titled as in `titles`."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        with _opened_parquet(path) as file:
            return _of_arrow(file.read())
    separator = "\t" if suffix == ".tsv" else None
    found, rows = _parse_rows(split_cells(text.read(path), separator), titles)
    return Table(found, [_column(cells) for cells in zip(*rows, strict=True)])


def table_parts(path: Path, rows: int) -> Iterator[Table]:
    """Read a table so many rows at a time; titles and an index are looked for in the first of them."""
    if path.suffix.lower() == ".parquet":
        import pyarrow as arrow

        with _opened_parquet(path) as file:
            for batch in file.iter_batches(batch_size=rows):
                yield _of_arrow(arrow.Table.from_batches([batch]))
        return
    yield from _text_parts(path, rows)


def _text_parts(path: Path, rows: int) -> Iterator[Table]:
    with (
        reported_as("not valid UTF-8; save the file as UTF-8", UnicodeDecodeError),
        reported_as("{}", csv.Error),
        unchanged_while_read(path, "a table"),
        path.open(encoding="utf-8-sig", newline="") as file,
    ):
        first_line = file.readline()
        if not first_line.strip():
            raise LevelheadError("the file is empty, or its first line is")
        file.seek(0)
        separator = "\t" if path.suffix.lower() == ".tsv" else find_separator(first_line)
        reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
        cells_of_rows = ([cell.strip() for cell in row] for row in reader if row)
        head = list(islice(cells_of_rows, rows))
        width = len(head[0])
        titles, part = _parse_rows(head, ())
        index = width - len(part[0])  # 1 if the first column is one
        done = 0
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
    """Return a column of a text file: numbers if all are, else texts."""
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return np.array(cells, dtype=object)


@contextmanager
def _opened_parquet(path: Path) -> Iterator[Any]:
    """Open a .parquet file; what is wrong with it is said in one line."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise ImportError(
            f"{path}: reading .parquet needs pyarrow; {install_command('parquet')}"
        ) from None
    broken = (arrow.ArrowException, ValueError, TypeError, LookupError, OverflowError, OSError)
    try:
        schema = parquet.read_schema(path)
        texts = [one.name for one in schema if one.type in (arrow.string(), arrow.large_string())]
        # A text that is there often is kept once.
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            claimed = max(claimed_values(path), file.metadata.num_rows)
            check_expansion(8 * claimed, path.stat().st_size)
            if file.metadata.num_rows == 0 or not len(schema):
                raise LevelheadError(f"the file has no {'rows' if len(schema) else 'columns'}")
            yield file
    except (LevelheadError, MemoryError):
        raise
    except broken as error:
        if getattr(error, "errno", None) is not None:  # the system's
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise LevelheadError(f"not a sound .parquet file ({reason})") from None


def _of_arrow(table: Any) -> Table:
    """Return a table of pyarrow as ours."""
    import pyarrow as arrow
    from pyarrow import compute

    columns = [
        _from_arrow(name, table.column(i), arrow, compute)
        for i, name in enumerate(table.column_names)
    ]
    return Table(list(table.column_names), columns)


def find_columns(
    table: Table, names: Sequence[str] | None = None, classes: int | None = None
) -> Layout:
    """Find the logits, the labels and the rest among the columns of a table; one of K columns holds only logits."""
    # Logits are the columns called like the classes, if names are given; else those called `logit_*`; else all columns
    # of numbers that are neither labels nor ids. Labels are the column called as in `LABEL_TITLES`, if it can be.
    # Columns that are numbered are put in the order of their numbers.
    titles = table.titles
    given = None if not names else list(names)
    if titles is None:
        return Layout(list(range(len(table.columns))), given)
    places = columns_called(titles, names) if names else None
    called = given
    only_logits = len(titles) == (len(names) if names else classes)
    if places is None:
        prefixed = _prefixed(titles)
        if prefixed is not None and (not only_logits or len(prefixed[0]) == len(titles)):
            places, called = prefixed
    label = None
    if places is not None:
        logits = set(places)
        label = _find_label(titles, lambda i: i not in logits)
    elif only_logits:
        places = list(range(len(titles)))
        called = called or _as_names(titles)
    else:
        label = _find_label(titles, lambda i: _may_be_labels(table, i))
        columns = [i for i in range(len(titles)) if i != label]
        places = [i for i in columns if not _is_id(titles[i], table.columns[i])]
        called = _as_names([titles[i] for i in places])
    if called is None or called == given:
        places = _by_number(titles, places)
    if names and len(places) == len(names):
        called = given
    ignored = tuple(title for i, title in enumerate(titles) if i not in places and i != label)
    return Layout(places, called, None if label is None else titles[label], ignored)


def _as_names(titles: Sequence[str]) -> list[str] | None:
    """Return titles as the names of classes; None if any is a number."""
    return None if any(map(is_numeric, titles)) else list(titles)


def _by_number(titles: Sequence[str], places: list[int]) -> list[int]:
    """Return the places of columns in the order of the numbers that they are titled with, if all are."""
    numbers = {place: int(titles[place]) for place in places if titles[place].isdecimal()}
    if len(numbers) < len(places) or len(set(numbers.values())) < len(places):
        return places
    return sorted(places, key=numbers.__getitem__)


def columns_called(titles: Sequence[str], names: Sequence[str]) -> list[int] | None:
    """Return the places of the columns called like the classes, alone or after a word such as logit_, or None."""
    found = {title: i for i, title in enumerate(titles) if title in names}
    for i, title in enumerate(titles):
        if (match := _LOGITS.fullmatch(title)) and match[2] in names:
            found.setdefault(match[2], i)
    return [found[name] for name in names] if len(found) == len(names) else None


def _parse_rows(
    cells: list[list[str]], titles: Sequence[str | None]
) -> tuple[list[str] | None, list[list[str]]]:
    """Return the titles of a table, if it has any, and its rows, all of one length, without the index."""
    # A single column of names may be titled as in `titles`; any other first cell is a name.
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
            expected = f"there are {len(first)} titles" if titled else f"the first has {len(first)}"
            raise LevelheadError(f"data row {at} has {len(row)} values, but {expected}")
    if len(first) == 1 or first[0]:  # no index
        return first if titled else None, rows
    if any(row[0] != str(i) for i, row in enumerate(rows)):
        advice = "if it is an index, save the table without it (index=False in pandas)"
        raise LevelheadError(f"the first column has no title and is not 0, 1, 2, ...; {advice}")
    return first[1:], [row[1:] for row in rows]


def split_cells(content: str, separator: str | None = None) -> list[list[str]]:
    """Return the cells of each row; without a separator, by the one that the first row has."""
    content = content.strip("\r\n")
    if separator is None:
        separator = find_separator(content.split("\n", 1)[0].split("\r", 1)[0])
    with reported_as("{}", csv.Error):
        rows = list(
            csv.reader(StringIO(content, newline=""), delimiter=separator, skipinitialspace=True)
        )
    return [[cell.strip() for cell in row] or [""] for row in rows if row or len(rows[0]) == 1]


def find_separator(first: str) -> str:
    """Return what separates the cells of a first row: a comma or, if it has those, semicolons, tabs or blanks."""
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


def _prefixed(titles: list[str]) -> tuple[list[int], list[str] | None] | None:
    """Return the columns called logit_* (or scores_*, prob_*), with what they are called after that, or None."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for i, title in enumerate(titles):
        match = _LOGITS.fullmatch(title)
        if (
            match
            and match[2]
            and (len(match[1]) > 1 or match[2].isdigit())
            and title.lower() not in LABEL_TITLES
        ):
            groups.setdefault(match[1].lower().rstrip("s"), []).append((i, match[2]))
    groups = {word: found for word, found in groups.items() if len(found) > 1}
    if not groups:
        return None
    found = groups["logit"] if "logit" in groups else max(groups.values(), key=len)
    if not all(name.isdecimal() for _, name in found):
        return [i for i, _ in found], [name for _, name in found]
    found = sorted(found, key=lambda each: int(each[1]))
    numbers = [int(name) for _, name in found]
    if numbers not in ([*range(len(found))], [*range(1, len(found) + 1)]):
        shown = listed([*map(str, numbers)])
        raise LevelheadError(
            f"expected a column of logits for each class, got those numbered {shown}"
        )
    return [i for i, _ in found], None


def _find_label(titles: list[str], allowed: Callable[[int], bool]) -> int | None:
    lower = [title.lower() for title in titles]
    return next((i for t in LABEL_TITLES if t in lower and allowed(i := lower.index(t))), None)


def _may_be_labels(table: Table, i: int) -> bool:
    """Return whether a column holds text, or class indices, which logits are not."""
    values = table.columns[i]
    if values.dtype.kind not in "iufb":
        return True
    return bool(
        (values >= 0).all()
        and (values < len(table.columns) - 1).all()
        and (values == np.floor(values)).all()
    )


def _is_id(title: str, values: np.ndarray) -> bool:
    """Return whether a column only identifies samples: all text, or whole numbers under a title such as `id`."""
    if values.dtype.kind not in "iufb":
        return not any(map(is_numeric, map(str, values.tolist())))
    whole = values.dtype.kind in "iub" or bool((values == np.floor(values)).all())
    return whole and ID_TITLES.fullmatch(title.lower()) is not None


def _not_numbers(cells: np.ndarray, where: str) -> LevelheadError:
    """Return the error for the first cell of a column that is not a number."""
    for at, cell in enumerate(map(str, cells.tolist())):
        if is_decimal_comma(cell):
            return LevelheadError(f"data row {at} holds {cell!r}; save decimals with a point")
        if not is_number(cell):
            held = f"holds {cell!r}" if cell else "has an empty cell"
            return LevelheadError(f"data row {at}{where} {held}; expected a number")
    return LevelheadError(
        f"expected numbers, got {'text' if cells.dtype.kind == 'O' else cells.dtype}{where}"
    )


def _is_title(first: str, rest: list[list[str]]) -> bool:
    """Return whether the first cell of a single column is its title: a name over numbers, or 0 over fractions."""
    others = [row[0] for row in rest if row[0]]
    if not others or not all(map(is_number, others)):
        return False
    return not is_numeric(first) or (first == "0" and not any(map(_WHOLE.fullmatch, others)))


def _are_titles(first: list[str], rest: list[list[str]]) -> bool:
    """Return whether a first row is titles; an ambiguous one is refused, not guessed."""
    # Titles are no numbers; or 0, 1, ..., K - 1, which pandas writes over columns without names; or the first cell is
    # empty, as pandas writes it over an index.
    if not first[0] or not any(map(is_numeric, first)):
        return True
    numbers = [cell for cell in first if is_numeric(cell)]
    counted = numbers == [str(i) for i in range(len(numbers))]
    if counted and any(
        cell.lower() in LABEL_TITLES for cell in first
    ):  # labels next to columns that pandas numbered
        return True
    if name := next((cell for cell in first if cell and not is_numeric(cell)), None):
        raise LevelheadError(
            f"the first row holds {name!r} next to numbers; expected only names or only numbers"
        )
    if not all(map(_WHOLE.fullmatch, first)) or len(set(first)) < len(first):
        return False
    whole = (bool(_WHOLE.fullmatch(cell)) for row in rest for cell in row)
    if first == [str(i) for i in range(len(first))]:
        if not all(whole):
            return True
    elif not rest or any(whole):
        return False
    shown = ",".join(first if len(first) <= 4 else [*first[:3], "..."])
    advice = "give the columns names, or write the numbers of a sample with a point (0.0)"
    raise LevelheadError(f"the first row, {shown}, may be titles or a sample; {advice}")


def _from_arrow(name: str, column: Any, arrow: Any, compute: Any) -> np.ndarray:
    """Return a column as numbers, text, or, of lists, [N, K]."""
    if column.null_count:
        raise LevelheadError(
            f"the column {name!r} has {column.null_count} empty cells; expected a value in each row"
        )
    kind = column.type
    if arrow.types.is_dictionary(kind):  # texts, each once, and which of them is where
        parts = [
            np.array([str(text) for text in chunk.dictionary.to_pylist()], object)
            for chunk in column.chunks
        ]
        placed = [
            texts[chunk.indices.to_numpy()]
            for texts, chunk in zip(parts, column.chunks, strict=True)
        ]
        return np.concatenate(placed) if placed else np.zeros(0, object)
    if (
        arrow.types.is_list(kind)
        or arrow.types.is_large_list(kind)
        or arrow.types.is_fixed_size_list(kind)
    ):
        lengths = compute.unique(compute.list_value_length(column)).to_pylist()
        parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
        if len(lengths) != 1 or any(part.dtype.kind not in "iufb" for part in parts):
            raise LevelheadError(
                f"the column {name!r} holds {kind}; expected numbers, or lists of them of one length"
            )
        return (parts[0] if len(parts) == 1 else np.concatenate(parts)).reshape(len(column), -1)
    values = column.to_numpy()
    if values.dtype.kind in "iufb":
        return values
    if values.dtype.kind == "O" and len(values) and not isinstance(values[0], str | bytes):
        return np.array([float(value) for value in values.tolist()])  # decimals
    return values.astype(object)


def claimed_values(path: Path) -> int:
    """Return how many values the columns of a .parquet file claim to hold, read from its footer without pyarrow."""
    # pyarrow's own way to ask for them ends the process on some damaged footers, where reading the columns raises an
    # error. The footer is a struct of Thrift's compact protocol: row groups (4) -> columns (1) -> metadata (3) ->
    # values (5).
    size = path.stat().st_size
    length, mark = struct.unpack("<I4s", bytes_at(path, size - 8, 8)) if size >= 8 else (0, b"")
    if mark != b"PAR1" or length > size - 12:
        raise LevelheadError("not a sound .parquet file (it has no footer)")
    footer = _Thrift(bytes_at(path, size - 8 - length, length))
    broken = "not a sound .parquet file (its footer is broken)"
    with reported_as(broken, LookupError, TypeError, RecursionError, ValueError):
        return sum(column[3][5] for group in footer.read(_STRUCT)[4] for column in group[1])


class _Thrift:
    """Values of Thrift one after another: a struct as {field: value}, a list as a list, texts as None."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def read(self, kind: int) -> Any:
        if kind in (*_BOOLEANS, _BYTE):
            return self._byte()
        if kind in _INTEGERS:
            number = self._varint()
            return number >> 1 ^ -(number & 1)
        if kind in (_DOUBLE, _BINARY):
            length = 8 if kind == _DOUBLE else self._varint()
            self.at += length
            return None
        if kind in _LISTS:
            size, inner = divmod(self._byte(), 16)
            return [self.read(inner) for _ in range(self._varint() if size == 15 else size)]
        if kind != _STRUCT:
            raise ValueError(kind)  # a map, which no footer has, or none of Thrift's
        found, field = {}, 0
        while head := self._byte():
            step, inner = divmod(head, 16)
            field = field + step if step else self.read(_INTEGERS[0])
            found[field] = None if inner in _BOOLEANS else self.read(inner)
        return found

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a number of more than 64 bits")
