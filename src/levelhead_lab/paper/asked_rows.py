"""The rows that a command was asked for: ours with spread, the published number, the distance, where gamma is from.

`levelhead reproduce TABLE` ends with these: `rows_of` finds them among all records, `rows_text` lays them out for a
terminal, `AskedRow.to_dict` is for `--json`. The page shows the same cells in another order (`paper_tables`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import TypedDict

from ..lab.choices import PaperTable
from ..lab.source_methods import SOURCE_METHODS
from ..methods import METHODS
from .cells import (
    BEST_ON_TEST,
    HELD_OUT,
    ORACLE,
    PAPER_GAMMA,
    Cell,
    Record,
    cell,
    companion_gamma,
)
from .table_fields import OwnTable
from .tables import published_errors, readings, source_cells, tables, without_recipe
from .trainings import Training


class RowFacts(TypedDict):
    """A row as `--json` prints it; errors in percent, distances in points."""

    column: str
    row: str
    error: float  # mean over networks
    spread: float | None  # standard deviation over networks; None of one
    networks: int
    published: float | None
    distance: float | None
    gamma: str | None


@dataclass(frozen=True)
class AskedRow:
    """One row of a table in one column.

    >>> row = AskedRow("cifar10:100", "Baseline+RS", Cell((21.0, 22.0)), 21.36, "best on test")
    >>> round(row.distance, 2), row.to_dict()["spread"]
    (0.14, 0.71)
    """

    column: str
    title: str
    ours: Cell
    published: float | None  # None where the paper has no such row
    gamma: str  # and where it is from; empty for a network as trained

    @property
    def distance(self) -> float | None:
        """Ours minus the published error, in points."""
        if self.published is None:
            return None
        return mean(self.ours.errors) - self.published

    def to_dict(self) -> RowFacts:
        """Return the row for `--json`."""
        errors = self.ours.errors
        spread = None
        if len(errors) > 1:
            spread = round(stdev(errors), 2)
        distance = self.distance
        if distance is not None:
            distance = round(distance, 2)
        return {
            "column": self.column,
            "row": self.title,
            "error": round(mean(errors), 2),
            "spread": spread,
            "networks": len(errors),
            "published": self.published,
            "distance": distance,
            "gamma": self.gamma or None,
        }


def rows_of(
    table: PaperTable, records: Sequence[Record], wanted: Sequence[Training]
) -> list[AskedRow]:
    """Return the rows of these trainings that have records: as trained and, where gamma is known, after RS.

    Args:
        table: which decides the published numbers that they are compared with.
        records: all there are.
        wanted: the trainings that were asked for; several of one cell are one row.
    """
    rows = []
    places = dict.fromkeys((training.column, training.spec.method) for training in wanted)
    for column, method in places:
        # Losses that only the rows of another paper have are in a table of their own.
        title = (SOURCE_METHODS.get(method) or METHODS[method]).title
        # As trained.
        alone = _published(table, column, method)
        rows.append(AskedRow(column, title, cell(records, column, method), alone, ""))
        if column.endswith(":1"):  # on balanced data RS is the identity
            continue
        # After RS, once for each source of gamma; all of them stand beside the same published number.
        scaled = _published(table, column, f"{method}+rs")
        for source, words in _gammas(table, records, column, method).items():
            ours = cell(records, column, method, source)
            rows.append(AskedRow(column, f"{title}+RS", ours, scaled, words))
        if table == "table3":
            oracle = cell(records, column, method, ORACLE)
            bound = _published_oracle(column, method)
            rows.append(AskedRow(column, f"{title}+oracle head", oracle, bound, ""))
    return [row for row in rows if row.ours.errors]


def _published_oracle(column: str, method: str) -> float:
    """Return the error of the oracle head that Table 3 has for a network."""
    (row,) = [row for row in tables()["table3"]["rows"] if row["method"] == "oracle"]
    return row["published"][tables()["table3"]["columns"].index(f"{column}:{method}")]


def _gammas(
    table: PaperTable, records: Sequence[Record], column: str, method: str
) -> dict[str, str]:
    """Return the sources of gamma to show, and what is said of each; none where RS would have no gamma in earnest."""
    sources = {}
    # What anybody could have chosen, then what the paper states; what is best on test only beside one of these.
    held = companion_gamma(records, column, method)
    if held is not None:
        sources[HELD_OUT] = f"{held:.2f}, chosen on training images held out"
    if table in ("table2", "table2-sources") and f"{method}+rs" in METHODS:
        sources[PAPER_GAMMA] = f"{tables()['table2']['gamma']:g}, as in the paper"
    if sources:
        sources[BEST_ON_TEST] = "best on test"
    return sources


def _published(table: PaperTable, column: str, method: str) -> float | None:
    """Return the published error beside which a row of a table stands; None if there is none.

    Tables of ours have no published numbers. Each knows another way back to the table of the paper that has them.
    """
    # The columns of `table2-sources` stand in the order of those of Table 2.
    if table == "table2" or table == "table2-sources":
        columns = tables()[table]["columns"]
        return _of_row("table2", method, tables()["table2"]["columns"][columns.index(column)])
    if table == "table2-readings":
        recipe = column.partition("/")[0]
        # What is changed in the loss itself is a reading of LDAM-DRW, whatever its method is called.
        if f"{recipe}/{method}" in tables()[table]["losses"]:
            method = "ldam-drw"
        of_table2 = without_recipe(column).replace("-sorted", "")
        return _of_row("table2", method, of_table2)
    if table == "sources":
        for row in tables()["sources"]["rows"]:
            for compared in source_cells(row).values():
                if compared.place == (column, method):
                    return compared.published
        return None
    if table == "readings":
        of_table1 = without_recipe(column)
        for reading in readings():
            if reading.place(of_table1) == (column, method):
                return published_errors(reading.row)[of_table1]
    return _of_row("table1", method, column)


def _of_row(table: OwnTable, method: str, column: str) -> float | None:
    """Return the error of the row that is this method, whatever the paper calls it; None if there is no such row.

    >>> _of_row("table1", "ldam-drw", "cifar10:100")  # in the paper, LDAM
    22.97
    """
    for row in tables()[table]["rows"]:
        if row.get("is", row["method"]) == method:
            return published_errors(row["method"], table).get(column)
    return None


def rows_text(rows: Sequence[AskedRow]) -> str:
    """Return the rows as a table for people, in columns of a terminal; nothing if there are none.

    >>> print(rows_text([AskedRow("cifar10:100", "Baseline", Cell((29.3,)), 29.71, "")]))
    column       row       ours, %  published  distance  gamma
    cifar10:100  Baseline  29.30        29.71     -0.41
    """
    if not rows:
        return ""
    lines = [("column", "row", "ours, %", "published", "distance", "gamma")]
    for row in rows:
        published = ""
        if row.published is not None:
            published = f"{row.published:.2f}"
        distance = ""
        if row.distance is not None:
            distance = f"{row.distance:+.2f}"
        lines.append((row.column, row.title, row.ours.text, published, distance, row.gamma))
    # Words start on the left, numbers end on the right; the last column may be as long as it is.
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    text = []
    for column, title, ours, published, distance, gamma in lines:
        cells = (
            f"{column:{widths[0]}}",
            f"{title:{widths[1]}}",
            f"{ours:{widths[2]}}",
            f"{published:>{widths[3]}}",
            f"{distance:>{widths[4]}}",
            gamma,
        )
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)
