"""`levelhead tune --target estimate`: from unlabelled logits, shown and written."""

import json

import numpy as np
import pytest

COUNTS = [900, 300, 100]
SHARES = np.array([0.2, 0.2, 0.6])


def scored(rng, labels):
    return 1.5 * (1.5 * np.eye(3)[labels] + rng.normal(size=(len(labels), 3))) + np.log(COUNTS)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), [180, 60, 30])
    np.savez(tmp_path / "held-out.npz", logits=scored(rng, labels), labels=labels, counts=COUNTS)
    np.save(tmp_path / "unlabelled.npy", scored(rng, rng.choice(3, p=SHARES, size=900)))
    return tmp_path


TUNE = ("tune", "--rule", "shift", "--target", "estimate")


def test_the_target_is_estimated_shown_and_written(files, levelhead):
    words = ("--logits", files / "held-out.npz", "--unlabelled", files / "unlabelled.npy")
    status, out, _ = levelhead(
        *TUNE, *words, "-o", files / "tuned.json", "--report", files / "page.html"
    )
    assert status == 0
    assert "by em from 900 unlabelled samples, calibrated on 270 held-out ones" in out
    written = json.loads((files / "tuned.json").read_text())
    assert np.abs(np.array(written["prior"]["shares"]) - SHARES).max() < 0.12
    assert written["target"] == written["prior"]["target"]


def test_without_labels_the_logits_themselves_are_the_unlabelled_ones(files, levelhead):
    np.save(files / "counts.npy", COUNTS)
    status, out, _ = levelhead(
        *TUNE, "--logits", files / "unlabelled.npy", "--counts", files / "counts.npy", "--json"
    )
    assert status == 0
    assert np.abs(np.array(json.loads(out)["prior"]["shares"]) - SHARES).max() < 0.08


def test_labels_alone_are_not_enough(files, levelhead):
    status, _, err = levelhead(*TUNE, "--logits", files / "held-out.npz")
    assert status == 2
    assert "--target: 'estimate' needs unlabelled samples from deployment" in err
    assert "--unlabelled" in err


def test_without_labels_it_is_said_what_was_chosen_for(files, levelhead):
    words = ("tune", "--logits", files / "unlabelled.npy")
    toward = "chosen until classes are predicted"
    unknown = "its gain is not known; for that, give --labels"
    for more, mix in (((), "equally often"), (("--target", "0.5,0.3,0.2"), "as --target says")):
        status, out, err = levelhead(*words, *more, "--json")
        assert (status, json.loads(out)["chosen_on"]) == (0, "unlabelled")
        assert err == f"levelhead: no labels: {toward} {mix}; {unknown}\n"
    assert levelhead(*words, "--target", "0.5,0.5")[2].count("\n") == 1
