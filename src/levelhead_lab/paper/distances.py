"""How far our rows are from the published ones, column by column.

A `Distance` is a row of ours minus a published row, in points of error, in every column that has records. The functions
differ in where the two come from: `distance_of` a row of Table 1 by our recipe, `reading_distance` another reading of
it, `source_distance` a copied row by the recipe of its source, `table2_distances` those of Table 2. `distances_table`
and `sources_table` are the tables of the page; `headline` and `row_texts` say the same in sentences.

Balanced columns are left out: there RS is the identity, and a row that is near the paper's would say nothing of RS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

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
from .markdown import TableRow, markdown_table
from .table_fields import SourceRow
from .tables import (
    Reading,
    Table2Reading,
    column_title,
    profile_title,
    published_errors,
    reading_below,
    readings_of_table2,
    source_cells,
    table1_columns,
    tables,
)

NEAR = 1.0  # points: what counts as reproduced


@dataclass(frozen=True)
class Distance:
    """A row of ours minus the published row: points of error by column, of the columns that have records.

    >>> rs = Distance("Baseline+RS", {"cifar10:100": -0.4, "cifar10:10": 1.2})
    >>> rs.near(), rs.near(within=2.0), rs.farthest
    ('1 of 2', '2 of 2', 'cifar10:10')
    """

    title: str
    points: dict[str, float]  # above 0 where ours is worse

    def near(self, within: float = NEAR) -> str:
        """Say in how many of its columns the row is that close, as a sentence has it: `7 of 10`.

        Args:
            within: points of error.
        """
        return f"{self.close(within)} of {len(self.points)}"

    def close(self, within: float = NEAR) -> int:
        """Return in how many columns the row is within so many points of the published one.

        Distances count with two decimals, as published errors have them: 1.004 is within a point.
        """
        return sum(round(abs(points), 2) <= within for points in self.points.values())

    @property
    def farthest(self) -> str:
        """The column whose distance is largest."""
        return max(self.points, key=lambda column: abs(self.points[column]))


def distance_of(
    records: Sequence[Record], title: str, method: str, published: str, reading: str = LAST_EPOCH
) -> Distance:
    """Return how far a method's errors are from a published row of Table 1, in its imbalanced columns.

    Args:
        records: all there are.
        title: of the distance.
        method: whose networks are ours; without `+rs`.
        published: the method of the published row, with `+rs` if it is one after RS.
        reading: of our cells, as in `cells.cell`.
    """
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
    """Return how far a reading of a row is from the published row.

    Args:
        records: all there are.
        reading: of a row that the paper leaves open.
        epoch: `LAST_EPOCH` or `BEST_EPOCH`; the paper does not say which its table shows.
        columns: of Table 1; all in which the reading is trained if None.
    """
    if columns is None:
        columns = reading.columns
    theirs = published_errors(reading.row)
    points = {}
    for column in columns:
        ours = cell(records, *reading.place(column), epoch).errors
        if ours:
            points[column] = mean(ours) - theirs[column]
    return Distance(reading.title, points)


def own_distances(records: Sequence[Record]) -> list[Distance]:
    """Return the distance of every row of Table 1 that the authors trained themselves, by each reading.

    Rows after RS have one for each source of gamma, since the paper does not state its own. A row without a record is
    left out.
    """
    distances = []
    for row in tables()["table1"]["rows"]:
        method = row["method"]
        title = row["title"]
        # A copied row was trained by another recipe: see `source_distance`.
        if "copied" in row:
            continue
        if method.endswith("+rs"):
            trained = method.removesuffix("+rs")
            for source in (HELD_OUT, RELEASED_SCRIPT, RELEASED_DEFAULT, BEST_ON_TEST):
                by_source = f"{title}, {source}"
                distances.append(distance_of(records, by_source, trained, method, source))
            continue
        distances.append(distance_of(records, title, method, method))
        reading = reading_below(method)
        if reading is not None:
            distances.append(reading_distance(records, reading))
    return [distance for distance in distances if distance.points]


def table2_distances(records: Sequence[Record]) -> list[Distance]:
    """Return the distances of Table 2's rows, top-1, by our recipe and by that of Cao et al.; after RS at gamma 0.1.

    Readings of that recipe that are trained in every column stand below their rows.
    """
    columns = tables()["table2"]["columns"]
    by_source = tables()["table2-sources"]["columns"]
    distances = []
    for row in tables()["table2"]["rows"]:
        method = row["method"].removesuffix("+rs")
        reading = PAPER_GAMMA
        if method == row["method"]:
            reading = LAST_EPOCH
        theirs = published_errors(row["method"], "table2")
        # Both lists of columns stand in the same order; points are kept under the column of Table 2.
        for trained_on, recipe in ((columns, "our recipe"), (by_source, "recipe of Cao et al.")):
            points = {}
            for column, trained_column in zip(columns, trained_on, strict=True):
                ours = cell(records, trained_column, method, reading).errors
                if ours:
                    points[column] = mean(ours) - theirs[column]
            distances.append(Distance(f"{row['title']}, {recipe}", points))
        for reading in readings_of_table2():
            if reading.row == row["method"]:
                title = f"{row['title']}, recipe of Cao et al., {reading.title}"
                points = table2_reading_distance(records, reading).points
                distances.append(Distance(title, points))
    return [distance for distance in distances if distance.points]


def table2_reading_distance(
    records: Sequence[Record], reading: Table2Reading, epoch: str = LAST_EPOCH
) -> Distance:
    """Return how far a reading of a row of Table 2 is from the published row, top-1, by the column of Table 2.

    Args:
        records: all there are.
        reading: of a copied row.
        epoch: `LAST_EPOCH` or `BEST_EPOCH`; the source does not say which its table shows.
    """
    points = {}
    for place, (column, error) in zip(
        reading.places, published_errors(reading.row, "table2").items(), strict=True
    ):
        ours = cell(records, *place, epoch).errors
        if ours:
            points[column] = mean(ours) - error
    return Distance(reading.title, points)


def source_distance(
    records: Sequence[Record],
    row: SourceRow,
    reading: str = LAST_EPOCH,
    *,
    our_recipe: bool = False,
) -> Distance:
    """Return how far a row of `sources` is from its published row.

    Args:
        records: all there are.
        row: of `sources` in tables.toml.
        reading: of our cells, as in `cells.cell`.
        our_recipe: compare what our recipe gives in the same columns, to see what the recipe of the source is worth.
    """
    (beside,) = [other for other in tables()["table1"]["rows"] if other["method"] == row["beside"]]
    points = {}
    for column, compared in source_cells(row).items():
        place = compared.place
        # The same cell by our recipe: the column without a recipe, and the method that the paper's row is.
        if our_recipe:
            place = (column, beside.get("is", beside["method"]))
        ours = cell(records, *place, reading).errors
        if ours:
            points[column] = mean(ours) - compared.published
    return Distance(row["title"], points)


def distances_table(records: Sequence[Record]) -> str:
    """Return the distances of Tables 1 and 2 as two tables in Markdown, below each other.

    A row has the number of columns within a point, the mean over columns with its sign (above 0 where ours are worse on
    average), and the farthest column. Rows whose networks have no record are not there.
    """
    rows = [_distance_row(distance, column_title) for distance in own_distances(records)]
    table1 = markdown_table(["Table 1", "within 1 point", "mean", "farthest"], rows)
    rows = [_distance_row(distance, profile_title) for distance in table2_distances(records)]
    table2 = markdown_table(["Table 2, top-1", "within 1 point", "mean", "farthest"], rows)
    return f"{table1}\n\n{table2}"


def _distance_row(distance: Distance, title: Callable[[str], str]) -> TableRow:
    """Return a row of `distances_table`.

    Args:
        distance: whose points are not empty.
        title: says what a column is called; those of Tables 1 and 2 are named in different ways.

    >>> rs = Distance("Baseline+RS", {"cifar10:100": -0.4, "cifar10:10": 1.2})
    >>> _distance_row(rs, column_title)
    ('Baseline+RS', ['1 of 2', '+0.40', '+1.20 (CIFAR-10, ratio 10)'])
    """
    points = distance.points
    farthest = f"{points[distance.farthest]:+.2f} ({title(distance.farthest)})"
    return (distance.title, [distance.near(), f"{mean(points.values()):+.2f}", farthest])


def sources_table(records: Sequence[Record]) -> str:
    """Return in how many columns each copied row is near its published number, by its own recipe and by ours.

    What is near is said by the row: a control, which has to be met before the others count, is held to less.
    """
    rows = []
    for row in tables()["sources"]["rows"]:
        last = source_distance(records, row)
        if not last.points:
            continue
        # The sources do not say which epoch their tables show: both readings stand beside each other.
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
