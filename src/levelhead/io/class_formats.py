"""Counts of classes, and their names, as files of a few formats have them.

Counts are a list in class order or {class: n}; where a file holds the labels of the training
samples instead, those are returned, to be counted. `counts.resolve` checks them once the classes
are known.

`COUNTS_FORMATS` has a reader for each suffix in which counts can be more than an array of numbers,
and `arrays.read_counts` calls it; the readers of names are called by `arrays.read_names`. The
difficulty is always the same: a small file of text looks alike whether it holds counts, labels or
names, and whether its first row is a title. Each reader says by which cells it tells.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..core.class_names import listed, without_repeats
from ..core.counts import Counts
from ..support import text
from ..support.errors import LevelheadError
from ..support.text import is_number, number
from .numpy_file import text_array
from .table import LABEL_TITLES
from .table_columns import find_label
from .table_file import read_table
from .table_text import split_cells

# Titles that a column of class names may have.
NAME_TITLES = ("name", "names", "class", "classes", *LABEL_TITLES)


def _counts_from_json(path: Path, wanted: str) -> Counts:
    """Return a list of counts or {class: n}, by itself or under the name that is wanted.

    A class that is there twice is refused, where Python's own reader would take the last one.
    """
    value = text.parse_json(text.read(path, wanted), without_repeats)
    if isinstance(value, Mapping) and isinstance(value.get(wanted), Mapping | list):
        value = value[wanted]
    if isinstance(value, list):
        items = value
    elif isinstance(value, dict):
        items = list(value.values())
    else:
        raise LevelheadError("expected a list of counts or {class: n}")
    if any(isinstance(item, list | dict) for item in items):
        raise LevelheadError("expected a list of counts or {class: n}, got one inside another")
    return value


def _counts_from_csv(path: Path, wanted: str) -> Counts:
    """Return counts of rows class,n or n, or the labels of a table of samples.

    Four kinds of file come here, and are told apart in this order: a table of samples with a column
    titled `label`; a single column of names, which are labels; a single column of numbers; rows of
    class,n. `label,n` is the last kind, though its first title is that of labels.
    """
    rows = split_cells(text.read(path, wanted), separator_of(path))
    first, *others = rows

    # A table of samples has a column titled as labels are; but label,n are counts.
    label = next((i for i, cell in enumerate(first) if cell.lower() in LABEL_TITLES), None)
    if label is not None and others and (label > 0 or len(first) != 2):
        if any(len(row) != len(first) for row in others):
            raise LevelheadError(f"expected {len(first)} cells in each row, as there are titles")
        return _labels([row[label] for row in others])
    if all(len(row) == 1 for row in rows) and not any(is_number(row[0]) for row in rows):
        return _labels([row[0] for row in rows])

    # Rows of counts, with or without titles.
    if _is_title_row(first, others):
        rows = others
    if all(len(row) == 1 for row in rows):
        return with_whole_numbers(np.array([number(row[0]) for row in rows]))
    if any(len(row) != 2 for row in rows):
        raise LevelheadError("expected rows of class,n")
    return without_repeats([(row[0], number(row[1])) for row in rows])


def _is_title_row(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row of counts is titles.

    It has no count at its end, no class, or a text over numbers. `cat,40` over `dog,10` is a row of
    counts; `0,40` over `1,10` is too.

    >>> _is_title_row(["class", "n"], [["cat", "4"]]), _is_title_row(["cat", "4"], [["dog", "1"]])
    (True, False)
    """
    if not is_number(first[-1]) or not first[0]:
        return True
    return not is_number(first[0]) and bool(others) and all(is_number(row[0]) for row in others)


def _counts_from_parquet(path: Path, wanted: str) -> Counts:
    """Return one column of counts or labels, the labels of a table of samples, or class and n.

    Columns always have titles here, so that no first row need be told from a sample.
    """
    table = read_table(path)
    if len(table.columns) == 1:
        return with_whole_numbers(table.at(0))
    titles = table.titles or []
    label = find_label(table)
    # A table of samples; but label, n are counts.
    if label is not None and (titles.index(label) > 0 or len(titles) != 2):
        return with_whole_numbers(table.column(label))
    if len(table.columns) == 2:
        classes, counts = table.columns
        return without_repeats(zip(classes.tolist(), counts.tolist(), strict=True))
    raise LevelheadError(
        f"expected the columns class and n, or one of labels, got {listed(titles)}"
    )


def _counts_from_txt(path: Path, wanted: str) -> Counts:
    """Return numbers with blanks, commas or lines between them, or labels that are names.

    A file of one word is a count that is no number, and is refused as that.
    """
    content = text.read(path, wanted)
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    # Names of classes, one per line, are labels.
    if len(lines) > 1 and not any(is_number(line) or "," in line for line in lines):
        return _labels(lines)
    words = content.replace(",", " ").split()
    return with_whole_numbers(np.array([number(word) for word in words]))


COUNTS_FORMATS: dict[str, Callable[[Path, str], Counts]] = {
    ".json": _counts_from_json,
    ".csv": _counts_from_csv,
    ".tsv": _counts_from_csv,
    ".txt": _counts_from_txt,
    ".parquet": _counts_from_parquet,
}


def names_from_json(value: object) -> object:
    """Return class names as a list, in class order.

    Args:
        value: what JSON holds: a list, {index: name}, {name: index}, or a model's config, in which
            transformers has `id2label`, and others `names` or `classes`. Anything else is returned
            as it is, for the caller to refuse.

    Raises:
        LevelheadError: an object whose indices are not 0 to K - 1, each once.

    >>> names_from_json({"id2label": {"1": "dog", "0": "cat"}})
    ['cat', 'dog']
    """
    if not isinstance(value, Mapping):
        return value
    # A config holds names among many other things.
    for entry in ("id2label", "names", "classes"):
        if isinstance(value.get(entry), Mapping | list):
            return names_from_json(value[entry])
    if all(key.isdecimal() for key in value):  # {index: name}
        by_index = {int(key): name for key, name in value.items()}
    else:  # {name: index}
        by_index = {i: name for name, i in value.items() if type(i) is int}
    if len(by_index) != len(value) or sorted(by_index) != list(range(len(value))):
        raise LevelheadError(
            "expected a list of names, {index: name} or {name: index} with the indices 0, 1, 2, ..."
        )
    return [by_index[i] for i in range(len(by_index))]


def names_from_csv(content: str, separator: str | None) -> object:
    """Return the class names of one column, or of rows of index,name.

    A first row is a title if it is one of `NAME_TITLES`, or has no index: any other word may be a
    class.
    """
    rows = split_cells(content, separator)
    if all(len(row) == 1 for row in rows):
        names = [row[0] for row in rows]
        if names[0].lower() in NAME_TITLES:
            return names[1:]
        return names
    if all(len(row) == 2 for row in rows):
        if not rows[0][0].isdecimal():  # titles
            rows = rows[1:]
        if all(row[0].isdecimal() for row in rows):
            return names_from_json({row[0]: row[1] for row in rows})
    raise LevelheadError("expected one column of names, or rows of index,name")


def separator_of(path: Path) -> str | None:
    """Return what separates cells by the name of a file; None if its first row has to tell."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    return None


def _labels(cells: list[str]) -> np.ndarray:
    """Return labels to be counted: class indices, or names."""
    if all(map(is_number, cells)):
        return with_whole_numbers(np.array(cells, np.float64))
    return text_array(cells)


def with_whole_numbers(values: np.ndarray) -> np.ndarray:
    """Return floats as integers if all are whole: only integers may be labels to be counted.

    Text files give every number as a float, which `counts.resolve` takes for counts, never for
    labels. Beyond 2^53, where float64 does not hold every integer, and with NaN, they stay as they
    are.

    >>> with_whole_numbers(np.array([3.0, 5.0])), with_whole_numbers(np.array([0.5, 0.5]))
    (array([3, 5]), array([0.5, 0.5]))
    """
    if values.dtype.kind != "f" or not values.size:
        return values
    with np.errstate(invalid="ignore", over="ignore"):  # NaN, and beyond float64
        wide = values.astype(np.float64)
        whole = (np.abs(wide) < 2**53) & (wide == np.floor(wide))
    if whole.all():
        return wide.astype(np.int64)
    return values
