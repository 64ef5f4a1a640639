"""One value per class: {class: value} put in class order; names of classes, and classes named in messages.

A number is the position of a class everywhere, in labels, counts, floors and targets. Only where the
names of the classes are given and all of them are numbers, it is a name everywhere.

Whatever users give for each class goes one road: `as_mapping` sees whether it says which class is meant,
`find_classes` finds the positions, and `in_order` puts the values there. `title` and `listed` are how messages
name classes, `names_of_columns` and `names_in_config` find names where nobody gave them: in the titles of a data
frame, and in the config of a transformers model. `check_titles` sees that titles do not contradict names.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ..support.arrays import is_torch, to_numpy
from ..support.columns import (
    classes_of_scores,
    column_numbers,
    number_order,
    titles_of,
    whole_number,
)
from ..support.errors import Advice, LevelheadError, visible

Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value")


def as_mapping(values: object, most: int | None = None) -> Mapping[object, float] | None:
    """Return values as {class: value} if they say which class each belongs to; None if they do not.

    Args:
        values: anything; a mapping or a pandas Series says so. The numbers are not checked.
        most: how many entries a Series may have: a longer one is of labels, whose index says nothing.
    """
    if isinstance(values, Mapping):
        return values
    if not is_series(values):
        return None
    series_values = values.tolist()  # type: ignore[attr-defined]
    if most is not None and len(series_values) > most:
        return None
    return without_repeats(zip(values.index, series_values, strict=True))  # type: ignore[attr-defined]


def is_series(values: object) -> bool:
    """Return whether values are a pandas Series, whose index may say which class each belongs to."""
    # A list has an `index`, too, but as a method.
    index = getattr(values, "index", None)
    return index is not None and not callable(index) and getattr(values, "ndim", None) == 1


def in_order(
    values: Mapping[object, float],
    classes: int | None,
    names: Sequence[str] | None,
    *,
    what: str = "count",
) -> np.ndarray:
    """Return {class: value} as [K], in class order.

    Args:
        values: by index or known name.
        classes: K; as many as there are values if None.
        names: of the classes, where they are known.
        what: the values are, for a message.

    Raises:
        LevelheadError: a class without a value or with two, a class that is not known, or a value that
            is no number.

    >>> in_order({"dog": 3, "cat": 5}, 2, ["cat", "dog"])
    array([5., 3.])
    """
    size = classes
    if size is None:
        size = len(values)
    # Each value to its place; then whether every class has one.
    ordered: dict[int, float] = {}
    positions = find_classes(values, size, names, what=what)
    for i, (key, value) in zip(positions, values.items(), strict=True):
        try:
            ordered[i] = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            flaw = "beyond any float"
            if not isinstance(error, OverflowError):
                flaw = repr(value)
            raise LevelheadError(
                f"the {what} of class {key!r} is {flaw}; expected a number"
            ) from None
    if len(ordered) < size:
        absent = next(i for i in range(size) if i not in ordered)
        expected = f"expected {size} {what}s, one per class, got {len(values)}"
        raise LevelheadError(f"{title(absent, names)} has no {what}; {expected}")
    return np.array([ordered[i] for i in range(size)])


def find_classes(
    keys: Iterable[object], classes: int, names: Sequence[str] | None, *, what: str | None = "value"
) -> list[int]:
    """Return the positions of classes that are given by index or by known name, each once.

    Args:
        keys: the classes.
        classes: K.
        names: of all classes, where they are known.
        what: is given for each of them, for a message; None if only the class itself is.

    Returns:
        Positions from 0 to K - 1, in the order of the keys.

    Raises:
        LevelheadError: a class that is not known, one that is given twice, or one of two names that
            are the same.

    >>> find_classes(["dog", 0], 2, ["cat", "dog"]), find_classes([7], 2, ["5", "7"])
    ([1, 0], [1])
    """
    # Two classes of one name: then no name tells them apart.
    finder = _ClassFinder.of(names, what)
    repeated = first_repeated(finder.names)
    if repeated is not None:
        raise LevelheadError(f"two classes are called {repeated!r}; {finder.instead}")
    positions: dict[int, object] = {}
    for key in keys:
        i = finder.find(key)
        if not 0 <= i < classes:
            raise LevelheadError(f"unknown class {key!r}; expected classes 0 to {classes - 1}")
        if i in positions:
            raise LevelheadError(f"class {key!r} has two {what}s")
        positions[i] = key
    return list(positions)


class _ClassFinder(NamedTuple):
    """Finds the positions of classes.

    It holds the rule of this module: a number is a position, unless all names are numbers. Where a number
    could be both, as among the names `cat` and `0`, it is refused and not guessed.

    Args:
        called: {name: position}; of names that are numbers, {number: position}.
        numbered: whether all names are numbers.
        names: of the classes, where they are known.
        what: is given for a class, such as a count; None if only the class itself is.
    """

    called: dict[object, int]
    numbered: bool
    names: Sequence[str]
    what: str | None

    @staticmethod
    def of(names: Sequence[str] | None, what: str | None) -> _ClassFinder:
        """Make one for classes whose names may be known."""
        words = []
        if names is not None:
            words = as_names(names)
        numbered = are_numbers(words)
        keys: list[object] = list(words)
        if numbered:
            keys = [whole_number(word) for word in words]
        return _ClassFinder({key: i for i, key in enumerate(keys)}, numbered, words, what)

    @property
    def instead(self) -> str:
        """What to give where a key does not tell which class is meant."""
        if self.what is None:
            return "give its index"
        return f"give {self.what}s in class order"

    def find(self, key: object) -> int:
        """Return the position of a class, which may be beyond the last if it was given itself.

        Args:
            key: a whole number, or text, which may be a number written out, or a name.

        Raises:
            LevelheadError: a name that is not known, or a number that may be either.
        """
        # Labels that are bools are 0 and 1, and so are their keys where classes are not called so.
        if isinstance(key, bool | np.bool_) and (self.numbered or not self.names):
            key = int(key)
        number = whole_number(key)
        if number is not None and not self.numbered:
            # A number is a position; but one of the classes may be called by another number.
            other = self.called.get(str(key), number)
            if other != number:
                may_be = f"may be class {number} or the class called so, class {other}"
                raise LevelheadError(f"{str(key)!r} {may_be}; {self.instead}")
            return number
        # By its name; of names that are numbers, by the number: "07" is 7.
        name: object = str(key)
        if self.numbered:
            name = number
        if name in self.called:
            return self.called[name]
        if self.names:
            classes_text = listed(self.names)
            raise LevelheadError(f"unknown class name {str(key)!r}; the classes are {classes_text}")
        unknown = f"got the class name {str(key)!r}, but class names are not known here"
        advice = Advice("names", None, "to say which class is which")
        reason = f"{unknown}; {self.instead}"
        if self.what is not None:
            reason = f"{unknown}, so {self.what}s must be in class order"
        raise LevelheadError(reason, advice=advice)


def are_numbers(names: Sequence[object] | None) -> bool:
    """Return whether names are given and all are different whole numbers, so that a number is a name.

    >>> are_numbers(["1", "2"]), are_numbers(["1", "cat"]), are_numbers(None)
    (True, False, False)
    """
    numbers = []
    if names is not None:
        numbers = [whole_number(word) for word in as_names(names)]
    return bool(numbers) and None not in numbers and len(set(numbers)) == len(numbers)


def without_repeats(pairs: Iterable[tuple[Name, Value]]) -> dict[Name, Value]:
    """Return the pairs as a dict; raise LevelheadError if a class occurs twice.

    `dict` itself would keep the last of two counts without a word.
    """
    pairs = list(pairs)
    repeated = first_repeated(key for key, _ in pairs)
    if repeated is not None:
        raise LevelheadError(f"class {repeated!r} is listed twice")
    return dict(pairs)


def first_repeated(names: Iterable[Name]) -> Name | None:
    """Return the first repeated name, or None."""
    seen: set[Name] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def title(i: int, names: Sequence[str] | None) -> str:
    """Return a class's number and, where it has another, its name, for a message.

    >>> title(3, None), title(0, ["cat", "dog"]), title(1, ["0", "1"])
    ('class 3', 'class 0 (cat)', 'class 1')
    """
    if names is None or str(names[i]) == str(i):
        return f"class {i}"
    return f"class {i} ({visible(str(names[i]))})"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return the first names and, if there are more, how many there are.

    >>> listed(["ant", "cat", "dog"], most=2)
    'ant, cat, ... (3 in all)'
    """
    more = ""
    if len(names) > most:
        more = f", ... ({len(names)} in all)"
    return ", ".join(visible(str(name)) for name in names[:most]) + more


def as_names(names: Iterable[object], classes: int | None = None) -> list[str]:
    """Return class names as a list of texts, after checking that there is one for each class.

    Two may be the same, as of ImageNet's classes two are called "crane"; they only cannot be looked up.

    Args:
        names: in class order; text, mappings and sets are no such list, though Python could iterate
            over them. Whole numbers that are kept as floats, 2.0, are written as such: 2.
        classes: K; any number if None.

    Raises:
        LevelheadError: no list, or one of another length.

    >>> as_names(["cat", 7, 2.0])
    ['cat', '7', '2']
    """
    if isinstance(names, str | Mapping | set | frozenset) or not isinstance(names, Iterable):
        no_order = ""
        if isinstance(names, set | frozenset):
            no_order = ", which has no order"
        got = f"got {type(names).__name__}{no_order}"
        raise LevelheadError(f"expected a list of class names, {got}", parameter="names")
    words = []
    for name in names:
        if is_torch(name):
            name = to_numpy(name).item()
        if isinstance(name, float | np.floating) and float(name).is_integer():
            name = int(name)
        words.append(str(name))
    if classes is not None and len(words) != classes:
        got = f"expected {classes} class names, got {len(words)}"
        raise LevelheadError(got, parameter="names")
    return words


def check_names(names: Iterable[object], classes: int | None = None) -> list[str]:
    """Return class names as `as_names` does, after checking that none is empty or there twice."""
    words = as_names(names, classes)
    repeated = first_repeated(words)
    if repeated is not None:
        flaw = f"two classes are called {repeated!r}; expected distinct names"
        raise LevelheadError(flaw, parameter="names")
    if "" in words:
        flaw = f"class {words.index('')} has an empty name"
        raise LevelheadError(flaw, parameter="names")
    return words


def names_of_columns(
    logits: object, counts: object, names: Sequence[str] | None = None
) -> Sequence[str] | None:
    """Return the names of the classes: those given, or those that the titles of columns say, or None.

    Titles say them if they are numbers other than 0, 1, 2, ..., in their order; if they end in the
    classes of {class: n}, as `logit_cat`, in the order of the columns; or by themselves, if they are
    different words and the counts do not call the classes otherwise.

    Args:
        logits: of which a data frame has titles; anything else has none.
        counts: training counts, of which {class: n} tells names.
        names: of the classes, if they were given.

    Raises:
        LevelheadError: the names that were given are those of the columns, in another order.
    """
    if names is not None:
        names = as_names(names)
        check_titles(logits, names)
        return names
    titles = titles_of(logits)
    if not titles:
        return None
    # Titles that are numbers, but not the positions 0, 1, 2, ..., are names.
    numbers = column_numbers(titles)
    if numbers is not None and sorted(numbers) != list(range(len(numbers))):
        return [str(number) for number in sorted(numbers)]
    # The keys of the counts, in the order of the titles; then the titles alone.
    classes = [str(key) for key in as_mapping(counts, len(titles)) or () if isinstance(key, str)]
    if classes and not are_numbers(classes):
        return _classes_in_titles(titles, classes)
    if numbers is not None:
        return None
    return _words_in_titles(titles)


def _words_in_titles(titles: Sequence[object]) -> list[str] | None:
    """Return titles that are different words, without a word for scores before them; else None.

    Where one of them is a number, it could be a position as well.
    """
    words = classes_of_scores(titles) or [title for title in titles if isinstance(title, str)]
    different = len(set(words)) == len(titles) and "" not in words
    if not different or any(whole_number(word) is not None for word in words):
        return None
    return words


def check_titles(scores: object, names: Sequence[str], *, what: str = "columns") -> None:
    """Raise LevelheadError if columns are titled with the names of the classes in another order.

    Args:
        scores: of which a data frame has titles; anything else has none.
        names: of the classes, in the order in which the columns are taken to be.
        what: the columns are called in the message, such as rows of what is transposed.
    """
    titles = titles_of(scores)
    # Titles that nobody gave are positions: they do not name a class that is called "0".
    if not titles or titles == list(range(len(titles))):
        return
    expected_names = as_names(names)
    titled_names = _classes_in_titles(titles, expected_names)
    if titled_names is not None and titled_names != expected_names:
        orders = (
            f"in another order ({listed(titled_names)}) than expected ({listed(expected_names)})"
        )
        instead = "bring them into one order"
        if number_order(titles) is not None:
            instead = (
                f"{what} are read in the order of the numbers in their titles, so give that one"
            )
        raise LevelheadError(f"{what} are titled with the classes {orders}; {instead}")


def _classes_in_titles(titles: Sequence[object], classes: Sequence[str]) -> list[str] | None:
    """Return the classes that titles end in, in the order in which columns are read; None if not all do.

    Columns titled with numbers are read in the order of these numbers.
    """
    titles = [titles[i] for i in number_order(titles) or range(len(titles))]
    # A title may end in several names, as `logit_wild cat` does in `cat`: the longest is meant.
    patterns = {name: re.compile(f"(.*[^a-z0-9])?{re.escape(name)}[])]?") for name in classes}
    names = []
    for column_title in titles:
        fitting = [name for name in classes if patterns[name].fullmatch(str(column_title))]
        if not fitting:
            return None
        names.append(max(fitting, key=len))
    if sorted(names) == sorted(classes):
        return names
    return None


def names_in_config(config: object, classes: int) -> list[str] | None:
    """Return the class names in the config of a transformers model, or None if it has not one for each class.

    Its `id2label` is {position: name}; from a JSON file, positions are text. Names that nobody gave
    are LABEL_0, LABEL_1 and so on, which tell nothing.
    """
    labels = getattr(config, "id2label", None)
    if not isinstance(labels, Mapping) or set(map(str, labels)) != set(map(str, range(classes))):
        return None
    names = [str(name) for _, name in sorted(labels.items(), key=lambda item: int(item[0]))]
    if len(set(names)) == len(names) and names != [f"LABEL_{i}" for i in range(len(names))]:
        return names
    return None
