"""The page "What it gains, on real data" is that of results/decisions.json, and so are its claims."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "decisions.md").read_text()
RESULTS = json.loads((ROOT / "results" / "decisions.json").read_text())


def test_the_page_is_that_of_the_results():
    from bench.decisions import page as decision_page

    for name, content in decision_page.blocks(RESULTS).items():
        shown = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end of {name} -->", PAGE, flags=re.S)
        assert shown is not None, name
        assert shown[1] == content, f"{name} is not that of results/: run python -m bench.decisions"


def test_gains_and_floors_on_real_sets_are_those_of_the_results():
    from bench.decisions import real_gains

    results = json.loads(real_gains.RESULTS.read_text())
    for name, content in real_gains.blocks(results).items():
        place = f"<!-- {name} -->\n{content}\n<!-- end of {name} -->"
        assert place in PAGE, f"{name}: run python -m bench.decisions.real_gains"


def test_the_table_of_the_readme_is_that_of_the_results():
    from bench.decisions import page as decision_page

    table = f"<!-- decisions -->\n{decision_page.readme_table(RESULTS)}\n<!-- end of decisions -->"
    assert table in (ROOT / "README.md").read_text(), "run python -m bench.decisions"
    values = {cell["set"]: [] for cell in RESULTS["cells"] if "SMOTE" in cell["macro_f1"]["values"]}
    for cell in RESULTS["cells"]:
        if cell["set"] in values:
            values[cell["set"]].append(np.mean(cell["macro_f1"]["values"]["SMOTE"]))
    assert f" {np.mean([np.mean(of_set) for of_set in values.values()]):.1f} |" in table


def test_the_results_have_the_methods_sets_and_mixes_asked_for():
    assert len(RESULTS["sets"]) >= 24
    after_training = {"plain", "prior division", "by coordinates", "shift", "vector", "levelhead"}
    after_training |= {"levelhead, if worthwhile", "levelhead, no counts"}
    for cell in RESULTS["cells"]:
        trained = {"class weights", "over-sampling", "SMOTE", "class weights, then levelhead"}
        if cell["set"] == "CIFAR-10-LT, shipped":
            trained = set()
        threshold = {"TunedThreshold"} if RESULTS["sets"][cell["set"]]["classes"] == 2 else set()
        for metric in ("balanced_error", "macro_f1"):
            there = {name for name in cell[metric]["values"] if not name.startswith("without ")}
            assert there - {"optimal cutoffs", "RS"} == after_training | trained | threshold
    mixed = {cell["set"] for cell in RESULTS["cells"] if "mixes" in cell}
    assert mixed == set(RESULTS["sets"])


@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1"])
def test_levelhead_is_ahead_of_what_people_try_in_the_mean(metric):
    from bench.decisions import page as decision_page

    rows = decision_page.by_set(RESULTS, metric)
    trained = [row for row in rows.values() if "SMOTE" in row]
    mean = {
        method: np.mean([row[method] for row in trained])
        for method in ("plain", "class weights", "SMOTE", "prior division", "levelhead")
    }
    assert max(mean, key=lambda method: mean[method]) == "levelhead"


def test_floors_hold_as_often_as_they_say():
    rows = np.array([row for cell in RESULTS["cells"] for row in cell.get("floors", ())])
    for low, high in ((0.0, 0.5), (0.5, 0.8), (0.8, 1.01)):
        in_bin = rows[(rows[:, 0] >= low) & (rows[:, 0] < high)]
        _, said, held = in_bin.mean(axis=0)
        assert len(in_bin) > 500
        assert said - 0.05 <= held <= said + 0.1


def test_a_judge_measures_what_scikit_learn_does():
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

    from bench.decisions.methods import Judge

    rng = np.random.default_rng(0)
    labels = rng.choice(3, 200, p=[0.6, 0.3, 0.1])
    predicted = np.where(rng.random(200) < 0.7, labels, rng.integers(3, size=200))
    even, as_they_occur = np.full(3, 1 / 3), np.bincount(labels) / 200
    assert Judge(labels, even).measure(predicted, "balanced_error") == pytest.approx(
        100 * balanced_accuracy_score(labels, predicted)
    )
    assert Judge(labels, as_they_occur).measure(predicted, "macro_f1") == pytest.approx(
        100 * f1_score(labels, predicted, average="macro")
    )
    shares = np.array([0.1, 0.2, 0.7])
    weights = (shares / np.bincount(labels))[labels]
    assert Judge(labels, shares).measure(predicted, "balanced_error") == pytest.approx(
        100 * accuracy_score(labels, predicted, sample_weight=weights)
    )
    assert Judge(labels, shares).measure(predicted, "macro_f1") == pytest.approx(
        100 * f1_score(labels, predicted, average="macro", sample_weight=weights)
    )


def test_the_noise_of_a_test_is_that_of_its_formula():
    from bench.decisions.methods import Judge

    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [400, 100])
    plain, other = (np.where(rng.random(500) < right, labels, 1 - labels) for right in (0.6, 0.8))
    change = (other == labels).astype(float) - (plain == labels)
    variance = sum(0.25 * change[labels == c].var() / (labels == c).sum() for c in (0, 1))
    noise = Judge(labels, np.full(2, 0.5)).noise(other, plain, "balanced_error")
    assert noise == pytest.approx(100 * np.sqrt(variance), rel=0.25)


def test_mixes_are_shares_and_one_is_training_turned_round():
    from bench.decisions.methods import MIXES, draw_mixes

    mixes = draw_mixes(np.array([70, 10, 20]), np.random.default_rng(0))
    assert tuple(mixes) == MIXES
    assert all(shares.sum() == pytest.approx(1) and (shares > 0).all() for shares in mixes.values())
    assert mixes["reversed"].tolist() == [0.1, 0.7, 0.2]


def test_the_threshold_of_scikit_learn_is_about_the_best_one():
    from sklearn.metrics import balanced_accuracy_score

    from bench.decisions.methods import tune_threshold
    from bench.decisions.scores import Scores

    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [400, 40])
    margin = 2.0 * labels - 3 + rng.normal(size=440)
    scores = np.outer(margin, [-0.5, 0.5])
    predicted = tune_threshold(
        Scores(np.array([400, 40]), scores, labels, scores, labels, predicted={}), "balanced_error"
    )
    every = [balanced_accuracy_score(labels, margin > cut) for cut in margin]
    assert balanced_accuracy_score(labels, predicted) >= max(every) - 0.02
    assert balanced_accuracy_score(labels, margin > 0) < max(every) - 0.1


def test_honest_intervals_are_found_to_hold_and_gains_stated_too_high_are_not():
    from bench.decisions import page as decision_page

    rng = np.random.default_rng(0)

    def results(excess: float):
        fits = []
        for real in rng.normal(4, 2, 2000):
            stated = real + excess + rng.normal(0, 3)
            fits.append(
                (
                    {
                        "verdict": "better",
                        "gain": stated,
                        "interval": [stated - 5.88, stated + 5.88],
                        "noise": 2.0,
                    },
                    real,
                )
            )
        values = {
            "levelhead": [real + rng.normal(0, 2) for _, real in fits],
            "plain": [0.0] * len(fits),
        }
        return {"cells": [{"balanced_error": {"fits": [fit for fit, _ in fits], "values": values}}]}

    honest, high = (decision_page.intervals(results(excess), "balanced_error") for excess in (0, 3))
    assert honest["covered"] == pytest.approx(95, abs=1.5)
    assert honest["stated"] - honest["real"] == pytest.approx(0, abs=4 * honest["error"])
    assert high["stated"] - high["real"] == pytest.approx(3, abs=4 * high["error"])
    assert high["covered"] < 90


def test_smote_makes_points_between_samples_of_their_class():
    from bench.decisions.models import smote

    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [30, 4])
    features = rng.normal(size=(34, 2)) + 100 * labels[:, None]
    points, classes = smote(features, labels, 0)
    assert np.bincount(classes).tolist() == [30, 30]
    of_class = features[labels == 1]
    for point in points[34:]:
        between = np.abs(
            np.linalg.norm(of_class[:, None] - point, axis=-1)
            + np.linalg.norm(of_class[None] - point, axis=-1)
            - np.linalg.norm(of_class[:, None] - of_class[None], axis=-1)
        )
        np.fill_diagonal(between, np.inf)
        assert between.min() < 1e-9


def test_a_split_keeps_every_class_in_every_part_and_no_row_twice():
    from bench.decisions.sets import split_set

    labels = np.repeat([0, 1, 2], [300, 40, 10])
    split = split_set(np.arange(350.0)[:, None], labels, 0)
    assert split.train is not None
    rows = np.concatenate([part[0][:, 0] for part in (split.train, split.held_out, split.test)])
    assert len(np.unique(rows)) == 350
    assert split.counts.tolist() == [150, 20, 5]
    assert np.bincount(split.held_out[1]).tolist() == [60, 8, 2]
    assert np.bincount(split.test[1]).tolist() == [90, 12, 3]


def test_a_long_tail_has_a_balanced_test_and_no_row_twice():
    from bench.decisions.sets import split_long_tail

    split = split_long_tail(
        np.arange(600.0)[:, None], np.repeat([0, 1, 2], 200), 0, largest=100, ratio=10
    )
    assert split.train is not None
    rows = np.concatenate([part[0][:, 0] for part in (split.train, split.held_out, split.test)])
    assert len(np.unique(rows)) == len(rows)
    assert sorted(split.counts.tolist()) == [10, 31, 100]
    assert sorted(np.bincount(split.held_out[1]).tolist()) == [4, 12, 40]
    assert np.bincount(split.test[1]).tolist() == [60, 60, 60]
