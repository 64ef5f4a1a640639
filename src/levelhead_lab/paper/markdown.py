"""The paper's tables as Markdown, our numbers next to the published ones, and the places of a page to fill."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from levelhead.core.rules import Rescale, Shift, Tau
from levelhead.support import atomic
from levelhead.support.errors import LevelheadError

from ..methods import METHODS
from .cells import (
    BEST_ON_TEST,
    HELD_OUT,
    LAST_EPOCH,
    ORACLE,
    PAPER_GAMMA,
    READINGS,
    RELEASED_DEFAULT,
    RELEASED_SCRIPT,
    TEST_IMAGES,
    Cell,
    Record,
    cell,
    choices_on_hold_out,
    companion,
    load_records,
    share_of_gap,
    top5_cell,
)
from .tables import (
    DATA_TITLES,
    published_errors,
    reading_below,
    source_cells,
    table1_columns,
    tables,
)

TableRow = tuple[str, list[str]]  # title and cells
# The sources of gamma that each table shows; the first is compared with the published number.
TABLE1_GAMMAS = (HELD_OUT, RELEASED_SCRIPT, RELEASED_DEFAULT, TEST_IMAGES, BEST_ON_TEST)
TABLE2_GAMMAS = (HELD_OUT, TEST_IMAGES, BEST_ON_TEST)


def markdown_table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return a table; a row without any cell is left out."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for title, cells in rows:
        if any(cells):
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def places_in(page: Path) -> list[str]:
    """Return the names of the places of a page that are to be filled, in their order."""
    return re.findall(r"^<!-- ([\w-]+) -->$", page.read_text(encoding="utf-8"), re.M)


def fill(page: Path, name: str, content: str) -> None:
    """Write generated text between `<!-- name -->` and `<!-- end of name -->` of a page."""
    start = f"<!-- {name} -->"
    end = f"<!-- end of {name} -->"
    text = ""
    if page.is_file():
        text = page.read_text(encoding="utf-8")
    if start not in text or end not in text:
        raise LevelheadError(f"{page}: no place for {name!r}; expected {start} and {end}")
    before, _, rest = text.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise LevelheadError(f"{page}: {end} comes before {start}")
    atomic.write(page, f"{before}{start}\n{content}\n{end}{after}")


def tables_of_folder(folder: Path) -> dict[str, str]:
    """Return the paper's tables by title, our numbers from a folder of records next to the published ones."""
    records = load_records(folder)
    return {
        "Table 1, CIFAR-10: error in %": table1(records, "cifar10"),
        "Table 1, CIFAR-100: error in %": table1(records, "cifar100"),
        "Table 2, Tiny ImageNet: error in %": table2(records),
        "Table 3, CIFAR-10: RS beside the oracle head, error in %": table3(records),
    }


def table1(records: Sequence[Record], data: str) -> str:
    """Return Table 1 on one data set, each of our cells with the published number beside it."""
    columns = table1_columns(data)
    rows: list[TableRow] = []
    for row in tables()["table1"]["rows"]:
        if row["method"].endswith("+rs"):
            rows += _rs_rows(records, row, columns)
        else:
            rows += _trained_rows(records, row, columns)
    rows.append(("WVN alone", [cell(records, column, "wvn").text for column in columns]))
    return markdown_table(["ratio", *(column.split(":")[1] for column in columns)], rows)


def _rs_rows(
    records: Sequence[Record], row: dict[str, Any], columns: Sequence[str]
) -> list[TableRow]:
    """Return a row of Table 1 after RS: one for each source of gamma."""
    published = published_errors(row["method"])
    method = row["method"].removesuffix("+rs")
    rows = []
    for source in TABLE1_GAMMAS:
        cells = []
        for column in columns:
            ours = cell(records, column, method, source)
            compared = source == TABLE1_GAMMAS[0]
            cells.append(ours.against(published[column]) if compared else ours.text)
        rows.append((f"{row['title']}, {source}", cells))
    return rows


def _trained_rows(
    records: Sequence[Record], row: dict[str, Any], columns: Sequence[str]
) -> list[TableRow]:
    """Return a row of Table 1 as trained, then another reading of it, then by the recipe of its source."""
    method = row["method"]
    published = published_errors(method)
    trained = row.get("is", method)  # the method that the paper prints under this title
    title = row["title"]
    if trained != method:
        title = f"{METHODS[trained].title}, in the paper {title}"
    rows = [(title, _against(records, {c: (c, trained, published[c]) for c in columns}, columns))]
    reading = reading_below(method)
    if reading is not None:
        cells = {c: (*reading.place(c), published[c]) for c in columns if c in reading.columns}
        rows.append((reading.title, _against(records, cells, columns, only_ours=True)))
    for source in tables()["sources"]["rows"]:
        if source["beside"] == method and "counted_only" not in source:
            rows.append((source["title"], _against(records, source_cells(source), columns)))
    return rows


def _against(
    records: Sequence[Record],
    cells: Mapping[str, tuple[str, str, float]],
    columns: Sequence[str],
    *,
    only_ours: bool = False,
) -> list[str]:
    """Return our errors with the published ones; `cells` has column, method and published error of each."""
    texts = []
    for column in columns:
        if column not in cells:
            texts.append("")
            continue
        trained_on, method, published = cells[column]
        ours = cell(records, trained_on, method)
        texts.append("" if only_ours and not ours.errors else ours.against(published))
    return texts


def table2(records: Sequence[Record]) -> str:
    """Return Table 2, top-1 and top-5; below each row of ours the same by the recipe of its source."""
    table = tables()["table2"]
    columns = table["columns"]
    by_source = tables()["table2-sources"]["columns"]
    rows: list[TableRow] = []
    for row in table["rows"]:
        method = row["method"].removesuffix("+rs")
        title = row["title"]
        source = None
        if method != row["method"]:
            source = PAPER_GAMMA
            title = f"{title}, {PAPER_GAMMA}, {table['gamma']:g}"
        published = [f"*{first:.2f} / {top:.2f}*" for first, top in row["published"]]
        ours = _top1_and_top5(records, columns, method, source)
        both = zip(ours, published, strict=True)
        rows.append((title, [", ".join(filter(None, pair)) for pair in both]))
        theirs = _top1_and_top5(records, by_source, method, source)
        both = zip(theirs, published, strict=True)
        cells = [f"{errors}, {number}" if errors else "" for errors, number in both]
        rows.append((f"{title}, recipe of Cao et al.", cells))
        if source is not None:
            for chosen in TABLE2_GAMMAS:
                cells = _top1_and_top5(records, columns, method, chosen)
                rows.append((f"{row['title']}, {chosen}", cells))
    rows.append(("WVN alone", _top1_and_top5(records, columns, "wvn")))
    rows.append(
        ("WVN alone, recipe of Cao et al.", _top1_and_top5(records, by_source, "wvn")),
    )
    for method in [row["also"] for row in table["rows"] if "also" in row]:
        title = f"{METHODS[method].title}, not the published row's loss"
        rows.append((title, _top1_and_top5(records, columns, method)))
    return markdown_table(["top-1 / top-5", *(profile_title(column) for column in columns)], rows)


def _top1_and_top5(
    records: Sequence[Record], columns: Sequence[str], method: str, source: str | None = None
) -> list[str]:
    texts = []
    for column in columns:
        top1 = cell(records, column, method, source or LAST_EPOCH)
        top5 = top5_cell(records, column, method, source)
        texts.append(f"{top1.text} / {top5.text}" if top1.errors else "")
    return texts


def table3(records: Sequence[Record]) -> str:
    table = tables()["table3"]
    columns = [column.rsplit(":", 1) for column in table["columns"]]
    published = {row["method"]: row["published"] for row in table["rows"]}

    def ours(reading: str) -> list[Cell]:
        return [cell(records, column, method, reading) for column, method in columns]

    def beside(reading: str, row: str) -> list[str]:
        both = zip(ours(reading), published[row], strict=True)
        return [found.against(number) for found, number in both]

    closed = []
    for three in zip(ours(LAST_EPOCH), ours(HELD_OUT), ours(ORACLE), strict=True):
        share = None
        if all(found.errors for found in three):
            share = share_of_gap(*(mean(found.errors) for found in three))
        closed.append("" if share is None else f"{share:.0%}")
    rows = [
        ("network alone", [found.text for found in ours(LAST_EPOCH)]),
        (f"+RS, {HELD_OUT}", beside(HELD_OUT, "rs")),
        (f"+RS, {BEST_ON_TEST}", [found.text for found in ours(BEST_ON_TEST)]),
        ("+oracle head", beside(ORACLE, "oracle")),
        (f"gap closed by RS, {HELD_OUT}", closed),
    ]
    titles = [
        f"{METHODS[method].title}, ratio {column.split(':')[1]}" for column, method in columns
    ]
    return markdown_table(["", *titles], rows)


def post_hoc_table(
    records: Sequence[Record], sets: Sequence[Sequence[str]], methods: Sequence[str]
) -> str:
    """Return what each adjustment makes of the companion runs: a row per set and method, the mean over its columns."""
    rules = {
        Rescale.name: "RS",
        Tau.name: "tau-normalization",
        Shift.name: "shift",
        "rescale-then-shift": "RS, then shift",
    }
    rows: list[TableRow] = []
    for columns in sets:
        for method in methods:
            runs = []
            for column in columns:
                run = companion(records, column, method)
                if run is not None:
                    runs.append(run)
            if not runs:
                continue
            # A list of errors for each cell of the row, one error for each column.
            errors: list[list[float | None]] = [[run["error"] for run in runs]]
            for rule in rules:
                errors.append([choices_on_hold_out(run)[rule]["error"] for run in runs])
            errors.append([run["nearest_mean_error"] for run in runs])
            errors.append([READINGS[ORACLE](run) for run in runs])
            cells = []
            for of_columns in errors:
                there = [error for error in of_columns if error is not None]
                cells.append(f"{100 * mean(there):.2f}" if there else "")
            data = DATA_TITLES[columns[0].rpartition("/")[2].split(":")[0]]
            rows.append((f"{data}, {METHODS[method].title}", cells))
    head = ["", "alone", *rules.values(), "nearest class mean", "oracle head"]
    return markdown_table(head, rows) if rows else ""


def profile_title(column: str) -> str:
    *profile, ratio = column.rpartition("/")[2].split(":")[1:]
    return ", ".join([*profile, f"ratio {ratio}"])
