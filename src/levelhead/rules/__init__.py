"""What can be done to a head: the rules, and what each does to scores and weights."""

from .adjustment import Adjustment
from .rule import RULES, Auto, OneStrength, Rescale, RescaleThenShift, Rule, Shift, Strengths, Tau, Unchanged, Vector

__all__ = [
    "RULES",
    "Adjustment",
    "Auto",
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
