"""One number per class from a file: training samples of each class, or shares of the classes."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core.counts import Counts
from ..core.errors import LevelheadError, in_file
from ..core.per_class import in_order, without_repeats
from . import arrays, csv_table, text


def read_counts(path: str | Path, *, wanted: str = "counts") -> Counts:
    """Return the numbers of a file, as a list or {class: n}; `counts.resolve` checks them once the classes are known.

    A file is .json (a list or {class: n}), .csv (rows of class,n or of one number), .txt (numbers), .npy, or an .npz or
    .safetensors with an array of the name that is wanted.
    """
    path = Path(path)
    if arrays.file_of(path).suffix.lower() in (".npy", *arrays.ARCHIVES):
        return arrays.read(path, wanted=wanted)
    if path.suffix.lower() not in _PARSERS:
        raise LevelheadError(
            f"{path}: expected {wanted} as .json, .csv, .npy, .npz, .safetensors or .txt, got "
            f"{path.suffix or 'no suffix'}"
        )
    arrays.check_file(path, wanted)
    with in_file(path):
        return _PARSERS[path.suffix.lower()](text.read(path))


def target_shares(given: str, names: Sequence[str] | None, classes: int) -> np.ndarray:
    """Return shares [K] from "0.5,0.3,0.2", or from a file with a list or {class: share}."""
    is_file = Path(given).suffix.lower() in (*_PARSERS, ".npy")
    shares = read_counts(given, wanted="shares") if is_file else given.split(",")
    if isinstance(shares, dict):
        with in_file(given):
            return in_order(shares, classes, names, what="share")
    try:
        return np.array([float(share) for share in shares])
    except (TypeError, ValueError):
        raise LevelheadError(
            f"expected {classes} numbers with commas between them, or a file of them, got {given!r}", parameter="target"
        ) from None


def _from_json(content: str) -> Counts:
    try:
        value = json.loads(content, object_pairs_hook=without_repeats)
    except json.JSONDecodeError as error:
        raise LevelheadError(f"not JSON ({error})") from None
    if not isinstance(value, list | dict):
        raise LevelheadError("expected a list of counts or {class: n}")
    return value


def _from_csv(content: str) -> Counts:
    first, *others = csv_table.split_cells(content)
    titled = (
        not text.is_number(first[-1])
        or not first[0]
        or (not text.is_number(first[0]) and others and all(text.is_number(row[0]) for row in others))
    )
    rows = others if titled else [first, *others]
    if all(len(row) == 1 for row in rows):
        return [text.number(row[0]) for row in rows]
    if any(len(row) != 2 for row in rows):
        raise LevelheadError("expected rows of class,n")
    return without_repeats([(row[0], text.number(row[1])) for row in rows])


_PARSERS = {
    ".json": _from_json,
    ".csv": _from_csv,
    ".txt": lambda content: [text.number(word) for word in content.split()],
}
