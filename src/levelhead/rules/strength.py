"""How strong an adjustment is: a number, or what was tuned, checked against the head that it is for."""

from typing import Any

import numpy as np

from ..core.array import is_torch
from ..core.errors import LevelheadError
from ..core.per_class import proportional
from .rule import RULES


def check_strength(
    value: Any,
    rule: str,
    counts: np.ndarray | None = None,
    *,
    name: str = "gamma",
    instead: str = "lh.adjust(head, tuned)",
) -> float:
    """Return a strength as a finite float. A `Tuned` must have been chosen for this rule and counts like these.

    >>> check_strength(1, "rescale")
    1.0
    """
    if not (hasattr(value, "rule") and hasattr(value, "gamma")):
        return finite_number(name, value)
    if getattr(value, "task", "") == "multilabel":
        raise LevelheadError(f"chosen for several labels per sample; use {instead}", parameter=name)
    if value.rule != rule:
        raise LevelheadError(f"chosen for rule {value.rule!r}; use {instead}", parameter=name)
    if (reason := RULES[rule].refuses_kind(getattr(value, "kind", None))) is not None:
        raise LevelheadError(reason, parameter=name)
    if RULES[rule].follows_counts and counts is not None and value.counts and not proportional(value.counts, counts):
        raise LevelheadError(f"chosen with counts of other proportions; use {instead}, or tune again", parameter=name)
    return finite_number(name, value.gamma)


def finite_number(parameter: str, value: float) -> float:
    """Return a number, which may be a tensor, as a float; raise LevelheadError naming its parameter if it is not one.

    >>> finite_number("gamma", np.float32(0.5))
    0.5
    """
    if is_torch(value):
        value = float(value)
    if not (isinstance(value, int | float | np.floating | np.integer) and np.isfinite(value)):
        raise LevelheadError(f"expected a finite number, got {value!r}", parameter=parameter)
    return float(value)
