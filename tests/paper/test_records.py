"""The records that come with the source: each belongs to a planned training, is small, and is complete."""

import hashlib
import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.paper import column_sha256 as bench
from levelhead_lab.paper.cells import load_records
from levelhead_lab.paper.tables import official_sha256
from levelhead_lab.paper.trainings import TABLES, Training, trainings
from tools import layouts

from .made import made

RECORDS = sorted((Path(__file__).parents[2] / "results" / "records").glob("*.json"))


def faults(path: Path, planned: dict[str, list[Training]]) -> list[str]:
    """What is wrong with a record, in words. A training is planned by each table that needs it."""
    record = json.loads(path.read_text(encoding="utf-8"))
    if path.stem not in planned:
        return ["a planned training"]
    training = planned[path.stem][0]
    commands = [training.command for training in planned[path.stem]]
    held = {
        "the name of its file": path.stem == record["name"],
        "the place of its training": (record["column"], record["method"], record["seed"])
        == (training.column, training.spec.method, training.spec.seed),
        # An older record may have none.
        "the command that makes it again": record.get("command", commands[0]) in commands,
        "at most 20 KB": path.stat().st_size <= 20_000,
        "10,000 test images": record["n_test"] == 10_000,
        "as many training images as its counts add up to": record["n_train"]
        == sum(record["counts"]),
        "a hold-out only where one was asked for": bool(record["held_out"])
        == bool(record["hold_out"]),
        "a curve that is nowhere below its best": min(record["curve"])
        >= record["best_on_test"]["error"] - 1e-6,
        "a curve that begins at its error": record["curve"][0] == record["error"],
        "the data of the official files, if it is an imbalanced CIFAR-100": (
            record.get("data_sha256") == official_sha256(record["column"], record["hold_out"])
            or not path.name.startswith("cifar100-lt")
        ),
        "versions, device, seconds, identity": {"versions", "device", "seconds", "identity"}
        <= record.keys(),
    }
    return [what for what, holds in held.items() if not holds]


def test_every_record_is_of_a_planned_training_and_complete():
    planned: dict[str, list[Training]] = {}
    for table in TABLES:
        for training in trainings(table):
            planned.setdefault(training.name, []).append(training)
    assert RECORDS
    assert {path.stem: wrong for path in RECORDS if (wrong := faults(path, planned))} == {}


def test_a_record_of_other_data_is_refused(tmp_path):
    source = next(
        path for path in RECORDS if path.name.startswith("cifar100-lt100-baseline-0-held")
    )
    record = json.loads(source.read_text(encoding="utf-8"))
    (tmp_path / source.name).write_text(json.dumps(record))
    assert load_records(tmp_path) == [record]
    record["data_sha256"]["held-out"] = "0" * 64
    (tmp_path / source.name).write_text(json.dumps(record))
    with pytest.raises(
        ValueError,
        match=r"json: its held-out images or labels are not those of the official files for "
        rf"{record['column']}; remove the record",
    ):
        load_records(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"one\.json: not a record"),
        ('{"column": "cifar10:100"', r"one\.json: not a record"),
        ("[1, 2]", r"one\.json: not a record, expected a JSON object"),
        ("null", r"one\.json: not a record, expected a JSON object"),
        (
            '{"column": "cifar10:100"}',
            r"one\.json: not a record, it has no best_epoch, best_on_test, .*; remove it",
        ),
        ("\udcff", r"one\.json: not a record"),
    ],
)
def test_a_file_that_is_not_a_record_is_named(levelhead, tmp_path, content, message):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "one.json").write_text(content, errors="surrogateescape")
    with pytest.raises(ValueError, match=message):
        load_records(tmp_path / "records")
    status, _, err = levelhead(
        "reproduce", "figures", "--results", tmp_path / "records", "--docs", tmp_path
    )
    assert (status, err.count("\n")) == (2, 1)


def test_two_records_of_one_network_are_not_counted_as_two(tmp_path):
    source = next(path for path in RECORDS if path.name.startswith("cifar10-lt100-baseline-1"))
    record = json.loads(source.read_text(encoding="utf-8"))
    for name in ("new.json", "old.json"):
        (tmp_path / name).write_text(json.dumps(record))
    with pytest.raises(
        ValueError,
        match=r"new\.json and old\.json are records of one network .*; remove one of them",
    ):
        load_records(tmp_path)
    (tmp_path / "old.json").write_text(json.dumps(record | {"seed": 7}))
    assert [loaded["seed"] for loaded in load_records(tmp_path)] == [1, 7]


@pytest.mark.slow
def test_figures_and_tables_are_made_from_the_records_that_are_named(levelhead, tmp_path):
    for folder, error in (("records", 0.1234), ("mine", 0.4321), ("figures", None)):
        (tmp_path / folder).mkdir()
        if error:
            (tmp_path / folder / "one.json").write_text(json.dumps(made(error=error)))
    shutil.copy(RECORDS[0].parents[1] / "figures" / "boundary.json", tmp_path / "figures")
    page = tmp_path / "reproduction.md"
    shutil.copy(RECORDS[0].parents[2] / "docs" / "reproduction.md", page)
    words = ("--results", tmp_path / "mine", "--docs", tmp_path, "--pictures", tmp_path / "images")
    assert levelhead("reproduce", "figures", *words)[0] == 0
    assert "| 43.21 |" in page.read_text(encoding="utf-8")
    assert "| 12.34 |" not in page.read_text(encoding="utf-8")


def test_every_column_has_the_sha256_of_its_splits():
    wanted = {(t.column, t.spec.hold_out) for table in TABLES for t in trainings(table)}
    assert [
        column
        for column, hold_out in wanted
        if set(official_sha256(column, hold_out) or ())
        != ({"train", "held-out", "test"} if hold_out else {"train", "test"})
    ] == []


def test_digests_are_those_of_the_very_images_and_replace_only_their_own_lines(
    tmp_path, monkeypatch
):
    """Against a naive computation from CIFAR's binary records."""
    layouts.write_cifar10_binary(tmp_path)
    one_training = [
        replace(t, spec=replace(t.spec, root=str(tmp_path), unofficial=True, largest=4))
        for t in trainings("table1", only=["cifar10:10:baseline"], seeds=1)
        if not t.spec.hold_out
    ]
    monkeypatch.setattr(
        bench, "trainings", lambda table, **_: one_training if table == "table1" else []
    )
    digests = bench.column_digests(tmp_path)
    rows = np.fromfile(tmp_path / "cifar-10-batches-bin" / "test_batch.bin", np.uint8).reshape(
        -1, 3073
    )
    digest = hashlib.sha256(
        str((len(rows), 3, 32, 32)).encode()
        + rows[:, 1:].tobytes()
        + rows[:, 0].astype("<i8").tobytes()
    )
    assert digests["cifar10:10"]["test"] == digest.hexdigest()
    file = tmp_path / "tables.toml"
    file.write_text("[a]\nb = 1\n")
    for _ in range(2):
        bench.write_digests(digests, file)
        assert tomllib.loads(file.read_text()) == {"a": {"b": 1}, "sha256": digests}
