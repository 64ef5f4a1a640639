"""What all claims share: a finding with number and rule, rank correlations with the counts, the paper's setting.

Each claim of the paper is one function, which states its own thresholds, in the module of its subject: `norm_claims`,
`feature_claims`, `table_claims`, `gamma_claims` and `network_claims`; `all_claims` has them in the order of the paper.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Literal

import numpy as np

from .cells import Record, full_runs
from .geometry import rank_correlation
from .tables import column_title, table1_columns

ClaimOutcome = Literal["reproduced", "partly", "not reproduced"]
STRONG, WEAK = 0.7, 0.3  # rank correlations
Values = Callable[[Record], Sequence[float | None] | None]  # a value per class of a record


@dataclass(frozen=True)
class Finding:
    """A claim and whether we see it."""

    says: str  # the paper's claim
    number: float  # what was measured
    seen: str  # the number in words, and what it was measured on
    outcome: ClaimOutcome  # whether the number meets the rule
    rule: str  # the thresholds in words


def outcome_for(number: float, reproduced: float, partly: float) -> ClaimOutcome:
    return outcome_if(number >= reproduced, number >= partly)


def outcome_if(reproduced: bool, partly: bool) -> ClaimOutcome:
    if reproduced:
        return "reproduced"
    return "partly" if partly else "not reproduced"


_FIGURE_4 = _FIGURE_6 = ("cifar10:100",)
_TABLE_3 = ("cifar10:100", "cifar10:10")
# The columns of the paper's own figure or table, where it is not all of Table 1.
OWN_SETTING: dict[str, tuple[str, ...]] = {
    "rare_test_clusters_are_wider": _FIGURE_4,
    "centers_drift_apart": _FIGURE_4,
    "train_clusters_grow": _FIGURE_4,
    "train_clusters_saturate": _FIGURE_4,
    "recall_follows_frequency": _FIGURE_6,
    "the_plain_oracle_is_better": _TABLE_3,
    "wvn_comes_nearer_to_its_oracle": _TABLE_3,
    "every_gamma_helps": tuple(f"cifar10:{ratio}" for ratio in (200, 100, 50, 20, 10)),
}


def judged(
    claim: Callable[[Sequence[Record]], Finding | None], records: Sequence[Record]
) -> Finding | None:
    """Judge a claim on the paper's own setting, and say beside it what all columns show."""
    every = claim(records)
    own = OWN_SETTING.get(claim.__name__)
    if own is None:
        return every
    kept = {*own, *(f"{column.split(':')[0]}:1" for column in own)}
    finding = claim([record for record in records if record["column"] in kept])
    if finding is None or every is None:
        return finding
    where = "CIFAR-10"
    if len(own) == 1:
        where = column_title(own[0])
    seen = f"{where}: {finding.seen}"
    if every.seen != finding.seen:
        seen += f"; all columns: **{every.outcome}**"
    return replace(finding, seen=seen)


def count_correlation(record: Record, values: Sequence[float | None]) -> float:
    """Return the rank correlation of one value per class with the counts, leaving out classes without a value."""
    there = np.array([value is not None for value in values])
    return rank_correlation(np.array(values, float)[there], np.asarray(record["counts"])[there])


def rank_finding(
    records: Sequence[Record], says: str, values: Values, *, sign: int
) -> Finding | None:
    """Judge that a value rises (sign 1) or falls (-1) with the counts, by the baseline's mean over columns.

    Classes differ in themselves, and their order is always the same. So two more numbers are reported: the correlation
    of each class's value relative to the same class on balanced data, and that of balanced data in this order.
    """
    by_column: dict[str, float] = {}
    relative_to_balanced: list[float] = []
    of_balanced: dict[str, float] = {}
    for column in table1_columns(imbalanced=True):
        runs = _with_values(full_runs(records, column, "baseline"), values)
        if not runs:
            continue
        by_column[column] = mean(sign * count_correlation(run, value) for run, value in runs)
        data = column.split(":")[0]
        balanced = _with_values(full_runs(records, f"{data}:1", "baseline"), values)
        if balanced:
            first = runs[0][0]
            of_balanced[data] = mean(sign * count_correlation(first, v) for _, v in balanced)
            ranks = []
            for run, value in runs:
                for _, plain in balanced:
                    ranks.append(sign * count_correlation(run, _relative(value, plain)))
            relative_to_balanced.append(mean(ranks))
    if not by_column:
        return None
    number = mean(by_column.values())
    seen = f"rank correlation {number:.2f}"
    if relative_to_balanced:
        alone = ", ".join(f"{rank:.2f}" for rank in of_balanced.values())
        relative = mean(relative_to_balanced)
        seen += f"; {relative:.2f} relative to balanced data, which have {alone}"
    rule = f"{STRONG:g}; partly: {WEAK:g}"
    return Finding(says, number, seen, outcome_for(number, STRONG, WEAK), rule)


def _with_values(
    runs: Sequence[Record], values: Values
) -> list[tuple[Record, Sequence[float | None]]]:
    """Return the runs that have values, each with its own."""
    found = []
    for run in runs:
        value = values(run)
        if value:
            found.append((run, value))
    return found


def _relative(
    values: Sequence[float | None], balanced: Sequence[float | None]
) -> list[float | None]:
    """Return each class's value over that of the same class on balanced data; None where either is missing."""
    found: list[float | None] = []
    for value, plain in zip(values, balanced, strict=True):
        found.append(value / plain if value is not None and plain else None)
    return found
