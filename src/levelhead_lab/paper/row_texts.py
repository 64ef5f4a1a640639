"""What is said about the rows of Tables 1 and 2: which are copied, how far seeds spread, other readings of a row."""

from collections.abc import Sequence
from statistics import mean, stdev

from ..methods import METHODS
from .cells import (
    BEST_EPOCH,
    BEST_ON_TEST,
    HELD_OUT,
    LAST_EPOCH,
    RELEASED_DEFAULT,
    RELEASED_SCRIPT,
    TEST_IMAGES,
    Record,
    cell,
    full_runs,
)
from .distances import Distance, reading_distance, source_distance, table2_distances
from .markdown import markdown_table
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


def copied_rows(records: Sequence[Record]) -> list[tuple[str, str, int, int]]:
    """Return of each copied row its title, what it is, and how many of its columns are trained by its own recipe."""
    found = []
    for table in ("table1", "table2"):
        for row in tables()[table]["rows"]:
            if "copied" not in row:
                continue
            if table == "table1":
                (source,) = [
                    one for one in tables()["sources"]["rows"] if one["beside"] == row["method"]
                ]
                places = [place[:2] for place in source_cells(source).values()]
            else:
                columns = tables()["table2-sources"]["columns"]
                places = [(column, row["method"]) for column in columns]
            trained = [place for place in places if full_runs(records, *place)]
            title = f"Table {table[-1]}, {row['title']}"
            found.append((title, row["copied"], len(trained), len(places)))
    return found


def copied_table(records: Sequence[Record]) -> str:
    rows = []
    for title, what, trained, columns in copied_rows(records):
        rows.append((title, [what, f"{trained} of {columns} columns"]))
    head = ["row", "its published numbers are", "trained by that recipe"]
    references = " ".join(f"{who}: *{title}*." for who, title in tables()["references"].items())
    return f"{markdown_table(head, rows)}\n\n{references}"


def sources_text(records: Sequence[Record]) -> str:
    """Say which copied rows were trained by their own recipes, and how far the control is from its source."""
    rows = copied_rows(records)
    whole = [title for title, _, trained, columns in rows if trained == columns]
    lacking = [title for title, _, trained, columns in rows if trained < columns]
    text = (
        f"Of the {len(rows)} copied rows, {len(whole)} are trained again by recipe and settings of "
        "their source in every column, one network a cell"
    )
    if lacking:
        text += f"; not yet, or not in every column: {in_a_row(lacking)}"
    text += (
        ". Cross entropy is a control, with up to three networks a cell. On CIFAR: 200 epochs, 5 "
        "of warm-up, x0.01 at 160 and 180, weight decay 2e-4 (`cao2019`, `cui2019`, "
        "`cui2019-sigmoid`). Neither paper says which epoch its table shows."
    )
    controls = []
    for row, images in zip(
        [row for row in tables()["sources"]["rows"] if row["beside"] == "baseline"],
        ("the first images of each class", "their images", "their images and initial weights"),
        strict=True,
    ):
        distance = source_distance(records, row)
        if distance.points:
            controls.append(f"{signed(list(distance.points.values()))} with {images}")
    if controls:
        columns = in_a_row([column_words(column) for column in source_cells(row)])
        text += (
            f"\n\nThe control minus its published errors, in points, on {columns}: "
            f"{'; '.join(controls)}."
        )
    return text


def spread_text(records: Sequence[Record]) -> str:
    """Say how much seeds of one cell differ, of networks alone and after RS."""

    def largest(*readings: str) -> float:
        spreads = []
        for column in table1_columns(imbalanced=True):
            for method in REPEATED:
                for reading in readings:
                    errors = cell(records, column, method, reading).errors
                    if len(errors) > 1:
                        spreads.append(stdev(errors))
        return max(spreads, default=0.0)

    alone = largest(LAST_EPOCH)
    after = largest(HELD_OUT, RELEASED_SCRIPT, RELEASED_DEFAULT, TEST_IMAGES, BEST_ON_TEST)
    if not alone:
        return NO_NETWORK
    return (
        f"The standard deviation over seeds in Table 1 is up to {alone:.1f} points for Baseline "
        f"and WVN alone, and up to {after:.1f} after RS. All other rows of the paper are one network a cell: a "
        "cell that is a point away decides nothing, a row that is away in one direction does."
    )


def table1_text(records: Sequence[Record]) -> str:
    """Say what Table 1 shows of over-sampling, and in how many columns the nearer readings are trained."""
    columns = table1_columns("cifar10", imbalanced=True)
    published = published_errors("over-sample")
    plain = published_errors("baseline")
    theirs = [column for column in columns if published[column] < plain[column]]
    lines = [
        "Over-sampling improves on the baseline of CIFAR-10 in "
        f"{len(theirs)} of {len(columns)} imbalanced columns as published"
    ]
    for method in ("over-sample", "over-sample-largest"):
        pairs = []
        for column in columns:
            ours = cell(records, column, method).errors
            base = cell(records, column, "baseline")
            if ours and base.errors:
                pairs.append(mean(ours) < mean(base.errors))
        if pairs:
            lines.append(
                f"in {sum(pairs)} of {len(pairs)} of ours by the row {METHODS[method].title}"
            )
    trained = []
    for reading in readings():
        if reading.in_table1:
            places = [reading.place(column) for column in reading.columns]
            count = sum(bool(full_runs(records, *place)) for place in places)
            trained.append(f"{reading.title} in {count} of {len(places)}")
    return (
        f"{', '.join(lines)}. Below the rows that the paper leaves open stands another reading of each, where "
        f"it is trained: {'; '.join(trained)} columns."
    )


def table2_text(records: Sequence[Record]) -> str:
    """Say what Table 2 shows: recipes, WVN beside the plain network, gamma from unlabelled test images."""
    lines = []
    distances = {distance.title: distance for distance in table2_distances(records)}
    if baseline := distances.get("Baseline, recipe of Cao et al."):
        lines.append(_by_the_recipe_of_cao(baseline, distances))
    lines += _wvn_beside_plain(records)
    lines += _misled_by_test_images(records)
    return "\n".join(lines) or NO_NETWORK


def _by_the_recipe_of_cao(baseline: Distance, distances: dict[str, Distance]) -> str:
    ours = distances["Baseline, our recipe"]
    text = (
        "- **By the recipe of Cao et al.** the row Baseline is "
        f"{signed(list(baseline.points.values()))} points from the published errors"
    )
    if scaled := distances.get("Baseline+RS, recipe of Cao et al."):
        text += f", and RS at the paper's 0.1 {signed(list(scaled.points.values()))} points from its row"
    return (
        f"{text}. By our recipe, a short one, Baseline is {signed(list(ours.points.values()))} "
        "points away. Between the two, recipe, order of classes and a bias in the head changed at "
        "once: which of them matters was not tried."
    )


def _wvn_beside_plain(records: Sequence[Record]) -> list[str]:
    """Return a line on WVN+RS minus Baseline+RS, best gamma on test, for each recipe that has both."""
    cifar = _wvn_minus_plain(records, table1_columns(imbalanced=True), BEST_ON_TEST)
    lines = []
    for table, recipe in (("table2", "our recipe"), ("table2-sources", "the recipe of Cao et al.")):
        points = _wvn_minus_plain(records, tables()[table]["columns"], BEST_ON_TEST)
        if points and cifar:
            ahead = sum(off < 0 for off in points)
            behind = sum(off > 0 for off in cifar)
            seeds = [
                len(full_runs(records, column, "wvn")) for column in tables()[table]["columns"]
            ]
            networks = "one network"
            if max(seeds) != 1:
                networks = f"up to {max(seeds)} networks"
            lines.append(
                f"- **WVN+RS minus Baseline+RS** by {recipe}, each at its best gamma on test: "
                f"{signed(points)} points, ahead in {ahead} of {len(points)} columns, {networks} "
                f"a cell. On CIFAR, with three, it is behind in {behind} of {len(cifar)}."
            )
    return lines


def _wvn_minus_plain(
    records: Sequence[Record], columns: Sequence[str], reading: str
) -> list[float]:
    points = []
    for column in columns:
        wvn = cell(records, column, "wvn", reading).errors
        plain = cell(records, column, "baseline", reading).errors
        if wvn and plain:
            points.append(mean(wvn) - mean(plain))
    return points


def _misled_by_test_images(records: Sequence[Record]) -> list[str]:
    column = "tiny-imagenet:step:100"
    parts = []
    for method in REPEATED:
        matched = cell(records, column, method, TEST_IMAGES)
        if matched.errors:
            alone = cell(records, column, method).text
            parts.append(f"{METHODS[method].title} has {matched.text} so, {alone} alone")
    if not parts:
        return []
    runs = [run for method in REPEATED for run in full_runs(records, column, method)]
    predicted = max(max(run["recall"][100:]) for run in runs)
    return [
        "- **Gamma from the test images, without their labels, misleads** at step imbalance of "
        f"ratio 100, where the recall of the hundred rare classes is at most {predicted:.0%}: "
        f"{'; '.join(parts)}. `tune_unlabelled` warns of it."
    ]


def readings_table(records: Sequence[Record]) -> str:
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
                cells.append(f"{last} ({best})" if last else "")
            rows.append((reading.title, cells))
        published = published_errors(row["method"])
        title = f"*{METHODS[row['method']].title}, published*"
        rows.append((title, [f"*{published[column]:.2f}*" for column in columns]))
    return markdown_table(["", *map(column_title, columns)], rows)


def readings_text(records: Sequence[Record]) -> str:
    """Say of each reading how far it is from the published numbers."""
    columns = tables()["readings"]["columns"]
    lines = []
    for reading in readings():
        last = reading_distance(records, reading, LAST_EPOCH, columns)
        best = reading_distance(records, reading, BEST_EPOCH, columns)
        if last.points:
            lines.append(
                f"- {reading.title}: {signed(list(last.points.values()))} points from the published "
                f"numbers in the last epoch, {signed(list(best.points.values()))} in the best on test; "
                f"within a point in {last.near()} and {best.near()} columns."
            )
    return "\n".join(lines) or NO_NETWORK
