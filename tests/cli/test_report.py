"""`levelhead report`, and `--report` of the commands that choose or judge: from files to a page."""

from __future__ import annotations

import json

import numpy as np
import pytest

from levelhead import Head, Snapshot, tune
from levelhead_lab.paper.cells import RECORD_KEYS

COUNTS = [1000, 300, 90, 27]


@pytest.fixture
def files(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), [60, 30, 15, 8])
    logits = (5 + rng.normal(size=(113, 4)) + 2 * np.eye(4)[labels]) * (
        np.array(COUNTS) / 1000
    ) ** 0.3
    np.save(tmp_path / "L.npy", logits)
    np.save(tmp_path / "Y.npy", labels)
    (tmp_path / "C.json").write_text(json.dumps(COUNTS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


BARE = {"gamma": 0.5, "rule": "rescale", "chosen_on": "held-out"}
TUNE = ("tune", "--logits", "L.npy", "--labels", "Y.npy", "--counts", "C.json", "--bootstrap", "20")
LOGITS = ("report", "L.npy", "--counts", "C.json", "-o", "p.html", "--bootstrap", "20")


def facts(path) -> dict:
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('id="data">')[1].split("</script>")[0])


def test_logits_with_labels(files, levelhead):
    status, out, _ = levelhead(*LOGITS, "--labels", "Y.npy", "--json")
    assert status == 0
    assert json.loads(out) == {"page": "p.html", "bytes": (files / "p.html").stat().st_size}
    assert facts(files / "p.html")["subjects"][0]["labelled"]


def test_logits_without_labels(files, levelhead):
    assert levelhead(*LOGITS)[0] == 0
    assert not facts(files / "p.html")["subjects"][0]["labelled"]


def test_one_file_may_hold_logits_labels_and_counts(files, levelhead):
    np.savez("all.npz", logits=np.load("L.npy"), labels=np.load("Y.npy"), counts=COUNTS)
    status, _, err = levelhead("report", "all.npz", "-o", "p.html", "--bootstrap", "20")
    assert (status, err.count("\n")) == (0, 1)
    assert "labels and counts are those in all.npz" in err
    assert facts(files / "p.html")["subjects"][0]["labelled"]
    np.save("Z.npy", np.load("Y.npy")[::-1])
    status, _, err = levelhead("report", "all.npz", "--labels", "Z.npy", "-o", "q.html")
    assert (status, err.count("\n"), (files / "q.html").exists()) == (2, 1, False)
    assert "all.npz: holds labels too, and Z.npy differs" in err


def test_a_choice_leads_back_to_its_files_from_anywhere(files, levelhead, monkeypatch):
    assert levelhead(*TUNE, "-o", "tuned.json")[0] == 0
    (files / "elsewhere").mkdir()
    monkeypatch.chdir(files / "elsewhere")
    assert levelhead("report", "../tuned.json", "-o", "p.html")[0] == 0
    shown = facts(files / "elsewhere" / "p.html")["subjects"][0]
    assert shown["gamma"] == json.loads((files / "tuned.json").read_text())["gamma"]
    assert shown["path"]["samples"] == [60, 30, 15, 8]


def test_a_choice_is_not_shown_on_other_samples_than_its_own(files, levelhead):
    levelhead(*TUNE, "-o", "tuned.json")
    np.save("Y.npy", np.load("Y.npy")[::-1])
    status, _, err = levelhead("report", "tuned.json", "-o", "p.html")
    assert status == 2
    assert "gamma was chosen on other labels than Y.npy now holds" in err


@pytest.mark.parametrize(
    ("rows", "words"), [(slice(None), "measured on the same"), (slice(1, None), "no part in")]
)
def test_samples_that_had_a_part_in_the_choice_are_known_by_their_bytes(
    files, levelhead, rows, words
):
    levelhead(*TUNE, "-o", "tuned.json")
    np.save("M.npy", np.load("L.npy")[rows])
    np.save("Z.npy", np.load("Y.npy")[rows])
    more = ("--labels", "Z.npy", "--counts", "C.json", "--tuned", "tuned.json")
    assert levelhead("report", "M.npy", *more, "-o", "p.html")[0] == 0
    assert words in (files / "p.html").read_text(encoding="utf-8")


def test_a_choice_without_its_files_is_shown_alone(files, levelhead):
    levelhead(*TUNE, "-o", "tuned.json")
    kept = json.loads((files / "tuned.json").read_text())
    del kept["sources"]
    (files / "old.json").write_text(json.dumps(kept | {"classes": None}))
    assert levelhead("report", "old.json", "-o", "p.html")[0] == 0
    assert facts(files / "p.html")["subjects"][0]["path"] is None
    assert "Ship the adjusted model" in (files / "p.html").read_text()


def test_a_choice_that_rescale_takes_is_enough_for_a_page(files, levelhead):
    (files / "bare.json").write_text(json.dumps(BARE))
    assert levelhead(*LOGITS, "--labels", "Y.npy", "--tuned", "bare.json")[0] == 0
    assert "gamma = 0.500 was chosen on held-out samples" in (files / "p.html").read_text(
        encoding="utf-8"
    )


def test_tune_writes_the_page_of_its_choice(files, levelhead):
    assert levelhead(*TUNE, "--report", "p.html")[0] == 0
    text = (files / "p.html").read_text(encoding="utf-8")
    assert "levelhead tune --logits L.npy" in text
    assert "was chosen on 113 held-out samples" in text


def test_the_page_of_tune_takes_a_title_and_the_models_file(files, levelhead):
    named = ("--title", "trees", "--model", "my net.onnx")
    status, _, err = levelhead(
        *TUNE, "--rule", "rescale", "-o", "t.json", "--report", "p.html", *named
    )
    assert status == 0, err
    page = (files / "p.html").read_text("utf-8")
    assert facts(files / "p.html")["subjects"][0]["title"] == "trees"
    assert "levelhead adjust &#39;my net.onnx&#39; --tuned t.json" in page
    for option, value in zip(named[::2], named[1::2], strict=True):
        status, _, err = levelhead(*TUNE, option, value)
        assert (status, err) == (
            2,
            f"levelhead: {option}: this is for a page; add --report page.html\n",
        )


def test_a_gamma_chosen_on_test_is_called_so(files, levelhead):
    assert levelhead(*TUNE, "--chosen-on", "test", "--report", "p.html")[0] == 0
    assert "Gamma was chosen on test labels" in (files / "p.html").read_text(encoding="utf-8")


def test_a_run_and_logits_stand_side_by_side(files, levelhead):
    folder = files / "runs" / "one"
    folder.mkdir(parents=True)
    features, labels = np.load("L.npy"), np.load("Y.npy")
    splits = (
        {"held-out": features, "test": features[::2]},
        {"held-out": labels, "test": labels[::2]},
    )
    Snapshot(Head(np.eye(4)), np.array(COUNTS), *splits).save(folder / "snapshot.safetensors")
    (folder / "spec.json").write_text(json.dumps({"spec": {"data": "digits", "method": "wvn"}}))
    (folder / "log.jsonl").write_text(
        "".join(json.dumps({"epoch": e, "norms": [1, 1, 1, e]}) + "\n" for e in (1, 2))
    )
    assert "not finished" in levelhead("report", str(folder), "-o", "p.html")[2]
    (folder / "done.json").write_text("{}")
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"epoch": 3, "no')  # cut off, as a full disk may leave it
    assert levelhead(*LOGITS, str(folder), "--labels", "Y.npy")[0] == 0
    first, second = facts(files / "p.html")["subjects"]
    assert first["log"] is None
    assert second["log"]["epochs"] == [1, 2]
    assert second["path"]["samples"] == np.bincount(labels[::2]).tolist()
    assert levelhead("evaluate", str(folder), "--report", "e.html")[0] == 0
    paper = tune(
        features, labels, COUNTS, rule="rescale", bootstrap=0
    )  # a report chooses the rule too
    assert facts(files / "e.html")["subjects"][0]["gamma"] == pytest.approx(paper.gamma)


def test_titles_and_the_models_file_are_shown(files, levelhead):
    np.save("M.npy", np.load("L.npy") * 2)
    more = (
        "M.npy",
        "--labels",
        "Y.npy",
        "--title",
        "first",
        "--title",
        "<second>",
        "--model",
        "my net.onnx",
    )
    assert levelhead(*LOGITS, *more)[0] == 0
    assert [one["title"] for one in facts(files / "p.html")["subjects"]] == ["first", "<second>"]
    assert "levelhead adjust &#39;my net.onnx&#39;" in (files / "p.html").read_text(
        encoding="utf-8"
    )
    status, _, err = levelhead(
        *LOGITS, "M.npy", "--labels", "Y.npy", "--title", "only one", "--force"
    )
    assert (status, "--title: expected 2, one for each model, got 1" in err) == (2, True)


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
    ("words", "says"),
    [
        (
            ["L.npy"],
            "L.npy: no array 'counts' next to the logits in this file; pass --counts to give",
        ),
        (["C.json"], "not a file that `levelhead tune` wrote"),
        (["page.doc"], "expected a run's folder, a snapshot, a tuned.json, or logits as .npy"),
        (["missing.npy", "--counts", "C.json"], "missing.npy: no such file"),
        (["missing.safetensors"], "no such file"),
        (["broken.safetensors"], "cut short, or not a safetensors file"),
        (["runs"], "runs: not a run"),
        (
            ["L.npy", "--counts", "C.json", "--labels", "short.npy"],
            "short.npy: expected 113 labels, one per row of L.npy, got 3",
        ),
        (["L.npy", "--counts", "short.npy"], "expected 4 counts, one per class, got 3"),
        (["L.npy", "--counts", "C.json", "--gamma", "-1"], "expected a gamma from 0 to 50, got -1"),
        (
            ["L.npy", "--counts", "C.json", "--gamma", "1e6"],
            "expected a gamma from 0 to 50, got 1e+06",
        ),
        (["unlike-records"], "not a run"),
        (["damaged"], "damaged/spec.json: damaged, expected a JSON object"),
        (
            ["L.npy", "--counts", "C.json", "--rule", "magic"],
            "'magic' is not one of 'rescale', 'tau', 'shift'",
        ),
        (["L.npy", "--counts", "C.json", "--rule", "tau"], "needs the weight norms"),
        (
            ["L.npy", "--counts", "C.json", "--tuned", "seven.json"],
            "chosen on logits of 7 classes, but these have 4",
        ),
        (
            ["L.npy", "--counts", "C.json", "--tuned", "large.json"],
            "expected a gamma from 0 to 50, got 1e+06",
        ),
        (
            ["L.npy", "--counts", "C.json", "--tuned", "below.json"],
            "expected a gamma from 0 to 50, got -1",
        ),
        (
            ["L.npy", "--counts", "C.json", "--tuned", "text.json"],
            "text.json: not a file that `levelhead tune` wrote",
        ),
        (
            ["sourceless.json"],
            "not a file that `levelhead tune` wrote (sources: not a JSON object)",
        ),
        (
            ["L.npy", "--counts", "C.json", "--tuned", "sourceless.json"],
            "(sources: not a JSON object)",
        ),
        (["unfinished.json"], "not a file that `levelhead tune` wrote (sources: no 'sha256')"),
        (
            ["many.json"],
            "not a file that `levelhead tune` wrote (classes: expected a whole number, got 'many')",
        ),
        (
            ["endless.json"],
            "not a file that `levelhead tune` wrote (gamma: expected a number, got 1000",
        ),
        (
            ["sure.json"],
            "not a file that `levelhead tune` wrote (level: expected a number between 0 and 1, got 1)",
        ),
        (
            ["none.npy", "--counts", "C.json"],
            "none.npy: expected logits [N, K] of at least 1 sample and 2 classes, got shape [0, 4]",
        ),
        (
            ["L.npy", "--counts", "C.json", "--gamma", "1", "--tuned", "C.json"],
            "--gamma: expected a gamma or a tuned.json, got both",
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(files, levelhead, words, says):
    (files / "broken.safetensors").write_bytes(b"no")
    (files / "runs").mkdir()
    for name, file, text in (
        ("unlike-records", "a.json", '{"column": "x", "method": "y"}'),
        ("damaged", "spec.json", "["),
        ("damaged", "done.json", "{}"),
    ):
        (files / name).mkdir(exist_ok=True)
        (files / name / file).write_text(text)
    np.save("short.npy", np.array([1, 2, 3]))
    np.save("none.npy", np.ones((0, 4)))
    for name, one in {
        "seven": {"classes": 7},
        "large": {"gamma": 1e6},
        "below": {"gamma": -1},
        "text": {"gamma": "1"},
        "sourceless": {"sources": "x"},
        "unfinished": {"sources": {"files": {}}},
        "many": {"classes": "many"},
        "endless": {"gamma": 10**400},
        "sure": {"level": 1},
    }.items():
        (files / f"{name}.json").write_text(json.dumps(BARE | one))
    before = sorted(files.iterdir())
    status, out, err = levelhead("report", *words, "-o", "p.html")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert sorted(files.iterdir()) == before


def test_an_existing_page_is_kept_unless_forced(files, levelhead):
    (files / "p.html").write_text("mine")
    assert "pass --force" in levelhead(*LOGITS)[2]
    assert (files / "p.html").read_text() == "mine"
    assert levelhead(*LOGITS, "--force")[0] == 0
    assert (files / "p.html").read_text() != "mine"


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("p.pdf", "expected a page that ends in .html"),
        ("nowhere/p.html", "nowhere: no such folder"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_any_work(files, levelhead, out, says):
    status, _, err = levelhead("report", "L.npy", "--counts", "C.json", "-o", out)
    assert (status, says in err) == (2, True)
