"""Titles of columns that are numbers, or end in them, and the order that these give the columns.

Tables and data frames are often sorted by title, by which logit_10 comes before logit_2. Numbers in
titles are meant, and the order of columns may be an accident, so that numbers win, in files
(io/table_columns.py) and in data frames (`arrays.to_numpy`) alike.
"""

import re
from collections.abc import Sequence

import numpy as np

_WHOLE = re.compile(r"[+-]?\d+")
ENDS_IN_NUMBER = re.compile(r"(.*?)(\d+)[\])]?")  # logit_3, logit[3], score(3)


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

    Columns are numbered if all titles are different whole numbers, or if all begin alike and end in
    0 to K - 1. Others may be names of classes, such as type1 and type2, which keep their order.

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

    >>> column_numbers(["3", "7"]), column_numbers(["p_1", "p_0"]), column_numbers(["a1", "a2"])
    ([3, 7], [1, 0], None)
    """
    # 3, "3", "10": all must be whole numbers, and differ.
    numbers = [number for title in titles if (number := whole_number(title)) is not None]
    if len(numbers) == len(titles):
        if len(set(numbers)) < len(numbers):
            return None
        return numbers
    # logit_0, logit_1: all must begin alike, and end in 0 to K - 1.
    parts = [part for title in titles if (part := ENDS_IN_NUMBER.fullmatch(str(title)))]
    if len(parts) < len(titles) or len({part[1] for part in parts}) > 1:
        return None
    ends = [int(part[2]) for part in parts]
    if sorted(ends) == list(range(len(ends))):
        return ends
    return None


def titles_of(table: object) -> list[object] | None:
    """Return the titles of a data frame's columns, as they stand; None for anything else.

    A frame is known by its `columns`, which pandas and polars have, and neither is imported to ask.
    Titles of several levels are none.
    """
    titles = getattr(table, "columns", None)
    if titles is None or callable(titles):
        return None
    try:
        listed = list(titles)
    except TypeError:  # something else that happens to have `columns`
        return None
    if not all(isinstance(title, str | int | float | np.number) for title in listed):
        return None
    return listed
