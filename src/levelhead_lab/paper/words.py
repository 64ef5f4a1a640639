"""Numbers and lists as a sentence has them."""

from collections.abc import Sequence


def in_a_row(words: Sequence[str]) -> str:
    """Return words as a list in a sentence.

    Args:
        words: at least one.

    >>> in_a_row(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = words
    if first:
        return f"{', '.join(first)} and {last}"
    return last


def signed(points: Sequence[float]) -> str:
    """Return differences with their signs, as a list in a sentence.

    >>> signed([1.04, -0.5])
    '+1.0 and -0.5'
    """
    return in_a_row([f"{difference:+.1f}" for difference in points])


def errors_in_a_row(errors: Sequence[float]) -> str:
    """Return errors with two decimals, as a list in a sentence.

    >>> errors_in_a_row([20.176, 21.3])
    '20.18 and 21.30'
    """
    return in_a_row([f"{error:.2f}" for error in errors])


def count_of(count: int, of: int) -> str:
    """Return how many of how many, as a sentence has it.

    >>> count_of(0, 3), count_of(3, 3), count_of(2, 3)
    ('none of 3', 'all 3', '2 of 3')
    """
    if count == 0:
        return f"none of {of}"
    if count == of:
        return f"all {of}"
    return f"{count} of {of}"
