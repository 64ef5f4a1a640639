"""Tables that the paper lacks: other recipes, what others published, what was tried, heads fitted again.

`other_recipe_table` is read from records, like the tables of the paper, with the shift beside RS (`shift_cell`).
`published_table` is from tables.toml. `heads_table` and `past_frontier_table` show files of results/ that no record
holds. `beyond_texts` says in sentences what these tables show.
"""

from collections.abc import Sequence

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
from .measured_fields import Heads, PastFrontierRun, Variant
from .post_hoc import SHIFTS
from .tables import DATA_TITLES, REPEATED, column_title, tables, without_recipe


def other_recipe_table(
    records: Sequence[Record], columns: Sequence[str], methods: Sequence[str] = REPEATED
) -> str:
    """Return the networks of a recipe as trained, after RS and after the shift; nothing if none has a record.

    Args:
        records: all there are.
        columns: those of the recipe, such as `strong/cifar10:100`.
        methods: of which each has four rows: as trained, RS, the shift, and the shift without labels.
    """
    rows: list[TableRow] = []
    for method in methods:
        title = METHODS[method].title
        rows.append((title, [cell(records, column, method).text for column in columns]))
        scaled = [cell(records, column, method, HELD_OUT).text for column in columns]
        rows.append((f"{title}+RS, held out", scaled))
        for source, words in (
            (HELD_OUT, "held out"),
            (TEST_IMAGES, "from test images without labels"),
        ):
            shifted = [shift_cell(records, column, method, source).text for column in columns]
            rows.append((f"{title}+shift, {words}", shifted))
    if not any(any(cells) for _, cells in rows):
        return ""
    head = []
    for column in columns:
        data, ratio = without_recipe(column).split(":")
        head.append(f"{DATA_TITLES[data]}, {ratio}")
    return markdown_table(["ratio", *head], rows)


def shift_cell(records: Sequence[Record], column: str, method: str, source: str) -> Cell:
    """Return the errors of a cell after the shift, in percent.

    Args:
        records: all there are.
        column, method: of the cell.
        source: where the strength is from: `HELD_OUT` (the hold-out of the companion), or a key of `EXACT`.

    >>> run = {"column": "cifar10:100", "method": "baseline", "seed": 0, "hold_out": 0.0}
    >>> run["shift"] = {"best_on_test": {"gamma": 1.1, "error": 0.25}}
    >>> shift_cell([run], "cifar10:100", "baseline", "best gamma on test")
    Cell(errors=(25.0,))
    """
    shifts = []
    for run in full_runs(records, column, method):
        shift = run.get("shift")
        if shift:  # older records have none
            shifts.append(shift)
    # Exact where the record has it; at the strength of a hold-out, the nearest point of the curve.
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
    """Return what others published, with who, when and where, and what others got who ran it again.

    Errors in percent at ratio 100, from tables.toml: nothing here depends on our networks.
    """
    data_sets = ("cifar10", "cifar100")
    rows = []
    for published in tables()["frontier"]["published"]:
        errors = [str(published.get(data, "-")) for data in data_sets]
        by = f"[{published['by']}]({published['link']})"
        cells = [by, "ResNet-32", *errors, published.get("again", "")]
        rows.append((published["title"], cells))
    # A network that has seen millions of other images: the last row, so that nobody takes it for a rival.
    pretrained = tables()["frontier"]["pretrained"]
    by = f"[{pretrained['by']}]({pretrained['link']})"
    cells = [by, pretrained["backbone"], "-", str(pretrained["cifar100"]), ""]
    rows.append((pretrained["title"], cells))
    titles = [f"{DATA_TITLES[data]}, 100" for data in data_sets]
    return markdown_table(["published", "by", "network", *titles, "run again"], rows)


# What the table of fitted heads calls each fit, by its key in heads.json.
FIT_TITLES = {
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


def heads_table(heads: Heads) -> str:
    """Return the test errors of the stored networks with heads fitted again on their training features.

    Those of companion runs, whose hold-out fits more rules, come after them; the stored networks have no hold-out, and
    their cells of these rules stay empty.
    """
    # Title and errors of each row: first the stored networks, then the companions.
    networks = []
    for method, network in heads["networks"].items():
        title = f"{column_title(heads['column'])}, {METHODS[method].title}"
        networks.append((title, network["errors"]))
    for held in heads.get("companions", []):
        title = f"{column_title(held['column'])}, {METHODS[held['method']].title}, a tenth held out"
        networks.append((title, held["errors"]))
    rows = []
    for title, errors in networks:
        cells = []
        for key in FIT_TITLES:
            text = ""
            if key in errors:
                text = f"{errors[key]:.2f}"
            cells.append(text)
        rows.append((title, cells))
    return markdown_table(["error, %", *FIT_TITLES.values()], rows)


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


def past_frontier_table(runs: Sequence[PastFrontierRun]) -> str:
    """Return a column for each network: its error alone, then that of each of `VARIANTS` after the shift.

    Args:
        runs: results/past_frontier.json; a column is named by data, method and weight decay.
    """
    alone = [f"{100 * variant_of(run, 'as trained')['error']:.2f}" for run in runs]
    # Above everything the network without a rule; every other row is after the shift.
    rows: list[TableRow] = [("alone", alone)]
    for title in VARIANTS:
        rows.append((title, [f"{shifted_error(run, title):.2f}" for run in runs]))
    head = []
    for run in runs:
        data = DATA_TITLES[run["data"]]
        method = METHODS[run["method"]].title
        head.append(f"{data}, {method}, {run['weight_decay']:g}")
    return markdown_table(["", *head], rows)


def shifted_error(run: PastFrontierRun, title: str) -> float:
    """Return the error of a variant after the shift, its strength from the test images without labels, in percent.

    >>> tried = {"weights": "last", "statistics": "as trained", "views": 2, "shift": {"match_prior": {"error": 0.134}}}
    >>> shifted_error({"tried": [tried]}, "mirrored")
    13.4
    """
    return 100 * variant_of(run, title)["shift"]["match_prior"]["error"]


def variant_of(run: PastFrontierRun, title: str) -> Variant:
    """Return what was measured of one variant of a network.

    Args:
        run: which has each variant once.
        title: a key of `VARIANTS`, which says what weights, statistics and views it has.
    """
    (variant,) = [
        tried
        for tried in run["tried"]
        if (tried["weights"], tried["statistics"], tried["views"]) == VARIANTS[title]
    ]
    return variant
