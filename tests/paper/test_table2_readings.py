"""Table 2 by other readings of its source's recipe, beside the published errors."""

from pathlib import Path

import pytest

from levelhead_lab.paper.asked_rows import rows_of
from levelhead_lab.paper.cells import load_records
from levelhead_lab.paper.table2_readings import table2_readings_table, table2_readings_text
from levelhead_lab.paper.trainings import trainings

RECORDS = Path(__file__).parents[2] / "results" / "records"


def test_each_reading_of_table2s_source_stands_beside_the_published_error():
    records = load_records(RECORDS)
    lines = table2_readings_table(records).splitlines()
    assert lines[0] == "|  | Baseline | CB | LDAM-DRW |"
    assert lines[-1] == "| *published* | *66.19* | *72.72* | *62.53* |"
    (described,) = [line for line in lines if line.startswith("| as described |")]
    errors = [float(part) for part in described.split("|")[2:-1]]
    by_method = {
        record["method"]: 100 * record["error"]
        for record in records
        if record["column"] == "cao2019-64/tiny-imagenet-sorted:long-tail:100"
    }
    wanted = [by_method[method] for method in ("baseline", "class-balanced", "ldam-drw")]
    assert errors == pytest.approx(wanted, abs=0.005)


def test_the_text_says_how_far_the_recipe_as_described_is():
    text = table2_readings_text(load_records(RECORDS))
    assert text.startswith("- As described: Baseline -0.5, CB +3.0 and LDAM-DRW +5.6 points.")


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
        "- All three networks are within a point in 0 of the 4 readings that have them all." in text
    )


def test_plain_training_is_not_repeated_where_only_class_weights_change():
    column = "cao2019-64-class/tiny-imagenet-sorted:long-tail:100"
    trained = [t.spec.method for t in trainings("table2-readings") if t.column == column]
    assert sorted(set(trained)) == ["class-balanced", "ldam-drw"]
    described, changed = (
        [float(part) for part in line.split("|")[2:-1]]
        for line in table2_readings_table(load_records(RECORDS)).splitlines()
        if line.startswith(("| as described", "| class weights of mean 1"))
    )
    assert changed[0] == described[0]
    assert changed[1] != described[1]


def test_the_text_says_which_readings_come_near():
    text = table2_readings_text(load_records(RECORDS))
    assert "- LDAM-DRW is within a point in no reading." in text
    (near,) = [line for line in text.splitlines() if line.startswith("- CB is within a point")]
    assert "weight decay 5e-4" in near
    assert "class weights of mean 1" in near
