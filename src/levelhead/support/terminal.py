"""How wide text is in a terminal, where columns are to stand below each other."""

from collections.abc import Iterable
from unicodedata import combining, east_asian_width


def drawn_width(text: str) -> int:
    """Return how many places a text takes: two for a wide sign, such as a Chinese one, none for an accent.

    >>> drawn_width("owl"), drawn_width("猫头鹰"), drawn_width("e\\u0301")
    (3, 6, 1)
    """
    width = 0
    for sign in text:
        if combining(sign):
            continue
        width += 1
        if east_asian_width(sign) in "WF":
            width += 1
    return width


def padded(texts: Iterable[str], *, to_left: bool = True) -> list[str]:
    """Return texts with spaces after them, or before them, so that all are as wide as the widest.

    >>> padded(["cat", "猫头鹰"])
    ['cat   ', '猫头鹰']
    >>> padded(["9", "10"], to_left=False)
    [' 9', '10']
    """
    texts = list(texts)
    widest = max(map(drawn_width, texts), default=0)
    aligned = []
    for text in texts:
        space = " " * (widest - drawn_width(text))
        if to_left:
            aligned.append(text + space)
        else:
            aligned.append(space + text)
    return aligned
