"""Where in an HDF5 file the numbers of its arrays lie. Links to other files are not followed."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..core.errors import LevelheadError
from ..core.extras import naming_what_is_missing
from .spans import Span

SIGNATURE = b"\x89HDF\r\n\x1a\n"
HDF5_DTYPES = {"<f8": "F64", "<f4": "F32", "<f2": "F16"}
DEEPEST = 100  # groups inside groups: more than any model has
MOST = 1_000_000  # arrays and groups


class _Part(io.RawIOBase):
    """A range of a file, as a file of its own, read only."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self.file, self.start, self.size, self.at = file, start, size, 0

    def readinto(self, buffer: Any) -> int:
        self.file.seek(self.start + self.at)
        data = self.file.read(max(0, min(len(buffer), self.size - self.at)))
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def hdf5_arrays(path: Path, start: int = 0, size: int | None = None) -> tuple[dict[str, Span], dict[str, str]]:
    """Return every array of an HDF5 file, and the name that groups state as their attribute `name`.

    An array that is not stored as plain bytes one after another has a dtype that says so.

    Args:
        path: the file, or one that has it inside.
        start, size: where the HDF5 file begins in it, and how long it is; the whole file if not given.

    Returns:
        {key: its place}, {group: name}.
    """
    with naming_what_is_missing():
        import h5py
    size = path.stat().st_size - start if size is None else size
    try:
        with path.open("rb") as file, h5py.File(_Part(file, start, size), "r") as opened:
            if opened.userblock_size:
                raise LevelheadError("expected HDF5 from the first byte on")
            found = list(_walk(opened, "", set(), 0))
            spans = {key: _span(path, key, one, start, size) for key, one in found if isinstance(one, h5py.Dataset)}
            return spans, {key: name for key, one in found if (name := _name(one)) is not None}
    except LevelheadError as error:
        raise LevelheadError(f"{path}: {error}; save the model again") from None
    except Exception as error:  # HDF5 raises OSError, RuntimeError, KeyError, ValueError, whatever is damaged
        reason = " ".join(str(error).split())[:200]
        raise LevelheadError(f"{path}: cut short, or not an HDF5 file ({reason}); save the model again") from None


def _walk(group: Any, prefix: str, seen: set[Any], depth: int) -> Iterator[tuple[str, Any]]:
    """Yield every group and array that a file itself holds, each once, with its key."""
    import h5py
    from h5py import h5o  # type: ignore[attr-defined]

    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue  # it leads elsewhere in the file, or to another file
        one, key = group[name], f"{prefix}{name}"
        place = h5o.get_info(one.id).addr
        if place in seen or depth > DEEPEST or len(seen) > MOST:
            raise LevelheadError(f"{key} is there twice, or too deep inside")
        seen.add(place)
        yield key, one
        if isinstance(one, h5py.Group):
            yield from _walk(one, f"{key}/", seen, depth + 1)


def _span(path: Path, key: str, array: Any, start: int, size: int) -> Span:
    import h5py

    kind = array.dtype.newbyteorder("<").str if array.dtype.str.startswith("=") else array.dtype.str
    stored = HDF5_DTYPES.get(kind, str(array.dtype))
    if kind == "|V2" and array.attrs.get("dtype") == "bfloat16":
        stored = "BF16"
    offset, layout = array.id.get_offset(), array.id.get_create_plist().get_layout()
    if layout != h5py.h5d.CONTIGUOUS or array.external or offset is None:
        return Span(key, path, 0, f"{stored}, not in one piece", tuple(array.shape))
    span = Span(key, path, start + offset, stored, tuple(array.shape), reach=array.nbytes)
    if offset + array.nbytes > size:
        raise LevelheadError(f"{key} lies outside the file")
    return span


def _name(one: Any) -> str | None:
    name = one.attrs.get("name")
    return name if isinstance(name, str) and name.isprintable() else None
