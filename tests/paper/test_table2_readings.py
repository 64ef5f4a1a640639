"""Table 2 by other readings of its source's recipe, beside the published errors."""

from pathlib import Path
from statistics import mean

import pytest

from levelhead_lab.paper.asked_rows import rows_of
from levelhead_lab.paper.cells import load_records
from levelhead_lab.paper.distances import table2_distances
from levelhead_lab.paper.headline import headline
from levelhead_lab.paper.paper_tables import table2
from levelhead_lab.paper.table2_readings import (
    table2_everywhere_table,
    table2_ldam_table,
    table2_ldam_text,
    table2_readings_table,
    table2_readings_text,
)
from levelhead_lab.paper.tables import readings_of_table2
from levelhead_lab.paper.trainings import trainings

from .made import made

RECORDS = Path(__file__).parents[2] / "results" / "records"


def test_each_reading_of_table2s_source_stands_beside_the_published_error():
    records = load_records(RECORDS)
    lines = table2_readings_table(records).splitlines()
    assert lines[0] == "| top-1 / top-5 | Baseline | CB | LDAM-DRW |"
    assert lines[-1] == "| *published* | *66.19 / 42.63* | *72.72 / 52.62* | *62.53 / 39.06* |"
    (described,) = [line for line in lines if line.startswith("| as described |")]
    errors = [float(part.split()[0]) for part in described.split("|")[2:-1]]
    assert errors == pytest.approx(_as_described(records), abs=0.005)


def _as_described(records: list[dict]) -> list[float]:
    """The mean errors of the first column by the recipe as described: Baseline, CB and LDAM-DRW."""
    column = "cao2019-64/tiny-imagenet-sorted:long-tail:100"
    return [
        mean(100 * r["error"] for r in records if (r["column"], r["method"]) == (column, method))
        for method in ("baseline", "class-balanced", "ldam-drw")
    ]


def test_the_text_says_how_far_the_recipe_as_described_is():
    records = load_records(RECORDS)
    # A second seed counts as much as the first.
    column = "cao2019-64/tiny-imagenet-sorted:long-tail:100"
    more = {**made("tiny-imagenet:long-tail:100", seed=1, error=0.7), "column": column}
    for networks in (records, [*records, more]):
        plain, balanced, margins = _as_described(networks)
        assert table2_readings_text(networks).startswith(
            f"- As described: Baseline {plain - 66.19:+.1f}, CB {balanced - 72.72:+.1f} and "
            f"LDAM-DRW {margins - 62.53:+.1f} points."
        )


def test_without_networks_the_text_says_so():
    assert table2_readings_text([]) == "No such network has a record yet."


def test_a_reading_that_is_trained_ends_with_the_published_error():
    column = "cao2019-64-warm/tiny-imagenet-sorted:long-tail:100"
    (wanted,) = trainings("table2-readings", only=[f"{column}:ldam-drw"])
    record = next(
        record
        for record in load_records(RECORDS)
        if record["column"].startswith("cao2019-64/") and record["method"] == "ldam-drw"
    )
    trained = {**record, "column": column, "name": wanted.name}
    rows = rows_of("table2-readings", [trained], [wanted])
    assert rows[0].published == 62.53


def test_readings_with_all_networks_are_counted():
    text = table2_readings_text(load_records(RECORDS))
    assert (
        "- All three networks are within a point in 0 of the 5 readings that have them all." in text
    )


def test_plain_training_is_not_repeated_where_only_class_weights_change():
    column = "cao2019-64-class/tiny-imagenet-sorted:long-tail:100"
    trained = [t.spec.method for t in trainings("table2-readings") if t.column == column]
    assert sorted(set(trained)) == ["class-balanced", "ldam-drw"]
    described, changed = (
        line.split("|")[2:-1]
        for line in table2_readings_table(load_records(RECORDS)).splitlines()
        if line.startswith(("| as described", "| class weights of mean 1"))
    )
    assert changed[0] == described[0]
    assert changed[1] != described[1]


def test_the_text_says_which_readings_come_near():
    text = table2_readings_text(load_records(RECORDS))
    assert "- LDAM-DRW is within a point in none of these." in text
    (near,) = [line for line in text.splitlines() if line.startswith("- CB is within a point")]
    assert "weight decay 5e-4" in near
    assert "class weights of mean 1" in near


def test_a_linear_head_brings_ldam_drw_nearer_than_any_reading_with_cosines():
    records = load_records(RECORDS)
    errors = {}
    for line in table2_ldam_table(records).splitlines()[2:-1]:
        title, pair = line.strip("| ").split(" | ")
        errors[title] = float(pair.split(" / ")[0])
    linear = errors["a linear head: margins of logits, not of cosines"]
    assert linear < min(errors["as in their CIFAR code: cosines times 30"], 66.09)
    text = table2_ldam_text(records)
    assert text.startswith("Nearest to the published LDAM-DRW is *a linear head, and weight decay")
    assert "+3.6 points away" in text


def test_one_command_trains_what_readings_of_table2_lack_cb_first():
    only = ["cao2019-64-class/*", "*:cao-ldam-drw-linear"]
    wanted = trainings("table2-readings", only=only)
    recorded = {record["name"] for record in load_records(RECORDS)}
    places = [(t.column, t.spec.method) for t in wanted]
    of_classes, _, margins = readings_of_table2()
    everywhere = [*of_classes.places[1:], *margins.places[1:]]
    rest = [place for place in places if place in everywhere]
    assert rest == everywhere
    assert {t.name for t in wanted if (t.column, t.spec.method) not in rest} <= recorded
    recipes = {t.spec.method: t.spec.resolve_recipe() for t in wanted if t.column.endswith("10")}
    assert recipes["class-balanced"].weights != "batch"
    assert recipes["cao-ldam-drw-linear"].weight_decay == 5e-4
    heads = {t.spec.method: t.spec.resolve_method().head for t in wanted}
    assert heads["cao-ldam-drw-linear"] == "linear"


def _networks_of_readings(errors: list[float]) -> list[dict]:
    """A record for each column of both readings, whose top-1 errors are these, whose top-5 errors 24 %."""
    records = []
    for reading in readings_of_table2():
        for (column, method), error in zip(reading.places, errors, strict=True):
            of = "tiny-imagenet:" + column.partition(":")[2]
            top = {"k": 5, "curve": [0.24] * 101}
            records.append({**made(of, method, error=error, top=top), "column": column})
    return records


def test_a_reading_that_is_trained_everywhere_stands_below_its_row_of_table_2():
    records = _networks_of_readings([0.63, 0.48, 0.61, 0.48])
    start = "| LDAM, recipe of Cao et al., a linear head, and weight decay 5e-4 | "
    (line,) = [line for line in table2(records).splitlines() if line.startswith(start)]
    assert line == (
        f"{start}63.00 / 24.00, *62.53 / 39.06* | 48.00 / 24.00, *47.22 / 23.84* | "
        "61.00 / 24.00, *60.63 / 38.12* | 48.00 / 24.00, *47.43 / 23.26* |"
    )
    alone = table2(records[-1:]).splitlines()
    assert [line for line in alone if "linear" in line] == [
        f"{start} |  |  | 48.00 / 24.00, *47.43 / 23.26* |"
    ]
    assert not [line for line in alone if "class weights" in line]
    by_title = {distance.title: distance.near() for distance in table2_distances(records)}
    assert by_title["LDAM, recipe of Cao et al., a linear head, and weight decay 5e-4"] == "4 of 4"
    balanced = "class weights of mean 1 over the classes, not in each batch"
    assert by_title[f"CB Focal, recipe of Cao et al., {balanced}"] == "0 of 4"


def test_a_reading_ends_with_the_published_error_of_its_row():
    records = _networks_of_readings([0.63, 0.48, 0.61, 0.48])
    wanted = trainings("table2-readings", only=["*step:10:class-balanced", "*:step:10:cao-*"])
    published = {row.column: row.published for row in rows_of("table2-readings", records, wanted)}
    assert published == {
        "cao2019-64-class/tiny-imagenet-sorted:step:10": 54.51,
        "cao2019-64-decay/tiny-imagenet-sorted:step:10": 47.43,
    }


def test_the_headline_counts_the_readings_that_are_trained_everywhere():
    records = load_records(RECORDS)
    text = headline(records, None, {})
    published = {"CB Focal": (72.72, 51.58, 74.90, 54.51), "LDAM": (62.53, 47.22, 60.63, 47.43)}
    titles = ("CB Focal", "CB Focal", "LDAM")
    for reading, row in zip(readings_of_table2(), titles, strict=True):
        distances = []
        for record in records:
            place = (record["column"], record["method"])
            if place in reading.places:
                theirs = published[row][reading.places.index(place)]
                distances.append(abs(100 * record["error"] - theirs))
        near = sum(distance < 1.005 for distance in distances)
        assert f"{row} in {near} of {len(distances)} ({reading.title})" in text


def test_readings_that_are_trained_everywhere_are_judged_in_the_last_epoch_and_in_the_best():
    records = load_records(RECORDS)
    (margins,) = [reading for reading in readings_of_table2() if reading.row == "ldam-drw"]
    of_place = {(record["column"], record["method"]): record for record in records}
    last, best = [], []
    for place, published in zip(margins.places, (62.53, 47.22, 60.63, 47.43), strict=True):
        record = of_place[place]
        last.append(100 * record["error"] - published)
        best.append(100 * min(record["error"], record["best_epoch"]["error"]) - published)
    (line,) = [row for row in table2_everywhere_table(records).splitlines() if "linear" in row]
    cells = [f"{before:+.1f} ({after:+.1f})" for before, after in zip(last, best, strict=True)]
    near = [sum(abs(points) < 1.005 for points in distances) for distances in (last, best)]
    title = "LDAM-DRW, a linear head, and weight decay 5e-4"
    within = f"{near[0]} of 4 ({near[1]} of 4)"
    assert line == f"| {title} | {' | '.join([*cells, within])} |"
    assert near[0] < near[1]


def test_each_copied_row_as_described_stands_above_its_readings():
    lines = table2_everywhere_table(load_records(RECORDS)).splitlines()
    assert lines[0] == (
        "| points from published | long-tail, ratio 100 | long-tail, ratio 10 | step, ratio 100 | "
        "step, ratio 10 | within 1 point |"
    )
    titles = [line.split(" | ")[0].strip("| ") for line in lines[2:]]
    rows = [title.partition(",")[0] for title in titles]
    assert rows == sorted(rows)  # Baseline, CB, LDAM-DRW
    described = [title for title in titles if title.endswith("as described")]
    assert described == [f"{row}, as described" for row in dict.fromkeys(rows)]
    assert [titles.index(title) for title in described] == [
        rows.index(row) for row in dict.fromkeys(rows)
    ]
    assert lines[2].startswith(
        "| Baseline, as described | -0.5 (-0.6) | -0.1 (-0.1) | +0.2 (+0.1) |"
    )


def test_a_column_that_is_not_trained_is_left_empty():
    (network,) = _networks_of_readings([0.63, 0.48, 0.61, 0.48])[-1:]
    line = table2_everywhere_table([network]).splitlines()[-1]
    assert line.endswith("decay 5e-4 |  |  |  | +0.6 (+0.6) | 1 of 1 (1 of 1) |")


def test_without_networks_of_readings_the_table_has_no_row():
    assert len(table2_everywhere_table([]).splitlines()) == 2


def test_without_networks_of_ldam_the_text_says_so():
    assert table2_ldam_text([]) == "No such network has a record yet."
