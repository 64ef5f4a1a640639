"""Dataclass fields checked by their annotations: for records whose values people write in files."""

import sys
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..core.errors import LevelheadError

_Record = TypeVar("_Record")
_IN_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object"}


def record_from(kind: type[_Record], values: Any) -> _Record:
    """Return the dataclass that a JSON object holds; lists become tuples and unknown entries are ignored."""
    if not isinstance(values, dict):
        raise LevelheadError("not a JSON object")
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    if absent := [name for name, field in known.items() if field.default is MISSING and name not in values]:
        raise LevelheadError(f"no {absent[0]!r}")
    given = {name: values[name] for name in known if name in values}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def convert_fields_(record: Any, *, but: str = "") -> None:
    """Convert each field to its annotated type, as 100 to 100.0; raise LevelheadError where one does not fit."""
    hints = get_type_hints(type(record))
    for field in fields(record):
        value, hint = getattr(record, field.name), hints[field.name]
        if fits(value, hint):
            object.__setattr__(record, field.name, convert(value, hint))  # it may be frozen
        elif field.name != but:
            got = list(value) if isinstance(value, tuple) else value
            raise LevelheadError(f"expected {type_in_words(hint)}, got {got!r}", parameter=field.name)


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value has the annotated type. An int is a float too, if it is finite; a bool is neither."""
    parts = get_args(hint)
    if hint is Any:
        return True
    if get_origin(hint) is Literal:
        return value in parts
    if get_origin(hint) in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if get_origin(hint) is tuple:
        each = _each(value, hint) if isinstance(value, tuple) else []
        return isinstance(value, tuple) and len(value) == len(each) and all(map(fits, value, each))
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(fits(key, parts[0]) and fits(value[key], parts[1]) for key in value)
    if isinstance(value, bool):
        return hint is bool
    if hint is float:  # JSON has integers of any length
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return isinstance(value, hint)


def convert(value: Any, hint: Any) -> Any:
    """Return a value that fits as the annotated type: an int becomes a float where the annotation says so."""
    if get_origin(hint) in (Union, UnionType):
        return convert(value, next(part for part in get_args(hint) if fits(value, part)))
    if get_origin(hint) is tuple:
        return tuple(map(convert, value, _each(value, hint)))
    return float(value) if hint is float else value


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


def _each(value: tuple[Any, ...], hint: Any) -> list[Any]:
    """Return the annotation of each item of a tuple."""
    parts = get_args(hint)
    return [parts[0]] * len(value) if parts[-1] is ... else list(parts)
