"""Records and JSON: dataclasses made of objects that people write in files, and written as such.

`record_from` makes a record of a JSON object; `convert_fields_`, which a record calls when it is
made, checks each value by its annotation; and `to_plain` is the way back.

So the annotations of a dataclass are the schema of its file, and there is no other. Those that are
understood: str, int, float, bool, dict[...], tuple[X, ...], tuple[X, Y], Literal[...], Any, unions
of these, and other classes, by isinstance.
"""

import sys
from dataclasses import MISSING, asdict, fields
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from .errors import LevelheadError

_Record = TypeVar("_Record")
Hint = Any  # an annotation: a class, `int | None`, `tuple[int, ...]`, `Literal["a", "b"]`
UNFIT = object()  # in place of a value that does not have the type it should
_IN_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
}


def record_from(kind: type[_Record], values: object) -> _Record:
    """Return the dataclass that a JSON object holds.

    Lists become tuples, and unknown entries are ignored.

    Unknown entries may be those of a later version, which must not keep an earlier one from reading
    the rest.

    Args:
        kind: a dataclass, which checks its own values (`convert_fields_`).
        values: what was read.

    Raises:
        LevelheadError: no object, or one without a field that has no default.
    """
    if not isinstance(values, dict):
        raise LevelheadError("not a JSON object")
    entries = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in values:
            value = values[field.name]
            if isinstance(value, list):
                value = tuple(value)
            entries[field.name] = value
        elif field.default is MISSING:
            raise LevelheadError(f"no {field.name!r}")
    return kind(**entries)


def convert_fields_(record: Any, *, but: str = "") -> None:
    """Convert each field to its annotated type, as 100 to 100.0.

    To be called in `__post_init__`, so that a record that was made is a record that fits.

    Args:
        record: a dataclass, frozen or not.
        but: a field that may have another type, which its record checks by itself.

    Raises:
        LevelheadError: a value does not fit; the message says in words what was expected.
    """
    hints = get_type_hints(type(record))
    for field in fields(record):
        value = getattr(record, field.name)
        hint = hints[field.name]
        converted = convert(value, hint)
        if converted is not UNFIT:
            object.__setattr__(record, field.name, converted)  # it may be frozen
        elif field.name != but:
            got = value
            if isinstance(value, tuple):
                got = list(value)  # as it was written
            raise LevelheadError(
                f"expected {type_in_words(hint)}, got {got!r}", parameter=field.name
            )


def fits(value: object, hint: Hint) -> bool:
    """Return whether a value has the annotated type."""
    return convert(value, hint) is not UNFIT


def convert(value: object, hint: Hint) -> object:
    """Return a value as the annotated type, or UNFIT.

    An int becomes a float where one is wanted, if it is finite; a bool is neither. Of a union, the
    first part that fits counts.

    Args:
        value: as JSON gave it, with tuples in place of lists.
        hint: the annotation.

    >>> convert(100, float), convert((1, 2), tuple[int, ...]), convert(True, int) is UNFIT
    (100.0, (1, 2), True)
    """
    origin = get_origin(hint)
    parts = get_args(hint)
    # `int | None` is a UnionType, `Optional[int]` a Union, as typing has them.
    if origin in (Union, UnionType):
        for part in parts:
            converted = convert(value, part)
            if converted is not UNFIT:
                return converted
        return UNFIT
    if origin is tuple and isinstance(value, tuple):
        return _convert_items(value, parts)
    if hint is float and not isinstance(value, bool):
        # JSON has integers of any length, of which some are larger than any float.
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
            return float(value)
        return UNFIT
    # The others fit as they are, or do not.
    if hint is Any:
        is_fit = True
    elif origin is dict and isinstance(value, dict):
        is_fit = all(fits(key, parts[0]) and fits(value[key], parts[1]) for key in value)
    elif origin is not None:
        is_fit = origin is Literal and value in parts
    elif isinstance(value, bool):  # which is an int to Python
        is_fit = hint is bool
    else:
        is_fit = isinstance(value, hint)
    if not is_fit:
        return UNFIT
    return value


def _convert_items(values: tuple[object, ...], hints: tuple[Hint, ...]) -> object:
    """Return a tuple with each item converted, or UNFIT.

    `tuple[int, ...]` may have any number of items, `tuple[int, str]` exactly these.
    """
    if hints[-1] is ...:
        hints = (hints[0],) * len(values)
    if len(hints) != len(values):
        return UNFIT
    items = tuple(map(convert, values, hints))
    if any(item is UNFIT for item in items):
        return UNFIT
    return items


def type_in_words(hint: Hint) -> str:
    """Return an annotation in words, for a message.

    >>> type_in_words(tuple[int, ...] | None), type_in_words(Literal["em", "bbse"])
    ('a list of whole numbers', 'em or bbse')
    """
    parts = [part for part in get_args(hint) if part not in (type(None), ...)]
    if get_origin(hint) is Literal:
        return f"{', '.join(parts[:-1])} or {parts[-1]}"
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(type_in_words, parts))
    if get_origin(hint) is tuple:
        return f"a list of {type_in_words(parts[0]).removeprefix('a ')}s"
    return _IN_WORDS[get_origin(hint) or hint]


def to_plain(record: Any) -> dict[str, object]:
    """Return a dataclass as a dict that JSON can hold.

    Arrays and tuples become lists, in records inside it too.

    Args:
        record: a dataclass.
    """
    return {key: _plain_value(value) for key, value in asdict(record).items()}


def _plain_value(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain_value(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return value
