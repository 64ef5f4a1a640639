"""Arrays from files: .npy, .npz, .safetensors, .csv, .parquet. No code in a file is run; large files are mapped.

`FILE:KEY` names one array of a file that holds several.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from ..core.errors import LevelheadError, in_file
from ..core.per_class import listed
from . import csv_table, safetensors_file, text


def read(source: str | Path, *, wanted: str = "logits") -> np.ndarray:
    """Return one array of FILE or FILE:KEY, memory-mapped if the format allows it (.npy, .safetensors).

    `wanted` is what the array holds, for messages; also the key to use if the file holds several arrays.
    """
    path, key = _split_key(source)
    reader = FORMATS.get(path.suffix.lower())
    if reader is None:
        raise LevelheadError(f"{path}: expected {wanted} as {', '.join(FORMATS)}, got {path.suffix or 'no suffix'}")
    check_file(path, wanted)
    try:
        with in_file(path):
            return reader(path, key, wanted)
    except LevelheadError:
        raise
    except (ValueError, EOFError, BadZipFile) as error:
        if any(words in str(error) for words in ("Python objects", "Object arrays")):  # as numpy says it
            aside = "perhaps lists of different lengths; save plain numbers"
            raise LevelheadError(f"{path}: the file holds Python objects, {aside}") from None
        raise LevelheadError(f"{path}: not a file of {wanted} ({error})") from None
    except MemoryError as error:
        aside = f"({error}); save it as .npy, which is not read at once"
        raise LevelheadError(f"{path}: too large for the memory of this machine {aside}") from None


def check_file(path: Path, wanted: str) -> None:
    """Check that the path is a file; `wanted` is what it should hold, for messages."""
    if path.is_dir():
        raise IsADirectoryError(f"{path}: a folder; expected a file of {wanted}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected {wanted}")


def column_titles(source: str | Path) -> list[str] | None:
    """Return the column titles of a .csv or .parquet file if they are names, else None."""
    path, key = _split_key(source)
    if key is not None or path.suffix.lower() not in (".csv", ".parquet") or not path.is_file():
        return None
    if path.suffix.lower() == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            return csv_table.column_names(file)
    return _parquet_module(path).read_schema(path).names


def may_begin_with_a_title(source: str | Path) -> bool:
    """Return whether the first cell of a .csv with one column of labels may be a title: nothing in the file says."""
    path, key = _split_key(source)
    return (
        key is None
        and path.suffix.lower() == ".csv"
        and csv_table.parse(text.read(path), titles=("labels",))[0] is None
    )


def file_of(source: str | Path) -> Path:
    """Return the file of FILE or FILE:KEY."""
    return _split_key(source)[0]


def has_known_suffix(source: str | Path) -> bool:
    """Return whether the suffix of FILE or FILE:KEY is one of `FORMATS`."""
    return file_of(source).suffix.lower() in FORMATS


def array_next_to(source: str | Path, wanted: str) -> Path | None:
    """Return FILE:wanted if FILE holds an array of that name and others, else None; also None for FILE:KEY."""
    path, key = _split_key(source)
    if key is not None or path.suffix.lower() not in ARCHIVES or not path.is_file():
        return None
    names = ARCHIVES[path.suffix.lower()](path)
    return Path(f"{path}:{wanted}") if wanted in names and len(names) > 1 else None


def sha256(source: str | Path) -> str:
    """Return the sha256 of the whole file of FILE or FILE:KEY."""
    with file_of(source).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_npy(path: Path, key: str | None, wanted: str) -> np.ndarray:
    if key is not None:
        raise LevelheadError(f"the file holds one array without a key; leave out :{key}")
    _check_magic(path, ".npy")
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _read_npz(path: Path, key: str | None, wanted: str) -> np.ndarray:
    name = _choose_array(path, key, _names_in_npz(path), wanted)
    with np.load(path, allow_pickle=False) as archive:
        _check_length(archive.zip, name)
        return archive[name]


def _check_length(archive: ZipFile, name: str) -> None:
    """Check that an array of an .npz is as long as its header says: numpy allocates that much before it reads."""
    member = archive.getinfo(name if name in archive.NameToInfo else f"{name}.npy")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version > (2, 0):  # records with field names beyond Latin-1
            return
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        claimed = file.tell() + dtype.itemsize * math.prod(shape)
    if claimed > (size := member.file_size) and not dtype.hasobject:
        raise LevelheadError(f"cut short: {name!r}, {dtype} {list(shape)}, needs {claimed} bytes, got {size}")


def _names_in_npz(path: Path) -> list[str]:
    _check_magic(path, ".npz")
    with np.load(path, allow_pickle=False) as archive:
        return archive.files


def _check_magic(path: Path, suffix: str) -> None:
    """Check the first bytes of a file: numpy would take others for a pickle, and say how to run that."""
    with path.open("rb") as file:
        first = file.read(6)
    actual = ".npy" if first == b"\x93NUMPY" else ".npz" if first.startswith(b"PK") else None
    if actual is None:
        raise LevelheadError(f"not an {suffix} file" if first else "the file is empty")
    if actual != suffix:
        raise LevelheadError(f"this is an {actual} file; rename it to end in {actual}")


def _read_safetensors(path: Path, key: str | None, wanted: str) -> np.ndarray:
    tensors = _tensors_in(path)
    name = _choose_array(path, key, list(tensors), wanted)
    tensor = tensors[name]
    if tensor.dtype not in safetensors_file.NUMPY_DTYPES:
        raise LevelheadError(f"{name!r} is {tensor.dtype}; expected floating-point or integer numbers")
    if 0 in tensor.shape:
        raise LevelheadError(f"{name!r} is empty, shape {list(tensor.shape)}")
    values = np.memmap(path, safetensors_file.NUMPY_DTYPES[tensor.dtype], "r", tensor.offset, tensor.shape)
    return safetensors_file.widen_bfloat16(values) if tensor.dtype == "BF16" else values


def _tensors_in(path: Path) -> dict[str, safetensors_file.StoredTensor]:
    """Return the tensors of a file; an unknown dtype, which a model may have next to its head, is refused in data."""
    tensors = safetensors_file.read_header(path).tensors
    for name, tensor in tensors.items():
        if tensor.dtype not in safetensors_file.ITEM_BITS:
            raise LevelheadError(f"{path}: {name!r} has the unknown dtype {tensor.dtype!r}")
    return tensors


def _read_csv(path: Path, key: str | None, wanted: str) -> np.ndarray:
    titles, rows = csv_table.parse(text.read(path), titles=(wanted, key))
    if key is not None:
        at = _column_index(key, titles or [])
        rows = [[row[at]] for row in rows]
    elif wanted == "labels" and len(rows[0]) > 1:
        aside = (
            f" ({listed(titles)}); name it: {path.name}:TITLE" if titles else "; save it alone (index=False in pandas)"
        )
        raise LevelheadError(f"expected one column of labels, got {len(rows[0])}{aside}")
    return _to_numbers(rows, wanted)


def _read_parquet(path: Path, key: str | None, wanted: str) -> np.ndarray:
    table = _parquet_module(path).read_table(path)
    if key is not None:
        table = table.select([table.column_names[_column_index(key, table.column_names)]])
    columns = [column.to_numpy() for column in table.itercolumns()]
    if not columns:
        raise LevelheadError("the file has no columns")
    if len(columns) > 1:
        return np.column_stack(columns)
    only = columns[0]  # labels, or lists of logits
    if only.dtype != object:
        return only
    return np.stack(only) if isinstance(only[0], np.ndarray) else only.astype(str)  # type: ignore[arg-type]


FORMATS: dict[str, Callable[[Path, str | None, str], np.ndarray]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
ARCHIVES: dict[str, Callable[[Path], Collection[str]]] = {".npz": _names_in_npz, ".safetensors": _tensors_in}


def _split_key(source: str | Path) -> tuple[Path, str | None]:
    """Return file and key of FILE or FILE:KEY; a file whose own name holds the colon comes first."""
    path = Path(source)
    stem, colon, key = str(source).rpartition(":")
    if colon and not path.exists() and Path(stem).suffix.lower() in FORMATS:
        return Path(stem), key
    return path, None


def _choose_array(path: Path, key: str | None, names: Sequence[str], wanted: str) -> str:
    if key is not None and key not in names:
        raise LevelheadError(f"no array {key!r}; the file has {listed(names) or 'none'}")
    if key is None and len(names) != 1 and wanted not in names:
        raise LevelheadError(
            f"expected one array, or one called {wanted!r}, got {listed(names) or 'none'}; name it: {path.name}:KEY"
        )
    return key if key is not None else names[0] if len(names) == 1 else wanted


def _column_index(key: str, names: Sequence[str]) -> int:
    if key not in names:
        raise LevelheadError(f"no column {key!r}; the file has {listed(names) or 'no titles'}")
    return list(names).index(key)


def _to_numbers(rows: list[list[str]], wanted: str) -> np.ndarray:
    """Return cells as numbers [N, K], or [N] if there is one column; a single column of names stays text."""
    try:
        values = np.array(rows, dtype=np.float64)
    except ValueError:
        for at, cell in ((i, cell) for i, row in enumerate(rows) for cell in row if not text.is_number(cell)):
            if csv_table.is_decimal_comma(cell):
                raise LevelheadError(f"data row {at} holds {cell!r}; save decimals with a point") from None
            if not cell and wanted == "labels":
                raise LevelheadError(
                    f"data row {at} is empty; give its label, or leave that sample out of the logits too"
                ) from None
            if not cell or len(rows[0]) > 1:
                held = f"holds {cell!r}" if cell else "has an empty cell"
                raise LevelheadError(f"data row {at} {held}; expected a number") from None
        return np.array([row[0] for row in rows])
    return values[:, 0] if values.shape[1] == 1 else values


def _parquet_module(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ImportError(f"{path}: reading .parquet needs pyarrow; pip install 'levelhead[parquet]'") from None
    return parquet
