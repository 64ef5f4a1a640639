"""The paper's tables as Markdown, our numbers next to the published ones, and the places of a page to fill."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from levelhead.core import atomic
from levelhead.core.errors import LevelheadError
from levelhead.methods import METHODS
from levelhead.rules.rule import Rescale, Shift, Tau

from .cells import CODE_GAMMA, GAMMAS, PAPER_GAMMA, Cell, Record, cell, companion, load_records, share_of_gap, top5_cell
from .tables import DATA_TITLES, REPEATED, source_cells, table1_columns, tables


def markdown_table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {title} | {' | '.join(cells)} |" for title, cells in rows if any(cells))])


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


def table1(records: Sequence[Record], data: str, authors: dict[str, Any] | None = None) -> str:
    """Return Table 1 on one data set, our rows above the published ones; `authors` is results/authors.json."""
    table, columns = tables()["table1"], table1_columns(data)
    rows: list[tuple[str, list[str]]] = []

    def ours(title: str, method: str, reading: str) -> list[Cell]:
        cells = [cell(records, column, method, reading) for column in columns]
        rows.append((title, [one.text for one in cells]))
        return cells

    for row in table["rows"]:
        method, title = row["method"].removesuffix("+rs"), row["title"]
        numbers = dict(zip(table["columns"], row["published"], strict=True))
        leveled = {f"{title}, {gamma}": gamma for gamma in GAMMAS}
        leveled[f"{title}, {CODE_GAMMA}, {table['released_gamma'][data]:g}"] = CODE_GAMMA
        readings = {title: "last epoch"} if method == row["method"] else leveled
        cells, *_ = [ours(name, method, reading) for name, reading in readings.items()]
        if "is" in row:  # the method that the paper prints under this title
            cells = ours(METHODS[row["is"]].title, row["is"], "last epoch")
        if method != row["method"] and authors and authors["column"] in columns:
            last = Cell(tuple(r["RS"] for r in authors["runs"] if (r["method"], r["which"]) == (method, "last")))
            there = [last.text if column == authors["column"] else "" for column in columns]
            rows.append((f"{title} by the authors' code, best gamma on test", there))
        rows.append((f"*{title}, published*", [a.against(numbers[c]) for a, c in zip(cells, columns, strict=True)]))
        for source in [one for one in tables()["sources"]["rows"] if one["beside"] == row["method"]]:
            trained = source_cells(source)
            for reading in ("last epoch", "best epoch on test"):
                texts = dict.fromkeys(columns, "")
                for column in trained.keys() & texts.keys():
                    of, own, theirs = trained[column]
                    found = cell(records, of, own, reading)
                    texts[column] = f"{found.text}, {found.against(theirs)}" if found.errors else ""
                rows.append((f"{source['title']}, {reading}", list(texts.values())))
    ours("WVN alone", "wvn", "last epoch")
    for method in REPEATED:
        ours(f"{METHODS[method].title}, best epoch on test", method, "best epoch on test")
    ours("WVN as released", "wvn-released", "last epoch")
    ours("WVN+RS as released, best gamma on test", "wvn-released", "best gamma on test")
    rows += _regrets(records, columns)
    return markdown_table(["ratio", *(column.split(":")[1] for column in columns)], rows)


def table2(records: Sequence[Record]) -> str:
    table = tables()["table2"]
    columns, rows = table["columns"], list[tuple[str, list[str]]]()

    def ours(title: str, method: str, gamma: str | None = None) -> list[tuple[Cell, Cell]]:
        pairs = [
            (cell(records, column, method, gamma or "last epoch"), top5_cell(records, column, method, gamma))
            for column in columns
        ]
        rows.append((title, [f"{first.text} / {top.text}" if first.errors else "" for first, top in pairs]))
        return pairs

    for row in table["rows"]:
        method, title = row["method"].removesuffix("+rs"), row["title"]
        if method == row["method"]:
            cells = ours(title, method)
        else:
            for gamma in GAMMAS:
                ours(f"{title}, {gamma}", method, gamma)
            cells = ours(f"{title}, {PAPER_GAMMA}, {table['gamma']:g}", method, PAPER_GAMMA)
        rows.append((f"*{title}, published*", [_both(*one) for one in zip(cells, row["published"], strict=True)]))
    ours("WVN alone", "wvn")
    for method in [row["also"] for row in table["rows"] if "also" in row]:
        ours(f"{METHODS[method].title}, not the published row's loss", method)
    rows += [
        (
            f"{METHODS[method].title}, best epoch on test (top-1)",
            _texts([cell(records, column, method, "best epoch on test") for column in columns]),
        )
        for method in REPEATED
    ]
    rows += _regrets(records, columns)
    return markdown_table(["top-1 / top-5", *(profile_title(column) for column in columns)], rows)


def table3(records: Sequence[Record]) -> str:
    table = tables()["table3"]
    columns = [column.rsplit(":", 1) for column in table["columns"]]
    published = {row["method"]: row["published"] for row in table["rows"]}

    def ours(reading: str) -> list[Cell]:
        return [cell(records, column, method, reading) for column, method in columns]

    def beside(cells: list[Cell], row: str) -> list[str]:
        return [one.against(number) for one, number in zip(cells, published[row], strict=True)]

    def closed(reading: str) -> list[str]:
        triples = zip(ours("last epoch"), ours(reading), ours("oracle"), strict=True)
        shares = [
            share_of_gap(*(mean(one.errors) for one in three)) if all(one.errors for one in three) else None
            for three in triples
        ]
        return ["" if share is None else f"{share:.0%}" for share in shares]

    held, oracle = ours("gamma from a hold-out"), ours("oracle")
    rows = [
        ("network alone", _texts(ours("last epoch"))),
        *((f"+RS, {gamma}", _texts(ours(gamma))) for gamma in GAMMAS),
        ("*+RS, published*", beside(held, "rs")),
        ("+oracle head", _texts(oracle)),
        ("*+oracle head, published*", beside(oracle, "oracle")),
        *((f"gap closed by RS, {gamma}", closed(gamma)) for gamma in GAMMAS),
    ]
    titles = [f"{METHODS[method].title}, ratio {column.split(':')[1]}" for column, method in columns]
    return markdown_table(["", *titles], rows)


def post_hoc_table(records: Sequence[Record], columns: Sequence[str], method: str) -> str:
    found = [companion(records, column, method) for column in columns]
    if not any(found):
        return ""

    def text(record: Record, error: float) -> str:
        share = share_of_gap(record["error"], error, record["oracle"]["error"]) if record["oracle"] else None
        return f"{100 * error:.2f}" + ("" if share is None else f" ({share:.0%})")

    titles = {Rescale.name: "RS", Tau.name: "tau-normalization", Shift.name: "shift"}
    titles["rescale-then-shift"] = "RS, then shift"
    rows = [
        ("network alone", ["" if r is None else f"{100 * r['error']:.2f}" for r in found]),
        *(
            (title, ["" if r is None else text(r, r["held_out"][rule]["error"]) for r in found])
            for rule, title in titles.items()
        ),
        ("nearest class mean", ["" if r is None else text(r, r["nearest_mean_error"]) for r in found]),
        ("oracle head", [f"{100 * r['oracle']['error']:.2f}" if r and r["oracle"] else "" for r in found]),
        ("held-out images", ["" if r is None else f"{r['held_out']['n']:,}" for r in found]),
    ]
    data = columns[0].rpartition("/")[2].split(":")[0]
    return markdown_table([f"{DATA_TITLES[data]}, {METHODS[method].title}", *map(profile_title, columns)], rows)


def _both(cells: tuple[Cell, Cell], published: tuple[float, float]) -> str:
    theirs = f"*{published[0]:.2f} / {published[1]:.2f}*"
    if not all(one.errors for one in cells):
        return theirs
    return f"{theirs} ({' / '.join(f'{mean(one.errors) - it:+.2f}' for one, it in zip(cells, published, strict=True))})"


def profile_title(column: str) -> str:
    *profile, ratio = column.rpartition("/")[2].split(":")[1:]
    return ", ".join([*profile, f"ratio {ratio}"])


def _regrets(records: Sequence[Record], columns: Sequence[str]) -> list[tuple[str, list[str]]]:
    def regret(column: str, method: str) -> str:
        held, best = (
            cell(records, column, method, gamma).errors for gamma in ("gamma from a hold-out", "best gamma on test")
        )
        return f"{mean(held) - mean(best):.2f}" if held else ""

    return [
        (f"{METHODS[method].title}+RS: regret of the hold-out's gamma", [regret(column, method) for column in columns])
        for method in REPEATED
    ]


def _texts(cells: Sequence[Cell]) -> list[str]:
    return [one.text for one in cells]
