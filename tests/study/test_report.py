"""`levelhead report` of runs, and of the records of the paper."""

import json

import numpy as np
import pytest

import levelhead as lh
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.paper.cells import RECORD_KEYS

from ..cli.test_report import COUNTS, LOGITS, words_of


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = np.repeat(np.arange(4), [60, 30, 15, 8])
    noise = np.random.default_rng(0).normal(size=(113, 4))
    np.save("L.npy", (5 + noise + 2 * np.eye(4)[labels]) * (np.array(COUNTS) / 1000) ** 0.3)
    np.save("Y.npy", labels)
    (tmp_path / "C.json").write_text(json.dumps(COUNTS))
    return tmp_path


def test_a_run_and_logits_stand_side_by_side(files, levelhead):
    folder = files / "runs" / "one"
    folder.mkdir(parents=True)
    features, labels = np.load("L.npy"), np.load("Y.npy")
    splits = (
        {"held-out": features, "test": features[::2]},
        {"held-out": labels, "test": labels[::2]},
    )
    Snapshot(lh.Head(np.eye(4)), np.array(COUNTS), *splits).save(folder / "snapshot.safetensors")
    (folder / "spec.json").write_text(json.dumps({"spec": {"data": "digits", "method": "wvn"}}))
    (folder / "log.jsonl").write_text(
        "".join(json.dumps({"epoch": e, "norms": [1, 1, 1, e]}) + "\n" for e in (1, 2))
    )
    assert "not finished" in levelhead("report", str(folder), "-o", "p.html")[2]
    (folder / "done.json").write_text("{}")
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"epoch": 3, "no')  # cut off, as a full disk may leave it
    status, _, err = levelhead(*LOGITS, str(folder), "--labels", "Y.npy")
    assert status == 0, err
    said = words_of(files / "p.html")
    assert "113 samples" in said
    assert "57" in said
    status, _, err = levelhead("evaluate", str(folder), "--report", "e.html")
    assert status == 0, err


def test_records_of_the_paper_become_its_tables(files, levelhead):
    (files / "records").mkdir()
    for seed, error in enumerate((0.28, 0.30)):
        record = dict.fromkeys(RECORD_KEYS) | {
            "column": "cifar10:100",
            "method": "over-sample",
            "hold_out": 0,
            "held_out": None,
            "seed": seed,
            "error": error,
            "best_epoch": None,
            "curve": [error],
            "counts": COUNTS,
        }
        (files / "records" / f"{seed}.json").write_text(json.dumps(record))
    assert levelhead("report", "records", "-o", "p.html")[0] == 0
    text = (files / "p.html").read_text(encoding="utf-8")
    assert "29.00 ± 1.41" in text
    assert "Table 3, CIFAR-10" in text


@pytest.mark.parametrize(
    ("folder", "contents", "says"),
    [
        ("empty", {}, "empty: not a run"),
        ("unlike-records", {"a.json": '{"column": "x", "method": "y"}'}, "not a run"),
        (
            "damaged",
            {"spec.json": "[", "done.json": "{}"},
            "damaged/spec.json: damaged, expected a JSON object",
        ),
    ],
)
def test_a_folder_that_is_no_run_is_one_line_and_nothing_is_written(
    files, levelhead, folder, contents, says
):
    (files / folder).mkdir()
    for name, text in contents.items():
        (files / folder / name).write_text(text)
    before = sorted(files.iterdir())
    status, out, err = levelhead("report", folder, "-o", "p.html")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert sorted(files.iterdir()) == before
