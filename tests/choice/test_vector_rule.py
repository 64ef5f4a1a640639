"""`rule="vector"` in `tune`, `compare`'s fitters and `adjust`, and targets that are estimated."""

import json

import numpy as np
import pytest
from sklearn.metrics import f1_score

import levelhead as lh
from levelhead.choice.tuned_json import tuned_of, write_tuned
from levelhead.choice.vector import choose_ridge, vector_loss
from levelhead.core.adjustment import Adjustment
from levelhead.core.measure import balanced_error, recall

COUNTS = [1600, 400, 100]
BENT = np.array([2.0, 1.0, 0.6])


def scored(rng, labels, bent=BENT):
    features = 1.5 * np.eye(3)[labels] + rng.normal(size=(len(labels), 3))
    return (1.5 * features + np.log(COUNTS)) * bent


def fitted_vector(logits, labels, counts, prior=None):
    """Return what vector scaling does to each class."""
    loss = vector_loss(logits.astype(np.float64), labels, counts, prior)
    return Adjustment(*loss.affine(loss.fit(*choose_ridge(loss)[:2])))


@pytest.fixture
def held_out():
    labels = np.repeat(np.arange(3), [240, 60, 40])
    return scored(np.random.default_rng(0), labels), labels


def test_tune_fits_what_log_loss_fits(held_out):
    logits, labels = held_out
    tuned = lh.tune(logits, labels, COUNTS, rule="vector", bootstrap=0)
    fitted = fitted_vector(logits, labels, np.array(COUNTS))
    assert (tuned.rule, tuned.gamma) == ("vector", 1.0)
    np.testing.assert_allclose(tuned.scale, fitted.scale)
    np.testing.assert_allclose(tuned.offset, fitted.offset)
    scores = fitted.scores(logits)
    assert tuned.balanced_error == pytest.approx(balanced_error(scores, labels))
    assert tuned.recall == pytest.approx(tuple(recall(scores, labels)))
    assert tuned.balanced_error_at_zero == pytest.approx(balanced_error(logits, labels))
    assert tuned.curve.at([0.0, 1.0]) == pytest.approx(
        [tuned.balanced_error_at_zero, tuned.balanced_error]
    )


def test_the_gain_is_cross_fitted(held_out):
    """On new samples the gain is within its interval, and below the gain on the samples of the fit."""
    logits, labels = held_out
    tuned = lh.tune(logits, labels, COUNTS, rule="vector")
    new = np.repeat(np.arange(3), 3000)
    test = scored(np.random.default_rng(1), new)
    truth = balanced_error(test, new) - balanced_error(
        np.array(tuned.scale) * test + tuned.offset, new
    )
    low, high = tuned.gain_interval
    assert low <= truth <= high
    assert tuned.worthwhile


def test_an_adjusted_head_predicts_as_scale_and_offset_do(held_out, tmp_path):
    logits, labels = held_out
    tuned = lh.tune(logits, labels, COUNTS, rule="vector", bootstrap=0)
    write_tuned(tuned, tmp_path / "tuned.json")
    rng = np.random.default_rng(3)
    head = lh.Head(rng.normal(size=(3, 5)), rng.normal(size=3))
    features = rng.normal(size=(50, 5))
    expected = np.array(tuned.scale) * head.logits(features) + tuned.offset
    for given in (tuned, tmp_path / "tuned.json"):
        np.testing.assert_allclose(lh.adjust(head, given).logits(features), expected, atol=1e-9)


def test_another_metric_is_optimized_by_a_shift_after_the_fit(held_out):
    logits, labels = held_out
    tuned = lh.tune(logits, labels, COUNTS, rule="vector", metric="macro_f1", bootstrap=0)
    shares = np.bincount(labels) / len(labels)
    fitted = fitted_vector(logits, labels, np.array(COUNTS), prior=shares)
    rarity = np.log(1600 / np.array(COUNTS))
    scores = fitted.scores(logits)

    def f1(strength):
        return f1_score(labels, (scores + strength * rarity).argmax(axis=1), average="macro")

    assert tuned.value == pytest.approx(f1(tuned.second))
    assert tuned.value >= max(f1(strength) for strength in np.linspace(-4, 4, 41)) - 1e-9
    np.testing.assert_allclose(tuned.offset, fitted.offset + tuned.second * rarity)


def test_floors_are_met_or_refused(held_out):
    logits, labels = held_out
    tuned = lh.tune(logits, labels, COUNTS, rule="vector", metric=lh.Goal(floors=0.6), bootstrap=0)
    assert min(tuned.recall) >= 0.6
    assert tuned.floors_met_at_zero is False
    with pytest.raises(lh.LevelheadError, match="floors: no gamma from"):
        lh.tune(logits, labels, COUNTS, rule="vector", metric=lh.Goal(floors=0.99), bootstrap=0)


def test_votes_are_smoothed_and_the_choice_says_by_how_much(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), [200, 60, 30])
    means = np.array([[0.8, 0.15, 0.05], [0.5, 0.4, 0.1], [0.5, 0.2, 0.3]])
    votes = np.stack([rng.multinomial(25, means[k]) for k in labels]) / 25
    tuned = lh.tune(votes, labels, COUNTS, rule="vector", kind="probabilities", bootstrap=0)
    assert tuned.smoothing == pytest.approx(1 / 25)
    scores = np.array(tuned.scale) * np.log(votes + tuned.smoothing) + tuned.offset
    assert balanced_error(scores, labels) == pytest.approx(tuned.balanced_error)
    assert tuned.balanced_error < balanced_error(votes, labels) - 0.1
    assert tuned_of(tuned).smoothing == tuned.smoothing


def test_a_target_weighs_the_classes(held_out):
    logits, labels = held_out
    target = [0.8, 0.15, 0.05]
    tuned = lh.tune(logits, labels, COUNTS, rule="vector", target=target, bootstrap=0)
    fitted = fitted_vector(logits, labels, np.array(COUNTS), prior=np.array(target))
    np.testing.assert_allclose(tuned.offset, fitted.offset)
    wrong = fitted.scores(logits).argmax(axis=1) != labels
    weighted = sum(share * wrong[labels == k].mean() for k, share in enumerate(target))
    assert tuned.balanced_error == pytest.approx(weighted)


def test_cross_fit_takes_the_rule(held_out):
    logits, labels = held_out
    half = np.arange(len(labels)) % 2 == 0
    folds = [(logits[part], labels[part], COUNTS) for part in (half, ~half)]
    tuned = lh.cross_fit(folds, rule="vector", bootstrap=0)
    order = np.concatenate([np.flatnonzero(half), np.flatnonzero(~half)])
    fitted = fitted_vector(logits[order], labels[order], np.array(COUNTS) * 2)
    np.testing.assert_allclose(tuned.scale, fitted.scale)


def test_auto_tries_it_and_takes_it_where_it_pays():
    labels = np.repeat(np.arange(3), [800, 200, 120])
    logits = scored(np.random.default_rng(0), labels, bent=np.array([3.0, 1.0, 0.3]))
    tuned = lh.tune(logits, labels, COUNTS, bootstrap=0)
    assert "vector" in [candidate.rule for candidate in tuned.candidates]
    gains = {candidate.rule: candidate.gain for candidate in tuned.candidates}
    assert tuned.rule == "vector" or gains[tuned.rule] >= gains["vector"] - 0.02


def test_one_sample_per_class_is_refused():
    with pytest.raises(lh.LevelheadError, match="vector"):
        lh.tune(np.eye(3) * 4, [0, 1, 2], COUNTS, rule="vector", bootstrap=0)


class TestEstimatedTarget:
    shares = np.array([0.15, 0.25, 0.6])

    @pytest.fixture
    def unlabelled(self):
        rng = np.random.default_rng(5)
        return scored(rng, rng.choice(3, p=self.shares, size=1500))

    def test_tune_uses_the_estimate_as_its_target(self, held_out, unlabelled):
        logits, labels = held_out
        prior = lh.priors.estimate_prior(unlabelled, COUNTS, held_out=held_out, bootstrap=0)
        assert np.abs(prior.shares - self.shares).max() < 0.15
        tuned = lh.tune(
            logits,
            labels,
            COUNTS,
            rule="shift",
            unlabelled=unlabelled,
            target="estimate",
            bootstrap=0,
        )
        given = lh.tune(logits, labels, COUNTS, rule="shift", target=prior.target, bootstrap=0)
        assert (tuned.gamma, tuned.balanced_error) == (given.gamma, given.balanced_error)
        np.testing.assert_array_equal(tuned.prior.shares, prior.shares)
        assert given.prior is None

    def test_the_shares_are_shown_and_written(self, held_out, unlabelled):
        logits, labels = held_out
        tuned = lh.tune(
            logits,
            labels,
            COUNTS,
            rule="shift",
            unlabelled=unlabelled,
            target="estimate",
            bootstrap=20,
        )
        assert f"target class 0 {tuned.prior.shares[0]:.1%} (" in str(tuned)
        assert (
            "estimated by em from 1500 unlabelled samples, calibrated on 340 held-out ones"
            in tuned.report()
        )
        written = json.loads(json.dumps(tuned.to_dict()))["prior"]
        assert written["shares"] == tuned.prior.shares.tolist()
        assert len(written["interval"]) == 3

    def test_another_metric_than_an_error_can_use_it(self, held_out, unlabelled):
        logits, labels = held_out
        options = {"rule": "shift", "metric": "macro_f1", "bootstrap": 0}
        tuned = lh.tune(logits, labels, COUNTS, unlabelled=unlabelled, target="estimate", **options)
        assert (
            tuned.gamma
            == lh.tune(logits, labels, COUNTS, target=tuned.prior.target, **options).gamma
        )

    def test_match_prior_trusts_the_probabilities(self):
        rng = np.random.default_rng(6)
        logits = scored(rng, rng.choice(3, p=self.shares, size=1500), bent=1.0)
        tuned = lh.match_prior(logits, COUNTS, target="estimate", rule="shift", bootstrap=0)
        assert np.abs(tuned.prior.shares - self.shares).max() < 0.05
        given = lh.match_prior(logits, COUNTS, target=tuned.prior.target, rule="shift", bootstrap=0)
        assert tuned.gamma == given.gamma

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"target": "guess"},
                "target: expected a share for each class, or 'estimate', got 'guess'",
            ),
            (
                {"target": "estimate"},
                "target: 'estimate' needs unlabelled samples from deployment; pass unlabelled",
            ),
            (
                {"target": "estimate", "unlabelled": np.ones((4, 2))},
                r"unlabelled: expected logits \[M, 3\], got shape \[4, 2\]",
            ),
        ],
    )
    def test_bad_input_is_refused_in_one_line(self, held_out, options, message):
        with pytest.raises(lh.LevelheadError, match=message):
            lh.tune(*held_out, COUNTS, **options)


def test_auto_compares_it_on_a_part_where_samples_are_many_and_fits_all_once_it_is_chosen():
    counts, rng = np.geomspace(1000, 50, 20).astype(int), np.random.default_rng(0)
    labels = rng.integers(20, size=16_000)
    scale = rng.uniform(0.5, 2.0, size=20)  # which no rule by counts knows
    logits = (2 * rng.normal(size=(16_000, 20)) + 4 * np.eye(20)[labels] + np.log(counts)) * scale
    tuned = lh.tune(logits, labels, counts, bootstrap=0)
    assert tuned.rule == "vector"
    assert "not tried" not in tuned.why
    alone = lh.tune(logits, labels, counts, rule="vector", bootstrap=0)  # all along of all samples
    np.testing.assert_allclose(tuned.scale, alone.scale, rtol=0.02)
    np.testing.assert_allclose(tuned.offset, alone.offset, atol=0.1)
    assert tuned.curve.values[-1] == pytest.approx(tuned.balanced_error)
    assert lh.tune(logits, labels, counts, bootstrap=0).offset == tuned.offset


def test_it_is_said_where_classes_are_too_many_for_a_part():
    rng, counts = np.random.default_rng(0), np.geomspace(1000, 50, 300).astype(int)
    labels = np.repeat(np.arange(300), 2)
    logits = rng.normal(size=(600, 300)) + 5 * np.eye(300)[labels]
    tuned = lh.tune(logits, labels, counts, bootstrap=0)
    assert "vector" not in {one.rule for one in tuned.candidates}
    assert tuned.why.endswith(
        "vector would take too long on 600 samples of 300 classes, and was not tried"
    )
    assert any(
        "vector would take" in line
        for line in lh.compare(logits, labels, counts, repeats=1).warnings
    )
