"""Where in a serialized protobuf message a field's bytes lie: as much of the wire format as changing them takes."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..support.errors import LevelheadError
from .edits import Edit

# (field number, index among those), from message to message. None is the index of a field that must stand alone: of
# two, protobuf takes the last, or joins them.
BYTES = 2  # the wire type of messages, strings and bytes
Steps = Sequence[tuple[int, int | None]]
Parts = dict[
    tuple[int, int], dict[int, list[tuple[int, int]]]
]  # of the message from here to there: fields by number


class Splice(NamedTuple):
    """Bytes `start` to `end` of a serialized message become `data`, inside the message or string at `steps`."""

    steps: Steps
    start: int
    end: int
    data: bytes


def fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of the message at data[start:end]: (number, wire type, first byte of the value, byte after)."""
    while start < end:
        tag, at = _varint(data, start)
        kind = tag & 7
        if kind == 0:
            _, after = _varint(data, at)
        elif kind == 2:
            length, at = _varint(data, at)
            after = at + length
        elif kind in (1, 5):
            after = at + (8 if kind == 1 else 4)
        else:
            raise LevelheadError(f"not a protobuf message: wire type {kind} at byte {at}")
        yield tag >> 3, kind, at, after
        start = after


def locate(data: bytes, steps: Steps, known: Parts | None = None) -> tuple[int, int]:
    """Follow (field number, index among those) from message to message; return where the last one's value is."""
    start, end = 0, len(data)
    known = (
        {} if known is None else known
    )  # is filled with the fields passed, for whoever locates many
    for number, index in steps:
        if (start, end) not in known:
            parts = known[start, end] = defaultdict(list)
            for each, kind, at, after in fields(data, start, end):
                if (
                    kind == BYTES
                ):  # as in protobuf itself, one that holds a plain number is another field
                    parts[each].append((at, after))
        found = known[start, end].get(number, [])
        if index is None and len(found) > 1:
            raise LevelheadError(
                f"expected one field {number} in a message, got {len(found)}; export the model again"
            )
        if (index or 0) >= len(found):
            return 0, 0
        start, end = found[index or 0]
    return start, end


def splice(data: bytes, splices: Sequence[Splice]) -> list[Edit]:
    """Return the edits that make the splices, and correct the length of everything around them."""
    growth: Counter[tuple[tuple[int, int | None], ...]] = Counter()
    for steps, start, end, new in splices:
        growth.update(
            {tuple(steps[:depth]): len(new) - (end - start) for depth in range(1, len(steps) + 1)}
        )
    edits = [Edit(start, end - start, new) for _, start, end, new in splices]
    for steps in sorted(growth, key=len, reverse=True):
        start, end = locate(data, steps)
        at, length = length_at(data, start), varint(end - start + growth[steps])
        growth.update({steps[:depth]: len(length) - (start - at) for depth in range(1, len(steps))})
        edits.append(Edit(at, start - at, length))
    return edits


def length_at(data: bytes, start: int) -> int:
    """Return where the length of the value that begins at `start` begins: after the tag, whose last byte is small."""
    at = start - 1
    while data[at - 1] >= 0x80:
        at -= 1
    return at


def field(number: int, value: bytes) -> bytes:
    """Return a field that holds a message, a string or bytes."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Return a base-128 number, lowest seven bits first."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a base-128 number, lowest seven bits first; return it and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
