"""The wire format of protobuf, in a file: where each field lies, and what changes if one of them does.

A file is read in small pieces, and what is passed over is never read: large numbers are copied, not held.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..support.errors import LevelheadError
from ..support.regular_file import bytes_at
from .edits import Edit

BYTES = 2  # the wire type of messages, strings and bytes
PIECE = 1 << 13  # bytes that are read at a time
LONGEST_VARINT = 10  # bytes
DEEPEST_MESSAGE = 100  # messages inside each other: protobuf reads no more

# (field number, index among those), from message to message. None is the index of a field that must stand alone: of
# two, protobuf takes the last, or joins them.
FieldStep = tuple[int, int | None]
Steps = Sequence[FieldStep]


class Field(NamedTuple):
    """A field of a message: its number and wire type, and where in the file its tag and its value are."""

    number: int
    kind: int
    tag_at: int
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, eq=False)
class WireFile:
    """A serialized message in a file."""

    path: Path
    size: int
    # Of the message that begins and ends here: its fields by number, of those that hold bytes.
    parts: dict[tuple[int, int], dict[int, list[Field]]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> "WireFile":
        return cls(path, path.stat().st_size)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`."""
        data = bytes_at(self.path, start, end - start)
        if len(data) != end - start:
            raise LevelheadError("cut short")
        return data

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Yield the fields of the message from `start` to `end`."""
        piece, first, at = b"", start, start
        while at < end:
            known = first + len(piece)
            if at + 2 * LONGEST_VARINT > known < end:  # a tag, and a number or length
                first = at
                piece = self.read(first, min(end, first + PIECE))
            tag, after_tag = read_varint(piece, at - first)
            kind, value = tag & 7, first + after_tag
            if kind == 0:
                _, after = read_varint(piece, after_tag)
                after += first
            elif kind == BYTES:
                length, begin = read_varint(piece, after_tag)
                value = first + begin
                after = value + length
            elif kind in (1, 5):
                after = value + (8 if kind == 1 else 4)
            else:
                raise LevelheadError(f"not a protobuf message: wire type {kind} at byte {at}")
            if after > end:
                raise LevelheadError(f"a field at byte {at} ends behind its message")
            yield Field(tag >> 3, kind, at, value, after)
            at = after

    def parts_of(self, start: int, end: int) -> dict[int, list[Field]]:
        """Return the fields of a message that hold bytes, by number; they are remembered."""
        # As in protobuf itself, a field of the same number that holds a plain number is another one.
        if (start, end) not in self.parts:
            parts: dict[int, list[Field]] = defaultdict(list)
            for one in self.fields(start, end):
                if one.kind == BYTES:
                    parts[one.number].append(one)
            self.parts[start, end] = parts
        return self.parts[start, end]

    def locate(self, steps: Steps) -> tuple[int, int]:
        """Follow (field number, index among those) from message to message; return where the last one's value is."""
        start, end = 0, self.size
        for number, index in steps:
            found = self.parts_of(start, end).get(number, [])
            if index is None and len(found) > 1:
                expected = f"expected one field {number} in a message, got {len(found)}"
                raise LevelheadError(f"{expected}; export the model again")
            if (index or 0) >= len(found):
                return 0, 0
            start = found[index or 0].start
            end = found[index or 0].end
        return start, end


@dataclass(frozen=True)
class MessageKind:
    """A kind of message."""

    inside: Mapping[int, "MessageKind"] = field(
        default_factory=dict
    )  # the messages in it, by field
    numbers: frozenset[int] = frozenset()  # the fields that hold numbers alone
    mark: bytes = b""  # a field that is added where numbers are left out


def outline(file: WireFile, kind: MessageKind, longest: int) -> bytes:
    """Return a message as it would be if its fields of numbers that are longer than `longest` bytes were empty."""
    return b"".join(_outline(file, 0, file.size, kind, longest, 0))


def _outline(
    file: WireFile, start: int, end: int, kind: MessageKind, longest: int, depth: int
) -> list[bytes]:
    if depth > DEEPEST_MESSAGE:
        raise LevelheadError("its messages are too deep")
    parts: dict[int, list[Field]] = defaultdict(list)
    blocks: list[bytes] = []
    mark = b""
    copied = start  # up to here, the message is in `blocks`
    for one in file.fields(start, end):
        if one.kind != BYTES:
            continue
        parts[one.number].append(one)
        if one.length <= longest or one.number not in (*kind.inside, *kind.numbers):
            continue
        inner: list[bytes] = []
        if one.number in kind.inside:
            within = kind.inside[one.number]
            inner = _outline(file, one.start, one.end, within, longest, depth + 1)
        else:
            mark = kind.mark
        blocks.append(file.read(copied, one.tag_at))
        blocks += [varint(one.number << 3 | BYTES), varint(sum(map(len, inner))), *inner]
        copied = one.end
    blocks += [file.read(copied, end), mark]
    file.parts[start, end] = parts
    return blocks


@dataclass(frozen=True)
class Splice(Edit):
    """An edit inside the message or string at `steps`, which changes the lengths of all around it."""

    steps: tuple[FieldStep, ...] = ()


def with_lengths(file: WireFile, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits of a message and, where they change how long its parts are, those of the lengths."""
    growth: Counter[tuple[int, int]] = Counter()  # of each part, by where it begins and ends
    around: dict[tuple[int, int], list[tuple[int, int]]] = {}  # the parts that each is in
    for edit in edits:
        if isinstance(edit, Splice):
            places = [file.locate(edit.steps[:depth]) for depth in range(1, len(edit.steps) + 1)]
            for depth, place in enumerate(places):
                growth[place] += len(edit.data) - edit.length
                around[place] = places[:depth]
    lengths = []
    # From the innermost on: a length that takes more bytes makes all around it longer.
    for start, end in sorted(growth, key=lambda place: len(around[place]), reverse=True):
        at = length_at(file, start)
        new = varint(end - start + growth[start, end])
        for place in around[start, end]:
            growth[place] += len(new) - (start - at)
        lengths.append(Edit(at, start - at, new))
    return [*edits, *lengths]


def length_at(file: WireFile, start: int) -> int:
    """Return where the length of the value that begins at `start` begins: after the tag, whose last byte is small."""
    first = max(0, start - LONGEST_VARINT - 1)
    before = file.read(first, start)
    at = len(before) - 1
    while at and before[at - 1] >= 0x80:
        at -= 1
    return first + at


def encode_field(number: int, value: bytes) -> bytes:
    """Return a field that holds a message, a string or bytes."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Return a base-128 number, lowest seven bits first."""
    low, rest = value & 0x7F, value >> 7
    if rest:
        return bytes([low | 0x80]) + varint(rest)
    return bytes([low])


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a base-128 number, lowest seven bits first; return it and the offset after it."""
    value = 0
    for i in range(LONGEST_VARINT):
        if at + i >= len(data):
            raise LevelheadError("cut short")
        byte = data[at + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, at + i + 1
    raise LevelheadError(f"not a protobuf message: a number of more than {LONGEST_VARINT} bytes")
