"""Table 2 by other readings of its source: what a recipe that is only described could also have been.

Cao et al. describe how they trained on Tiny ImageNet, and did not release that code. By their text
alone the plain network comes out as published and the re-weighted ones do not, so each thing that
the text leaves open is changed by itself, in the first column: in the recipe, which all networks
share, and in the loss of LDAM-DRW.
"""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from ..lab.source_methods import SOURCE_METHODS
from ..methods import METHODS
from .cells import BEST_EPOCH, Record, cell, top1_and_top5
from .distances import table2_reading_distance
from .markdown import markdown_table
from .row_texts import NO_NETWORK
from .tables import (
    Table2Reading,
    profile_title,
    published_errors,
    readings_of_table2,
    tables,
    without_recipe,
)
from .words import in_a_row

AS_DESCRIBED = "cao2019-64"
LDAM_DRW = "ldam-drw"
# Errors have two digits: a distance of 1.00 is not made more by how a machine stores them.
_POINT = 1.005


class RecipeReading(NamedTuple):
    """A network of one reading: what it changes, in words, and where its record is."""

    title: str
    column: str
    method: str  # the method that was trained


def table2_readings_table(records: Sequence[Record]) -> str:
    """Return the table: a row for each reading of the recipe, a column for each method."""
    rows = []
    for title, column in _columns().items():
        cells = [top1_and_top5(records, _trained(column, method), method) for method in _methods()]
        if any(cells):
            rows.append((title, cells))
    rows.append(("*published*", [_published_pair(method) for method in _methods()]))
    head = ["top-1 / top-5", *(METHODS[method].title for method in _methods())]
    return markdown_table(head, rows)


def table2_ldam_table(records: Sequence[Record]) -> str:
    """Return the table of what could be otherwise in LDAM-DRW: a row for each."""
    rows = []
    for reading in _ldam_readings():
        text = top1_and_top5(records, reading.column, reading.method)
        if text:
            rows.append((reading.title, [text]))
    rows.append(("*published*", [_published_pair(LDAM_DRW)]))
    return markdown_table(["top-1 / top-5", METHODS[LDAM_DRW].title], rows)


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
        near = [title for title, points in distances.items() if abs(points.get(method, 9)) < _POINT]
        lines.append(f"- {METHODS[method].title} is within a point in {_listed(near)}.")
    whole = [points for points in distances.values() if len(points) == len(_methods())]
    near = [points for points in whole if all(abs(off) < _POINT for off in points.values())]
    lines.append(
        f"- All three networks are within a point in {len(near)} of the {len(whole)} readings that "
        "have them all."
    )
    return "\n".join([*lines, *(f"- {told}" for told in tables()["table2-readings"]["again"])])


def table2_ldam_text(records: Sequence[Record]) -> str:
    """Say which reading of LDAM-DRW comes nearest, and which of those whose logits are cosines."""
    distances = _ldam_distances(records)
    of_cosines = {}
    for reading, points in distances.items():
        method = SOURCE_METHODS.get(reading.method) or METHODS[reading.method]
        if method.head == "cosine":
            of_cosines[reading] = points
    if not of_cosines:
        return NO_NETWORK
    nearest = _nearest(distances)
    nearest_of_cosines = _nearest(of_cosines)
    return (
        f"Nearest to the published LDAM-DRW is *{nearest.title}*, {distances[nearest]:+.1f} points "
        "away. Of the readings whose logits are cosines, as in the code that Cao et al. released for "
        f"CIFAR, *{nearest_of_cosines.title}* comes nearest, {of_cosines[nearest_of_cosines]:+.1f} "
        "points away."
    )


def table2_everywhere_table(records: Sequence[Record]) -> str:
    """Return how near the copied rows come as described, and by the readings that are trained in every column.

    In the last epoch and, in parentheses, in the best on test, as the source does not say which its
    table shows.
    """
    readings = [*_rows_as_described(), *readings_of_table2()]
    rows = []
    for reading in sorted(readings, key=lambda reading: _methods().index(reading.row)):
        last = table2_reading_distance(records, reading)
        best = table2_reading_distance(records, reading, BEST_EPOCH)
        cells = []
        for column in tables()["table2"]["columns"]:
            text = ""
            if column in last.points:
                text = f"{last.points[column]:+.1f} ({best.points[column]:+.1f})"
            cells.append(text)
        within = ""
        if last.points:
            within = f"{last.near()} ({best.near()})"
        rows.append((f"{METHODS[reading.row].title}, {reading.title}", [*cells, within]))
    columns = [profile_title(column) for column in tables()["table2"]["columns"]]
    return markdown_table(["points from published", *columns, "within 1 point"], rows)


def _rows_as_described() -> list[Table2Reading]:
    """Return every copied row by the recipe as the source describes it."""
    columns = tables()["table2-sources"]["columns"]
    return [
        Table2Reading(row, "as described", tuple((column, row) for column in columns))
        for row in _methods()
    ]


def _ldam_distances(records: Sequence[Record]) -> dict[RecipeReading, float]:
    """Return how far each trained reading of LDAM-DRW is from the published error, in points."""
    distances = {}
    for reading in [*_recipe_readings(LDAM_DRW), *_ldam_readings()]:
        errors = cell(records, reading.column, reading.method).errors
        if errors:
            distances[reading] = mean(errors) - _published(LDAM_DRW)
    return distances


def _nearest(distances: Mapping[RecipeReading, float]) -> RecipeReading:
    return min(distances, key=lambda reading: abs(distances[reading]))


def _listed(titles: Sequence[str]) -> str:
    """Return the readings in which a row comes near, or that there is none."""
    if not titles:
        return "none of these"
    return "; ".join(f"*{title}*" for title in titles)


def _distances(records: Sequence[Record], column: str) -> dict[str, float]:
    """Return {method: points from the published error} of the networks that have a record."""
    points = {}
    for method in _methods():
        errors = cell(records, _trained(column, method), method).errors
        if errors:
            points[method] = mean(errors) - _published(method)
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
    """Return what each reading of the recipe is called, with its column: as described first."""
    readings = tables()["table2-readings"]
    columns = {"as described": f"{AS_DESCRIBED}/{_first_column()}"}
    for column in readings["columns"]:
        columns[readings["titles"][column.partition("/")[0]]] = column
    return columns


def _recipe_readings(method: str) -> list[RecipeReading]:
    """Return the readings of the recipe, as networks of one method."""
    return [RecipeReading(title, column, method) for title, column in _columns().items()]


def _ldam_readings() -> list[RecipeReading]:
    """Return the readings of LDAM-DRW itself: as it is for CIFAR first."""
    as_for_cifar = "as in their CIFAR code: cosines times 30"
    readings = [RecipeReading(as_for_cifar, f"{AS_DESCRIBED}/{_first_column()}", LDAM_DRW)]
    for words, title in tables()["table2-readings"]["losses"].items():
        recipe, _, method = words.partition("/")
        readings.append(RecipeReading(title, f"{recipe}/{_first_column()}", method))
    return readings


def _first_column() -> str:
    """Return the column in which all readings are tried, without a recipe."""
    return without_recipe(tables()["table2-sources"]["columns"][0])


def _published(method: str) -> float:
    """Return the published top-1 error in the column in which all readings are tried: the first of Table 2."""
    return published_errors(method, "table2")[tables()["table2"]["columns"][0]]


def _published_pair(method: str) -> str:
    """Return the published errors in the first column, such as `*66.19 / 42.63*`."""
    (row,) = [row for row in tables()["table2"]["rows"] if row["method"] == method]
    top1, top5 = row["published"][0]
    return f"*{top1:.2f} / {top5:.2f}*"
