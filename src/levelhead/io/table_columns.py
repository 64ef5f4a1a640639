"""Which columns of a table are logits, which one labels, and which are neither."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..core.class_names import are_numbers, listed
from ..support.columns import ENDS_IN_NUMBER, number_order
from ..support.errors import LevelheadError
from ..support.text import is_numeric
from .table import LABEL_TITLES, Table

ID_TITLES = re.compile(
    r"(.*[_ .-])?(id|ids|index|idx|uuid|key|pred|preds|prediction|predicted|fold|split|rank)|y_pred|unnamed: ?\d+|"
    r"__index_level_\d+__|(image|img|file|sample|row)([_ ]?(name|path|id|no|number))?|filename|path"
)
_LOGITS = re.compile(
    r"(logits?|scores?|outputs?|probs?|proba|probability|p)[ _.:-]?[\[(]?(.*?)[\])]?", re.IGNORECASE
)


class Layout(NamedTuple):
    """What the columns of a table are."""

    logits: list[int]  # places of the K columns of logits, in class order
    names: list[str] | None  # of the K classes, where the titles say them
    label: str | None = None  # the title of the column of labels, if there is one
    ignored: tuple[str, ...] = ()  # titles of columns that are neither


def find_columns(
    table: Table, names: Sequence[str] | None = None, classes: int | None = None
) -> Layout:
    """Find the logits, the labels and the rest among the columns of a table; one of K columns holds only logits."""
    # Logits are the columns called like the classes, if names are given; else those called `logit_*`; else all columns
    # of numbers that are neither labels nor ids. Labels are the column called as in `LABEL_TITLES`, if it can be.
    titles = table.titles
    given = None if not names else list(names)
    if titles is None:
        return Layout(list(range(len(table.columns))), given)
    places = columns_called(titles, names) if names else None
    if places is not None:
        label = _find_label(titles, _all_but(places))
        return _layout(titles, places, given, label)
    only_logits = len(titles) == (len(names) if names else classes)
    prefixed = _prefixed(titles)
    label = None
    if prefixed is not None and (not only_logits or len(prefixed.places) == len(titles)):
        places, called = prefixed
        label = _find_label(titles, _all_but(places))
    elif only_logits:
        places = list(range(len(titles)))
        called = titles
    else:
        label = _find_label(titles, lambda i: _may_be_labels(table, i))
        columns = [i for i in range(len(titles)) if i != label]
        places = [i for i in columns if not _is_id(titles[i], table.columns[i])]
        called = [titles[i] for i in places]
    places, called = _in_order(places, called, given)
    if given is not None and len(places) == len(given):
        called = given
    return _layout(titles, places, called, label)


def _layout(
    titles: Sequence[str], places: list[int], called: list[str] | None, label: int | None
) -> Layout:
    """Return the layout of a table whose logits and label are at these places."""
    used = {*places, label}
    ignored = tuple(title for i, title in enumerate(titles) if i not in used)
    return Layout(places, called, None if label is None else titles[label], ignored)


def _in_order(
    places: list[int], called: Sequence[str], given: Sequence[str] | None
) -> tuple[list[int], list[str] | None]:
    """Put columns that are numbered in the order of their numbers; return them with the names of the classes.

    Args:
        places: of the columns.
        called: what the columns are called.
        given: names of the classes that are known already.
    """
    if are_numbers(given):  # the columns may end in these numbers
        ends = [ENDS_IN_NUMBER.fullmatch(title) for title in called]
        number_of = {int(end[2]): place for place, end in zip(places, ends, strict=True) if end}
        numbers = [int(name) for name in given or ()]
        same_stem = len({end and end[1] for end in ends}) == 1
        if same_stem and sorted(number_of) == sorted(numbers) and len(numbers) == len(places):
            return [number_of[number] for number in numbers], list(given or ())
    order = number_order(called)
    if order is not None:
        places = [places[i] for i in order]
        called = [called[i] for i in order]
    if are_numbers(called):
        counted = list(map(int, called)) == list(range(len(called)))
        return places, None if counted else list(called)
    return places, None if any(map(is_numeric, called)) else list(called)


def _all_but(places: Sequence[int]) -> Callable[[int], bool]:
    taken = set(places)
    return lambda i: i not in taken


def columns_called(titles: Sequence[str], names: Sequence[str]) -> list[int] | None:
    """Return the places of the columns called like the classes, alone or after a word such as logit_, or None."""
    found = {title: i for i, title in enumerate(titles) if title in names}
    for i, title in enumerate(titles):
        if (match := _LOGITS.fullmatch(title)) and match[2] in names:
            found.setdefault(match[2], i)
    if len(found) == len(names):
        return [found[name] for name in names]
    return None


class _Prefixed(NamedTuple):
    """Columns that begin with a word such as logit_."""

    places: list[int]
    called: list[str]  # after that word


def _prefixed(titles: list[str]) -> _Prefixed | None:
    """Return the columns called logit_* (or scores_*, prob_*), with what they are called after that, or None."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for i, title in enumerate(titles):
        match = _LOGITS.fullmatch(title)
        if match is None or not match[2] or title.lower() in LABEL_TITLES:
            continue
        if len(match[1]) > 1 or match[2].isdigit():
            groups.setdefault(match[1].lower().rstrip("s"), []).append((i, match[2]))
    groups = {word: found for word, found in groups.items() if len(found) > 1}
    if not groups:
        return None
    if "logit" in groups:
        found = groups["logit"]
    else:
        found = max(groups.values(), key=len)
    called = [name for _, name in found]
    if all(name.isdecimal() for name in called):
        numbers = sorted(map(int, called))
        if numbers not in ([*range(len(found))], [*range(1, len(found) + 1)]):
            shown = listed([*map(str, numbers)])
            raise LevelheadError(
                f"expected a column of logits for each class, got those numbered {shown}"
            )
    return _Prefixed([i for i, _ in found], called)


def _find_label(titles: list[str], allowed: Callable[[int], bool]) -> int | None:
    lower = [title.lower() for title in titles]
    return next((i for t in LABEL_TITLES if t in lower and allowed(i := lower.index(t))), None)


def _may_be_labels(table: Table, i: int) -> bool:
    """Return whether a column holds text, or positions or numbers of classes, which logits are not."""
    values = table.columns[i]
    if values.dtype.kind not in "iufb":
        return True
    others = [title for at, title in enumerate(table.titles or ()) if at != i]
    within = are_numbers(others) or ((values >= 0).all() and (values < len(others)).all())
    return bool(within and (values == np.floor(values)).all())


def _is_id(title: str, values: np.ndarray) -> bool:
    """Return whether a column only identifies samples: all text, or whole numbers under a title such as `id`."""
    if values.dtype.kind not in "iufb":
        return not any(map(is_numeric, map(str, values.tolist())))
    whole = values.dtype.kind in "iub" or bool((values == np.floor(values)).all())
    return whole and ID_TITLES.fullmatch(title.lower()) is not None
