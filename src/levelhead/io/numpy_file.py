"""numpy's files, .npy and .npz.

Nothing in them is unpickled, and no header is believed before its size is checked.

An .npy file is the byte 0x93 and ``NUMPY``, two bytes of version, the length of the header (2 bytes
in version 1.0, else 4), the header, which is a Python dict such as ``{'descr': '<f8',
'fortran_order': False, 'shape': (100, 10), }`` padded with blanks, and then the numbers. An .npz
file is a zip archive of .npy files. The format is specified in `numpy.lib.format`.

A file may be damaged, or made to fill the memory: a header is parsed from at most as many bytes as
numpy reads, its shape is compared with the size of the file, and a compressed member may not claim
to become far more than it is (`check_expansion`).

`read_npy` and `read_npz` are the ways in; `read_or_map`, `check_expansion` and `text_array` serve
other formats too, and `parse_npy_header` the archives of MLX.
"""

import lzma
import math
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, Literal, NamedTuple
from warnings import catch_warnings
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy

from ..support.errors import LevelheadError, reported_as
from ..support.regular_file import bytes_at

# Bytes that a compressed array may always become; beyond, at most 100 times its size.
LARGEST_EXPANSION = 1 << 30
# Letters that an array of texts may always have room for; beyond, 100 times what they have.
WIDEST_TEXTS = 1 << 24
LARGEST_READ = 1 << 26  # bytes that are read at once; larger arrays are mapped
LONGEST_NPY_HEADER = 10_000  # bytes, as for numpy.load; most have 118
# What numpy raises for a damaged header; SystemError is of the tokenizer of Python 3.12.
_BROKEN_HEADER = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    SyntaxError,
    TokenError,
    RecursionError,
    MemoryError,
    SystemError,
)
# What the standard library raises for a damaged archive; OSError is bz2's, or of a place outside
# the archive.
BROKEN_ZIP = (
    BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    LookupError,
    RuntimeError,
    ArithmeticError,
    OSError,
)
DAMAGED_NPZ = "a damaged .npz file ({})"


def read_npy(path: Path) -> np.ndarray:
    """Return the array of an .npy file, memory-mapped if it is large.

    Raises:
        LevelheadError: it is empty, of another format, cut short, or holds Python objects, which
            only a pickle can store.
    """
    check_magic(path, ".npy")
    with path.open("rb") as file:
        header = _read_npy_header(file, path.name, path.stat().st_size)
    order = "F" if header.by_columns else "C"
    if 0 in header.shape:
        return np.empty(header.shape, header.dtype, order)
    return _as_text(read_or_map(path, header.dtype, header.length, header.shape, order))


def read_or_map(
    path: Path,
    dtype: np.dtype[Any] | str,
    offset: int,
    shape: tuple[int, ...],
    order: Literal["C", "F"] = "C",
) -> np.ndarray:
    """Return numbers of a file: read if they are few, memory-mapped if they are many.

    What is read is safe from whatever happens to the file afterwards, and what is mapped takes no
    memory of its own; `LARGEST_READ` (64 MiB) is where the second counts for more.

    Args:
        path: a file that is known to hold so many.
        dtype, shape, order: of the array; "F" is column by column.
        offset: of its first byte.
    """
    # A mapped file that becomes shorter ends the process. Of a large one, `support.read` checks the
    # size as it goes.
    kind = np.dtype(dtype)
    if math.prod(shape) * kind.itemsize > LARGEST_READ:
        return np.memmap(path, kind, "r", offset, shape, order)
    values = np.fromfile(path, kind, math.prod(shape), offset=offset)
    if values.size != math.prod(shape):
        raise LevelheadError(
            f"{path}: became shorter while it was read; try again when nothing writes to it"
        )
    return values.reshape(shape, order=order)


def read_npz(path: Path, name: str) -> np.ndarray:
    """Return one array of an .npz file.

    It is read whole: a member of an archive, even one that is not compressed, is not mapped. What
    the archive's directory and then the array's header claim is compared with the bytes that are
    stored before memory is asked for, and the check sum at the end tells a damaged member from a
    sound one.

    Args:
        path: of the archive.
        name: of the array, without `.npy`.
    """
    with reported_as(DAMAGED_NPZ, *BROKEN_ZIP), ZipFile(path) as archive:
        file_name = f"{name}.npy"
        if file_name not in archive.NameToInfo:  # numpy adds the suffix, others may not
            file_name = name
        member = archive.getinfo(file_name)
        # Both sizes are of the archive's directory, so that nothing is decompressed to know them.
        check_expansion(member.file_size, member.compress_size)
        with archive.open(member) as file:
            if file.read(6) != npy.MAGIC_PREFIX:
                raise LevelheadError(f"{name!r} is not an array of numpy")
            # The header is read before the numbers, since it may claim more than there are.
            file.seek(0)
            dtype = _read_npy_header(file, repr(name), member.file_size).dtype
            if dtype.kind == "S":  # as text, each byte takes four
                check_expansion(4 * member.file_size, member.compress_size)
            file.seek(0)
            values = npy.read_array(file, allow_pickle=False)
            file.read(1)  # at the end, the archive checks its sum
            return _as_text(values)


def names_in_npz(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz file."""
    check_magic(path, ".npz")
    with reported_as(DAMAGED_NPZ, *BROKEN_ZIP), ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def check_magic(path: Path, suffix: str) -> None:
    """Check the first bytes of a file, to name a format that has the suffix of another.

    A sound file under a wrong name needs no more than another name, so that the message says which.
    """
    first = bytes_at(path, 0, 6)
    if not first:
        raise LevelheadError("the file is empty")
    if first == npy.MAGIC_PREFIX:
        actual = ".npy"
    elif first.startswith(b"PK"):  # a zip archive
        actual = ".npz"
    else:
        raise LevelheadError(f"not an {suffix} file")
    if actual != suffix:
        raise LevelheadError(f"this is an {actual} file; rename it to end in {actual}")


def check_expansion(claimed: int, stored: int, most: int | None = None) -> None:
    """Check that compressed bytes do not claim to become enough to fill the memory.

    A byte of a zip archive can become a thousand. Sound arrays may compress that well, too, such as
    a million labels that are all 0, so that a ratio alone would refuse them: it counts only beyond
    `most` bytes.

    Args:
        claimed: bytes that they would become.
        stored: bytes that they are.
        most: bytes that are always allowed; beyond, at most 100 times what is stored. 1 GiB if
            None.

    Raises:
        LevelheadError: they claim more than both.
    """
    # Not a default of the parameter: the limit is looked up at each call.
    if most is None:
        most = LARGEST_EXPANSION
    if claimed > most and claimed > 100 * stored:
        claim = f"{stored} compressed bytes claim to hold {claimed}, which is refused"
        raise LevelheadError(f"{claim}; save them uncompressed, as .npy")


def text_array(cells: Sequence[str]) -> np.ndarray:
    """Return texts as an array.

    Each takes as much room as the longest, four bytes a letter: 20,000 names, and a single one of
    100,000 letters, would take 8 GB. If that is far more than they have, they are no names of
    classes, and refused.

    >>> text_array(["cat", "tiger"])
    array(['cat', 'tiger'], dtype='<U5')
    """
    widest = max(map(len, cells), default=0)
    letters = sum(map(len, cells))
    if widest * len(cells) > max(WIDEST_TEXTS, 100 * letters):
        raise LevelheadError(
            f"a text of {widest} letters among {len(cells)}; expected names of classes"
        )
    return np.array(cells, dtype=str)


class NpyHeader(NamedTuple):
    """What the header of an array says, and where its numbers begin."""

    shape: tuple[int, ...]
    by_columns: bool  # in Fortran's order
    dtype: np.dtype[Any]
    length: int  # of the header, in bytes


def parse_npy_header(data: bytes) -> NpyHeader:
    """Return the header that an array begins with, checked.

    Args:
        data: the first bytes; of more than numpy reads, the rest is left out.

    Raises:
        LevelheadError: numpy cannot parse it, its version is unknown, or its shape is none: an axis
            that is negative, no integer or beyond 2^62, or more than 32 axes.

    >>> file = BytesIO()
    >>> np.save(file, np.zeros((2, 3)))
    >>> parse_npy_header(file.getvalue())
    NpyHeader(shape=(2, 3), by_columns=False, dtype=dtype('float64'), length=128)
    """
    # 12: six bytes of magic, two of version, at most four of length.
    start = BytesIO(data[: LONGEST_NPY_HEADER + 12])
    with reported_as("its header is broken", *_BROKEN_HEADER):
        version = npy.read_magic(start)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise LevelheadError(f"unknown version {list(version)} of the .npy format")
        with catch_warnings(action="ignore", category=UserWarning):  # of files that Python 2 wrote
            # 3.0 is 2.0 in UTF-8.
            if version == (1, 0):
                read = npy.read_array_header_1_0
            else:
                read = npy.read_array_header_2_0
            shape, by_columns, dtype = read(start)
    # numpy takes True for an integer here, and before version 2 makes no array of more than 32
    # axes.
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in shape) or len(shape) > 32:
        raise LevelheadError(f"its header has the shape {shape!r}")
    return NpyHeader(shape, by_columns, dtype, start.tell())


def _read_npy_header(file: IO[bytes], name: str, size: int) -> NpyHeader:
    """Return the header of an array of numbers or text in so many bytes, checked.

    Args:
        file: open at its beginning.
        name: of the array, for the message.
        size: of the file or the member of an archive, in bytes: what the header claims must fit.
    """
    header = parse_npy_header(file.read(LONGEST_NPY_HEADER + 12))
    dtype = header.dtype
    shape = header.shape
    if dtype.hasobject:
        raise LevelheadError(
            "the file holds Python objects, perhaps lists of different lengths; save plain numbers"
        )
    if dtype.kind not in "biufcUS" or dtype.itemsize == 0:
        raise LevelheadError(f"expected numbers or text, got an array of {dtype}")
    claimed = header.length + dtype.itemsize * math.prod(shape)
    if claimed > size:
        raise LevelheadError(
            f"cut short: {name}, {dtype} {list(shape)}, needs {claimed} bytes, got {size}"
        )
    return header


def _as_text(values: np.ndarray) -> np.ndarray:
    """Return bytes as text, and other values as they are, after checking that text is text.

    numpy keeps texts as `S`, bytes of an unknown encoding, or as `U`, four bytes a letter. The
    first are taken for UTF-8; the second need a check of their own.
    """
    if values.dtype.kind == "S":
        damaged = "the file holds bytes that are not UTF-8; save plain numbers or text"
        with reported_as(damaged, UnicodeDecodeError):
            return np.char.decode(values, "utf-8")
    if values.dtype.kind == "U":
        # numpy holds four bytes for each letter, and believes them: beyond Unicode, or a surrogate
        # of UTF-16, they would fail wherever the text is used first.
        byte_order = values.dtype.byteorder.replace("=", "<").replace("|", "<")
        codes = np.ascontiguousarray(values).view(f"{byte_order}u4")
        is_surrogate = (codes >= 0xD800) & (codes < 0xE000)
        if ((codes > 0x10FFFF) | is_surrogate).any():
            raise LevelheadError("the file holds text that is not Unicode")
    return values
