"""Methods in words: what each changes, and its reference."""

import re
from collections.abc import Callable
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


def _summary(function: Callable[..., Any]) -> str:
    described = getattr(function, "func", function)  # of a functools.partial, the function it calls
    words = (described.__doc__ or described.__name__).strip().splitlines()[0].rstrip(".")
    return words[0].lower() + words[1:] if words[1:2].islower() else words
