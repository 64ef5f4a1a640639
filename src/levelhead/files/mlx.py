"""Heads in weights of MLX (`.npz`), as `Module.save_weights` and `mlx.core.savez` write them.

The file is a zip of arrays. Each record is a file of numpy (`NAME.npy`): a header that says dtype
and shape, then the numbers. The head is found among them by name and shape, as in a state dict,
since MLX calls weights and biases as torch does. MLX takes every record for an array, so that a
note cannot be one: it lies before the list of records, where no reader of zips looks
(note_behind.py).

    _open: the zip -> `ArchiveOfArrays`, its structure checked
    _arrays: its records -> {name: Span}
    find_layers (find.py) -> the head

Reference: numpy.lib.format, for the header of an array.
"""

from math import prod
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipInfo

from ..heads.notes import Note
from ..io.numpy_file import parse_npy_header
from ..support.errors import LevelheadError, in_file, reported_as
from ..support.regular_file import bytes_at, check_regular_file
from .find import find_layers
from .format import Reader
from .located import LocatedHead
from .note_behind import encode_note, find_note, read_note
from .spans import Span
from .zip import Archive

ARRAY = ".npy"  # how the names of its records end
LONGEST_HEADER = 1 << 14  # bytes before the numbers of an array; numpy reads no more
MLX_DTYPES = {"<f8": "F64", "<f4": "F32", "<f2": "F16", "|V2": "BF16"}  # numpy has no bfloat16


class ArchiveOfArrays(Archive):
    """A zip whose records are arrays, with a note before its list of records.

    `Archive` asks for three things that differ here: where the tail begins that is written anew,
    what the note is, and which bytes it becomes.
    """

    @property
    def tail_at(self) -> int:
        """Where the file changes if it gets a note: from an earlier one, or the list, on."""
        return find_note(self.path, self.start).start

    @property
    def note(self) -> dict[str, Any] | None:
        """The note before the list of records, or None."""
        return read_note(self.path, find_note(self.path, self.start))

    def encode_note(self, note: Note, at: int) -> tuple[bytes, bytes]:
        """Return the bytes of a note, and none for its entry in the list, which it does not have.

        Args:
            note: what to record; an empty one has no bytes.
            at: where it will begin, which does not matter here.
        """
        return encode_note(note), b""


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head among the arrays of a file: by a known name, or as the only one that fits.

    Args:
        path, named, classes: as in `FindHead`.
    """
    stamp = check_regular_file(path, "weights of MLX")
    archive = _open(path)
    layers = find_layers(path, _arrays(archive), named=named, classes=classes)
    return LocatedHead(path, layers, {path: stamp}, archive.complete, archive.note)


def _open(path: Path) -> ArchiveOfArrays:
    damaged = "cut short, or not weights of MLX ({}); save them again"
    with in_file(path), reported_as(damaged, BadZipFile):
        return ArchiveOfArrays(path, in_folder=False)


def _arrays(archive: Archive) -> dict[str, Span]:
    """Return every array by its name.

    A record that is no array, such as one of somebody's own, is passed over and copied as it is.

    Raises:
        LevelheadError: a header is damaged, an array is compressed, or has not the numbers it says.
    """
    records = [record for record in archive.records if record.filename.endswith(ARRAY)]
    damaged = "{}; save the weights again"
    with in_file(archive.path), reported_as(damaged, ValueError):
        spans = [_span(archive, record) for record in records]
    return {span.key: span for span in spans}


def _span(archive: Archive, record: ZipInfo) -> Span:
    """Return where the numbers of an array are: behind its header, which says what they are.

    Args:
        archive, record: the file, and the array in it, which must be stored as it is.

    Returns:
        Its place. numpy has no bfloat16, so that MLX writes two bytes without a meaning (`|V2`),
        which are taken for it. An array that lies column by column has a dtype that says so, and is
        refused only if it is the head.
    """
    key = record.filename.removesuffix(ARRAY)
    path = archive.path
    if not archive.is_plain(record):
        raise LevelheadError(
            f"{path}: {key} is compressed; save the weights by save_weights or savez"
        )
    at = archive.data_at[record.filename]
    # No more bytes are read than numpy allows a header to have.
    header = parse_npy_header(bytes_at(path, at, min(record.file_size, LONGEST_HEADER)))
    shape = header.shape
    size = record.file_size - header.length
    if header.dtype.hasobject or size != prod(shape) * header.dtype.itemsize:
        expected = f"expected {list(shape)} numbers of {header.dtype} for {key}"
        raise LevelheadError(f"{path}: {expected}, got {size} bytes; save the weights again")
    # Types that a head cannot have keep the name that numpy gives them, for messages.
    name = MLX_DTYPES.get(header.dtype.str, str(header.dtype))
    if header.by_columns and len(shape) > 1:
        name = f"{name}, column by column"
    return Span(key, path, at + header.length, name, shape)


READER = Reader(_find, note=lambda path: _open(path).note, check=lambda path: _arrays(_open(path)))
