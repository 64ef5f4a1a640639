"""What can be done to a head: the rules, and what each does to scores and weights.

rule, adjustment: the table of rules; what one does to each class, and checks of what rules are given
direction: how scores depend on one strength, and where two of them cross
adjust: the adjustments of a head as functions
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
]
__all__ += ["Strengths", "Tau", "Unchanged", "Vector"]
