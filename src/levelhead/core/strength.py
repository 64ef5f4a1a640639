"""How strong an adjustment is: a number, or what was tuned, checked against the head that it is for."""

from typing import Any

import numpy as np

from .array import is_torch
from .choices import RuleName
from .errors import LevelheadError
from .per_class import proportional


def check_strength(
    value: Any,
    rule: RuleName,
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
    if multiplies_probabilities(rule, getattr(value, "kind", None)):
        raise LevelheadError(not_for_heads(rule), parameter=name)
    if rule != "tau" and counts is not None and value.counts and not proportional(value.counts, counts):
        raise LevelheadError(f"chosen with counts of other proportions; use {instead}, or tune again", parameter=name)
    return finite_number(name, value.gamma)


def multiplies_probabilities(rule: str, kind: str | None) -> bool:
    """Return whether a rule was chosen on probabilities and multiplies their logarithms, which a head does not give.

    >>> multiplies_probabilities("vector", "probabilities"), multiplies_probabilities("shift", "probabilities")
    (True, False)
    """
    return kind == "probabilities" and rule != "shift"


def not_for_heads(rule: str) -> str:
    """Return why a rule that was chosen on probabilities fits no head.

    >>> not_for_heads("vector")[:35]
    'the rule vector was chosen on proba'
    """
    reason = f"the rule {rule} was chosen on probabilities (or their logarithms), and would multiply logits"
    return f"{reason} in a head; tune on the model's logits, or with the rule shift"


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
