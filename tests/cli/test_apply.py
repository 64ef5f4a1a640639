"""`levelhead apply`: what was tuned, on files of new scores, a part at a time."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file
from scipy.special import softmax

import levelhead as lh
from levelhead.io import parts
from levelhead.io.arrays import read

NAMES = ["cat", "dog", "owl"]
COUNTS = [1000, 200, 40]
LABELS = np.repeat([0, 1, 2], [300, 60, 40])
NOISE = np.random.default_rng(0).normal(size=(400, 3))
LOGITS = (2 * np.eye(3)[LABELS] + NOISE + np.log(COUNTS)).astype(np.float32)
SUFFIXES = [".npy", ".npz", ".safetensors", ".csv", ".tsv", ".parquet"]


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """A choice, in tuned.json, and the scores that it was made on, in L.npy."""
    monkeypatch.chdir(tmp_path)
    np.save("L.npy", LOGITS)
    chosen = lh.tune(LOGITS, LABELS, COUNTS, names=NAMES)
    chosen.save("tuned.json")
    return chosen


def write(path, values):
    """Write scores in the format of a suffix, by other libraries than the one that reads them."""
    frame = pd.DataFrame(values, columns=NAMES)
    match Path(path).suffix:
        case ".npy":
            np.save(path, values)
        case ".npz":
            np.savez(path, logits=values)
        case ".safetensors":
            save_file({"logits": values}, path)
        case ".csv":
            frame.to_csv(path, index=False)
        case ".tsv":
            frame.to_csv(path, index=False, sep="\t")
        case ".parquet":
            frame.to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("at_once", [True, False])
def test_every_format_is_read_and_written_a_part_at_a_time(
    tuned, levelhead, monkeypatch, suffix, at_once
):
    if not at_once:
        monkeypatch.setattr("levelhead.cli.apply.PART", 300)
    write(f"x{suffix}", LOGITS)
    words = ("apply", f"x{suffix}", "--tuned", "tuned.json")
    status, out, err = levelhead(*words, "-o", f"o{suffix}", "--json")
    assert (status, err) == (0, "")
    expected = tuned.apply(LOGITS)
    np.testing.assert_allclose(read(f"o{suffix}"), expected, rtol=1e-6)
    changed = int((expected.argmax(axis=1) != LOGITS.argmax(axis=1)).sum())
    assert 0 < changed < 400
    assert json.loads(out) == {
        "scores": f"x{suffix}",
        "written": [f"o{suffix}"],
        "rows": 400,
        "changed": changed,
    }
    assert (
        f"400 rows, {changed} with another prediction"
        in levelhead(*words, "-o", f"o{suffix}", "--force")[1]
    )


def test_parts_have_no_more_numbers_than_asked_for(tuned):
    for suffix in SUFFIXES:
        read = list(parts.read_parts(write(f"x{suffix}", LOGITS), 3, NAMES, size=300).parts)
        assert len(read) > 1
        assert max(part.scores.size for part in read) <= 300
        np.testing.assert_array_equal(
            np.concatenate([part.scores for part in read]).astype(np.float32), LOGITS
        )
        starts = np.cumsum([0, *(len(part.scores) for part in read)])
        assert [part.first for part in read] == starts[:-1].tolist()


def test_where_nothing_is_gained_nothing_is_written(tuned, levelhead):
    nothing = lh.tune(LOGITS, LABELS, COUNTS, names=NAMES, rule=lh.rules.Shift(0.0))
    nothing.save("nothing.json")
    words = ("apply", "L.npy", "--tuned", "nothing.json", "-o", "o.npy")
    status, out, err = levelhead(*words)
    assert (status, out) == (3, "")
    assert err.count("\n") == 1
    assert "nothing.json: nothing to gain: balanced error" in err
    assert "changes nothing: no prediction differs; nothing is written; pass --anyway" in err
    assert not Path("o.npy").exists()
    assert levelhead(*words, "--anyway")[0] == 0
    np.testing.assert_array_equal(np.load("o.npy"), LOGITS)


def test_a_choice_without_labels_is_applied(tuned, levelhead):
    lh.tune_unlabelled(LOGITS, names=NAMES).save("unlabelled.json")
    assert levelhead("apply", "L.npy", "--tuned", "unlabelled.json", "-o", "o.npy")[0] == 0


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tuned):
    code = """
import resource, sys
import numpy as np
from levelhead.cli import main
rows = int(sys.argv.pop())
np.lib.format.open_memmap("big.npy", "w+", np.float32, (rows, 3))[:] = 1
sys.argv = ["levelhead", "apply", "big.npy", "--tuned", "tuned.json", "-o", f"{rows}.npy"]
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    used = []
    for rows in (10_000, 12_000_000):  # 144 MB of scores
        command = [sys.executable, "-c", code, str(rows)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        used.append(int(done.stdout.split()[-1]))
    assert (
        used[1] - used[0] < 250
    )  # MB: the file as it was made, and its parts; twice that if whole


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_probabilities_are_softmax_at_the_temperature(tuned, levelhead, suffix):
    words = ("apply", "L.npy", "--tuned", "tuned.json", "--proba", "-o", f"p{suffix}")
    assert levelhead(*words)[::2] == (0, "")
    expected = softmax(tuned.apply(LOGITS) / tuned.temperature, axis=1)
    np.testing.assert_allclose(read(f"p{suffix}"), expected, rtol=1e-5)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_predicted_classes_are_written_by_name(tuned, levelhead, suffix):
    out = f"y{suffix}"
    status, _, err = levelhead("apply", "L.npy", "--tuned", "tuned.json", "--labels-out", out)
    assert (status, err) == (0, "")
    expected = np.array(NAMES)[tuned.apply(LOGITS).argmax(axis=1)]
    predicted = pd.read_csv(out)["predicted"] if suffix == ".csv" else read(out, wanted="labels")
    assert list(predicted) == expected.tolist()


def test_predicted_classes_without_names_are_indices(tuned, levelhead):
    lh.tune(LOGITS, LABELS, COUNTS).save("plain.json")
    words = ("apply", "L.npy", "--tuned", "plain.json", "--labels-out", "y.safetensors")
    assert levelhead(*words, "-o", "o.csv")[::2] == (0, "")
    expected = tuned.apply(LOGITS).argmax(axis=1)
    np.testing.assert_array_equal(load_file("y.safetensors")["labels"], expected)
    assert Path("o.csv").read_text().startswith("score_0,score_1,score_2\n")


def test_other_columns_of_a_table_are_copied_as_they_are(tuned, levelhead):
    frame = pd.DataFrame(LOGITS[:5], columns=[f"logit_{name}" for name in NAMES])
    frame.insert(0, "id", ["007", "1.50", "a", "b", "c"])
    frame["label"] = NAMES[0]
    frame.to_csv("x.csv", index=False)
    words = ("apply", "x.csv", "--tuned", "tuned.json", "-o", "o.csv", "--labels-out", "y.parquet")
    assert levelhead(*words)[::2] == (0, "")
    written = pd.read_csv("o.csv", dtype={"id": str})
    assert list(written) == ["id", "label", *NAMES]
    assert list(written["id"]) == ["007", "1.50", "a", "b", "c"]
    np.testing.assert_allclose(written[NAMES], tuned.apply(LOGITS[:5]), rtol=1e-6)
    assert list(pd.read_parquet("y.parquet")) == ["id", "label", "predicted"]


@pytest.mark.parametrize("votes", [None, 10])
def test_probabilities_of_trees_are_adjusted_as_they_were_tuned(tuned, levelhead, votes):
    shares = softmax(LOGITS.astype(float), axis=1)
    if votes is not None:  # some classes get none
        shares = np.floor(votes * shares)
        shares[:, 0] += votes - shares.sum(axis=1)
        shares /= votes
    chosen = lh.tune(shares, LABELS, COUNTS, kind="probabilities")
    chosen.save("shares.json")
    np.save("P.npy", shares)
    assert levelhead("apply", "P.npy", "--tuned", "shares.json", "-o", "o.npy")[0] == 0
    np.testing.assert_allclose(np.load("o.npy"), chosen.apply(shares))


def test_what_was_there_stays_unless_forced_and_no_part_is_left(tuned, levelhead):
    Path("o.npy").write_text("mine")
    words = ("apply", "hole.npy", "--tuned", "tuned.json", "-o", "o.npy")
    hole = LOGITS.copy()
    hole[350, 1] = np.nan
    np.save("hole.npy", hole)
    assert "o.npy exists; pass --force to replace it" in levelhead(*words)[2]
    status, _, err = levelhead(*words, "--force")
    assert (status, "hole.npy: the logits hold NaN" in err) == (2, True)
    assert Path("o.npy").read_text() == "mine"
    assert not list(Path().glob("*.tmp"))


def test_the_row_that_is_wrong_is_named_in_every_part(tuned, levelhead, monkeypatch):
    monkeypatch.setattr("levelhead.cli.apply.PART", 300)
    hole = LOGITS.copy()
    hole[350, 1] = np.nan
    np.save("hole.npy", hole)
    err = levelhead("apply", "hole.npy", "--tuned", "tuned.json", "-o", "o.npy")[2]
    assert "first in row 350" in err
    text = pd.DataFrame(LOGITS, columns=NAMES).astype(object)
    text.iloc[350, 2] = "high"
    text.to_csv("text.csv", index=False)
    status, _, err = levelhead("apply", "text.csv", "--tuned", "tuned.json", "-o", "o.npy")
    assert (status, "holds 'high'; expected a number" in err) == (2, True)


BAD = {
    "two columns": (
        ["two.npy", "-o", "o.npy"],
        "two.npy has 2 classes, but it was tuned on 3 classes",
    ),
    "two columns of a table": (["two.csv", "-o", "o.npy"], "expected 3 columns of scores, got 2"),
    "another order": (
        ["order.csv", "-o", "o.npy"],
        "order.csv has its classes in another order (dog, cat, owl) than the scores it was tuned on",
    ),
    "another order, next to ids": (["ids.csv", "-o", "o.npy"], "in another order (dog, cat, owl)"),
    "another order of an array": (["order.npz:logits", "-o", "o.npy"], None),
    "another order in a file": (["order.npz", "-o", "o.npy"], "in another order (dog, cat, owl)"),
    "probabilities": (["P.npy", "-o", "o.npy"], "P.npy: expected logits, got what looks like"),
    "no such scores": (["none.npy", "-o", "o.npy"], "none.npy: no such file"),
    "text": (
        ["words.npy", "-o", "o.npy"],
        "words.npy: expected scores [N, K] as numbers, got text",
    ),
    "one row": (["one.npy", "-o", "o.npy"], "one.npy: expected scores [N, K] as numbers, got"),
    "none": (["nothing.npy", "-o", "o.npy"], "nothing.npy: expected scores [N, K] as numbers, got"),
    "nothing to write": (["L.npy"], "--out: expected a file to write, or one for --labels-out"),
    "an unknown format": (["L.npy", "-o", "o.pkl"], "o.pkl: expected .npy, .npz, .safetensors"),
    "no suffix": (["L.npy", "-o", "o"], "o: expected .npy, .npz, .safetensors, .csv"),
    "the input": (
        ["L.npy", "-o", "L.npy", "--force"],
        "L.npy: an input, which is never overwritten",
    ),
    "one file for both": (
        ["L.npy", "-o", "o.npy", "--labels-out", "o.npy"],
        "o.npy: expected a different file for each of --out and --labels-out",
    ),
    "names in safetensors": (
        ["L.npy", "--labels-out", "y.safetensors"],
        "y.safetensors: safetensors holds numbers only",
    ),
    "probabilities to nowhere": (["L.npy", "--labels-out", "y.npy", "--proba"], "--proba: "),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_nothing_is_written(tuned, levelhead, name):
    words, message = BAD[name]
    turned = pd.DataFrame(LOGITS[:, [1, 0, 2]], columns=["dog", "cat", "owl"])
    turned.to_csv("order.csv", index=False)
    turned.assign(file="a.png").to_csv("ids.csv", index=False)
    np.savez("order.npz", logits=LOGITS, names=np.array(["dog", "cat", "owl"]))
    np.save("two.npy", LOGITS[:, :2])
    turned[["dog", "cat"]].to_csv("two.csv", index=False)
    np.save("P.npy", softmax(LOGITS, axis=1))
    np.save("words.npy", LOGITS.astype(str))
    np.save("one.npy", LOGITS[0])
    np.save("nothing.npy", LOGITS[:0])
    before = {path: path.read_bytes() for path in Path().iterdir()}
    status, out, err = levelhead("apply", *words, "--tuned", "tuned.json")
    if message is None:  # an array alone says nothing of names
        assert status == 0
        return
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_without_labels_there_is_no_temperature(tuned, levelhead):
    lh.tune_unlabelled(LOGITS).save("blind.json")
    words = ("apply", "L.npy", "--tuned", "blind.json", "-o", "o.npy")
    status, _, err = levelhead(*words, "--proba")
    assert (status, err.count("\n")) == (2, 1)
    assert "--proba: blind.json has no temperature" in err
    assert levelhead(*words)[0] == 0
