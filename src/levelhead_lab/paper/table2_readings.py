"""Table 2 by other readings of its source: what a recipe that is only described could also have been.

Cao et al. describe how they trained on Tiny ImageNet, and did not release that code. By their text
alone the plain network comes out as published and the re-weighted ones do not, so each thing that
the text leaves open is changed by itself, in the first column.
"""

from collections.abc import Sequence

from ..methods import METHODS
from .cells import Record, cell
from .markdown import markdown_table
from .row_texts import NO_NETWORK
from .tables import published_errors, tables
from .words import in_a_row

AS_DESCRIBED = "cao2019-64"


def table2_readings_table(records: Sequence[Record]) -> str:
    """Return the table: a row for each reading of the recipe, a column for each method."""
    methods = tables()["table2-readings"]["rows"]
    rows = []
    for title, column in _columns().items():
        cells = [cell(records, column, method).text for method in methods]
        if any(cells):
            rows.append((title, cells))
    published = [f"*{_published(method):.2f}*" for method in methods]
    rows.append(("*published*", published))
    return markdown_table(["", *(METHODS[method].title for method in methods)], rows)


def table2_readings_text(records: Sequence[Record]) -> str:
    """Say of each reading how far its networks are from the published numbers."""
    lines = []
    whole = []  # of each reading with all its networks, whether each is within a point
    for title, column in _columns().items():
        points = {}
        for method in tables()["table2-readings"]["rows"]:
            errors = cell(records, column, method).errors
            if errors:
                points[METHODS[method].title] = errors[0] - _published(method)
        if len(points) == len(tables()["table2-readings"]["rows"]):
            whole.append(all(abs(off) <= 1 for off in points.values()))
        if points:
            parts = [f"{name} {off:+.1f}" for name, off in points.items()]
            lines.append(f"- {title[0].upper()}{title[1:]}: {in_a_row(parts)} points.")
    if not lines:
        return NO_NETWORK
    if whole:
        lines.append(
            f"- All three networks are within a point in {sum(whole)} of the {len(whole)} readings that "
            "have them all."
        )
    return "\n".join([*lines, f"- {tables()['table2-readings']['again']}"])


def _columns() -> dict[str, str]:
    """Return what each reading is called, with its column: the recipe as described first."""
    readings = tables()["table2-readings"]
    rest = readings["columns"][0].partition("/")[2]
    columns = {"as described": f"{AS_DESCRIBED}/{rest}"}
    for column in readings["columns"]:
        columns[readings["titles"][column.partition("/")[0]]] = column
    return columns


def _published(method: str) -> float:
    return published_errors(method, "table2")["tiny-imagenet:long-tail:100"]
