"""The rows that a command was asked for: ours with spread, the published number, the distance, where gamma is from."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from ..lab.choices import PaperTable
from ..lab.cui2019 import CUI_METHODS
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
from .tables import published_errors, readings, source_cells, tables
from .trainings import Training


@dataclass(frozen=True)
class AskedRow:
    """One row of a table in one column."""

    column: str
    title: str
    ours: Cell
    published: float | None
    gamma: str  # and where it is from; empty for a network as trained

    @property
    def distance(self) -> float | None:
        """Ours minus the published error, in points."""
        if self.published is None:
            return None
        return mean(self.ours.errors) - self.published

    def to_dict(self) -> dict[str, Any]:
        errors = self.ours.errors
        return {
            "column": self.column,
            "row": self.title,
            "error": round(mean(errors), 2),
            "spread": round(stdev(errors), 2) if len(errors) > 1 else None,
            "networks": len(errors),
            "published": self.published,
            "distance": None if self.distance is None else round(self.distance, 2),
            "gamma": self.gamma or None,
        }


def rows_of(
    table: PaperTable, records: Sequence[Record], wanted: Sequence[Training]
) -> list[AskedRow]:
    """Return the rows of these trainings that have records: as trained and, where gamma is known, after RS."""
    rows = []
    for column, method in dict.fromkeys((one.column, one.spec.method) for one in wanted):
        title = (CUI_METHODS.get(method) or METHODS[method]).title
        alone = _published(table, column, method)
        rows.append(AskedRow(column, title, cell(records, column, method), alone, ""))
        if column.endswith(":1"):  # on balanced data RS is the identity
            continue
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
    """Return the sources of gamma to show, and what is said of each."""
    sources = {}
    held = companion_gamma(records, column, method)
    if held is not None:
        sources[HELD_OUT] = f"{held:.2f}, chosen on training images held out"
    if table in ("table2", "table2-sources") and f"{method}+rs" in METHODS:
        sources[PAPER_GAMMA] = f"{tables()['table2']['gamma']:g}, as in the paper"
    if sources:
        sources[BEST_ON_TEST] = "best on test"
    return sources


def _published(table: PaperTable, column: str, method: str) -> float | None:
    """Return the published error beside which a row of a table stands; None if there is none."""
    if table in ("table2", "table2-sources"):
        columns = tables()[table]["columns"]
        return _of_row("table2", method, tables()["table2"]["columns"][columns.index(column)])
    if table == "table2-readings":
        of_table2 = column.rpartition("/")[2].replace("-sorted", "")
        return _of_row("table2", method, of_table2)
    if table == "sources":
        for row in tables()["sources"]["rows"]:
            for trained_on, trained, error in source_cells(row).values():
                if (trained_on, trained) == (column, method):
                    return error
        return None
    if table == "readings":
        of_table1 = column.rpartition("/")[2]
        for reading in readings():
            if reading.place(of_table1) == (column, method):
                return published_errors(reading.row)[of_table1]
    return _of_row("table1", method, column)


def _of_row(table: str, method: str, column: str) -> float | None:
    """Return the error of the row that is this method, whatever the paper calls it."""
    for row in tables()[table]["rows"]:
        if row.get("is", row["method"]) == method:
            return published_errors(row["method"], table).get(column)
    return None


def rows_text(rows: Sequence[AskedRow]) -> str:
    """Return the rows as a table for people; nothing if there are none."""
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
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    text = []
    for line in lines:
        first = "  ".join(f"{part:{width}}" for part, width in zip(line[:3], widths, strict=False))
        last = "  ".join(
            f"{part:>{width}}" for part, width in zip(line[3:5], widths[3:], strict=True)
        )
        text.append(f"{first}  {last}  {line[5]}".rstrip())
    return "\n".join(text)
