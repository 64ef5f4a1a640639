"""Arrays and tables written a part at a time, and in one step.

A file appears only once it is whole.

`write_parts` opens the `PartWriter` of a format. Tables are written as rows come; arrays say first
how many rows there are, so that their rows wait in a file without a name until all are there. A new
format is a class and a line in `WRITERS`.
"""

from __future__ import annotations

import csv
import json
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, TypeAlias
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy

from ..support import atomic
from ..support.errors import LevelheadError
from ..support.extras import install_command
from .safetensors_file import NUMPY_DTYPES

ParquetWriter: TypeAlias = Any  # pyarrow's, which is imported only where a file needs it
Others = Mapping[str, np.ndarray]  # {title: [n]}, columns of a table that are copied


class PartWriter:
    """Something that takes rows, part by part.

    `write_parts` makes one, its caller calls `write` for each part, and then `finish` is called, or
    `give_up` if anything went wrong. Formats override these three.

    Args:
        file: to write into.
        waiting: a file without a name, for rows that have to wait until all are there.
        path: the name that the file will have.
        key: what the array is called in a file of several.
        titles: of its columns, in a table.
    """

    def __init__(
        self, file: BinaryIO, waiting: BinaryIO, path: Path, key: str, titles: Sequence[str]
    ):
        self.file = file
        self.waiting = waiting
        self.path = path
        self.key = key
        self.titles = list(titles)

    @abstractmethod
    def write(self, rows: np.ndarray, others: Others) -> None:
        """Write rows [n, K] or [n]; of a table, after its other columns.

        Args:
            rows: of one dtype and width in all parts.
            others: {title: [n]}, columns to copy; formats of arrays have no place for them.
        """

    @abstractmethod
    def finish(self) -> None:
        """Write what is missing at the end."""

    def give_up(self) -> None:
        """Let go of what is open, as the file will not be needed."""

    def columns(self, rows: np.ndarray, others: Others) -> dict[str, np.ndarray]:
        """Return the columns of a table, by title: the copied ones, then those of the rows.

        Raises:
            LevelheadError: a copied column is called as one that is written.
        """
        table = rows if rows.ndim == 2 else rows[:, None]
        written = dict(zip(self.titles, table.T, strict=True))
        for title in written:
            if title in others:
                twice = f"two columns would be called {title!r}"
                raise LevelheadError(f"{self.path}: {twice}; rename that column")
        return {**others, **written}


class _ArrayWriter(PartWriter):
    """A format that says first how many rows there are.

    Rows go into `waiting` as plain bytes. `finish` then knows dtype and shape, writes the header
    and copies the bytes behind it, so that no more than one part is ever in memory.
    """

    dtype: np.dtype[Any] = np.dtype(np.float64)  # of the rows
    shape: tuple[int, ...] = (0,)  # of those that wait

    def write(self, rows: np.ndarray, others: Others) -> None:
        self.dtype = rows.dtype
        self.shape = (self.shape[0] + len(rows), *rows.shape[1:])
        self.waiting.write(np.ascontiguousarray(rows).data)

    def finish(self) -> None:
        self.waiting.seek(0)
        self.save()

    @abstractmethod
    def save(self) -> None:
        """Write the file from what waits."""

    def save_npy(self, file: IO[bytes]) -> None:
        """Write an .npy file: a header that says how many rows came, then the rows that wait."""
        descr = npy.dtype_to_descr(self.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": self.shape}
        npy.write_array_header_2_0(file, header)
        shutil.copyfileobj(self.waiting, file)


class _Npy(_ArrayWriter):
    """numpy's format for one array: a header, then its numbers row by row."""

    def save(self) -> None:
        self.save_npy(self.file)


class _Npz(_ArrayWriter):
    """An .npy file in a zip archive, under the key; not compressed.

    So the rows that wait are copied, at the speed of the disk.
    """

    def save(self) -> None:
        name = f"{self.key}.npy"
        # Zip64 from the start, since the size is not known while it is written.
        with (
            ZipFile(self.file, "w") as archive,
            archive.open(name, "w", force_zip64=True) as member,
        ):
            self.save_npy(member)


class _Safetensors(_ArrayWriter):
    """A header of JSON, then the numbers: always little-endian.

    The layout is that of safetensors_file.py, with one tensor, so that its bytes begin at 0.
    """

    def write(self, rows: np.ndarray, others: Others) -> None:
        if rows.dtype.kind not in "fiu":
            raise LevelheadError(f"{self.path}: safetensors holds numbers only; write a .npy file")
        super().write(rows.astype(rows.dtype.newbyteorder("<"), copy=False), others)

    def save(self) -> None:
        names = {np.dtype(kind): name for name, kind in NUMPY_DTYPES.items() if name != "BF16"}
        entry = {
            "dtype": names[self.dtype],
            "shape": list(self.shape),
            "data_offsets": [0, self.waiting.seek(0, 2)],
        }
        self.waiting.seek(0)
        header = json.dumps({self.key: entry}).encode()
        header += b" " * (-len(header) % 8)  # so that the numbers begin at a multiple of 8
        self.file.write(len(header).to_bytes(8, "little") + header)
        shutil.copyfileobj(self.waiting, self.file)


class _Text(PartWriter):
    """Cells with a comma or, in a .tsv file, a tab between them.

    The first row is titles. Numbers are written as Python writes them, by which they are read back
    exactly, and copied cells as they were.
    """

    def __init__(
        self, file: BinaryIO, waiting: BinaryIO, path: Path, key: str, titles: Sequence[str]
    ):
        super().__init__(file, waiting, path, key, titles)
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        self.text = TextIOWrapper(file, encoding="utf-8", newline="")
        self.rows = csv.writer(self.text, delimiter=separator, lineterminator="\n")
        self.titled = False

    def write(self, rows: np.ndarray, others: Others) -> None:
        columns = self.columns(rows, others)
        if not self.titled:
            self.rows.writerow(columns)
            self.titled = True
        self.rows.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))

    def finish(self) -> None:
        self.text.flush()
        self.text.detach()  # else the file would be closed before it gets its name


class _Parquet(PartWriter):
    """Columns by pyarrow, a row group for each part.

    The schema is that of the first part; rows of another dtype would be refused by pyarrow.
    """

    writer: ParquetWriter = None  # it needs a schema, which the first rows have

    def write(self, rows: np.ndarray, others: Others) -> None:
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ImportError:
            needs = f"{self.path}: writing .parquet needs pyarrow"
            raise ImportError(f"{needs}; {install_command('parquet')}") from None
        columns = self.columns(rows, others)
        table = arrow.table({title: arrow.array(values) for title, values in columns.items()})
        if self.writer is None:
            self.writer = parquet.ParquetWriter(self.file, table.schema)
        self.writer.write_table(table)

    def finish(self) -> None:
        self.writer.close()

    def give_up(self) -> None:
        if self.writer is not None:
            self.writer.close()


WRITERS: dict[str, type[PartWriter]] = {
    ".npy": _Npy,
    ".npz": _Npz,
    ".safetensors": _Safetensors,
    ".csv": _Text,
    ".tsv": _Text,
    ".parquet": _Parquet,
}


def check_written_format(path: Path) -> None:
    """Raise LevelheadError unless a file of this name can be written."""
    if path.suffix.lower() not in WRITERS:
        known = ", ".join(WRITERS)
        raise LevelheadError(f"{path}: expected {known}, got {path.suffix or 'no suffix'}")


@contextmanager
def write_parts(
    path: Path, *, key: str, titles: Sequence[str], new: bool = False
) -> Iterator[PartWriter]:
    """Open a file to be written part by part; it appears when the block ends without an error.

    Args:
        path: of any format in `WRITERS`.
        key: what the array is called in a file of several.
        titles: of the columns, in a table.
        new: whether to replace no file.

    Raises:
        LevelheadError: of an unknown format, or at the path is a folder or a device.
        OutputExists: `new`, and there is a file.
    """
    check_written_format(path)
    # The waiting rows are in the folder of the file: /tmp may be small, or in memory.
    with atomic.atomic_open(path, new=new) as file, TemporaryFile(dir=path.parent) as waiting:
        writer = WRITERS[path.suffix.lower()](file, waiting, path, key, titles)
        # Of whatever kind: an interrupted write must leave nothing open, and no file.
        try:
            yield writer
        except BaseException:
            writer.give_up()
            raise
        writer.finish()
