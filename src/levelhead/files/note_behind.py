"""A note behind the end of a file's content, for formats that have no place for one.

    content | JSON | 8 bytes, little-endian: the length of the JSON | MARK

HDF5 says in its superblock how long it is, and a zip is read from its list of records back to each
record: neither looks at what is here, behind the one and before the list of the other. It is found
from its end: the mark, then the length, then where the JSON begins.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from ..heads.notes import Note, note_from_json
from ..support.regular_file import bytes_at

MARK = b"\nlevelhead note\n"
LONGEST_NOTE = 100_000_000  # bytes: more than a note on a million classes has


class NotePlace(NamedTuple):
    """Where a note is, in bytes of the file; all three are the same if there is none."""

    start: int  # where its JSON begins
    stop: int  # where its JSON ends
    end: int  # where its length and mark end


def find_note(path: Path, end: int) -> NotePlace:
    """Return where the note is that ends right before this byte of a file.

    Args:
        path: the file.
        end: the length of the file or, where something follows the note, where that begins.
    """
    size = 8 + len(MARK)
    tail = bytes_at(path, max(0, end - size), min(size, end))
    if len(tail) == size and tail.endswith(MARK):
        length = int.from_bytes(tail[:8], "little")
        start = end - size - length
        # Some content comes before it; what only looks like a note is none.
        if start > 0 and length <= LONGEST_NOTE:
            return NotePlace(start, end - size, end)
    return NotePlace(end, end, end)


def read_note(path: Path, place: NotePlace) -> dict[str, Any] | None:
    """Return the note at a place; None if there is none.

    Raises:
        LevelheadError: what is there is no note of ours, or damaged.
    """
    return note_from_json(bytes_at(path, place.start, place.stop - place.start), path)


def encode_note(note: Note) -> bytes:
    """Return the bytes of a note, to be put behind the content; none if it is empty.

    >>> encode_note({"rule": "shift"})
    b'{"rule": "shift"}\\x11\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\nlevelhead note\\n'
    """
    if not note:
        return b""
    data = json.dumps(note).encode()
    return data + len(data).to_bytes(8, "little") + MARK
