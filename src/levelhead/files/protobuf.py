"""The wire format of protobuf, in a file: where each field lies, and what a change brings with it.

A message is a row of fields, each a tag and a value:

    tag      a varint: number of the field << 3 | wire type
    value    of type 0 a varint, of 1 and 5 eight and four bytes; of 2 a length, as a varint, and as
             many bytes: a message, a string, or bytes

A varint is a number in base 128, lowest digits first; the upper bit of a byte says that more
follow. So whoever makes a string longer must change the length of every message around it, and a
length may itself take a byte more then: `with_lengths` does that.

`WireFile` finds fields, `outline` gives a message without its large numbers, for the protobuf
library to parse. A file is read in small pieces, and what is passed over is never read: large
numbers are copied, not held. Which field means what is said by whoever asks, as `MessageKind`s
(onnx_file.py).

Reference: https://protobuf.dev/programming-guides/encoding/
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..support.errors import LevelheadError
from ..support.regular_file import bytes_at
from .edits import Edit

# Wire types.
VARINT = 0
EIGHT_BYTES = 1
BYTES = 2  # messages, strings and bytes
FOUR_BYTES = 5

PIECE = 1 << 13  # bytes that are read at a time
LONGEST_VARINT = 10  # bytes
DEEPEST_MESSAGE = 100  # messages inside each other: protobuf reads no more

# (field number, index among those), from message to message. None is the index of a field that must
# stand alone: of two, protobuf takes the last, or joins them.
FieldStep = tuple[int, int | None]
Steps = Sequence[FieldStep]


class Field(NamedTuple):
    """A field of a message, and where in the file it is.

    tag_at: tag | (length) | start: value | end
    """

    number: int
    kind: int  # its wire type
    tag_at: int  # where it begins
    start: int  # where its value begins
    end: int  # where its value, and the field, ends

    @property
    def length(self) -> int:
        """How many bytes its value has."""
        return self.end - self.start


@dataclass(frozen=True, eq=False)
class WireFile:
    """A serialized message in a file.

    Args:
        path, size: the file and its length.
        parts: {(begin, end) of a message: {number: its fields of that number that hold bytes}}, of
            the messages that were looked at: a graph of thousands of nodes is asked for many of
            them.
    """

    path: Path
    size: int
    parts: dict[tuple[int, int], dict[int, list[Field]]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> "WireFile":
        """Return the message that a whole file is."""
        return cls(path, path.stat().st_size)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`.

        Raises:
            LevelheadError: the file ends before.
        """
        data = bytes_at(self.path, start, end - start)
        if len(data) != end - start:
            raise LevelheadError("cut short")
        return data

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Yield the fields of the message from `start` to `end`, in the order of the file.

        Only tags, lengths and what lies in the same piece are read: behind a long value, the next
        piece begins where that ends.

        Raises:
            LevelheadError: these bytes are no message, or one that is cut short. Groups, which
                proto2 had and ONNX never used, are not read.
        """
        piece = b""  # bytes of the file from `first` on
        first = start
        at = start
        while at < end:
            # A tag, and the number or length behind it, must be in the piece.
            held_until = first + len(piece)
            if at + 2 * LONGEST_VARINT > held_until < end:
                first = at
                piece = self.read(first, min(end, first + PIECE))
            tag, after_tag = read_varint(piece, at - first)
            kind = tag & 7
            value = first + after_tag
            if kind == VARINT:
                _, after_number = read_varint(piece, after_tag)
                after = first + after_number
            elif kind == BYTES:
                length, after_length = read_varint(piece, after_tag)
                value = first + after_length
                after = value + length
            elif kind == EIGHT_BYTES:
                after = value + 8
            elif kind == FOUR_BYTES:
                after = value + 4
            else:
                raise LevelheadError(f"not a protobuf message: wire type {kind} at byte {at}")
            if after > end:
                raise LevelheadError(f"a field at byte {at} ends behind its message")
            yield Field(tag >> 3, kind, at, value, after)
            at = after

    def parts_of(self, start: int, end: int) -> dict[int, list[Field]]:
        """Return the fields of a message that hold bytes, by number; they are remembered."""
        # As in protobuf itself, a field of the same number that holds a plain number is another
        # one.
        if (start, end) not in self.parts:
            parts: dict[int, list[Field]] = defaultdict(list)
            for part in self.fields(start, end):
                if part.kind == BYTES:
                    parts[part.number].append(part)
            self.parts[start, end] = parts
        return self.parts[start, end]

    def locate(self, steps: Steps) -> tuple[int, int]:
        """Follow steps from message to message; return where the last field's value lies.

        Args:
            steps: (field number, index among those) from the whole file on; None for a field that
                must stand alone.

        Returns:
            (begin, end), or (0, 0) if there is no such field.

        Raises:
            LevelheadError: a field that must stand alone is there twice. protobuf would take the
                last of two strings and join two messages: what is found here would not be what is
                read there.
        """
        start = 0
        end = self.size
        for number, index in steps:
            fields = self.parts_of(start, end).get(number, [])
            if index is None and len(fields) > 1:
                expected = f"expected one field {number} in a message, got {len(fields)}"
                raise LevelheadError(f"{expected}; export the model again")
            position = index or 0
            if position >= len(fields):
                return 0, 0
            start = fields[position].start
            end = fields[position].end
        return start, end


@dataclass(frozen=True)
class MessageKind:
    """A kind of message, as far as `outline` must know it.

    Args:
        inside: the kinds of the messages in it, by the number of their field.
        numbers: the fields that hold numbers alone, packed or raw.
        mark: a field that is added where numbers are left out, so that a tensor without them is not
            taken for an empty one.
    """

    inside: Mapping[int, "MessageKind"] = field(default_factory=dict)
    numbers: frozenset[int] = frozenset()
    mark: bytes = b""


def outline(file: WireFile, kind: MessageKind, longest: int) -> bytes:
    """Return a message as it would be if its long fields of numbers were empty.

    Args:
        file: the message, whose fields are remembered on the way.
        kind: of the message.
        longest: bytes of numbers that are still kept.
    """
    return b"".join(_outline(file, 0, file.size, kind, longest, 0))


def _outline(
    file: WireFile, start: int, end: int, kind: MessageKind, longest: int, depth: int
) -> list[bytes]:
    """Return the blocks of the outline of the message from `start` to `end`.

    Its fields are remembered in `file`. Blocks are joined once, at the end: a message inside
    another would else be copied at every depth.

    Args:
        file, start, end: where it is.
        kind, longest: as in `outline`.
        depth: messages around it.
    """
    if depth > DEEPEST_MESSAGE:
        raise LevelheadError("its messages are too deep")
    parts: dict[int, list[Field]] = defaultdict(list)
    blocks: list[bytes] = []
    mark = b""
    copied = start  # up to here, the message is in `blocks`
    for part in file.fields(start, end):
        if part.kind != BYTES:
            continue
        parts[part.number].append(part)
        # Short fields, and long ones that are neither messages nor numbers, are copied with what is
        # around them.
        if part.length <= longest or part.number not in (*kind.inside, *kind.numbers):
            continue
        inner: list[bytes] = []
        if part.number in kind.inside:
            inside = kind.inside[part.number]
            inner = _outline(file, part.start, part.end, inside, longest, depth + 1)
        else:
            mark = kind.mark
        length = sum(len(block) for block in inner)
        blocks.append(file.read(copied, part.tag_at))
        blocks += [varint(part.number << 3 | BYTES), varint(length), *inner]
        copied = part.end
    blocks += [file.read(copied, end), mark]
    file.parts[start, end] = parts
    return blocks


@dataclass(frozen=True)
class Splice(Edit):
    """An edit inside the message or string at `steps`, which changes the lengths of all around it.

    Args:
        steps: from the whole file to the innermost message or string that the edit is in.
    """

    steps: tuple[FieldStep, ...] = ()


def with_lengths(file: WireFile, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits of a message and, where they make parts longer or shorter, of the lengths.

    Args:
        file: the message as it is.
        edits: those that keep the length of what they change, or change the whole file's, which is
            nowhere stated; and `Splice`s, which need not.

    Returns:
        The edits that were given, and one for each length that stands in the file before a part
        that changed.
    """
    # A part is known by where it begins and ends. Each splice makes all parts around it longer.
    growth: Counter[tuple[int, int]] = Counter()  # by how many bytes each becomes longer
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
    """Return where the length of the value that begins at `start` begins: right after the tag.

    Both are varints, whose bytes but the last have their upper bit set. So, read backwards from the
    value, the length ends where a byte without that bit precedes: the end of the tag.
    """
    first = max(0, start - LONGEST_VARINT - 1)
    before = file.read(first, start)
    at = len(before) - 1
    while at and before[at - 1] >= 0x80:
        at -= 1
    return first + at


def encode_field(number: int, value: bytes) -> bytes:
    """Return a field that holds a message, a string or bytes.

    >>> encode_field(2, b"bias")
    b'\\x12\\x04bias'
    """
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Return a base-128 number, lowest seven bits first.

    >>> varint(300)  # 2 * 128 + 44
    b'\\xac\\x02'
    >>> read_varint(b"\\xac\\x02", 0)
    (300, 2)
    """
    low = value & 0x7F
    rest = value >> 7
    if rest:  # a set upper bit says that more follows
        return bytes([low | 0x80]) + varint(rest)
    return bytes([low])


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a base-128 number, lowest seven bits first; return it and the offset after it.

    Raises:
        LevelheadError: the data end before it does, or it has more than ten bytes, which 64 bits
            take at most.
    """
    value = 0
    for i in range(LONGEST_VARINT):
        if at + i >= len(data):
            raise LevelheadError("cut short")
        byte = data[at + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, at + i + 1
    raise LevelheadError(f"not a protobuf message: a number of more than {LONGEST_VARINT} bytes")
