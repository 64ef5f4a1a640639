"""Records are held against naive readings of the same snapshot."""

import json
import tomllib
from importlib.resources import files

import numpy as np
import pytest

import levelhead as lh
from levelhead import Head
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.paper.cells import GRID
from levelhead_lab.paper.record import make_record

# a record keeps no cautions
pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NeverPredictedWarning")
CLASSES, WIDTH, COUNTS = 10, 16, [200, 120, 70, 40, 25, 15, 9, 5, 3, 2]


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """Features of ten Gaussian classes, and a head whose norms follow the counts."""
    rng = np.random.default_rng(0)
    means = np.abs(rng.normal(size=(CLASSES, WIDTH)))
    head = Head(
        means / np.linalg.norm(means, axis=1, keepdims=True) * (np.array(COUNTS) ** 0.15)[:, None]
    )
    labels = {
        "train": np.repeat(np.arange(CLASSES), COUNTS),
        "test": np.repeat(np.arange(CLASSES), 40),
        "held-out": np.repeat(np.arange(CLASSES), 20),
    }
    features = {
        split: means[y] + 0.5 * rng.normal(size=(len(y), WIDTH)) for split, y in labels.items()
    }
    return Snapshot(head, np.array(COUNTS), features, labels)


@pytest.fixture(scope="module")
def record(snapshot) -> dict:
    log = [
        {"epoch": e + 1, "test_error": abs(e - 20) / 100 + 0.1, "norms": [float(e)] * CLASSES}
        for e in range(40)
    ]
    return make_record(snapshot, log, {"seed": 3}, top=5)


def test_the_curve_is_the_error_of_the_rescaled_head_at_every_point_of_the_grid(snapshot, record):
    for i in range(0, len(GRID), 25):
        scores = snapshot.logits("test") * (200 / np.array(COUNTS)) ** GRID[i]
        wrong = (scores.argmax(axis=1) != snapshot.labels["test"]).mean()
        assert record["curve"][i] == pytest.approx(wrong, abs=1e-6)


def test_no_oracle_is_fitted_that_could_learn_the_test_set_by_heart(snapshot, record):
    assert record["oracle"]["error"] < record["best_on_test"]["error"]
    few = {
        split: labels[::5] for split, labels in snapshot.labels.items()
    }  # 80 test images, 160 weights
    every_fifth = {split: features[::5] for split, features in snapshot.features.items()}
    assert (
        make_record(Snapshot(snapshot.head, snapshot.counts, every_fifth, few), [], {})["oracle"]
        is None
    )


def test_best_on_test_is_no_worse_than_any_other_choice(record):
    best = record["best_on_test"]["error"]
    assert best <= min(record["curve"])
    assert best <= min(
        record["error"], record["match_prior"]["error"], record["held_out"]["rescale"]["error"]
    )


def test_gamma_of_the_hold_out_is_chosen_without_test_labels(snapshot, record):
    labels = {**snapshot.labels, "test": np.roll(snapshot.labels["test"], 40)}
    other = make_record(Snapshot(snapshot.head, snapshot.counts, snapshot.features, labels), [], {})
    assert other["held_out"]["rescale"]["gamma"] == record["held_out"]["rescale"]["gamma"]
    assert other["match_prior"]["gamma"] == record["match_prior"]["gamma"]
    assert other["best_on_test"]["error"] != record["best_on_test"]["error"]


def test_best_epoch_and_norms_come_from_the_log(record):
    assert record["best_epoch"] == {"epoch": 21, "error": 0.1}
    assert record["norms_over_epochs"]["epochs"][0] == 1
    assert record["norms_over_epochs"]["epochs"][-1] == 40
    assert len(record["norms_over_epochs"]["epochs"]) <= 25


def test_a_record_is_small_json(record):
    assert len(json.dumps(record)) < 20_000
    assert record["seed"] == 3
    assert record["top"]["curve"][0] < record["error"]
    assert len(record["top"]["curve"]) == 101


def test_published_tables_have_a_number_for_every_column():
    from levelhead_lab.methods import METHODS

    tables = tomllib.loads(
        files("levelhead_lab.paper").joinpath("tables.toml").read_text(encoding="utf-8")
    )
    for name in ("table1", "table2", "table3"):
        table = tables[name]
        assert all(len(row["published"]) == len(table["columns"]) for row in table["rows"])
    assert all(
        row["method"] in METHODS for name in ("table1", "table2") for row in tables[name]["rows"]
    )


def test_each_rule_is_chosen_on_the_hold_out_and_measured_on_test(snapshot, record):
    held = record["held_out"]
    for rule in ("rescale", "tau", "shift"):
        assert held[rule]["best"]["error"] <= held[rule]["error"]
        assert held[rule]["gamma"] > 0
    both = held["rescale-then-shift"]
    scaled = snapshot.logits("test") * (200 / np.array(COUNTS)) ** both["gamma"]
    scores = scaled - both["tau"] * np.log(COUNTS)
    assert both["error"] == pytest.approx(
        (scores.argmax(axis=1) != snapshot.labels["test"]).mean(), abs=1e-6
    )


def test_the_default_rule_is_in_a_record_with_what_it_reaches_on_test(snapshot, record):
    """Against the public surface: `lh.tune` on the hold-out, `tuned.apply` on test."""
    tuned = lh.tune(snapshot.logits("held-out"), snapshot.labels["held-out"], COUNTS)
    wrong = tuned.apply(snapshot.logits("test")).argmax(axis=1) != snapshot.labels["test"]
    assert record["held_out"]["offsets"]["error"] == pytest.approx(wrong.mean(), abs=1e-6)
    assert record["held_out"]["offsets"]["error"] < record["error"]


def test_no_adjustment_passes_the_oracle_by_more_than_its_loss_allows(snapshot, record):
    assert record["oracle"]["gradient"] <= 1e-5
    assert record["oracle"]["error"] <= record["best_on_test"]["error"] + 0.01
