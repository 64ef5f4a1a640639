"""What all claims share: a finding with number and rule, rank correlations with the counts, the paper's setting.

The paper says some thirty things about its figures and tables: "the norm of a class's weight vector follows its sample
frequency". Each is one function, in the module of its subject: `norm_claims`, `feature_claims`, `table_claims`,
`gamma_claims` and `network_claims`. It takes all records (or whole networks), measures one number, and returns a
`Finding`: the claim in words, the number, and by a rule of its own whether we see what the paper saw. It returns None
while the records that it needs are missing.

`all_claims` calls them in the order of the paper, through `judged`: where the paper has only one column in mind, its
own setting decides, and what all columns show stands beside it.

The thresholds of the rules are ours. The paper says "follows" or "marginally" and gives no number; what we took for it
stands on the page beside each verdict, so that a reader who would draw the line elsewhere can.
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
# Rank correlations from which on a value "follows" another one, and from which on it does so partly.
STRONG = 0.7
WEAK = 0.3
Values = Callable[[Record], Sequence[float | None] | None]  # a value per class of a record


@dataclass(frozen=True)
class Finding:
    """A claim and whether we see it: a row of the table of claims.

    `outcome` follows from numbers by `outcome_for` or `outcome_if`, with the thresholds that `rule` has in words. It is
    no judgment of the paper: "not reproduced" means that our networks do not show it, by that rule.
    """

    says: str  # the paper's claim
    number: float  # what was measured
    seen: str  # the number in words, and what it was measured on
    outcome: ClaimOutcome  # whether the number meets the rule
    rule: str  # the thresholds in words


def outcome_for(number: float, reproduced: float, partly: float) -> ClaimOutcome:
    """Return the outcome of a number that should be high; of one that should be low, pass all three negated.

    Args:
        number: what was measured.
        reproduced, partly: from which number on the claim counts as reproduced, or as partly so.

    >>> outcome_for(0.5, reproduced=0.7, partly=0.3)
    'partly'
    >>> outcome_for(-0.4, reproduced=-0.5, partly=-1.0)  # 0.4, where at most 0.5 was asked for
    'reproduced'
    """
    return outcome_if(number >= reproduced, number >= partly)


def outcome_if(reproduced: bool, partly: bool) -> ClaimOutcome:
    """Return the outcome of two conditions, of which the first is the stronger one.

    >>> outcome_if(reproduced=False, partly=True)
    'partly'
    """
    if reproduced:
        return "reproduced"
    if partly:
        return "partly"
    return "not reproduced"


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
    """Judge a claim on the paper's own setting, and say beside it what all columns show.

    Args:
        claim: one of `all_claims.CLAIMS`; its name decides the setting, by `OWN_SETTING`.
        records: all there are.
    """
    on_all_columns = claim(records)
    papers_columns = OWN_SETTING.get(claim.__name__)
    if papers_columns is None:
        return on_all_columns
    # Claims that are relative to balanced data need those records too.
    kept = {*papers_columns, *(f"{column.split(':')[0]}:1" for column in papers_columns)}
    # The claim itself knows nothing of settings: it sees the records of these columns and no others.
    finding = claim([record for record in records if record["column"] in kept])
    if finding is None or on_all_columns is None:
        return finding
    # All settings of several columns are of CIFAR-10.
    where = "CIFAR-10"
    if len(papers_columns) == 1:
        where = column_title(papers_columns[0])
    seen = f"{where}: {finding.seen}"
    if on_all_columns.seen != finding.seen:
        seen += f"; all columns: **{on_all_columns.outcome}**"
    return replace(finding, seen=seen)


def count_correlation(record: Record, values: Sequence[float | None]) -> float:
    """Return the rank correlation (Spearman) of one value per class with the counts.

    Classes without a value are left out. Ranks, because no claim says how steeply a value rises, only that it does.

    >>> count_correlation({"counts": [90, 50, 10]}, [3.0, None, 1.0])
    1.0
    """
    has_value = np.array([value is not None for value in values])
    counts = np.asarray(record["counts"])
    return rank_correlation(np.array(values, float)[has_value], counts[has_value])


def rank_finding(
    records: Sequence[Record], says: str, values: Values, *, sign: int
) -> Finding | None:
    """Judge that a value rises or falls with the counts, by the baseline's mean over the columns of Table 1.

    Classes differ in themselves, and their order is always the same. So two more numbers are reported: the correlation
    of each class's value relative to the same class on balanced data, and that of balanced data in this order.

    Args:
        records: of which columns without the baseline are left out.
        says: the claim in words.
        values: takes a record, returns a value for each class, or None where the record has none.
        sign: 1 if the value is claimed to rise with the counts, -1 if it is claimed to fall.
    """
    by_column: dict[str, float] = {}  # rank correlation, mean over seeds
    relative_to_balanced: list[float] = []
    of_balanced: dict[str, float] = {}
    for column in table1_columns(imbalanced=True):
        runs = _with_values(full_runs(records, column, "baseline"), values)
        if not runs:
            continue
        by_column[column] = mean(sign * count_correlation(run, value) for run, value in runs)
        # The same classes trained on equally many images: what a class is like by itself.
        data = column.split(":")[0]
        balanced = _with_values(full_runs(records, f"{data}:1", "baseline"), values)
        if balanced:
            first = runs[0][0]  # for the counts of the column, which all of its runs share
            of_balanced[data] = mean(
                sign * count_correlation(first, plain) for _, plain in balanced
            )
            # Every seed beside every balanced seed.
            ranks = []
            for run, value in runs:
                for _, plain in balanced:
                    ranks.append(sign * count_correlation(run, _relative(value, plain)))
            relative_to_balanced.append(mean(ranks))
    if not by_column:
        return None
    # Every column counts the same, however many seeds it has.
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
    """Return the runs that have values, each with its own.

    Not every record has every value: angles of training features, for one, only if the run kept these features.
    """
    pairs = []
    for run in runs:
        value = values(run)
        if value:
            pairs.append((run, value))
    return pairs


def _relative(
    values: Sequence[float | None], balanced: Sequence[float | None]
) -> list[float | None]:
    """Return each class's value over that of the same class on balanced data; None where either is missing.

    >>> _relative([30.0, None, 12.0], [20.0, 10.0, 0.0])
    [1.5, None, None]
    """
    ratios: list[float | None] = []
    for value, plain in zip(values, balanced, strict=True):
        if value is None or not plain:
            ratios.append(None)
        else:
            ratios.append(value / plain)
    return ratios
