"""One value per class from a file, or given with commas: training samples of each class, shares, and names."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.counts import Counts
from ..core.errors import LevelheadError, in_file
from ..core.per_class import check_names, in_order, listed, without_repeats
from ..core.regular_file import check_regular_file
from . import arrays, text
from .table import LABEL_TITLES, find_columns, is_number, number, split_cells


def read_counts(source: str | Path, *, wanted: str = "counts") -> Counts:
    """Return the numbers of a file, as a list or {class: n}; `counts.resolve` checks them once the classes are known.

    Args:
        source: "4000,2000,500" or "cat=4000,dog=2000"; or FILE or FILE:KEY: .json (a list, {class: n}, or either under
            the name that is wanted), .csv, .tsv or .parquet (class and n, or one column), .txt, .npy, or an .npz,
            .safetensors or .pt with an array of that name. The file may also hold the labels of the training samples,
            in one column or under a title such as `label`.
        wanted: what the numbers are, for messages.

    >>> read_counts("4000, 2000, 500")
    [4000.0, 2000.0, 500.0]
    """
    if is_inline(source):
        return _counts_from_words(str(source).split(","))
    path, key = arrays.split_key(source)
    suffix = path.suffix.lower()
    if suffix not in arrays.FORMATS:
        known = ", ".join(arrays.FORMATS)
        raise LevelheadError(f"{path}: expected {wanted} as {known}, or with commas, got {suffix or 'no suffix'}")
    if key is None and suffix in _PARSERS:
        with in_file(path):
            return _PARSERS[suffix](text.read(path, wanted), wanted)
    if key is None and suffix == ".parquet":
        check_regular_file(path, wanted)
        with in_file(path):
            return _counts_from_parquet(path)
    return _with_whole_numbers(arrays.read(source, wanted=wanted))


def read_names(given: str | Path) -> list[str]:
    """Return class names, in class order.

    Args:
        given: "cat,dog,owl"; or a file: .txt with a name on each line; .json with a list, {index: name}, {name: index}
            or, as the config.json of a Hugging Face model, `id2label`; .csv or .tsv with one column or index,name; or
            a .npy, .npz, .parquet or .pt file of text.

    >>> read_names("cat, dog, owl")
    ['cat', 'dog', 'owl']
    """
    path, key = arrays.split_key(given)
    if not arrays.has_known_suffix(given) and "," in str(given):
        return check_names([name.strip() for name in str(given).split(",")])
    if not arrays.has_known_suffix(given):
        known = ", ".join(arrays.FORMATS)
        raise LevelheadError(f"expected names with commas between them, or a file ({known}), got {str(given)!r}")
    with in_file(path):
        suffix = path.suffix.lower()
        if suffix == ".json" and key is None:
            names = _names_from_json(text.parse_json(text.read(path, "class names")))
        elif suffix in (".csv", ".tsv") and key is None:
            names = _names_from_csv(text.read(path, "class names"), "\t" if suffix == ".tsv" else None)
        elif suffix == ".txt":
            names = [line.strip() for line in text.read(path, "class names").strip().splitlines()]
        else:
            names = arrays.read(given, wanted="names").tolist()
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise LevelheadError("expected one name per class, as text")
        return check_names(names)


def is_inline(source: str | Path) -> bool:
    """Return whether counts are given themselves, with commas between them, and not the name of a file.

    >>> is_inline("400,100"), is_inline("counts.json")
    (True, False)
    """
    words = [word.rpartition("=")[2] for word in str(source).split(",")]
    return len(words) > 1 and all(map(is_number, words))


def target_shares(given: str, names: Sequence[str] | None, classes: int) -> np.ndarray:
    """Return shares [K] from "0.5,0.3,0.2", or from a file with a list or {class: share}."""
    is_file = arrays.has_known_suffix(given)
    shares = read_counts(given, wanted="shares") if is_file else given.split(",")
    if isinstance(shares, dict):
        with in_file(given):
            return in_order(shares, classes, names, what="share")
    try:
        return np.array([float(share) for share in shares])
    except (TypeError, ValueError, OverflowError):
        raise LevelheadError(
            f"expected {classes} numbers with commas between them, or a file of them, got {given!r}", parameter="target"
        ) from None


def _counts_from_words(words: list[str]) -> Counts:
    pairs = [(name.strip(), number(n)) for name, _, n in (word.rpartition("=") for word in words)]
    return without_repeats(pairs) if all(name for name, _ in pairs) else [n for _, n in pairs]


def _counts_from_json(content: str, wanted: str) -> Counts:
    value = text.parse_json(content, without_repeats)
    if isinstance(value, Mapping) and isinstance(value.get(wanted), Mapping | list):
        value = value[wanted]
    if not isinstance(value, list | dict):
        raise LevelheadError("expected a list of counts or {class: n}")
    for item in value if isinstance(value, list) else value.values():
        if isinstance(item, list | dict):
            raise LevelheadError("expected a list of counts or {class: n}, got one inside another")
    return value


def _counts_from_rows(rows: list[list[str]]) -> Counts:
    first, *others = rows
    titled = (
        not is_number(first[-1])
        or not first[0]
        or (not is_number(first[0]) and others and all(is_number(row[0]) for row in others))
    )
    label = next((i for i, cell in enumerate(first) if cell.lower() in LABEL_TITLES), None)
    if label is not None and others and (label > 0 or len(first) != 2):  # of each sample; label,n are counts
        if any(len(row) != len(first) for row in others):
            raise LevelheadError(f"expected {len(first)} cells in each row, as there are titles")
        return _labels([row[label] for row in others])
    if all(len(row) == 1 for row in rows) and not any(is_number(row[0]) for row in rows):
        return _labels([row[0] for row in rows])
    rows = others if titled else [first, *others]
    if all(len(row) == 1 for row in rows):
        return _with_whole_numbers(np.array([number(row[0]) for row in rows]))
    if any(len(row) != 2 for row in rows):
        raise LevelheadError("expected rows of class,n")
    return without_repeats([(row[0], number(row[1])) for row in rows])


def _counts_from_parquet(path: Path) -> Counts:
    table = arrays.read_table(path)
    if len(table.columns) == 1:
        return _with_whole_numbers(table.columns[0])
    label = find_columns(table).label
    if label is not None and (table.titles or []).index(label) + len(table.columns) != 2:
        return _with_whole_numbers(table.column(label))
    if len(table.columns) == 2:
        return without_repeats(zip(*(column.tolist() for column in table.columns), strict=True))
    raise LevelheadError(f"expected the columns class and n, or one of labels, got {listed(table.titles or [])}")


def _counts_from_txt(content: str, wanted: str) -> Counts:
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if len(lines) > 1 and not any(map(is_number, lines)) and not any("," in line for line in lines):
        return _labels(lines)
    return _with_whole_numbers(np.array([number(word) for word in content.replace(",", " ").split()]))


def _labels(cells: list[str]) -> np.ndarray:
    """Return labels to be counted: class indices, or names."""
    if all(map(is_number, cells)):
        return _with_whole_numbers(np.array([float(cell) for cell in cells]))
    return np.array(cells)


def _with_whole_numbers(values: np.ndarray) -> np.ndarray:
    """Return floats as integers if all are whole: only integers may be labels to be counted."""
    if values.dtype.kind != "f" or not values.size:
        return values
    with np.errstate(invalid="ignore", over="ignore"):  # NaN, and beyond float64
        wide = values.astype(np.float64)
        whole = (np.abs(wide) < 2**53) & (wide == np.floor(wide))
    return wide.astype(np.int64) if whole.all() else values


def _names_from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    for entry in ("id2label", "names", "classes"):
        if isinstance(value.get(entry), Mapping | list):
            return _names_from_json(value[entry])
    if all(key.isdecimal() for key in value):  # {index: name}
        pairs = {int(key): name for key, name in value.items()}
    else:  # {name: index}
        pairs = {i: name for name, i in value.items() if type(i) is int}
    if len(pairs) != len(value) or sorted(pairs) != list(range(len(value))):
        raise LevelheadError("expected a list of names, {index: name} or {name: index} with the indices 0, 1, 2, ...")
    return [pairs[i] for i in range(len(pairs))]


def _names_from_csv(content: str, separator: str | None) -> list[str]:
    rows = split_cells(content, separator)
    if all(len(row) == 1 for row in rows):
        titled = rows[0][0].lower() in ("name", "names", "class", "classes", *LABEL_TITLES)
        return [row[0] for row in rows[titled:]]
    if all(len(row) == 2 for row in rows):
        rows = rows if rows[0][0].isdecimal() else rows[1:]
        if all(row[0].isdecimal() for row in rows):
            return _names_from_json({row[0]: row[1] for row in rows})
    raise LevelheadError("expected one column of names, or rows of index,name")


_PARSERS: dict[str, Callable[[str, str], Counts]] = {
    ".json": _counts_from_json,
    ".csv": lambda content, wanted: _counts_from_rows(split_cells(content)),
    ".tsv": lambda content, wanted: _counts_from_rows(split_cells(content, "\t")),
    ".txt": _counts_from_txt,
}
