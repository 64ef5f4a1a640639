"""The command `adjust` with what `levelhead tune` wrote."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import levelhead as lh
from levelhead.core.tuned import Floor

from .model_files import COUNTS, K, adjust, choice, rescale, state, write_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model, its counts and names, and files of many kinds of wrong."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
def test_adjust_does_what_its_rule_does_at_that_strength_and_is_undone(levelhead, folder, rule):
    weight = load_file("m.safetensors")["fc.weight"].numpy().astype(float)
    named_rule = lh.rules.find_rule(rule).with_norms(np.linalg.norm(weight, axis=1))
    by = replace(named_rule, strength=0.5).on_head(lh.Head(weight), np.array(COUNTS))
    tuned = choice(folder, rule=rule, adjustment=by)
    status, out, err = levelhead(*adjust(tuned), "--json")
    assert (status, err) == (0, "")
    done = json.loads(out)
    assert (done["rule"], done["strength"], done["counts"]) == (rule, 0.5, COUNTS)
    assert levelhead(*rescale(out="r.safetensors", rule=rule))[0] == 0
    tuned_so, given_so = load_file("o.safetensors"), load_file("r.safetensors")
    for name, values in given_so.items():
        torch.testing.assert_close(tuned_so[name], values)
    assert f"adjusted before: {rule}, strength 0.5" in levelhead("inspect", "o.safetensors")[1]
    assert levelhead("undo", "o.safetensors", "-o", "b.safetensors")[0] == 0
    assert (folder / "b.safetensors").read_bytes() == (folder / "m.safetensors").read_bytes()
    twice = adjust("shift.json", "o.safetensors", "p.safetensors")
    assert "pass --again to adjust it a second time" in levelhead(*twice)[2]
    assert levelhead(*twice, "--again", "--no-original")[0] == 0
    assert not (folder / "p.safetensors.original").exists()


@pytest.mark.parametrize(("gain", "error"), [(-0.01, 0.01), (0.0, 0.01), (-0.2, 0.05)])
def test_where_nothing_is_to_be_gained_the_status_is_3_and_nothing_is_written(
    levelhead, folder, gain, error
):
    tuned = choice(folder, gain=gain, error=error)
    before = state(folder)
    status, out, err = levelhead(*adjust(tuned))
    assert (status, out) == (3, "")
    read = lh.Tuned.load(tuned)
    assert err == (
        f"levelhead: shift.json: nothing to gain: {read.change_text()}: {read.verdict_text()}; "
        "nothing is written; pass --anyway to go on\n"
    )
    assert state(folder) == before
    status, out, _ = levelhead(*adjust(tuned), "--anyway")
    assert status == 0
    assert (folder / "o.safetensors").exists()


@pytest.mark.parametrize("given", [{"gain": 0.01, "error": 0.5}, {"gain": 0.01, "error": 0.0001}])
def test_a_gain_above_0_is_taken_however_sure_it_is(levelhead, folder, given):
    assert levelhead(*adjust(choice(folder, **given)))[0] == 0


def test_where_the_gain_is_not_known_the_model_is_adjusted(levelhead, folder):
    status, _, err = levelhead(*adjust(choice(folder, evidence=None, chosen_on="unlabelled")))
    assert status == 0
    assert "was chosen without labels, so what it gains is not known" in err


def test_floors_that_are_met_only_so_are_worth_it(levelhead, folder):
    floor = Floor(3, 0.5, 0.95, held_before=False)
    assert levelhead(*adjust(choice(folder, gain=-0.01, floors=(floor,))))[0] == 0


def test_a_head_of_one_logit_is_one_row_of_the_table(levelhead, folder):
    save_file({"fc.weight": torch.ones(1, 8), "fc.bias": torch.zeros(1)}, "logit.safetensors")
    by = lh.Adjustment.adding([0.0, 0.5 * np.log(9)])
    tuned = choice(folder, adjustment=by, counts=(900.0, 100.0), evidence=None)
    status, out, _ = levelhead(*adjust(tuned, "logit.safetensors"))
    assert status == 0
    assert "the logit  900/100" in out
    assert load_file("o.safetensors")["fc.bias"].item() == pytest.approx(0.5 * np.log(9))


THREE = {"adjustment": lh.Adjustment.adding([0.0, 1.0, 2.0]), "counts": (3, 2, 1), "evidence": None}
TWO = {"adjustment": lh.Adjustment.scaling([1.0, 2.0]), "counts": (9, 1), "evidence": None}
BAD_CHOICES = {
    "other classes": (
        THREE,
        "m.safetensors",
        "m.safetensors: fc has 4 classes, but it was tuned on 3 classes; tune on this model's own scores",
    ),
    "no bias": (
        {},
        "m.pt",
        "m.pt: fc has no bias to add to, and a state dict file cannot hold one that the model does",
    ),
    "one logit": (
        {"rule": "tau", **TWO},
        "one.safetensors",
        "fc gives a single logit, and",
    ),
    "several heads": ({}, "two.safetensors", "a [4, 8], b [4, 8]; pass --head to name it"),
    "no model": ({}, "x.safetensors", "x.safetensors: no such file"),
    "a choice of nothing": (
        {"rule": "magic"},
        "m.safetensors",
        "shift.json: not a file that `levelhead tune` wrote",
    ),
}


@pytest.mark.parametrize("name", BAD_CHOICES)
def test_what_cannot_be_adjusted_ends_in_one_line_and_leaves_everything_as_it_was(
    levelhead, folder, name
):
    entries, model, message = BAD_CHOICES[name]
    tuned = choice(folder, **entries)
    before = state(folder)
    status, out, err = levelhead(*adjust(tuned, model, f"o{os.path.splitext(model)[1]}"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("levelhead: ")
    assert message in err
    assert state(folder) == before
    assert "x.json: no such file; expected one that" in levelhead(*adjust("x.json"))[2]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (adjust("shift.json"), "fc has a bias, which takes what is added; leave it out"),
        (rescale(), "the rule rescale adds nothing that could go into weights; leave it out"),
    ],
)
def test_features_that_would_not_be_used_are_refused(levelhead, folder, words, reason):
    choice(folder)
    np.save("F.npy", np.random.default_rng(0).normal(size=(40, 8)))
    before = state(folder)
    assert levelhead(*words, "--features", "F.npy") == (2, "", f"levelhead: --features: {reason}\n")
    assert state(folder) == before


@pytest.mark.parametrize("option", ["--logits", "--features", "--counts"])
def test_an_output_is_never_a_file_that_is_read_beside_the_model(levelhead, folder, option):
    words = adjust(choice(folder))
    if option == "--counts":
        words = ["adjust", "m.safetensors", "--rule", "shift", "--strength", "0.5"]
    save_file({option[2:]: torch.tensor(COUNTS)}, "read.safetensors")
    before = state(folder)
    answer = levelhead(*words, option, "read.safetensors", "-o", "read.safetensors", "--force")
    reason = "read.safetensors: an input, which is never overwritten; choose another name"
    assert answer == (2, "", f"levelhead: {reason}\n")
    assert state(folder) == before


def test_a_file_of_an_older_levelhead_is_told_to_be_tuned_again(levelhead, folder):
    status, _, err = levelhead(*adjust("tuned.json"))
    assert (status, err.count("\n")) == (2, 1)
    assert "tune again" in err


def test_what_tune_writes_is_what_adjust_reads(levelhead, folder):
    rng = np.random.default_rng(0)
    labels = rng.integers(K, size=400)
    logits = (2 + rng.normal(size=(400, K)) + 2 * np.eye(K)[labels]) * [1.0, 0.8, 0.6, 0.4]
    np.save("L.npy", logits)
    np.save("Y.npy", labels)
    words = ("--logits", "L.npy", "--labels", "Y.npy", "--counts", "c.json", "-o", "t.json")
    assert levelhead("tune", *words)[0] == 0
    assert levelhead(*adjust("t.json"))[0] == 0
    before, after = load_file("m.safetensors"), load_file("o.safetensors")
    offset = torch.tensor(lh.tune(logits, labels, COUNTS).adjustment.offset)
    torch.testing.assert_close(after["fc.bias"], (before["fc.bias"] + offset).float())
    assert torch.equal(after["fc.weight"], before["fc.weight"])
