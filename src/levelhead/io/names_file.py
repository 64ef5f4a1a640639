"""Class names, from a file or a list with commas."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.class_names import check_names
from ..core.errors import LevelheadError, in_file
from . import arrays, csv_table, text


def read_names(given: str | Path) -> list[str]:
    """Return class names, in class order.

    Args:
        given: "cat,dog,owl"; or a file: .txt with a name on each line; .json with a list, {index: name}, {name: index}
            or, as the config.json of a Hugging Face model, `id2label`; .csv or .tsv with one column or index,name; or
            a .npy, .npz, .parquet or .pt file of text.

    Returns:
        The names, all distinct.

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
            names = _from_json(text.parse_json(text.read(path, "class names")))
        elif suffix in (".csv", ".tsv") and key is None:
            names = _from_csv(text.read(path, "class names"), "\t" if suffix == ".tsv" else None)
        elif suffix == ".txt":
            names = [line.strip() for line in text.read(path, "class names").strip().splitlines()]
        else:
            names = arrays.read(given, wanted="names").tolist()
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise LevelheadError("expected one name per class, as text")
        return check_names(names)


def _from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    for entry in ("id2label", "names", "classes"):
        if isinstance(value.get(entry), Mapping | list):
            return _from_json(value[entry])
    if all(key.isdecimal() for key in value):  # {index: name}
        pairs = {int(key): name for key, name in value.items()}
    else:  # {name: index}
        pairs = {i: name for name, i in value.items() if type(i) is int}
    if len(pairs) != len(value) or sorted(pairs) != list(range(len(value))):
        raise LevelheadError("expected a list of names, {index: name} or {name: index} with the indices 0, 1, 2, ...")
    return [pairs[i] for i in range(len(pairs))]


def _from_csv(content: str, separator: str | None) -> list[str]:
    rows = csv_table.split_cells(content, separator)
    if all(len(row) == 1 for row in rows):
        titled = rows[0][0].lower() in ("name", "names", "class", "classes", *csv_table.LABEL_TITLES)
        return [row[0] for row in rows[titled:]]
    if all(len(row) == 2 for row in rows):
        rows = rows if rows[0][0].isdecimal() else rows[1:]
        if all(row[0].isdecimal() for row in rows):
            return _from_json({row[0]: row[1] for row in rows})
    raise LevelheadError("expected one column of names, or rows of index,name")
