"""How far our rows are from the published ones, column by column, and the headline that follows from it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from .cells import (
    BEST_EPOCH,
    BEST_ON_TEST,
    HELD_OUT,
    LAST_EPOCH,
    PAPER_GAMMA,
    RELEASED_DEFAULT,
    RELEASED_SCRIPT,
    Record,
    cell,
)
from .markdown import TableRow, markdown_table, profile_title
from .tables import (
    Reading,
    column_title,
    published_errors,
    reading_below,
    source_cells,
    table1_columns,
    tables,
)

NEAR = 1.0  # points: what counts as reproduced


@dataclass(frozen=True)
class Distance:
    """A row of ours minus the published row: points of error by column, of the columns that have records."""

    title: str
    points: dict[str, float]

    def near(self, within: float = NEAR) -> str:
        """Say in how many of its columns the row is that close."""
        return f"{self.close(within)} of {len(self.points)}"

    def close(self, within: float = NEAR) -> int:
        """Return in how many columns the row is within so many points of the published one, by two decimals."""
        return sum(round(abs(off), 2) <= within for off in self.points.values())

    @property
    def farthest(self) -> str:
        """The column whose distance is largest."""
        return max(self.points, key=lambda column: abs(self.points[column]))


def distance_of(
    records: Sequence[Record], title: str, method: str, published: str, reading: str = LAST_EPOCH
) -> Distance:
    """Return how far a method's errors are from a published row of Table 1, in its imbalanced columns."""
    theirs = published_errors(published)
    points = {}
    for column in table1_columns(imbalanced=True):
        ours = cell(records, column, method, reading).errors
        if ours:
            points[column] = mean(ours) - theirs[column]
    return Distance(title, points)


def reading_distance(
    records: Sequence[Record],
    reading: Reading,
    epoch: str = LAST_EPOCH,
    columns: Sequence[str] | None = None,
) -> Distance:
    """Return how far a reading of a row is from the published row, in all of its columns or in these."""
    theirs = published_errors(reading.row)
    points = {}
    for column in reading.columns if columns is None else columns:
        ours = cell(records, *reading.place(column), epoch).errors
        if ours:
            points[column] = mean(ours) - theirs[column]
    return Distance(reading.title, points)


def own_distances(records: Sequence[Record]) -> list[Distance]:
    """Return the distance of every row of Table 1 that the authors trained themselves, by each reading."""
    found = []
    for row in tables()["table1"]["rows"]:
        method, title = row["method"], row["title"]
        if "copied" in row:
            continue
        if method.endswith("+rs"):
            trained = method.removesuffix("+rs")
            for source in (HELD_OUT, RELEASED_SCRIPT, RELEASED_DEFAULT, BEST_ON_TEST):
                by_source = f"{title}, {source}"
                found.append(distance_of(records, by_source, trained, method, source))
            continue
        found.append(distance_of(records, title, method, method))
        reading = reading_below(method)
        if reading is not None:
            found.append(reading_distance(records, reading))
    return [distance for distance in found if distance.points]


def table2_distances(records: Sequence[Record]) -> list[Distance]:
    """Return the distances of Table 2's rows, top-1, by our recipe and by that of Cao et al."""
    columns = tables()["table2"]["columns"]
    by_source = tables()["table2-sources"]["columns"]
    found = []
    for row in tables()["table2"]["rows"]:
        method = row["method"].removesuffix("+rs")
        reading = PAPER_GAMMA
        if method == row["method"]:
            reading = LAST_EPOCH
        theirs = published_errors(row["method"], "table2")
        for trained_on, recipe in ((columns, "our recipe"), (by_source, "recipe of Cao et al.")):
            points = {}
            for column, trained_column in zip(columns, trained_on, strict=True):
                ours = cell(records, trained_column, method, reading).errors
                if ours:
                    points[column] = mean(ours) - theirs[column]
            found.append(Distance(f"{row['title']}, {recipe}", points))
    return [distance for distance in found if distance.points]


def source_distance(
    records: Sequence[Record],
    row: dict[str, Any],
    reading: str = LAST_EPOCH,
    *,
    our_recipe: bool = False,
) -> Distance:
    """Return how far a row of `sources` is from its published row, by its own recipe or by ours."""
    (same,) = [
        one.get("is", one["method"])
        for one in tables()["table1"]["rows"]
        if one["method"] == row["beside"]
    ]
    points = {}
    for column, (trained_on, method, theirs) in source_cells(row).items():
        if our_recipe:
            place = (column, same)
        else:
            place = (trained_on, method)
        ours = cell(records, *place, reading).errors
        if ours:
            points[column] = mean(ours) - theirs
    return Distance(row["title"], points)


def distances_table(records: Sequence[Record]) -> str:
    rows = [_distance_row(distance, column_title) for distance in own_distances(records)]
    table1 = markdown_table(["Table 1", "within 1 point", "mean", "farthest"], rows)
    rows = [_distance_row(distance, profile_title) for distance in table2_distances(records)]
    table2 = markdown_table(["Table 2, top-1", "within 1 point", "mean", "farthest"], rows)
    return f"{table1}\n\n{table2}"


def _distance_row(distance: Distance, title: Callable[[str], str]) -> TableRow:
    off = distance.points
    farthest = f"{off[distance.farthest]:+.2f} ({title(distance.farthest)})"
    return (distance.title, [distance.near(), f"{mean(off.values()):+.2f}", farthest])


def sources_table(records: Sequence[Record]) -> str:
    """Return in how many columns each copied row is near its published number, by its own recipe and by ours."""
    rows = []
    for row in tables()["sources"]["rows"]:
        last = source_distance(records, row)
        if not last.points:
            continue
        best = source_distance(records, row, BEST_EPOCH)
        ours = source_distance(records, row, our_recipe=True)
        within = row.get("within", NEAR)
        near = [distance.near(within) for distance in (last, best, ours)]
        farthest = f"{last.points[last.farthest]:+.2f}"
        rows.append((row["title"], [f"{within:g}", *near, farthest]))
    titles = ["last epoch", "best epoch on test", "our setting, last epoch", "farthest"]
    table = markdown_table(["columns within", "points", *titles], rows)
    if rows:
        return table
    return "No such network has a record yet."
