"""Logits and labels from a file: .npy, .npz, .safetensors, .csv, .parquet. Runs no code of it, maps it where it can.

`FILE:KEY` picks one array of a file that holds several.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from ..core.errors import LevelheadError
from . import csv_table, safetensors_file, text

BEGINNINGS = {".npy": b"\x93NUMPY", ".npz": b"PK"}


def read(source: str | Path, *, wanted: str = "logits") -> np.ndarray:
    """One array of a file, memory-mapped if the format allows it (.npy, .safetensors).

    Args:
        source: the file, or FILE:KEY for one array of an .npz or .safetensors, one column of a .csv or .parquet.
        wanted: what is looked for, in messages; also the key that is taken if a file holds several arrays and none is
            named.
    """
    path, key = _split(source)
    reader = FORMATS.get(path.suffix.lower())
    if reader is None:
        raise LevelheadError(f"{path}: expected {wanted} as {', '.join(FORMATS)}, got {path.suffix or 'no suffix'}")
    check_file(path, wanted)
    try:
        return reader(path, key, wanted)
    except (ValueError, EOFError, BadZipFile) as error:
        said = str(error)
        raise LevelheadError(said if said.startswith(f"{path}: ") else f"{path}: not a file of {wanted} ({said})") from None
    except MemoryError as error:
        raise LevelheadError(f"{path}: too large for the memory of this machine ({error}); save it as .npy, which is not "
                         "read at once") from None


def check_file(path: Path, wanted: str) -> None:
    """That there is a file, in which what is wanted may be."""
    if path.is_dir():
        raise IsADirectoryError(f"{path}: a folder; expected a file of {wanted}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected {wanted}")


def titles(source: str | Path) -> list[str] | None:
    """The column titles of a .csv or .parquet file if they are names: those of the classes, for logits. Else None."""
    path, key = _split(source)
    if key is not None or path.suffix.lower() not in (".csv", ".parquet") or not path.is_file():
        return None
    if path.suffix.lower() == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            return csv_table.names(file)
    return _parquet_module(path).read_schema(path).names


def may_begin_with_a_title(source: str | Path) -> bool:
    """Whether this is a column of labels in a .csv whose first cell is a title or a label: nothing there says which."""
    path, key = _split(source)
    return (key is None and path.suffix.lower() == ".csv"
            and csv_table.parse(text.read(path), title=("labels",)).titles is None)


def file_of(source: str | Path) -> Path:
    """The file of FILE or FILE:KEY."""
    return _split(source)[0]


def exists(source: str | Path) -> bool:
    """Whether the file of FILE or FILE:KEY is there."""
    return _split(source)[0].is_file()


def is_known(source: str | Path) -> bool:
    """Whether FILE or FILE:KEY is of a format that is read here, there or not."""
    return _split(source)[0].suffix.lower() in FORMATS


def is_archive(source: str | Path) -> bool:
    """Whether FILE or FILE:KEY is of a format that holds arrays under names, there or not."""
    return _split(source)[0].suffix.lower() in ARCHIVES


def beside(source: str | Path, wanted: str) -> Path | None:
    """FILE:wanted, if FILE is there and holds an array of that name beside another. FILE:KEY is that array alone."""
    path, key = _split(source)
    if key is not None or not is_archive(path) or not path.is_file():
        return None
    names = ARCHIVES[path.suffix.lower()](path)
    return Path(f"{path}:{wanted}") if wanted in names and len(names) > 1 else None


def sha256(source: str | Path) -> str:
    """Of the whole file, whichever array of it is meant."""
    with _split(source)[0].open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _npy(path: Path, key: str | None, wanted: str) -> np.ndarray:
    _no_key(path, key)
    _check_begins(path, ".npy")
    with _no_objects():
        return np.load(path, mmap_mode="r", allow_pickle=False)


def _npz(path: Path, key: str | None, wanted: str) -> np.ndarray:
    name = _pick(path, key, _names_in_npz(path), wanted)
    with np.load(path, allow_pickle=False) as archive, _no_objects():
        _check_length(archive.zip, name)
        return archive[name]


def _check_length(archive: ZipFile, name: str) -> None:
    """That an array of an .npz is as long as its header says: numpy takes that much memory before it reads on."""
    member = archive.getinfo(name if name in archive.NameToInfo else f"{name}.npy")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version > (2, 0):  # of records whose fields have names beyond Latin-1
            return
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        claimed = file.tell() + dtype.itemsize * math.prod(shape)
    if claimed > member.file_size and not dtype.hasobject:
        raise LevelheadError(f"{name!r} is {list(shape)} of {dtype}, {claimed} bytes, and has {member.file_size}")


def _names_in_npz(path: Path) -> list[str]:
    _check_begins(path, ".npz")
    with np.load(path, allow_pickle=False) as archive:
        return archive.files


def _check_begins(path: Path, kind: str) -> None:
    """That a file begins as its kind does: else numpy takes it for a pickle, and says how to run that."""
    with path.open("rb") as file:
        first = file.read(6)
    found = next((suffix for suffix, start in BEGINNINGS.items() if first.startswith(start)), None)
    if found is None:
        raise LevelheadError("it is empty" if not first else f"it does not begin as an {kind} does")
    if found != kind:
        raise LevelheadError(f"it is an {found}; call it so")


@contextmanager
def _no_objects() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "object" not in str(error).lower():
            raise
        raise LevelheadError("it holds Python objects, perhaps lists of different lengths; save plain numbers") from None


def _safetensors(path: Path, key: str | None, wanted: str) -> np.ndarray:
    tensors = safetensors_file.read_header(path).tensors
    name = _pick(path, key, list(tensors), wanted)
    found = tensors[name]
    if found.dtype not in safetensors_file.NUMPY_DTYPES:
        raise LevelheadError(f"{path}: {name!r} is {found.dtype}; expected floating-point or integer numbers")
    if 0 in found.shape:
        raise LevelheadError(f"{path}: {name!r} is empty, shape {list(found.shape)}")
    values = np.memmap(path, safetensors_file.NUMPY_DTYPES[found.dtype], "r", found.offset, found.shape)
    return safetensors_file.widen_bfloat16(values) if found.dtype == "BF16" else values


def _names_in_safetensors(path: Path) -> list[str]:
    return list(safetensors_file.read_header(path).tensors)


def _csv(path: Path, key: str | None, wanted: str) -> np.ndarray:
    content = text.read(path)
    try:
        return _column_or_table(path, csv_table.parse(content, title=(wanted, key)), key, wanted)
    except ValueError as error:
        said = str(error)
        raise LevelheadError(said if said.startswith(f"{path}: ") else f"{path}: {said}") from None


def _column_or_table(path: Path, table: csv_table.Sheet, key: str | None, wanted: str) -> np.ndarray:
    rows = table.rows
    if key is not None:
        at = _index(path, key, table.titles or [])
        rows = [[row[at]] for row in rows]
    elif wanted == "labels" and len(rows[0]) > 1:
        instead = (f" ({', '.join(table.titles[:8])}); name it: {path.name}:TITLE" if table.titles else
                   "; save it alone: index=False in pandas")
        raise LevelheadError(f"{path}: expected one column of labels, got {len(rows[0])}{instead}")
    return _numbers(rows, wanted)


def _parquet(path: Path, key: str | None, wanted: str) -> np.ndarray:
    table = _parquet_module(path).read_table(path)
    if key is not None:
        table = table.select([table.column_names[_index(path, key, table.column_names)]])
    columns = [column.to_numpy() for column in table.itercolumns()]
    if not columns:
        raise LevelheadError(f"{path}: it has no columns")
    if len(columns) == 1:  # a column of labels, or of lists of logits
        only = columns[0]
        return np.stack(only) if only.dtype == object and isinstance(only[0], np.ndarray) else _text(only)  # type: ignore[arg-type]
    return np.column_stack(columns)


FORMATS: dict[str, Callable[[Path, str | None, str], np.ndarray]] = {
    ".npy": _npy, ".npz": _npz, ".safetensors": _safetensors, ".csv": _csv, ".parquet": _parquet,
}


ARCHIVES: dict[str, Callable[[Path], list[str]]] = {".npz": _names_in_npz, ".safetensors": _names_in_safetensors}


def _split(source: str | Path) -> tuple[Path, str | None]:
    """FILE or FILE:KEY. A file whose own name holds the colon comes first."""
    path = Path(source)
    stem, colon, key = str(source).rpartition(":")
    if colon and not path.exists() and Path(stem).suffix.lower() in FORMATS:
        return Path(stem), key
    return path, None


def _pick(path: Path, key: str | None, names: Sequence[str], wanted: str) -> str:
    listed = ", ".join(names) or "none"
    if key is not None:
        if key not in names:
            raise LevelheadError(f"{path}: no array {key!r}; it has {listed}")
        return key
    if len(names) == 1:
        return names[0]
    if wanted in names:
        return wanted
    raise LevelheadError(f"{path}: expected one array, or one called {wanted!r}, got {listed}; name it: {path.name}:KEY")


def _index(path: Path, key: str, names: Sequence[str]) -> int:
    if key not in names:
        raise LevelheadError(f"{path}: no column {key!r}; it has {', '.join(names) or 'no titles'}")
    return list(names).index(key)


def _numbers(rows: list[list[str]], wanted: str) -> np.ndarray:
    """Rows of text as numbers [N, K], or [N] if each holds one value; a single column of names stays text."""
    try:
        values = np.array(rows, dtype=np.float64)
    except ValueError:
        alone = len(rows[0]) == 1
        for at, cell in ((i, cell) for i, row in enumerate(rows) for cell in row if not text.is_number(cell)):
            if csv_table.is_decimal_comma(cell):
                raise LevelheadError(f"data row {at} holds {cell!r}; save decimals with a point") from None
            if not cell and wanted == "labels":
                raise LevelheadError(f"data row {at} is empty; give its label, or leave that sample out, of the logits "
                                 "too") from None
            if not cell or not alone:
                held = f"holds {cell!r}" if cell else "has an empty cell"
                raise LevelheadError(f"data row {at} {held}; expected a number") from None
        return np.array([row[0] for row in rows])
    return values[:, 0] if values.shape[1] == 1 else values


def _text(column: np.ndarray) -> np.ndarray:
    return column.astype(str) if column.dtype == object else column


def _no_key(path: Path, key: str | None) -> None:
    if key is not None:
        raise LevelheadError(f"{path}: holds one array and no key; leave out :{key}")


def _parquet_module(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ImportError(f"{path}: reading .parquet takes pyarrow; pip install 'levelhead[parquet]'") from None
    return parquet
