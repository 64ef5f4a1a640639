"""A metric and a rule of somebody's own: one entry in a table, and the command line knows them."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import levelhead as lh
from levelhead.cli.words import complete_metric, complete_rule, complete_rule_with_strength
from levelhead.core.metrics import METRICS, Metric
from levelhead.core.rules import RULES, OneStrength
from levelhead.path.direction import Direction

LABELS = np.repeat([0, 1, 2], [120, 40, 20])
COUNTS = [1000, 200, 40]
TUNE = ("tune", "--logits", "L.npy", "--labels", "Y.npy", "--counts", "1000,200,40")


def rare_miss(tables):
    """Return the error of the last class."""
    return 1 - tables.recall[..., -1]


class RootShift(OneStrength):
    """A shift by the root of how rare a class is."""

    name = "root-shift"
    title = "root shift"
    sentence = "strength times half of log(largest count / own count) added to scores"
    adds = True
    reach = 8.0

    def ratios(self, counts):
        return np.sqrt(counts.max() / counts)

    def direction(self, counts, target=None):
        return Direction(self.name, self.ratios(counts), multiplies=False)


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The two entries, and samples to try them on."""
    metric = Metric("rare_recall", "recall of the last class", rare_miss, aliases=("last",))
    monkeypatch.setitem(METRICS, metric.name, metric)
    monkeypatch.setitem(RULES, RootShift.name, RootShift())
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).normal(size=(180, 3))
    logits = 2 * np.eye(3)[LABELS] + noise + np.log(COUNTS)
    np.save("L.npy", logits)
    np.save("Y.npy", LABELS)
    return logits


@pytest.mark.parametrize("name", ["rare_recall", "last"])
def test_tune_takes_them_and_says_what_they_do(added, levelhead, name):
    words = (*TUNE, "--metric", name, "--rule", "root-shift", "-o", f"{name}.json")
    status, out, err = levelhead(*words)
    assert (status, err) == (0, "")
    tuned = lh.tune(added, LABELS, COUNTS, metric="rare_recall", rule="root-shift")
    assert out.startswith(tuned.summary())
    assert "recall of the last class" in out
    assert "root shift" in out
    loaded = lh.Tuned.load(f"{name}.json")
    assert (loaded.rule, loaded.metric, loaded.strength) == (
        "root-shift",
        "rare_recall",
        tuned.strength,
    )


def test_compare_shows_the_rule(added, levelhead):
    status, out, _ = levelhead("compare", *TUNE[1:], "--metric", "rare_recall", "--json")
    assert status == 0
    assert "root-shift" in json.loads(out)["rules"]


def test_a_model_is_adjusted_by_the_rule(added, levelhead):
    tensors = {"fc.weight": np.eye(3, 4, dtype=np.float32), "fc.bias": np.zeros(3, np.float32)}
    save_file(tensors, "m.safetensors")
    by = ("--rule", "root-shift", "--strength", "2", "--counts", "1000,200,40")
    status, _, err = levelhead("adjust", "m.safetensors", *by, "-o", "o.safetensors")
    assert status == 0, err
    bias = load_file("o.safetensors")["fc.bias"]
    np.testing.assert_allclose(bias, np.log(1000 / np.array(COUNTS)), rtol=1e-6)


def test_help_names_them(added, levelhead):
    for command, words in {
        "tune": ("rare_recall", RootShift.sentence),
        "compare": ("rare_recall",),
        "report": ("rare_recall", RootShift.sentence),
        "adjust": (RootShift.sentence,),
    }.items():
        shown = " ".join(levelhead(command, "--help")[1].split())
        for word in words:
            assert word in shown


def test_the_shell_completes_them(added):
    assert complete_metric("rare") == ["rare_recall"]
    assert complete_rule("root") == ["root-shift"]
    assert complete_rule_with_strength("root") == ["root-shift"]


def test_errors_list_them(added, levelhead):
    assert "rare_recall" in levelhead(*TUNE, "--metric", "nothing")[2]
    assert "'root-shift'" in levelhead(*TUNE, "--rule", "nothing")[2]


def test_without_the_entries_both_are_unknown(added, levelhead, monkeypatch):
    monkeypatch.delitem(METRICS, "rare_recall")
    monkeypatch.delitem(RULES, "root-shift")
    assert levelhead(*TUNE, "--metric", "rare_recall")[0] == 2
    assert levelhead(*TUNE, "--rule", "root-shift")[0] == 2
    assert "rare_recall" not in levelhead("tune", "--help")[1]
