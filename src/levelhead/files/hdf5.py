"""Where the arrays of an HDF5 file of Keras lie, every offset checked: the HDF5 library crashes on some damaged files.

Reference: The HDF Group, HDF5 File Format Specification, version 3.0.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from struct import calcsize, error, unpack_from
from typing import BinaryIO

from ..support.errors import LevelheadError
from .spans import Span

SIGNATURE = b"\x89HDF\r\n\x1a\n"
UNDEFINED = 2**64 - 1
MOST_READS = 2_000_000  # of pieces of the file: more than any model has
DEEPEST = 100  # groups inside groups
LONGEST_PIECE = 1 << 24  # bytes of anything but numbers
LONGEST_NAME = 1 << 12  # letters of an object and all groups around it
# Numbers by (bytes, precision, where the exponent is, its size, where the mantissa is, its size, the exponent's bias).
HDF5_FLOATS: dict[tuple[int, ...], str] = {
    (2, 16, 10, 5, 0, 10, 15): "F16",
    (4, 32, 23, 8, 0, 23, 127): "F32",
    (8, 64, 52, 11, 0, 52, 1023): "F64",
}
# The kinds of message that are read.
KINDS = SPACE, TYPE, EXTERNAL, LAYOUT, ATTRIBUTE, CONTINUATION, TABLE = (
    0x1,
    0x3,
    0x7,
    0x8,
    0xC,
    0x10,
    0x11,
)


def hdf5_arrays(
    path: Path, start: int = 0, size: int | None = None
) -> tuple[dict[str, Span], dict[str, str]]:
    """Return every array of an HDF5 file, and the name that groups state as their attribute `name`."""
    with path.open("rb") as file:
        reader = _Reader(file, start, path.stat().st_size - start if size is None else size)
        try:
            signature, version, _, sizes = reader.numbers(0, "8sB4s2s")
            if signature != SIGNATURE or version != 0 or sizes != b"\x08\x08":
                raise LevelheadError("expected HDF5 with a superblock of version 0")
            base, _, end, _, _, root = reader.numbers(24, "6Q")
            if base != 0 or end > reader.size:
                raise LevelheadError(f"expected {end} bytes, got {reader.size}")
            found = list(_walk(reader, _messages(reader, root), "", 0))
            spans = {key: _span(reader, path, key, one) for key, one in found if SPACE in one}
            names = {
                key: name
                for key, one in found
                if (name := _attribute(reader, one, "name")) is not None
            }
        except (LevelheadError, error, UnicodeDecodeError, OverflowError) as flaw:
            raise LevelheadError(
                f"{path}: cut short, or not HDF5 as Keras writes it ({flaw}); save it again"
            ) from None
    return spans, names


Messages = dict[int, list[bytes]]  # of an object, by kind


@dataclass
class _Reader:
    """A range of a file, read in pieces: not too many, and all together not much more than the file."""

    file: BinaryIO
    start: int
    size: int
    reads: int = 0
    taken: int = 0  # bytes so far, and letters of names
    seen: set[int] = field(default_factory=set)  # blocks of object headers: none may be there twice
    # By place: where each text lies.
    heaps: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def read(self, at: int, length: int) -> bytes:
        self.reads += 1
        if (
            not 0 <= at <= at + length <= self.size
            or length > LONGEST_PIECE
            or self.reads > MOST_READS
        ):
            raise LevelheadError(f"no {length} bytes at {at}")
        self.take(length)
        self.file.seek(self.start + at)
        return self.file.read(length)

    def take(self, length: int) -> None:
        """Count bytes that are kept; a file whose parts overlap would otherwise grow without end."""
        self.taken += length
        if self.taken > 2 * self.size + (1 << 16):
            raise LevelheadError("its parts overlap")

    def numbers(self, at: int, form: str) -> tuple:
        return unpack_from(f"<{form}", self.read(at, calcsize(f"<{form}")))

    def block(self, at: int, mark: bytes, form: str) -> tuple:
        """Return the numbers after the four letters that begin a block."""
        if self.read(at, 4) != mark:
            raise LevelheadError(f"no {mark.decode()} at {at}")
        return self.numbers(at + 4, form)


def _walk(
    reader: _Reader, group: Messages, prefix: str, depth: int
) -> Iterator[tuple[str, Messages]]:
    """Yield every group and array below a group with its key, and what its header says."""
    if depth > DEEPEST:
        raise LevelheadError("its groups are too deep")
    for name, at in _members(reader, group):
        key = f"{prefix}{name}"
        one = _messages(reader, at)
        if len(key) > LONGEST_NAME:
            raise LevelheadError(f"a name of {len(key)} letters")
        reader.take(len(key))
        yield key, one
        if TABLE in one:
            yield from _walk(reader, one, f"{key}/", depth + 1)
        elif SPACE not in one:
            raise LevelheadError(f"{key} is neither an array nor a group as a symbol table")


def _messages(reader: _Reader, at: int) -> Messages:
    """Return the messages in the header of an object, by kind."""
    version, _, count, _, length = reader.numbers(at, "BBHII")
    if version != 1:
        raise LevelheadError(f"expected an object header of version 1, got {version}")
    found: Messages = {}
    blocks = [(at + 16, length)]
    for place, size in blocks:  # which grows by continuations
        if place in reader.seen:
            raise LevelheadError(f"the header at {place} is there twice")
        reader.seen.add(place)
        data, i = reader.read(place, size), 0
        while i + 8 <= size and count > 0:
            kind, length, _ = unpack_from("<HHB", data, i)
            body = data[i + 8 : i + 8 + length]
            i, count = i + 8 + length, count - 1
            if kind in KINDS:
                found.setdefault(kind, []).append(body)
            if kind == CONTINUATION:
                blocks.append(unpack_from("<2Q", body))
    return found


def _members(reader: _Reader, group: Messages) -> Iterator[tuple[str, int]]:
    """Yield the name and the header of every object in a group; links have no header, and are left out."""
    if TABLE not in group:
        raise LevelheadError("expected a group as a symbol table")
    tree, heap = unpack_from("<2Q", group[TABLE][0])
    _, size, _, texts = reader.block(heap, b"HEAP", "IQQQ")
    names = reader.read(texts, size)
    waiting, visited = [tree], set()
    while waiting:
        at = waiting.pop()
        if at in visited:
            raise LevelheadError(f"the node at {at} is there twice")
        visited.add(at)
        if reader.read(at, 4) == b"SNOD":
            _, _, count = reader.block(at, b"SNOD", "BBH")
            for i in range(count):
                name, header, kind = reader.numbers(at + 8 + 40 * i, "QQI")
                if kind != 2:
                    end = names.find(b"\0", name, name + LONGEST_NAME)
                    if end < 0:
                        raise LevelheadError(f"no name at {name}")
                    yield names[name:end].decode(), header
        else:
            kind, _, count, _, _ = reader.block(at, b"TREE", "BBHQQ")
            if kind != 0:
                raise LevelheadError(f"expected the node of a group at {at}")
            waiting += [reader.numbers(at + 24 + 8 + 16 * i, "Q")[0] for i in range(count)][::-1]


def _span(reader: _Reader, path: Path, key: str, array: Messages) -> Span:
    version, rank, _, kind = unpack_from("<4B", array[SPACE][0])
    if version not in (1, 2) or rank > 32 or (version == 2 and kind > 1):
        raise LevelheadError("an array has a shape of an unknown kind")
    shape = tuple(unpack_from(f"<{rank}Q", array[SPACE][0], 8 if version == 1 else 4))
    dtype, width = _dtype(array.get(TYPE, [b""])[0])
    if dtype == "opaque" and _attribute(reader, array, "dtype") == "bfloat16" and width == 2:
        dtype = "BF16"
    layout = array.get(LAYOUT, [b""])[0]
    if len(layout) < 18 or layout[0] not in (3, 4) or layout[1] != 1 or EXTERNAL in array:
        return Span(key, path, 0, f"{dtype}, not in one piece", shape)
    at, length = unpack_from("<2Q", layout, 2)
    if at == UNDEFINED:
        return Span(key, path, 0, f"{dtype}, without data", shape)
    if length != prod(shape) * width or at + length > reader.size:
        raise LevelheadError(f"{key} lies outside the file, or is not of its shape")
    return Span(key, path, reader.start + at, dtype, shape, reach=length)


def _dtype(form: bytes) -> tuple[str, int]:
    """Return the dtype as safetensors calls it, or a word for messages, and the bytes of one number."""
    kind, order, _, _, width = unpack_from("<4BI", form)
    if kind & 15 == 1 and not order & 0x41:  # a float, little-endian
        offset, *rest = unpack_from("<2H4BI", form, 8)
        known = None
        if offset == 0:
            known = HDF5_FLOATS.get((width, *rest))
        return known or f"floats of {width} bytes", width
    words = {0: f"int{8 * width}", 1: "big-endian floats", 5: "opaque"}
    return words.get(kind & 15, f"numbers of class {kind & 15}"), width


def _attribute(reader: _Reader, one: Messages, wanted: str) -> str | None:
    """Return the text of an attribute of an object, or None if it has none of that name, or no text in it."""
    for body in one.get(ATTRIBUTE, ()):
        version, _, *sizes = unpack_from("<BBHHH", body)
        if version not in (1, 2, 3):
            continue
        at, parts = 8 + (version == 3), []
        for size in sizes:  # of the name, the type and the space
            parts.append(body[at : at + size])
            at += (size + 7) // 8 * 8 if version == 1 else size
        name, form, _ = parts
        if name.rstrip(b"\0") != wanted.encode() or len(form) < 8:
            continue
        kind = form[0] & 15
        width = unpack_from("<I", form, 4)[0]
        if kind == 3 or (kind == 9 and form[1] & 15 == 1):  # of a fixed length, or in a heap
            data = None
            if kind == 3:
                data = body[at : at + width].rstrip(b"\0 ")
            text = (
                _heap_text(reader, *unpack_from("<IQI", body, at)) if data is None else data
            ).decode()
            return text if text.isprintable() else None
    return None


def _heap_text(reader: _Reader, length: int, collection: int, wanted: int) -> bytes:
    """Return a text of variable length, out of the heap that it is in."""
    if collection not in reader.heaps:
        reader.heaps[collection] = {}
        _, size = reader.block(collection, b"GCOL", "IQ")
        at = collection + 16
        end = min(collection + size, reader.size)
        # 0 is the number of what is free.
        while at + 16 <= end and (entry := reader.numbers(at, "HHIQ"))[0]:
            reader.heaps[collection][entry[0]] = at + 16, entry[3]
            at += 16 + (entry[3] + 7) // 8 * 8
    if wanted not in reader.heaps[collection]:
        raise LevelheadError(f"no text {wanted} in the heap at {collection}")
    at, taken = reader.heaps[collection][wanted]
    return reader.read(at, min(length, taken))
