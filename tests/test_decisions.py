"""The page "Which rule, on real data" equals results/decisions.json, and `auto` is as good there as it has to be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "decisions.md").read_text()
RESULTS = json.loads((ROOT / "results" / "decisions.json").read_text())


@pytest.fixture(autouse=True)
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


def test_the_page_is_that_of_the_results():
    import _decision_page

    for name, content in _decision_page.blocks(RESULTS).items():
        shown = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end of {name} -->", PAGE, flags=re.S)
        assert shown is not None, name
        assert shown[1] == content, f"{name} is not that of results/: run bench/decisions.py"


def test_the_table_of_the_readme_is_that_of_the_results():
    import _decision_page

    table = f"<!-- decisions -->\n{_decision_page.readme_table(RESULTS)}\n<!-- end of decisions -->"
    assert table in (ROOT / "README.md").read_text(), "run bench/decisions.py"
    values = {cell["set"]: [] for cell in RESULTS["cells"] if "SMOTE" in cell["macro_f1"]["values"]}
    for cell in RESULTS["cells"]:
        if cell["set"] in values:
            values[cell["set"]].append(np.mean(cell["macro_f1"]["values"]["SMOTE"]))
    assert f" {np.mean([np.mean(own) for own in values.values()]):.1f} |" in table


def test_no_limit_is_broken():
    import _decision_page

    broken = [limit.claim for limit in _decision_page.limits(RESULTS) if not limit.held]
    for metric, title in _decision_page.TITLES.items():
        if not 93 <= _decision_page.intervals(RESULTS, metric)["covered"] <= 97:
            broken.append(f"{title}: intervals of the gain")
    assert broken == []


def test_mixes_are_of_several_splits_and_every_class_of_every_set_has_a_floor():
    for cell in RESULTS["cells"]:
        if "mixes" in cell:
            splits = {
                len(own["values"]["plain"])
                for mixes in cell["mixes"].values()
                for own in mixes.values()
            }
            assert splits in ({6}, {42})
            assert 0 < cell["floors"]["asked"] <= RESULTS["sets"][cell["set"]]["classes"]


@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1"])
def test_the_limits_are_those_of_a_road_of_its_own(metric):
    import _decision_page

    names = {cell["set"] for cell in RESULTS["cells"] if "SMOTE" in cell[metric]["values"]}
    cells = {
        name: [cell[metric]["values"] for cell in RESULTS["cells"] if cell["set"] == name]
        for name in names
    }
    mean = {
        method: np.mean(
            [np.mean([np.mean(values[method]) for values in own]) for own in cells.values()]
        )
        for method in ("SMOTE", "auto, if worthwhile")
    }
    title = _decision_page.TITLES[metric]
    claim = f"{title}: behind SMOTE"
    limit = next(limit for limit in _decision_page.limits(RESULTS) if limit.claim == claim)
    assert limit.points == pytest.approx(mean["SMOTE"] - mean["auto, if worthwhile"])


def test_the_results_have_the_methods_sets_and_mixes_asked_for():
    assert len(RESULTS["sets"]) >= 24
    methods = {
        "plain",
        "prior division",
        "RS",
        "shift",
        "vector",
        "auto",
        "auto, if worthwhile",
        "auto, if certain",
    }
    for cell in RESULTS["cells"]:
        trained = (
            {"class weights", "over-sampling", "SMOTE"}
            if cell["set"] != "CIFAR-10-LT, shipped"
            else set()
        )
        threshold = {"TunedThreshold"} if RESULTS["sets"][cell["set"]]["classes"] == 2 else set()
        for metric in ("balanced_error", "macro_f1"):
            assert set(cell[metric]["values"]) == methods | trained | threshold
    fits = [
        fit
        for cell in RESULTS["cells"]
        for metric in ("balanced_error", "macro_f1")
        for fit in cell[metric]["fits"]
    ]
    assert sum(fit["rule"] != "none" for fit in fits) >= 300
    mixed = {cell["set"] for cell in RESULTS["cells"] if "mixes" in cell}
    assert mixed == set(RESULTS["sets"])
    assert all(
        len(cell["mixes"]["balanced_error"]) == 4 for cell in RESULTS["cells"] if "mixes" in cell
    )


def test_a_judge_measures_what_scikit_learn_does():
    from _decision_methods import Judge
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

    rng = np.random.default_rng(0)
    labels = rng.choice(3, 200, p=[0.6, 0.3, 0.1])
    predicted = np.where(rng.random(200) < 0.7, labels, rng.integers(3, size=200))
    even, own = np.full(3, 1 / 3), np.bincount(labels) / 200
    assert Judge(labels, even).measure(predicted, "balanced_error") == pytest.approx(
        100 * balanced_accuracy_score(labels, predicted)
    )
    assert Judge(labels, own).measure(predicted, "macro_f1") == pytest.approx(
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
    from _decision_methods import Judge

    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [400, 100])
    plain, other = (np.where(rng.random(500) < right, labels, 1 - labels) for right in (0.6, 0.8))
    change = (other == labels).astype(float) - (plain == labels)
    variance = sum(0.25 * change[labels == c].var() / (labels == c).sum() for c in (0, 1))
    noise = Judge(labels, np.full(2, 0.5)).noise(other, plain, "balanced_error")
    assert noise == pytest.approx(100 * np.sqrt(variance), rel=0.25)


def test_mixes_are_shares_and_one_is_training_turned_round():
    from _decision_methods import MIXES, draw_mixes

    mixes = draw_mixes(np.array([70, 10, 20]), np.random.default_rng(0))
    assert tuple(mixes) == MIXES
    assert all(shares.sum() == pytest.approx(1) and (shares > 0).all() for shares in mixes.values())
    assert mixes["reversed"].tolist() == [0.1, 0.7, 0.2]


def test_the_threshold_of_scikit_learn_is_about_the_best_one():
    from _decision_methods import tune_threshold
    from _decision_scores import Scores
    from sklearn.metrics import balanced_accuracy_score

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
    import _decision_page

    rng = np.random.default_rng(0)

    def results(excess: float):
        fits = []
        for real in rng.normal(4, 2, 2000):
            stated = real + excess + rng.normal(0, 3)
            fits.append(
                (
                    {
                        "rule": "shift",
                        "gain": stated,
                        "interval": [stated - 5.88, stated + 5.88],
                        "noise": 2.0,
                    },
                    real,
                )
            )
        values = {"auto": [real + rng.normal(0, 2) for _, real in fits], "plain": [0.0] * len(fits)}
        return {"cells": [{"balanced_error": {"fits": [fit for fit, _ in fits], "values": values}}]}

    honest, high = (
        _decision_page.intervals(results(excess), "balanced_error") for excess in (0, 3)
    )
    assert honest["covered"] == pytest.approx(95, abs=1.5)
    assert honest["stated"] - honest["real"] == pytest.approx(0, abs=4 * honest["error"])
    assert high["stated"] - high["real"] == pytest.approx(3, abs=4 * high["error"])
    assert high["covered"] < 90


def test_smote_makes_points_between_samples_of_their_class():
    from _decision_models import smote

    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [30, 4])
    features = rng.normal(size=(34, 2)) + 100 * labels[:, None]
    made, classes = smote(features, labels, 0)
    assert np.bincount(classes).tolist() == [30, 30]
    own = features[labels == 1]
    for point in made[34:]:
        between = np.abs(
            np.linalg.norm(own[:, None] - point, axis=-1)
            + np.linalg.norm(own[None] - point, axis=-1)
            - np.linalg.norm(own[:, None] - own[None], axis=-1)
        )
        np.fill_diagonal(between, np.inf)
        assert between.min() < 1e-9


def test_a_split_keeps_every_class_in_every_part_and_no_row_twice():
    from _decision_sets import split_set

    labels = np.repeat([0, 1, 2], [300, 40, 10])
    split = split_set(np.arange(350.0)[:, None], labels, 0)
    assert split.train is not None
    rows = np.concatenate([part[0][:, 0] for part in (split.train, split.held_out, split.test)])
    assert len(np.unique(rows)) == 350
    assert split.counts.tolist() == [150, 20, 5]
    assert np.bincount(split.held_out[1]).tolist() == [60, 8, 2]
    assert np.bincount(split.test[1]).tolist() == [90, 12, 3]


def test_a_long_tail_has_a_balanced_test_and_no_row_twice():
    from _decision_sets import split_long_tail

    split = split_long_tail(
        np.arange(600.0)[:, None], np.repeat([0, 1, 2], 200), 0, largest=100, ratio=10
    )
    assert split.train is not None
    rows = np.concatenate([part[0][:, 0] for part in (split.train, split.held_out, split.test)])
    assert len(np.unique(rows)) == len(rows)
    assert sorted(split.counts.tolist()) == [10, 31, 100]
    assert sorted(np.bincount(split.held_out[1]).tolist()) == [4, 12, 40]
    assert np.bincount(split.test[1]).tolist() == [60, 60, 60]
