"""The note of an adjustment in a model's file that is a zip: a record of its own."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .edits import Edit
from .note import Note, check_note
from .spans import LocatedHead
from .zip import Archive

RECORD = "levelhead.json"


def complete_zip(
    found: LocatedHead, source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
) -> list[Edit]:
    """Return the edits with the checksums they need, and the note as a record of the zip."""
    record = None if note is None else (RECORD, json.dumps(note).encode() if note else None)
    return found.detail.patched(edits, record)


def note_in_zip(archive: Archive) -> dict[str, Any] | None:
    """Return the note of a zip, or None if it has none."""
    data = archive.read(RECORD)
    if not data:
        return None
    try:
        note = json.loads(data)
    except (ValueError, RecursionError):
        note = None
    return check_note(note, archive.path)
