"""The note that an adjustment leaves in a model's file: what was done to which head, by which version."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import LevelheadError
from ..rules.rule import RULES

Note = Mapping[str, Any]
TEXTS = ("version", "rule", "bias", "sha256")
# The entries of a note in a file's metadata: {name there: field}. A snapshot's entries have the same prefix; those are
# not a note's.
NOTE = {f"levelhead.{field}": field for field in (*TEXTS, "gamma", "counts", "head", "factors", "offset", "before")}


def note_entries(note: Note) -> dict[str, str]:
    """Return a note as the strings that metadata can hold: texts as they are, everything else as JSON."""
    return {
        key: note[field] if field in TEXTS else json.dumps(note[field]) for key, field in NOTE.items() if field in note
    }


def note_from(entries: Mapping[str, str], file: Path) -> dict[str, Any] | None:
    """Return the note among a file's metadata, or None."""
    ours = {field: entries[key] for key, field in NOTE.items() if key in entries}
    if "rule" not in ours:
        return None
    try:
        note = {field: text if field in TEXTS else json.loads(text) for field, text in ours.items()}
    except (ValueError, RecursionError):
        note = None
    return check_note(note, file)


def check_note(note: Any, file: Path) -> dict[str, Any]:
    """Return the note if `rescale` can have written it: others may write into a file's metadata too."""
    try:
        factors = np.array(note["factors"], np.float64)
        valid = (
            (rule := RULES[note["rule"]])
            and (rule.multiplies and rule.adds) == ("offset" in note)
            and np.isfinite(np.array(note.get("offset", factors), np.float64)).all()
            and len(note.get("offset", factors)) == len(factors)
            and note["bias"] in ("scale", "keep")
            and np.isfinite([*factors, float(note["gamma"])]).all()
            and (not rule.multiplies or factors.all())
            and all(isinstance(text, str) for text in (note["version"], *note["head"]))
            and ("before" not in note or bool(check_note(note["before"], file)))
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        valid = False
    if not valid:
        raise LevelheadError(f"{file}: its record of an earlier adjustment is damaged; save the model again without it")
    return note
