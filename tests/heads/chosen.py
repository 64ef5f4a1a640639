"""A `Tuned` with numbers of ours, as a choice of any rule would have them."""

from typing import Any

import numpy as np

import levelhead as lh
from levelhead.core.rules import RULES, OneStrength

SCALE = np.array([1.0, 1.4, 2.0, 3.1, 4.0])  # of the rules with numbers for each class
OFFSET = np.array([-0.3, 0.0, 0.5, 1.0, 2.0])


def tuned_for(
    rule: str, strength: float = 0.4, counts: Any = (400, 100, 25, 4), *, norms: Any = None, **more
) -> lh.Tuned:
    """Return a choice of a rule at a strength; of rules with numbers for each class, at 0 it changes nothing."""
    counts = np.array(counts)
    named_rule = RULES[rule]
    classes = len(counts)
    if isinstance(named_rule, OneStrength):
        norms = np.linspace(2, 1, classes) if norms is None else norms
        adjustment = type(named_rule)(strength).on_head(
            lh.Head(np.asarray(norms, float)[:, None]), counts
        )
        more = {"strength": strength, **more}
    else:
        scale = SCALE[:classes] if named_rule.multiplies and strength else np.ones(classes)
        offset = OFFSET[:classes] if named_rule.adds and strength else np.zeros(classes)
        adjustment = lh.Adjustment(scale, offset)
    return lh.Tuned(
        **{
            "rule": rule,
            "adjustment": adjustment,
            "evidence": None,
            "counts": tuple(map(float, counts)),
            "n": 100,
        }
        | more
    )


def own_rule(name: str, strength: float) -> OneStrength:
    """Return the rule of a name at a strength of one's own."""
    return type(RULES[name])(strength)
