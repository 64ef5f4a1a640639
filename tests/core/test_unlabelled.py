"""Without labels: the mean softmax becomes the target, and few samples fall back on the counts."""

import numpy as np
import pytest
import torch
from scipy.optimize import root
from scipy.special import softmax

import levelhead as lh

from .made import COUNTS, calibrated

TARGET = np.array([0.4, 0.3, 0.2, 0.1])


def shares_of(scores: np.ndarray) -> np.ndarray:
    return softmax(scores, axis=1).mean(axis=0)


@pytest.mark.parametrize("target", [None, TARGET, [0.97, 0.01, 0.01, 0.01]])
def test_the_mean_softmax_is_the_target(target):
    logits, _ = calibrated(0, 800, shares=np.full(4, 0.25))
    tuned = lh.tune_unlabelled(logits, target)
    wanted = np.full(4, 0.25) if target is None else target
    np.testing.assert_allclose(shares_of(tuned.apply(logits)), wanted, atol=2e-3)
    assert tuned.target == pytest.approx(tuple(wanted))
    assert (tuned.rule, tuned.chosen_on, tuned.n) == ("offsets", "unlabelled", 800)


def test_the_offsets_are_those_that_scipy_finds():
    logits, _ = calibrated(1, 500, shares=np.full(4, 0.25))

    def apart(free):
        return shares_of(logits + [0, *free])[1:] - TARGET[1:]

    by_scipy = root(apart, np.zeros(3), tol=1e-10).x
    offsets = lh.tune_unlabelled(logits, TARGET).adjustment.offset
    np.testing.assert_allclose(offsets, [0, *by_scipy], atol=0.02)


def test_a_known_mix_is_reached_as_well_as_by_hand():
    """Where the model is calibrated, shares of the truth as target give the offsets of Bayes."""
    shares = COUNTS[::-1] / COUNTS.sum()
    logits, labels = calibrated(2, 20_000, shares=shares)
    tuned = lh.tune_unlabelled(logits, shares, counts=COUNTS)
    by_hand = np.log(shares / COUNTS)
    np.testing.assert_allclose(tuned.adjustment.offset, by_hand - by_hand[0], atol=0.15)
    ours, theirs, plain = (
        (scores.argmax(axis=1) == labels).mean()
        for scores in (tuned.apply(logits), logits + by_hand, logits)
    )
    assert ours > theirs - 0.005 > plain + 0.1


def test_few_samples_fall_back_on_the_counts():
    shift = np.log(COUNTS.max() / COUNTS)
    far = []
    for seed in range(10):
        logits, _ = calibrated(seed, 8, shares=np.full(4, 0.25))
        few, free = (
            lh.tune_unlabelled(logits, counts=counts).adjustment.offset for counts in (COUNTS, None)
        )
        far.append([np.abs(few - shift).max(), np.abs(free - shift).max()])
    held, alone = np.mean(far, axis=0)
    assert held < 0.6 * alone
    by_one_sample = lh.tune_unlabelled(calibrated(0, 8)[0][:1], counts=COUNTS).adjustment.offset
    np.testing.assert_allclose(by_one_sample, shift, atol=0.4)


@pytest.mark.parametrize("rule", ["shift", "rescale", "tau"])
def test_a_strength_brings_the_predicted_shares_nearest_to_the_target(rule):
    logits, _ = calibrated(3, 400, shares=np.full(4, 0.25))
    logits = logits + 8
    norms = np.array([4.0, 3.0, 2.0, 1.0])
    with_norms = lh.rules.Tau(norms=norms) if rule == "tau" else rule
    tuned = lh.tune_unlabelled(logits, TARGET, counts=COUNTS, rule=with_norms)

    def apart(strength):
        ratio = COUNTS.max() / COUNTS
        if rule == "shift":
            scores = logits + strength * np.log(TARGET / COUNTS)
        elif rule == "rescale":
            scores = logits * ratio**strength
        else:
            scores = logits / norms**strength
        shares = np.bincount(scores.argmax(axis=1), minlength=4) / 400
        return np.abs(shares - TARGET).sum() / 2

    assert tuned.strength is not None
    if rule == "tau":  # which goes by norms alone
        assert lh.tune_unlabelled(logits, TARGET, rule=with_norms).strength == tuned.strength
    nearest = min(map(apart, np.linspace(0, 4 if rule == "shift" else 2, 1001)))
    assert apart(tuned.strength) <= nearest + 1e-9


@pytest.mark.parametrize("rule", [lh.rules.Shift(0.5), lh.rules.Rescale(0.5)], ids=str)
def test_a_strength_of_ones_own_is_taken_as_it_is(rule):
    logits, _ = calibrated(6, 400, shares=np.full(4, 0.25))
    tuned = lh.tune_unlabelled(logits, counts=COUNTS, rule=rule)
    ratios = COUNTS.max() / COUNTS
    by_hand = logits * ratios**0.5 if rule.multiplies else logits + 0.5 * np.log(ratios)
    assert tuned.strength == 0.5
    np.testing.assert_allclose(tuned.apply(logits), by_hand)


def test_tensors_lists_and_half_precision_are_as_good_as_arrays():
    logits = calibrated(4, 300, shares=np.full(4, 0.25))[0].astype(np.float32)
    wanted = lh.tune_unlabelled(logits).adjustment.offset
    for form in (torch.tensor(logits), logits.tolist(), logits.astype(np.float64)):
        np.testing.assert_allclose(lh.tune_unlabelled(form).adjustment.offset, wanted, atol=1e-5)
    half = lh.tune_unlabelled(torch.tensor(logits).half()).adjustment.offset
    np.testing.assert_allclose(half, wanted, atol=0.01)


def test_what_is_added_to_all_scores_of_a_sample_changes_nothing():
    logits = calibrated(5, 300, shares=np.full(4, 0.25))[0]
    level = np.random.default_rng(0).normal(size=(300, 1)) * 5
    wanted = lh.tune_unlabelled(logits, TARGET).adjustment.offset
    np.testing.assert_allclose(
        lh.tune_unlabelled(logits + level, TARGET).adjustment.offset, wanted, atol=1e-4
    )


@pytest.mark.parametrize("kind", ["probabilities", "log-probabilities"])
def test_probabilities_have_the_offsets_of_their_logits(kind):
    logits = calibrated(6, 300, shares=np.full(4, 0.25))[0]
    probabilities = softmax(logits, axis=1)
    scores = probabilities if kind == "probabilities" else np.log(probabilities)
    tuned = lh.tune_unlabelled(
        scores, TARGET, kind="probabilities" if kind == "probabilities" else "logits"
    )
    assert tuned.kind == kind
    wanted = lh.tune_unlabelled(logits, TARGET).adjustment.offset
    np.testing.assert_allclose(tuned.adjustment.offset, wanted, atol=1e-4)


def test_votes_in_half_precision_are_smoothed_as_in_double():
    rng = np.random.default_rng(0)
    logits = calibrated(6, 300, shares=np.full(4, 0.25))[0]
    votes = np.stack([rng.multinomial(10, row) for row in softmax(logits, axis=1)]) / 10
    wanted = lh.tune_unlabelled(votes, counts=COUNTS, kind="probabilities").adjustment
    assert wanted.smoothing == pytest.approx(0.1)
    half = votes.astype(np.float16)
    tuned = lh.tune_unlabelled(half, counts=COUNTS, kind="probabilities")
    assert tuned.adjustment.smoothing == pytest.approx(0.1, rel=1e-3)
    np.testing.assert_allclose(tuned.adjustment.offset, wanted.offset, atol=0.01)


def test_a_target_goes_by_name_and_is_kept():
    logits = calibrated(7, 300, shares=np.full(4, 0.25))[0]
    by_name = lh.tune_unlabelled(logits, {"d": 1, "b": 3, "a": 4, "c": 2}, names=list("abcd"))
    np.testing.assert_allclose(by_name.target, TARGET)
    assert by_name.names == ("a", "b", "c", "d")
    np.testing.assert_allclose(
        by_name.adjustment.offset, lh.tune_unlabelled(logits, TARGET).adjustment.offset
    )


@pytest.mark.parametrize("rule", ["offsets", "shift", "rescale", "tau"])
@pytest.mark.parametrize("background", [2, "c"])
def test_a_background_is_left_alone_and_kept(rule, background):
    logits = calibrated(8, 400, shares=np.full(4, 0.25))[0] + 8
    counts = lh.counts.with_background(COUNTS, background)
    names = list("abcd")
    if rule == "tau":
        rule = lh.rules.Tau(norms=np.array([4.0, 3.0, 2.0, 1.0]))
    # By the counts of a rule, the background is none of the rare; a fit goes by its own count.
    counts_of_rule = lh.counts.resolve(counts, names=names)
    if rule == "offsets":
        counts_of_rule = COUNTS
    tuned, plain = (
        lh.tune_unlabelled(logits, TARGET, counts=of, rule=rule, names=names)
        for of in (counts, counts_of_rule)
    )
    assert (tuned.background, plain.background) == (2, None)
    by = tuned.adjustment
    assert (by.scale[2], by.offset[2]) == (1, 0)
    assert by.changes
    np.testing.assert_array_equal(by.predict(logits), plain.adjustment.predict(logits))


def test_an_estimated_target_is_near_the_shares_of_the_samples():
    shares = COUNTS[::-1] / COUNTS.sum()
    logits, _ = calibrated(8, 5000, shares=shares)
    tuned = lh.tune_unlabelled(logits, "estimate", counts=COUNTS)
    assert tuned.prior is not None
    np.testing.assert_allclose(tuned.prior.shares, shares, atol=0.05)
    assert "target" in tuned.facts()


def test_many_classes_are_matched_too():
    counts = np.linspace(1000, 10, 600).astype(int)
    rng = np.random.default_rng(0)
    labels = rng.integers(600, size=3000)
    logits = 3 * (3 * np.eye(600)[labels] + rng.normal(size=(3000, 600))) + np.log(counts)
    tuned = lh.tune_unlabelled(logits)
    np.testing.assert_allclose(shares_of(tuned.apply(logits)), 1 / 600, atol=3e-4)


def test_shares_of_classes_that_are_hardly_predicted_are_matched_with_a_warning():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 6)) + [9, 9, 9, 3, 2, 1]
    with pytest.warns(
        lh.warnings.NeverPredictedWarning, match="3 of 6 classes, 50% of the samples"
    ):
        tuned = lh.tune_unlabelled(logits)
    assert tuned.warnings[0].startswith("NeverPredictedWarning: 3 of 6")
    lh.tune_unlabelled(logits, [0.3, 0.3, 0.3, 0.05, 0.03, 0.02])  # a tenth, as known
    lh.tune_unlabelled(logits[:24])  # four of each: too few to tell


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "shift"}, "counts: the rule shift needs them; give the counts of the training"),
        ({"rule": "vector", "counts": COUNTS}, "rule: the rule vector needs labels"),
        ({"rule": "scales", "counts": COUNTS}, "rule: the rule scales needs labels"),
        ({"rule": "tau", "counts": COUNTS}, "rule: 'tau' needs the weight norms"),
        ({"rule": "magic"}, "rule: expected 'offsets'"),
        ({"target": [1, 1]}, r"target: expected numbers \[4\]"),
        ({"target": "even"}, "target: expected a share for each class, or 'estimate', got 'even'"),
        ({"target": "estimate"}, "counts: an estimated target needs the training counts"),
        ({"kind": "odds"}, "kind: expected"),
        ({"kind": "probabilities"}, "expected probabilities"),
        ({"counts": [1, 2]}, "expected 4 counts"),
    ],
)
def test_a_mistake_is_reported_in_one_line(options, message):
    logits = calibrated(0, 50)[0]
    with pytest.raises(lh.LevelheadError, match=message) as caught:
        lh.tune_unlabelled(logits, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_one_probability_beside_0_is_no_pair_of_scores(kind):
    p = np.random.default_rng(0).beta(1, 5, size=50)
    with pytest.raises(lh.LevelheadError, match=r"got \(0, p\), .*; give \(1 - p, p\)"):
        lh.tune_unlabelled(np.stack([0 * p, p], axis=1), kind=kind)


@pytest.mark.parametrize("shape", [(0, 4), (3, 1), (4,)])
def test_no_samples_and_a_single_class_leave_nothing_to_choose(shape):
    with pytest.raises(lh.LevelheadError, match="at least 1 sample and 2 classes, got shape"):
        lh.tune_unlabelled(np.ones(shape))
