"""The records that come with the source: each is of a planned training, small, and complete."""

import json
from pathlib import Path

import pytest

from levelhead.paper.trainings import TABLES, trainings

RECORDS = sorted((Path(__file__).parents[2] / "results" / "records").glob("*.json"))


@pytest.fixture(scope="module")
def planned() -> dict[str, tuple[str, str, int]]:
    """Of every training of every table: its record's name, and what it is of."""
    return {t.name: (t.column, t.spec.method, t.spec.seed) for table in TABLES for t in trainings(table)}


def test_there_are_records():
    assert RECORDS


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_of_a_planned_training(path, planned):
    record = json.loads(path.read_text(encoding="utf-8"))
    assert path.stem == record["name"]
    assert planned[path.stem] == (record["column"], record["method"], record["seed"])
    assert path.stat().st_size <= 20_000
    assert record["n_test"] == 10_000
    assert record["n_train"] == sum(record["counts"])
    assert bool(record["held_out"]) == bool(record["hold_out"])
    assert min(record["curve"]) >= record["best_on_test"]["error"] - 1e-6
    assert record["curve"][0] == record["error"]
    assert {"versions", "device", "seconds", "identity"} <= record.keys()
