"""What can be done to a head: the rules, and what each does to scores and weights.

rule, adjustment, direction: the table of rules; what one does to each class; how scores depend on one strength
adjust, checks: the adjustments of a head as functions; checks of what rules are given
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
