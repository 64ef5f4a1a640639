"""Methods in words: what each changes, its reference and its card, for `levelhead methods`."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from .baseline import baseline_loss
from .method import Method


def changes(method: Method) -> dict[str, str]:
    """Return what a method does at each point it touches: the first line of the docstring of that function."""
    again = method.retrain
    found = {
        "sample": method.sample and _summary(method.sample),
        "loss": None if method.loss is baseline_loss else _summary(method.loss),
        "project": method.project and f"{_summary(method.project)}, {method.order} every step",
        "retrain": again and f"train a new head on frozen features; {_summary(again.sample or again.loss)}",
        "adjust": method.adjust and _summary(method.adjust),
    }
    return {slot: what for slot, what in found.items() if what}


def reference(method: Method) -> str:
    """Return the last reference of the method's card, on one line."""
    found = re.findall(r"^Reference:\s*(.+(?:\n[ \t]+\S.*)*)", method.card or "", flags=re.MULTILINE)
    return " ".join(found[-1].split()) if found else ""


def method_facts(method: Method) -> dict[str, Any]:
    """Return everything about a method that JSON can hold."""
    known = {"name": method.name, "title": method.title, "changes": changes(method), "head": method.head}
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
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _summary(function: Callable[..., Any]) -> str:
    described = getattr(function, "func", function)  # of a functools.partial, the function it calls
    words = (described.__doc__ or described.__name__).strip().splitlines()[0].rstrip(".")
    return words[0].lower() + words[1:] if words[1:2].islower() else words


def _authors_and_years(references: str) -> str:
    """Shorten each reference to its authors and year: "Cui et al., A Loss, 2019; ..." to "Cui et al. 2019; ..."."""
    parts = (re.match(r"(.+?),.*?\b((?:19|20)\d\d)\b", one.strip()) for one in references.split(";"))
    return "; ".join(f"{part[1]} {part[2]}" for part in parts if part) or references
