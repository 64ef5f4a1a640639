"""Offsets for a head without a bias are judged by what arrives of them in its logits: `offset_k f'u`."""

import json

import numpy as np
import pytest

import levelhead as lh
from levelhead.cli import app
from levelhead.core.constant_direction import constant_direction

from .no_bias import FEATURES, LABELS, LOGITS, OFFSETS, FixedOffsets

K = 3


def test_evidence_is_that_of_the_scores_that_come_out():
    tuned = lh.tune(LOGITS, LABELS, rule=FixedOffsets(), features=FEATURES)
    _, reach = constant_direction(FEATURES)
    arrived = (LOGITS + np.outer(reach, OFFSETS)).argmax(axis=1)
    right = [int(((arrived == k) & (k == LABELS)).sum()) for k in range(K)]
    assert tuned.evidence.after.right.tolist() == right
    assert tuned.evidence.after.predicted.tolist() == np.bincount(arrived, minlength=K).tolist()
    exact = lh.tune(LOGITS, LABELS, rule=FixedOffsets())
    assert exact.evidence.after.right.tolist() != right
    assert np.array_equal(tuned.adjustment.offset, exact.adjustment.offset)
    assert tuned.reach == pytest.approx((reach.mean(), reach.std()))
    assert f"{reach.mean():.2f} ± {reach.std():.2f} of each offset" in str(tuned)


def test_feature_that_is_always_one_changes_nothing():
    constant = np.column_stack([np.ones(300), np.random.default_rng(1).normal(size=300)])
    with_bias = lh.tune(LOGITS, LABELS)
    without = lh.tune(LOGITS, LABELS, features=constant)
    assert without.gain == pytest.approx(with_bias.gain, abs=1e-12)
    assert without.reach == pytest.approx((1, 0), abs=1e-4)
    assert with_bias.reach is None


def test_floors_are_those_of_the_scores_that_come_out():
    goal = lh.Goal(floors={2: 0.5})
    tuned = lh.tune(LOGITS, LABELS, rule=FixedOffsets(), metric=goal, features=FEATURES)
    exact = lh.tune(LOGITS, LABELS, rule=FixedOffsets(), metric=goal)
    assert tuned.floors[0].probability != exact.floors[0].probability


def test_temperature_is_that_of_the_scores_that_come_out():
    tuned = lh.tune(LOGITS, LABELS, rule=FixedOffsets(), features=FEATURES)
    _, reach = constant_direction(FEATURES)
    arrived = LOGITS + np.outer(reach, OFFSETS)
    # Samples weigh as if all classes were equally frequent, as for the default metric.
    weights = (100 / np.bincount(LABELS))[LABELS]
    temperatures = np.linspace(0.3, 3, 2701)
    losses = []
    for temperature in temperatures:
        scaled = arrived / temperature
        top = scaled[np.arange(300), LABELS]
        losses.append((weights * (np.log(np.exp(scaled).sum(axis=1)) - top)).sum())
    assert tuned.temperature == pytest.approx(temperatures[np.argmin(losses)], abs=2e-3)
    exact = lh.tune(LOGITS, LABELS, rule=FixedOffsets())
    assert abs(tuned.temperature - exact.temperature) > 0.01


def test_rule_that_adds_nothing_needs_no_features():
    with pytest.raises(lh.LevelheadError, match=r"features: the rule scales adds nothing"):
        lh.tune(LOGITS, LABELS, rule="scales", features=FEATURES)


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (FEATURES[:200], r"features: expected numbers \[300, d\].*got \[200, 6\]"),
        (FEATURES[:, 0], r"features: expected numbers \[300, d\].*got \[300\]"),
        (FEATURES[:, :0], r"features: expected numbers \[300, d\].*got \[300, 0\]"),
        (FEATURES - FEATURES.mean(axis=0), "features: no direction in them is 1"),
    ],
)
def test_features_that_do_not_fit_are_refused(features, reason):
    with pytest.raises(lh.LevelheadError, match=reason):
        lh.tune(LOGITS, LABELS, features=features)


def test_reach_is_kept_in_the_file(tmp_path):
    tuned = lh.tune(LOGITS, LABELS, features=FEATURES)
    tuned.save(tmp_path / "tuned.json")
    assert lh.Tuned.load(tmp_path / "tuned.json").reach == tuned.reach


def test_command_line_judges_so_too(tmp_path, capsys):
    for name, values in (("logits", LOGITS), ("labels", LABELS), ("features", FEATURES)):
        np.save(tmp_path / f"{name}.npy", values)
    files = [f"--{name}={tmp_path / name}.npy" for name in ("logits", "labels", "features")]
    app(["tune", *files, "-o", str(tmp_path / "tuned.json"), "--json"], standalone_mode=False)
    expected = lh.tune(LOGITS, LABELS, features=FEATURES)
    written = json.loads(capsys.readouterr().out)
    assert written["reach"] == pytest.approx(expected.reach)
    assert written["evidence"]["gain"] == expected.gain
    for more in (["--task=multilabel"], ["--rule=scales"]):
        with pytest.raises(lh.LevelheadError, match="features"):
            app(["tune", *files, *more], standalone_mode=False)
