"""What can be done to a head: the rules, and what each does to scores and weights.

- rule: `Rule`, its kinds, and `RULES`, the table of all
- adjustment: `Adjustment`, a scale and an offset for each class, on scores and on a head
- direction: how scores depend on one strength
- adjust: the adjustments of a head as functions, one equation each
- strength: how strong an adjustment is, a number or what was tuned
- checks: checks of ranges, shares and numbers per class
- label_task: one class or several labels per sample, where a model says so
"""

from .adjustment import Adjustment
from .rule import (
    RULES,
    Auto,
    Offsets,
    OneStrength,
    Rescale,
    RescaleThenShift,
    Rule,
    Shift,
    Strengths,
    Tau,
    Unchanged,
    Vector,
)

__all__ = [
    "RULES",
    "Adjustment",
    "Auto",
    "Offsets",
    "OneStrength",
    "Rescale",
    "RescaleThenShift",
    "Rule",
    "Shift",
    "Strengths",
    "Tau",
    "Unchanged",
    "Vector",
]
