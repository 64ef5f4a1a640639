"""numpy's files, .npy and .npz, read without `numpy.load`: nothing in them is unpickled, and no header is believed.

A large .npy file is mapped. An array of an .npz file is as long as both its header and the archive say.
"""

import ast
import lzma
import math
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Literal
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np

from ..core.errors import LevelheadError

LARGEST_EXPANSION = 1 << 30  # bytes that a compressed array may always become; beyond, at most 100 times its size
LARGEST_READ = 1 << 26  # bytes that are read at once; larger arrays are mapped
LONGEST_NPY_HEADER = 1 << 16  # bytes; ours have 118
BROKEN_ZIP = (  # what the standard library raises for a damaged archive
    BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    OSError,  # bz2's, and of a place outside the file
)


def read_npy(path: Path) -> np.ndarray:
    """Return the array of an .npy file, memory-mapped if it is large."""
    check_magic(path, ".npy")
    with path.open("rb") as file:
        shape, fortran, dtype = _read_npy_header(file)
        offset = file.tell()
    _check_length(path.name, shape, dtype, offset, path.stat().st_size)
    order = "F" if fortran else "C"
    if 0 in shape:
        return np.empty(shape, dtype, order)
    return _as_text(read_or_map(path, dtype, offset, shape, order))


def read_or_map(
    path: Path, dtype: Any, offset: int, shape: tuple[int, ...], order: Literal["C", "F"] = "C"
) -> np.ndarray:
    """Return numbers of a file: read if they are few, memory-mapped if they are many.

    A mapped file that becomes shorter ends the process, whatever it was doing. Of a large one, `gamma.chunks` checks
    the size as it goes.

    Args:
        path: of the file.
        dtype: of the numbers.
        offset: of their first byte.
        shape: of the array.
        order: in which they lie in the file.
    """
    kind = np.dtype(dtype)
    if math.prod(shape) * kind.itemsize > LARGEST_READ:
        return np.memmap(path, kind, "r", offset, shape, order)
    values = np.fromfile(path, kind, math.prod(shape), offset=offset)
    if values.size != math.prod(shape):
        raise LevelheadError(f"{path}: became shorter while it was read; try again when nothing writes to it")
    return values.reshape(shape, order=order)


def read_npz(path: Path, name: str) -> np.ndarray:
    """Return one array of an .npz file."""
    try:
        with ZipFile(path) as archive:
            member = archive.getinfo(f"{name}.npy" if f"{name}.npy" in archive.NameToInfo else name)
            check_expansion(member.file_size, member.compress_size)
            with archive.open(member) as file:
                return _as_text(_read_member(file, member, name))  # type: ignore[arg-type]
    except LevelheadError:
        raise
    except BROKEN_ZIP as error:
        raise _damaged(error) from None


def names_in_npz(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz file."""
    check_magic(path, ".npz")
    try:
        with ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except BROKEN_ZIP as error:
        raise _damaged(error) from None


def check_magic(path: Path, suffix: str) -> None:
    """Check the first bytes of a file, to name a format that has the suffix of another."""
    with path.open("rb") as file:
        first = file.read(6)
    actual = ".npy" if first == b"\x93NUMPY" else ".npz" if first.startswith(b"PK") else None
    if actual is None:
        raise LevelheadError(f"not an {suffix} file" if first else "the file is empty")
    if actual != suffix:
        raise LevelheadError(f"this is an {actual} file; rename it to end in {actual}")


def check_expansion(claimed: int, stored: int, most: int | None = None) -> None:
    """Check that compressed bytes do not claim to become so many that they are meant to fill the memory."""
    if claimed > (LARGEST_EXPANSION if most is None else most) and claimed > 100 * stored:
        raise LevelheadError(
            f"{stored} compressed bytes claim to hold {claimed}, which is refused; save them uncompressed, as .npy"
        )


def _read_member(file: BinaryIO, member: ZipInfo, name: str) -> np.ndarray:
    if file.read(6) != b"\x93NUMPY":
        raise LevelheadError(f"{name!r} is not an array of numpy")
    file.seek(0)
    shape, fortran, dtype = _read_npy_header(file)
    _check_length(repr(name), shape, dtype, file.tell(), member.file_size)
    values = np.empty(math.prod(shape), dtype)
    view, at = values.view(np.uint8) if values.size else np.empty(0, np.uint8), 0
    while at < len(view):
        chunk = file.read(min(1 << 24, len(view) - at))
        if not chunk:
            raise LevelheadError(f"cut short: {name!r} ends after {at} of {len(view)} bytes")
        view[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
        at += len(chunk)
    file.read(1)  # at the end, the archive checks its sum
    return values.reshape(shape, order="F" if fortran else "C")


def _read_npy_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and dtype, checked; the file then stands at the first number."""
    version = file.read(8)[6:]
    size = 2 if version[:1] == b"\x01" else 4
    if version not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise LevelheadError(f"unknown version {list(version)} of the .npy format")
    length = int.from_bytes(file.read(size), "little")
    if length > LONGEST_NPY_HEADER:
        raise LevelheadError(f"its header claims {length} bytes")
    text = file.read(length)
    try:
        header = ast.literal_eval(text.decode("utf-8" if version[0] == 3 else "latin-1"))
        shape, fortran, descr = header["shape"], header["fortran_order"], header["descr"]
        dtype = np.dtype(descr) if isinstance(descr, str) else np.lib.format.descr_to_dtype(descr)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, SyntaxError, RecursionError, MemoryError):
        raise LevelheadError("its header is broken") from None
    if dtype.hasobject:
        raise LevelheadError("the file holds Python objects, perhaps lists of different lengths; save plain numbers")
    if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape) or len(shape) > 32:
        raise LevelheadError(f"its header has the shape {shape!r}")
    if dtype.kind not in "biufcUS" or dtype.itemsize == 0:
        raise LevelheadError(f"expected numbers or text, got an array of {dtype}")
    return shape, bool(fortran), dtype


def _check_length(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int, size: int) -> None:
    claimed = offset + dtype.itemsize * math.prod(shape)
    if claimed > size:
        raise LevelheadError(f"cut short: {name}, {dtype} {list(shape)}, needs {claimed} bytes, got {size}")


def _as_text(values: np.ndarray) -> np.ndarray:
    """Return bytes as text, and other values as they are, after checking that text is text."""
    if values.dtype.kind == "S":
        try:
            return np.char.decode(values, "utf-8")
        except UnicodeDecodeError:
            raise LevelheadError("the file holds bytes that are not UTF-8; save plain numbers or text") from None
    if values.dtype.kind == "U":
        codes = np.ascontiguousarray(values).view(values.dtype.byteorder.replace("=", "<").replace("|", "<") + "u4")
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise LevelheadError("the file holds text that is not Unicode")
    return values


def _damaged(error: Exception) -> LevelheadError:
    return LevelheadError(f"a damaged .npz file ({str(error) or type(error).__name__})")
