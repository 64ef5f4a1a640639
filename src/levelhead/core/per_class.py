"""One value per class, given by class: {class: value} or a pandas Series, put in class order, each class once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .errors import LevelheadError


def as_mapping(values: Any, most: int | None = None) -> Mapping[Any, Any] | None:
    """values as {class: value}, if they say which class each is of: a mapping, or a pandas Series, in any order.

    Args:
        values: whatever the user has.
        most: a Series of more values than there are classes is one of samples: None.

    >>> as_mapping({"cat": 3}), as_mapping([3, 4])
    ({'cat': 3}, None)
    """
    if isinstance(values, Mapping):
        return values
    index = getattr(values, "index", None)
    if index is None or callable(index) or getattr(values, "ndim", None) != 1:
        return None
    if most is not None and len(values) > most:
        return None
    return without_repeats(zip(index, values.tolist(), strict=True))


def in_order(
    values: Mapping[Any, Any], classes: int | None, names: Sequence[str] | None, *, what: str = "count",
    offers: Collection[str] = (),
) -> np.ndarray:
    """{class: value} as [K], in class order.

    Args:
        values: by index, or by name if `names` lists them.
        classes: K; as many as there are values if None.
        names: the K class names in order.
        what: they are, in messages.
        offers: `names`, if the function that was called has it: a message tells of it then.

    >>> in_order({"dog": 30, "cat": 70}, 2, ["cat", "dog"])
    array([70., 30.])
    """
    known = {str(name): i for i, name in enumerate(names)} if names is not None else {}
    if len(known) < len(names or ()):
        raise LevelheadError(f"two classes are called {_twice(map(str, names or ()))!r}; give {what}s in class order")
    size = classes if classes is not None else len(values)
    found = np.zeros(size)
    seen: set[int] = set()
    for key, value in values.items():
        if str(key) in known:
            i = known[str(key)]
        elif str(key).lstrip("-").isdigit():
            i = int(key)
        elif known:
            raise LevelheadError(f"unknown class name {str(key)!r}; the classes are {listed(names or [])}")
        else:
            aside = " (names= says which is which)" if "names" in offers else ""
            raise LevelheadError(f"class {str(key)!r} is a name, and nothing here says which class that is; give {what}s "
                             f"in class order, or {{index: n}}{aside}")
        if not 0 <= i < size:
            raise LevelheadError(f"unknown class {key!r}; expected classes 0 to {size - 1}")
        if i in seen:
            raise LevelheadError(f"class {key!r} is counted twice")
        seen.add(i)
        found[i] = _number(value, key, what)
    if len(seen) < size:
        absent = next(i for i in range(size) if i not in seen)
        raise LevelheadError(f"{title(absent, names)} has no {what}; expected {size} {what}s, one per class, got "
                         f"{len(values)}")
    return found


def without_repeats(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The pairs as a dict; a ValueError if a class is among them twice."""
    pairs = list(pairs)
    found = dict(pairs)
    if len(found) < len(pairs):
        raise LevelheadError(f"class {_twice(key for key, _ in pairs)!r} is there twice")
    return found


def title(i: int, names: Sequence[str] | None) -> str:
    """A class by its number and, where there is one, its name.

    >>> title(2, None), title(2, ["cat", "dog", "elk"])
    ('class 2', 'class 2 (elk)')
    """
    return f"class {i}" if names is None else f"class {i} ({names[i]})"


def listed(names: Sequence[str], most: int = 8) -> str:
    """The first names and, if there are more, how many in all."""
    return ", ".join(map(str, names[:most])) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def _twice(names: Iterable[Any]) -> Any:
    """The first name that is there a second time; None if none is."""
    seen: set[Any] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)


def _number(value: Any, key: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise LevelheadError(f"the {what} of class {key!r} is {value!r}; expected a number") from None
