"""Titles of columns that are numbers, or have one in them, and the order that these give the columns.

Tables and data frames are often sorted by title, by which logit_10 comes before logit_2. Numbers in
titles are meant, and the order of columns may be an accident, so that numbers win, in files
(io/table_columns.py) and in data frames (`arrays.to_numpy`) alike.
"""

import re
from collections.abc import Sequence

import numpy as np

# A word for scores and what follows it, such as `logit_cat`, `scores[3]`, `p.cat`.
SCORES_OF = re.compile(
    r"(logits?|scores?|outputs?|probability|proba|probs?|p)[ _.:-]?[\[(]?(.*?)[\])]?", re.IGNORECASE
)
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER_IN_TEXT = re.compile(r"(\d+)")


def whole_number(value: object) -> int | None:
    """Return a whole number, also one that is written out, or None.

    A bool is none, though it is an int to Python.

    >>> whole_number("07"), whole_number(3.0), whole_number("cat"), whole_number(True)
    (7, 3, None, None)
    """
    if isinstance(value, str):
        if _WHOLE.fullmatch(value):
            return int(value)
        return None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    return None


def number_order(titles: Sequence[object]) -> list[int] | None:
    """Return the places of columns in the order of their numbers; None if they are in that order.

    Columns are numbered if all titles are different whole numbers, or if they differ in one number,
    which is 0 to K - 1, or 1 to K after a word for scores, such as logit_1. Others may be names of
    classes, such as type1 and type2, which keep their order.

    Args:
        titles: of all columns; numbers or texts.

    >>> number_order(["logit_0", "logit_1", "logit_10"]), number_order(["10", "2"])
    (None, [1, 0])
    """
    numbers = column_numbers(titles)
    if numbers is None:
        return None
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    if order == list(range(len(numbers))):
        return None
    return order


def column_numbers(titles: Sequence[object]) -> list[int] | None:
    """Return the numbers of columns, as they stand; None if they are not numbered.

    >>> column_numbers(["3", "7"]), column_numbers(["a_1", "a_0"]), column_numbers(["a1", "a2"])
    ([3, 7], [1, 0], None)
    >>> column_numbers(["logit_1", "logit_2"])
    [1, 2]
    """
    # 3, "3", "10": all must be whole numbers, and differ.
    numbers = [number for title in titles if (number := whole_number(title)) is not None]
    if len(numbers) == len(titles):
        if len(set(numbers)) < len(numbers):
            return None
        return numbers
    # logit_0, logit_1, or class_0_prob, class_1_prob: the numbers must be 0 to K - 1.
    numbers = numbers_in_titles(titles)
    if numbers is None:
        return None
    if sorted(numbers) == list(range(len(numbers))):
        return numbers
    # logit_1, logit_2: nothing but scores of the classes 1 to K is called so.
    classes = classes_of_scores(titles)
    if classes is None or not all(name.isdecimal() for name in classes):
        return None
    if sorted(numbers) == list(range(1, len(numbers) + 1)):
        return numbers
    return None


def classes_of_scores(titles: Sequence[object]) -> list[str] | None:
    """Return what follows a word for scores in each title; None if not all begin with the same one.

    >>> classes_of_scores(["proba_cat", "proba_dog"]), classes_of_scores(["p_cat", "price"])
    (['cat', 'dog'], None)
    """
    words = set()
    classes = []
    for title in titles:
        match = SCORES_OF.fullmatch(str(title))
        # A single letter may begin any word: `p1`, but not `price`.
        if match is None or not match[2] or (len(match[1]) == 1 and not match[2].isdigit()):
            return None
        words.add(match[1].lower().rstrip("s"))
        classes.append(match[2])
    if len(words) != 1:
        return None
    return classes


def numbers_in_titles(titles: Sequence[object]) -> list[int] | None:
    """Return the number in each title, if titles differ in that number alone; else None.

    >>> numbers_in_titles(["v2_class_7_prob", "v2_class_10_prob"]), numbers_in_titles(["a7", "b10"])
    ([7, 10], None)
    """
    # Texts and numbers by turns: v2_class_7_prob is v, 2, _class_, 7, _prob.
    parts = [_NUMBER_IN_TEXT.split(str(title)) for title in titles]
    if len({len(part) for part in parts}) != 1:
        return None
    different = [place for place in zip(*parts, strict=True) if len(set(place)) > 1]
    if len(different) != 1 or not all(part.isdecimal() for part in different[0]):
        return None
    return [int(part) for part in different[0]]


def titles_of(table: object) -> list[object] | None:
    """Return the titles of a data frame's columns, as they stand; None for anything else.

    A frame is known by its `columns`, which pandas and polars have, or by its `column_names`, as
    pyarrow calls them; none is imported to ask. Titles of several levels become one text each.
    """
    titles = getattr(table, "column_names", getattr(table, "columns", None))
    if titles is None or callable(titles):
        return None
    try:
        listed = list(titles)
    except TypeError:  # something else that happens to have `columns`
        return None
    listed = [_joined(title) for title in listed]
    if not all(isinstance(title, str | int | float | np.number) for title in listed):
        return None
    return listed


def _joined(title: object) -> object:
    """Return a title as text where it has several levels, as those of pandas' pivots, or is a bool.

    To Python, the titles True and False would be the numbers 1 and 0.
    """
    if isinstance(title, tuple):
        return "_".join(map(str, title))
    if isinstance(title, bool | np.bool_):
        return str(title)
    return title
