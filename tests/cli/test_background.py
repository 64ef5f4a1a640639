"""`--background`: the class that tune and adjust leave alone, as `background` does in Python."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import levelhead as lh

COUNTS, NAMES = (
    [0, 400, 40, 4],
    ["nothing", "car", "bicycle", "tram"],
)  # of boxes: those without an object are not counted
LABELS = np.repeat(np.arange(4), [120, 40, 20, 20])
LOGITS = (
    2 + np.random.default_rng(0).normal(size=(200, 4)) + 2 * np.eye(4)[LABELS] + [0, 1.5, 0, -1.5]
)
TUNE = (
    "tune",
    "--logits",
    "L.npy",
    "--labels",
    "Y.npy",
    "--counts",
    "0,400,40,4",
)


@pytest.fixture
def weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("L.npy", LOGITS)
    np.save("Y.npy", LABELS)
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    tensors = {"fc.weight": np.random.default_rng(1).normal(size=(4, 8)), "fc.bias": np.ones(4)}
    save_file(
        {name: values.astype(np.float32) for name, values in tensors.items()}, "m.safetensors"
    )
    return load_file("m.safetensors")["fc.weight"]


@pytest.mark.parametrize("rule", ["offsets", "rescale", "shift"])
@pytest.mark.parametrize("given", [("0",), ("nothing", "--names", "names.txt")])
@pytest.mark.parametrize("own", [0, 90_000])
def test_tune_leaves_the_class_alone_as_in_python(weights, levelhead, rule, given, own):
    words = (*TUNE[:-1], f"{own},400,40,4", "--rule", rule, "--background", *given, "--json")
    status, out, err = levelhead(*words)
    assert (status, err) == (0, "")
    names = NAMES if len(given) > 1 else None
    alone = lh.counts.with_background([own, *COUNTS[1:]], 0)
    expected = lh.tune(LOGITS, LABELS, alone, rule=rule, names=names).to_dict()
    assert json.loads(out) == expected
    assert expected["counts"] == [400, 400, 40, 4]


def test_shares_are_matched_with_the_class_left_alone(weights, levelhead):
    words = ("tune", "--logits", "L.npy", "--counts", "0,400,40,4", "--rule", "shift", "--json")
    answer = json.loads(levelhead(*words, "--background", "0")[1])
    expected = lh.tune_unlabelled(LOGITS, counts=[400, 400, 40, 4], rule="shift")
    assert answer["strength"] == expected.strength
    assert answer["offset"][0] == 0


@pytest.mark.parametrize("inside", [False, True])
def test_pages_are_of_the_counts_that_were_tuned_with(weights, levelhead, inside):
    np.savez("all.npz", logits=LOGITS, labels=LABELS, counts=COUNTS)
    source = ("--logits", "all.npz") if inside else TUNE[1:7]
    words = (
        "tune",
        *source,
        "--background",
        "0",
        "-o",
        "tuned.json",
        "--report",
        "page.html",
    )
    assert levelhead(*words)[0] == 0
    assert levelhead("report", "tuned.json", "-o", "again.html")[0] == 0
    counts = () if inside else ("--counts", "0,400,40,4", "--labels", "Y.npy")
    logits = "all.npz" if inside else "L.npy"
    assert levelhead("report", logits, *counts, "--tuned", "tuned.json", "-o", "third.html")[0] == 0


@pytest.mark.parametrize("rule", ["offsets", "rescale", "shift"])
def test_adjusted_file_has_the_class_as_it_was(weights, levelhead, rule):
    assert levelhead(*TUNE, "--rule", rule, "--background", "0", "-o", "tuned.json")[0] == 0
    words = (
        "adjust",
        "m.safetensors",
        "--tuned",
        "tuned.json",
        "--background",
        "0",
        "--anyway",
        "-o",
        "out.safetensors",
    )
    status, _, err = levelhead(*words)
    assert (status, err) == (0, "")
    before, after = load_file("m.safetensors"), load_file("out.safetensors")
    assert np.array_equal(after["fc.weight"][0], weights[0])
    assert after["fc.bias"][0] == before["fc.bias"][0]
    assert not np.array_equal(
        np.c_[after["fc.weight"], after["fc.bias"]][3], np.c_[weights, before["fc.bias"]][3]
    )


def test_rescaled_file_has_factors_of_the_other_classes(weights, levelhead):
    by = ("--rule", "rescale", "--strength", "0.5", "--counts", "0,400,100,4")
    words = ("adjust", "m.safetensors", *by, "--background", "0", "-o", "out.safetensors")
    assert levelhead(*words)[0] == 0
    assert np.allclose(
        load_file("out.safetensors")["fc.weight"], weights * np.array([[1], [1], [2], [10]])
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*TUNE, "--background", "9"), "--background: expected the index or the name of one class (unknown class '9'; "
         "expected classes 0 to 3)"),
        ((*TUNE, "--background", "cat", "--names", "names.txt"), "--background: expected the index or the name of one "
         "class (unknown class name 'cat'; the classes are nothing, car, bicycle, tram)"),
        ((*TUNE, "--background", "0", "--rule", "vector"), "--background: the rule vector changes every class; use "
         "offsets, shift or rescale"),
        ((*TUNE[:5], "--background", "0"), "--background: this needs the training samples of each class; pass "
         "--counts to give them"),
        ((*TUNE, "--background", "0", "--task", "multilabel"), "--background: not for several labels per sample; leave "
         "it out"),
        (("adjust", "m.safetensors", "--rule", "tau", "--strength", "1", "--background", "0", "-o", "o.safetensors"),
         "--background: class 0 would change"),
        (("adjust", "m.safetensors", "--counts", "9,9,9,9", "--rule", "rescale", "--strength", "1", "--background", "x",
          "-o", "o.safetensors"), "--background: expected the index or the name of one class (got the class name 'x', "
         "but class names are not known here; give its index)"),
    ],
)  # fmt: skip
def test_what_cannot_be_left_alone_is_said_in_one_line(weights, levelhead, words, message):
    np.save("Y.npy", np.eye(4, dtype=int)[LABELS] if "multilabel" in words else LABELS)
    status, out, err = levelhead(*words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"levelhead: {message}")


def test_choice_made_without_the_background_is_refused(weights, levelhead, tmp_path):
    counts = ("--counts", "4000,400,40,4")
    assert levelhead(*TUNE[:5], *counts, "--rule", "shift", "-o", "tuned.json")[0] == 0
    status, _, err = levelhead(
        "adjust",
        "m.safetensors",
        "--tuned",
        "tuned.json",
        "--background",
        "1",
        "-o",
        "out.safetensors",
    )
    assert status == 2
    assert err == (
        "levelhead: --background: class 1 would change: the choice was made without a background; tune with it\n"
    )
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("command", ["tune", "adjust"])
def test_help_says_what_it_is(levelhead, command):
    status, out, _ = levelhead(command, "-h")
    assert status == 0
    assert "--background" in out
    assert "no object" in " ".join(out.split())
