"""The numbers are right: every engine against exact arithmetic, over families made to break it.

Seen to fail: with ties won by every class, without the `nextafter` of `path.walk.walk_lines`.
"""

from typing import Any

import numpy as np

from .board import Budget, Found, Row, lacking
from .exact_numbers import FAMILIES, check_family

TARGET = 10_000_000


def check(budget: Budget) -> Found:
    """Go through the families until there are pairs enough."""
    wanted = budget.own(budget.size(20_000, TARGET))
    rng = np.random.default_rng([budget.size(0, 1), budget.index, budget.round])
    rows, gammas = (60, 12) if budget.profile == "quick" else (2000, 60)
    findings = Found({"pairs": 0, "undecided": 0, "families": len(FAMILIES), "wrong": 0})
    while findings.done["pairs"] < wanted and not budget.spent:
        for name in FAMILIES:
            counted = check_family(name, rng, rows, gammas)
            for key in ("pairs", "undecided", "wrong"):
                findings.done[key] += counted[key]
            findings.failures += [
                f"{name}: {key}: {n}" for key, n in counted.items() if key.startswith("wrong: ")
            ]
            budget.note(findings)
    findings.lacks = lacks(findings.done)
    return findings


def lacks(done: dict[str, Any]) -> str:
    """Return how many pairs are missing to the target."""
    return lacking(done["pairs"], TARGET, "pairs")


ROW = Row(
    "the numbers are right",
    f"brute force in exact arithmetic over {len(FAMILIES)} adversarial families, ties first; every engine",
    f"{TARGET:,} pairs, 0 wrong, all engines",
    check,
    lacks,
    ("families",),
)
