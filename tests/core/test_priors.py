"""Estimated priors: EM and BBSE against naive versions, simulated shifts, and the coverage of the interval."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from levelhead.core.counts import with_background
from levelhead.core.label_shift import maximize_shares, project_on_simplex
from levelhead.core.priors import estimate_prior
from levelhead.core.probabilities import smooth_votes
from levelhead.core.tune import tune
from levelhead.core.unlabelled import tune_unlabelled
from levelhead.support.errors import LevelheadError
from levelhead.support.logits import log_softmax
from levelhead.support.warnings import PriorWarning

COUNTS = [1600, 400, 100]
SHIFTED = np.array([0.2, 0.3, 0.5])


def scored(rng, labels, counts=COUNTS, *, signal=1.5, bent=1.0):
    """Return the logits of Gaussian classes: calibrated for the counts, if not bent."""
    size = len(counts)
    features = signal * np.eye(size)[labels] + rng.normal(size=(len(labels), size))
    return (signal * features + np.log(counts)) * bent


def deployed(rng, n, shares=SHIFTED, **options):
    return scored(rng, rng.choice(len(shares), p=shares, size=n), **options)


def naive_em(logits, counts, steps=3000):
    """Return the shares as Saerens et al. write the steps, sample by sample, with one sample more of each class."""
    prior = np.array(counts) / np.sum(counts)
    posteriors = np.exp(log_softmax(logits))
    shares = prior.copy()
    for _ in range(steps):
        total = np.zeros(len(prior))
        for posterior in posteriors:
            new = shares / prior * posterior
            total += new / new.sum()
        shares = (total + 1) / (len(posteriors) + len(prior))
    return shares


def test_em_is_the_naive_loop_over_samples():
    logits = deployed(np.random.default_rng(0), 60)
    estimate = estimate_prior(logits, COUNTS, bootstrap=0)
    np.testing.assert_allclose(estimate.shares, naive_em(logits, COUNTS, steps=400), atol=1e-6)
    assert estimate.method == "em"
    assert estimate.interval is None


@pytest.mark.parametrize("more", [0.0, 2.0])
def test_em_maximizes_the_likelihood(more):
    rng = np.random.default_rng(1)
    ratios, weights = rng.random((80, 4)) ** 3, rng.integers(0, 4, size=80).astype(float)

    def loss(free):
        shares = np.exp(free - free.max())
        shares /= shares.sum()
        return -(weights @ np.log(ratios @ shares) + more * np.log(shares).sum()) / weights.sum()

    best = minimize(
        loss,
        np.zeros(4),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 20000},
    )
    shares = maximize_shares(ratios, weights, more=more)
    assert loss(np.log(shares)) <= best.fun + 1e-9


def test_a_class_that_a_few_samples_do_not_show_is_not_taken_for_absent():
    estimate = estimate_prior(np.tile([5.0, 0.0, 0.0], (10, 1)), [10, 10, 10], bootstrap=0)
    assert estimate.shares[1:].min() > 1 / 13
    assert estimate.shares[0] > 0.7


def test_a_decision_by_few_samples_stays_near_the_usual_and_by_many_follows_them():
    rng = np.random.default_rng(0)
    usual = np.sqrt(COUNTS) / np.sqrt(COUNTS).sum()
    few, many = (estimate_prior(deployed(rng, size), COUNTS, bootstrap=0) for size in (30, 20000))
    assert np.abs(few.target - usual).sum() < 0.5 * np.abs(few.shares - usual).sum()
    assert np.abs(many.target - many.shares).max() < 0.005
    assert few.target.sum() == pytest.approx(1)


def test_projection_on_the_simplex_is_the_nearest_point():
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.normal(size=3)
        projected = project_on_simplex(values)
        grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), axis=-1).reshape(-1, 2)
        grid = np.column_stack([grid, 1 - grid.sum(axis=1)])
        grid = grid[grid[:, 2] >= 0]
        assert projected.sum() == pytest.approx(1)
        assert projected.min() >= 0
        assert ((projected - values) ** 2).sum() <= ((grid - values) ** 2).sum(axis=1).min() + 1e-12


def test_bbse_is_the_solution_by_hand():
    """Of class 0, 3 of 4 are predicted as 0, of class 1, 1 of 2: shares 0.6 of predictions 0 mean 0.4 of class 0."""
    zero, one = [3.0, 0.0], [0.0, 3.0]
    held_out = [zero, zero, zero, one, zero, one], [0, 0, 0, 0, 1, 1]
    estimate = estimate_prior(
        [zero, zero, zero, one, one], [10, 10], method="bbse", held_out=held_out, bootstrap=0
    )
    np.testing.assert_allclose(estimate.shares, [0.4, 0.6])


@pytest.mark.parametrize("method", ["em", "bbse"])
def test_a_known_shift_is_within_the_interval(method):
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(3), [320, 80, 40])
    held_out = scored(rng, labels, bent=np.array([3.0, 2.0, 1.5])), labels
    logits = deployed(rng, 1500, bent=np.array([3.0, 2.0, 1.5]))
    estimate = estimate_prior(
        logits, COUNTS, method=method, held_out=held_out, bootstrap=60, level=0.99
    )
    low, high = estimate.interval.T
    assert ((low <= SHIFTED) & (high >= SHIFTED)).all()
    assert (high - low < 0.35).all()
    assert estimate.shares.sum() == pytest.approx(1)


def test_em_needs_calibrated_scores_and_held_out_samples_give_them():
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(3), [800, 200, 100])
    bent = np.array([4.0, 2.0, 1.0])
    held_out, logits = (scored(rng, labels, bent=bent), labels), deployed(rng, 3000, bent=bent)
    alone = estimate_prior(logits, COUNTS, bootstrap=0).shares
    calibrated = estimate_prior(logits, COUNTS, held_out=held_out, bootstrap=0).shares
    assert np.abs(alone - SHIFTED).max() > 0.1
    assert np.abs(calibrated - SHIFTED).max() < 0.06


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "labelled", "times"), [("em", False, 40), ("em", True, 20), ("bbse", True, 40)]
)
def test_the_interval_covers_the_truth_as_often_as_it_says(method, labelled, times):
    covered = []
    for seed in range(times):
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(3), [160, 60, 40])
        held_out = (scored(rng, labels), labels) if labelled else None
        logits = deployed(rng, 300)
        estimate = estimate_prior(logits, COUNTS, method=method, held_out=held_out, bootstrap=60)
        covered.append((estimate.interval[:, 0] <= SHIFTED) & (estimate.interval[:, 1] >= SHIFTED))
    assert np.mean(covered) >= 0.85


def test_a_near_singular_confusion_matrix_warns():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 40)
    held_out = rng.normal(size=(120, 3)), labels
    with pytest.warns(PriorWarning, match="near singular"):
        estimate = estimate_prior(
            rng.normal(size=(50, 3)), [10, 10, 10], method="bbse", held_out=held_out, bootstrap=0
        )
    assert len(estimate.warnings) == 1


def test_votes_with_zeros_are_smoothed():
    rng = np.random.default_rng(0)
    labels = rng.choice(3, p=SHIFTED, size=800)
    votes = np.stack([rng.multinomial(50, row) for row in 0.4 * np.eye(3)[labels] + 0.2]) / 50
    votes[0] = [1.0, 0.0, 0.0]
    estimate = estimate_prior(votes, [1, 1, 1], kind="probabilities", bootstrap=0)
    smooth = np.exp(smooth_votes(np.log(np.maximum(votes, np.finfo(float).tiny)))[0])
    assert (smooth > 0.001).all()
    by_hand = estimate_prior(
        smooth / smooth.sum(axis=1, keepdims=True), [1, 1, 1], kind="probabilities", bootstrap=0
    )
    np.testing.assert_allclose(estimate.shares, by_hand.shares, atol=1e-6)
    half = estimate_prior(votes.astype("f2"), [1, 1, 1], kind="probabilities", bootstrap=0)
    np.testing.assert_allclose(half.shares, estimate.shares, atol=1e-3)


def test_log_probabilities_have_the_shares_of_their_logits():
    logits = deployed(np.random.default_rng(0), 200)
    wanted = estimate_prior(logits, COUNTS, bootstrap=0).shares
    logs = log_softmax(logits)
    estimate = estimate_prior(logs, COUNTS, bootstrap=0, kind="log-probabilities")
    np.testing.assert_allclose(estimate.shares, wanted, atol=1e-6)


def test_a_background_has_the_share_that_its_own_count_explains():
    logits = deployed(np.random.default_rng(0), 300)
    for background in (0, 2):
        alone = with_background(COUNTS, background)
        estimate, plain = (estimate_prior(logits, of, bootstrap=0) for of in (alone, COUNTS))
        np.testing.assert_array_equal(estimate.shares, plain.shares)
        blind = tune_unlabelled(logits, "estimate", counts=alone)
        np.testing.assert_array_equal(blind.target, plain.target)


def test_held_out_columns_in_another_order_are_refused():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=60)
    frame = pd.DataFrame(scored(rng, labels), columns=["ant", "bee", "cat"])
    names = list(frame.columns)
    options = {"names": names, "bootstrap": 0}
    estimate_prior(frame, COUNTS, held_out=(frame, labels), **options)
    turned = frame[["cat", "ant", "bee"]]
    with pytest.raises(LevelheadError, match=r"held_out: columns are titled .* in another order"):
        estimate_prior(frame, COUNTS, held_out=(turned, labels), **options)


def test_titles_of_columns_are_names_as_they_are_for_tune():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=60)
    words = ["cat", "ant", "bee"]
    frame = pd.DataFrame(scored(rng, labels), columns=words)
    wanted = estimate_prior(frame.to_numpy(), COUNTS, held_out=(frame.to_numpy(), labels))
    named = dict(zip(words, COUNTS, strict=True))
    estimate = estimate_prior(frame, named, held_out=(frame, np.array(words)[labels]))
    np.testing.assert_allclose(estimate.shares, wanted.shares)
    assert estimate.names == tuple(words)
    turned = frame[["ant", "bee", "cat"]]
    for logits, others in ((frame, turned), (turned, frame)):
        with pytest.raises(LevelheadError, match=r"held_out: columns are titled .* another order"):
            estimate_prior(logits, COUNTS, held_out=(others, labels))


def test_labels_that_tune_looked_up_are_not_looked_up_again():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=60)
    scores = scored(rng, labels)
    numbers = pd.DataFrame(scores, columns=[0, 2, 7])
    wanted = tune(scores, labels, unlabelled=scores, target="estimate").prior
    looked_up = np.array([0, 2, 7])[labels]
    prior = tune(numbers, looked_up, unlabelled=numbers, target="estimate").prior
    np.testing.assert_allclose(prior.shares, wanted.shares)


@pytest.mark.parametrize("mask", [-1e9, -np.inf])
@pytest.mark.parametrize("allowed", [3, 1])
@pytest.mark.parametrize("method", ["em", "bbse"])
def test_masked_classes_do_not_change_the_shares(method, allowed, mask):
    """Of 8 classes so many are allowed in a sample; the others are as far below as they need be, or infinitely."""
    rng = np.random.default_rng(0)
    labels = rng.integers(8, size=1000)
    logits = scored(rng, labels, np.full(8, 100))
    is_allowed = rng.random((1000, 8)).argsort(axis=1) < allowed
    is_allowed &= allowed > 1
    is_allowed[np.arange(1000), labels] = True
    near, far = (np.where(is_allowed, logits, at) for at in (-30, mask))
    wanted, shares = (
        estimate_prior(of, [100] * 8, held_out=(of, labels), bootstrap=0, method=method).shares
        for of in (near, far)
    )
    np.testing.assert_allclose(shares, wanted, atol=2e-3)


def test_the_estimate_prints_its_shares_and_goes_into_json():
    logits = deployed(np.random.default_rng(0), 200)
    estimate = estimate_prior(
        logits, dict(zip("abc", COUNTS, strict=True)), names=["a", "b", "c"], bootstrap=20
    )
    text = str(estimate)
    assert text.startswith("shares of the classes, by em from 200 unlabelled samples: ")
    assert f"(b) {estimate.shares[1]:.1%} (" in text or f"b {estimate.shares[1]:.1%} (" in text
    assert json.loads(json.dumps(estimate.to_dict()))["shares"] == estimate.shares.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "map"}, "method: expected 'em' or 'bbse', got 'map'"),
        (
            {"method": "bbse"},
            "method: 'bbse' needs the confusion matrix of held-out samples; pass held_out",
        ),
        ({"held_out": np.ones((3, 3))}, r"held_out: expected \(logits \[N, K\], labels \[N\]\)"),
        (
            {"held_out": ([[1.0, 2.0]], [0])},
            r"held_out: expected logits \[N, 3\], got shape \[1, 2\]",
        ),
        (
            {"held_out": ([[1.0, 2.0, 5.0]], [0, 1])},
            "held_out: expected one label per row of logits",
        ),
        (
            {"held_out": ([[1.0, 2.0, 5.0]] * 4, [0, 1, 0, 1]), "method": "bbse"},
            "held_out: class 2 has no held-out sample",
        ),
        ({"kind": "odds"}, "kind: expected .*, got 'odds'"),
        ({"bootstrap": -1}, "bootstrap: expected a number of replicates"),
        ({"level": 2}, "level: expected a number between 0 and 1"),
    ],
)
def test_bad_input_is_refused_in_one_line(options, message):
    with pytest.raises(LevelheadError, match=message):
        estimate_prior(deployed(np.random.default_rng(0), 20), COUNTS, **options)
