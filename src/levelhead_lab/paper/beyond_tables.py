"""Tables that the paper lacks: other recipes, what others published, what was tried, heads fitted again."""

from collections.abc import Sequence
from typing import Any

from levelhead.core.rules import Shift

from ..methods import METHODS
from .cells import (
    EXACT,
    HELD_OUT,
    TEST_IMAGES,
    Cell,
    Record,
    cell,
    choices_on_hold_out,
    companion,
    full_runs,
    value_at,
)
from .markdown import TableRow, markdown_table
from .post_hoc import SHIFTS
from .tables import DATA_TITLES, REPEATED, column_title, tables

HELD_TITLE, TEST_TITLE = "held out", "from test images without labels"


def other_recipe_table(
    records: Sequence[Record], columns: Sequence[str], methods: Sequence[str] = REPEATED
) -> str:
    """Return the networks of a recipe as trained, after RS and after the shift."""
    rows: list[TableRow] = []
    for method in methods:
        title = METHODS[method].title
        rows.append((title, [cell(records, column, method).text for column in columns]))
        scaled = [cell(records, column, method, HELD_OUT).text for column in columns]
        rows.append((f"{title}+RS, {HELD_TITLE}", scaled))
        for source, words in ((HELD_OUT, HELD_TITLE), (TEST_IMAGES, TEST_TITLE)):
            shifted = [shift_cell(records, column, method, source).text for column in columns]
            rows.append((f"{title}+shift, {words}", shifted))
    if not any(any(cells) for _, cells in rows):
        return ""
    head = []
    for column in columns:
        data, ratio = column.rpartition("/")[2].split(":")
        head.append(f"{DATA_TITLES[data]}, {ratio}")
    return markdown_table(["ratio", *head], rows)


def shift_cell(records: Sequence[Record], column: str, method: str, source: str) -> Cell:
    """Return the errors of a cell after the shift, its strength from one of the keys of `GAMMAS`."""
    shifts = []
    for run in full_runs(records, column, method):
        shift = run.get("shift")
        if shift:  # older records have none
            shifts.append(shift)
    if source in EXACT:
        errors = [shift[EXACT[source]]["error"] for shift in shifts]
    else:
        held = companion(records, column, method)
        if held is None:
            return Cell(())
        strength = choices_on_hold_out(held)["shift"]["gamma"]
        errors = [value_at(shift["curve"], strength, SHIFTS) for shift in shifts]
    return Cell(tuple(100 * error for error in errors))


def published_table() -> str:
    """Return what others published, with who, when and where, and what others got who ran it again."""
    rows = []
    for one in tables()["frontier"]["published"]:
        errors = [str(one.get(data, "-")) for data in ("cifar10", "cifar100")]
        by = f"[{one['by']}]({one['link']})"
        rows.append((one["title"], [by, "ResNet-32", *errors, one.get("again", "")]))
    other = tables()["frontier"]["pretrained"]
    by = f"[{other['by']}]({other['link']})"
    rows.append((other["title"], [by, other["backbone"], "-", str(other["cifar100"]), ""]))
    data = [f"{DATA_TITLES[data]}, 100" for data in ("cifar10", "cifar100")]
    return markdown_table(["published", "by", "network", *data, "run again"], rows)


def heads_table(heads: dict[str, Any]) -> str:
    """Return the test errors of the stored networks with heads fitted again on their training features.

    Those of companion runs, whose hold-out fits more rules, come after them.
    """
    titles = {
        "alone": "alone",
        "RS": f"RS, {HELD_OUT}",
        "nearest class mean": "nearest class mean",
        "new head": "new head (as cRT)",
        "scales": "a scale per class (as LWS)",
        "scales and offsets": "scale and offset (as MARC)",
        "shift": "shift, held out",
        "offsets": "offsets, held out",
        "vector": "vector scaling, held out",
    }
    networks = [
        (f"{column_title(heads['column'])}, {METHODS[method].title}", network["errors"])
        for method, network in heads["networks"].items()
    ]
    for one in heads.get("companions", []):
        title = f"{column_title(one['column'])}, {METHODS[one['method']].title}, a tenth held out"
        networks.append((title, one["errors"]))
    rows = []
    for title, errors in networks:
        rows.append((title, [f"{errors[key]:.2f}" if key in errors else "" for key in titles]))
    return markdown_table(["error, %", *titles.values()], rows)


# Of a network: its weights, its batch statistics, views per test image.
VARIANTS: dict[str, tuple[str, str, int]] = {
    "as trained": ("last", "as trained", 1),
    "averaged over the last tenth": ("mean of the last tenth", "as trained", 1),
    "averaged over the last quarter": ("mean of the last quarter", "as trained", 1),
    "balanced batch statistics": ("last", "balanced", 1),
    "balanced batch statistics, augmented": ("last", "balanced, augmented", 1),
    "mirrored": ("last", "as trained", 2),
    "last quarter, mirrored": ("mean of the last quarter", "as trained", 2),
}


def past_frontier_table(runs: Sequence[dict[str, Any]]) -> str:
    alone = [f"{100 * variant_of(run, 'as trained')['error']:.2f}" for run in runs]
    rows: list[TableRow] = [("alone", alone)]
    for title in VARIANTS:
        rows.append((title, [f"{shifted_error(run, title):.2f}" for run in runs]))
    head = []
    for run in runs:
        data = DATA_TITLES[run["data"]]
        method = METHODS[run["method"]].title
        head.append(f"{data}, {method}, {run['weight_decay']:g}")
    return markdown_table(["", *head], rows)


def shifted_error(run: dict[str, Any], title: str) -> float:
    """Return the error of a variant after the shift, its strength from the test images without labels, in percent."""
    return 100 * variant_of(run, title)[Shift.name]["match_prior"]["error"]


def variant_of(run: dict[str, Any], title: str) -> dict[str, Any]:
    weights, statistics, views = VARIANTS[title]
    wanted = (weights, statistics, views)
    (found,) = [
        row for row in run["tried"] if (row["weights"], row["statistics"], row["views"]) == wanted
    ]
    return found
