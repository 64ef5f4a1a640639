"""Where the arrays of an HDF5 file of Keras lie, every offset checked.

Not by the HDF5 library, which loops forever or crashes on some damaged files.

An HDF5 file is a tree of groups and arrays, each of which begins with an object header: a list of
messages. Those that are read say an array's shape (SPACE), its numbers (TYPE) and where they lie
(LAYOUT), an object's attributes, and where a group keeps its members (TABLE). h5py writes groups in
the oldest way, as symbol tables: a B-tree of nodes, and a heap of names that they point into.

    hdf5_arrays: superblock -> root group
        _walk: group -> _members (TREE -> SNOD -> name, header) -> _messages of each -> groups in it
        _span: messages of an array -> a `Span`
        _attribute: messages of a group -> the name of the layer that Keras states there

The blocks that are read, all numbers little-endian, offsets (o) and lengths (l) of 8 bytes:

    superblock 0  signature 8, version 1, others 4, sizes of o and l 2, ... at 24: base o, free o,
                  end o, driver o, name o, header of the root group o
    header 1      version 1, - 1, messages 2, uses 4, length 4, - 4; then messages
    message       kind 2, length 2, flags 1, - 3; then its body
    TREE          mark 4, kind 1, level 1, entries 2, left o, right o; then key l, child o, key l...
    SNOD          mark 4, version 1, - 1, entries 2; then of 40 each: name o, header o, kind 4, - 20
    HEAP          mark 4, version 4, length l, free o, names o
    GCOL          mark 4, version 4, length l; then number 2, uses 2, - 4, length l and the text

A damaged or hostile file may point anywhere. So nothing is read outside of it, no header twice, and
all pieces together may not be much longer than the file (`_Reader`).

Reference: The HDF Group, HDF5 File Format Specification, version 3.0.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from struct import calcsize, error, unpack_from
from typing import BinaryIO, NamedTuple

from ..support.errors import LevelheadError
from .spans import Span

SIGNATURE = b"\x89HDF\r\n\x1a\n"
UNDEFINED = 2**64 - 1  # an offset that leads nowhere
MOST_READS = 2_000_000  # of pieces of the file: more than any model has
DEEPEST = 100  # groups inside groups
LONGEST_PIECE = 1 << 24  # bytes of anything but numbers
LONGEST_NAME = 1 << 12  # letters of an object and all groups around it
# Numbers by (bytes, precision, where the exponent is, its size, where the mantissa is, its size,
# the exponent's bias).
HDF5_FLOATS: dict[tuple[int, ...], str] = {
    (2, 16, 10, 5, 0, 10, 15): "F16",
    (4, 32, 23, 8, 0, 23, 127): "F32",
    (8, 64, 52, 11, 0, 52, 1023): "F64",
}

# The kinds of message that are read.
_SPACE = 0x1
_TYPE = 0x3
_EXTERNAL = 0x7
_LAYOUT = 0x8
_ATTRIBUTE = 0xC
_CONTINUATION = 0x10
_TABLE = 0x11
_KINDS = (_SPACE, _TYPE, _EXTERNAL, _LAYOUT, _ATTRIBUTE, _CONTINUATION, _TABLE)

# Classes of types.
_INTEGER = 0
_FLOAT = 1
_TEXT = 3
_OPAQUE = 5
_VARIABLE_LENGTH = 9

_SOFT_LINK = 2  # the kind of a member that is only a path to another

Messages = dict[int, list[bytes]]  # of an object, by kind


def hdf5_arrays(
    path: Path, start: int = 0, size: int | None = None
) -> tuple[dict[str, Span], dict[str, str]]:
    """Return every array of an HDF5 file, and the name that groups state as their attribute `name`.

    Args:
        path: the file.
        start, size: where in it the HDF5 file is, where it is a part of another, as in a zip.

    Returns:
        Arrays by key, such as `layers/dense/vars/0`, and names by the key of their group.

    Raises:
        LevelheadError: the file is damaged, or of another version than h5py writes by default.
    """
    with path.open("rb") as file:
        if size is None:
            size = path.stat().st_size - start
        reader = _Reader(file, start, size)
        try:
            # All headers first: where they lie, none may be twice. Then what they say.
            objects = list(_walk(reader, _messages(reader, _root(reader)), "", 0))
            spans = {}
            names = {}
            for key, messages in objects:
                if _SPACE in messages:
                    spans[key] = _span(reader, path, key, messages)
                name = _attribute(reader, messages, "name")
                if name is not None:
                    names[key] = name
        except (LevelheadError, error, UnicodeDecodeError, OverflowError) as flaw:
            raise LevelheadError(
                f"{path}: cut short, or not HDF5 as Keras writes it ({flaw}); save it again"
            ) from None
    return spans, names


@dataclass
class _Reader:
    """A range of a file, read in pieces: not too many, and together not much more than it.

    Args:
        file: open for reading.
        start, size: the range; all offsets count from its start.
        reads: pieces so far, at most `MOST_READS`.
        taken: bytes so far, and letters of names, at most twice the file and a bit: a sound file
            has each of its bytes read about once.
        seen: blocks of object headers: none may be there twice, else groups could hold themselves.
        heaps: {place of a heap: {number of a text: (where it lies, its length)}}, each read once.
    """

    file: BinaryIO
    start: int
    size: int
    reads: int = 0
    taken: int = 0
    seen: set[int] = field(default_factory=set)
    heaps: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def read(self, at: int, length: int) -> bytes:
        """Return bytes of the range.

        Raises:
            LevelheadError: they are not all inside, too many for one piece, or it is one piece too
                many.
        """
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
        """Count bytes that are kept: if parts overlap, they could grow without end."""
        self.taken += length
        if self.taken > 2 * self.size + (1 << 16):
            raise LevelheadError("its parts overlap")

    def numbers(self, at: int, form: str) -> tuple:
        """Return little-endian numbers, in a form such as "6Q", as `struct` has them."""
        return unpack_from(f"<{form}", self.read(at, calcsize(f"<{form}")))

    def block(self, at: int, mark: bytes, form: str) -> tuple:
        """Return the numbers after the four letters that begin a block.

        Raises:
            LevelheadError: it begins otherwise: whatever pointed there is damaged.
        """
        if self.read(at, 4) != mark:
            raise LevelheadError(f"no {mark.decode()} at {at}")
        return self.numbers(at + 4, form)


def _root(reader: _Reader) -> int:
    """Return where the header of the root group is, as the superblock says.

    Only version 0 is read, which h5py writes unless it is told `libver="latest"`; Keras does not.

    Raises:
        LevelheadError: the file is another, or shorter than it says.
    """
    signature, version, _, sizes = reader.numbers(0, "8sB4s2s")
    # Offsets and lengths are of 8 bytes each in whatever h5py writes.
    if signature != SIGNATURE or version != 0 or sizes != b"\x08\x08":
        raise LevelheadError("expected HDF5 with a superblock of version 0")
    base, _, end, _, _, root = reader.numbers(24, "6Q")
    if base != 0 or end > reader.size:
        raise LevelheadError(f"expected {end} bytes, got {reader.size}")
    return root


def _walk(
    reader: _Reader, group: Messages, prefix: str, depth: int
) -> Iterator[tuple[str, Messages]]:
    """Yield every group and array below a group with its key, and what its header says.

    Args:
        reader: of the file.
        group: the messages of the group.
        prefix: of keys, with a slash at its end.
        depth: groups around it.

    Raises:
        LevelheadError: groups are too deep, names too long, or something is neither group nor
            array, as a group in a newer way, or with a link to another file, is.
    """
    if depth > DEEPEST:
        raise LevelheadError("its groups are too deep")
    for name, at in _members(reader, group):
        key = f"{prefix}{name}"
        messages = _messages(reader, at)
        if len(key) > LONGEST_NAME:
            raise LevelheadError(f"a name of {len(key)} letters")
        reader.take(len(key))
        yield key, messages
        if _TABLE in messages:
            yield from _walk(reader, messages, f"{key}/", depth + 1)
        elif _SPACE not in messages:
            raise LevelheadError(f"{key} is neither an array nor a group as a symbol table")


def _messages(reader: _Reader, at: int) -> Messages:
    """Return the messages in the header of an object, by kind; those of no use here are left out.

    A header that grew lies in several blocks: a CONTINUATION says where the next one is.
    """
    version, _, count, _, length = reader.numbers(at, "BBHII")
    if version != 1:
        raise LevelheadError(f"expected an object header of version 1, got {version}")
    messages: Messages = {}
    blocks = [(at + 16, length)]
    for place, size in blocks:  # which grows by continuations
        if place in reader.seen:
            raise LevelheadError(f"the header at {place} is there twice")
        reader.seen.add(place)
        data = reader.read(place, size)
        i = 0
        while i + 8 <= size and count > 0:
            # 8 bytes of kind, length and flags, then the message itself.
            kind, length, _ = unpack_from("<HHB", data, i)
            body = data[i + 8 : i + 8 + length]
            i += 8 + length
            count -= 1
            if kind in _KINDS:
                messages.setdefault(kind, []).append(body)
            if kind == _CONTINUATION:
                blocks.append(unpack_from("<2Q", body))
    return messages


def _members(reader: _Reader, group: Messages) -> Iterator[tuple[str, int]]:
    """Yield the name and the header of every object in a group; links are left out.

    The group's message TABLE leads to a tree, whose leaves have the members in the order of their
    names, and to a heap, a piece of the file in which the names stand, each with a zero behind it.
    """
    if _TABLE not in group:
        raise LevelheadError("expected a group as a symbol table")
    # The names of all members at once: entries of the tree point into them.
    tree, heap = unpack_from("<2Q", group[_TABLE][0])
    _, size, _, texts = reader.block(heap, b"HEAP", "IQQQ")
    names = reader.read(texts, size)
    # Nodes of the tree lead to others or to leaves, with the members.
    waiting = [tree]
    visited = set()
    while waiting:
        at = waiting.pop()
        if at in visited:
            raise LevelheadError(f"the node at {at} is there twice")
        visited.add(at)
        if reader.read(at, 4) == b"SNOD":
            yield from _leaf_members(reader, at, names)
        else:
            kind, _, count, _, _ = reader.block(at, b"TREE", "BBHQQ")
            if kind != 0:
                raise LevelheadError(f"expected the node of a group at {at}")
            # A key, of 8 bytes, stands before each child; the last child is put first, as it is
            # taken last.
            children = [reader.numbers(at + 24 + 8 + 16 * i, "Q")[0] for i in range(count)]
            waiting += reversed(children)


def _leaf_members(reader: _Reader, at: int, names: bytes) -> Iterator[tuple[str, int]]:
    """Yield the name and the header of every object in a leaf of a group's tree.

    Args:
        reader, at: the file, and where the leaf is.
        names: the group's heap of names, into which the leaf's entries point.
    """
    _, _, count = reader.block(at, b"SNOD", "BBH")
    for i in range(count):
        name_at, header, kind = reader.numbers(at + 8 + 40 * i, "QQI")
        if kind == _SOFT_LINK:
            continue
        end = names.find(b"\0", name_at, name_at + LONGEST_NAME)
        if end < 0:
            raise LevelheadError(f"no name at {name_at}")
        yield names[name_at:end].decode(), header


def _span(reader: _Reader, path: Path, key: str, array: Messages) -> Span:
    """Return where the numbers of an array are.

    What cannot be changed in place has a dtype that says why, such as "F32, not in one piece": it
    is refused only if it is the head.

    Args:
        reader, path: the file.
        key: what the array is called.
        array: the messages of its header.

    Raises:
        LevelheadError: its shape is unknown, or its numbers are not where, or not as many as, it
            says.
    """
    version, rank, _, kind = unpack_from("<4B", array[_SPACE][0])
    if version not in (1, 2) or rank > 32 or (version == 2 and kind > 1):
        raise LevelheadError("an array has a shape of an unknown kind")
    sizes_at = 8 if version == 1 else 4
    shape = tuple(unpack_from(f"<{rank}Q", array[_SPACE][0], sizes_at))
    dtype, width = _dtype(array.get(_TYPE, [b""])[0])
    # HDF5 has no bfloat16: Keras writes two bytes that mean nothing, and an attribute.
    if dtype == "opaque" and _attribute(reader, array, "dtype") == "bfloat16" and width == 2:
        dtype = "BF16"
    # A layout of class 1 is one piece of this file; others are chunks, or inside the header.
    layout = array.get(_LAYOUT, [b""])[0]
    if len(layout) < 18 or layout[0] not in (3, 4) or layout[1] != 1 or _EXTERNAL in array:
        return Span(key, path, 0, f"{dtype}, not in one piece", shape)
    at, length = unpack_from("<2Q", layout, 2)
    if at == UNDEFINED:
        return Span(key, path, 0, f"{dtype}, without data", shape)
    if length != prod(shape) * width or at + length > reader.size:
        raise LevelheadError(f"{key} lies outside the file, or is not of its shape")
    return Span(key, path, reader.start + at, dtype, shape, reach=length)


def _dtype(form: bytes) -> tuple[str, int]:
    """Return the dtype as safetensors calls it, or a word for it, and the bytes of one number.

    A TYPE spells out how a float is made: where its exponent and mantissa are, and how long. Only
    the three that IEEE 754 has here are known by name.

    Args:
        form: the body of the message.
    """
    # Class and version, three bytes of flags (the byte order among them), and the size of a number.
    kind, order, _, _, width = unpack_from("<4BI", form)
    kind &= 15  # the other bits are a version
    if kind == _FLOAT and not order & 0x41:  # little-endian
        offset, *rest = unpack_from("<2H4BI", form, 8)
        dtype = None
        if offset == 0:  # no bits before the number
            dtype = HDF5_FLOATS.get((width, *rest))
        return dtype or f"floats of {width} bytes", width
    words = {_INTEGER: f"int{8 * width}", _FLOAT: "big-endian floats", _OPAQUE: "opaque"}
    return words.get(kind, f"numbers of class {kind}"), width


class _AttributeParts(NamedTuple):
    """An attribute of an object, as its message has it."""

    name: bytes
    form: bytes  # the type of its value
    value: bytes


def _attributes(messages: Messages) -> Iterator[_AttributeParts]:
    """Yield the attributes of an object; those of versions that are not known are left out.

    Name, type, space and value follow one another; versions 2 and 3 no longer pad them to 8 bytes.
    """
    for body in messages.get(_ATTRIBUTE, ()):
        version, _, *sizes = unpack_from("<BBHHH", body)
        if version not in (1, 2, 3):
            continue
        at = 8
        if version == 3:
            at = 9  # with a byte for how the name is encoded
        parts = []
        for size in sizes:  # of the name, the type and the space
            parts.append(body[at : at + size])
            if version == 1:  # each begins at a multiple of 8 bytes
                size = _to_eight(size)
            at += size
        name, form, _ = parts
        yield _AttributeParts(name.rstrip(b"\0"), form, body[at:])


def _attribute(reader: _Reader, messages: Messages, wanted: str) -> str | None:
    """Return the text of an attribute of an object; None if it has no such one, or no text in it.

    A text is of a fixed length, in the message itself, or of any length, in a heap.
    """
    for name, form, value in _attributes(messages):
        if name != wanted.encode() or len(form) < 8:
            continue
        kind = form[0] & 15
        if kind == _TEXT:
            width = unpack_from("<I", form, 4)[0]
            data = value[:width].rstrip(b"\0 ")
        elif kind == _VARIABLE_LENGTH and form[1] & 15 == 1:  # of letters, and not of numbers
            data = _heap_text(reader, *unpack_from("<IQI", value))
        else:
            continue
        text = data.decode()
        if text.isprintable():
            return text
        return None
    return None


def _heap_text(reader: _Reader, length: int, collection: int, wanted: int) -> bytes:
    """Return a text of variable length, out of the heap that it is in.

    Args:
        reader: of the file, which remembers heaps: many texts are in one.
        length: how long it is.
        collection: where the heap is.
        wanted: the number of the text in it.
    """
    if collection not in reader.heaps:
        reader.heaps[collection] = _texts_in_heap(reader, collection)
    texts = reader.heaps[collection]
    if wanted not in texts:
        raise LevelheadError(f"no text {wanted} in the heap at {collection}")
    at, held = texts[wanted]
    return reader.read(at, min(length, held))


def _texts_in_heap(reader: _Reader, collection: int) -> dict[int, tuple[int, int]]:
    """Return {number of a text: (where it lies, its length)} of a heap.

    What the heap says of its size is not believed beyond the file.
    """
    _, size = reader.block(collection, b"GCOL", "IQ")
    at = collection + 16
    end = min(collection + size, reader.size)
    texts = {}
    while at + 16 <= end:
        number, _, _, length = reader.numbers(at, "HHIQ")
        if number == 0:  # what follows is free
            break
        texts[number] = (at + 16, length)
        at += 16 + _to_eight(length)
    return texts


def _to_eight(size: int) -> int:
    """Return the next multiple of 8."""
    return (size + 7) // 8 * 8
