"""Keys of specs: they name runs and records on other people's disks, so they never change."""

import json
from pathlib import Path

from levelhead.runs.spec import Spec

RECORDS = Path(__file__).parents[2] / "results" / "records"
SAME_NAME = ("data", "method", "profile", "ratio", "hold_out", "net", "stem", "seed", "engine", "dtype")


def spec_of(identity: dict) -> Spec:
    recipe = identity["recipe"]
    return Spec(**{name: identity[name] for name in SAME_NAME}, recipe=recipe["name"], epochs=recipe["epochs"])


def test_every_record_still_has_the_key_and_identity_that_it_was_written_with():
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("*.json"))]
    assert len(records) > 200
    specs = [spec_of(record["identity"]) for record in records]
    assert [record["name"] for record, spec in zip(records, specs, strict=True)
            if record["name"][-8:] != spec.key or record["identity"] != spec.identity()] == []


def test_counts_of_ones_own_have_the_keys_that_earlier_versions_gave_them():
    assert Spec("digits", counts=(40, 30, 20, 10)).key == "a0b22df6"
    assert Spec("digits", counts=(("0", 40), ("1", 30)), subset=3).key == "1395f162"
    assert Spec("digits", counts=(40, 30, 20, 10)).identity()["wanted"] == [40, 30, 20, 10]
