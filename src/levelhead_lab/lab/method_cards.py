"""The methods as text and as JSON, for `levelhead methods`.

`format_table` lists all of them, `format_card` shows one in full, and `method_facts` is the same
for `--json`. The words come from `methods.table.changes`, `reference` and the cards themselves.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple, TypedDict

from ..methods.method import Method
from ..methods.table import changes, reference


class MethodFacts(TypedDict):
    """Everything about a method that JSON can hold."""

    name: str  # as `--method` takes it
    title: str
    changes: dict[str, str]  # what it does at each point it touches
    head: str  # `linear` or `cosine`
    trained_as: str  # the method whose training it shares: itself, or that without its adjustment
    reference: str
    card: str


class _Row(NamedTuple):
    """A line of the table of methods; further lines of a method have only `changes`."""

    method: str
    head: str
    changes: str
    reference: str


def method_facts(method: Method) -> MethodFacts:
    """Return everything about a method that JSON can hold: for `levelhead methods --json`.

    >>> from levelhead_lab.methods import METHODS
    >>> method_facts(METHODS["baseline+rs"])["trained_as"]
    'baseline'
    """
    return {
        "name": method.name,
        "title": method.title,
        "changes": changes(method),
        "head": method.head,
        "trained_as": method.trained_as or method.name,
        "reference": reference(method),
        "card": method.card or "",
    }


def format_card(method: Method) -> str:
    """Return the method's name, what it changes, and its card.

    >>> from levelhead_lab.methods import METHODS
    >>> print(format_card(METHODS["wvn"]).splitlines()[1])
    project: scale weight vectors to unit length, after every step
    """
    lines = [f"{method.name} ({method.title}), {method.head} head"]
    lines += [f"  {slot}: {words}" for slot, words in changes(method).items()]
    return "\n".join([*lines, "", (method.card or "This method has no card.").strip()])


def format_table(methods: Iterable[Method]) -> str:
    """Return one line per method and point it touches.

    The columns are name, head, what it changes, and who proposed it; they are as wide as they must
    be, and two spaces apart.

    >>> from levelhead_lab.methods import METHODS
    >>> print(format_table([METHODS["focal"], METHODS["tau-norm"]]))
    method    head    changes                                               reference
    focal     linear  loss: reduce cross entropy where the network is sure  Lin et al. 2017
    tau-norm  linear  adjust: divide weight vectors by their length^tau     Kang et al. 2020
    """
    rows = [_Row("method", "head", "changes", "reference")]
    for method in methods:
        changed = [f"{slot}: {words}" for slot, words in changes(method).items()] or ["nothing"]
        authors = _authors_and_years(reference(method))
        rows.append(_Row(method.name, method.head, changed[0], authors))
        rows += [_Row("", "", more, "") for more in changed[1:]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _authors_and_years(references: str) -> str:
    """Shorten each reference to its authors and year; as it is where none has that form.

    >>> _authors_and_years("Cui et al., A Loss, 2019; Cao et al., Margins, 2019.")
    'Cui et al. 2019; Cao et al. 2019'
    """
    short = []
    for paper in references.split(";"):
        match = re.match(r"(.+?),.*?\b((?:19|20)\d\d)\b", paper.strip())
        if match is not None:
            short.append(f"{match[1]} {match[2]}")
    return "; ".join(short) or references
