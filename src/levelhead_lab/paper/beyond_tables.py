"""Tables that the paper lacks, as Markdown: other recipes and readings, the rules epoch by epoch, what was tried."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from levelhead.core.rules import Shift

from ..methods import METHODS
from .cells import Cell, Record, cell, companion, full_runs, value_at
from .markdown import markdown_table
from .post_hoc import SHIFTS
from .tables import DATA_TITLES, REPEATED, column_title, source_cells, tables


def other_recipe_table(
    records: Sequence[Record], columns: Sequence[str], methods: Sequence[str] = REPEATED
) -> str:
    rows, held = [], "gamma from a hold-out"
    for method in methods:
        title = METHODS[method].title
        rows.append((title, [cell(records, column, method).text for column in columns]))
        rows.append(
            (
                f"{title}+RS, held out",
                [cell(records, column, method, held).text for column in columns],
            )
        )
        for source in (held, "gamma from unlabelled images"):
            cells = [shift_cell(records, column, method, source).text for column in columns]
            rows.append((f"{title}+shift, {'held out' if source == held else 'unlabelled'}", cells))
    head = [
        f"{DATA_TITLES[data]}, {ratio}"
        for data, ratio in (c.rpartition("/")[2].split(":") for c in columns)
    ]
    return markdown_table(["ratio", *head], rows) if any(any(cells) for _, cells in rows) else ""


def published_table() -> str:
    rows = [
        (one["title"], [str(one.get(data, "-")) for data in ("cifar10", "cifar100")])
        for one in tables()["frontier"]["published"]
    ]
    return markdown_table(
        ["published", *(f"{DATA_TITLES[data]}, 100" for data in ("cifar10", "cifar100"))], rows
    )


def shift_cell(records: Sequence[Record], column: str, method: str, source: str) -> Cell:
    """Return the errors of a cell after the shift, its strength from one of the keys of `GAMMAS`."""
    exact = {"gamma from unlabelled images": "match_prior", "best gamma on test": "best_on_test"}
    found, chosen = [r["shift"] for r in full_runs(records, column, method) if r.get("shift")], None
    if source not in exact:
        held = companion(records, column, method)
        if held is None:
            return Cell(())
        chosen = held["held_out"]["shift"]["gamma"]
    errors = [
        value_at(shift["curve"], chosen, SHIFTS)
        if chosen is not None
        else shift[exact[source]]["error"]
        for shift in found
    ]
    return Cell(tuple(100 * error for error in errors))


def readings_table(records: Sequence[Record]) -> str:
    table, published, rows = tables()["readings"], tables()["table1"], []
    for row in table["rows"]:
        (of,) = [one for one in published["rows"] if one["method"] == row["method"]]
        numbers = dict(zip(published["columns"], of["published"], strict=True))
        for method in row["readings"]:
            pairs = [
                [
                    cell(records, column, method, reading).text
                    for reading in ("last epoch", "best epoch on test")
                ]
                for column in table["columns"]
            ]
            rows.append(
                (
                    METHODS[method].title,
                    [f"{last} ({best})" if last else "" for last, best in pairs],
                )
            )
        rows.append(
            (
                f"*{of['title']}, published*",
                [f"*{numbers[column]:.2f}*" for column in table["columns"]],
            )
        )
    return markdown_table(["", *map(column_title, table["columns"])], rows)


def epochs_table(runs: Sequence[dict[str, Any]]) -> str:
    rows = []
    for run in runs:
        epochs = run["epochs"]
        best = min(epochs, key=lambda row: row["error"])
        cells = [
            f"{100 * error:.2f}"
            for row in (epochs[-1], best)
            for error in (row["error"], row["rescale"]["error"], row["shift"]["error"])
        ]
        cells.insert(3, str(best["epoch"]))
        rows.append((f"{METHODS[run['method']].title}, ratio {run['ratio']:g}", cells))
    parts = ["alone", "RS", "shift"]
    return markdown_table(
        ["CIFAR-10", *(f"last, {part}" for part in parts), "best epoch", *parts], rows
    )


def copied_table() -> str:
    rows = [
        (f"Table {table[-1]}, {row['title']}", [row["copied"]])
        for table in ("table1", "table2")
        for row in tables()[table]["rows"]
        if "copied" in row
    ]
    references = " ".join(f"{who}: *{title}*." for who, title in tables()["references"].items())
    return f"{markdown_table(['row', 'its published numbers are'], rows)}\n\n{references}"


def sources_table(records: Sequence[Record]) -> str:
    """Return in how many columns each copied row is near its published number, by its own recipe and by ours."""
    rows = []
    for row in tables()["sources"]["rows"]:
        last = _off_published(records, row, "last epoch")
        if not last:
            continue
        others = (
            _off_published(records, row, "best epoch on test"),
            _off_published(records, row, "last epoch", ours=True),
        )
        reach = row.get("within", tables()["sources"]["within"])
        near = [
            f"{sum(abs(points) <= reach for points in off.values())} of {len(off)}"
            for off in (last, *others)
        ]
        farthest = max(last.values(), key=abs)
        rows.append((row["title"], [f"{reach:g}", *near, f"{farthest:+.2f}"]))
    titles = ["last epoch", "best epoch on test", "our setting, last epoch", "farthest"]
    table = markdown_table(["columns within", "points", *titles], rows)
    return table if rows else "No such network has a record yet."


def _off_published(
    records: Sequence[Record], row: dict[str, Any], reading: str, *, ours: bool = False
) -> dict[str, float]:
    """Return by column how far a row of `sources`, or the same row in our setting, is from the published number."""
    (same,) = [
        one.get("is", one["method"])
        for one in tables()["table1"]["rows"]
        if one["method"] == row["beside"]
    ]
    cells = {
        column: (cell(records, *((column, same) if ours else (at, method)), reading).errors, theirs)
        for column, (at, method, theirs) in source_cells(row).items()
    }
    return {
        column: round(mean(errors) - theirs, 2)
        for column, (errors, theirs) in cells.items()
        if errors
    }


def authors_table(found: dict[str, Any]) -> str:
    groups = _grouped(found["runs"], "which")
    parts = ["alone", "RS at 0.5", "RS", "shift"]
    titles = ["alone", "RS at 0.5, as their script", "RS, best", "shift, best"]
    rows = [
        (
            f"{METHODS[method].title}, {which.replace('_', ' ')}",
            [
                ", ".join(str(r["epoch"]) for r in runs),
                *(Cell(tuple(r[part] for r in runs)).text for part in parts),
            ],
        )
        for (method, which), runs in groups.items()
    ]
    table, at = tables()["table1"], tables()["table1"]["columns"].index(found["column"])
    published = {row["method"]: row["published"][at] for row in table["rows"]}
    for method in ("wvn", "baseline"):
        alone = f"*{published[method]:.2f}*" if method in published else ""
        rows.append(
            (
                f"*{METHODS[method].title}, published*",
                ["", alone, "", f"*{published[f'{method}+rs']:.2f}*", ""],
            )
        )
    wvn, plain = (
        Cell(tuple(r["RS"] for r in groups[method, "last"])) for method in ("wvn", "baseline")
    )
    ahead = (
        "puts WVN+RS ahead of Baseline+RS"
        if mean(wvn.errors) < mean(plain.errors)
        else "does not put WVN+RS ahead either"
    )
    return (
        f"**The authors' released code {ahead}**: after the last epoch, with the best gamma on test, WVN+RS has "
        f"{wvn.text} and Baseline+RS {plain.text}, where {published['wvn+rs']:.2f} and {published['baseline+rs']:.2f} "
        f"are published ({column_title(found['column'])}).\n\n"
        f"{markdown_table(['error, %', 'epoch', *titles], rows)}\n\n"
        f"{found['code']}, on one {found['hardware']} in {found['precision']}, changed only where a torch of today "
        "needs it (`results/authors.json`); strengths other than 0.5 are the best on test."
    )


def precision_table(found: dict[str, Any]) -> str:
    groups = _grouped(found["runs"], "precision")
    rows = [
        (
            f"{METHODS[method].title}, {precision}",
            [Cell(tuple(r[key] for r in runs)).text for key in ("alone", "RS", "shift")],
        )
        for (method, precision), runs in sorted(groups.items())
    ]
    head = ["error, %", "alone", "RS, best gamma on test", "shift, best strength on test"]
    return markdown_table(head, rows)


def _grouped(
    runs: Sequence[dict[str, Any]], key: str
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    return {
        (m, k): [r for r in runs if (r["method"], r[key]) == (m, k)]
        for m, k in ((r["method"], r[key]) for r in runs)
    }


VARIANTS: dict[
    str, tuple[str, str, int]
] = {  # of a network: its weights, its batch statistics, views per test image
    "as trained": ("last", "as trained", 1),
    "averaged over the last tenth": ("mean of the last tenth", "as trained", 1),
    "averaged over the last quarter": ("mean of the last quarter", "as trained", 1),
    "balanced batch statistics": ("last", "balanced", 1),
    "balanced batch statistics, augmented": ("last", "balanced, augmented", 1),
    "mirrored": ("last", "as trained", 2),
    "last quarter, mirrored": ("mean of the last quarter", "as trained", 2),
}


def past_frontier_table(runs: Sequence[dict[str, Any]]) -> str:
    rows: list[tuple[str, list[str]]] = [
        ("alone", [f"{100 * _variant(run, 'as trained')['error']:.2f}" for run in runs])
    ]
    for title in VARIANTS:
        errors = [_variant(run, title)[Shift.name]["match_prior"]["error"] for run in runs]
        rows.append((title, [f"{100 * error:.2f}" for error in errors]))
    head = [
        f"{DATA_TITLES[run['data']]}, {METHODS[run['method']].title}, {run['weight_decay']:g}"
        for run in runs
    ]
    return markdown_table(["", *head], rows)


def _variant(run: dict[str, Any], title: str) -> dict[str, Any]:
    weights, statistics, views = VARIANTS[title]
    (found,) = [
        row
        for row in run["tried"]
        if (row["weights"], row["statistics"], row["views"]) == (weights, statistics, views)
    ]
    return found
