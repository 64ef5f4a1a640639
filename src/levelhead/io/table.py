"""Tables of predictions, .csv, .tsv or .parquet: which columns are logits, which one labels, and which are neither."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import LevelheadError
from ..core.extras import install_command
from ..core.per_class import listed
from . import csv_table, text
from .csv_table import LABEL_TITLES
from .numpy_file import check_expansion

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
ID_TITLES = re.compile(
    r"(.*[_ .-])?(id|ids|index|idx|uuid|key|pred|preds|prediction|predicted|fold|split|rank)|y_pred|unnamed: ?\d+|"
    r"__index_level_\d+__|(image|img|file|sample|row)([_ ]?(name|path|id|no|number))?|filename|path"
)
_LOGITS = re.compile(r"(logits?|scores?|outputs?|probs?|proba|probability|p)[ _.:-]?[\[(]?(.*?)[\])]?", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of numbers or text, all of one length.

    Args:
        titles: of the columns, where the file has any.
        columns: [N] each: floats, other numbers, or text.
    """

    titles: list[str] | None
    columns: Sequence[np.ndarray]

    @property
    def class_titles(self) -> list[str] | None:
        """The titles if they are names, None if they are numbers or absent."""
        return None if not self.titles or any(map(csv_table.is_numeric, self.titles)) else self.titles

    def column(self, title: str) -> np.ndarray:
        """Return the column with a title."""
        if title not in (self.titles or ()):
            raise LevelheadError(f"no column {title!r}; the file has {listed(self.titles or []) or 'no titles'}")
        return self.columns[(self.titles or []).index(title)]

    def numbers(self, at: Sequence[int]) -> np.ndarray:
        """Return the columns at these places, [N, K], after checking that they are numbers."""
        if not len(at):
            raise LevelheadError(f"no column holds logits; the file has {listed(self.titles or []) or 'no titles'}")
        for i in at:
            if self.columns[i].dtype.kind not in "iufb":
                raise _not_numbers(self.columns[i], f" of {self.titles[i]!r}" if self.titles else "")
        return np.column_stack([self.columns[i] for i in at])


@dataclass(frozen=True)
class Layout:
    """What the columns of a table are.

    Args:
        logits: places of the K columns of logits, in class order.
        names: of the K classes, where the titles say them.
        label: the title of the column of labels, if there is one.
        ignored: titles of columns that are neither.
    """

    logits: list[int]
    names: list[str] | None
    label: str | None = None
    ignored: tuple[str, ...] = ()


def read_table(path: Path, *, titles: Sequence[str | None] = ()) -> Table:
    """Read a table; a single column of text may be titled as in `titles`."""
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    separator = "\t" if path.suffix.lower() == ".tsv" else None
    found, rows = csv_table.parse(text.read(path), titles=titles, separator=separator)
    try:
        return Table(found, np.array(rows, dtype=np.float64).T)  # type: ignore[arg-type]
    except ValueError:
        return Table(found, [_to_numbers([row[i] for row in rows]) for i in range(len(rows[0]))])


def find_columns(table: Table, names: Sequence[str] | None = None, classes: int | None = None) -> Layout:
    """Find the logits, the labels and the rest among the columns of a table.

    Logits are the columns called like the classes, if names are given; else those called `logit_*`; else all columns
    of numbers that are neither labels nor ids. Labels are the column called as in `LABEL_TITLES`, if it can hold them.

    Args:
        table: the columns.
        names: of the classes, in order, where they are known.
        classes: K, where it is known: a table of K columns holds nothing but logits.

    >>> table = Table(["id", "logit_cat", "logit_dog", "label"], np.array([[7, 1.5, 0.5, 1]]).T.reshape(4, 1))
    >>> find_columns(table)
    Layout(logits=[1, 2], names=['cat', 'dog'], label='label', ignored=('id',))
    """
    titles = table.titles
    if titles is None or len(titles) == (len(names) if names else classes):
        if names and titles and set(titles) == set(names) and len(set(names)) == len(titles):
            return Layout([titles.index(name) for name in names], list(names))
        return Layout(list(range(len(table.columns))), list(names) if names else table.class_titles)
    found = (named, list(names)) if names and (named := columns_called(titles, names)) else _prefixed(titles)
    if found is not None:
        places, called = found
        label = _find_label(titles, lambda i: i not in places)
    else:
        label = _find_label(titles, lambda i: _may_be_labels(table, i))
        places = [i for i in range(len(titles)) if i != label and not _is_id(titles[i], table.columns[i])]
        called = [titles[i] for i in places]
        if any(map(csv_table.is_numeric, called)):
            called = None
    if names and len(places) == len(names):
        called = list(names)
    ignored = tuple(title for i, title in enumerate(titles) if i not in places and i != label)
    return Layout(places, called, None if label is None else titles[label], ignored)


def columns_called(titles: Sequence[str], names: Sequence[str]) -> list[int] | None:
    """Return the places of the columns called like the classes, alone or after a word such as logit_, or None.

    >>> columns_called(["id", "logit_dog", "logit_cat"], ["cat", "dog"])
    [2, 1]
    """
    found = {title: i for i, title in enumerate(titles) if title in names}
    for i, title in enumerate(titles):
        match = _LOGITS.fullmatch(title)
        if match and match[2] in names:
            found.setdefault(match[2], i)
    return [found[name] for name in names] if len(found) == len(names) else None


def _prefixed(titles: list[str]) -> tuple[list[int], list[str] | None] | None:
    """Return the columns called logit_* (or scores_*, prob_*), with what they are called after that, or None."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for i, title in enumerate(titles):
        match = _LOGITS.fullmatch(title)
        if match and match[2] and (len(match[1]) > 1 or match[2].isdigit()) and title.lower() not in LABEL_TITLES:
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
        raise LevelheadError(f"expected a column of logits for each class, got those numbered {shown}")
    return [i for i, _ in found], None


def _find_label(titles: list[str], allowed: Callable[[int], bool]) -> int | None:
    lower = [title.lower() for title in titles]
    places = (lower.index(title) for title in LABEL_TITLES if title in lower)
    return next((i for i in places if allowed(i)), None)


def _may_be_labels(table: Table, i: int) -> bool:
    """Return whether a column holds text, or class indices, which logits are not."""
    values = table.columns[i]
    if values.dtype.kind not in "iufb":
        return True
    return bool((values >= 0).all() and (values < len(table.columns) - 1).all() and (values == np.floor(values)).all())


def _is_id(title: str, values: np.ndarray) -> bool:
    """Return whether a column only identifies samples: all text, or whole numbers under a title such as `id`."""
    if values.dtype.kind not in "iufb":
        return not any(map(csv_table.is_numeric, map(str, values.tolist())))
    whole = values.dtype.kind in "iub" or bool((values == np.floor(values)).all())
    return whole and ID_TITLES.fullmatch(title.lower()) is not None


def _to_numbers(cells: list[str]) -> np.ndarray:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return np.array(cells)


def _not_numbers(cells: np.ndarray, where: str) -> LevelheadError:
    """Return the error for the first cell of a column that is not a number."""
    for at, cell in enumerate(map(str, cells.tolist())):
        if csv_table.is_decimal_comma(cell):
            return LevelheadError(f"data row {at} holds {cell!r}; save decimals with a point")
        if not text.is_number(cell):
            held = f"holds {cell!r}" if cell else "has an empty cell"
            return LevelheadError(f"data row {at}{where} {held}; expected a number")
    return LevelheadError(f"expected numbers, got {cells.dtype}{where}")


def _read_parquet(path: Path) -> Table:
    arrow, parquet = _parquet_modules(path)
    try:
        with parquet.ParquetFile(path) as file:
            claimed = 8 * file.metadata.num_rows * max(1, file.metadata.num_columns)
            check_expansion(claimed, path.stat().st_size)
            table = file.read()
        columns = [_from_arrow(name, table.column(i)) for i, name in enumerate(table.column_names)]
    except LevelheadError:
        raise
    except MemoryError:
        raise
    except (arrow.ArrowException, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise LevelheadError(f"not a sound .parquet file ({_first_line(error)})") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise LevelheadError(f"not a sound .parquet file ({_first_line(error)})") from None
    if not columns:
        raise LevelheadError("the file has no columns")
    if not len(columns[0]):
        raise LevelheadError("the file has no rows")
    return Table(list(table.column_names), columns)


def _from_arrow(name: str, column: Any) -> np.ndarray:
    """Return a column as numbers, text, or, of lists, [N, K]."""
    if column.null_count:
        raise LevelheadError(f"the column {name!r} has {column.null_count} empty cells; expected a value in each row")
    values = column.to_numpy()
    if values.dtype.kind in "iufb":
        return values
    first = values[0] if len(values) else ""
    if isinstance(first, np.ndarray):
        return np.stack(values)  # type: ignore[arg-type]
    if values.dtype.kind == "O" and not isinstance(first, str | bytes):
        return np.array([float(value) for value in values.tolist()])  # decimals
    return values.astype(str)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _parquet_modules(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ImportError(f"{path}: reading .parquet needs pyarrow; {install_command('parquet')}") from None
    return pyarrow, parquet
