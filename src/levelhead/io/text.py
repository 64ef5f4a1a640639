"""Text that other people's programs wrote: in UTF-8, with or without the mark that spreadsheets begin a file with."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import LevelheadError


def read(path: str | Path) -> str:
    """The text of a file; a ValueError that says what it is instead, for a message that has named the file."""
    try:
        found = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise LevelheadError("not valid UTF-8; save the file as UTF-8") from None
    if not found.strip():
        raise LevelheadError("it is empty")
    return found


def number(word: str) -> float:
    """A number as it is written; a ValueError that shows what is none.

    >>> number(" 1e3 ")
    1000.0
    """
    try:
        return float(word)
    except ValueError:
        raise LevelheadError(f"{word.strip()!r} is no number") from None


def is_number(word: str) -> bool:
    """Whether a word is a number.

    >>> is_number("1e3"), is_number("cat")
    (True, False)
    """
    try:
        float(word)
    except ValueError:
        return False
    return True
