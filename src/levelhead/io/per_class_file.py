"""One value per class from a file, or given with commas: training samples of each class, shares, and names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import LevelheadError, in_file
from ..core.per_class import check_names, in_order
from . import arrays, text
from .arrays import read_counts
from .table import LABEL_TITLES, split_cells


def read_names(given: str | Path) -> list[str]:
    """Return class names, in class order."""
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
        expected = f"expected {classes} numbers with commas between them, or a file of them"
        raise LevelheadError(f"{expected}, got {given!r}", parameter="target") from None


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
