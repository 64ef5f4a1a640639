"""Tables that the paper lacks, as Markdown: other recipes and readings, the rules epoch by epoch, what was tried."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from levelhead.methods import METHODS
from levelhead.rules.rule import RULES, Rescale, Shift

from .cells import GAMMAS, GRID, Cell, Record, cell, companion, full_runs, value_at
from .markdown import markdown_table
from .post_hoc import SHIFTS
from .tables import DATA_TITLES, REPEATED, column_title, source_cells, tables


def other_recipe_table(records: Sequence[Record], columns: Sequence[str], methods: Sequence[str] = REPEATED) -> str:
    rows = []
    for method in methods:
        title = METHODS[method].title
        rows.append((title, [cell(records, column, method).text for column in columns]))
        for gamma in GAMMAS:
            rows.append((f"{title}+RS, {gamma}", [cell(records, column, method, gamma).text for column in columns]))
        for source in GAMMAS:
            cells = [shift_cell(records, column, method, source).text for column in columns]
            rows.append((f"{title}+shift, {source.replace('gamma', 'strength')}", cells))
        rows.append((f"{title}, rule and strength from a hold-out", [_auto_text(records, c, method) for c in columns]))
    head = [f"{DATA_TITLES[data]}, {ratio}" for data, ratio in (c.rpartition("/")[2].split(":") for c in columns)]
    return markdown_table(["ratio", *head], rows) if any(any(cells) for _, cells in rows) else ""


def published_table() -> str:
    rows = [
        (one["title"], [str(one.get(data, "-")) for data in ("cifar10", "cifar100")])
        for one in tables()["frontier"]["published"]
    ]
    return markdown_table(["published", *(f"{DATA_TITLES[data]}, 100" for data in ("cifar10", "cifar100"))], rows)


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
        value_at(shift["curve"], chosen, SHIFTS) if chosen is not None else shift[exact[source]]["error"]
        for shift in found
    ]
    return Cell(tuple(100 * error for error in errors))


def _auto_text(records: Sequence[Record], column: str, method: str) -> str:
    """Return the errors at what the companion run chose; with several strengths, that run's own error."""
    held = companion(records, column, method)
    chosen = held and held["held_out"].get("auto")
    if not held or not chosen:
        return ""
    runs = [r for r in full_runs(records, column, method) if r.get("shift")]
    curves = {
        Rescale.name: [(r["curve"], GRID) for r in runs],
        Shift.name: [(r["shift"]["curve"], SHIFTS) for r in runs],
    }
    errors = [value_at(curve, chosen["gamma"], grid) for curve, grid in curves.get(chosen["rule"], ())]
    of = "" if errors else ", companion run"
    errors = errors or [chosen["error"]]
    return f"{Cell(tuple(100 * error for error in errors)).text} ({RULES[chosen['rule']].title}{of})"


def readings_table(records: Sequence[Record]) -> str:
    table, published, rows = tables()["readings"], tables()["table1"], []
    for row in table["rows"]:
        (of,) = [one for one in published["rows"] if one["method"] == row["method"]]
        numbers = dict(zip(published["columns"], of["published"], strict=True))
        for method in row["readings"]:
            for reading, beside in (("last epoch", ""), ("best epoch on test", ", best epoch on test")):
                cells = [cell(records, column, method, reading).text for column in table["columns"]]
                rows.append((f"{METHODS[method].title}{beside}", cells))
        rows.append((f"*{of['title']}, published*", [f"*{numbers[column]:.2f}*" for column in table["columns"]]))
    return markdown_table(["", *map(column_title, table["columns"])], rows)


def epochs_table(runs: Sequence[dict[str, Any]]) -> str:
    rows = []
    for run in runs:
        epochs = run["epochs"]
        chosen = {
            "best epoch on test, alone": min(epochs, key=lambda row: row["error"]),
            "best epoch on test, with RS": min(epochs, key=lambda row: row["rescale"]["error"]),
            "last epoch": epochs[-1],
        }
        title = f"{METHODS[run['method']].title}, ratio {run['ratio']:g}"
        rows += [
            (
                f"{title}: {when}",
                [
                    str(row["epoch"]),
                    f"{100 * row['error']:.2f}",
                    f"{100 * row['rescale']['error']:.2f} ({row['rescale']['gamma']:.2f})",
                    f"{100 * row['shift']['error']:.2f} ({row['shift']['gamma']:.2f})",
                ],
            )
            for when, row in chosen.items()
        ]
    head = [DATA_TITLES["cifar10"], "epoch", "alone", "RS, best gamma on test", "shift, best strength on test"]
    return markdown_table(head, rows)


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
    rows, lines = [], []
    for row in tables()["sources"]["rows"]:
        last = _off_published(records, row, "last epoch")
        if not last:
            continue
        others = (
            _off_published(records, row, "best epoch on test"),
            _off_published(records, row, "last epoch", ours=True),
        )
        reach, of = row.get("within", tables()["sources"]["within"]), len(source_cells(row))
        near = [f"{sum(abs(points) <= reach for points in off.values())} of {len(off)}" for off in (last, *others)]
        shown = [f"{points:+.2f} ({column_title(c)})" for c, points in sorted(last.items(), key=lambda i: -abs(i[1]))]
        rows.append((row["title"], [f"{len(last)} of {of}", f"{reach:g}", *near, shown[0]]))
        if "within" in row:
            lines.append(f"The control is within {reach:g} points in {near[0]} columns: {', '.join(shown)}.")
    titles = ["last epoch", "best epoch on test", "our setting, last epoch", "farthest, last epoch"]
    table = markdown_table(["columns within so many points", "trained", "points", *titles], rows)
    return "\n\n".join([table, *lines]) if rows else "No such network has a record yet."


def _off_published(
    records: Sequence[Record], row: dict[str, Any], reading: str, *, ours: bool = False
) -> dict[str, float]:
    """Return by column how far a row of `sources`, or the same row in our setting, is from the published number."""
    (same,) = [one.get("is", one["method"]) for one in tables()["table1"]["rows"] if one["method"] == row["beside"]]
    cells = {
        column: (cell(records, *((column, same) if ours else (at, method)), reading).errors, theirs)
        for column, (at, method, theirs) in source_cells(row).items()
    }
    return {column: round(mean(errors) - theirs, 2) for column, (errors, theirs) in cells.items() if errors}


def authors_table(found: dict[str, Any]) -> str:
    groups = _grouped(found["runs"], "which")
    parts = ["alone", "RS at 0.5", "RS", "shift"]
    titles = ["alone", "RS at 0.5, as their script", "RS, best", "shift, best"]
    rows = [
        (
            f"{METHODS[method].title}, {which.replace('_', ' ')}",
            [", ".join(str(r["epoch"]) for r in runs), *(Cell(tuple(r[part] for r in runs)).text for part in parts)],
        )
        for (method, which), runs in groups.items()
    ]
    table, at = tables()["table1"], tables()["table1"]["columns"].index(found["column"])
    published = {row["method"]: row["published"][at] for row in table["rows"]}
    for method in ("wvn", "baseline"):
        alone = f"*{published[method]:.2f}*" if method in published else ""
        rows.append(
            (f"*{METHODS[method].title}, published*", ["", alone, "", f"*{published[f'{method}+rs']:.2f}*", ""])
        )
    wvn, plain = (Cell(tuple(r["RS"] for r in groups[method, "last"])) for method in ("wvn", "baseline"))
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
        f"{found['code']}, on one {found['hardware']} in {found['precision']}, unchanged but for what a torch of today "
        f"needs: {'; '.join(found['changes'])}. Strengths other than 0.5 are the best on test."
    )


def precision_table(found: dict[str, Any]) -> str:
    groups = _grouped(found["runs"], "precision")
    speed = found["microseconds an image"]
    rows = [
        (
            f"{METHODS[method].title}, {precision}",
            [*(Cell(tuple(r[key] for r in runs)).text for key in ("alone", "RS", "shift")), f"{speed[precision]:.1f}"],
        )
        for (method, precision), runs in sorted(groups.items())
    ]
    head = ["error, %", "alone", "RS, best gamma on test", "shift, best strength on test", "microseconds an image"]
    return markdown_table(head, rows)


def _grouped(runs: Sequence[dict[str, Any]], key: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    return {
        (m, k): [r for r in runs if (r["method"], r[key]) == (m, k)] for m, k in ((r["method"], r[key]) for r in runs)
    }


VARIANTS: dict[str, tuple[str, str, int]] = {  # of a network: its weights, its batch statistics, views per test image
    "as trained": ("last", "as trained", 1),
    "weights averaged over the last tenth": ("mean of the last tenth", "as trained", 1),
    "weights averaged over the last quarter": ("mean of the last quarter", "as trained", 1),
    "batch statistics of balanced images": ("last", "balanced", 1),
    "batch statistics of balanced, augmented images": ("last", "balanced, augmented", 1),
    "with the mirrored image": ("last", "as trained", 2),
    "averaged over the last quarter, with the mirrored image": ("mean of the last quarter", "as trained", 2),
}


def past_frontier_table(runs: Sequence[dict[str, Any]]) -> str:
    rows: list[tuple[str, list[str]]] = [
        ("alone", [f"{100 * _variant(run, 'as trained')['error']:.2f}" for run in runs])
    ]
    for title in VARIANTS:
        for rule in (Rescale.name, Shift.name):
            errors = [_variant(run, title)[rule] for run in runs]
            cells = [f"{100 * e['match_prior']['error']:.2f} ({100 * e['best_on_test']['error']:.2f})" for e in errors]
            rows.append((f"{title}, {RULES[rule].title}", cells))
    head = [
        f"{DATA_TITLES[run['data']]}, {METHODS[run['method']].title}, decay {run['weight_decay']:g}" for run in runs
    ]
    return markdown_table(["", *head], rows)


def _variant(run: dict[str, Any], title: str) -> dict[str, Any]:
    weights, statistics, views = VARIANTS[title]
    (found,) = [
        row for row in run["tried"] if (row["weights"], row["statistics"], row["views"]) == (weights, statistics, views)
    ]
    return found
