"""Arrays, counts, shares and names from files; `FILE:KEY` is one array, or a table's column. No code in one is run."""

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.class_names import check_names, in_order, listed, without_repeats
from ..core.counts import Counts
from ..support import text
from ..support.errors import LevelheadError, in_file, named, reported_as
from ..support.regular_file import check_regular_file, unchanged_while_read
from ..support.text import is_decimal_comma, is_number, number
from .numpy_file import names_in_npz, read_npy, read_npz, read_or_map, text_array
from .safetensors_file import NUMPY_DTYPES, read_header, widen_bfloat16
from .table import LABEL_TITLES, TABLE_SUFFIXES
from .table_columns import find_columns
from .table_file import read_table
from .table_text import split_cells
from .torch_file import names_of_tensors, read_tensors


def read(source: str | Path, *, wanted: str = "logits") -> np.ndarray:
    """Return one array of FILE or FILE:KEY, of several the one called as is `wanted`; a large one is memory-mapped."""
    path, key = split_key(source)
    if (reader := FORMATS.get(path.suffix.lower())) is None:
        raise LevelheadError(
            f"{path}: expected {wanted} as {_KNOWN}, got {path.suffix or 'no suffix'}"
        )
    with in_file(path), unchanged_while_read(path, wanted):
        try:
            return reader(path, key, wanted)
        except MemoryError as error:
            aside = f"({error or 'out of memory'}); save it as .npy, which is not read at once"
            raise LevelheadError(f"too large for the memory of this machine {aside}") from None


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
        pairs = [
            (name.strip(), number(n))
            for name, _, n in (word.rpartition("=") for word in str(source).split(","))
        ]
        if all(name for name, _ in pairs):
            return without_repeats(pairs)
        return [n for _, n in pairs]
    path, key = split_key(source)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise LevelheadError(
            f"{path}: expected {wanted} as {_KNOWN}, or with commas, got {suffix or 'no suffix'}"
        )
    if key is None and suffix in _COUNTS:
        check_regular_file(path, wanted)
        with in_file(path):
            return _COUNTS[suffix](path, wanted)
    return _with_whole_numbers(read(source, wanted=wanted))


def read_names(given: str | Path | None) -> list[str] | None:
    """Return class names, in class order; None if none are given."""
    if given is None:
        return None
    path, key = split_key(given)
    if not has_known_suffix(given) and "," in str(given):
        return check_names([name.strip() for name in str(given).split(",")])
    if not has_known_suffix(given):
        raise LevelheadError(
            f"expected names with commas between them, or a file ({_KNOWN}), got {str(given)!r}"
        )
    with in_file(path):
        suffix = path.suffix.lower()
        if suffix == ".json" and key is None:
            names = _names_from_json(text.parse_json(text.read(path, "class names")))
        elif suffix in (".csv", ".tsv") and key is None:
            names = _names_from_csv(
                text.read(path, "class names"), "\t" if suffix == ".tsv" else None
            )
        elif suffix == ".txt":
            names = [line.strip() for line in text.read(path, "class names").strip().splitlines()]
        else:
            names = read(given, wanted="names").tolist()
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise LevelheadError("expected one name per class, as text")
        return check_names(names)


def target_shares(
    given: str | None, names: Sequence[str] | None, classes: int
) -> np.ndarray | None:
    """Return shares [K] from "0.5,0.3,0.2", or from a file with a list or {class: share}; None if none are given."""
    if given is None:
        return None
    if has_known_suffix(given):
        shares = read_counts(given, wanted="shares")
    else:
        shares = given.split(",")
    if isinstance(shares, dict):
        with in_file(given):
            return in_order(shares, classes, names, what="share")
    expected = f"expected {classes} numbers with commas between them, or a file of them"
    with (
        named("target"),
        reported_as(f"{expected}, got {given!r}", TypeError, ValueError, OverflowError),
    ):
        return np.array([float(share) for share in shares])


def is_inline(source: str | Path) -> bool:
    """Return whether counts are given themselves, with commas between them, and not the name of a file."""
    words = [word.rpartition("=")[2] for word in str(source).split(",")]
    return len(words) > 1 and all(map(is_number, words))


def file_of(source: str | Path) -> Path:
    """Return the file of FILE or FILE:KEY."""
    return split_key(source)[0]


def has_known_suffix(source: str | Path) -> bool:
    """Return whether the suffix of FILE or FILE:KEY is one of `FORMATS`."""
    return file_of(source).suffix.lower() in FORMATS


def array_next_to(source: str | Path, wanted: str) -> Path | None:
    """Return FILE:wanted if FILE holds an array of that name and others, else None; also None for FILE:KEY."""
    path, key = split_key(source)
    if key is not None or path.suffix.lower() not in ARCHIVES:
        return None
    check_regular_file(path, wanted)
    with in_file(path):
        names = ARCHIVES[path.suffix.lower()](path)
    if wanted in names and len(names) > 1:
        return Path(f"{path}:{wanted}")
    return None


def sha256(source: str | Path) -> str:
    """Return the sha256 of the whole file of FILE or FILE:KEY."""
    with file_of(source).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def split_key(source: str | Path) -> tuple[Path, str | None]:
    """Return file and key of FILE or FILE:KEY; a file whose own name holds the colon comes first."""
    words = str(source).split(":")
    for i in range(1, len(words)):
        stem = Path(":".join(words[:i]))
        if stem.suffix.lower() in FORMATS and not os.path.exists(source):
            return stem, ":".join(words[i:])
    return Path(source), None


def _read_npy(path: Path, key: str | None, wanted: str) -> np.ndarray:
    _check_no_key(key)
    return read_npy(path)


def _read_safetensors(path: Path, key: str | None, wanted: str) -> np.ndarray:
    tensors = read_header(path).tensors
    tensor = tensors[name := _choose_array(path, key, list(tensors), wanted)]
    if tensor.dtype not in NUMPY_DTYPES:
        raise LevelheadError(
            f"{name!r} is {tensor.dtype}; expected floating-point or integer numbers"
        )
    if 0 in tensor.shape:
        raise LevelheadError(f"{name!r} is empty, shape {list(tensor.shape)}")
    values = read_or_map(path, NUMPY_DTYPES[tensor.dtype], tensor.offset, tensor.shape)
    if tensor.dtype == "BF16":
        return widen_bfloat16(values)
    return values


def _read_table(path: Path, key: str | None, wanted: str) -> np.ndarray:
    table = read_table(path, titles=(wanted, key))
    if key is not None:
        values = table.column(key)
    elif len(table.columns) == 1:  # labels, or lists of logits
        values = table.at(0)
    elif wanted != "labels":
        return table.numbers(
            find_columns(table).logits if wanted == "logits" else range(len(table.columns))
        )
    else:
        if (title := find_columns(table).label) is None:
            how = ""
            if table.titles:
                how = f" ({listed(table.titles)}); name it: {path.name}:TITLE"
            how = how or "; save it alone (index=False in pandas)"
            raise LevelheadError(f"expected one column of labels, got {len(table.columns)}{how}")
        values = table.column(title)
    if values.dtype.kind in "iufb":
        return values
    return _check_text(values, wanted)


def _check_text(values: np.ndarray, wanted: str) -> np.ndarray:
    """Return a column of names, after checking that no cell is empty or a number with a decimal comma."""
    for at, cell in enumerate(values.tolist()):
        if is_decimal_comma(cell):
            raise LevelheadError(f"data row {at} holds {cell!r}; save decimals with a point")
        if not cell:
            lost = "is empty; give its label, or leave that sample out of the logits too"
            held = "has an empty cell; expected a number"
            if wanted == "labels":
                held = lost
            raise LevelheadError(f"data row {at} {held}")
    return values


def _read_torch(path: Path, key: str | None, wanted: str) -> np.ndarray:
    tensors = read_tensors(path)
    if list(tensors) == [""]:
        _check_no_key(key)
        return tensors[""]
    if key is None and wanted not in tensors:  # the only one of its shape
        shaped = [
            name
            for name, values in tensors.items()
            if values.ndim == (2 if wanted == "logits" else 1)
        ]
        key = shaped[0] if len(shaped) == 1 else None
    return tensors[_choose_array(path, key, list(tensors), wanted)]


def _read_text(path: Path, key: str | None, wanted: str) -> np.ndarray:
    """Return the rows of numbers of a text file, or its words, one per line."""
    _check_no_key(key)
    lines = [line.strip() for line in text.read(path).splitlines()]
    rows = [line.replace(",", " ").split() for line in lines if line]
    if (
        all(is_number(word) for row in rows for word in row)
        and len({len(row) for row in rows}) == 1
    ):
        values = np.array(rows, dtype=np.float64)
        if values.shape[1] == 1:
            return values[:, 0]
        if len(rows) == 1 and wanted != "logits":
            return values[0]
        return values
    return _check_text(text_array([line for line in lines if line]), wanted)


def _read_json(path: Path, key: str | None, wanted: str) -> np.ndarray:
    """Return a JSON list as an array, or the one under a key of an object."""
    value = text.parse_json(text.read(path))
    if isinstance(value, Mapping):
        value = value[_choose_array(path, key, list(value), wanted)]
    else:
        _check_no_key(key)
    leaves = [value]
    while any(isinstance(item, list) for item in leaves):
        leaves = [one for item in leaves for one in (item if isinstance(item, list) else [item])]
    if any(isinstance(item, str) for item in leaves):
        text_array([str(item) for item in leaves])  # which refuses to make room for far more
    with reported_as("expected rows of one length", ValueError, OverflowError):
        values = np.array(value)
    if not isinstance(value, list) or values.dtype.kind not in "iufbU":
        raise LevelheadError(f"expected a list of {wanted}")
    return values


def _counts_from_json(path: Path, wanted: str) -> Counts:
    value = text.parse_json(text.read(path, wanted), without_repeats)
    if isinstance(value, Mapping) and isinstance(value.get(wanted), Mapping | list):
        value = value[wanted]
    if not isinstance(value, list | dict):
        raise LevelheadError("expected a list of counts or {class: n}")
    if any(
        isinstance(item, list | dict)
        for item in (value if isinstance(value, list) else value.values())
    ):
        raise LevelheadError("expected a list of counts or {class: n}, got one inside another")
    return value


def _counts_from_csv(path: Path, wanted: str) -> Counts:
    first, *others = rows = split_cells(
        text.read(path, wanted), "\t" if path.suffix.lower() == ".tsv" else None
    )
    titled = not is_number(first[-1]) or not first[0]
    titled |= not is_number(first[0]) and bool(others) and all(is_number(row[0]) for row in others)
    label = next((i for i, cell in enumerate(first) if cell.lower() in LABEL_TITLES), None)
    # Of each sample; label,n are counts.
    if label is not None and others and (label > 0 or len(first) != 2):
        if any(len(row) != len(first) for row in others):
            raise LevelheadError(f"expected {len(first)} cells in each row, as there are titles")
        return _labels([row[label] for row in others])
    if all(len(row) == 1 for row in rows) and not any(is_number(row[0]) for row in rows):
        return _labels([row[0] for row in rows])
    rows = others if titled else rows
    if all(len(row) == 1 for row in rows):
        return _with_whole_numbers(np.array([number(row[0]) for row in rows]))
    if any(len(row) != 2 for row in rows):
        raise LevelheadError("expected rows of class,n")
    return without_repeats([(row[0], number(row[1])) for row in rows])


def _counts_from_parquet(path: Path, wanted: str) -> Counts:
    table = read_table(path)
    if len(table.columns) == 1:
        return _with_whole_numbers(table.at(0))
    label = find_columns(table).label
    if label is not None and (table.titles or []).index(label) + len(table.columns) != 2:
        return _with_whole_numbers(table.column(label))
    if len(table.columns) == 2:
        return without_repeats(zip(*(column.tolist() for column in table.columns), strict=True))
    raise LevelheadError(
        f"expected the columns class and n, or one of labels, got {listed(table.titles or [])}"
    )


def _counts_from_txt(path: Path, wanted: str) -> Counts:
    content = text.read(path, wanted)
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if len(lines) > 1 and not any(map(is_number, lines)) and not any("," in line for line in lines):
        return _labels(lines)
    return _with_whole_numbers(
        np.array([number(word) for word in content.replace(",", " ").split()])
    )


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
        raise LevelheadError(
            "expected a list of names, {index: name} or {name: index} with the indices 0, 1, 2, ..."
        )
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


def _labels(cells: list[str]) -> np.ndarray:
    """Return labels to be counted: class indices, or names."""
    if all(map(is_number, cells)):
        return _with_whole_numbers(np.array(cells, np.float64))
    return text_array(cells)


def _with_whole_numbers(values: np.ndarray) -> np.ndarray:
    """Return floats as integers if all are whole: only integers may be labels to be counted."""
    if values.dtype.kind != "f" or not values.size:
        return values
    with np.errstate(invalid="ignore", over="ignore"):  # NaN, and beyond float64
        wide = values.astype(np.float64)
        whole = (np.abs(wide) < 2**53) & (wide == np.floor(wide))
    if whole.all():
        return wide.astype(np.int64)
    return values


FORMATS: dict[str, Callable[[Path, str | None, str], np.ndarray]] = {
    ".npy": _read_npy,
    ".npz": lambda path, key, wanted: read_npz(
        path, _choose_array(path, key, names_in_npz(path), wanted)
    ),
    ".safetensors": _read_safetensors,
    **dict.fromkeys(TABLE_SUFFIXES, _read_table),
    **dict.fromkeys((".pt", ".pth"), _read_torch),
    ".txt": _read_text,
    ".json": _read_json,
}
_KNOWN = ", ".join(FORMATS)  # for messages
ARCHIVES: dict[str, Callable[[Path], Collection[str]]] = {
    ".npz": names_in_npz,
    ".safetensors": lambda path: read_header(path).tensors,
    **dict.fromkeys((".pt", ".pth"), names_of_tensors),
}
_COUNTS: dict[str, Callable[[Path, str], Counts]] = {
    ".json": _counts_from_json,
    **dict.fromkeys((".csv", ".tsv"), _counts_from_csv),
    ".txt": _counts_from_txt,
    ".parquet": _counts_from_parquet,
}


def _check_no_key(key: str | None) -> None:
    if key is not None:
        raise LevelheadError(f"the file holds one array without a key; leave out :{key}")


def _choose_array(path: Path, key: str | None, names: Sequence[str], wanted: str) -> str:
    if key is not None and key not in names:
        raise LevelheadError(f"no array {key!r}; the file has {listed(names) or 'none'}")
    if key is None and len(names) != 1 and wanted not in names:
        got = f"got {listed(names) or 'none'}; name it: {path.name}:KEY"
        raise LevelheadError(f"expected one array, or one called {wanted!r}, {got}")
    if key is not None:
        return key
    return names[0] if len(names) == 1 else wanted
