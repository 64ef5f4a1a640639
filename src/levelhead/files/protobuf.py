"""Where in a serialized protobuf message a field's bytes lie: as much of the wire format as changing them takes."""

from collections.abc import Iterator, Sequence

from ..core.errors import LevelheadError


def fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Return the fields of the message at data[start:end]: (number, first byte of the value, byte after it).

    >>> list(fields(bytes([0x08, 0x96, 0x01, 0x12, 0x02, 0x68, 0x69]), 0, 7))  # 1: 150, 2: "hi"
    [(1, 1, 3), (2, 5, 7)]
    """
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
        yield tag >> 3, at, after
        start = after


def locate(data: bytes, steps: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Follow (field number, index among those) from message to message; return where the last one's value is.

    That is its first byte and the byte after it; (0, 0) if there is no such field.
    """
    start, end = 0, len(data)
    for number, index in steps:
        found = [place for field, *place in fields(data, start, end) if field == number]
        if index >= len(found):
            return 0, 0
        start, end = found[index]
    return start, end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a base-128 number, lowest seven bits first; return it and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
