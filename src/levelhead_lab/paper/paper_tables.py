"""The paper's tables as Markdown, our numbers next to the published ones.

Every number of ours is a `cells.Cell`: the mean over seeds and their spread, in percent. The published one stands
behind it in italics (`Cell.against`), also where nothing of ours is trained. A row without a cell is left out, so that
the tables of a folder with a few records are short and not wrong.

`table1`, `table2` and `table3` are those of the paper; `post_hoc_table` is ours, of the adjustments that a hold-out
chooses. `tables_of_folder` is for `levelhead report`, `page` puts each into its place.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from ..methods import METHODS
from .cells import (
    BEST_ON_TEST,
    HELD_OUT,
    LAST_EPOCH,
    ORACLE,
    PAPER_GAMMA,
    READINGS,
    TABLE1_GAMMAS,
    TEST_IMAGES,
    Cell,
    Record,
    cell,
    companion,
    errors_on_hold_out,
    load_records,
    share_of_gap,
    top1_and_top5,
)
from .markdown import TableRow, markdown_table
from .table_fields import TopFiveRow, TopOneRow
from .tables import (
    DATA_TITLES,
    ComparedCell,
    profile_title,
    published_errors,
    reading_below,
    readings_of_table2,
    source_cells,
    table1_columns,
    tables,
    without_recipe,
)

# The sources of gamma that Table 2 shows beside that of the paper.
TABLE2_GAMMAS = (HELD_OUT, TEST_IMAGES, BEST_ON_TEST)
BY_SOURCE = "recipe of Cao et al."  # by which most rows of Table 2 were trained
# What the table of adjustments calls the choices of a hold-out, by their names in a record.
RULE_TITLES = {
    "rescale": "RS",
    "tau": "tau-normalization",
    "shift": "shift",
    "rescale-then-shift": "RS, then shift",
}


def tables_of_folder(folder: Path) -> dict[str, str]:
    """Return the paper's tables by title, our numbers from a folder of records next to the published ones.

    Args:
        folder: of a user's own records, or results/records.

    Returns:
        A table in Markdown for each title.
    """
    records = load_records(folder)
    return {
        "Table 1, CIFAR-10: error in %": table1(records, "cifar10"),
        "Table 1, CIFAR-100: error in %": table1(records, "cifar100"),
        "Table 2, Tiny ImageNet: error in %": table2(records),
        "Table 3, CIFAR-10: RS beside the oracle head, error in %": table3(records),
    }


def table1(records: Sequence[Record], data: str) -> str:
    """Return Table 1 on one data set, each of our cells with the published number beside it.

    Args:
        records: all there are, also of other data: each cell picks its own.
        data: `cifar10` or `cifar100`.
    """
    columns = table1_columns(data)
    rows: list[TableRow] = []
    for row in tables()["table1"]["rows"]:
        if row["method"].endswith("+rs"):
            rows += _rs_rows(records, row, columns)
        else:
            rows += _trained_rows(records, row, columns)
    # Not in the paper: what WVN does before RS.
    rows.append(("WVN alone", [cell(records, column, "wvn").text for column in columns]))
    return markdown_table(["ratio", *(column.split(":")[1] for column in columns)], rows)


def _rs_rows(records: Sequence[Record], row: TopOneRow, columns: Sequence[str]) -> list[TableRow]:
    """Return a row of Table 1 after RS: one for each source of gamma, as the paper does not state its own.

    Args:
        records: all there are.
        row: of the paper, whose method ends in `+rs`.
        columns: of one data set.
    """
    published = published_errors(row["method"])
    method = row["method"].removesuffix("+rs")
    rows = []
    for source in TABLE1_GAMMAS:
        cells = []
        for column in columns:
            ours = cell(records, column, method, source)
            text = ours.text
            # The same published number below each other five times would say nothing new.
            if source == TABLE1_GAMMAS[0]:
                text = ours.against(published[column])
            cells.append(text)
        rows.append((f"{row['title']}, {source}", cells))
    return rows


def _trained_rows(
    records: Sequence[Record], row: TopOneRow, columns: Sequence[str]
) -> list[TableRow]:
    """Return a row of Table 1 as trained, then another reading of it, then by the recipe of its source.

    Args:
        records: all there are.
        row: of the paper, whose method has no `+rs`.
        columns: of one data set.

    Returns:
        One to three rows: most have neither another reading nor a source.
    """
    method = row["method"]
    published = published_errors(method)
    trained = row.get("is", method)  # the method that the paper prints under this title
    title = row["title"]
    if trained != method:
        title = f"{METHODS[trained].title}, in the paper {title}"
    # The row by our recipe, in every column.
    by_our_recipe = {c: ComparedCell(c, trained, published[c]) for c in columns}
    rows = [(title, _against(records, by_our_recipe, columns))]
    # What the paper leaves open, read in another way.
    reading = reading_below(method)
    if reading is not None:
        by_reading = {}
        for column in columns:
            if column in reading.columns:
                by_reading[column] = ComparedCell(*reading.place(column), published[column])
        rows.append((reading.title, _against(records, by_reading, columns, only_ours=True)))
    # What the paper copied, by the recipe that it was copied from.
    for source in tables()["sources"]["rows"]:
        if source["beside"] == method and "counted_only" not in source:
            rows.append((source["title"], _against(records, source_cells(source), columns)))
    return rows


def _against(
    records: Sequence[Record],
    cells: Mapping[str, ComparedCell],
    columns: Sequence[str],
    *,
    only_ours: bool = False,
) -> list[str]:
    """Return our errors with the published ones, a text for each column of the table.

    Args:
        records: all there are.
        cells: by column; a column without one stays empty.
        columns: of the table.
        only_ours: leave the published number out where nothing of ours is trained, as the row above has it already.
    """
    texts = []
    for column in columns:
        text = ""
        if column in cells:
            compared = cells[column]
            ours = cell(records, compared.column, compared.method)
            if ours.errors or not only_ours:
                text = ours.against(compared.published)
        texts.append(text)
    return texts


def table2(records: Sequence[Record]) -> str:
    """Return Table 2, top-1 and top-5; below each row of ours the same by the recipe of its source.

    A cell reads `66.02 / 42.10, *66.19 / 42.63*`: ours, then the published pair in italics.
    """
    table = tables()["table2"]
    columns = table["columns"]
    by_source = tables()["table2-sources"]["columns"]
    rows: list[TableRow] = []
    for row in table["rows"]:
        rows += _table2_rows(records, row)
    # WVN without RS is not in the paper.
    rows.append(("WVN alone", _top1_and_top5(records, columns, "wvn")))
    rows.append((f"WVN alone, {BY_SOURCE}", _top1_and_top5(records, by_source, "wvn")))
    # The paper's title names one loss and its numbers are another's: the one that is named is shown by itself.
    for method in [row["also"] for row in table["rows"] if "also" in row]:
        title = f"{METHODS[method].title}, not the published row's loss"
        rows.append((title, _top1_and_top5(records, columns, method)))
    return markdown_table(["top-1 / top-5", *(profile_title(column) for column in columns)], rows)


def _table2_rows(records: Sequence[Record], row: TopFiveRow) -> list[TableRow]:
    """Return a row of Table 2 by our recipe and by that of its source, as described and as it is read in another way.

    A row after RS has more, with other gammas.

    Args:
        records: all there are.
        row: of the paper; its published errors are pairs, top-1 and top-5.
    """
    table = tables()["table2"]
    method = row["method"].removesuffix("+rs")
    title = row["title"]
    source = None
    if method != row["method"]:
        source = PAPER_GAMMA
        title = f"{title}, {PAPER_GAMMA}, {table['gamma']:g}"
    published = [f"*{first:.2f} / {top:.2f}*" for first, top in row["published"]]

    # By our recipe the published numbers are always there.
    ours = []
    texts = _top1_and_top5(records, table["columns"], method, source)
    for errors, number in zip(texts, published, strict=True):
        if errors:
            ours.append(f"{errors}, {number}")
        else:
            ours.append(number)
    rows = [(title, ours)]

    # By the recipe of the source only beside errors: the row above has them already.
    theirs = []
    texts = _top1_and_top5(records, tables()["table2-sources"]["columns"], method, source)
    for errors, number in zip(texts, published, strict=True):
        if errors:
            theirs.append(f"{errors}, {number}")
        else:
            theirs.append("")
    rows.append((f"{title}, {BY_SOURCE}", theirs))

    # What that recipe could also have been, where it is trained so.
    for reading in readings_of_table2():
        if reading.row == row["method"]:
            otherwise = []
            for place, number in zip(reading.places, published, strict=True):
                errors = top1_and_top5(records, *place)
                if errors:
                    otherwise.append(f"{errors}, {number}")
                else:
                    otherwise.append("")
            rows.append((f"{title}, {BY_SOURCE}, {reading.title}", otherwise))

    if source is not None:
        for chosen in TABLE2_GAMMAS:
            cells = _top1_and_top5(records, table["columns"], method, chosen)
            rows.append((f"{row['title']}, {chosen}", cells))
    return rows


def _top1_and_top5(
    records: Sequence[Record], columns: Sequence[str], method: str, source: str | None = None
) -> list[str]:
    """Return both errors of each column, such as `66.02 / 42.10`; empty without a run.

    Args:
        records, columns, method: whose networks are meant.
        source: of gamma, a key of `cells.GAMMAS`; None for the networks as trained.
    """
    return [top1_and_top5(records, column, method, source) for column in columns]


def table3(records: Sequence[Record]) -> str:
    """Return Table 3: RS beside the oracle head, and which part of the gap between them RS closes.

    The oracle head is fitted to the test images (`geometry.oracle_head`): no adjustment of the head can do better, so
    that the network alone and the oracle are the ends between which RS is judged.
    """
    table = tables()["table3"]
    # Its columns are networks: `cifar10:100:wvn`.
    places = []
    for name in table["columns"]:
        column, _, method = name.rpartition(":")
        places.append((column, method))
    published = {row["method"]: row["published"] for row in table["rows"]}

    def ours(reading: str) -> list[Cell]:
        """Return the cells of all columns, by one reading."""
        return [cell(records, column, method, reading) for column, method in places]

    def alone(reading: str) -> list[str]:
        """Return the texts of a row that the paper does not have."""
        return [network.text for network in ours(reading)]

    def beside(reading: str, row: str) -> list[str]:
        """Return the texts of a row with the published numbers of the paper's row."""
        pairs = zip(ours(reading), published[row], strict=True)
        return [network.against(number) for network, number in pairs]

    closed = []
    for plain, scaled, oracle in zip(ours(LAST_EPOCH), ours(HELD_OUT), ours(ORACLE), strict=True):
        closed.append(_gap_closed(plain, scaled, oracle))
    rows = [
        ("network alone", alone(LAST_EPOCH)),
        (f"+RS, {HELD_OUT}", beside(HELD_OUT, "rs")),
        (f"+RS, {BEST_ON_TEST}", alone(BEST_ON_TEST)),
        ("+oracle head", beside(ORACLE, "oracle")),
        (f"gap closed by RS, {HELD_OUT}", closed),
    ]
    titles = [f"{METHODS[method].title}, ratio {column.split(':')[1]}" for column, method in places]
    return markdown_table(["", *titles], rows)


def _gap_closed(plain: Cell, scaled: Cell, oracle: Cell) -> str:
    """Return `share_of_gap` of the means in percent; empty where a cell is, or where the oracle is no better.

    >>> _gap_closed(plain=Cell((29.0, 31.0)), scaled=Cell((22.0,)), oracle=Cell((20.0,)))
    '80%'
    """
    if not (plain.errors and scaled.errors and oracle.errors):
        return ""
    share = share_of_gap(mean(plain.errors), mean(scaled.errors), mean(oracle.errors))
    if share is None:
        return ""
    return f"{share:.0%}"


def post_hoc_table(
    records: Sequence[Record], sets: Sequence[Sequence[str]], methods: Sequence[str]
) -> str:
    """Return what each adjustment makes of the companion runs, or nothing if there are none.

    Args:
        records: all there are.
        sets: the columns of each data set; a cell is the mean over those that have a companion.
        methods: of which each has a row for each data set.
    """
    rows: list[TableRow] = []
    for columns in sets:
        data = DATA_TITLES[without_recipe(columns[0]).split(":")[0]]
        for method in methods:
            runs = []
            for column in columns:
                run = companion(records, column, method)
                if run is not None:
                    runs.append(run)
            if runs:
                rows.append((f"{data}, {METHODS[method].title}", _post_hoc_cells(runs)))
    if not rows:
        return ""
    head = ["", "alone", *RULE_TITLES.values(), "nearest class mean", "oracle head"]
    return markdown_table(head, rows)


def _post_hoc_cells(runs: Sequence[Record]) -> list[str]:
    """Return the mean test error of some companions, in percent: alone, by each rule, and by two other heads.

    Args:
        runs: companions, one for each column.

    Returns:
        A text for each column of `post_hoc_table`; empty where no record has the error.
    """
    # A list of errors for each cell of the row, one error for each column.
    errors: list[list[float | None]] = [[run["error"] for run in runs]]
    for rule in RULE_TITLES:
        errors.append([errors_on_hold_out(run)[rule]["error"] for run in runs])
    errors.append([run["nearest_mean_error"] for run in runs])
    errors.append([READINGS[ORACLE](run) for run in runs])
    cells = []
    for of_columns in errors:
        # Not every record has the last two.
        measured = [error for error in of_columns if error is not None]
        text = ""
        if measured:
            text = f"{100 * mean(measured):.2f}"
        cells.append(text)
    return cells
