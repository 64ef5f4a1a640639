"""`levelhead tune`, from files on disk to an answer on the terminal."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from levelhead.core.tuned import write_tuned

from .held_out import COUNTS, write_held_out

NAMES = ["cat", "dog", "owl", "ant"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    logits, labels = write_held_out(tmp_path)
    np.savetxt(
        tmp_path / "L.csv", logits, delimiter=",", header=",".join(NAMES), comments="", fmt="%.17g"
    )
    (tmp_path / "Y.csv").write_text("\n".join(NAMES[y] for y in labels))
    (tmp_path / "named.json").write_text(json.dumps(dict(zip(NAMES, COUNTS, strict=True))))
    monkeypatch.chdir(tmp_path)
    return logits, labels


HELD_OUT = ("tune", "--logits", "L.npy", "--labels", "Y.npy", "--counts", "C.json")


def test_json_is_what_tune_answers(files, levelhead):
    status, out, err = levelhead(*HELD_OUT, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == lh.tune(*files, COUNTS).to_dict()


def test_one_file_may_hold_logits_labels_and_counts(files, levelhead, tmp_path):
    np.savez("all.npz", logits=files[0], labels=files[1], counts=COUNTS)
    status, out, err = levelhead("tune", "--logits", "all.npz", "--json", "-o", "tuned.json")
    assert status == 0
    assert json.loads(out) == json.loads(levelhead(*HELD_OUT, "--json")[1])
    assert err == (
        "levelhead: labels and counts are those in all.npz; to leave them out, name the logits alone: all.npz:logits\n"
    )
    assert levelhead("report", "tuned.json", "-o", "page.html")[::2] == (0, "")
    alone = levelhead("tune", "--logits", "all.npz:logits", "--counts", "all.npz", "--json")
    assert json.loads(alone[1])["chosen_on"] == "unlabelled"


def test_a_folder_of_files_is_tuned_as_one_file(files, levelhead, tmp_path):
    logits, labels = files
    (tmp_path / "parts").mkdir()
    for i, rows in enumerate(np.array_split(np.arange(113), 3)):
        np.savez(tmp_path / "parts" / f"{i}.npz", logits=logits[rows], labels=labels[rows])
    words = ("tune", "--logits", "parts", "--counts", "C.json", "--rule", "rescale", "--json")
    status, out, err = levelhead(*words, "--metric", "macro_f1", "-o", "tuned.json")
    assert (status, err) == (0, "")
    whole = levelhead(*HELD_OUT, "--rule", "rescale", "--metric", "macro_f1", "--json")
    assert json.loads(out) == json.loads(whole[1])
    assert lh.Tuned.load("tuned.json").strength == json.loads(out)["strength"]
    for more in (["--labels", "Y.npy"], ["--report", "page.html"], ["--target", "estimate"]):
        assert levelhead(*words, *more)[0] == 2
    (tmp_path / "none").mkdir()
    assert "found none" in levelhead("tune", "--logits", "none", "--counts", "C.json")[2]


def test_what_lies_beside_the_logits_of_a_folder_is_not_read_as_logits(files, levelhead, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    np.savez(parts / "0.npz", logits=files[0], labels=files[1])
    (parts / "._0.npz").touch()  # what macOS leaves on other file systems
    (parts / "counts.json").write_text(json.dumps(COUNTS))
    words = ("tune", "--logits", "parts", "--counts", "parts/counts.json")
    first = levelhead(*words, "--json", "-o", "parts/tuned.json")
    assert first[::2] == (0, "")
    assert levelhead(*words, "--json", "-o", "parts/tuned.json", "--force") == first


def test_text_is_the_summary_with_the_verdict_and_every_class(files, levelhead):
    tuned = lh.tune(*files, COUNTS)
    status, out, err = levelhead(*HELD_OUT)
    assert (status, err) == (0, "")
    assert out == f"{tuned.summary()}\n"
    assert tuned.verdict_text() in out
    for word in ("accuracy", "recall", "precision", "predicted share"):
        assert word in out


def test_counts_may_be_left_out(files, levelhead):
    status, out, err = levelhead(*HELD_OUT[:5], "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == lh.tune(*files).to_dict()
    assert json.loads(out)["counted"]
    assert "counts are those of the held-out labels" in levelhead(*HELD_OUT[:5])[1]


def test_rules_are_compared_side_by_side(files, levelhead):
    words = ("compare", *HELD_OUT[1:])
    status, out, err = levelhead(*words, "--json")
    assert (status, err) == (0, "")
    compared = lh.compare(*files, COUNTS)
    assert json.loads(out) == json.loads(json.dumps(compared.to_dict()))
    assert levelhead(*words)[1] == f"{compared}\n"
    status, out, _ = levelhead(*words[:5], "--metric", "f1_macro", "--json")
    assert status == 0
    choices = json.loads(out)["rules"]
    assert {tuned["evidence"]["metric"] for tuned in choices.values()} == {"macro_f1"}


def test_with_norms_tau_is_compared_too(files, levelhead):
    np.save("norms.npy", np.array([2.0, 1.5, 1.0, 0.5]))
    words = ("compare", *HELD_OUT[1:], "--json")
    assert "tau" in json.loads(levelhead(*words)[1])["left_out"]
    assert "tau" in json.loads(levelhead(*words, "--norms", "norms.npy")[1])["rules"]
    with_norms = (*HELD_OUT, "--rule", "tau", "--norms", "norms.npy", "--json")
    tau = lh.rules.Tau(norms=np.load("norms.npy"))
    assert json.loads(levelhead(*with_norms)[1]) == lh.tune(*files, COUNTS, rule=tau).to_dict()


def test_names_in_tables_are_looked_up(files, levelhead):
    by_name = levelhead(
        "tune",
        "--logits",
        "L.csv",
        "--labels",
        "Y.csv",
        "--counts",
        "named.json",
        "--json",
    )
    plain = json.loads(levelhead(*HELD_OUT, "--json")[1])
    assert json.loads(by_name[1]) == plain | {"names": ["cat", "dog", "owl", "ant"]}


@pytest.mark.parametrize("rule", ["offsets", "shift"])
def test_without_labels_shares_are_matched_to_the_target(files, levelhead, rule):
    logits, labels = files
    shares = np.bincount(labels) / len(labels)
    words = ("tune", "--logits", "L.npy", "--counts", "C.json", "--rule", rule, "--json")
    status, out, _ = levelhead(*words, "--target", ",".join(map(str, shares)))
    expected = lh.tune_unlabelled(logits, shares, counts=COUNTS, rule=rule)
    assert status == 0
    assert json.loads(out) == expected.to_dict()
    assert json.loads(out)["chosen_on"] == "unlabelled"


def test_without_labels_and_counts_offsets_are_enough(files, levelhead):
    status, out, _ = levelhead("tune", "--logits", "L.npy", "--json")
    assert status == 0
    with lh.warnings.quiet():
        assert json.loads(out) == lh.tune_unlabelled(files[0]).to_dict()
    status, _, err = levelhead("tune", "--logits", "L.npy", "--rule", "shift")
    assert status == 2
    assert "--counts: the rule shift needs them" in err


def test_a_target_may_be_a_file_of_shares_by_name(files, levelhead, tmp_path):
    (tmp_path / "T.json").write_text(json.dumps({"owl": 0.2, "ant": 0.1, "cat": 0.4, "dog": 0.3}))
    named = levelhead(
        "tune", "--logits", "L.csv", "--counts", "C.json", "--target", "T.json", "--json"
    )
    listed = levelhead(
        "tune", "--logits", "L.npy", "--counts", "C.json", "--target", "0.4,0.3,0.2,0.1", "--json"
    )
    assert named[0] == 0
    assert json.loads(named[1]) == json.loads(listed[1]) | {"names": ["cat", "dog", "owl", "ant"]}


def test_out_is_written_once_and_replaced_only_by_force(files, levelhead, tmp_path):
    assert "written" not in levelhead(*HELD_OUT)[1]
    status, out, _ = levelhead(*HELD_OUT, "-o", "tuned.json")
    assert (status, out.splitlines()[-1]) == (0, "written: tuned.json")
    first = json.loads((tmp_path / "tuned.json").read_text())
    status, out, err = levelhead(*HELD_OUT, "-o", "tuned.json", "--metric", "error")
    assert (status, out) == (2, "")
    assert err == "levelhead: tuned.json exists; pass --force to replace it\n"
    assert levelhead(*HELD_OUT, "-o", "tuned.json", "--metric", "error", "--force")[0] == 0
    assert json.loads((tmp_path / "tuned.json").read_text()) != first
    assert not list(tmp_path.glob("*.tmp"))


def test_the_files_of_a_choice_are_written_with_their_sha256(files, levelhead, tmp_path):
    assert levelhead(*HELD_OUT, "-o", "tuned.json")[0] == 0
    sources = lh.Tuned.load("tuned.json").sources
    assert sources["files"] == {"logits": "L.npy", "labels": "Y.npy", "counts": "C.json"}
    for what, name in sources["files"].items():
        digest = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        assert sources["sha256"][what] == digest


def test_of_two_that_write_one_file_at_once_one_is_told(files, tmp_path):
    command = [sys.executable, "-m", "levelhead", *HELD_OUT, "-o", "tuned.json"]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate()[1] for one in both]
    assert sorted(one.returncode for one in both) == [0, 2]
    assert sum("tuned.json exists; pass --force to replace it" in one for one in said) == 1


def test_a_failed_write_leaves_what_was_there(files, tmp_path, monkeypatch):
    (tmp_path / "tuned.json").write_text("old")
    monkeypatch.setattr(
        "levelhead.support.atomic.os.replace",
        lambda *_: (_ for _ in ()).throw(OSError("disk full")),
    )
    with pytest.raises(OSError, match="disk full"):
        write_tuned(lh.tune(*files, COUNTS), tmp_path / "tuned.json")
    assert (tmp_path / "tuned.json").read_text() == "old"
    assert not list(tmp_path.glob("*.tmp"))


def test_warnings_are_one_line_each_on_stderr_and_in_the_json(files, levelhead, tmp_path):
    np.save(tmp_path / "L.npy", files[0] - 5)
    status, out, err = levelhead(*HELD_OUT, "--rule", "rescale", "--json")
    assert status == 0
    assert err.startswith("levelhead: NegativeLogitsWarning: ")
    assert err.count("\n") == 1
    assert json.loads(out)["warnings"] == [err.removeprefix("levelhead: ").strip()]


def test_test_data_are_named_loudly(files, levelhead):
    assert "TEST DATA" in levelhead(*HELD_OUT, "--chosen-on", "test")[1]


def test_picture_is_drawn(files, levelhead, tmp_path):
    pytest.importorskip("matplotlib")
    assert levelhead(*HELD_OUT, "--plot", "recall.png")[0] == 0
    assert (tmp_path / "recall.png").read_bytes().startswith(b"\x89PNG")
    assert levelhead(*HELD_OUT, "--plot", "recall.svg")[0] == 0
    assert "recall" in (tmp_path / "recall.svg").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--logits", "none.npy"), "none.npy: no such file; expected logits"),
        (
            ("--logits", "all.npz"),
            "all.npz: holds labels too, and Y.npy differs from them; leave out Y.npy, or name",
        ),
        (("--labels", "L.npy"), "L.npy: expected labels [N], got shape [113, 4]"),
        (
            ("--labels", "."),
            ".: expected labels as .npy, .npz, .safetensors, .csv, .tsv, .parquet, .pt, .pth, .txt, .json, "
            "got a folder",
        ),
        (
            ("--rule", "cosine"),
            "--rule: expected 'offsets', 'shift', 'rescale', 'tau', 'scales' or 'vector', got 'cosine'",
        ),
        (
            ("--rule", "tau"),
            "--rule: 'tau' needs the weight norms of the head",
        ),
        (
            ("--target", "much"),
            "--target: expected 4 numbers with commas between them, or a file of them, got 'much'",
        ),
        (
            ("--labels", "Y.csv"),
            "Y.csv: labels are names ('cat'), but class names are not known here",
        ),
        (("--plot", "curve.jpg"), "curve.jpg: expected a picture as .png, .svg, .pdf, got .jpg"),
        (("--norms", "norms.npy"), "--norms: the rule offsets does not take it; leave it out"),
        (
            ("--kind", "probabilities"),
            "expected probabilities, from 0 to 1, got ",
        ),
        (("--counts", "none.json"), "none.json: no such file; expected counts"),
        (("--counts", "nothing.npy"), "nothing.npy: the file is empty"),
        (("--out", "nowhere/tuned.json"), "nowhere: no such folder to write tuned.json into"),
        (("--plot", "nowhere/curve.png"), "nowhere: no such folder to write curve.png into"),
        (
            ("--report", "page.html", "--force"),
            "page.html: a folder; expected the name of a file to write",
        ),
        (
            ("--out", "L.npy", "--force"),
            "L.npy: an input, which is never overwritten; choose another name",
        ),
        (
            ("--names", "names.json", "--out", "names.json", "--force"),
            "names.json: an input, which is never overwritten; choose another name",
        ),
        (
            ("--target", "shares.json", "--out", "shares.json", "--force"),
            "shares.json: an input, which is never overwritten; choose another name",
        ),
        (("--out", "C.json"), "C.json: an input, which is never overwritten; choose another name"),
        (
            ("--out", "x.html", "--report", "x.html"),
            "x.html: expected a different file for each of --out and --report",
        ),
        (("--out", "dangling.json"), "dangling.json exists; pass --force to replace it"),
        (("--out", "n" * 250), f"{'n' * 250}: file name too long"),
        (("--seed", "-1"), "invalid value for '--seed': "),
        (("--unlabelled", "L.npy"), "--unlabelled: these are for a target that is estimated"),
        (
            ("--unlabelled", "narrow.npy", "--target", "estimate"),
            "--unlabelled: expected logits [M, 4], got shape [5, 2]",
        ),
        (("--training", "words.npy"), "--training: expected floating-point numbers, got text"),
        (("--rule", "tau", "--norms", "words.npy"), "--norms: expected numbers, got text"),
        (
            ("--logits", "no.npy"),
            "no.npy: expected logits [N, K] of at least 1 sample and 2 classes, got shape [0, 4]",
        ),
        (("--out", ".", "--force"), ".: a folder; expected the name of a file to write"),
    ],
)
def test_bad_input_ends_with_one_line_and_status_2(files, levelhead, words, message):
    open("nothing.npy", "wb").close()
    os.mkdir("page.html")
    os.symlink("gone.json", "dangling.json")
    with open("names.json", "w") as names, open("shares.json", "w") as shares:
        json.dump(["ant", "bee", "cat", "dog"], names)
        json.dump([0.4, 0.3, 0.2, 0.1], shares)
    np.save("narrow.npy", np.ones((5, 2)))
    np.save("norms.npy", np.ones(4))
    np.save("no.npy", np.ones((0, 4)))
    np.save("words.npy", np.full((5, 4), "a"))
    np.savez("all.npz", logits=files[0], labels=files[1][::-1])
    status, out, err = levelhead(*HELD_OUT, *words)
    assert (status, out) == (2, "")
    assert err.startswith(f"levelhead: {message}")
    assert err.count("\n") == 1


def test_long_input_shows_progress_on_a_terminal_only(files, levelhead, monkeypatch):
    monkeypatch.setattr("levelhead.support.progress.LARGE_LOGITS", 1)
    assert levelhead(*HELD_OUT)[2] == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert "fit" in levelhead(*HELD_OUT)[2]


def test_a_metric_a_cost_and_floors_are_those_of_tune(files, levelhead):
    cost = np.array([[0, 1, 1, 1], [2, 0, 1, 1], [3, 3, 0, 1], [9, 9, 9, 0]])
    np.save("cost.npy", cost)
    np.savetxt("cost.csv", cost, delimiter=",")
    f1 = levelhead(*HELD_OUT, "--metric", "macro_f1", "--json")
    assert json.loads(f1[1]) == lh.tune(*files, COUNTS, metric="macro_f1").to_dict()
    for name in ("cost.npy", "cost.csv"):
        by_cost = levelhead(*HELD_OUT, "--cost", name, "--json")
        assert (
            json.loads(by_cost[1]) == lh.tune(*files, COUNTS, metric=lh.Goal(cost=cost)).to_dict()
        )
    named = ("tune", "--logits", "L.csv", "--labels", "Y.csv", "--counts", "named.json", "--json")
    floors = json.loads(levelhead(*named, "--floor", "ant=0.5", "--floor", "cat=0.6")[1])["floors"]
    assert [(floor["index"], floor["least"]) for floor in floors] == [(0, 0.6), (3, 0.5)]
    every = json.loads(levelhead(*HELD_OUT, "--floor", "0.5", "--json")[1])["floors"]
    assert [floor["least"] for floor in every] == [0.5] * 4


def test_text_and_page_of_another_metric(files, levelhead, tmp_path):
    outputs = ("-o", "tuned.json", "--report", "page.html", "--plot", "recall.png")
    status, out, err = levelhead(*HELD_OUT, "--metric", "mcc", "--floor", "0.4", *outputs)
    assert (status, err) == (0, "")
    assert "MCC" in out
    assert "recall of at least 40.0%" in out
    assert "MCC" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert levelhead("report", "tuned.json", "-o", "again.html")[::2] == (0, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--floor", "60"), "--floor: expected recalls from 0 to 1, got 60"),
        (("--floor", "high"), "--floor: expected a recall such as 0.6, or CLASS=0.6, got 'high'"),
        (
            ("--floor", "0.5", "--floor", "1=0.6"),
            "--floor: expected one recall for all classes, or CLASS=RECALL each time",
        ),
        (("--floor", "1=0.5", "--floor", "1=0.6"), "--floor: class '1' is listed twice"),
        (("--floor", "cat=0.5"), "--floor: got the class name 'cat'"),
        (("--floor", "1"), "--floor: no offsets meet a recall of 100.0% in "),
        (("--metric", "cost"), "--metric: 'cost' needs a cost matrix [K, K]; pass --cost with it"),
        (
            ("--cost", "Y.npy"),
            "--cost: expected numbers [4, 4], row true, column predicted, got shape [113]",
        ),
        (("--cost", "none.npy"), "none.npy: no such file; expected cost"),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(value),
)
def test_a_metric_that_cannot_be_is_refused_in_one_line(files, levelhead, words, says):
    status, out, err = levelhead(*HELD_OUT, *words)
    assert (status, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_an_unknown_metric_is_told_the_known_ones(files, levelhead):
    status, _, err = levelhead(*HELD_OUT, "--metric", "f1")
    assert status == 2
    assert "--metric: expected error, balanced_error, macro_f1" in err


def test_metrics_and_floors_need_labels(files, levelhead):
    status, _, err = levelhead("tune", "--logits", "L.npy", "--counts", "C.json", "--floor", "0.5")
    assert (status, err) == (2, "levelhead: --floor: this needs --labels\n")


def test_a_picture_of_the_classes_needs_labels_and_no_choice_is_left_without_it(
    files, levelhead, tmp_path
):
    pytest.importorskip("matplotlib")
    outputs = ("--plot", "recall.png", "-o", "tuned.json")
    status, out, err = levelhead("tune", "--logits", "L.npy", *outputs)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1] == "levelhead: --plot: this needs --labels"
    assert not (tmp_path / "tuned.json").exists()


def test_a_loss_is_not_compared_with_the_fall_of_accuracy(levelhead, tmp_path):
    rng = np.random.default_rng(0)
    shares = [0.8, 0.15, 0.05]
    labels = rng.choice(3, p=shares, size=600)
    logits = 2 * np.eye(3)[labels] + rng.normal(size=(600, 3)) + np.log(shares)
    np.savez(tmp_path / "L.npz", logits=logits, labels=labels)
    words = ("--logits", tmp_path / "L.npz", "--metric", "macro_f1", "--floor", "2=0.9")
    status, out, _ = levelhead("tune", *words)
    assert (status, "gain -" in out) == (0, True)  # the floor costs more than there is to gain
    assert re.search(r"; accuracy falls by \d+\.\d points, too$", out.splitlines()[0])


def test_labels_in_a_column_of_another_title_are_not_passed_over_without_a_word(files, levelhead):
    logits, labels = files
    table = pd.DataFrame(logits, columns=NAMES).assign(truth=[NAMES[y] for y in labels])
    table.to_csv("table.csv", index=False)
    status, _, err = levelhead("tune", "--logits", "table.csv")
    assert status == 0
    assert "--label-column TITLE if they are a column of table.csv" in err
    status, out, _ = levelhead("tune", "--logits", "table.csv", "--label-column", "truth")
    assert status == 0
    assert "chosen on held-out" in out
    assert "--label-column" not in levelhead("tune", "--logits", "L.npy")[2]
