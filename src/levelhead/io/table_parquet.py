"""Tables in .parquet files, by pyarrow.

It reads them once their footer claims no more than they can hold.

`_opened` reads what the columns claim (`read_claims`, by a small reader of the footer's format),
refuses a file that is meant to fill the memory, and gives pyarrow's file; `_of_arrow` turns what it
reads into a `Table`.

A .parquet file ends in its footer: a struct in Thrift's compact protocol, its length in 4 bytes,
and `PAR1`. Pages of a column are compressed, and a text or number that repeats is stored once with
a run length, so that a million rows can be a few bytes. Specified at
https://github.com/apache/parquet-format (parquet.thrift) and in Thrift's compact-protocol.md.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..support.errors import LevelheadError, reported_as
from ..support.extras import install_command
from ..support.regular_file import bytes_at
from .numpy_file import check_expansion
from .table import Table

# pyarrow has no type hints, and is imported only where a file needs it.
ArrowTable: TypeAlias = Any
ArrowColumn: TypeAlias = Any
ParquetFile: TypeAlias = Any

ALWAYS_ALLOWED = 1 << 26  # bytes that a file may always become; beyond, at most 100 times its size
# Kinds of values in the footer, as Thrift's compact protocol numbers them.
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
    """Read a table so many rows at a time.

    Args:
        path: of the file.
        rows: at most so many in a part, whatever the row groups of the file are.
    """
    import pyarrow as arrow

    with _opened(path) as file:
        for batch in file.iter_batches(batch_size=rows):
            yield _of_arrow(arrow.Table.from_batches([batch]))


@contextmanager
def _opened(path: Path) -> Iterator[ParquetFile]:
    """Open a .parquet file; what is wrong with it is said in one line.

    The footer is checked before pyarrow reads any column, and the caller reads inside the block, so
    that errors of damaged pages are reported here as well.

    Raises:
        LevelheadError: damaged, without rows or columns, or claiming far more than it stores.
        ImportError: pyarrow is not installed.
    """
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise ImportError(
            f"{path}: reading .parquet needs pyarrow; {install_command('parquet')}"
        ) from None
    # What pyarrow raises for damaged files: its own errors, and some of Python's.
    broken = (arrow.ArrowException, ValueError, TypeError, LookupError, OverflowError, OSError)
    try:
        schema = parquet.read_schema(path)
        # A text that is there often is kept once.
        texts = [f.name for f in schema if f.type in (arrow.string(), arrow.large_string())]
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            # A few bytes of a footer can ask for any number of rows.
            claims = read_claims(path)
            claimed = max(8 * claims.values, 8 * file.metadata.num_rows, claims.bytes)
            check_expansion(claimed, path.stat().st_size, ALWAYS_ALLOWED)
            if not len(schema):
                raise LevelheadError("the file has no columns")
            if file.metadata.num_rows == 0:
                raise LevelheadError("the file has no rows")
            yield file
    except (LevelheadError, MemoryError):
        raise
    except broken as error:
        if getattr(error, "errno", None) is not None:  # the system's
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise LevelheadError(f"not a sound .parquet file ({reason})") from None


def _of_arrow(table: ArrowTable) -> Table:
    """Return a table of pyarrow as ours."""
    titles = list(table.column_names)
    return Table(titles, [_from_arrow(name, table.column(i)) for i, name in enumerate(titles)])


def _from_arrow(name: str, column: ArrowColumn) -> np.ndarray:
    """Return a column as numbers [N], or [N, K] of lists of numbers; anything else as objects [N].

    Raises:
        LevelheadError: it has empty cells, which numpy would turn into NaN; or lists that are no
            rows of one array.
    """
    from pyarrow import types

    if column.null_count:
        raise LevelheadError(
            f"the column {name!r} has {column.null_count} empty cells; expected a value in each row"
        )
    kind = column.type
    if types.is_dictionary(kind):
        return _texts(column)
    # Lists of texts, structs, times and the like are no scores: they are copied, if at all.
    inner = kind
    while types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner):
        inner = inner.value_type
    if inner != kind and types.is_primitive(inner):
        return _rows_of_lists(name, column, whole=types.is_integer(inner))
    values = column.to_numpy()
    if values.dtype.kind in "iufb":
        return values
    if types.is_decimal(kind):
        return np.array([float(value) for value in values.tolist()])
    return values.astype(object)


def _texts(column: ArrowColumn) -> np.ndarray:
    """Return a column that holds each text once, and which of them is where.

    Equal cells are so the same Python object: labels of ten classes take ten texts in each
    chunk, however many rows it has.
    """
    placed = [np.zeros(0, object)]
    for chunk in column.chunks:
        texts = np.array([str(text) for text in chunk.dictionary.to_pylist()], object)
        placed.append(texts[chunk.indices.to_numpy()])
    return np.concatenate(placed)


def _rows_of_lists(name: str, column: ArrowColumn, *, whole: bool) -> np.ndarray:
    """Return a column of lists of numbers, all of one length, as [N, K].

    Whole numbers may come in lists of different lengths, as tokens do: they are no scores.
    """
    from pyarrow import compute

    functions: Any = compute  # pyarrow makes them when it is imported
    lengths = functions.unique(functions.list_value_length(column)).to_pylist()
    if whole and len(lengths) > 1:
        return column.to_numpy()
    parts = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    if len(lengths) != 1 or any(part.dtype.kind not in "iufb" for part in parts):
        raise LevelheadError(
            f"the column {name!r} holds {column.type}; expected numbers, or lists of them of one length"
        )
    values = parts[0]
    if len(parts) > 1:  # a single part need not be copied
        values = np.concatenate(parts)
    return values.reshape(len(column), -1)


class Claims(NamedTuple):
    """What the columns of a file claim to hold."""

    values: int  # how many
    bytes: int  # that they take, uncompressed


def read_claims(path: Path) -> Claims:
    """Return what the columns of a .parquet file claim to hold, read from its footer.

    pyarrow's own way to ask for it ends the process on some damaged footers, where reading the
    columns raises an error. The footer is a struct of Thrift's compact protocol: row groups (4) ->
    columns (1) -> metadata (3) -> values (5), uncompressed bytes (6). The numbers in brackets are
    those of the fields in parquet.thrift: FileMetaData, RowGroup, ColumnChunk, ColumnMetaData.

    Raises:
        LevelheadError: there is no footer, or none of that form.
    """
    size = path.stat().st_size
    length = 0
    mark = b""
    if size >= 8:
        length, mark = struct.unpack("<I4s", bytes_at(path, size - 8, 8))
    if mark != b"PAR1" or length > size - 12:
        raise LevelheadError("not a sound .parquet file (it has no footer)")
    # length <= size - 12: the file begins with PAR1, too.
    footer = _Thrift(bytes_at(path, size - 8 - length, length))
    broken = "not a sound .parquet file (its footer is broken)"
    values = 0
    uncompressed = 0
    with reported_as(broken, LookupError, TypeError, RecursionError, ValueError):
        for group in footer.read(_STRUCT)[4]:
            for column in group[1]:
                values += column[3][5]
                uncompressed += column[3][6]
    return Claims(values, uncompressed)


class _Thrift:
    """Values of Thrift, one after another.

    A struct is {field: value}, a list a list, a text None: it is not needed. Nothing is allocated
    by what the footer says: a list is as long as there are bytes left at most, and a text is
    stepped over.

    Args:
        data: the footer.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0  # of the next byte

    def read(self, kind: int) -> Any:
        """Return the next value, which is of this kind.

        Raises:
            ValueError, IndexError: there is none.
            RecursionError: structs in structs, deeper than Python's stack.
        """
        if kind in (*_BOOLEANS, _BYTE):
            return self._byte()
        if kind in _INTEGERS:
            # Zigzag: 0, -1, 1, -2, ... are numbered 0, 1, 2, 3, ...
            number = self._varint()
            return number >> 1 ^ -(number & 1)
        if kind == _DOUBLE:
            self.at += 8
            return None
        if kind == _BINARY:
            length = self._varint()
            self.at += length
            return None
        if kind in _LISTS:
            return self._list()
        if kind == _STRUCT:
            return self._struct()
        raise ValueError(kind)  # a map, which no footer has, or none of Thrift's

    def _list(self) -> list[Any]:
        """Return a list.

        Its size and the kind of its items share a byte; a size of 15 or more follows by itself.
        """
        size, kind = divmod(self._byte(), 16)
        if size == 15:
            size = self._varint()
        if size > len(self.data) - self.at:  # each item takes a byte or more
            raise ValueError("a list that is longer than the footer")
        return [self.read(kind) for _ in range(size)]

    def _struct(self) -> dict[int, Any]:
        """Return a struct.

        Before each value is a byte: how much its number is above the last one's, and its kind. 0
        ends it.
        """
        fields = {}
        field = 0
        while head := self._byte():
            step, kind = divmod(head, 16)
            if step:
                field += step
            else:  # more than 15: the number itself follows
                field = self.read(_INTEGERS[0])
            if kind in _BOOLEANS:  # the kind is the value
                fields[field] = None
            else:
                fields[field] = self.read(kind)
        return fields

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        """Return a number of seven bits a byte, the lowest first.

        The highest bit of a byte says that more follow.
        """
        number = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a number of more than 64 bits")
