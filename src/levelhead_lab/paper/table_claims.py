"""The paper's claims about its tables: methods beside each other, and RS beside the oracle head.

All differences are in points of error. A cell with several seeds counts by their mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from ..methods import METHODS
from .cells import HELD_OUT, LAST_EPOCH, ORACLE, PAPER_GAMMA, Record, cell, full_runs
from .claims import Finding, outcome_for, outcome_if
from .tables import source_cells, table1_columns, tables

LOSSES = ("re-weighting", "focal", "class-balanced", "ldam", "ldam-drw")


def balancing_the_data_does_not_help(records: Sequence[Record]) -> Finding | None:
    """Judge under-sampling and re-weighting beside the baseline, in the columns of ratios 50 to 200."""
    columns = [c for c in table1_columns() if c.split(":")[1] in ("200", "100", "50")]
    under = _differences(records, columns, "under-sample", "baseline")
    weighted = _differences(records, columns, "re-weighting", "baseline")
    if not under or not weighted:
        return None
    return Finding(
        "At high ratios under-sampling degrades severely, and re-weighting is not effective.",
        min(under),
        "error minus the baseline's, ratios 50 to 200: "
        f"{METHODS['under-sample'].title} {min(under):+.2f} to {max(under):+.2f}, "
        f"{METHODS['re-weighting'].title} {min(weighted):+.2f} to {max(weighted):+.2f}",
        outcome_if(min(under) >= 5 and min(weighted) > -1, min(under) >= 5),
        "under-sampling costs 5 points, re-weighting gains less than 1 everywhere; partly: the former",
    )


def wvn_matters_little_on_balanced_data(records: Sequence[Record]) -> Finding | None:
    balanced = [column for column in table1_columns() if column.endswith(":1")]
    change = _differences(records, balanced, "wvn", "baseline")
    if len(change) < len(balanced):
        return None
    most = max(abs(points) for points in change)
    return Finding(
        "On balanced data WVN changes the performance marginally.",
        most,
        f"error minus the baseline's: {change[0]:+.2f} and {change[1]:+.2f} points",
        outcome_for(-most, -1.0, -2.0),
        "both within 1 point; partly: 2",
    )


def rs_beats_the_losses(records: Sequence[Record]) -> Finding | None:
    """Judge Baseline+RS beside each loss by our recipe, and beside each copied row by the recipe of its source."""
    columns = table1_columns(imbalanced=True)
    # By the title of a row: where its networks are, column and method, by the column of Table 1.
    rows = {METHODS[method].title: {c: (c, method) for c in columns} for method in LOSSES}
    for source in tables()["sources"]["rows"]:
        if source["beside"] in LOSSES:
            places = source_cells(source).items()
            rows[source["title"]] = {column: place[:2] for column, place in places}
    # By how many points each row is behind, mean over the columns that have both.
    margins = {}
    for title, places in rows.items():
        points = []
        for column, place in places.items():
            loss = cell(records, *place).errors
            ours = cell(records, column, "baseline", HELD_OUT).errors
            if loss and ours:
                points.append(mean(loss) - mean(ours))
        if points:
            margins[title] = mean(points)
    if not all(METHODS[method].title in margins for method in LOSSES):
        return None
    lowest = min(margins.values())
    highest = max(margins.values())
    ahead = sum(margin > 0 for margin in margins.values())
    return Finding(
        "RS on the plain network beats methods that change the loss.",
        lowest,
        f"mean error of each of {len(margins)} minus Baseline+RS's, gamma from a hold-out: "
        f"{lowest:+.2f} to {highest:+.2f} points",
        outcome_if(ahead == len(margins), 2 * ahead >= len(margins)),
        "ahead of all on average; partly: of half",
    )


@dataclass(frozen=True)
class _Comparison:
    """WVN+RS in the columns of a table: points ahead of Baseline+RS, and whether it leads all rows."""

    table: str
    points: list[float]
    leads: list[bool]

    @property
    def text(self) -> str:
        ahead = sum(points > 0 for points in self.points)
        return (
            f"{ahead} of {len(self.points)} columns of {self.table} (by {mean(self.points):+.2f} "
            f"points), of all rows in {sum(self.leads)}"
        )


def wvn_with_rs_is_the_best(records: Sequence[Record]) -> Finding | None:
    """Judge Table 1 with gamma from a hold-out, Table 2 with that of the paper."""
    comparisons = []
    for table, columns, source in (
        ("Table 1, gamma from a hold-out", table1_columns(imbalanced=True), HELD_OUT),
        (*_table2_setting(records), PAPER_GAMMA),
    ):
        comparison = _Comparison(table, [], [])
        for column in columns:
            ours = cell(records, column, "wvn", source).errors
            plain = cell(records, column, "baseline", source).errors
            if not ours or not plain:
                continue
            others = [mean(plain)]
            for method in METHODS:
                errors = cell(records, column, method).errors
                if errors and not method.startswith("wvn"):
                    others.append(mean(errors))
            comparison.points.append(mean(plain) - mean(ours))
            comparison.leads.append(mean(ours) < min(others))
        if comparison.points:
            comparisons.append(comparison)
    if not comparisons:
        return None
    all_points = [points for comparison in comparisons for points in comparison.points]
    most = []  # whether it leads in most columns, of each table
    for comparison in comparisons:
        most.append(2 * sum(comparison.leads) > len(comparison.leads))
    return Finding(
        "WVN+RS outperforms the other methods, RS on the plain network among them.",
        mean(all_points),
        f"ahead of Baseline+RS in {'; '.join(comparison.text for comparison in comparisons)}",
        outcome_if(all(most), any(most)),
        "ahead of all rows in most columns of each table; partly: of one",
    )


def rs_is_remarkable_on_tiny_imagenet(records: Sequence[Record]) -> Finding | None:
    """Judge Baseline+RS at the paper's gamma by what it gains on the baseline, beside all other trained rows."""
    table, columns = _table2_setting(records, "baseline")
    gains = []
    leads = 0  # columns in which no other row is better
    compared = 0  # columns that have other rows
    for column in columns:
        plain = cell(records, column, "baseline").errors
        scaled = cell(records, column, "baseline", PAPER_GAMMA).errors
        if not plain or not scaled:
            continue
        gains.append(mean(plain) - mean(scaled))
        others = []
        for method in METHODS:
            errors = cell(records, column, method).errors
            if errors and method != "baseline" and not method.startswith("wvn"):
                others.append(mean(errors))
        if others:
            compared += 1
            leads += mean(scaled) < min(others)
    if not gains:
        return None
    beside = "no other row is trained so"
    if compared:
        beside = f"ahead of the other rows in {leads} of {compared} columns"
    return Finding(
        "Baseline+RS shows remarkable performance on Tiny ImageNet as well.",
        min(gains),
        f"{table}: it gains {', '.join(f'{gain:.2f}' for gain in gains)} points on the baseline; {beside}",
        outcome_if(min(gains) >= 1 and 2 * leads >= compared, mean(gains) >= 1),
        "1 point in every column, ahead of the other rows in half of them; partly: 1 point on average",
    )


def _table2_setting(records: Sequence[Record], method: str = "wvn") -> tuple[str, list[str]]:
    """Return the title and the columns on which claims of Table 2 are judged.

    They are those by the recipe of its source where all of them have this method, or else those by ours.
    """
    by_source = tables()["table2-sources"]["columns"]
    if all(full_runs(records, column, method) for column in by_source):
        return "Table 2 by the recipe of Cao et al., gamma 0.1", by_source
    return "Table 2 by our recipe, gamma 0.1", tables()["table2"]["columns"]


def the_plain_oracle_is_better(records: Sequence[Record]) -> Finding | None:
    """Judge the features alone: heads fitted to the test images, on those of the plain network and on WVN's."""
    pairs = []
    for column in table1_columns(imbalanced=True):
        plain = cell(records, column, "baseline", ORACLE).errors
        wvn = cell(records, column, "wvn", ORACLE).errors
        if plain and wvn:
            pairs.append((mean(plain), mean(wvn)))
    if not pairs:
        return None
    better = sum(plain < wvn for plain, wvn in pairs)
    apart = mean(wvn - plain for plain, wvn in pairs)
    return Finding(
        "The oracle head of the plain network is better than that of WVN.",
        better / len(pairs),
        f"in {better} of {len(pairs)} columns, by {apart:.2f} points",
        outcome_for(better / len(pairs), 0.8, 0.5),
        "four columns of five; partly: half",
    )


def wvn_comes_nearer_to_its_oracle(records: Sequence[Record]) -> Finding | None:
    """Judge by the points that are left between RS, gamma from a hold-out, and the oracle head."""
    pairs = []
    for column in table1_columns(imbalanced=True):
        plain = _left_to_the_oracle(records, column, "baseline")
        wvn = _left_to_the_oracle(records, column, "wvn")
        if plain is not None and wvn is not None:
            pairs.append((plain, wvn))
    if not pairs:
        return None
    fewer = sum(wvn < plain for plain, wvn in pairs)
    return Finding(
        "With WVN, RS comes much closer to the oracle head.",
        fewer / len(pairs),
        f"{mean(wvn for _, wvn in pairs):.2f} points are left, "
        f"{mean(plain for plain, _ in pairs):.2f} without WVN; fewer in {fewer} of {len(pairs)} "
        "columns",
        outcome_for(fewer / len(pairs), 0.8, 0.5),
        "four columns of five; partly: half",
    )


def _left_to_the_oracle(records: Sequence[Record], column: str, method: str) -> float | None:
    after = cell(records, column, method, HELD_OUT).errors
    oracle = cell(records, column, method, ORACLE).errors
    if after and oracle:
        return mean(after) - mean(oracle)
    return None


def _differences(
    records: Sequence[Record], columns: Sequence[str], method: str, other: str
) -> list[float]:
    """Return the error of one method minus that of another, in the columns that have both."""
    points = []
    for column in columns:
        first = cell(records, column, method, LAST_EPOCH).errors
        second = cell(records, column, other, LAST_EPOCH).errors
        if first and second:
            points.append(mean(first) - mean(second))
    return points
