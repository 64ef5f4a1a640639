"""A command that trains a cell ends with its rows: ours, the published number, the distance, where gamma is from."""

import json
import shutil
from pathlib import Path
from statistics import mean, stdev

import pytest

from levelhead_lab.paper.asked_rows import rows_of, rows_text
from levelhead_lab.paper.trainings import trainings

from .made import made

RECORDS = Path(__file__).parents[2] / "results" / "records"


@pytest.fixture
def of_one_cell(tmp_path) -> Path:
    """The records of one cell alone."""
    for path in RECORDS.glob("cifar10-lt100-wvn-*.json"):
        record = json.loads(path.read_text())
        if (record["column"], record["method"]) == ("cifar10:100", "wvn"):
            shutil.copy(path, tmp_path)
    return tmp_path


def test_a_cell_ends_with_its_rows_and_trains_nothing(levelhead, of_one_cell):
    words = ("reproduce", "table1", "--only", "cifar10:100:wvn", "--results", of_one_cell)
    status, out, err = levelhead(*words)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "table1: 4 of 4 networks have a record; nothing to train"
    runs = [json.loads(path.read_text()) for path in of_one_cell.iterdir()]
    (held,) = [run for run in runs if run["hold_out"]]
    gamma = held["held_out"]["rescale"]["gamma"]
    errors = [100 * run["curve"][round(100 * gamma)] for run in runs if not run["hold_out"]]
    (row,) = [line for line in lines if "training images held out" in line]
    assert row.split()[:2] == ["cifar10:100", "WVN+RS"]
    assert f"{mean(errors):.2f} ± {stdev(errors):.2f}" in row
    assert f" 20.17 {mean(errors) - 20.17:+.2f} " in " ".join(row.split())
    assert row.endswith(f"{gamma:.2f}, chosen on training images held out")
    assert any("WVN " in line and "29.34 ± 0.53" in line for line in lines)  # alone
    assert len(lines[1:]) == 2 + 3  # a blank, the titles, and three rows


def test_the_same_for_programs(levelhead, of_one_cell):
    words = ("reproduce", "table1", "--only", "cifar10:100:wvn", "--results", of_one_cell, "--json")
    rows = json.loads(levelhead(*words)[1])["rows"]
    assert [row["row"] for row in rows] == ["WVN", "WVN+RS", "WVN+RS"]
    assert rows[1]["published"] == 20.17
    assert rows[1]["distance"] == pytest.approx(rows[1]["error"] - 20.17, abs=0.006)
    assert rows[1]["networks"] == 3
    assert rows[0]["published"] is None


def test_what_has_no_record_yet_has_no_row(levelhead, of_one_cell):
    words = ("reproduce", "table1", "--only", "cifar10:100:*wvn*", "--results", of_one_cell)
    lines = levelhead(*words, "--dry-run")[1].splitlines()
    assert lines[-1].startswith("table1: 4 of 5 networks have a record")  # wvn-released is missing
    assert not any("WVN+RS" in line for line in lines)
    assert rows_text([]) == ""


@pytest.mark.parametrize(
    ("table", "cell", "found"),
    [
        ("table1", "cifar10:100:ldam-drw", {"LDAM-DRW": 22.97}),
        ("table1", "cifar10:1:focal", {"Focal loss": 6.60}),
        ("readings", "cifar10:100:over-sample-largest", {"Over-sample to the largest": 28.27}),
        ("readings", "kim2020-batch/cifar10:10:re-weighting", {"Re-weighting": 13.11}),
        ("sources", "cui2019-sigmoid/cifar10:100:cui-focal-1", {"Focal, exponent 1": 29.62}),
        ("table2", "tiny-imagenet:step:10:over-sample", {"Over-sample": 57.23}),
    ],
)
def test_each_row_stands_beside_its_own_published_number(table, cell, found):
    column, _, method = cell.rpartition(":")
    records = [{**made(error=0.3), "column": column, "method": method}]
    rows = rows_of(table, records, trainings(table, only=[cell], seeds=1))
    assert [row.published for row in rows] == list(found.values())
    if table != "sources":
        assert [row.title for row in rows] == list(found)


def test_table_2_has_the_gamma_of_the_paper():
    column = "cao2019-64/tiny-imagenet-sorted:step:10"
    records = [{**made("tiny-imagenet:step:10", error=0.5), "column": column}]
    wanted = trainings("table2-sources", only=[f"{column}:baseline"])
    alone, scaled, best = rows_of("table2-sources", records, wanted)
    assert (alone.published, scaled.published, best.published) == (50.89, 46.77, 46.77)
    assert scaled.gamma == "0.1, as in the paper"
    assert best.gamma == "best on test"


def test_table_3_ends_with_the_oracle_head():
    records = [made(oracle=0.17), made(gamma=0.4)]
    rows = rows_of("table3", records, trainings("table3", only=["cifar10:100:baseline"]))
    assert [row.title for row in rows] == [
        "Baseline",
        "Baseline+RS",
        "Baseline+RS",
        "Baseline+oracle head",
    ]
    assert [row.published for row in rows] == [29.71, 21.36, 21.36, 17.75]
    assert rows[-1].distance == pytest.approx(-0.75)


def test_a_recipe_of_ours_has_no_published_number():
    records = [{**made(error=0.2), "column": "frontier/cifar10:100"}]
    rows = rows_of(
        "frontier", records, trainings("frontier", only=["frontier/cifar10:100:baseline"])
    )
    assert {row.published for row in rows} == {None}
    assert "cifar10:100" in rows_text(rows)


def test_another_precision_needs_a_folder_of_its_own(levelhead, of_one_cell, tmp_path):
    words = ("reproduce", "table1", "--only", "cifar10:100:wvn", "--dtype", "float32", "--dry-run")
    status, _, err = levelhead(*words, "--results", of_one_cell)
    assert status == 2
    assert err.count("\n") == 1
    assert "is a record of cifar10:100, wvn, seed 0 in bfloat16" in err
    assert "--results" in err
    status, out, _ = levelhead(*words, "--results", tmp_path / "again")
    assert status == 0
    assert "0 of 4 networks have a record" in out
    status, _, err = levelhead(*words[:-2], "half", "--results", of_one_cell)
    assert status == 2
    assert "bfloat16" in err
