"""Comparing rules: the one that fits the damage wins, honestly, and by how much is told."""

from __future__ import annotations

import json

import numpy as np
import pytest

import levelhead as lh
from levelhead.gamma.compare import _mean_and_interval, _random_half

COUNTS = np.array([1000, 300, 90, 27])


def unbent(seed: int, size: int = 150) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), size)
    level = rng.uniform(3, 12, size=(4 * size, 1))  # of each sample: scaling and shifting are then two things
    return level + 1.3 * rng.normal(size=(4 * size, 4)) + 2.0 * np.eye(4)[labels], labels


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
    table = lh.compare(logits * (COUNTS / 1000) ** 0.4, labels, COUNTS, norms=[4, 3, 2, 1], repeats=2)
    errors = [row.balanced_error for row in table.rows]
    assert errors == sorted(errors)
    assert table.rows[0].behind_best == 0
    assert {row.rule for row in table.rows} == {"none", "rescale", "tau", "shift", "rescale+shift"}
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
        for row in lh.compare(5 + rng.normal(size=(120, 4)), labels, COUNTS, repeats=1, rng=seed).rows
        if row.rule != "none"
    ]
    assert np.mean(gains) < 0.02


def test_halves_are_stratified_and_differ_by_one_at_most():
    labels = np.array([0] * 7 + [2] * 4 + [1] * 1)
    for seed in range(5):
        half = _random_half(labels, np.random.default_rng(seed))
        assert half[:7].sum() in (3, 4)
        assert half[7:11].sum() == 2


def test_interval_is_the_stratified_one_of_paired_differences():
    labels = np.array([0, 0, 0, 0, 1, 1])
    values = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    mean, (low, high) = _mean_and_interval(values, labels)
    error = np.sqrt(values[:4].var(ddof=1) / 4 + values[4:].var(ddof=1) / 2) / 2
    assert (mean, low, high) == pytest.approx((0.5, 0.5 - 1.96 * error, 0.5 + 1.96 * error))


def test_table_says_which_is_best_and_by_how_much():
    logits, labels = unbent(0)
    text = str(lh.compare(logits * (COUNTS / 1000) ** 0.4, labels, COUNTS, repeats=2))
    assert "best: RS" in text
    assert "none (gamma = 0)" in text
    assert "600 samples, 2 repeats" in text


def test_a_class_of_one_sample_is_named_and_a_set_of_such_refused():
    logits, labels = unbent(0, 20)
    rows = np.r_[0:61]
    with pytest.warns(lh.MissingClassWarning, match="fewer than 2 samples here of class 3"):
        lh.compare(logits[rows], labels[rows], COUNTS, repeats=1)
    with pytest.raises(ValueError, match="labels: expected a class with at least two samples"):
        lh.compare(logits[::20], labels[::20], COUNTS)
