"""Dataclass fields checked by their annotations: for records whose values people write in files."""

import sys
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import LevelheadError

_Record = TypeVar("_Record")
UNFIT = object()  # in place of a value that does not have the type it should
_IN_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
}


def record_from(kind: type[_Record], values: Any) -> _Record:
    """Return the dataclass that a JSON object holds; lists become tuples and unknown entries are ignored."""
    if not isinstance(values, dict):
        raise LevelheadError("not a JSON object")
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    if absent := [
        name for name, field in known.items() if field.default is MISSING and name not in values
    ]:
        raise LevelheadError(f"no {absent[0]!r}")
    given = {name: values[name] for name in known if name in values}
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
        }
    )


def convert_fields_(record: Any, *, but: str = "") -> None:
    """Convert each field to its annotated type, as 100 to 100.0; raise LevelheadError where one does not fit."""
    hints = get_type_hints(type(record))
    for field in fields(record):
        value = getattr(record, field.name)
        hint = hints[field.name]
        if (found := convert(value, hint)) is not UNFIT:
            object.__setattr__(record, field.name, found)  # it may be frozen
        elif field.name != but:
            got = list(value) if isinstance(value, tuple) else value
            raise LevelheadError(
                f"expected {type_in_words(hint)}, got {got!r}", parameter=field.name
            )


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value has the annotated type."""
    return convert(value, hint) is not UNFIT


def convert(value: Any, hint: Any) -> Any:
    """Return a value as the annotated type, or UNFIT. An int becomes a float, if it is finite; a bool is neither."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return next(
            (found for part in parts if (found := convert(value, part)) is not UNFIT), UNFIT
        )
    if origin is tuple and isinstance(value, tuple):
        each = parts
        if parts[-1] is ...:
            each = [parts[0]] * len(value)
        if len(each) == len(value):
            items = tuple(map(convert, value, each))
        else:
            items = (UNFIT,)
        if any(item is UNFIT for item in items):
            return UNFIT
        return items
    if hint is float and not isinstance(value, bool):  # JSON has integers of any length
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
            return float(value)
        return UNFIT
    if origin is dict and isinstance(value, dict):
        known = all(fits(key, parts[0]) and fits(value[key], parts[1]) for key in value)
    elif hint is Any or origin is not None:
        known = hint is Any or (origin is Literal and value in parts)
    else:
        if isinstance(value, bool):
            known = hint is bool
        else:
            known = isinstance(value, hint)
    return value if known else UNFIT


def type_in_words(hint: Any) -> str:
    """Return an annotation in words: `tuple[int, ...] | None` is 'a list of whole numbers'."""
    parts = [part for part in get_args(hint) if part not in (type(None), ...)]
    if get_origin(hint) is Literal:
        return f"{', '.join(parts[:-1])} or {parts[-1]}"
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(type_in_words, parts))
    if get_origin(hint) is tuple:
        return f"a list of {type_in_words(parts[0]).removeprefix('a ')}s"
    return _IN_WORDS[get_origin(hint) or hint]
