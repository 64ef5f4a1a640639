"""Choosing gamma: what is chosen, on what, how sure it is, and what is said about it."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

import levelhead as lh
from levelhead import measure
from levelhead.choice.diagnostics import Verdict, diagnose_accuracy, expect_gain
from levelhead.choice.gamma_path import gamma_path
from levelhead.core.rules import rule_with

COUNTS = np.array([1000, 300, 90, 27])


def bent(
    seed: int, sizes: list[int], gamma: float = 0.3, noise: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of an unbiased classifier whose classes were then scaled down by their counts: gamma undoes it."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    logits = (
        5 + noise * rng.normal(size=(len(labels), len(sizes))) + 2.0 * np.eye(len(sizes))[labels]
    )
    return logits * (COUNTS / COUNTS.max()) ** gamma, labels


def tune(*data, rule="rescale", metric="balanced_error", **options) -> lh.Tuned:
    """Tune with the parts of a goal and of a rule among the options."""
    goal, of_rule = (
        {name: options.pop(name) for name in names if name in options}
        for names in (("cost", "floors", "criterion"), ("range", "norms", "bias"))
    )
    return lh.tune(
        *data,
        metric=lh.Goal(metric, **goal),
        rule=rule_with(rule, **of_rule) if of_rule else rule,
        **options,
    )


def cross_fit(folds, *, rule="rescale", **options) -> lh.Tuned:
    return lh.cross_fit(folds, rule=rule, **options)


def predictions(logits: np.ndarray, gamma: float, counts: np.ndarray = COUNTS) -> np.ndarray:
    return (logits * (counts.max() / counts) ** gamma).argmax(axis=1)


def balanced(logits: np.ndarray, labels: np.ndarray, gamma: float) -> float:
    wrong = predictions(logits, gamma) != labels
    return float(np.mean([wrong[labels == c].mean() for c in np.unique(labels)]))


@pytest.mark.parametrize("sizes", [[100, 30, 9, 3], [250] * 4], ids=["long tail", "balanced"])
def test_finds_the_gamma_that_undoes_a_known_bend(sizes):
    tuned = tune(*bent(0, sizes), COUNTS, bootstrap=200)
    assert tuned.gamma == pytest.approx(0.3, abs=0.08)
    assert tuned.interval is not None
    assert tuned.interval[0] <= tuned.gamma <= tuned.interval[1]
    assert tuned.worthwhile
    assert tuned.chosen_on == "held-out"
    assert tuned.n == sum(sizes)


def test_numbers_are_those_of_the_predictions_at_gamma_and_at_zero():
    logits, labels = bent(1, [80, 40, 20, 10])
    tuned = tune(logits, labels, COUNTS, bootstrap=0)
    assert tuned.balanced_error == pytest.approx(balanced(logits, labels, tuned.gamma))
    assert tuned.balanced_error_at_zero == pytest.approx(balanced(logits, labels, 0.0))
    assert tuned.error == pytest.approx((predictions(logits, tuned.gamma) != labels).mean())
    assert tuned.error_at_zero == pytest.approx((predictions(logits, 0.0) != labels).mean())
    assert tuned.gain == pytest.approx(
        balanced(logits, labels, 0.0) - balanced(logits, labels, tuned.gamma)
    )
    assert tuned.interval is None
    assert tuned.gain_interval is None


def test_nothing_is_said_to_be_minus_zero():
    logits = np.random.default_rng(0).normal(size=(125, 4))
    tuned = tune(logits, logits.argmax(axis=1), COUNTS, rule="shift", metric="error")
    assert "error 0.00% -> 0.00%" in str(tuned)
    assert "-0.00" not in str(tuned)


def test_plain_criterion_is_the_least_balanced_error_of_the_path():
    logits, labels = bent(2, [60, 30, 10, 5])
    tuned = tune(logits, labels, COUNTS, criterion="balanced_error", bootstrap=0)
    best = gamma_path(logits, labels, COUNTS).best()
    assert tuned.gamma == pytest.approx(best.gamma, abs=1e-6)
    assert tuned.balanced_error == pytest.approx(best.balanced_error)
    assert tuned.mismatch is None


def test_a_class_weighs_the_same_whatever_its_size_in_the_held_out_data():
    logits, labels = bent(3, [30, 30, 30, 30])
    often = np.concatenate([np.arange(120), *[np.flatnonzero(labels == 0)] * 9])
    once, again = (
        tune(logits[rows], labels[rows], COUNTS, criterion="balanced_error", bootstrap=0)
        for rows in (np.arange(120), often)
    )
    assert again.gamma == pytest.approx(once.gamma, abs=1e-9)
    assert again.balanced_error == pytest.approx(once.balanced_error)
    assert again.error != pytest.approx(once.error, abs=1e-3)


def test_shares_steady_the_choice_where_labels_are_few():
    few = [12, 4, 2, 1]
    regret = {"guided": 0.0, "balanced_error": 0.0}
    test = bent(999, [2000] * 4)
    for seed in range(40):
        for criterion in regret:
            tuned = tune(*bent(seed, few), COUNTS, criterion=criterion, bootstrap=0)  # type: ignore[arg-type]
            regret[criterion] += balanced(*test, tuned.gamma)
    assert regret["guided"] < regret["balanced_error"]


def test_unlabelled_data_supply_the_shares_when_given():
    held, free = bent(4, [20, 6, 3, 1]), bent(5, [300] * 4)[0]
    tuned = tune(*held, COUNTS, unlabelled=free, bootstrap=50)
    shares = np.bincount(predictions(free, tuned.gamma), minlength=4) / len(free)
    assert tuned.mismatch == pytest.approx(np.abs(shares - 0.25).sum() / 2)
    assert tuned.gamma == pytest.approx(0.3, abs=0.1)


def test_target_weighs_the_classes():
    logits, labels = bent(6, [200] * 4, noise=2.0)
    only_frequent = tune(
        logits, labels, COUNTS, target=[1, 0, 0, 0], criterion="balanced_error", bootstrap=0
    )
    with pytest.warns(lh.warnings.RangeWarning):
        only_rare = tune(
            logits, labels, COUNTS, target=[0, 0, 0, 1], criterion="balanced_error", bootstrap=0
        )
    assert only_frequent.gamma < 0.1
    assert only_rare.gamma > 0.6
    wrong = predictions(logits, only_rare.gamma) != labels
    assert only_rare.balanced_error == pytest.approx(wrong[labels == 3].mean())


def test_metric_error_weighs_classes_as_they_occur():
    logits, labels = bent(7, [300, 60, 20, 8], noise=2.0)
    tuned = tune(logits, labels, COUNTS, metric="error", criterion="balanced_error", bootstrap=0)
    grid = min((predictions(logits, gamma) != labels).mean() for gamma in np.linspace(0, 2, 401))
    assert tuned.error is not None
    assert tuned.error <= grid + 1e-12
    assert tuned.metric == tuned.to_dict()["metric"] == "error"
    assert tuned.gain == pytest.approx(tuned.error_at_zero - tuned.error)
    before, after = (
        measure.balanced_error(logits * lh.factors(COUNTS, gamma), labels)
        for gamma in (0, tuned.gamma)
    )
    assert (tuned.balanced_error_at_zero, tuned.balanced_error) == pytest.approx((before, after))
    assert f"; error {tuned.error_at_zero:.2%} -> {tuned.error:.2%}; " in str(tuned)
    assert "\nerror over gamma" in tuned.report()
    assert tuned.report().endswith(f"balanced error on these samples {before:.2%} -> {after:.2%}")


def test_without_a_bootstrap_the_gain_is_that_of_these_samples():
    logits, labels = bent(7, [300, 60, 20, 8], noise=2.0)
    assert "gain on these samples" in str(tune(logits, labels, COUNTS, bootstrap=0))
    assert "expected gain" in str(tune(logits, labels, COUNTS, bootstrap=50))


def test_an_uncertain_gain_is_worth_having_and_is_said_to_be_uncertain():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 15)
    tuned = tune(
        3 + rng.normal(size=(60, 4)) + np.eye(4)[labels], labels, [12, 11, 11, 10], bootstrap=200
    )
    assert tuned.verdict == "probably better"
    assert 0.5 < tuned.verdict.probability < 0.975
    assert (tuned.worthwhile, tuned.certain) == (True, False)
    assert (
        tuned.gain_interval[0]
        < 0
        < tuned.expected_gain
        == tuned.verdict.expected_gain
        == tuned.gain
    )
    assert f"verdict probably better (gain above 0: {tuned.verdict.probability:.0%})" in str(tuned)
    better = tune(*bent(0, [250] * 4), COUNTS, bootstrap=100)
    assert (better.verdict, better.worthwhile, better.certain) == ("better", True, True)


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NeverPredictedWarning")
def test_without_labels_or_replicates_the_verdict_is_not_known():
    logits, labels = bent(7, [300, 60, 20, 8], noise=2.0)
    for tuned in (
        tune(logits, labels, COUNTS, rule="shift", bootstrap=0),
        lh.match_prior(logits, COUNTS, bootstrap=20),
    ):
        assert (tuned.verdict, tuned.expected_gain, tuned.worthwhile, tuned.certain) == (
            None,
            None,
            None,
            None,
        )


def test_a_certain_loss_is_worse_and_not_worth_having():
    verdict = Verdict(-0.05, (-0.08, -0.02), 0.95)
    assert verdict == "worse"
    assert verdict.probability < 0.01
    assert Verdict(-0.01, (-0.08, 0.06), 0.95) == "no difference seen"


def test_a_gain_is_drawn_toward_what_is_usual_the_more_the_less_is_known():
    certain, unsure = (expect_gain(0.1, error, loss=0.4, level=0.95)[0] for error in (0.001, 0.2))
    assert certain == pytest.approx(0.1, abs=1e-4)
    assert 0.048 < unsure < 0.06  # 12 % of the loss, and a little of what was measured
    assert expect_gain(0.0, 0.0, loss=0.4, level=0.95) == (0.0, (0.0, 0.0))


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.RangeWarning")
def test_a_gain_found_on_noise_is_corrected_for_having_been_looked_for():
    gains, naive = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(4), 20)
        tuned = tune(
            3 + rng.normal(size=(80, 4)), labels, COUNTS, criterion="balanced_error", bootstrap=60
        )
        assert tuned.balanced_error is not None
        assert tuned.balanced_error_at_zero is not None
        gains.append(tuned.gain)
        naive.append(tuned.balanced_error_at_zero - tuned.balanced_error)
    assert abs(np.mean(gains)) < 0.6 * np.mean(naive)  # the logits know nothing: the truth is 0


def test_same_seed_same_answer_and_a_generator_serves_too():
    data = bent(8, [40, 20, 10, 5])
    one, two, three = (
        tune(*data, COUNTS, bootstrap=50, rng=rng) for rng in (3, 3, np.random.default_rng(3))
    )
    assert one.to_dict() == two.to_dict() == three.to_dict()


def test_torch_tensors_are_taken_as_they_are():
    torch = pytest.importorskip("torch")
    logits, labels = bent(8, [40, 20, 10, 5])
    ours = tune(logits, labels, COUNTS, bootstrap=20)
    theirs = tune(torch.tensor(logits), torch.tensor(labels), torch.tensor(COUNTS), bootstrap=20)
    assert theirs.to_dict() == ours.to_dict()


@pytest.mark.filterwarnings("ignore:the counts are equal")
def test_balanced_counts_leave_gamma_at_zero():
    tuned = tune(*bent(0, [20] * 4, gamma=0.0), [50] * 4, bootstrap=20)
    assert (tuned.gamma, tuned.interval) == (0.0, (0.0, 0.0))


def test_a_kept_bias_is_followed_to_the_grid_of_its_shares():
    data = bent(9, [60, 30, 15, 8])
    scaled, kept = (
        tune(*data, COUNTS, bootstrap=0),
        tune(*data, COUNTS, bias=np.zeros(4), bootstrap=0),
    )
    assert kept.gamma == pytest.approx(scaled.gamma, abs=0.02)


def test_result_is_plain_json():
    text = json.dumps(tune(*bent(0, [20] * 4), COUNTS, bootstrap=20).to_dict())
    assert {
        "gamma",
        "interval",
        "error",
        "balanced_error",
        "error_at_zero",
        "balanced_error_at_zero",
        "gain",
        "gain_interval",
        "chosen_on",
        "n",
        "classes",
        "warnings",
        "rule",
    } <= json.loads(text).keys()


# -- without labels, and across folds ---------------------------------------------------------------------------------


def test_match_prior_brings_the_shares_nearest_to_the_target():
    logits = bent(10, [400, 300, 200, 100])[0]
    target = np.array([0.4, 0.3, 0.2, 0.1])
    tuned = lh.match_prior(logits, COUNTS, target, bootstrap=50)

    def mismatch(gamma: float) -> float:
        return (
            np.abs(np.bincount(predictions(logits, gamma), minlength=4) / 1000 - target).sum() / 2
        )

    assert tuned.mismatch == pytest.approx(mismatch(tuned.gamma))
    assert tuned.mismatch <= min(mismatch(gamma) for gamma in np.linspace(0, 2, 501)) + 1e-12
    assert tuned.gamma == pytest.approx(0.3, abs=0.08)
    assert tuned.chosen_on == "unlabelled"
    assert tuned.gain is None


def test_shares_of_classes_that_are_never_predicted_are_matched_with_a_warning():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 6)) + [
        9,
        9,
        9,
        3,
        2,
        1,
    ]  # half of the samples, by a uniform target, never
    with pytest.warns(
        lh.warnings.NeverPredictedWarning,
        match="3 of 6 classes, 50% of the samples by the target, are hardly",
    ):
        tuned = lh.match_prior(logits, [99, 99, 99, 9, 9, 9], bootstrap=0)
    assert tuned.warnings[0].startswith("NeverPredictedWarning: 3 of 6")
    lh.match_prior(
        logits, [99, 99, 99, 9, 9, 9], [0.3, 0.3, 0.3, 0.05, 0.03, 0.02], bootstrap=0
    )  # a tenth, as known
    lh.match_prior(logits[:24], [99, 99, 99, 9, 9, 9], bootstrap=0)  # four of each: too few to tell


def test_cross_fit_of_one_model_is_tune_on_all_folds_together():
    logits, labels = bent(11, [60, 40, 20, 10])
    order = np.random.default_rng(0).permutation(len(labels))
    logits, labels = logits[order], labels[order]
    folds = [(logits[i], labels[i], COUNTS) for i in np.array_split(np.arange(len(labels)), 5)]
    whole, pooled = tune(logits, labels, COUNTS, bootstrap=30), cross_fit(folds, bootstrap=30)
    counts = [5 * n for n in whole.counts]  # of all folds together
    assert pooled.to_dict() == {**whole.to_dict(), "chosen_on": "out-of-fold", "counts": counts}


def test_cross_fit_adjusts_each_fold_by_its_own_counts():
    other = np.array([900, 100, 60, 40])
    folds = [(*bent(12, [30] * 4), COUNTS), (*bent(13, [30] * 4), other)]
    tuned = cross_fit(folds, bootstrap=0)
    wrong = np.concatenate([predictions(x, tuned.gamma, n) != y for x, y, n in folds])
    assert tuned.error == pytest.approx(wrong.mean())


def test_cross_fit_refuses_folds_that_differ_in_classes():
    folds = [(*bent(0, [5] * 4), COUNTS), (np.ones((3, 3)) + np.eye(3), np.arange(3), [3, 2, 1])]
    with pytest.raises(ValueError, match="same classes in every fold, got folds of 3, 4 classes"):
        cross_fit(folds)


# -- what may not be used, and what does not suit ---------------------------------------------------------------------


def test_data_that_are_too_good_to_be_unseen_are_named():
    logits, labels = bent(0, [100] * 4, noise=0.01, gamma=0.0)
    with pytest.warns(lh.warnings.LeakageWarning, match="0 of 400 samples are wrong at gamma = 0"):
        tuned = tune(logits, labels, COUNTS, bootstrap=0)
    assert tuned.warnings[0].startswith("LeakageWarning: 0 of 400")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune(logits[::2], labels[::2], COUNTS, bootstrap=0)  # none wrong of 200 may be luck


@pytest.mark.parametrize(
    ("n", "wrong", "named"), [(299, 0, False), (300, 0, True), (501, 1, True), (500, 1, False)]
)
def test_too_good_is_fewer_than_one_in_500_of_at_least_300(n, wrong, named):
    assert isinstance(
        diagnose_accuracy(np.arange(n) >= wrong),
        lh.warnings.LeakageWarning if named else type(None),
    )


def test_held_out_rows_among_the_training_rows_are_named():
    logits, labels = bent(0, [30] * 4)
    training = np.concatenate([bent(1, [50] * 4)[0], logits[:60]])
    with pytest.warns(
        lh.warnings.LeakageWarning, match="60 of 120 held-out rows are also in the training data"
    ):
        tune(logits, labels, COUNTS, training=training, bootstrap=0)
    tune(logits, labels, COUNTS, training=training[:200], bootstrap=0)


def test_many_negative_true_class_logits_point_to_the_shift():
    logits, labels = bent(0, [30] * 4)
    with pytest.warns(lh.warnings.NegativeLogitsWarning, match="use the rule shift"):
        tune(logits - 6.5, labels, COUNTS, bootstrap=0)
    tune(logits - 6.5, labels, COUNTS, rule="shift", bootstrap=0)


@pytest.mark.parametrize(("first", "message"), [(-1.0, "opposite"), (0.0, "always 0")])
def test_binary_logits_that_scaling_cannot_change_point_to_the_shift(first, message):
    z = np.random.default_rng(0).normal(size=40) + np.repeat([-1, 1], 20)
    labels, logits = np.repeat([0, 1], 20), np.stack([first * z, z], axis=1)
    with pytest.warns(lh.warnings.BinaryHeadWarning, match=f"{message}.*use the rule shift"):
        tuned = tune(logits, labels, [90, 10], bootstrap=0)
    assert tuned.gamma == 0
    tune(logits, labels, [90, 10], rule="shift", bootstrap=0)


def test_norms_that_fall_as_counts_grow_are_named():
    data = bent(0, [30] * 4)
    with pytest.warns(lh.warnings.NormWarning, match="rank correlation -1.00"):
        tune(*data, COUNTS, norms=[1.0, 2.0, 3.0, 4.0], bootstrap=0)
    tune(*data, COUNTS, norms=[4.0, 3.0, 2.0, 1.0], bootstrap=0)


def test_a_class_without_a_sample_is_named_and_neutral():
    logits, labels = bent(0, [40, 20, 0, 10])
    with pytest.warns(lh.warnings.MissingClassWarning, match=r"no sample here of class 2 \(owl\)"):
        tuned = tune(logits, labels, COUNTS, names=["cat", "dog", "owl", "ant"], bootstrap=20)
    assert tuned.missing == (2,)
    assert tuned.balanced_error == pytest.approx(balanced(logits, labels, tuned.gamma))


def test_a_best_gamma_at_the_end_of_the_range_is_named():
    data = bent(0, [100] * 4, gamma=0.6)
    with pytest.warns(lh.warnings.RangeWarning, match="a wider range of gamma may do better"):
        tune(*data, COUNTS, range=(0, 0.2), criterion="balanced_error", bootstrap=0)


def test_test_data_are_named_wherever_the_result_is_printed():
    tuned = tune(*bent(0, [20] * 4), COUNTS, chosen_on="test", bootstrap=20)
    assert tuned.to_dict()["chosen_on"] == "test"
    assert "TEST DATA" in str(tuned)
    assert "TEST DATA" in tuned.report()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"criterion": "accuracy"},
            "criterion: expected 'guided' or 'balanced_error', got 'accuracy'",
        ),
        ({"metric": "f1"}, "metric: expected error, balanced_error, .* got 'f1'"),
        (
            {"metric": "error", "target": [1, 1, 1, 1]},
            "target: the metric error weighs classes as they occur",
        ),
        ({"target": [1, 1]}, r"target: expected numbers \[4\], one per class, got shape \[2\]"),
        ({"target": [1, -1, 1, 1]}, "target: expected shares, none negative"),
        ({"range": (0.5, 2)}, "range: expected a range that holds 0"),
        ({"level": 95, "bootstrap": 5}, "level: expected a number between 0 and 1, got 95"),
        ({"rule": "tau"}, "needs the weight norms"),
        ({"rule": "cosine"}, "rule: expected 'auto', 'none', 'shift', 'rescale', 'tau'"),
        ({"training": np.ones((3, 7))}, r"training: expected logits \[M, 4\], got shape \[3, 7\]"),
        ({"kind": "probabilities"}, "rule: 'rescale' multiplies logits, .* use 'shift'"),
        ({"bootstrap": -1}, "bootstrap: expected a number of replicates, 0 or more, got -1"),
    ],
)
def test_invalid_options_are_refused(change, message):
    options = {"bootstrap": 0, **change}
    with pytest.raises(ValueError, match=message):
        tune(*bent(0, [5] * 4), COUNTS, **options)


@pytest.mark.parametrize(
    ("shape", "labels", "counts"),
    [((0, 4), [], COUNTS), ((3, 1), [0, 0, 0], [5]), ((4,), [0], [5])],
)
def test_no_samples_and_a_single_class_leave_nothing_to_choose(shape, labels, counts):
    with pytest.raises(ValueError, match="of at least 1 sample and 2 classes, got shape"):
        tune(np.ones(shape), np.array(labels, int), counts)
    with pytest.raises(ValueError, match="of at least 1 sample and 2 classes, got shape"):
        lh.match_prior(np.ones(shape), counts)


def test_no_number_of_replicates_is_negative_without_labels_either():
    with pytest.raises(
        ValueError, match="bootstrap: expected a number of replicates, 0 or more, got -1"
    ):
        lh.match_prior(bent(0, [5] * 4)[0], COUNTS, bootstrap=-1)


def test_probabilities_are_refused_with_the_way_out():
    logits, labels = bent(0, [20] * 4)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    with pytest.raises(ValueError, match="looks like probabilities"):
        tune(shares, labels, COUNTS, bootstrap=0)
    by_shift = tune(shares, labels, COUNTS, rule="shift", kind="probabilities", bootstrap=0)
    assert by_shift.gamma == pytest.approx(
        tune(logits, labels, COUNTS, rule="shift", bootstrap=0).gamma, abs=1e-6
    )


@pytest.mark.filterwarnings("ignore:the counts are equal")
def test_where_zero_is_chosen_nothing_is_gained_or_lost_and_nothing_doubted():
    logits, labels = bent(3, [40] * 4, noise=2.0)
    tuned = tune(logits, labels, [10] * 4, bootstrap=50)
    assert (tuned.gamma, tuned.gain, tuned.gain_interval) == (0, 0, (0, 0))
    assert "verdict" not in tuned.facts()


def test_folds_are_looked_at_whatever_their_order():
    logits, labels = bent(3, [40] * 4, noise=2.0)
    folds = [(logits, labels, COUNTS), (logits - 6, labels, COUNTS)]
    for order in (folds, folds[::-1]):
        with pytest.warns(lh.warnings.NegativeLogitsWarning):
            cross_fit(order, bootstrap=0)


@pytest.mark.parametrize(
    "form", [COUNTS, {"ant": 1000, "fox": 27, "cat": 300, "elk": 90}], ids=["array", "by name"]
)
def test_a_choice_says_which_counts_and_names_it_is_for(form):
    logits, labels = bent(0, [4] * 4)
    names = ["ant", "cat", "elk", "fox"]
    for tuned in (
        tune(logits, labels, form, names=names, bootstrap=0),
        lh.match_prior(logits, form, names=names, bootstrap=0),
    ):
        assert tuned.counts == (1000.0, 300.0, 90.0, 27.0)
        assert tuned.names == tuple(names)
        assert json.loads(json.dumps(tuned.to_dict()))["counts"] == [1000, 300, 90, 27]
    assert lh.match_prior(logits, COUNTS, bootstrap=0).names is None


def test_folds_that_leave_a_part_out_each_give_the_proportions_of_the_whole():
    logits, labels = bent(0, [20] * 4)
    parts = np.array(
        [[500, 150, 45, 14], [250, 75, 20, 10], [250, 75, 25, 3]]
    )  # of COUNTS, which they sum up to
    folds = [(logits[i::3], labels[i::3], COUNTS - part) for i, part in enumerate(parts)]
    tuned = cross_fit(folds, bootstrap=0)
    assert np.array_equal(tuned.counts, 2 * COUNTS)


def test_a_choice_says_whether_the_bias_was_kept():
    logits, labels = bent(0, [20] * 4)
    assert tune(logits, labels, COUNTS, bootstrap=0).bias == "scale"
    assert tune(logits, labels, COUNTS, bias=np.ones(4), bootstrap=0).bias == "keep"


@pytest.mark.parametrize("mask", [-1e9, -1e155, np.finfo(np.float64).min, -np.inf])
def test_masked_scores_set_neither_scale_nor_rule(mask):
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=2000)
    logits = (rng.normal(size=(2000, 4)) + 2 * np.eye(4)[labels]) * np.linspace(1, 0.5, 4)
    masked = logits.copy()
    masked[::500, 0] = np.where(labels[::500] == 0, masked[::500, 0], mask)
    plain, other = (lh.tune(some, labels, COUNTS, bootstrap=0) for some in (logits, masked))
    assert other.temperature == pytest.approx(plain.temperature, rel=0.05)
    assert other.rule == plain.rule


@pytest.mark.parametrize("rule", ["auto", "shift", "rescale", "rescale+shift", "vector", "offsets"])
@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1"])
def test_minus_infinity_is_chosen_with_as_a_very_low_score_is(rule, metric):
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=800)
    logits = (rng.normal(size=(800, 4)) + 2 * np.eye(4)[labels]) * np.linspace(1, 0.5, 4)
    masked = rng.random((800, 4)) < [0.0, 0.1, 0.1, 0.1]
    low, least = (np.where(masked, mask, logits) for mask in (-1e9, -np.inf))
    want, got = (
        lh.tune(some, labels, COUNTS, rule=rule, metric=metric, bootstrap=20)
        for some in (low, least)
    )
    assert (got.rule, got.gamma, got.interval, got.recall) == (
        want.rule,
        want.gamma,
        want.interval,
        want.recall,
    )
    assert got.offset == pytest.approx(want.offset)
    assert got.gain == pytest.approx(want.gain)
    if rule in ("shift", "rescale"):
        parts = [(least[i : i + 300], labels[i : i + 300]) for i in (0, 300, 600)]
        chunked = lh.tune_chunks(parts, COUNTS, rule=rule, metric=metric, bootstrap=20)
        assert (chunked.gamma, chunked.interval) == (got.gamma, got.interval)
    with pytest.raises(lh.LevelheadError, match="first in row 3"):
        lh.tune(np.where(np.arange(800)[:, None] == 3, np.nan, least), labels, COUNTS, rule=rule)
