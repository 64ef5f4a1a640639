"""`levelhead report`, and `--report` of the commands that choose or judge: from files to a page."""

from __future__ import annotations

import json
import re
from html import unescape

import numpy as np
import pytest

import levelhead as lh

from .held_out import COUNTS, write_held_out


@pytest.fixture
def files(tmp_path, monkeypatch):
    write_held_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TUNE = ("tune", "--logits", "L.npy", "--labels", "Y.npy", "--counts", "C.json")
LOGITS = ("report", "L.npy", "--counts", "C.json", "-o", "p.html")


def words_of(path) -> str:
    """Return what a page says: its text, without scripts, styles and charts."""
    text = path.read_text(encoding="utf-8")
    for hidden in ("script", "style", "svg"):
        text = re.sub(rf"<{hidden}.*?</{hidden}>", "", text, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_logits_with_labels(files, levelhead):
    status, out, _ = levelhead(*LOGITS, "--labels", "Y.npy", "--json")
    assert status == 0
    assert json.loads(out) == {"page": "p.html", "bytes": (files / "p.html").stat().st_size}
    tuned = lh.tune(np.load("L.npy"), np.load("Y.npy"), COUNTS)
    said = words_of(files / "p.html")
    assert tuned.change_text() in said
    assert tuned.verdict_text() in said


def test_counts_metric_and_rule_are_those_of_tune(files, levelhead):
    words = ("report", "L.npy", "--labels", "Y.npy", "-o", "p.html")
    assert levelhead(*words, "--metric", "macro_f1", "--rule", "vector")[0] == 0
    tuned = lh.tune(np.load("L.npy"), np.load("Y.npy"), metric="macro_f1", rule="vector")
    assert tuned.change_text() in words_of(files / "p.html")


def test_logits_without_labels(files, levelhead):
    assert levelhead(*LOGITS)[0] == 0
    said = words_of(files / "p.html")
    assert "there are no labels" in said
    assert "Recall before" not in said


def test_one_file_may_hold_logits_labels_and_counts(files, levelhead):
    np.savez("all.npz", logits=np.load("L.npy"), labels=np.load("Y.npy"), counts=COUNTS)
    status, _, err = levelhead("report", "all.npz", "-o", "p.html")
    assert (status, err.count("\n")) == (0, 1)
    assert "labels and counts are those in all.npz" in err
    np.save("Z.npy", np.load("Y.npy")[::-1])
    status, _, err = levelhead("report", "all.npz", "--labels", "Z.npy", "-o", "q.html")
    assert (status, err.count("\n"), (files / "q.html").exists()) == (2, 1, False)
    assert "all.npz: holds labels too, and Z.npy differs" in err


def test_a_choice_leads_back_to_its_files_from_anywhere(files, levelhead, monkeypatch):
    assert levelhead(*TUNE, "-o", "tuned.json")[0] == 0
    (files / "elsewhere").mkdir()
    monkeypatch.chdir(files / "elsewhere")
    assert levelhead("report", "../tuned.json", "-o", "p.html")[0] == 0
    said = words_of(files / "elsewhere" / "p.html")
    assert lh.Tuned.load("../tuned.json").change_text() in said
    assert "Which classes are confused" in said


def test_a_choice_is_not_shown_on_other_samples_than_its_own(files, levelhead):
    levelhead(*TUNE, "-o", "tuned.json")
    np.save("Y.npy", np.load("Y.npy")[::-1])
    assert levelhead("report", "tuned.json", "-o", "p.html")[0] == 0
    said = words_of(files / "p.html")
    assert "it has changed since" in said
    assert "Which classes are confused" not in said


@pytest.mark.parametrize("rows", [slice(None), slice(1, None)])
def test_samples_that_had_a_part_in_the_choice_are_known_by_their_bytes(files, levelhead, rows):
    levelhead(*TUNE, "-o", "tuned.json")
    np.save("M.npy", np.load("L.npy")[rows])
    np.save("Z.npy", np.load("Y.npy")[rows])
    more = ("--labels", "Z.npy", "--counts", "C.json", "--tuned", "tuned.json")
    assert levelhead("report", "M.npy", *more, "-o", "p.html")[0] == 0
    same = "Measured on the same 113 samples" in words_of(files / "p.html")
    assert same == (rows.start is None)


def test_other_labels_for_the_samples_of_a_choice_are_refused(files, levelhead):
    levelhead(*TUNE, "-o", "tuned.json")
    np.save("Z.npy", np.load("Y.npy")[::-1])
    status, out, err = levelhead(*LOGITS, "--labels", "Z.npy", "--tuned", "tuned.json")
    assert (status, out) == (2, "")
    assert "Z.npy: not the labels that the choice was made with, for the same logits" in err
    assert not (files / "p.html").exists()


def test_a_choice_without_labels_is_judged_once_its_samples_have_some(files, levelhead):
    tune = ("tune", "--logits", "L.npy", "--counts", "C.json", "-o", "tuned.json")
    assert levelhead(*tune)[0] == 0
    assert levelhead(*LOGITS, "--labels", "Y.npy", "--tuned", "tuned.json")[0] == 0
    said = words_of(files / "p.html")
    assert "113 held-out samples whose labels had no part in the choice" in said
    assert "there are no labels" not in said


def test_a_choice_without_its_files_is_shown_alone(files, levelhead):
    tuned = lh.tune(np.load("L.npy"), np.load("Y.npy"), COUNTS)
    tuned.save("alone.json")
    assert levelhead("report", "alone.json", "-o", "p.html")[0] == 0
    assert tuned.change_text() in words_of(files / "p.html")


def test_tune_writes_the_page_of_its_choice(files, levelhead):
    assert levelhead(*TUNE, "--report", "p.html")[0] == 0
    said = words_of(files / "p.html")
    assert "levelhead tune --logits L.npy" in said
    assert "chosen on held-out (113 samples)" in said


def test_the_page_of_tune_takes_a_title_and_the_models_file(files, levelhead):
    named = ("--title", "trees", "--model", "my net.onnx")
    status, _, err = levelhead(*TUNE, "-o", "t.json", "--report", "p.html", *named)
    assert status == 0, err
    said = words_of(files / "p.html")
    assert said.startswith("trees")
    assert "levelhead adjust 'my net.onnx' --tuned t.json" in said
    for option, value in zip(named[::2], named[1::2], strict=True):
        status, _, err = levelhead(*TUNE, option, value)
        told = f"levelhead: {option}: this is for a page; add --report page.html\n"
        assert (status, err) == (2, told)


def test_a_choice_made_on_test_is_called_so(files, levelhead):
    assert levelhead(*TUNE, "--chosen-on", "test", "--report", "p.html")[0] == 0
    assert "chosen on test labels" in words_of(files / "p.html")


def test_titles_and_the_models_file_are_shown(files, levelhead):
    np.save("M.npy", np.load("L.npy") * 2)
    titles = ("--title", "first", "--title", "<second>")
    more = ("M.npy", "--labels", "Y.npy", *titles, "--model", "my net.onnx")
    assert levelhead(*LOGITS, *more)[0] == 0
    said = words_of(files / "p.html")
    assert "first" in said
    assert "<second>" in said
    assert "levelhead adjust 'my net.onnx'" in said
    one_title = ("M.npy", "--labels", "Y.npy", "--title", "only one", "--force")
    status, _, err = levelhead(*LOGITS, *one_title)
    assert (status, "--title: expected 2, one for each model, got 1" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["C.json"], "not a file that `levelhead tune` wrote"),
        (["page.doc"], "expected a run's folder, a snapshot, a tuned.json, or logits as .npy"),
        (["missing.npy", "--counts", "C.json"], "missing.npy: no such file"),
        (["missing.safetensors"], "no such file"),
        (["broken.safetensors"], "cut short, or not a safetensors file"),
        (
            ["L.npy", "--counts", "C.json", "--labels", "short.npy"],
            "short.npy: expected 113 labels, one per row of L.npy, got 3",
        ),
        (["L.npy", "--counts", "short.npy"], "expected 4 counts, one per class, got 3"),
        (["L.npy", "--rule", "magic"], "--rule: expected 'offsets', 'shift', 'rescale', 'tau'"),
        (
            ["L.npy", "--labels", "Y.npy", "--metric", "magic"],
            "--metric: expected error, balanced_error",
        ),
        (
            ["L.npy", "--counts", "C.json", "--rule", "tau"],
            "levelhead: --rule: 'tau' needs the weight norms of the head\n",
        ),
        (["L.npy", "--labels", "Y.npy", "--tuned", "seven.json"], "7"),
        (["L.npy", "--tuned", "old.json"], "an older levelhead wrote it"),
        (["text.json"], "text.json: not a file that `levelhead tune` wrote (scale: expected"),
        (["sourceless.json"], "(sources: not a JSON object)"),
        (["L.npy", "--tuned", "sourceless.json"], "(sources: not a JSON object)"),
        (["unfinished.json"], "not a file that `levelhead tune` wrote (sources: no 'sha256')"),
        (
            ["none.npy", "--counts", "C.json"],
            "none.npy: expected logits [N, K] of at least 1 sample and 2 classes, got shape [0, 4]",
        ),
        (["tuned.json", "--rule", "shift"], "--rule: the choice is made already, in a tuned.json"),
        (
            ["tuned.json", "--tuned", "seven.json"],
            "--tuned: tuned.json is a choice already; leave it out",
        ),
        (
            ["tuned.json", "--labels", "Y.npy"],
            "--labels: this is for logits; leave it out",
        ),
        (
            ["tuned.json", "--chosen-on", "test"],
            "--chosen-on: this is for logits; leave it out",
        ),
        (
            ["all.npz", "--counts", "5,4,3,2"],
            "all.npz: holds counts too, and the counts given differ from them; leave out",
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(files, levelhead, words, says):
    (files / "broken.safetensors").write_bytes(b"no")
    np.save("short.npy", np.array([1, 2, 3]))
    np.save("none.npy", np.ones((0, 4)))
    np.savez("all.npz", logits=np.load("L.npy"), counts=COUNTS)
    with lh.warnings.quiet():
        tuned = lh.tune_unlabelled(np.load("L.npy")).to_dict()
        lh.tune_unlabelled(2 + np.eye(7)).save("seven.json")
    for name, entries in {
        "tuned": tuned,
        "old": {"gamma": 0.5, "rule": "rescale", "chosen_on": "held-out"},
        "text": tuned | {"scale": "1"},
        "sourceless": tuned | {"sources": "x"},
        "unfinished": tuned | {"sources": {"files": {}}},
    }.items():
        (files / f"{name}.json").write_text(json.dumps(entries))
    before = sorted(files.iterdir())
    status, out, err = levelhead("report", *words, "-o", "p.html")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert sorted(files.iterdir()) == before


def test_a_choice_stands_beside_logits_with_their_labels(files, levelhead):
    levelhead(*TUNE, "-o", "tuned.json")
    np.save("M.npy", 2 * np.load("L.npy"))
    inputs = ("report", "tuned.json", "M.npy", "--labels", "Y.npy")
    assert levelhead(*inputs, "-o", "p.html")[0] == 0
    said = words_of(files / "p.html")
    assert "2 models side by side" in said
    assert "cannot be compared" not in said
    assert "different samples" not in said


def test_models_of_other_targets_or_samples_are_said_to_be_so(files, levelhead):
    levelhead(*TUNE, "-o", "first.json")
    np.save("half.npy", np.load("L.npy")[::2])
    np.save("half-labels.npy", np.load("Y.npy")[::2])
    half = ("--logits", "half.npy", "--labels", "half-labels.npy", "--counts", "C.json")
    levelhead("tune", *half, "--target", "1,1,1,1", "-o", "second.json")
    assert levelhead("report", "first.json", "second.json", "-o", "p.html")[0] == 0
    said = words_of(files / "p.html")
    assert "Accuracy and macro F1 are in the mix of each model's own target, and cannot" in said
    assert "They are judged on different samples." in said


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
