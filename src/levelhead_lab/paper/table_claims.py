"""The paper's claims about its tables: methods beside each other, and RS beside the oracle head.

All differences are in points of error. A cell with several seeds counts by their mean. The paper states no gamma for
Table 1, so that RS is judged there with the gamma of a hold-out, which anybody could have had; for Table 2 it states
0.1, and that decides.

Every function takes all records and returns None while a cell that it needs is empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from ..methods import METHODS
from .cells import HELD_OUT, LAST_EPOCH, ORACLE, PAPER_GAMMA, Record, cell, full_runs
from .claims import Finding, outcome_for, outcome_if
from .table_fields import Place
from .tables import (
    readings,
    readings_of_table2,
    source_cells,
    table1_columns,
    tables,
    without_recipe,
)

LOSSES = ("re-weighting", "focal", "class-balanced", "ldam", "ldam-drw")


def balancing_the_data_does_not_help(records: Sequence[Record]) -> Finding | None:
    """Judge under-sampling and re-weighting beside the baseline, in the columns of ratios 50 to 200.

    "Severely" is 5 points here, and "not effective" that no column gains a point. The smallest loss of under-sampling
    decides, so that it has to degrade in every column.
    """
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
    """Judge WVN alone beside the baseline at ratio 1, on both data sets: the larger change decides, up or down."""
    balanced = [column for column in table1_columns() if column.endswith(":1")]
    # Both data sets are needed: of one alone, "both within 1 point" would say too much.
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
    """Judge Baseline+RS beside each loss by our recipe, and beside each copied row by the recipe of its source.

    By the recipe of its source a row is what its authors made of it, and harder to beat; both kinds count.
    """
    margins = _margins_over_losses(records)
    # Rows by other recipes may be missing, those by ours not.
    if not all(METHODS[method].title in margins for method in LOSSES):
        return None
    # The nearest rival decides.
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


def _margins_over_losses(records: Sequence[Record]) -> dict[str, float]:
    """Return by how many points each row is behind Baseline+RS, by its title: the mean over columns that have both.

    Rows by our recipe are there in all imbalanced columns of Table 1, those by the recipe of a source in the columns
    that the source has. A row without a network is left out.
    """
    columns = table1_columns(imbalanced=True)
    # By title: where the networks of a row are, by the column of Table 1.
    places_of: dict[str, dict[str, Place]] = {}
    for method in LOSSES:
        places_of[METHODS[method].title] = {column: (column, method) for column in columns}
    for source in tables()["sources"]["rows"]:
        if source["beside"] in LOSSES:
            cells = source_cells(source).items()
            places_of[source["title"]] = {column: compared.place for column, compared in cells}
    margins = {}
    for title, places in places_of.items():
        points = []
        for column, place in places.items():
            loss = cell(records, *place).errors
            ours = cell(records, column, "baseline", HELD_OUT).errors
            if loss and ours:
                points.append(mean(loss) - mean(ours))
        if points:
            margins[title] = mean(points)
    return margins


@dataclass(frozen=True)
class _Comparison:
    """WVN+RS in the columns of a table."""

    table: str  # its title, and which gamma is meant
    points: list[float]  # by which it is ahead of Baseline+RS, in each column
    leads: list[bool]  # whether it beats every row of the column

    @property
    def text(self) -> str:
        """In how many columns it is ahead, and by how much on average."""
        ahead = sum(points > 0 for points in self.points)
        return (
            f"{ahead} of {len(self.points)} columns of {self.table} (by {mean(self.points):+.2f} "
            f"points), of all rows in {sum(self.leads)}"
        )


def wvn_with_rs_is_the_best(records: Sequence[Record]) -> Finding | None:
    """Judge Table 1 with gamma from a hold-out, Table 2 with that of the paper.

    WVN+RS is compared with Baseline+RS at the same source of gamma, and with every other row as trained.
    """
    title2, columns2 = _table2_setting(records)
    comparisons = [
        _compare_wvn_with_rows(
            records,
            "Table 1, gamma from a hold-out",
            table1_columns(imbalanced=True),
            HELD_OUT,
        ),
        _compare_wvn_with_rows(records, title2, columns2, PAPER_GAMMA),
    ]
    comparisons = [comparison for comparison in comparisons if comparison.points]
    if not comparisons:
        return None
    all_points: list[float] = []
    most = []  # whether it leads in most columns, of each table
    for comparison in comparisons:
        all_points += comparison.points
        most.append(2 * sum(comparison.leads) > len(comparison.leads))
    return Finding(
        "WVN+RS outperforms the other methods, RS on the plain network among them.",
        mean(all_points),
        f"ahead of Baseline+RS in {'; '.join(comparison.text for comparison in comparisons)}",
        outcome_if(all(most), any(most)),
        "ahead of all rows in most columns of each table; partly: of one",
    )


def _compare_wvn_with_rows(
    records: Sequence[Record], table: str, columns: Sequence[str], source: str
) -> _Comparison:
    """Compare WVN+RS with all other rows, in the columns that have it and Baseline+RS.

    Args:
        records: all there are.
        table: its title, for the text.
        columns: of the table.
        source: of gamma, for both methods: a key of `cells.GAMMAS`.
    """
    comparison = _Comparison(table, [], [])
    for column in columns:
        ours = cell(records, column, "wvn", source).errors
        plain = cell(records, column, "baseline", source).errors
        if not ours or not plain:
            continue
        # The baseline with RS and without, and every other row as trained.
        alone = mean(cell(records, column, "baseline").errors)
        others = [mean(plain), alone, *_other_rows(records, column)]
        comparison.points.append(mean(plain) - mean(ours))
        comparison.leads.append(mean(ours) < min(others))
    return comparison


def _other_rows(records: Sequence[Record], column: str) -> list[float]:
    """Return the mean error of every row of a column as trained, but of the baseline and of WVN.

    Rows count by each recipe by which they stand in a table: their best one is the rival.
    """
    places: list[Place] = []
    for method in METHODS:
        if method != "baseline" and not method.startswith("wvn"):
            places.append((column, method))
    # Of Table 1: another reading, and the recipe of the source.
    for reading in readings():
        if reading.in_table1 and column in reading.columns:
            places.append(reading.place(column))
    for source in tables()["sources"]["rows"]:
        cells = source_cells(source)
        if column in cells and "counted_only" not in source:
            places.append(cells[column].place)
    # Of Table 2: other readings of the recipe of the source.
    for reading in readings_of_table2():
        for place in reading.places:
            if without_recipe(place[0]) == without_recipe(column):
                places.append(place)
    errors = [cell(records, *place).errors for place in places]
    return [mean(of_seeds) for of_seeds in errors if of_seeds]


def rs_is_remarkable_on_tiny_imagenet(records: Sequence[Record]) -> Finding | None:
    """Judge Baseline+RS at the paper's gamma by what it gains on the baseline, beside all other trained rows.

    "Remarkable" is a point in every column here, and to lead the other rows in half of the columns that have any.
    """
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
        others = _other_rows(records, column)
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

    They are those by the recipe of its source where all of them have this method, or else those by ours: our recipe is
    a short one, and far from the published errors.
    """
    by_source = tables()["table2-sources"]["columns"]
    if all(full_runs(records, column, method) for column in by_source):
        return "Table 2 by the recipe of Cao et al., gamma 0.1", by_source
    return "Table 2 by our recipe, gamma 0.1", tables()["table2"]["columns"]


def the_plain_oracle_is_better(records: Sequence[Record]) -> Finding | None:
    """Judge the features alone: heads fitted to the test images, on those of the plain network and on WVN's.

    If the plain network's oracle is better, then what WVN gains is not in the features.
    """
    # The error of either oracle, in each column that has both.
    pairs = []
    for column in table1_columns(imbalanced=True):
        plain = cell(records, column, "baseline", ORACLE).errors
        wvn = cell(records, column, "wvn", ORACLE).errors
        if plain and wvn:
            pairs.append((mean(plain), mean(wvn)))
    if not pairs:
        return None
    # By columns, so that one with a large gap does not decide for all; the mean gap is told beside it.
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
    """Judge by the points that are left between RS, gamma from a hold-out, and the oracle head.

    Each method is held against its own oracle: WVN may come nearer to one that is worse.
    """
    # What is left without WVN and with it, in each column that has both.
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
    """Return the points between RS, gamma from a hold-out, and the oracle head; None where one of them is missing.

    Both are of the same networks, so that the difference says nothing of how good their features are.
    """
    after = cell(records, column, method, HELD_OUT).errors
    oracle = cell(records, column, method, ORACLE).errors
    if after and oracle:
        return mean(after) - mean(oracle)
    return None


def _differences(
    records: Sequence[Record], columns: Sequence[str], method: str, other: str
) -> list[float]:
    """Return the error of one method minus that of another, in the columns that have both.

    Returns:
        Points, in the order of the columns: above 0 where the first method is worse.

    >>> plain = {"column": "cifar10:50", "method": "baseline", "seed": 0, "hold_out": 0.0, "error": 0.25}
    >>> under = {**plain, "method": "under-sample", "error": 0.5}
    >>> _differences([plain, under], ["cifar10:100", "cifar10:50"], "under-sample", "baseline")
    [25.0]
    """
    points = []
    for column in columns:
        first = cell(records, column, method, LAST_EPOCH).errors
        second = cell(records, column, other, LAST_EPOCH).errors
        if first and second:
            points.append(mean(first) - mean(second))
    return points
