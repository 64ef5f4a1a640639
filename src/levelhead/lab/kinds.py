"""Whether the values of a record are of the kinds its fields state: for records whose values people write in files."""

from __future__ import annotations

from dataclasses import fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def check(record: Any, *, but: str = "") -> None:
    """A ValueError that names the first field, `but` one, whose value is of another kind than its annotation says."""
    hints = get_type_hints(type(record))
    for field in fields(record):
        value = getattr(record, field.name)
        if field.name != but and not fits(value, hints[field.name]):
            got = list(value) if isinstance(value, tuple) else value
            named = "the {} {}" if get_origin(hints[field.name]) is Literal else "{} as {}"
            raise ValueError(f"expected {named.format(field.name, words(hints[field.name]))}, got {got!r}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a kind; a whole number is a number too, and true or false is none.

    >>> fits(3, float | None), fits(True, int), fits((1, "a"), tuple[int, ...]), fits("no", Literal["yes", "no"])
    (True, False, False, True)
    """
    parts = get_args(hint)
    if get_origin(hint) is Literal:
        return value in parts
    if get_origin(hint) in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if get_origin(hint) is tuple:
        each = [parts[0]] * len(value) if parts[-1] is ... and isinstance(value, tuple) else parts
        return isinstance(value, tuple) and len(value) == len(each) and all(map(fits, value, each))
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float if hint is float else hint)


def words(hint: Any) -> str:
    """A kind in words.

    >>> words(tuple[int, ...] | None), words(Literal["small", "half", "imagenet"])
    ('a list of whole numbers', 'small, half or imagenet')
    """
    parts = [part for part in get_args(hint) if part not in (type(None), ...)]
    if get_origin(hint) is Literal:
        return f"{', '.join(parts[:-1])} or {parts[-1]}"
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(words, parts))
    if get_origin(hint) is tuple:
        return f"a list of {words(parts[0]).removeprefix('a ')}s"
    return WORDS[hint]
