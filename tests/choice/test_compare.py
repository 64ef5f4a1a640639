"""Comparing rules: the one that fits the damage wins, honestly, and by how much is told."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn import metrics as sk

import levelhead as lh
from levelhead.choice.resample import draw_folds

COUNTS = np.array([1000, 300, 90, 27])


def unbent(seed: int, size: int = 150) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), size)
    level = rng.uniform(
        3, 12, size=(4 * size, 1)
    )  # of each sample: scaling and shifting are then two things
    return level + 1.3 * rng.normal(size=(4 * size, 4)) + 2.0 * np.eye(4)[labels], labels


def test_it_is_what_tune_computed_to_choose_the_rule():
    samples = 600
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(4), samples // 4)
    logits = (5 + rng.normal(size=(samples, 4)) + 2 * np.eye(4)[labels]) * (COUNTS / 1000) ** 0.4
    tuned, table = lh.tune(logits, labels, COUNTS), lh.compare(logits, labels, COUNTS)
    assert table.auto == tuned.rule
    known = {one.rule: (one.value, one.gain, one.interval) for one in tuned.candidates}
    assert {row.rule: (row.value, row.gain, row.gain_interval) for row in table.rows} == known


def test_scaled_logits_are_best_scaled_back_and_shifted_ones_shifted_back():
    logits, labels = unbent(0)
    scaled = lh.compare(logits * (COUNTS / 1000) ** 0.4, labels, COUNTS, repeats=3)
    shifted = lh.compare(logits + 0.9 * np.log(COUNTS / 1000), labels, COUNTS, repeats=3)
    errors = [{row.rule: row.balanced_error for row in table.rows} for table in (scaled, shifted)]
    assert errors[0]["rescale"] < errors[0]["none"] - 0.1
    assert errors[0]["rescale"] < errors[0]["shift"]
    assert errors[1]["shift"] < errors[1]["none"] - 0.1
    assert errors[1]["shift"] < errors[1]["rescale"]
    found = {row.rule: row.gammas for row in shifted.rows}
    assert found["shift"] == pytest.approx([0.9], abs=0.2)
    assert len(found["rescale+shift"]) == 2


def test_rows_come_best_first_and_the_best_is_behind_by_nothing():
    logits, labels = unbent(1, 40)
    table = lh.compare(
        logits * (COUNTS / 1000) ** 0.4,
        labels,
        COUNTS,
        rule=lh.rules.Auto(norms=[4, 3, 2, 1]),
        repeats=2,
    )
    errors = [row.balanced_error for row in table.rows]
    assert errors == sorted(errors)
    assert table.rows[0].behind_best == 0
    assert {row.rule for row in table.rows} == {
        "none",
        "rescale",
        "tau",
        "shift",
        "rescale+shift",
        "vector",
    }
    assert next(row.gain for row in table.rows if row.rule == "none") == 0
    assert json.loads(json.dumps(table.to_dict()))["best"] == table.best


def test_nothing_is_won_on_a_head_that_is_level():
    logits, labels = unbent(2)
    table = lh.compare(logits, labels, COUNTS, repeats=4)
    assert not table.clear
    for row in table.rows:
        assert row.gain <= row.gain_interval[1]
        assert row.gain_interval[0] <= 0.003  # cross-fitted: no rule is flattered by its own choice


def test_a_score_is_measured_on_samples_that_were_not_fitted_on():
    # labels are noise: fitted in place, some strength always looks better than 0
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 30)
    gains = [
        row.gain
        for seed in range(4)
        for row in lh.compare(
            5 + rng.normal(size=(120, 4)), labels, COUNTS, repeats=1, rng=seed
        ).rows
        if row.rule != "none"
    ]
    assert np.mean(gains) < 0.02


def test_folds_are_stratified_and_differ_by_one_at_most():
    labels = np.array([0] * 7 + [2] * 4 + [1] * 1)
    for seed in range(5):
        fold = draw_folds(labels, 2, np.random.default_rng(seed))
        assert sorted(np.bincount(fold[:7], minlength=2)) == [3, 4]
        assert np.bincount(fold[7:11], minlength=2).tolist() == [2, 2]


def test_a_gain_has_the_stratified_error_of_paired_differences_with_one_sample_more_each_way():
    logits, labels = unbent(3, 10)
    table = lh.compare(logits * (COUNTS / 1000) ** 0.4, labels, COUNTS, repeats=1)
    row = next(row for row in table.rows if row.rule == "shift")
    low, high = row.gain_interval
    assert (low + high) / 2 == pytest.approx(row.gain)
    assert (
        1.96 * np.sqrt(4 * (2 / 12 / 12)) / 4 <= (high - low) / 2 * 1.001
    )  # were nothing else to change


@pytest.mark.parametrize("metric", ["macro_f1", "error", "worst_recall"])
def test_other_metrics_are_compared_in_their_own_values(metric):
    logits, labels = unbent(0, 40)
    table = lh.compare(
        logits + 0.9 * np.log(COUNTS / 1000), labels, COUNTS, metric=metric, repeats=1
    )
    assert table.metric == metric
    values = [row.value for row in table.rows]
    assert values == sorted(values, reverse=metric != "error")
    none = next(row for row in table.rows if row.rule == "none")
    predicted = (logits + 0.9 * np.log(COUNTS / 1000)).argmax(axis=1)
    truth = {
        "macro_f1": sk.f1_score(labels, predicted, average="macro"),
        "error": (predicted != labels).mean(),
        "worst_recall": sk.recall_score(labels, predicted, average=None).min(),
    }[metric]
    assert none.value == pytest.approx(truth)
    assert table.auto in {row.rule for row in table.rows}


def test_table_says_which_is_best_and_by_how_much():
    logits, labels = unbent(0)
    text = str(lh.compare(logits * (COUNTS / 1000) ** 0.4, labels, COUNTS, repeats=2))
    assert "best: RS" in text
    assert "the model as it is" in text
    assert "600 samples, 2 repeats" in text


def test_a_class_of_one_sample_is_named_and_a_set_of_such_refused():
    logits, labels = unbent(0, 20)
    rows = np.r_[0:61]
    with pytest.warns(
        lh.warnings.MissingClassWarning, match="fewer than 2 samples here of class 3"
    ):
        lh.compare(logits[rows], labels[rows], COUNTS, repeats=1)
    with pytest.raises(ValueError, match="labels: expected a class with at least two samples"):
        lh.compare(logits[::20], labels[::20], COUNTS)
