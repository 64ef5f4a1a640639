"""A target prior: classes move by log(target / training share), whatever brings the choice to the model."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import levelhead as lh
from levelhead.choice.tuned_json import write_tuned

COUNTS = np.array([900, 300, 90, 30])
SHARES = COUNTS / COUNTS.sum()
REVERSED = SHARES[::-1].copy()


def calibrated(
    rng: np.random.Generator, n: int, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a model that is calibrated for the training shares, on samples that occur as in `shares`."""
    labels = rng.choice(4, n, p=shares)
    seen = np.eye(4)[labels] * 1.5 + rng.normal(size=(n, 4))
    return seen * 1.5 + np.log(
        SHARES
    ), labels  # unit normals with means 1.5 apart: log p(x | k) = 1.5 x_k + constant


@pytest.mark.parametrize(("rule", "behind"), [("shift", 0.01), ("auto", 0.003)])
def test_a_known_mix_is_reached_as_well_as_by_hand(rule, behind):
    rng = np.random.default_rng(0)
    logits, labels = calibrated(rng, 1500, np.full(4, 0.25))
    test, truth = calibrated(rng, 20_000, REVERSED)
    tuned = lh.tune(logits, labels, COUNTS, rule=rule, target=REVERSED, bootstrap=0)
    adjusted = lh.adjust(lh.Head(np.eye(4)), tuned).logits(test)
    by_hand = test + np.log(REVERSED / SHARES)
    ours, theirs = ((scores.argmax(axis=1) == truth).mean() for scores in (adjusted, by_hand))
    assert ours > theirs - behind
    assert ours > (test.argmax(axis=1) == truth).mean() + 0.2


def test_the_shift_moves_classes_by_the_target_over_the_training_shares():
    logits, labels = calibrated(np.random.default_rng(1), 2000, np.full(4, 0.25))
    tuned = lh.tune(logits, labels, COUNTS, rule="shift", target=REVERSED, bootstrap=0)
    moved = np.array(tuned.offset) / tuned.gamma
    np.testing.assert_allclose(
        moved - moved[0], np.log(REVERSED / SHARES) - np.log(REVERSED / SHARES)[0], atol=1e-9
    )
    assert tuned.gamma == pytest.approx(1, abs=0.25)  # the model is calibrated
    assert tuned.counts == tuple(COUNTS)


@pytest.mark.parametrize(
    "make", [lambda x, y: lh.tune(x, y, COUNTS, rule="shift", target=SHARES, bootstrap=0)]
)
@pytest.mark.filterwarnings("ignore:the counts are")
def test_the_training_shares_as_target_leave_the_model_as_it_is(make):
    logits, labels = calibrated(np.random.default_rng(2), 400, SHARES)
    tuned = make(logits, labels)
    assert np.ptp(tuned.offset) == pytest.approx(0, abs=1e-12)
    matched = lh.match_prior(logits, COUNTS, target=SHARES, rule="shift", bootstrap=0)
    assert np.ptp(matched.offset) == pytest.approx(0, abs=1e-12)


def test_what_is_matched_without_labels_moves_by_the_target_too():
    logits, _ = calibrated(np.random.default_rng(3), 5000, REVERSED)
    tuned = lh.match_prior(logits, COUNTS, target=REVERSED, rule="shift", bootstrap=0)
    moved = np.array(tuned.offset) / tuned.gamma
    np.testing.assert_allclose(
        moved - moved[0], np.log(REVERSED / SHARES) - np.log(REVERSED / SHARES)[0], atol=1e-9
    )
    assert tuned.mismatch < 0.02


def test_a_file_carries_the_target_to_the_head(tmp_path):
    logits, labels = calibrated(np.random.default_rng(4), 1000, np.full(4, 0.25))
    tuned = lh.tune(logits, labels, COUNTS, rule="shift", target=REVERSED, bootstrap=0)
    write_tuned(tuned, tmp_path / "tuned.json")
    head = lh.adjust(lh.Head(np.eye(4)), tmp_path / "tuned.json")
    np.testing.assert_allclose(head.bias, tuned.offset)


def test_a_head_of_one_logit_moves_by_the_target():
    rng = np.random.default_rng(5)
    labels = np.repeat([0, 1], 300)
    z = 2 * labels - 1 + rng.normal(size=600) - 2
    tuned = lh.tune(
        np.stack([np.zeros(600), z], axis=1), labels, [900, 100], rule="shift", target=[0.2, 0.8]
    )
    head = lh.adjust(lh.Head(np.ones((1, 1))), tuned)
    assert head.bias[0] == pytest.approx(tuned.gamma * (np.log(0.8 / 0.2) - np.log(0.1 / 0.9)))


def test_chunks_with_a_target_are_as_all_at_once():
    logits, labels = calibrated(np.random.default_rng(6), 900, np.full(4, 0.25))
    options = {"target": REVERSED, "rule": "shift", "bootstrap": 20}
    chunks = [(logits[first : first + 300], labels[first : first + 300]) for first in (0, 300, 600)]
    once, joined = (
        lh.tune(logits, labels, COUNTS, **options),
        lh.tune_chunks(chunks, COUNTS, **options),
    )
    assert (once.gamma, once.offset, once.interval) == (
        joined.gamma,
        joined.offset,
        joined.interval,
    )


def test_the_strength_of_a_shift_is_taken_by_no_other_rule():
    logits, labels = calibrated(np.random.default_rng(7), 400, np.full(4, 0.25))
    tuned = lh.tune(logits, labels, COUNTS, rule="shift", bootstrap=0)
    head = lh.Head(np.eye(4))
    with pytest.raises(lh.LevelheadError, match="gamma: chosen for rule 'shift'"):
        lh.rescale(head, COUNTS, gamma=tuned.gamma)
    again = pickle.loads(pickle.dumps(tuned.gamma))
    assert (again, again.rule, json.dumps(again)) == (
        tuned.gamma,
        "shift",
        json.dumps(float(tuned.gamma)),
    )
    moved = lh.shift_logits(head, COUNTS, tuned.gamma).bias
    np.testing.assert_allclose(moved, lh.adjust(head, tuned).bias)
    aimed = lh.tune(logits, labels, COUNTS, rule="shift", target=REVERSED, bootstrap=0)
    with pytest.raises(lh.LevelheadError, match="chosen toward a target"):
        lh.shift_logits(head, COUNTS, aimed)
