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
    rows = []
    for title, column in _columns().items():
        cells = [cell(records, _trained(column, method), method).text for method in _methods()]
        if any(cells):
            rows.append((title, cells))
    published = [f"*{_published(method):.2f}*" for method in _methods()]
    rows.append(("*published*", published))
    return markdown_table(["", *(METHODS[method].title for method in _methods())], rows)


def table2_readings_text(records: Sequence[Record]) -> str:
    """Say how far the networks of each reading are from the published numbers, and which come near.

    A reading explains the table if one recipe gives all of its rows. So the last lines say which
    rows come within a point of the published number under some reading, and whether all do under
    one.
    """
    distances = {title: _distances(records, column) for title, column in _columns().items()}
    distances = {title: points for title, points in distances.items() if points}
    if not distances:
        return NO_NETWORK
    lines = []
    for title, points in distances.items():
        parts = [f"{METHODS[method].title} {off:+.1f}" for method, off in points.items()]
        lines.append(f"- {title[0].upper()}{title[1:]}: {in_a_row(parts)} points.")
    for method in _methods():
        near = [title for title, points in distances.items() if abs(points.get(method, 9)) <= 1]
        lines.append(f"- {METHODS[method].title} is within a point in {_listed(near)}.")
    whole = [points for points in distances.values() if len(points) == len(_methods())]
    near = [points for points in whole if all(abs(off) <= 1 for off in points.values())]
    lines.append(
        f"- All three networks are within a point in {len(near)} of the {len(whole)} readings that "
        "have them all."
    )
    return "\n".join([*lines, *(f"- {told}" for told in tables()["table2-readings"]["again"])])


def _listed(titles: Sequence[str]) -> str:
    """Return the readings in which a row comes near, or that there is none."""
    if not titles:
        return "no reading"
    return "; ".join(f"*{title}*" for title in titles)


def _distances(records: Sequence[Record], column: str) -> dict[str, float]:
    """Return {method: points from the published error} of the networks that have a record."""
    points = {}
    for method in _methods():
        errors = cell(records, _trained(column, method), method).errors
        if errors:
            points[method] = errors[0] - _published(method)
    return points


def _trained(column: str, method: str) -> str:
    """Return the column in whose records the network is that a reading has for a method."""
    recipe, _, rest = column.partition("/")
    if method == "baseline" and recipe in tables()["table2-readings"]["weights_only"]:
        return f"{AS_DESCRIBED}/{rest}"
    return column


def _methods() -> list[str]:
    return tables()["table2-readings"]["rows"]


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
