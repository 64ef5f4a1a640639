"""The paper's main claims, judged by our records: one function per claim, which states its own thresholds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

import numpy as np

from levelhead.methods import METHODS

from .cells import GRID, Record, cell, full_runs, share_of_gap
from .geometry import rank_correlation
from .tables import column_title, table1_columns, tables

ClaimOutcome = Literal["reproduced", "partly", "not reproduced"]
STRONG, WEAK = 0.7, 0.3  # rank correlations
WITHIN = 0.01  # a gamma is good if its error is at most this far above the best
LOSSES = ("re-weighting", "focal", "class-balanced", "ldam", "ldam-drw")
FROM_HOLD_OUT = "gamma from a hold-out"
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
    """Return the outcome of a number by its two thresholds."""
    return "reproduced" if number >= reproduced else "partly" if number >= partly else "not reproduced"


def norm_follows_frequency(records: Sequence[Record]) -> Finding | None:
    """Judge the baseline's rank correlation of weight norms with counts."""
    says = "The norm of a class's weight vector follows its sample frequency."
    return rank_finding(records, says, lambda r: r["norms"], "of weight norm with count", sign=1)


def rare_test_clusters_are_wider(records: Sequence[Record]) -> Finding | None:
    """Judge the baseline's rank correlation of sigma-test with rarity."""
    says = "At test time, features of less frequent classes form wider clusters."
    return rank_finding(records, says, lambda r: r["geometry"].get("sigma_test"), "of sigma-test with rarity", sign=-1)


def centers_drift_apart(records: Sequence[Record]) -> Finding | None:
    """Judge the baseline's rank correlation of the angle between train and test centers with rarity."""
    says = "The rarer a class, the farther apart the centers of its train and test features."
    what = "of the angle between centers with rarity"
    return rank_finding(records, says, lambda r: r["geometry"].get("center_gap"), what, sign=-1)


def wvn_flattens_the_curve(records: Sequence[Record]) -> Finding | None:
    """Judge how much wider WVN's range of gammas within a point of the best is than the baseline's."""
    ratios = {}
    for column in table1_columns(imbalanced=True):
        width = {m: [near_best_width(r["curve"]) for r in full_runs(records, column, m)] for m in ("baseline", "wvn")}
        if all(width.values()):
            ratios[column] = mean(width["wvn"]) / mean(width["baseline"])
    if not ratios:
        return None
    wider = sum(ratio > 1 for ratio in ratios.values())
    number = float(np.exp(np.mean(np.log(list(ratios.values())))))
    everywhere = number >= 1.5 and wider == len(ratios)
    return Finding(
        "WVN is more robust to the choice of gamma: it flattens the curve of the error over gamma.",
        number,
        f"the range of gammas within {100 * WITHIN:g} point of the best error is {number:.1f} times as wide with WVN "
        f"(geometric mean over {_column_count(len(ratios))} of Table 1); it is wider in {wider} of them",
        "reproduced" if everywhere else "partly" if number > 1 else "not reproduced",
        "reproduced if it is 1.5 times as wide and wider in every column, partly if it is wider on average",
    )


def rs_closes_the_gap(records: Sequence[Record]) -> Finding | None:
    """Judge the share of the gap between a network and its oracle head that RS closes, gamma from a hold-out."""
    shares: dict[str, list[float]] = {"baseline": [], "wvn": []}
    for column in table1_columns(imbalanced=True):
        for method, found in shares.items():
            readings = ("last epoch", FROM_HOLD_OUT, "oracle")
            errors = [cell(records, column, method, reading).errors for reading in readings]
            share = share_of_gap(*(mean(e) for e in errors)) if all(errors) else None
            found += [] if share is None else [share]
    every = [share for found in shares.values() for share in found]
    if not every:
        return None
    split = "; ".join(
        f"{METHODS[method].title} {mean(found):.0%}, from {min(found):.0%} to {max(found):.0%} in "
        f"{_column_count(len(found))}"
        for method, found in shares.items()
        if found
    )
    return Finding(
        "RS closes most of the gap between a network and its oracle head.",
        mean(every),
        f"with gamma from a hold-out, RS closes {mean(every):.0%} of the gap ({split})",
        outcome_for(mean(every), 0.5, 0.25),
        "reproduced if it closes at least half of the gap on average, partly if at least a quarter",
    )


def rs_beats_the_losses(records: Sequence[Record]) -> Finding | None:
    """Judge each loss-based row's error minus Baseline+RS's, gamma from a hold-out, mean over columns."""
    margins, most = {}, 0
    for method in LOSSES:
        pairs = [
            (cell(records, c, method).errors, cell(records, c, "baseline", FROM_HOLD_OUT).errors)
            for c in table1_columns(imbalanced=True)
        ]
        found = [mean(loss) - mean(ours) for loss, ours in pairs if loss and ours]
        if found:
            margins[METHODS[method].title], most = mean(found), max(most, len(found))
    if len(margins) < len(LOSSES):
        return None
    ahead = sum(margin > 0 for margin in margins.values())
    split = ", ".join(f"{title} {margin:+.2f}" for title, margin in margins.items())
    return Finding(
        "RS on the plain network beats methods that change the loss.",
        min(margins.values()),
        f"their error minus Baseline+RS's, gamma from a hold-out, in points, mean over up to {most} columns: {split}",
        "reproduced" if ahead == len(LOSSES) else "partly" if 2 * ahead >= len(LOSSES) else "not reproduced",
        f"reproduced if Baseline+RS is ahead of all {len(LOSSES)} on average, partly if of at least half of them",
    )


def wvn_with_rs_is_the_best(records: Sequence[Record]) -> Finding | None:
    """Judge in how many columns WVN+RS is ahead of Baseline+RS and of every row, gamma from a hold-out."""
    seen, most, points = [], [], []
    for name, columns in (("Table 1", table1_columns(imbalanced=True)), ("Table 2", tables()["table2"]["columns"])):
        ahead, leads = [], []
        for column in columns:
            ours, plain = (cell(records, column, method, FROM_HOLD_OUT).errors for method in ("wvn", "baseline"))
            if ours and plain:
                others = [cell(records, column, m).errors for m in METHODS if not m.startswith("wvn")]
                ahead.append(mean(plain) - mean(ours))
                leads.append(mean(ours) < min(mean(errors) for errors in [plain, *others] if errors))
        if ahead:
            seen.append(
                f"{sum(a > 0 for a in ahead)} of {len(ahead)} columns of {name} (by {mean(ahead):+.2f} points "
                f"on average), and of all rows in {sum(leads)}"
            )
            most.append(2 * sum(leads) > len(leads))
            points += ahead
    if not points:
        return None
    return Finding(
        "WVN+RS outperforms the other methods, RS on the plain network among them.",
        mean(points),
        f"with gamma from a hold-out, it is ahead of Baseline+RS in {'; in '.join(seen)}",
        "reproduced" if all(most) else "partly" if any(most) else "not reproduced",
        "reproduced if it is ahead of all rows in most columns of each table, partly if in most columns of one",
    )


def the_plain_oracle_is_better(records: Sequence[Record]) -> Finding | None:
    """Judge in how many columns the oracle head is better on the plain network's features than on WVN's."""
    both = _baseline_and_wvn(lambda column, method: cell(records, column, method, "oracle").errors)
    if not both:
        return None
    less = mean(plain < kept for plain, kept in both)
    return Finding(
        "The oracle head of the plain network is better than that of WVN: its features have more to give.",
        less,
        f"in {sum(plain < kept for plain, kept in both)} of {len(both)} columns of Table 1, by "
        f"{mean(kept - plain for plain, kept in both):.2f} points on average",
        outcome_for(less, 0.8, 0.5),
        "reproduced if in four columns of five, partly if in half of them",
    )


def wvn_comes_nearer_to_its_oracle(records: Sequence[Record]) -> Finding | None:
    """Judge in how many columns RS, gamma from a hold-out, is nearer to the oracle head with WVN than without."""

    def left(column: str, method: str) -> list[float]:
        errors = [cell(records, column, method, reading).errors for reading in (FROM_HOLD_OUT, "oracle")]
        return [mean(errors[0]) - mean(errors[1])] if all(errors) else []

    both = _baseline_and_wvn(left)
    if not both:
        return None
    less = mean(kept < plain for plain, kept in both)
    plain, kept = (mean(pair[i] for pair in both) for i in (0, 1))
    return Finding(
        "With WVN, RS comes much closer to the oracle head.",
        less,
        f"with gamma from a hold-out, {kept:.2f} points are left on average, {plain:.2f} without WVN; less is left "
        f"with WVN in {sum(kept < plain for plain, kept in both)} of {len(both)} columns of Table 1",
        outcome_for(less, 0.8, 0.5),
        "reproduced if in four columns of five, partly if in half of them",
    )


CLAIMS: tuple[Callable[[Sequence[Record]], Finding | None], ...] = (
    norm_follows_frequency,
    wvn_flattens_the_curve,
    rare_test_clusters_are_wider,
    centers_drift_apart,
    rs_closes_the_gap,
    rs_beats_the_losses,
    wvn_with_rs_is_the_best,
    the_plain_oracle_is_better,
    wvn_comes_nearer_to_its_oracle,
)


def near_best_width(curve: Sequence[float]) -> float:
    """Return the width of the range of gammas, from 0 to 2, whose error is within a point of the best."""
    return round(float((np.asarray(curve) <= min(curve) + WITHIN).sum() * (GRID[1] - GRID[0])), 6)


def count_correlation(record: Record, values: Sequence[float | None]) -> float:
    """Return the rank correlation of one value per class with the counts, leaving out classes without a value."""
    there = np.array([value is not None for value in values])
    return rank_correlation(np.array(values, float)[there], np.asarray(record["counts"])[there])


def rank_finding(records: Sequence[Record], says: str, values: Values, what: str, *, sign: int) -> Finding | None:
    """Judge that a value rises (sign 1) or falls (-1) with the counts, by the baseline's mean over columns.

    Classes differ in themselves, and their order is always the same. So two more numbers are reported: the correlation
    of each class's value relative to the same class on balanced data, and that of balanced data in this order.
    """
    columns, over, chance = {}, [], {}
    for column in table1_columns(imbalanced=True):
        found = [(r, v) for r in full_runs(records, column, "baseline") if (v := values(r))]
        if not found:
            continue
        columns[column] = mean(sign * count_correlation(r, v) for r, v in found)
        data = column.split(":")[0]
        balanced = [v for r in full_runs(records, f"{data}:1", "baseline") if (v := values(r))]
        if balanced:
            chance[data] = mean(sign * count_correlation(found[0][0], v) for v in balanced)
            relative = [
                (r, [None if a is None or not b else a / b for a, b in zip(v, of, strict=True)])
                for r, v in found
                for of in balanced
            ]
            over.append(mean(sign * count_correlation(r, v) for r, v in relative))
    if not columns:
        return None
    low, number = min(columns, key=lambda c: columns[c]), mean(columns.values())
    seen = (
        f"rank correlation {what}, baseline: {number:.2f} over {_column_count(len(columns))} of Table 1, lowest "
        f"{columns[low]:.2f} ({column_title(low)})"
    )
    if over:
        seen += (
            f"; {mean(over):.2f} with each class relative to itself on balanced data; balanced data alone, in the "
            f"same order of classes: {', '.join(f'{c:.2f}' for c in chance.values())}"
        )
    rule = f"reproduced at {STRONG:g} or more, partly at {WEAK:g} or more"
    return Finding(says, number, seen, outcome_for(number, STRONG, WEAK), rule)


def _baseline_and_wvn(value: Callable[[str, str], Sequence[float]]) -> list[tuple[float, float]]:
    """Return the baseline's and WVN's mean over seeds, for each imbalanced column of Table 1 that has both."""
    found = [(value(column, "baseline"), value(column, "wvn")) for column in table1_columns(imbalanced=True)]
    return [(mean(plain), mean(kept)) for plain, kept in found if plain and kept]


def _column_count(n: int) -> str:
    return f"{n} column{'s' * (n > 1)}"
