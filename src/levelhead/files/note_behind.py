"""A note behind the end of a file's content, where no reader of it looks: the JSON, its length, and a mark."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from ..heads.notes import Note, note_from_json
from ..support.regular_file import bytes_at

MARK = b"\nlevelhead note\n"
LONGEST_NOTE = 100_000_000


class NotePlace(NamedTuple):
    """Where a note begins and ends, and where what marks it does; all three are the same if there is none."""

    start: int
    stop: int
    end: int


def find_note(path: Path, end: int) -> NotePlace:
    """Return where the note is that ends before this byte of a file."""
    size = len(MARK) + 8
    tail = bytes_at(path, max(0, end - size), min(size, end))
    if len(tail) == size and tail.endswith(MARK):
        length = int.from_bytes(tail[:8], "little")
        start = end - size - length
        if start > 0 and length <= LONGEST_NOTE:
            return NotePlace(start, end - size, end)
    return NotePlace(end, end, end)


def read_note(path: Path, place: NotePlace) -> dict[str, Any] | None:
    """Return the note at a place; None if there is none."""
    return note_from_json(bytes_at(path, place.start, place.stop - place.start), path)


def encode_note(note: Note) -> bytes:
    """Return the bytes of a note; none if it is empty."""
    if not note:
        return b""
    data = json.dumps(note).encode()
    return data + len(data).to_bytes(8, "little") + MARK
