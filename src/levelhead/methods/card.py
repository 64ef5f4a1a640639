"""Methods in words: what each changes, its reference and its card, for `levelhead methods`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from .method import Method


def changes(method: Method) -> dict[str, str]:
    """What a method does at each point it touches: the first line of what its slot's function says of itself.

    >>> from levelhead.methods import METHODS
    >>> changes(METHODS["wvn-released"])
    {'project': 'weight vectors to unit length, before every step'}
    """
    from .baseline import loss as plain

    told = {}
    if method.sample is not None:
        told["sample"] = _says(method.sample)
    if method.loss is not plain:
        told["loss"] = _says(method.loss)
    if method.project is not None:
        told["project"] = f"{_says(method.project)}, {method.order} every step"
    if method.retrain is not None:
        how = _says(method.retrain.loss if method.retrain.sample is None else method.retrain.sample)
        told["retrain"] = f"head anew on frozen features, {how}"
    if method.adjust is not None:
        told["adjust"] = _says(method.adjust)
    return told


def reference(method: Method) -> str:
    """The last reference of its card, on one line."""
    found = re.findall(r"^Reference:\s*(.+(?:\n[ \t]+\S.*)*)", method.card or "", flags=re.MULTILINE)
    return " ".join(found[-1].split()) if found else ""


def facts(method: Method) -> dict[str, Any]:
    """Everything about a method that JSON can hold."""
    return {
        "name": method.name, "title": method.title, "changes": changes(method), "head": method.head,
        "trained_as": method.trained_as or method.name, "reference": reference(method), "card": method.card or "",
    }


def card(method: Method) -> str:
    """Its name, the slots it fills, and its file's docstring."""
    lines = [f"{method.name} ({method.title}), {method.head} head"]
    lines += [f"  {slot}: {what}" for slot, what in changes(method).items()]
    return "\n".join([*lines, "", (method.card or "It has no card.").strip()])


def table(methods: Iterable[Method]) -> str:
    """One line for each method and point it touches: name, head, what it changes, and who proposed it."""
    rows = [("method", "head", "changes", "reference")]
    for method in methods:
        told = [f"{slot}: {what}" for slot, what in changes(method).items()] or ["nothing"]
        rows.append((method.name, method.head, told[0], _short(reference(method))))
        rows += [("", "", more, "") for more in told[1:]]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _says(function: Callable[..., Any]) -> str:
    described = getattr(function, "func", function)  # a functools.partial speaks for what it calls
    words = (described.__doc__ or described.__name__).strip().splitlines()[0].rstrip(".")
    return words[0].lower() + words[1:] if words[1:2].islower() else words


def _short(text: str) -> str:
    """Authors and year of each reference.

    >>> _short("Cui et al., A Loss, 2019; Ren et al., Another, 2020")
    'Cui et al. 2019; Ren et al. 2020'
    """
    parts = (re.match(r"(.+?),.*?\b((?:19|20)\d\d)\b", one.strip()) for one in text.split(";"))
    return "; ".join(f"{part[1]} {part[2]}" for part in parts if part) or text
