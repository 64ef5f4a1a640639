"""The methods as text and as JSON, for `levelhead methods`."""

import re
from collections.abc import Iterable
from typing import Any

from ..methods.method import Method
from ..methods.table import changes, reference


def method_facts(method: Method) -> dict[str, Any]:
    """Return everything about a method that JSON can hold."""
    known = {
        "name": method.name,
        "title": method.title,
        "changes": changes(method),
        "head": method.head,
    }
    about = {"reference": reference(method), "card": method.card or ""}
    return known | {"trained_as": method.trained_as or method.name} | about


def format_card(method: Method) -> str:
    """Return the method's name, what it changes, and its card."""
    lines = [f"{method.name} ({method.title}), {method.head} head"]
    lines += [f"  {slot}: {what}" for slot, what in changes(method).items()]
    return "\n".join([*lines, "", (method.card or "This method has no card.").strip()])


def format_table(methods: Iterable[Method]) -> str:
    """Return one line per method and point it touches: name, head, what it changes, and who proposed it."""
    rows = [("method", "head", "changes", "reference")]
    for method in methods:
        changed = [f"{slot}: {what}" for slot, what in changes(method).items()] or ["nothing"]
        rows.append((method.name, method.head, changed[0], _authors_and_years(reference(method))))
        rows += [("", "", more, "") for more in changed[1:]]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _authors_and_years(references: str) -> str:
    """Shorten each reference to its authors and year: "Cui et al., A Loss, 2019; ..." to "Cui et al. 2019; ..."."""
    parts = (
        re.match(r"(.+?),.*?\b((?:19|20)\d\d)\b", one.strip()) for one in references.split(";")
    )
    return "; ".join(f"{part[1]} {part[2]}" for part in parts if part) or references
