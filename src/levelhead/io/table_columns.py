"""Which columns of a table are logits, which one labels, and which are neither.

`find_columns` goes by names of the classes where they are known, by titles such as `logit_cat`, and
else by what the columns hold: a label is a whole number below K or a text, an id is a text or a
whole number under a title such as `id`, and what is left are logits. Columns titled with numbers
are put in the order of these numbers.

    file   label  cat   dog              logits [2, 3], names cat, dog
    a.png  1      0.2   1.4              label "label", ignored "file"

A mistake here is silent, since any column of numbers can be a class. So what was found is returned
in full, with what was ignored, and its callers say it; and where columns of logits are numbered, a
gap in the numbers is an error.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..core.class_names import are_numbers, listed
from ..core.class_names import title as class_title
from ..support.columns import SCORES_OF, number_order, numbers_in_titles
from ..support.errors import LevelheadError
from ..support.text import is_numeric
from .table import LABEL_TITLES, Table

# Titles of columns that identify a sample or say what was predicted: they are not logits, if their
# numbers are whole.
ID_TITLES = re.compile(
    r"(.*[_ .-])?(id|ids|index|idx|uuid|key|pred|preds|prediction|predicted|fold|split|rank)|y_pred|unnamed: ?\d+|"
    r"__index_level_\d+__|(image|img|file|sample|row)([_ ]?(name|path|id|no|number))?|filename|path"
)
# What a column is called that holds the logits of a sample as a list; of several the first of these.
_LIST_TITLES = (
    "logits", "logit", "scores", "score", "outputs", "output", "probabilities", "probs", "proba", "probability",
)  # fmt: skip


class Layout(NamedTuple):
    """What the columns of a table are."""

    # Places of the K columns of logits, in class order; or of one column of lists.
    logits: list[int]
    names: list[str] | None  # of the K classes, where the titles say them
    label: str | None = None  # the title of the column of labels, if there is one
    ignored: tuple[str, ...] = ()  # titles of columns that are neither


def find_columns(
    table: Table, names: Sequence[str] | None = None, classes: int | None = None
) -> Layout:
    """Find the logits, the labels and the rest among the columns of a table.

    A table of K columns holds only logits.

    Args:
        table: of predictions.
        names: of the classes, where they are known. Logits are then the columns called like them.
        classes: K, where only that is known.

    Returns:
        Without names, logits are the columns called `logit_*`, or all columns of numbers that are
        neither labels nor ids, or one column of lists. Labels are the column called as in
        `LABEL_TITLES`, if it can be. The names are None where the titles are only positions: 0, 1,
        2, ... A table without titles is logits from the first column to the last.

    Raises:
        LevelheadError: of columns such as logit_0, logit_1, logit_3, one is missing; or one is called
            like a class, and stands where another is.

    >>> columns = [np.array(["a.png", "b.png"], object), np.array([1, 0]), *np.eye(2)]
    >>> find_columns(Table(["file", "label", "cat", "dog"], columns))
    Layout(logits=[2, 3], names=['cat', 'dog'], label='label', ignored=('file',))
    """
    # Without titles, nothing tells one column from another.
    titles = table.titles
    given = list(names) if names else None
    if titles is None:
        return Layout(list(range(len(table.columns))), given)

    # By the names of the classes.
    if given is not None:
        places = columns_called(titles, given)
        if places is not None:
            return _layout(titles, places, given, _find_label(titles, _all_but(places)))
        classes = len(given)
    only_logits = len(titles) == classes and not _is_one_score(table)

    # By their form: all logits of a sample are a list in one column.
    lists = _column_of_lists(table)
    if lists is not None:
        return _layout(titles, [lists], given, _find_label(titles, _all_but([lists])))

    # By a word such as logit_, by their number, or by what the columns hold.
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
        # Of numbers, those that are true or false say something about a sample and are no scores.
        columns = [i for i in columns if table.columns[i].dtype.kind != "b"]
        places = [i for i in columns if not _is_id(titles[i], table.columns[i])]
        called = [titles[i] for i in places]
    places, called = _in_order(places, called, given)
    # As many columns as classes, but called otherwise: names that are given come first.
    if given is not None and len(places) == len(given):
        check_places(called, given)
        called = given
    return _layout(titles, places, called, label)


def _column_of_lists(table: Table) -> int | None:
    """Return the place of the column whose lists [N, K] are the logits; None if there is none.

    It is called as logits are or, if it is not, the only one that could be logits: there are no other
    lists, and no numbers beside it but labels and ids. Lists under a title of labels are labels.
    """
    titles = table.titles or []
    unlabelled = [i for i, title in enumerate(titles) if title.lower() not in LABEL_TITLES]
    lists = [i for i in unlabelled if table.columns[i].ndim == 2]
    for title in _LIST_TITLES:
        for i in lists:
            if titles[i].lower() == title:
                return i
    others = [i for i in unlabelled if not _is_id(titles[i], table.columns[i])]
    if len(lists) == 1 and others == lists:
        return lists[0]
    return None


def _layout(
    titles: Sequence[str], places: list[int], called: list[str] | None, label: int | None
) -> Layout:
    """Return the layout of a table whose logits and label are at these places.

    Raises:
        LevelheadError: the title of one of them stands on another column too.
    """
    used = {*places, label}
    check_titled_once(titles, [i for i in used if i is not None])
    ignored = tuple(title for i, title in enumerate(titles) if i not in used)
    label_title = None
    if label is not None:
        label_title = titles[label]
    return Layout(places, called, label_title, ignored)


def _in_order(
    places: list[int], called: Sequence[str], given: Sequence[str] | None
) -> tuple[list[int], list[str] | None]:
    """Put columns that are numbered in the order of their numbers.

    Tables are often sorted by title, which puts logit_10 before logit_2; and the numbers, unlike
    the order, are what somebody meant.

    Returns:
        The columns, and the names of the classes, where their titles say them.

    Args:
        places: of the columns.
        called: what the columns are called.
        given: names of the classes that are known already.
    """
    if given is not None and are_numbers(given):
        numbered = _by_numbers(places, called, [int(name) for name in given])
        if numbered is not None:
            return numbered, list(given)
    order = number_order(called)
    if order is not None:
        places = [places[i] for i in order]
        called = [called[i] for i in order]
    # 0, 1, 2, ... say nothing but the order; neither do numbers between texts.
    if are_numbers(called):
        if [int(title) for title in called] == list(range(len(called))):
            return places, None
    elif any(map(is_numeric, called)):
        return places, None
    return places, list(called)


def _by_numbers(
    places: Sequence[int], called: Sequence[str], numbers: Sequence[int]
) -> list[int] | None:
    """Return the columns whose titles have these numbers in them, in their order.

    Titles must differ in nothing else; else None. It is for classes that are named with
    numbers, such as 3, 7 and 9 of a part of a data set: a column of each must be there, and no
    other.
    """
    in_titles = numbers_in_titles(called)
    if in_titles is None or sorted(in_titles) != sorted(numbers):
        return None
    place_of = dict(zip(in_titles, places, strict=True))
    return [place_of[number] for number in numbers]


def _all_but(places: Sequence[int]) -> Callable[[int], bool]:
    taken = set(places)
    return lambda i: i not in taken


def columns_called(titles: Sequence[str], names: Sequence[str]) -> list[int] | None:
    """Return the places of the columns called like the classes, or None.

    A title may be the name alone, or follow a word such as logit_. All classes must be found.

    Args:
        titles: of the columns.
        names: of the classes, in whose order the places are returned.

    >>> columns_called(["id", "logit_dog", "logit_cat"], ["cat", "dog"])
    [2, 1]
    """
    # The plain titles first: beside `cat`, there may be `logit_cat`.
    place_of = {title: i for i, title in enumerate(titles) if title in names}
    for i, title in enumerate(titles):
        match = SCORES_OF.fullmatch(title)
        if match is not None and match[2] in names:
            place_of.setdefault(match[2], i)  # the name alone comes first
    if len(place_of) == len(names):
        places = [place_of[name] for name in names]
        check_titled_once(titles, places)
        return places
    return None


def check_places(called: Sequence[str] | None, names: Sequence[str]) -> None:
    """Raise LevelheadError if a column is called like a class that stands at another place.

    Columns may be called otherwise than the classes, and are then taken in their order. But where
    one of the names stands elsewhere, that order is not the one of the classes. Capitals do not
    matter, unless names differ in them alone.

    Args:
        called: what the columns of logits are called, in their order; None if that is not known.
        names: of as many classes.

    >>> check_places(["dog", "cat", "fox"], ["cat", "dog", "emu"])
    Traceback (most recent call last):
    levelhead.support.errors.LevelheadError: the column 'dog' stands in the place of class 0 (cat): ...
    """
    titles = list(called or ())
    classes = list(names)
    if not _differ_in_capitals(titles) and not _differ_in_capitals(classes):
        titles = [title.casefold() for title in titles]
        classes = [name.casefold() for name in classes]
    for i, title in enumerate(titles):
        if title != classes[i] and title in classes:
            wrong = f"the column {(called or titles)[i]!r} stands in the place of {class_title(i, names)}"
            orders = f"the columns are {listed(called or ())}, the classes {listed(names)}"
            raise LevelheadError(
                f"{wrong}: {orders}; bring them into one order, or rename the columns"
            )


def _differ_in_capitals(words: Sequence[str]) -> bool:
    """Return whether two of the words are the same but for capitals."""
    return len({word.casefold() for word in words}) < len(words)


def check_titled_once(titles: Sequence[str], places: Iterable[int]) -> None:
    """Raise LevelheadError if the title of a column that is used stands on another one too.

    Which of the two is meant is not known, and the wrong one would be taken without a word. Titles
    of columns that nobody uses may repeat.

    >>> check_titled_once(["note", "note", "cat", "dog"], [2, 3])
    >>> check_titled_once(["cat", "cat", "dog"], [1, 2])
    Traceback (most recent call last):
    levelhead.support.errors.LevelheadError: two columns are titled 'cat'; rename or drop one of them
    """
    for place in sorted(places):
        if list(titles).count(titles[place]) > 1:
            raise LevelheadError(
                f"two columns are titled {titles[place]!r}; rename or drop one of them"
            )


class _Prefixed(NamedTuple):
    """Columns that begin with a word such as logit_."""

    places: list[int]
    called: list[str]  # after that word


def _prefixed(titles: list[str]) -> _Prefixed | None:
    """Return the columns called logit_* (or scores_*, prob_*), or None.

    A table may have several such groups, logits beside probabilities: those called logit come
    first, then the largest group. One column alone is no group: `output` or `p_value` may be
    anything.
    """
    groups: dict[str, _Prefixed] = {}
    for i, title in enumerate(titles):
        match = SCORES_OF.fullmatch(title)
        if match is None or not match[2] or title.lower() in LABEL_TITLES:
            continue
        # A single letter may begin any word: `p1`, but not `price`.
        if len(match[1]) > 1 or match[2].isdigit():
            word = match[1].lower().rstrip("s")
            group = groups.setdefault(word, _Prefixed([], []))
            group.places.append(i)
            group.called.append(match[2])
    groups = {word: group for word, group in groups.items() if len(group.places) > 1}
    if not groups:
        return None
    if "logit" in groups:
        prefixed = groups["logit"]
    else:
        prefixed = max(groups.values(), key=lambda group: len(group.places))
    # Of numbered columns, none may be missing.
    if all(name.isdecimal() for name in prefixed.called):
        numbers = sorted(map(int, prefixed.called))
        from_0 = list(range(len(numbers)))
        from_1 = list(range(1, len(numbers) + 1))
        if numbers not in (from_0, from_1):
            shown = listed([str(number) for number in numbers])
            raise LevelheadError(
                f"expected a column of logits for each class, got those numbered {shown}"
            )
    return prefixed


def _find_label(titles: list[str], allowed: Callable[[int], bool]) -> int | None:
    """Return the place of the column that is called as labels are, if it is allowed to be them.

    Args:
        titles: of all columns.
        allowed: says of a place whether it may be labels: what is logits already is not.
    """
    lower = [title.lower() for title in titles]
    for title in LABEL_TITLES:
        if title in lower and allowed(lower.index(title)):
            return lower.index(title)
    return None


def _may_be_labels(table: Table, i: int) -> bool:
    """Return whether a column may hold labels, and not logits.

    Labels are texts, or positions or numbers of classes. The title alone does not tell: a class may
    be called `target`, and its column has fractions.
    """
    values = table.columns[i]
    if values.dtype.kind not in "iufb":
        return True
    if not _are_whole(values):
        return False
    # Any whole number beside logits, or beside titles that are numbers: what is no class is refused as a
    # label. Beside other whole numbers, as votes are, only what could be a position of a class.
    rest = [at for at in range(len(table.columns)) if at != i]
    if are_numbers([table.titles[at] for at in rest if table.titles]):
        return True
    of_numbers = [table.columns[at] for at in rest if table.columns[at].dtype.kind in "iufb"]
    if len(of_numbers) > 1 and not any(map(_are_whole, of_numbers)):
        return True
    # One other column may be the score of the second of two classes.
    classes = max(2, len(rest))
    return bool((values >= 0).all() and (values < classes).all())


def _are_whole(values: np.ndarray) -> bool:
    return values.dtype.kind in "iub" or bool((values == np.floor(values)).all())


def _is_one_score(table: Table) -> bool:
    """Return whether a table has one score of each sample and a label, and no two classes."""
    titles = table.titles or []
    return len(titles) == 2 and _find_label(titles, lambda i: _may_be_labels(table, i)) is not None


def find_label(table: Table) -> str | None:
    """Return the title of the labels in a table that is read for these alone, or None.

    Logits need not be there, by whose number whole numbers could be told from others. Their title
    and that they are whole numbers, or texts, must do.

    >>> find_label(Table(["id", "label"], [np.array([7, 8, 9]), np.array([2, 0, 1])]))
    'label'
    """

    def allowed(i: int) -> bool:
        values = table.columns[i]
        return values.dtype.kind not in "iufb" or _are_whole(values)

    titles = table.titles or []
    label = _find_label(titles, allowed)
    if label is None:
        return None
    return titles[label]


def _is_id(title: str, values: np.ndarray) -> bool:
    """Return whether a column only identifies samples.

    It is text, or whole numbers under a title such as `id`. Of text without such a title, most cells
    are no numbers (`007` among hashes is one): else it is logits with cells that are damaged, which
    are then refused by name.
    """
    is_titled = ID_TITLES.fullmatch(title.lower()) is not None
    if values.dtype.kind not in "iufb":
        numeric = [is_numeric(str(value)) for value in values.tolist()]
        return is_titled or 2 * sum(numeric) < len(numeric)
    return is_titled and _are_whole(values)
