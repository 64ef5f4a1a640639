"""Text files written by other programs, JSON, and numbers in text.

Files are UTF-8, with or without the byte order mark of spreadsheets. JSON is what Python reads, but
not deeper than any file of ours is: code that walks through it may then be recursive. Numbers are
what `float` takes, so that "1e3", " 7 " and "nan" are some; what may be NaN is for the caller.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import LevelheadError, reported_as
from .regular_file import unchanged_while_read

DEEPEST_JSON = 100  # levels; what people write has three
_TOO_DEEP = f"not JSON (nested more than {DEEPEST_JSON} levels deep)"


def read(path: str | Path, wanted: str = "text") -> str:
    """Return the text of a file.

    Args:
        path: of a regular file.
        wanted: what it should hold, for messages.

    Raises:
        LevelheadError: no text, or not UTF-8; without the name of the file, which `in_file` adds.
        FileNotFoundError: there is none.
    """
    with (
        reported_as("not valid UTF-8; save the file as UTF-8", UnicodeDecodeError),
        unchanged_while_read(path, wanted),
    ):
        content = Path(path).read_text(encoding="utf-8-sig")
    if not content.strip():
        raise LevelheadError("the file is empty")
    return content


def parse_json(content: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return what JSON text holds.

    Args:
        content: the text.
        pairs: makes an object of its (key, value) pairs, for whoever must see repeated keys; a dict
            if None.

    Raises:
        LevelheadError: it is not JSON, or nested deeper than any file of ours.
    """
    with (
        reported_as(_TOO_DEEP, RecursionError),
        reported_as("not JSON ({})", ValueError),  # also for a number of more than 4300 digits
    ):
        value = json.loads(content, object_pairs_hook=pairs)
    # Level by level, as a recursion would itself go too deep: what each holds is the next.
    level = [value]
    for _ in range(DEEPEST_JSON):
        inside = []
        for item in level:
            if isinstance(item, dict):
                inside += item.values()
            elif isinstance(item, list):
                inside += item
        level = [item for item in inside if isinstance(item, dict | list)]
        if not level:
            return value
    raise LevelheadError(_TOO_DEEP)


def is_numeric(cell: str) -> bool:
    """Return whether a cell is a number, with a decimal point or comma."""
    return is_number(cell) or is_decimal_comma(cell)


def is_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number with a decimal comma.

    >>> is_decimal_comma("1,5"), is_decimal_comma("1.5"), is_decimal_comma("1,000,000")
    (True, False, False)
    """
    return re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?", cell) is not None


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
