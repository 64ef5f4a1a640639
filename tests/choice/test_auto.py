"""The choice of the rule: the one that fits the damage, by samples it was not fitted on, and it says why."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

import levelhead as lh
from levelhead.choice import auto
from levelhead.choice.cross_fit import CrossFitted, cross_fit_rules
from levelhead.choice.fitters import make_fitter
from levelhead.choice.paths import Paths
from levelhead.choice.samples import Samples, TuneOptions
from levelhead.choice.tuned_json import tuned_of
from levelhead.core.rules import RULES
from levelhead.support.arrays import fit_scale
from levelhead.support.warnings import quiet

COUNTS = np.array([1000, 300, 90, 27])
RARITY = np.log(COUNTS.max() / COUNTS)


def level(seed: int, size: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a level classifier, each sample at a height of its own: scaling and shifting are then two things."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), size)
    height = rng.uniform(3, 12, size=(4 * size, 1))
    return height + 1.3 * rng.normal(size=(4 * size, 4)) + 2.0 * np.eye(4)[labels], labels


def predicted(logits, tuned):
    """The decision by its own equation."""
    if tuned.scale:
        return (logits * tuned.scale + tuned.offset).argmax(axis=1)
    shifted = tuned.rule == "shift"
    return (
        logits + tuned.gamma * RARITY if shifted else logits * np.exp(tuned.gamma * RARITY)
    ).argmax(axis=1)


def test_what_was_scaled_is_rescaled_and_what_was_shifted_is_shifted():
    logits, labels = level(0)
    scaled = lh.tune(logits * np.exp(-0.4 * RARITY), labels, COUNTS, bootstrap=0)
    shifted = lh.tune(logits - 0.9 * RARITY, labels, COUNTS, bootstrap=0)
    assert scaled.rule != "shift"
    assert next(one.gamma for one in scaled.candidates if one.rule == "rescale") == pytest.approx(
        0.4, abs=0.05
    )
    values = {one.rule: one.value for one in scaled.candidates}
    assert values[scaled.rule] < values["shift"] - 0.05
    assert shifted.rule in ("shift", "vector")
    assert next(one.gamma for one in shifted.candidates if one.rule == "shift") == pytest.approx(
        0.9, abs=0.25
    )
    assert "better than" in scaled.why
    assert shifted.why
    assert [one.rule for one in shifted.candidates] == [
        "none",
        "shift",
        "rescale",
        "rescale+shift",
        "vector",
    ]
    assert all(one.interval[0] <= one.gain <= one.interval[1] for one in shifted.candidates)


@pytest.mark.parametrize(
    "metric", ["macro_f1", lh.Goal(), lh.Goal(cost=3 - 3 * np.eye(4)), lh.Goal(floors=0.3)]
)
@pytest.mark.parametrize("rule", ["auto", "rescale+shift"])
def test_the_numbers_are_those_of_the_decision_that_was_chosen(rule, metric):
    logits, labels = level(1, 40)
    logits = logits - 0.9 * RARITY
    with quiet():
        tuned = lh.tune(logits, labels, COUNTS, rule=rule, bootstrap=0, metric=metric)
    found = predicted(logits, tuned)
    assert tuned.error == pytest.approx((found != labels).mean())
    assert tuned.recall == pytest.approx([(found[labels == c] == c).mean() for c in range(4)])
    assert tuned.recall_at_zero == pytest.approx(
        [(logits.argmax(1)[labels == c] == c).mean() for c in range(4)]
    )
    again = tuned_of(tuned)
    assert (again.rule, again.scale, again.second) == (tuned.rule, tuned.scale, tuned.second)
    assert len(json.loads(json.dumps(tuned.to_dict()))["candidates"]) == len(tuned.candidates)
    assert "rules tried" in tuned.report()


def test_a_cross_fitted_prediction_does_not_know_its_own_label():
    rng = np.random.default_rng(0)
    logits, labels = (
        rng.normal(size=(60, 4)),
        np.repeat(np.arange(4), 15),
    )  # noise: nothing can be gained
    held_out = Samples.of([(logits, labels, COUNTS)], TuneOptions(bootstrap=0))
    paths = Paths(held_out)
    fitters = {
        name: made for name, rule in RULES.items() if (made := make_fitter(rule, paths)) is not None
    }
    crossed = cross_fit_rules(
        held_out, fitters, paths.of("shift").objective(held_out.options), held_out.deal()
    )
    for rule in crossed.predicted:
        truth = np.mean(
            [[(row[labels == c] == c).mean() for c in range(4)] for row in crossed.predicted[rule]]
        )
        assert crossed.loss(rule) == pytest.approx(1 - truth)
    assert crossed.gain("vector")[0] < 0.1


def held_out_with(labels, **options) -> Samples:
    """Samples of noise with these labels."""
    logits = np.random.default_rng(0).normal(size=(len(labels), 4))
    return Samples.of([(logits, labels, COUNTS)], TuneOptions(bootstrap=0, **options))


def test_each_sample_is_judged_once_in_each_repeat_by_others_that_count():
    (folds,) = held_out_with(np.arange(10_000) % 4).deal()  # many samples: once
    assert np.array_equal(
        np.sort(np.concatenate([judged for judged, _ in folds])), np.arange(10_000)
    )
    assert all(len(np.intersect1d(judged, rows)) == 0 for judged, rows in folds)
    assert len(held_out_with(np.arange(9_996) % 4).deal()) == 2
    assert len(held_out_with(np.arange(40) % 4).deal(3, 1)) == 3
    assert [
        sorted(len(judged) for judged, _ in folds) for folds in held_out_with([0, 0, 0]).deal()
    ] == [[1, 1, 1]] * 2
    only = held_out_with(
        [0, *[1] * 9], target=[1, 0, 0, 0]
    )  # without its only sample, nothing is left to fit
    assert all(len(folds) == 4 and all(0 in rows for _, rows in folds) for folds in only.deal())


@pytest.mark.parametrize("metric", ["macro_f1", "balanced_error"])
def test_a_gain_on_the_only_sample_of_a_class_is_not_certain(metric):
    samples = held_out_with(labels := np.repeat(np.arange(4), [9, 9, 9, 1]), goal=lh.Goal(metric))
    objective = Paths(samples).of("shift").objective(samples.options)
    before = np.where(labels == 3, 0, labels)
    crossed = CrossFitted(samples, objective, {"none": before[None], "shift": labels[None]}, {})
    gain, error = crossed.gain("shift")
    assert gain > 0.2
    # With one more that gains and one that loses, a class of 1 has three samples of mean 1/3, a class of 9 eleven of 0.
    assert error == pytest.approx(np.sqrt((1 - 1 / 9) / 3 + 3 * (2 / 11) / 11) / 4)


def test_temperature_is_that_of_least_log_loss_whatever_the_scale():
    logits, labels = level(2, 30)
    weights = np.full(len(labels), 1 / len(labels))
    rows = np.arange(len(labels))
    for scale in (0.01, 1.0, 300.0):
        found = fit_scale(scale * logits, labels, weights, RARITY)
        best = minimize_scalar(
            lambda b, s=scale: (
                -log_softmax(b / s * s * logits + RARITY, axis=1)[rows, labels].mean()
            ),
            (0.1, 1.0),
        ).x
        assert found == pytest.approx(scale / best, rel=1e-3)


def test_temperature_of_many_samples_is_that_of_least_log_loss():
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(5000, 6))
    labels = np.where(rng.random(5000) < 0.5, logits.argmax(axis=1), rng.integers(6, size=5000))
    weights, offset = rng.random(5000), rng.normal(size=(5000, 6))

    def loss(inverse):
        return -weights @ log_softmax(inverse * logits + offset, axis=1)[np.arange(5000), labels]

    best = minimize_scalar(loss, (0.1, 1.0)).x
    assert fit_scale(logits, labels, weights, offset) == pytest.approx(1 / best, rel=1e-6)
    assert fit_scale(logits, logits.argmax(axis=1), weights) == pytest.approx(
        np.sqrt(np.mean((logits - logits.mean(axis=1, keepdims=True)) ** 2)) / 50
    )  # separable: the end of what is searched


def test_the_range_and_the_pull_of_the_shift_follow_the_scale_of_the_scores():
    logits, labels = level(3, 40)
    one, large = (lh.tune(s * (logits - RARITY), labels, COUNTS, bootstrap=0) for s in (1.0, 50.0))
    assert large.rule == one.rule == "shift"
    assert large.gamma == pytest.approx(50 * one.gamma, rel=1e-6)
    assert large.temperature == pytest.approx(50 * one.temperature, rel=1e-3)
    with pytest.warns(lh.warnings.RangeWarning):
        lh.tune(
            50 * (logits - RARITY), labels, COUNTS, rule=lh.rules.Shift(range=(0, 4)), bootstrap=0
        )


def test_a_pull_is_in_standard_errors_and_fades_as_labels_become_many():
    few, many = (
        Paths(Samples.of([(*level(6, n), COUNTS)], TuneOptions(bootstrap=0))).of("shift")
        for n in (10, 1000)
    )
    pulls = []
    for rule in (few, many):
        objective = rule.objective(TuneOptions())
        values = replace(objective, pull=None).values(objective.error(), strength=0)
        pulls.append((objective.values(objective.error(), strength=0) - values)[-1])
        assert rule.pull.center == pytest.approx(
            rule.pull.unit
        )  # a shift of 1 on calibrated scores
    assert pulls[0] > 5 * pulls[1] > 0


def test_out_of_fold_scores_choose_a_rule_too():
    logits, labels = level(4, 50)
    logits = logits - 0.9 * RARITY
    folds = [(logits[i::2], labels[i::2], COUNTS) for i in range(2)]
    tuned = lh.cross_fit(folds, bootstrap=20)
    assert tuned.rule in ("shift", "vector")
    assert (tuned.chosen_on, tuned.counts) == ("out-of-fold", tuple(2.0 * COUNTS))
    assert tuned.candidates
    assert tuned.worthwhile


def test_unlabelled_data_probabilities_norms_and_two_classes_are_taken():
    logits, labels = level(5, 30)
    shares = np.exp(log_softmax(logits - RARITY, axis=1))
    tuned = lh.tune(shares, labels, COUNTS, kind="probabilities", bootstrap=0)
    assert {one.rule for one in tuned.candidates} <= {"none", "shift", "vector"}
    rule = lh.rules.Auto(norms=[4, 3, 2, 1])
    tuned = lh.tune(
        logits - RARITY, labels, COUNTS, unlabelled=logits[::2] - RARITY, rule=rule, bootstrap=0
    )
    assert "tau" in {one.rule for one in tuned.candidates}
    z = np.random.default_rng(0).normal(size=60) + np.repeat([-1, 1], 30) - 1
    tuned = lh.tune(np.stack([-z, z], axis=1), np.repeat([0, 1], 30), [900, 100], bootstrap=0)
    assert tuned.rule != "rescale"


def test_a_rule_that_leads_by_its_predicted_shares_is_not_said_to_be_better_by_less_than_nothing():
    shown = []
    for seed in range(40):
        logits, labels = level(seed, 30)
        tuned = lh.tune(logits * np.exp(-0.2 * RARITY) - 0.5 * RARITY, labels, COUNTS, bootstrap=0)
        assert "by -" not in tuned.why
        assert "better than" not in tuned.why or "by 0.00" not in tuned.why
        shown.append("predicted shares" in tuned.why)
    assert any(shown)


@pytest.mark.parametrize("options", [{}, {"metric": "macro_f1"}, {"rule": "rescale"}], ids=str)
def test_threads_choose_what_one_does(options, monkeypatch):
    logits, labels = level(1)
    logits = logits + 0.7 * np.log(COUNTS)
    alone = lh.tune(logits, labels, COUNTS, bootstrap=50, **options).to_dict()
    monkeypatch.setattr(auto, "are_on_gpu", lambda logits: True)
    with ThreadPoolExecutor(3) as pool:
        monkeypatch.setattr(Samples, "_pool", pool)
        for _ in range(5):
            assert lh.tune(logits, labels, COUNTS, bootstrap=50, **options).to_dict() == alone
