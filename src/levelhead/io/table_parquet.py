"""Tables in .parquet files, which pyarrow reads once their footer claims no more than they can hold."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..support.errors import LevelheadError, reported_as
from ..support.extras import install_command
from ..support.regular_file import bytes_at
from .numpy_file import check_expansion
from .table import Table

ALWAYS_ALLOWED = 1 << 26  # bytes that a file may always become; beyond, at most 100 times its size
# Kinds of values in the footer.
_BOOLEANS = (1, 2)
_BYTE = 3
_INTEGERS = (4, 5, 6)
_DOUBLE = 7
_BINARY = 8
_LISTS = (9, 10)
_STRUCT = 12


def read_parquet(path: Path) -> Table:
    """Read a whole table."""
    with _opened(path) as file:
        return _of_arrow(file.read())


def parquet_parts(path: Path, rows: int) -> Iterator[Table]:
    """Read a table so many rows at a time."""
    import pyarrow as arrow

    with _opened(path) as file:
        for batch in file.iter_batches(batch_size=rows):
            yield _of_arrow(arrow.Table.from_batches([batch]))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
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
            claims = read_claims(path)
            claimed = max(8 * claims.values, 8 * file.metadata.num_rows, claims.bytes)
            check_expansion(claimed, path.stat().st_size, ALWAYS_ALLOWED)
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
        if placed:
            return np.concatenate(placed)
        return np.zeros(0, object)
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


class Claims(NamedTuple):
    """What the columns of a file claim to hold."""

    values: int
    bytes: int


def read_claims(path: Path) -> Claims:
    """Return what the columns of a .parquet file claim to hold, read from its footer without pyarrow."""
    # pyarrow's own way to ask for it ends the process on some damaged footers, where reading the columns raises an
    # error. The footer is a struct of Thrift's compact protocol: row groups (4) -> columns (1) -> metadata (3) ->
    # values (5), uncompressed bytes (6).
    size = path.stat().st_size
    length, mark = struct.unpack("<I4s", bytes_at(path, size - 8, 8)) if size >= 8 else (0, b"")
    if mark != b"PAR1" or length > size - 12:
        raise LevelheadError("not a sound .parquet file (it has no footer)")
    footer = _Thrift(bytes_at(path, size - 8 - length, length))
    broken = "not a sound .parquet file (its footer is broken)"
    with reported_as(broken, LookupError, TypeError, RecursionError, ValueError):
        columns = [column[3] for group in footer.read(_STRUCT)[4] for column in group[1]]
        return Claims(sum(column[5] for column in columns), sum(column[6] for column in columns))


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
            if size == 15:
                size = self._varint()
            if size > len(self.data) - self.at:  # each item takes a byte or more
                raise ValueError("a list that is longer than the footer")
            return [self.read(inner) for _ in range(size)]
        if kind != _STRUCT:
            raise ValueError(kind)  # a map, which no footer has, or none of Thrift's
        found, field = {}, 0
        while head := self._byte():
            step, inner = divmod(head, 16)
            field = field + step if step else self.read(_INTEGERS[0])
            if inner in _BOOLEANS:
                found[field] = None
            else:
                found[field] = self.read(inner)
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
