"""One value per class: {class: value} put in class order; names of classes, and classes named in messages.

A number is the position of a class everywhere, in labels, counts, floors and targets. Only where the
names of the classes are given and all of them are numbers, it is a name everywhere.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..support.columns import column_numbers, number_order, titles_of, whole_number
from ..support.errors import Advice, LevelheadError, visible


def as_mapping(values: Any, most: int | None = None) -> Mapping[Any, Any] | None:
    """Return values as {class: value} if they say which class each belongs to, as a mapping or pandas Series does."""
    if isinstance(values, Mapping):
        return values
    index = getattr(values, "index", None)
    is_series = index is not None and not callable(index) and getattr(values, "ndim", None) == 1
    if not is_series or (most is not None and len(values) > most):
        return None
    return without_repeats(zip(values.index, values.tolist(), strict=True))


def in_order(
    values: Mapping[Any, Any],
    classes: int | None,
    names: Sequence[str] | None,
    *,
    what: str = "count",
) -> np.ndarray:
    """Return {class: value}, by index or known name, as [K] in class order; K is the number of values if not given."""
    size = classes if classes is not None else len(values)
    found: dict[int, float] = {}
    for i, (key, value) in zip(
        find_classes(values, size, names, what=what), values.items(), strict=True
    ):
        try:
            found[i] = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            flaw = "beyond any float"
            if not isinstance(error, OverflowError):
                flaw = repr(value)
            raise LevelheadError(
                f"the {what} of class {key!r} is {flaw}; expected a number"
            ) from None
    if len(found) < size:
        absent = next(i for i in range(size) if i not in found)
        expected = f"expected {size} {what}s, one per class, got {len(values)}"
        raise LevelheadError(f"{title(absent, names)} has no {what}; {expected}")
    return np.array([found[i] for i in range(size)])


def find_classes(
    keys: Iterable[Any], classes: int, names: Sequence[str] | None, *, what: str = "value"
) -> list[int]:
    """Return the indices of classes that are given by index or by known name, each once."""
    finder = _ClassFinder.of(names, what)
    if (repeated := first_repeated(finder.names)) is not None:
        raise LevelheadError(f"two classes are called {repeated!r}; give {what}s in class order")
    found: dict[int, Any] = {}
    for key in keys:
        i = finder.find(key)
        if not 0 <= i < classes:
            raise LevelheadError(f"unknown class {key!r}; expected classes 0 to {classes - 1}")
        if i in found:
            raise LevelheadError(f"class {key!r} has two {what}s")
        found[i] = key
    return list(found)


class _ClassFinder(NamedTuple):
    """Finds the positions of classes.

    Args:
        called: {name: position}; of names that are numbers, {number: position}.
        numbered: whether all names are numbers.
        names: of the classes, where they are known.
        what: is given for a class, such as a count.
    """

    called: dict[Any, int]
    numbered: bool
    names: Sequence[str]
    what: str

    @staticmethod
    def of(names: Sequence[str] | None, what: str) -> "_ClassFinder":
        """Make one for classes whose names may be known."""
        words = []
        if names is not None:
            words = [str(name) for name in names]
        numbered = are_numbers(words)
        keys = words
        if numbered:
            keys = [whole_number(word) for word in words]
        return _ClassFinder({key: i for i, key in enumerate(keys)}, numbered, words, what)

    def find(self, key: Any) -> int:
        """Return the position of a class, which may be beyond the last if it was given itself."""
        number = whole_number(key)
        if number is not None and not self.numbered:
            other = self.called.get(str(key), number)
            if other != number:
                may_be = f"may be class {number} or the class called so, class {other}"
                raise LevelheadError(f"{str(key)!r} {may_be}; give {self.what}s in class order")
            return number
        name = number if self.numbered else str(key)
        if name in self.called:
            return self.called[name]
        if self.names:
            known = listed(self.names)
            raise LevelheadError(f"unknown class name {str(key)!r}; the classes are {known}")
        unknown = f"got the class name {str(key)!r}, but class names are not known here"
        advice = Advice("names", None, "to say which class is which")
        reason = f"{unknown}, so {self.what}s must be in class order"
        raise LevelheadError(reason, advice=advice)


def are_numbers(names: Sequence[Any] | None) -> bool:
    """Return whether names are given and all are different whole numbers, so that a number is a name.

    >>> are_numbers(["1", "2"]), are_numbers(["1", "cat"]), are_numbers(None)
    (True, False, False)
    """
    numbers = []
    if names is not None:
        numbers = [whole_number(str(name)) for name in names]
    return bool(numbers) and None not in numbers and len(set(numbers)) == len(numbers)


def without_repeats(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the pairs as a dict; raise LevelheadError if a class occurs twice."""
    pairs = list(pairs)
    if (repeated := first_repeated(key for key, _ in pairs)) is not None:
        raise LevelheadError(f"class {repeated!r} is listed twice")
    return dict(pairs)


def first_repeated(names: Iterable[Any]) -> Any:
    """Return the first repeated name, or None."""
    seen: set[Any] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)


def title(i: int, names: Sequence[str] | None) -> str:
    """Return a class's number and, where it has another, its name."""
    if names is None or str(names[i]) == str(i):
        return f"class {i}"
    return f"class {i} ({visible(str(names[i]))})"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return the first names and, if there are more, how many there are: 'ant, cat, ... (3 in all)'."""
    more = ""
    if len(names) > most:
        more = f", ... ({len(names)} in all)"
    return ", ".join(visible(str(name)) for name in names[:most]) + more


def proportional(counts: Any, others: Any) -> bool:
    """Return whether two sets of counts [K] have the same proportions."""
    one = np.asarray(counts, np.float64)
    other = np.asarray(others, np.float64)
    return one.shape == other.shape and np.allclose(one / one.max(), other / other.max(), atol=0)


def check_names(names: Sequence[str], classes: int | None = None) -> list[str]:
    """Return class names as a list, after checking that there is one for each class and none twice."""
    found = [str(name) for name in names]
    if isinstance(names, str | Mapping):
        flaw = f"expected a list of class names, got {type(names).__name__}"
    elif classes is not None and len(found) != classes:
        flaw = f"expected {classes} class names, one per class, got {len(found)}"
    elif (repeated := first_repeated(found)) is not None:
        flaw = f"two classes are called {repeated!r}; expected distinct names"
    elif "" in found:
        flaw = f"class {found.index('')} has an empty name"
    else:
        return found
    raise LevelheadError(flaw, parameter="names")


def names_of_columns(logits: Any, counts: Any) -> list[str] | None:
    """Return the names of the classes that the titles of a data frame's columns say, or None.

    They are numbers other than 0, 1, 2, ..., in their order; or the classes of {class: n} in the
    order of the columns, whose titles end in them, as `logit_cat`.
    """
    titles = titles_of(logits) or []
    numbers = column_numbers(titles) if titles else None
    if numbers is not None and sorted(numbers) != list(range(len(numbers))):
        return [str(number) for number in sorted(numbers)]
    titles = [titles[i] for i in number_order(titles) or range(len(titles))]
    known = as_mapping(counts, len(titles)) if titles else None
    if known is None or not all(isinstance(key, str) for key in known) or are_numbers(list(known)):
        return None
    patterns = {key: re.compile(f"(.*[^a-z0-9])?{re.escape(key)}[])]?") for key in known}
    fitting = [[key for key in known if patterns[key].fullmatch(str(title))] for title in titles]
    names = [max(keys, key=len) for keys in fitting if keys]
    if len(names) == len(fitting) and sorted(names) == sorted(known):
        return names
    return None


def names_in_config(config: Any, classes: int) -> list[str] | None:
    """Return the class names in the config of a transformers model, or None if it has not one for each class."""
    labels = getattr(config, "id2label", None)
    if not isinstance(labels, Mapping) or set(map(str, labels)) != set(map(str, range(classes))):
        return None
    names = [str(name) for _, name in sorted(labels.items(), key=lambda item: int(item[0]))]
    if len(set(names)) == len(names) and names != [f"LABEL_{i}" for i in range(len(names))]:
        return names
    return None
