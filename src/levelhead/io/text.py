"""Text files written by other programs: UTF-8, with or without the byte order mark of spreadsheets."""

from pathlib import Path

from ..core.errors import LevelheadError


def read(path: str | Path) -> str:
    """Return the text of a file; the error for a file without text does not name it."""
    try:
        content = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise LevelheadError("not valid UTF-8; save the file as UTF-8") from None
    if not content.strip():
        raise LevelheadError("the file is empty")
    return content


def number(word: str) -> float:
    """Return a number from text."""
    try:
        return float(word)
    except ValueError:
        raise LevelheadError(f"expected a number, got {word.strip()!r}") from None


def is_number(word: str) -> bool:
    """Return whether a word is a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True
