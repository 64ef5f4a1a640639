"""The values of a record as its fields state them: for records whose values people write in files."""

from __future__ import annotations

import sys
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..core.errors import LevelheadError

WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def settle_(record: Any, *, but: str = "") -> None:
    """Every value as its annotation says; a ValueError names the first field, `but` one, where it is of another kind.

    So that a record is the same however its numbers are written: 100 is 100.0 where a number is stated.
    """
    hints = get_type_hints(type(record))
    for field in fields(record):
        value = getattr(record, field.name)
        if fits(value, hints[field.name]):
            object.__setattr__(record, field.name, stated(value, hints[field.name]))  # it may be frozen
        elif field.name != but:
            got = list(value) if isinstance(value, tuple) else value
            named = "the {} {}" if get_origin(hints[field.name]) is Literal else "{} as {}"
            raise LevelheadError(f"expected {named.format(field.name, words(hints[field.name]))}, got {got!r}")


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
    if hint is float and isinstance(value, int):
        return abs(value) <= sys.float_info.max
    return isinstance(value, hint)


def stated(value: Any, hint: Any) -> Any:
    """A value that fits, as the very kind: a whole number where a number is stated becomes one.

    >>> stated(3, float | None), stated((1, 2.5), tuple[float, ...]), stated(3, str | int)
    (3.0, (1.0, 2.5), 3)
    """
    parts = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return stated(value, next(part for part in parts if fits(value, part)))
    if get_origin(hint) is tuple:
        each = [parts[0]] * len(value) if parts[-1] is ... else parts
        return tuple(map(stated, value, each))
    return float(value) if hint is float else value


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
