"""The records that come with the source: each belongs to a planned training, is small, and is complete."""

import json
from pathlib import Path

from levelhead.paper.trainings import TABLES, trainings

RECORDS = sorted((Path(__file__).parents[2] / "results" / "records").glob("*.json"))


def faults(path: Path, planned: dict[str, tuple[str, str, int]]) -> list[str]:
    """What is wrong with a record, in words."""
    record = json.loads(path.read_text(encoding="utf-8"))
    held = {
        "the name of its file": path.stem == record["name"],
        "a planned training": planned.get(path.stem) == (record["column"], record["method"], record["seed"]),
        "at most 20 KB": path.stat().st_size <= 20_000,
        "10,000 test images": record["n_test"] == 10_000,
        "as many training images as its counts add up to": record["n_train"] == sum(record["counts"]),
        "a hold-out only where one was asked for": bool(record["held_out"]) == bool(record["hold_out"]),
        "a curve that is nowhere below its best": min(record["curve"]) >= record["best_on_test"]["error"] - 1e-6,
        "a curve that begins at its error": record["curve"][0] == record["error"],
        "versions, device, seconds, identity": {"versions", "device", "seconds", "identity"} <= record.keys(),
    }
    return [what for what, holds in held.items() if not holds]


def test_every_record_is_of_a_planned_training_and_complete():
    planned = {t.name: (t.column, t.spec.method, t.spec.seed) for table in TABLES for t in trainings(table)}
    assert RECORDS
    assert {path.stem: found for path in RECORDS if (found := faults(path, planned))} == {}
