"""Folders of runs whose files were damaged: one line that names the file."""

import json
import os

import numpy as np
import pytest

from levelhead import Head
from levelhead.support.errors import LevelheadError
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.runs.export import load
from levelhead_lab.runs.run_folder import Run
from levelhead_lab.runs.subject import of_run

DEEP = "[" * 100_000


@pytest.fixture
def folder(tmp_path):
    samples = {"test": np.eye(3) + 1}, {"test": np.arange(3)}
    Snapshot(Head(np.eye(3)), np.array([90, 30, 10]), *samples).save(
        tmp_path / "snapshot.safetensors"
    )
    for name, text in (
        ("spec.json", '{"data": "digits"}'),
        ("done.json", "{}"),
        ("log.jsonl", '{"epoch": 1}\n'),
    ):
        (tmp_path / name).write_text(text)
    of_run(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spec.json", f'{{"a": {DEEP}'),
        ("spec.json", "[]"),
        ("spec.json", '{"spec": 3}'),
        ("spec.json", '{"versions": 3}'),
        ("done.json", '{"sha256": [1]}'),
        ("done.json", '{"sha256": {"../x": ""}}'),
        ("done.json", '{"sha256": {"": ""}}'),
        ("done.json", json.dumps({"sha256": {"9" * 5000: ""}})),
        ("log.jsonl", f"{DEEP}}}\n"),
        ("log.jsonl", '5\n{"epoch": "x"}\n'),
        ("log.jsonl", '["epoch"}\n'),
    ],
)
def test_a_damaged_file_of_a_run_is_named(folder, name, text):
    (folder / name).write_text(text)
    with pytest.raises(LevelheadError, match=rf"{name}: damaged"):
        of_run(folder)


def test_bytes_that_are_not_text_and_pipes_are_refused(folder):
    (folder / "log.jsonl").write_bytes(b"\xff}\n")
    with pytest.raises(LevelheadError, match=r"log\.jsonl: damaged"):
        _ = Run(folder).log
    (folder / "snapshot.safetensors").unlink()
    os.mkfifo(folder / "snapshot.safetensors")
    with pytest.raises(LevelheadError, match=r"snapshot\.safetensors: a pipe"):
        _ = Run(folder).snapshot


def test_a_network_that_is_cut_short_is_refused(tmp_path):
    (tmp_path / "adjusted.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}")
    with pytest.raises(LevelheadError, match=r"adjusted\.safetensors: cut short"):
        load(tmp_path / "adjusted.safetensors")
