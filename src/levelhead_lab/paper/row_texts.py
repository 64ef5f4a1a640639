"""What is said about the rows of Tables 1 and 2: which are copied, how far seeds spread, other readings of a row.

Each public function writes one place of the page `reproduction.md`, a table or some sentences, from records alone:
numbers, and the words that depend on them, follow from what is there. `NO_NETWORK` stands where nothing is. Distances
from the published rows come from `distances`, cells from `cells`.
"""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import NamedTuple

from ..methods import METHODS
from .cells import (
    BEST_EPOCH,
    BEST_ON_TEST,
    LAST_EPOCH,
    TABLE1_GAMMAS,
    TEST_IMAGES,
    Record,
    cell,
    full_runs,
)
from .distances import Distance, reading_distance, source_distance, table2_distances
from .markdown import markdown_table
from .table_fields import PaperRow, Place
from .tables import (
    REPEATED,
    column_title,
    column_words,
    published_errors,
    readings,
    source_cells,
    table1_columns,
    tables,
)
from .words import in_a_row, signed

NO_NETWORK = "No such network has a record yet."


class CopiedRow(NamedTuple):
    """A row of Table 1 or 2 whose numbers are another paper's.

    >>> CopiedRow("Table 2, LDAM", "Cao et al., Table 4, LDAM-DRW", trained=1, columns=4).complete
    False
    """

    title: str
    copied_from: str  # the paper, the table, and what is trained there
    trained: int  # columns that have networks by the recipe of that paper
    columns: int  # in which it stands

    @property
    def complete(self) -> bool:
        return self.trained == self.columns


def copied_rows(records: Sequence[Record]) -> list[CopiedRow]:
    """Return every copied row, those of Table 1 first.

    The networks of a copied row are in the columns of `sources` or `table2-sources`, by the recipe of the paper that it
    was copied from: those by our own recipe do not count.
    """
    rows = []
    for row in tables()["table1"]["rows"]:
        if "copied" in row:
            (source,) = [
                other for other in tables()["sources"]["rows"] if other["beside"] == row["method"]
            ]
            places = [compared.place for compared in source_cells(source).values()]
            rows.append(_copied_row(records, "Table 1", row, places))
    for row in tables()["table2"]["rows"]:
        if "copied" in row:
            columns = tables()["table2-sources"]["columns"]
            places = [(column, row["method"]) for column in columns]
            rows.append(_copied_row(records, "Table 2", row, places))
    return rows


def _copied_row(
    records: Sequence[Record], table: str, row: PaperRow, places: Sequence[Place]
) -> CopiedRow:
    """Return a copied row with the number of its places that have networks.

    Args:
        records: all there are.
        table: its title.
        row: of the paper.
        places: column and method of the networks, for each column of the row.
    """
    trained = [place for place in places if full_runs(records, *place)]
    title = f"{table}, {row['title']}"
    return CopiedRow(title, row.get("copied", ""), len(trained), len(places))


def copied_table(records: Sequence[Record]) -> str:
    """Return where each copied row is from, how much of it is trained by its own recipe, and the references."""
    rows = []
    for row in copied_rows(records):
        rows.append((row.title, [row.copied_from, f"{row.trained} of {row.columns} columns"]))
    head = ["row", "its published numbers are", "trained by that recipe"]
    # Below the table, what the short names of papers stand for.
    references = " ".join(f"{who}: *{title}*." for who, title in tables()["references"].items())
    return f"{markdown_table(head, rows)}\n\n{references}"


def sources_text(records: Sequence[Record]) -> str:
    """Say which copied rows were trained by their own recipes, and how far the control is from its source.

    The settings in this text are those of the recipes it names, in lab/recipes.toml.
    """
    rows = copied_rows(records)
    lacking = [row.title for row in rows if not row.complete]
    text = (
        f"Of the {len(rows)} copied rows, {len(rows) - len(lacking)} are trained again by recipe and settings of "
        "their source in every imbalanced column"
    )
    if lacking:
        text += f"; not yet, or not in every column: {in_a_row(lacking)}"
    text += (
        ". Cross entropy is a control, with up to three networks a cell. On CIFAR: 200 epochs, 5 "
        "of warm-up, x0.01 at 160 and 180, weight decay 2e-4 (`cao2019`, `cui2019`, "
        "`cui2019-sigmoid`). Neither paper says which epoch its table shows."
    )
    return text + _controls_text(records)


def _controls_text(records: Sequence[Record]) -> str:
    """Say how far cross entropy by the recipe of Cao et al. is from their number, step by step nearer to their code.

    If the control missed, the copied rows could miss for the same reason, and would say nothing of their methods.
    """
    controls = [row for row in tables()["sources"]["rows"] if row["beside"] == "baseline"]
    # In the order of tables.toml, what each control has of theirs.
    steps = ("the first images of each class", "their images", "their images and initial weights")
    parts = []
    for row, images in zip(controls, steps, strict=True):
        distance = source_distance(records, row)
        if distance.points:
            parts.append(f"{signed(list(distance.points.values()))} with {images}")
    if not parts:
        return ""
    # All controls have the same columns.
    columns = in_a_row([column_words(column) for column in source_cells(controls[-1])])
    return (
        f"\n\nThe control minus its published errors, in points, on {columns}: {'; '.join(parts)}."
    )


def spread_text(records: Sequence[Record]) -> str:
    """Say how much seeds of one cell differ, of networks alone and after RS.

    The paper has one network a cell, and no spread: what two of our seeds differ by is what its numbers could be off.
    """
    alone = _largest_spread(records, (LAST_EPOCH,))
    after = _largest_spread(records, TABLE1_GAMMAS)
    # No cell with two seeds.
    if not alone:
        return NO_NETWORK
    return (
        f"The standard deviation over seeds in Table 1 is up to {alone:.1f} points for Baseline "
        f"and WVN alone, and up to {after:.1f} after RS. All other rows of the paper's Table 1 are "
        "one network a cell: a cell that is a point away decides nothing, a row that is away in one "
        "direction does."
    )


def _largest_spread(records: Sequence[Record], readings_of_cells: Sequence[str]) -> float:
    """Return the largest standard deviation over the seeds of a cell of Table 1, in points; 0 without two seeds.

    Args:
        records: all there are.
        readings_of_cells: over which the largest is taken, as in `cells.cell`.
    """
    spreads = []
    for column in table1_columns(imbalanced=True):
        for method in REPEATED:
            for reading in readings_of_cells:
                errors = cell(records, column, method, reading).errors
                if len(errors) > 1:
                    spreads.append(stdev(errors))
    return max(spreads, default=0.0)


def table1_text(records: Sequence[Record]) -> str:
    """Say what Table 1 shows of over-sampling, and in how many columns the nearer readings are trained.

    Over-sampling is singled out because rows disagree in their sign: as published it helps, as we first read it it
    does not.
    """
    columns = table1_columns("cifar10", imbalanced=True)
    published = published_errors("over-sample")
    plain = published_errors("baseline")
    improved = sum(published[column] < plain[column] for column in columns)
    parts = [
        "Over-sampling improves on the baseline of CIFAR-10 in "
        f"{improved} of {len(columns)} imbalanced columns as published"
    ]
    for method in ("over-sample", "over-sample-largest"):
        improves = []  # of each column that has both
        for column in columns:
            ours = cell(records, column, method).errors
            baseline = cell(records, column, "baseline").errors
            if ours and baseline:
                improves.append(mean(ours) < mean(baseline))
        if improves:
            title = METHODS[method].title
            parts.append(f"in {sum(improves)} of {len(improves)} of ours by the row {title}")
    # The readings below the rows: in how many of their columns there are networks.
    trained = []
    for reading in readings():
        if reading.in_table1:
            places = [reading.place(column) for column in reading.columns]
            count = sum(bool(full_runs(records, *place)) for place in places)
            trained.append(f"{reading.title} in {count} of {len(places)}")
    return (
        f"{', '.join(parts)}. Below the rows that the paper leaves open stands another reading of each, where "
        f"it is trained: {'; '.join(trained)} columns."
    )


def table2_text(records: Sequence[Record]) -> str:
    """Say what Table 2 shows: recipes, WVN beside the plain network, gamma from unlabelled test images.

    Returns:
        A list in Markdown; each point stands for itself, and is left out where its networks are missing.
    """
    lines = []
    distances = {distance.title: distance for distance in table2_distances(records)}
    if "Baseline, recipe of Cao et al." in distances:
        lines.append(_by_the_recipe_of_cao(distances))
    lines += _wvn_beside_plain(records)
    lines += _misled_by_test_images(records)
    return "\n".join(lines) or NO_NETWORK


def _by_the_recipe_of_cao(distances: Mapping[str, Distance]) -> str:
    """Say how far the plain network is from Table 2 by the recipe of its source and by ours, and RS on it.

    Args:
        distances: of Table 2 by title, that of the plain network by the recipe of Cao et al. among them.
    """

    def points(title: str) -> str:
        """Return the distances of a row in all of its columns, as a list in a sentence."""
        return signed(list(distances[title].points.values()))

    text = (
        "- **By the recipe of Cao et al.** the row Baseline is "
        f"{points('Baseline, recipe of Cao et al.')} points from the published errors"
    )
    scaled = "Baseline+RS, recipe of Cao et al."
    if scaled in distances:
        text += f", and RS at the paper's 0.1 {points(scaled)} points from its row"
    ours = "Baseline, our recipe"
    if ours not in distances:
        return f"{text}."
    return (
        f"{text}. By our recipe, a short one, Baseline is {points(ours)} points away. Between the "
        "two, recipe, order of classes and a bias in the head changed at once: which of them "
        "matters was not tried."
    )


def _wvn_beside_plain(records: Sequence[Record]) -> list[str]:
    """Return a line on WVN+RS minus Baseline+RS, best gamma on test, for each recipe that has both.

    At the best gamma, since there are no companions to choose one by the recipe of Cao et al. CIFAR stands beside it,
    where WVN has three seeds.
    """
    # Beside which each of the lines below stands.
    cifar = _wvn_minus_plain(records, table1_columns(imbalanced=True), BEST_ON_TEST)
    lines = []
    for table, recipe in (("table2", "our recipe"), ("table2-sources", "the recipe of Cao et al.")):
        points = _wvn_minus_plain(records, tables()[table]["columns"], BEST_ON_TEST)
        if points and cifar:
            ahead = sum(difference < 0 for difference in points)
            behind = sum(difference > 0 for difference in cifar)
            columns = tables()[table]["columns"]
            seeds = max(len(full_runs(records, column, "wvn")) for column in columns)
            networks = "one network"
            if seeds != 1:
                networks = f"up to {seeds} networks"
            lines.append(
                f"- **WVN+RS minus Baseline+RS** by {recipe}, each at its best gamma on test: "
                f"{signed(points)} points, ahead in {ahead} of {len(points)} columns, {networks} "
                f"a cell. On CIFAR, with three, it is behind in {behind} of {len(cifar)}."
            )
    return lines


def _wvn_minus_plain(
    records: Sequence[Record], columns: Sequence[str], reading: str
) -> list[float]:
    """Return the mean error of WVN minus that of the plain network, in the columns that have both.

    Args:
        records: all there are.
        columns: of any table.
        reading: of both cells, as in `cells.cell`.

    Returns:
        Points, below 0 where WVN is ahead.
    """
    points = []
    for column in columns:
        wvn = cell(records, column, "wvn", reading).errors
        plain = cell(records, column, "baseline", reading).errors
        if wvn and plain:
            points.append(mean(wvn) - mean(plain))
    return points


def _misled_by_test_images(records: Sequence[Record]) -> list[str]:
    """Say what gamma from unlabelled test images does where the rare classes are hardly ever predicted.

    To make predicted shares even, gamma has to go past the one that is best on test, and takes images of frequent
    classes along.
    """
    column = "tiny-imagenet:step:100"
    # Of each method that is trained: the error so, and without any adjustment.
    parts = []
    for method in REPEATED:
        matched = cell(records, column, method, TEST_IMAGES)
        if matched.errors:
            alone = cell(records, column, method).text
            parts.append(f"{METHODS[method].title} has {matched.text} so, {alone} alone")
    if not parts:
        return []
    recalls = []
    for method in REPEATED:
        for run in full_runs(records, column, method):
            # Under step imbalance the second half of the 200 classes is rare.
            recalls += [recall for recall in run["recall"][100:] if recall is not None]
    return [
        "- **Gamma from the test images, without their labels, misleads** at step imbalance of "
        f"ratio 100, where the recall of the hundred rare classes is at most {max(recalls):.0%}: "
        f"{'; '.join(parts)}. `tune_unlabelled` warns of it."
    ]


def readings_table(records: Sequence[Record]) -> str:
    """Return every reading of the rows that the paper leaves open: the last epoch, in parentheses the best on test.

    Below the readings of a row stand its published errors, in italics: which of them comes nearest can be seen at once.
    """
    columns = tables()["readings"]["columns"]
    rows = []
    for row in tables()["readings"]["rows"]:
        for reading in readings():
            if reading.row != row["method"]:
                continue
            cells = []
            for column in columns:
                last = cell(records, *reading.place(column)).text
                best = cell(records, *reading.place(column), BEST_EPOCH).text
                text = ""
                if last:
                    text = f"{last} ({best})"
                cells.append(text)
            rows.append((reading.title, cells))
        # Below its readings, what the row has in the paper.
        published = published_errors(row["method"])
        title = f"*{METHODS[row['method']].title}, published*"
        rows.append((title, [f"*{published[column]:.2f}*" for column in columns]))
    return markdown_table(["", *map(column_title, columns)], rows)


def readings_text(records: Sequence[Record]) -> str:
    """Say of each reading how far it is from the published numbers, in the last epoch and in the best on test.

    Only in the columns in which all readings are trained, so that they can be compared with each other.
    """
    columns = tables()["readings"]["columns"]
    lines = []
    for reading in readings():
        last = reading_distance(records, reading, LAST_EPOCH, columns)
        best = reading_distance(records, reading, BEST_EPOCH, columns)
        if last.points:
            lines.append(epochs_line(reading.title, last, best))
    return "\n".join(lines) or NO_NETWORK


def epochs_line(title: str, last: Distance, best: Distance) -> str:
    """Say how far a reading of a row is from the published one in the last epoch and in the best on test.

    >>> last, best = Distance("", {"step": 2.0, "tail": 0.5}), Distance("", {"step": 0.9, "tail": -0.1})
    >>> epochs_line("LDAM", last, best)[:89]
    '- LDAM: +2.0 and +0.5 points from the published numbers in the last epoch, +0.9 and -0.1 '
    """
    return (
        f"- {title}: {signed(list(last.points.values()))} points from the published "
        f"numbers in the last epoch, {signed(list(best.points.values()))} in the best on test; "
        f"within a point in {last.near()} and {best.near()} columns."
    )
