"""The paper's tables as Markdown, our numbers next to the published ones, and the places of a page to fill."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from levelhead.core.rules import Rescale, Shift, Tau
from levelhead.support import atomic
from levelhead.support.errors import LevelheadError

from ..methods import METHODS
from .cells import (
    GAMMAS,
    PAPER_GAMMA,
    Cell,
    Record,
    cell,
    companion,
    load_records,
    share_of_gap,
    top5_cell,
)
from .tables import DATA_TITLES, source_cells, table1_columns, tables


def markdown_table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join(
        [*lines, *(f"| {title} | {' | '.join(cells)} |" for title, cells in rows if any(cells))]
    )


def fill(page: Path, name: str, content: str) -> None:
    """Write generated text between `<!-- name -->` and `<!-- end of name -->` of a page."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
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
    table, columns = tables()["table1"], table1_columns(data)
    rows: list[tuple[str, list[str]]] = []

    def ours(title: str, method: str, reading: str, published: Mapping[str, float]) -> None:
        cells = {column: cell(records, column, method, reading) for column in columns}
        rows.append(
            (
                title,
                [a.against(published[c]) if c in published else a.text for c, a in cells.items()],
            )
        )

    for row in table["rows"]:
        method, title = row["method"].removesuffix("+rs"), row["title"]
        published = dict(zip(table["columns"], row["published"], strict=True))
        if method != row["method"]:
            for gamma in GAMMAS:  # the first is the one to compare
                ours(
                    f"{title}, {gamma}",
                    method,
                    gamma,
                    {} if rows[-1][0].startswith(title) else published,
                )
            continue
        trained = row.get("is", method)  # the method that the paper prints under this title
        ours(title if trained == method else f"{METHODS[trained].title}, in the paper {title}", trained, "last epoch",
             published)  # fmt: skip
        beside = [one for one in tables()["sources"]["rows"] if one["beside"] == method]
        for source in [one for one in beside if "counted_only" not in one]:
            of = source_cells(source)
            cells = [
                cell(records, *of[c][:2]).against(of[c][2]) if c in of else "" for c in columns
            ]
            rows.append((source["title"], cells))
    ours("WVN alone", "wvn", "last epoch", {})
    return markdown_table(["ratio", *(column.split(":")[1] for column in columns)], rows)


def table2(records: Sequence[Record]) -> str:
    table = tables()["table2"]
    columns, rows = table["columns"], list[tuple[str, list[str]]]()
    by_source = tables()["table2-sources"]["columns"]

    def ours(
        title: str,
        method: str,
        gamma: str | None = None,
        published: Sequence[Any] = (),
        at: Sequence[str] = columns,
    ) -> None:
        found = [
            (
                cell(records, column, method, gamma or "last epoch"),
                top5_cell(records, column, method, gamma),
            )
            for column in at
        ]
        texts = [f"{first.text} / {top.text}" if first.errors else "" for first, top in found]
        theirs = [f"*{first:.2f} / {top:.2f}*" for first, top in published] or [""] * len(columns)
        rows.append(
            (title, [", ".join(filter(None, pair)) for pair in zip(texts, theirs, strict=True)])
        )

    for row in table["rows"]:
        method, title = row["method"].removesuffix("+rs"), row["title"]
        if method == row["method"]:
            ours(title, method, published=row["published"])
            ours(f"{title}, recipe of Cao et al.", method, at=by_source)
        else:
            gamma = f"{PAPER_GAMMA}, {table['gamma']:g}"
            ours(f"{title}, {gamma}", method, PAPER_GAMMA, row["published"])
            ours(f"{title}, {gamma}, recipe of Cao et al.", method, PAPER_GAMMA, at=by_source)
            for gamma in GAMMAS:
                ours(f"{title}, {gamma}", method, gamma)
    ours("WVN alone", "wvn")
    for method in [row["also"] for row in table["rows"] if "also" in row]:
        ours(f"{METHODS[method].title}, not the published row's loss", method)
    return markdown_table(["top-1 / top-5", *(profile_title(column) for column in columns)], rows)


def table3(records: Sequence[Record]) -> str:
    table = tables()["table3"]
    columns = [column.rsplit(":", 1) for column in table["columns"]]
    published = {row["method"]: row["published"] for row in table["rows"]}

    def ours(reading: str) -> list[Cell]:
        return [cell(records, column, method, reading) for column, method in columns]

    def beside(reading: str, row: str) -> list[str]:
        return [
            one.against(number) for one, number in zip(ours(reading), published[row], strict=True)
        ]

    held = "gamma from a hold-out"
    triples = zip(ours("last epoch"), ours(held), ours("oracle"), strict=True)
    closed = [
        share_of_gap(*(mean(one.errors) for one in three))
        if all(one.errors for one in three)
        else None
        for three in triples
    ]
    rows = [
        ("network alone", [one.text for one in ours("last epoch")]),
        (f"+RS, {held}", beside(held, "rs")),
        ("+RS, best gamma on test", [one.text for one in ours("best gamma on test")]),
        ("+oracle head", beside("oracle", "oracle")),
        (
            f"gap closed by RS, {held}",
            ["" if share is None else f"{share:.0%}" for share in closed],
        ),
    ]
    titles = [
        f"{METHODS[method].title}, ratio {column.split(':')[1]}" for column, method in columns
    ]
    return markdown_table(["", *titles], rows)


def post_hoc_table(
    records: Sequence[Record], sets: Sequence[Sequence[str]], methods: Sequence[str]
) -> str:
    """Return what each adjustment makes of the companion runs: a row per set and method, the mean over its columns."""
    rules = {Rescale.name: "RS", Tau.name: "tau-normalization", Shift.name: "shift"}
    rules["rescale-then-shift"] = "RS, then shift"
    rows = []
    for columns in sets:
        for method in methods:
            found = [one for column in columns if (one := companion(records, column, method))]
            errors = [
                (
                    r["error"],
                    *(r["held_out"][rule]["error"] for rule in rules),
                    r["nearest_mean_error"],
                )
                for r in found
            ]
            cells = [f"{100 * mean(each):.2f}" for each in zip(*errors, strict=True)]
            oracles = [r["oracle"]["error"] for r in found if r["oracle"]]
            data = DATA_TITLES[columns[0].rpartition("/")[2].split(":")[0]]
            title = f"{data}, {METHODS[method].title}"
            rows += (
                [(title, [*cells, f"{100 * mean(oracles):.2f}" if oracles else ""])]
                if found
                else []
            )
    return (
        markdown_table(["", "alone", *rules.values(), "nearest class mean", "oracle head"], rows)
        if rows
        else ""
    )


def profile_title(column: str) -> str:
    *profile, ratio = column.rpartition("/")[2].split(":")[1:]
    return ", ".join([*profile, f"ratio {ratio}"])
