"""The paper's claims that records decide: one function per claim, which states its own thresholds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Literal

import numpy as np

from ..methods import METHODS
from .cells import GRID, Record, cell, full_runs
from .geometry import rank_correlation
from .tables import column_title, source_cells, table1_columns, tables

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
    return (
        "reproduced" if number >= reproduced else "partly" if number >= partly else "not reproduced"
    )


def norm_follows_frequency(records: Sequence[Record]) -> Finding | None:
    says = "The norm of a class's weight vector follows its sample frequency."
    return rank_finding(records, says, lambda r: r["norms"], sign=1)


def rare_test_clusters_are_wider(records: Sequence[Record]) -> Finding | None:
    says = "At test time, features of less frequent classes form wider clusters."
    return rank_finding(records, says, lambda r: r["geometry"].get("sigma_test"), sign=-1)


def centers_drift_apart(records: Sequence[Record]) -> Finding | None:
    says = "The rarer a class, the farther apart the centers of its train and test features."
    return rank_finding(records, says, lambda r: r["geometry"].get("center_gap"), sign=-1)


def wvn_flattens_the_curve(records: Sequence[Record]) -> Finding | None:
    ratios = {}
    for column in table1_columns(imbalanced=True):
        width = {
            m: [near_best_width(r["curve"]) for r in full_runs(records, column, m)]
            for m in ("baseline", "wvn")
        }
        if all(width.values()):
            ratios[column] = mean(width["wvn"]) / mean(width["baseline"])
    if not ratios:
        return None
    wider = sum(ratio > 1 for ratio in ratios.values())
    number = float(np.exp(np.mean(np.log(list(ratios.values())))))
    everywhere = number >= 1.5 and wider == len(ratios)
    return Finding(
        "WVN flattens the curve of the error over gamma.",
        number,
        f"gammas within {100 * WITHIN:g} point of the best span {number:.1f} times as much (geometric mean), more in "
        f"{wider} of {len(ratios)} columns",
        "reproduced" if everywhere else "partly" if number > 1 else "not reproduced",
        "1.5 times, and more in every column; partly: more on average",
    )


def rs_beats_the_losses(records: Sequence[Record]) -> Finding | None:
    columns = table1_columns(imbalanced=True)
    trained = {METHODS[method].title: {c: (c, method) for c in columns} for method in LOSSES}
    for row in [one for one in tables()["sources"]["rows"] if one["beside"] in LOSSES]:
        trained[row["title"]] = {
            c: (at, method) for c, (at, method, _) in source_cells(row).items()
        }
    margins = {}
    for title, cells in trained.items():
        pairs = [
            (cell(records, *at).errors, cell(records, c, "baseline", FROM_HOLD_OUT).errors)
            for c, at in cells.items()
        ]
        if found := [mean(loss) - mean(ours) for loss, ours in pairs if loss and ours]:
            margins[title] = mean(found)
    if not all(METHODS[method].title in margins for method in LOSSES):
        return None
    ahead, of = sum(margin > 0 for margin in margins.values()), len(margins)
    return Finding(
        "RS on the plain network beats methods that change the loss.",
        min(margins.values()),
        f"mean error of each of {of} minus Baseline+RS's, gamma from a hold-out: {min(margins.values()):+.2f} to "
        f"{max(margins.values()):+.2f} points",
        "reproduced" if ahead == of else "partly" if 2 * ahead >= of else "not reproduced",
        "ahead of all on average; partly: of half",
    )


def wvn_with_rs_is_the_best(records: Sequence[Record]) -> Finding | None:
    seen, most, points = [], [], []
    for name, columns in (
        ("Table 1", table1_columns(imbalanced=True)),
        ("Table 2", tables()["table2"]["columns"]),
    ):
        ahead, leads = [], []
        for column in columns:
            ours, plain = (
                cell(records, column, method, FROM_HOLD_OUT).errors
                for method in ("wvn", "baseline")
            )
            if ours and plain:
                others = [
                    cell(records, column, m).errors for m in METHODS if not m.startswith("wvn")
                ]
                ahead.append(mean(plain) - mean(ours))
                leads.append(
                    mean(ours) < min(mean(errors) for errors in [plain, *others] if errors)
                )
        if ahead:
            seen.append(
                f"{sum(a > 0 for a in ahead)} of {len(ahead)} columns of {name} (by {mean(ahead):+.2f} points), of all "
                f"rows in {sum(leads)}"
            )
            most.append(2 * sum(leads) > len(leads))
            points += ahead
    if not points:
        return None
    return Finding(
        "WVN+RS outperforms the other methods, RS on the plain network among them.",
        mean(points),
        f"gamma from a hold-out: ahead of Baseline+RS in {'; '.join(seen)}",
        "reproduced" if all(most) else "partly" if any(most) else "not reproduced",
        "ahead of all rows in most columns of each table; partly: of one",
    )


def the_plain_oracle_is_better(records: Sequence[Record]) -> Finding | None:
    both = _baseline_and_wvn(lambda column, method: cell(records, column, method, "oracle").errors)
    if not both:
        return None
    less = mean(plain < kept for plain, kept in both)
    return Finding(
        "The oracle head of the plain network is better than that of WVN.",
        less,
        f"in {sum(plain < kept for plain, kept in both)} of {len(both)} columns, by "
        f"{mean(kept - plain for plain, kept in both):.2f} points",
        outcome_for(less, 0.8, 0.5),
        "four columns of five; partly: half",
    )


def wvn_comes_nearer_to_its_oracle(records: Sequence[Record]) -> Finding | None:
    def left(column: str, method: str) -> list[float]:
        errors = [
            cell(records, column, method, reading).errors for reading in (FROM_HOLD_OUT, "oracle")
        ]
        return [mean(errors[0]) - mean(errors[1])] if all(errors) else []

    both = _baseline_and_wvn(left)
    if not both:
        return None
    less = mean(kept < plain for plain, kept in both)
    plain, kept = (mean(pair[i] for pair in both) for i in (0, 1))
    return Finding(
        "With WVN, RS comes much closer to the oracle head.",
        less,
        f"{kept:.2f} points are left, {plain:.2f} without WVN; fewer in {sum(kept < plain for plain, kept in both)} of "
        f"{len(both)} columns",
        outcome_for(less, 0.8, 0.5),
        "four columns of five; partly: half",
    )


def balancing_the_data_does_not_help(records: Sequence[Record]) -> Finding | None:
    columns = [c for c in table1_columns() if c.split(":")[1] in ("200", "100", "50")]
    worse = {
        method: [
            mean(ours) - mean(plain) for plain, ours in _pairs(records, columns, "baseline", method)
        ]
        for method in ("under-sample", "re-weighting")
    }
    if not all(worse.values()):
        return None
    under, weighted = worse.values()
    seen = [
        f"{METHODS[m].title} {min(points):+.2f} to {max(points):+.2f}"
        for m, points in worse.items()
    ]
    return Finding(
        "At high ratios under-sampling degrades severely, and re-weighting is not effective.",
        min(under),
        f"error minus the baseline's, ratios 50 to 200: {', '.join(seen)}",
        "not reproduced" if min(under) < 5 else "reproduced" if min(weighted) > -1 else "partly",
        "under-sampling costs 5 points, re-weighting gains less than 1 everywhere; partly: the former",
    )


def wvn_matters_little_on_balanced_data(records: Sequence[Record]) -> Finding | None:
    balanced = [column for column in table1_columns() if column.endswith(":1")]
    change = [
        mean(kept) - mean(plain) for plain, kept in _pairs(records, balanced, "baseline", "wvn")
    ]
    if len(change) < len(balanced):
        return None
    most = max(map(abs, change))
    return Finding(
        "On balanced data WVN changes the performance marginally.",
        most,
        f"error minus the baseline's: {change[0]:+.2f} and {change[1]:+.2f} points",
        outcome_for(-most, -1.0, -2.0),
        "both within 1 point; partly: 2",
    )


def cifar100_is_more_sensitive(records: Sequence[Record]) -> Finding | None:
    width = {
        (column, method): mean(near_best_width(r["curve"]) for r in found)
        for column in table1_columns(imbalanced=True)
        for method in ("baseline", "wvn")
        if (found := full_runs(records, column, method))
    }
    pairs = {
        key: (width[key], width[other])
        for key in width
        if (other := (key[0].replace("cifar10:", "cifar100:"), key[1])) in width and other != key
    }
    if not pairs:
        return None
    narrower = sum(ten > hundred for ten, hundred in pairs.values())
    return Finding(
        "The error is more sensitive to gamma on CIFAR-100 than on CIFAR-10.",
        narrower / len(pairs),
        f"gammas within {100 * WITHIN:g} point of the best span less in {narrower} of {len(pairs)} pairs of columns",
        outcome_for(narrower / len(pairs), 1.0, 0.8),
        "every pair; partly: four of five",
    )


def every_gamma_helps(records: Sequence[Record]) -> Finding | None:
    shares: dict[str, list[float]] = {"wvn": [], "baseline": []}
    spans = []
    for column in table1_columns(imbalanced=True):
        plain = cell(records, column, "baseline").errors
        for method, found in shares.items():
            curves = [r["curve"][1:101] for r in full_runs(records, column, method)]
            if plain and curves:
                curve = 100 * np.mean(curves, axis=0)
                found.append(float((curve < mean(plain)).mean()))
                spans += [float(np.ptp(curve))] if method == "wvn" else []
    if not shares["wvn"]:
        return None
    seen = ", ".join(
        f"{METHODS[m].title}+RS {min(s):.0%} to {max(s):.0%}" for m, s in shares.items() if s
    )
    return Finding(
        "On CIFAR-10 WVN+RS beats the baseline at every gamma, and varies marginally with it.",
        min(shares["wvn"]),
        f"of the gammas up to 1 are better: {seen}; WVN+RS varies by {min(spans):.1f} to {max(spans):.1f} points",
        outcome_for(min(shares["wvn"]), 1.0, 0.8),
        "at all, in every column; partly: four of five",
    )


def rare_centers_are_far_apart(records: Sequence[Record]) -> Finding | None:
    gaps = {
        column: [r["geometry"]["center_gap"][int(np.argmin(r["counts"]))] for r in found]
        for column in ("cifar10:100", "cifar10:200")
        if (
            found := [
                r for r in full_runs(records, column, "baseline") if r["geometry"].get("center_gap")
            ]
        )
    }
    if "cifar10:100" not in gaps:
        return None
    number = mean(gaps["cifar10:100"])
    each = "; ".join(
        f"{mean(found):.1f} degrees on {column_title(column)}" for column, found in gaps.items()
    )
    return Finding(
        "The rarest class's train and test centers are nearly 40 degrees apart.",
        number,
        each,
        outcome_for(number, 35.0, 20.0),
        "35 degrees at ratio 100; partly: 20",
    )


_FIGURE_4, _TABLE_3 = ("cifar10:100",), ("cifar10:100", "cifar10:10")
# The columns of the paper's own figure or table, where it is not all of Table 1.
OWN_SETTING: dict[str, tuple[str, ...]] = {
    "rare_test_clusters_are_wider": _FIGURE_4,
    "centers_drift_apart": _FIGURE_4,
    "train_clusters_grow": _FIGURE_4,
    "the_plain_oracle_is_better": _TABLE_3,
    "wvn_comes_nearer_to_its_oracle": _TABLE_3,
    "every_gamma_helps": tuple(f"cifar10:{ratio}" for ratio in (200, 100, 50, 20, 10)),
}


def judged(
    claim: Callable[[Sequence[Record]], Finding | None], records: Sequence[Record]
) -> Finding | None:
    """Judge a claim on the paper's own setting, and say beside it what all columns show."""
    own, every = OWN_SETTING.get(claim.__name__), claim(records)
    if own is None:
        return every
    kept = {*own, *(f"{column.split(':')[0]}:1" for column in own)}
    finding = claim([record for record in records if record["column"] in kept])
    if finding is None or every is None:
        return finding
    beside = f"; all columns: **{every.outcome}**" * (every.seen != finding.seen)
    where = column_title(own[0]) if len(own) == 1 else "CIFAR-10"
    return replace(finding, seen=f"{where}: {finding.seen}{beside}")


def near_best_width(curve: Sequence[float]) -> float:
    return round(float((np.asarray(curve) <= min(curve) + WITHIN).sum() * (GRID[1] - GRID[0])), 6)


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
    number = mean(columns.values())
    seen = f"rank correlation {number:.2f}"
    if over:
        alone = ", ".join(f"{c:.2f}" for c in chance.values())
        seen += f"; {mean(over):.2f} relative to balanced data, which have {alone}"
    rule = f"{STRONG:g}; partly: {WEAK:g}"
    return Finding(says, number, seen, outcome_for(number, STRONG, WEAK), rule)


def _baseline_and_wvn(value: Callable[[str, str], Sequence[float]]) -> list[tuple[float, float]]:
    found = [
        (value(column, "baseline"), value(column, "wvn"))
        for column in table1_columns(imbalanced=True)
    ]
    return [(mean(plain), mean(kept)) for plain, kept in found if plain and kept]


def _pairs(
    records: Sequence[Record], columns: Sequence[str], *methods: str
) -> list[list[tuple[float, ...]]]:
    found = [[cell(records, column, method).errors for method in methods] for column in columns]
    return [errors for errors in found if all(errors)]
