"""From scores to a `Tuned`: honest on level models, right on calibrated ones, careful with few samples."""

import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import levelhead as lh
from levelhead.core.metrics import METRICS
from levelhead.core.rules import RULES
from levelhead.core.samples import Given
from levelhead.hosts.predictor import AdjustedPredictor

from .made import COST, COUNTS, calibrated, level, loss_by_hand

NORMS = [4.0, 3.0, 2.0, 1.0]
SHIFT = np.log(COUNTS.max() / COUNTS)
TARGET = np.array([0.1, 0.2, 0.3, 0.4])
pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")


def rule_of(name: str):
    return lh.rules.Tau(norms=NORMS) if name == "tau" else name


# -- Honest --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1"])
def test_a_model_that_is_level_is_rarely_said_to_be_better_and_half_the_time_left_alone(metric, n):
    """Nothing can be gained here. Of 100 choices 5 may be called better by chance."""
    tuned = [lh.tune(*level(seed, n), metric=metric) for seed in range(100)]
    assert sum(choice.verdict == "better" for choice in tuned) <= 5
    assert sum(choice.worthwhile for choice in tuned) <= 60
    assert np.mean([choice.gain for choice in tuned]) <= 0.002


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1"])
def test_the_gain_is_what_new_samples_show(metric):
    """Measured without its own fold: on average not above what a choice brings on new samples."""
    many, truth = calibrated(999, 40_000)
    said, real, covered = [], [], []
    for seed in range(40):
        tuned = lh.tune(*calibrated(seed, 300), COUNTS, metric=metric)
        before, after = (
            loss_by_hand(metric, truth, scores.argmax(axis=1))
            for scores in (many, tuned.apply(many))
        )
        said.append(tuned.gain)
        real.append(before - after)
        low, high = tuned.gain_interval
        covered.append(low <= before - after <= high)
    assert np.mean(said) == pytest.approx(np.mean(real), abs=0.03)
    assert np.mean(covered) >= 0.85


def test_labels_that_are_noise_gain_nothing():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 30)
    gains = [lh.tune(5 + rng.normal(size=(120, 4)), labels, COUNTS).gain for _ in range(20)]
    assert abs(np.mean(gains)) < 0.03


def test_the_gain_is_measured_on_samples_that_a_fit_has_not_seen():
    """Predictions after are those of the fits without each fold, as they are dealt by the seed."""
    logits, labels = calibrated(3, 200)
    goal = lh.Goal().on(labels, 4, None)
    for name in RULES:
        rule = lh.rules.find_rule(rule_of(name))
        samples = Given.of(logits + 8, labels, COUNTS).samples(None, np.random.default_rng(5))
        fits = rule.fit(samples, goal)
        predicted = np.empty(200, int)
        for fold, adjustment in zip(samples.folds, fits.without, strict=True):
            rows = samples.fold == fold
            predicted[rows] = adjustment.scores(logits[rows] + 8).argmax(axis=1)
        tuned = lh.tune(logits + 8, labels, COUNTS, rule=rule, rng=5)
        wanted = lh.Tables.of(labels, predicted, 4)
        np.testing.assert_array_equal(tuned.evidence.after.right, wanted.right)
        np.testing.assert_array_equal(tuned.evidence.after.predicted, wanted.predicted)
        np.testing.assert_allclose(tuned.adjustment.offset, fits.whole.offset)
        np.testing.assert_allclose(tuned.adjustment.scale, fits.whole.scale)


# -- Right ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("shares", ["as in training", "even"])
def test_offsets_of_a_calibrated_model_are_the_shift_times_its_temperature(temperature, shares):
    drawn = COUNTS / COUNTS.sum() if shares == "as in training" else np.full(4, 0.25)
    offsets = []
    for seed in range(5):
        logits, labels = calibrated(seed, 8000, shares=drawn)
        offsets.append(
            lh.tune(temperature * logits, labels, COUNTS).adjustment.offset / temperature
        )
    np.testing.assert_allclose(np.mean(offsets, axis=0), SHIFT, atol=0.3)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_is_about_as_good_on_new_samples_as_the_best_shift_of_all(metric):
    new, truth = calibrated(999, 40_000)
    logits, labels = calibrated(1, 5000)
    goal = lh.Goal(metric, cost=COST if metric == "cost" else None)
    tuned = lh.tune(logits, labels, COUNTS, metric=goal)
    loss = loss_by_hand(metric, truth, tuned.apply(new).argmax(axis=1))
    best = min(
        loss_by_hand(metric, truth, (new + s * SHIFT).argmax(axis=1))
        for s in np.linspace(0, 1.5, 31)
    )
    assert loss < best + (0.2 if metric == "cost" else 0.04)


@pytest.mark.parametrize("rule", ["offsets", "shift", "vector"])
def test_a_known_mix_is_reached_as_well_as_by_hand(rule):
    shares = COUNTS / COUNTS.sum()
    logits, labels = calibrated(2, 3000, shares=np.full(4, 0.25))
    new, truth = calibrated(999, 20_000, shares=shares[::-1])
    tuned = lh.tune(logits, labels, COUNTS, rule=rule, target=shares[::-1])
    ours, by_hand, plain = (
        (scores.argmax(axis=1) == truth).mean()
        for scores in (tuned.apply(new), new + np.log(shares[::-1] / shares), new)
    )
    assert ours > by_hand - 0.01
    assert ours > plain + 0.2
    assert tuned.target == pytest.approx(tuple(shares[::-1]))


@pytest.mark.filterwarnings("ignore:the counts are")
def test_the_training_shares_as_target_leave_a_calibrated_model_about_as_it_is():
    logits, labels = calibrated(2, 2000)
    tuned = lh.tune(logits, labels, COUNTS, target=COUNTS / COUNTS.sum())
    assert np.abs(tuned.adjustment.offset).max() < 0.6
    shift = lh.tune(logits, labels, COUNTS, target=COUNTS / COUNTS.sum(), rule="shift")
    assert not shift.adjustment.adds


@pytest.mark.parametrize("target", [[0.1, 0.2, 0.3, 0.4], [1, 1, 1, 1]])
def test_the_error_in_the_mix_of_a_target_is_what_it_says(tmp_path, target):
    logits, labels = calibrated(3, 1000)
    tuned = lh.tune(logits, labels, COUNTS, metric="error", target=target)
    shares = np.array(target) / np.sum(target)
    recalls = lh.measure.recall(logits, labels)
    assert tuned.evidence.value_before == pytest.approx(1 - recalls @ shares)
    same = lh.tune(logits, labels, COUNTS, metric="balanced_error", target=target)
    np.testing.assert_array_equal(tuned.adjustment.offset, same.adjustment.offset)
    assert tuned.gain == same.gain
    tuned.save(tmp_path / "tuned.json")
    assert str(lh.Tuned.load(tmp_path / "tuned.json")) == str(tuned)


def test_an_estimated_target_is_that_of_the_estimate():
    logits, labels = calibrated(4, 800)
    unlabelled, _ = calibrated(5, 1500, shares=np.full(4, 0.25))
    tuned = lh.tune(logits, labels, COUNTS, target="estimate", unlabelled=unlabelled)
    prior = lh.priors.estimate_prior(unlabelled, COUNTS, held_out=(logits, labels))
    np.testing.assert_allclose(tuned.prior.target, prior.target)
    np.testing.assert_allclose(tuned.prior.shares, 0.25, atol=0.1)
    same = lh.tune(logits, labels, COUNTS, target=prior.target)
    np.testing.assert_allclose(tuned.adjustment.offset, same.adjustment.offset)
    assert "by em from 1500 unlabelled samples" in str(tuned)


def test_the_target_that_is_told_is_the_one_decided_by_not_the_estimate():
    logits, labels = calibrated(4, 800)
    unlabelled, _ = calibrated(5, 60, shares=np.array([0.05, 0.05, 0.2, 0.7]))
    tuned = lh.tune(logits, labels, COUNTS, target="estimate", unlabelled=unlabelled)
    assert abs(tuned.prior.shares[3] - tuned.target[3]) > 0.05
    decided, estimated, why = tuned.facts()["target"].split("; ")
    for k, share in enumerate(tuned.target):
        assert f"class {k} {share:.1%}" in decided
    assert estimated.startswith(f"estimated {tuned.prior.shares_text()}, by em from 60")
    assert why.startswith("the target is nearer to what is usual")
    exact = replace(
        tuned, target=tuned.prior.shares, prior=replace(tuned.prior, target=tuned.prior.shares)
    )
    assert "usual" not in exact.facts()["target"]


def test_the_temperature_calibrates_the_adjusted_scores():
    for scale in (0.5, 1.0, 3.0):
        logits, labels = calibrated(6, 6000, shares=np.full(4, 0.25))
        tuned = lh.tune(scale * logits, labels, COUNTS)
        assert tuned.temperature == pytest.approx(scale, rel=0.15)


# -- Few samples ---------------------------------------------------------------------------------


def test_with_20_samples_it_stays_near_the_shift():
    far = []
    for seed in range(20):
        logits, labels = calibrated(seed, 20)
        offset = lh.tune(logits, labels, COUNTS).adjustment.offset
        far.append(np.abs(offset - SHIFT).max())
    assert np.median(far) < 0.8
    assert max(far) < 3


def test_with_20_samples_it_is_better_than_nothing_and_about_as_good_as_the_shift():
    new, truth = calibrated(999, 20_000)
    errors = []
    for seed in range(20):
        tuned = lh.tune(*calibrated(seed, 20), COUNTS)
        errors.append(loss_by_hand("balanced_error", truth, tuned.apply(new).argmax(axis=1)))
    plain, shift = (
        loss_by_hand("balanced_error", truth, scores.argmax(axis=1))
        for scores in (new, new + SHIFT)
    )
    assert np.mean(errors) < shift + 0.03
    assert max(errors) < plain


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1"])
def test_three_samples_are_enough_to_choose_and_nothing_is_certain(rule, metric):
    logits = np.array([[3.0, 1.0], [2.0, 1.5], [2.0, 1.9]])
    options = {"metric": metric}
    with_norms = lh.rules.Tau(norms=[2.0, 1.0]) if rule == "tau" else rule
    tuned = lh.tune(logits, [0, 0, 1], [90, 10], rule=with_norms, **options)
    assert tuned.verdict != "better"
    assert np.isfinite(tuned.adjustment.offset).all()
    assert np.isfinite(tuned.adjustment.scale).all()


# -- What it takes -------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_the_classes_does_not_matter(rule):
    logits, labels = calibrated(7, 400)
    logits = logits + 8
    order = np.array([2, 0, 3, 1])
    with_norms = lh.rules.Tau(norms=np.array(NORMS)[order]) if rule == "tau" else rule
    plain = lh.tune(logits, labels, COUNTS, rule=rule_of(rule))
    other = lh.tune(logits[:, order], np.argsort(order)[labels], COUNTS[order], rule=with_norms)
    # Folds are dealt class by class, so samples of other classes meet in them; the fit on all is the same.
    np.testing.assert_allclose(other.adjustment.offset, plain.adjustment.offset[order], atol=1e-4)
    np.testing.assert_allclose(other.adjustment.scale, plain.adjustment.scale[order], rtol=1e-4)


def test_the_order_of_the_samples_does_not_matter_for_the_fit_on_all():
    logits, labels = calibrated(8, 400)
    order = np.random.default_rng(0).permutation(400)
    plain, other = lh.tune(logits, labels, COUNTS), lh.tune(logits[order], labels[order], COUNTS)
    np.testing.assert_allclose(other.adjustment.offset, plain.adjustment.offset, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_the_same_seed_gives_the_same_and_a_generator_serves_too(rule):
    logits, labels = calibrated(9, 300)
    by_seed, two, three = (
        lh.tune(logits + 8, labels, COUNTS, rule=rule_of(rule), rng=rng)
        for rng in (3, 3, np.random.default_rng(3))
    )
    assert by_seed.to_dict() == two.to_dict() == three.to_dict()


@pytest.mark.parametrize("mask", [-1e9, np.finfo(np.float64).min, -np.inf])
@pytest.mark.parametrize("rule", ["offsets", "shift", "vector"])
def test_masked_scores_set_neither_temperature_nor_offsets(mask, rule):
    logits, labels = calibrated(10, 2000)
    masked = logits.copy()
    masked[::500, 0] = np.where(labels[::500] == 0, masked[::500, 0], mask)
    plain, other = (lh.tune(scores, labels, COUNTS, rule=rule) for scores in (logits, masked))
    assert other.temperature == pytest.approx(plain.temperature, rel=0.05)
    np.testing.assert_allclose(other.adjustment.offset, plain.adjustment.offset, atol=0.4)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1"])
def test_minus_infinity_is_chosen_with_as_a_very_low_score_is(rule, metric):
    logits, labels = calibrated(11, 800)
    masked = np.random.default_rng(0).random((800, 4)) < [0.0, 0.1, 0.1, 0.1]
    low, least = (np.where(masked, mask, logits + 8) for mask in (-1e9, -np.inf))
    wanted, infinite = (
        lh.tune(scores, labels, COUNTS, rule=rule_of(rule), metric=metric)
        for scores in (low, least)
    )
    np.testing.assert_allclose(infinite.adjustment.offset, wanted.adjustment.offset, atol=1e-4)
    np.testing.assert_allclose(infinite.adjustment.scale, wanted.adjustment.scale, rtol=1e-4)
    assert infinite.gain == pytest.approx(wanted.gain)


@pytest.mark.parametrize("rule", RULES)
def test_tensors_are_chosen_with_as_arrays_are(rule):
    logits, labels = calibrated(12, 500)
    logits = logits + 8
    plain = lh.tune(logits, labels, COUNTS, rule=rule_of(rule))
    other = lh.tune(
        torch.tensor(logits), torch.tensor(labels), torch.tensor(COUNTS), rule=rule_of(rule)
    )
    np.testing.assert_allclose(other.adjustment.offset, plain.adjustment.offset, atol=1e-6)
    np.testing.assert_allclose(other.adjustment.scale, plain.adjustment.scale, rtol=1e-6)
    assert other.gain == pytest.approx(plain.gain)


def test_tables_of_pandas_are_chosen_with_as_arrays_are():
    pandas = pytest.importorskip("pandas")
    logits, labels = calibrated(13, 200)
    names = ["ant", "cat", "elk", "fox"]
    frame = pandas.DataFrame(logits, columns=[f"logit_{name}" for name in names])
    counts = pandas.Series(dict(zip(names[::-1], COUNTS[::-1], strict=True)))
    tuned = lh.tune(frame, pandas.Series(np.array(names)[labels]), counts)
    assert tuned.names == tuple(names)
    wanted = lh.tune(logits, labels, COUNTS)
    np.testing.assert_allclose(tuned.adjustment.offset, wanted.adjustment.offset)


@pytest.mark.parametrize("dtype", ["Float64", "float64[pyarrow]"])
def test_tables_whose_numbers_may_be_missing_are_taken(dtype):
    pandas = pytest.importorskip("pandas")
    logits, labels = calibrated(13, 200)
    names = ["ant", "cat", "elk", "fox"]
    plain = pandas.DataFrame(logits, columns=names)
    frame = plain.astype(dtype)
    tuned = lh.tune(frame, labels, COUNTS)
    # Some versions of pandas lay the numbers out in another order, in which they are summed.
    wanted = lh.tune(plain, labels, COUNTS)
    np.testing.assert_allclose(tuned.adjustment.offset, wanted.adjustment.offset)
    assert (tuned.names, tuned.gain) == (wanted.names, pytest.approx(wanted.gain))
    np.testing.assert_array_equal(tuned.apply(frame), tuned.apply(logits))
    predictor = AdjustedPredictor(lambda rows: frame.iloc[rows], tuned, kind="logits")
    np.testing.assert_array_equal(predictor.decision_function(range(5)), tuned.apply(logits[:5]))
    frame.iloc[7, 2] = pandas.NA
    for read in (lambda: lh.tune(frame, labels, COUNTS), lambda: predictor.predict(range(10))):
        with pytest.raises(lh.LevelheadError, match="hold NaN or infinite values, first in row 7"):
            read()


def test_nothing_of_the_user_is_changed():
    logits, labels = calibrated(14, 300)
    inputs = [logits, labels, COUNTS.copy(), TARGET.copy(), torch.tensor(logits)]
    kept = [part.clone() if isinstance(part, torch.Tensor) else part.copy() for part in inputs]
    for rule in ("offsets", "shift", "vector", "scales", "rescale"):
        lh.tune(logits, labels, inputs[2], target=inputs[3], rule=rule, training=inputs[4] + 1)
        lh.tune(inputs[4], labels, inputs[2], rule=rule)
    lh.tune_unlabelled(inputs[4], inputs[3], counts=inputs[2])
    lh.gamma_path(inputs[4], labels, inputs[2]).best()
    for part, before in zip(inputs, kept, strict=True):
        assert (part == before).all()


def test_progress_is_told():
    seen = []
    lh.tune(*calibrated(0, 100), COUNTS, progress=lambda *stage: seen.append(stage))
    assert seen == [("fit", 0, 1), ("fit", 1, 1)]


# -- Folds ---------------------------------------------------------------------------------------


def test_folds_of_one_model_are_tuned_as_all_their_samples_together():
    logits, labels = calibrated(15, 300)
    folds = [(logits[rows], labels[rows], COUNTS) for rows in np.array_split(np.arange(300), 5)]
    pooled, whole = lh.tune_folds(folds), lh.tune(logits, labels, 5 * COUNTS)
    assert pooled.to_dict() == whole.to_dict() | {"chosen_on": "out-of-fold"}
    assert lh.tune_folds(iter(folds)).to_dict() == pooled.to_dict()


def test_counts_of_folds_add_up():
    logits, labels = calibrated(16, 240)
    parts = np.array([[500, 150, 45, 14], [250, 75, 20, 10], [250, 75, 25, 6]])  # sum up to COUNTS
    folds = [(logits[i::3], labels[i::3], COUNTS - part) for i, part in enumerate(parts)]
    assert np.array_equal(lh.tune_folds(folds).counts, 2 * COUNTS)
    without = lh.tune_folds([(x, y, None) for x, y, _ in folds])
    assert without.counted


def test_folds_without_counts_have_those_of_all_their_labels():
    """Also of a class that has no sample in most of the folds."""
    logits, labels = calibrated(16, 240)
    labels[labels == 3] = 2
    labels[:2] = 3
    folds = [(logits[i::6], labels[i::6], None) for i in range(6)]
    assert lh.tune_folds(folds).counts == tuple(np.bincount(labels))
    without_one = [(x[y != 3], y[y != 3], None) for x, y, _ in folds]
    assert lh.tune_folds(without_one).counts[3] == 1  # as in `tune`


def test_folds_whose_scores_or_classes_are_not_those_of_the_others_are_refused():
    logits, labels = calibrated(16, 240)
    words = np.array(["ant", "cat", "elk", "fox"])
    by_name = dict(zip(words.tolist(), COUNTS, strict=True))
    turned = dict(reversed(by_name.items()))
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    alone = lh.counts.with_background(COUNTS, 0)
    first = (logits, words[labels], by_name)
    for other, reason in (
        ((logits[:, ::-1], words[labels], turned), "class 0 is 'ant' in one and 'fox' in another"),
        ((logits, labels, alone), "expected the same background in every fold, or in none"),
        ((logs, labels, COUNTS), "expected one kind of scores in all, got logits and log-prob"),
    ):
        with pytest.raises(lh.LevelheadError, match=f"^folds: .*{reason}"):
            lh.tune_folds([first, other])
    # Labels that are positions go with names.
    assert lh.tune_folds([(logits, labels, COUNTS), first]).names == tuple(words)


@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1", lh.Goal(cost=COST)])
@pytest.mark.parametrize("rule", RULES)
def test_a_target_of_a_class_with_one_sample_leaves_folds_that_weigh_nothing(rule, metric):
    logits, labels = calibrated(18, 60)
    labels[labels == 3] = 2
    labels[0] = 3
    tuned = lh.tune(logits + 8, labels, metric=metric, target=[0, 0, 0, 1], rule=rule_of(rule))
    assert np.isfinite(tuned.gain)
    assert np.isfinite(tuned.adjustment.offset).all()


# -- Large ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_what_is_fitted_on_a_part_is_judged_on_all(monkeypatch, rule):
    monkeypatch.setattr("levelhead.core.samples.MOST_NUMBERS", 4 * 1000)
    monkeypatch.setattr("levelhead.core.samples.PART_NUMBERS", 4 * 1000)
    logits, labels = calibrated(17, 5000)
    tuned = lh.tune(logits + 8, labels, COUNTS, rule=rule_of(rule))
    assert Given.of(logits, labels, COUNTS).part(np.random.default_rng(0)) is not None
    assert tuned.n == tuned.evidence.n == 5000
    assert tuned.evidence.before.sizes.tolist() == np.bincount(labels).tolist()
    before = loss_by_hand("balanced_error", labels, logits.argmax(axis=1))
    assert tuned.evidence.value_before == pytest.approx(before)
    after = loss_by_hand("balanced_error", labels, tuned.apply(logits + 8).argmax(axis=1))
    assert tuned.evidence.value == pytest.approx(after, abs=0.02)


@pytest.mark.parametrize("rule", ["offsets", "shift"])
@pytest.mark.parametrize("metric", ["error", "macro_f1", "kappa", "cost"])
def test_a_part_with_more_of_the_rare_classes_is_chosen_on_for_the_mix_of_all(
    monkeypatch, rule, metric
):
    """A plain draw of 1,200 would have 25 of the rarest class, and this part has 150."""
    logits, labels = calibrated(17, 20_000)
    many, truth = calibrated(18, 40_000)
    goal = lh.Goal(cost=COST) if metric == "cost" else metric
    whole = lh.tune(logits, labels, COUNTS, metric=goal, rule=rule)
    monkeypatch.setattr("levelhead.core.samples.MOST_NUMBERS", 4 * 1200)
    monkeypatch.setattr("levelhead.core.samples.PART_NUMBERS", 4 * 1200)
    part = lh.tune(logits, labels, COUNTS, metric=goal, rule=rule)
    losses = [
        loss_by_hand(metric, truth, scores.argmax(axis=1))
        for scores in (whole.apply(many), part.apply(many))
    ]
    assert losses[1] == pytest.approx(losses[0], abs=0.012 * (1 + (metric == "cost")))
    if metric == "error":
        assert part.temperature == pytest.approx(whole.temperature, rel=0.1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_file_larger_than_the_memory_allowed_is_chosen_on(tmp_path):
    """1.2 GB of logits, and at most 700 MB more than the interpreter and the libraries take."""
    code = """
        import re, sys
        from pathlib import Path
        import numpy as np
        import levelhead as lh
        def most():
            status = Path("/proc/self/status").read_text()
            return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) / 1024
        logits = np.load(sys.argv[1], mmap_mode="r")
        labels = np.arange(len(logits)) % logits.shape[1]
        lh.tune(logits[:2000], labels[:2000])
        start = most()
        tuned = lh.tune(logits, labels, np.arange(logits.shape[1], 0, -1))
        assert tuned.n == len(logits)
        print(most() - start)
    """
    rows, classes = 600_000, 500
    file = np.lib.format.open_memmap(tmp_path / "logits.npy", "w+", np.float32, (rows, classes))
    rng = np.random.default_rng(0)
    block = rng.normal(size=(6000, classes)).astype(np.float32)
    block[np.arange(6000), np.arange(6000) % classes] += 3
    for first in range(0, rows, 6000):
        file[first : first + 6000] = block
    file.flush()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(tmp_path / "logits.npy")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert file.nbytes == 1_200_000_000
    assert float(done.stdout) < 900
