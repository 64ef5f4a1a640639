"""A number for each class by log loss: against scipy's minimum, and what must not change it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax

import levelhead as lh
from levelhead.core import per_class
from levelhead.core.per_class import CALM, HELD, LogLoss, Mask, calibrate, fit_per_class, mix_of
from levelhead.core.samples import FOLDS, Given, Samples

from .made import COUNTS, calibrated

MASKS = {
    "offsets": Mask(scales=False, offsets=True),
    "scales": Mask(scales=True, offsets=False),
    "vector": Mask(scales=True, offsets=True),
}
pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")


def samples_of(logits, labels, counts=COUNTS) -> Samples:
    return Given.of(logits, labels, counts).samples(None, np.random.default_rng(0))


def temperature_by_scipy(samples: Samples, mix: np.ndarray) -> float:
    """Return the T of least log loss of ``scores / T + log(m / n)``, held near 1 as if by CALM samples."""
    rows = np.arange(len(samples.labels))

    def loss(log_t):
        logs = log_softmax(samples.scores * np.exp(-log_t[0]) + mix, axis=1)
        return -logs[rows, samples.labels].sum() + CALM / 2 * log_t[0] ** 2

    options = {"xatol": 1e-9, "fatol": 1e-12}
    return float(np.exp(minimize(loss, [0.0], method="Nelder-Mead", options=options).x[0]))


def fit_by_scipy(name: str, samples: Samples, rows: np.ndarray | None = None):
    """Return scale, offset and temperature as the docstring of the module has them."""
    mask = MASKS[name]
    sizes = np.bincount(samples.labels, minlength=samples.classes)
    free = sizes > 0
    mix = np.full(samples.classes, -np.inf)
    mix[free] = np.log(sizes[free] / samples.counts[free])
    shift = mix if mask.offsets else np.zeros(samples.classes)
    temperature = temperature_by_scipy(samples, shift)
    base = mix if mask.offsets else np.zeros(samples.classes)
    z = np.asarray(samples.scores) / temperature
    mean = z.mean(axis=0) if mask.scales and mask.offsets else np.zeros(samples.classes)
    spread = np.sqrt(((z - mean) ** 2).mean(axis=0))
    standard = (z - mean) / spread
    kept = np.arange(len(z)) if rows is None else rows
    kept_labels = samples.labels[kept]
    kept_sizes = np.bincount(kept_labels, minlength=samples.classes)
    used = kept_sizes > 0
    if mask.offsets:  # the mix is that of the samples that are seen
        base[used] = np.log(kept_sizes[used] / samples.counts[used] * len(z) / len(kept))

    def parts(free_numbers):
        a, c = np.zeros((2, samples.classes))
        count = int(used.sum())
        if mask.scales:
            a[used] = free_numbers[:count]
        if mask.offsets:
            c[used] = free_numbers[-count:]
        return a, c

    def loss(free_numbers):
        a, c = parts(free_numbers)
        logs = log_softmax((z + base + a * standard + c)[kept], axis=1)
        return -logs[np.arange(len(kept)), kept_labels].sum() + HELD / 2 * (a @ a + c @ c)

    size = int(used.sum()) * (2 if mask.scales and mask.offsets else 1)
    minimum = minimize(loss, np.zeros(size), method="BFGS", options={"gtol": 1e-7})
    a, c = parts(minimum.x)
    scale = 1 + a / spread if mask.scales else np.ones(samples.classes)
    offset = temperature * (c - a * mean / spread) if mask.offsets else np.zeros(samples.classes)
    return scale, offset, temperature


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bent", [1.0, 3.0])
def test_the_fit_is_the_least_log_loss_that_scipy_finds(name, seed, bent):
    logits, labels = calibrated(seed, 150)
    samples = samples_of(bent * logits + np.linspace(0, 1, 4), labels)
    fits, temperature = fit_per_class(samples, MASKS[name])
    scale, offset, by_scipy = fit_by_scipy(name, samples)
    assert temperature == pytest.approx(by_scipy, rel=1e-3)
    np.testing.assert_allclose(fits.whole.scale, scale, atol=5e-3)
    np.testing.assert_allclose(fits.whole.offset, offset, atol=5e-3 * bent)


@pytest.mark.parametrize("name", MASKS)
def test_each_fit_without_a_fold_is_the_least_loss_of_the_other_samples(name):
    samples = samples_of(*calibrated(4, 150))
    fits, _ = fit_per_class(samples, MASKS[name])
    assert len(fits.without) == FOLDS
    for fold, adjustment in zip(samples.folds, fits.without, strict=True):
        scale, offset, _ = fit_by_scipy(name, samples, np.flatnonzero(samples.fold != fold))
        np.testing.assert_allclose(adjustment.scale, scale, atol=5e-3)
        np.testing.assert_allclose(adjustment.offset, offset, atol=5e-3)


@pytest.mark.parametrize("name", MASKS)
def test_of_many_samples_one_step_from_the_fit_on_all_is_close_to_each_fit(name, monkeypatch):
    samples = samples_of(*calibrated(5, 3000))
    exact, _ = fit_per_class(samples, MASKS[name])
    monkeypatch.setattr(per_class, "_FEW_NUMBERS", 100)
    quick, _ = fit_per_class(samples, MASKS[name])
    np.testing.assert_allclose(quick.whole.scale, exact.whole.scale, atol=0.01)
    np.testing.assert_allclose(quick.whole.offset, exact.whole.offset, atol=0.01)
    for step, other in zip(quick.without, exact.without, strict=True):
        np.testing.assert_allclose(step.scale, other.scale, atol=0.05)
        np.testing.assert_allclose(step.offset, other.offset, atol=0.05)
        moved = np.ptp(other.offset - exact.whole.offset)  # but for what all classes share
        if name == "offsets":  # much closer to its own fit than to the fit on all
            assert np.ptp(step.offset - other.offset) < 0.25 * moved


@pytest.mark.parametrize("added", [-2.0, 1.0, 2.0])
def test_of_very_many_samples_the_offset_of_a_rare_class_is_fitted_to_its_own(added):
    sizes = np.array([150_000, 49_000, 980, 20])
    labels = np.repeat(np.arange(4), sizes)
    rng = np.random.default_rng(0)
    logits = 3 * np.eye(4)[labels] + rng.normal(size=(200_000, 4)) + np.log(sizes / 200_000)
    logits[:, 3] += added  # so that the model expects too few of it, or too many
    samples = samples_of(logits.astype(np.float32), labels, sizes)
    fits, temperature = fit_per_class(samples, MASKS["offsets"])
    # The slope of the loss is 0 where as many are expected of each class as there are, but for the hold.
    # What is left of it, over the curvature, is how far the offset is from there.
    c = fits.whole.offset / temperature
    expected = np.exp(log_softmax(logits / temperature + mix_of(samples) + c, axis=1))
    slope = expected.sum(axis=0) - sizes + HELD * c
    curvature = (expected * (1 - expected)).sum(axis=0) + HELD
    assert np.abs(slope / curvature).max() < 0.03


def test_one_step_is_near_the_fit_on_samples_given_so_often():
    logits, labels = calibrated(6, 1500)
    times = np.random.default_rng(0).multinomial(1500, np.full(1500, 1 / 1500))  # a bootstrap's
    drawn = samples_of(logits.repeat(times, axis=0), labels.repeat(times))
    loss = LogLoss.of(samples_of(logits, labels), MASKS["offsets"])
    whole = loss.fit()
    stepped = loss.adjustment(loss.refit(times.astype(float), whole)).offset
    again = LogLoss(drawn, drawn.scores, MASKS["offsets"], loss.temperature, mix_of(drawn))
    repeated = again.adjustment(again.fit()).offset
    moved = np.abs(repeated - loss.adjustment(whole).offset).max()
    assert moved > 0.02
    assert np.abs(stepped - repeated).max() < 0.2 * moved


# -- What must not change it ---------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["offsets", "vector"])
def test_the_same_number_added_to_all_scores_changes_nothing(rule):
    logits, labels = calibrated(7, 300)
    plain, other = (lh.tune(scores, labels, COUNTS, rule=rule) for scores in (logits, logits + 50))
    np.testing.assert_array_equal(
        plain.apply(logits).argmax(axis=1), other.apply(logits + 50).argmax(axis=1)
    )
    assert other.gain == pytest.approx(plain.gain)


@given(st.integers(0, 1000))
@settings(max_examples=10)
def test_a_number_added_to_all_scores_of_a_sample_changes_no_offset(seed):
    logits, labels = calibrated(seed, 100)
    level = 5 * np.random.default_rng(seed).normal(size=(100, 1))
    plain, other = (lh.tune(scores, labels, COUNTS) for scores in (logits, logits + level))
    np.testing.assert_allclose(other.adjustment.offset, plain.adjustment.offset, atol=1e-4)
    assert other.gain == pytest.approx(plain.gain)


@given(st.integers(0, 1000), st.permutations(range(4)))
@settings(max_examples=10)
def test_the_order_of_the_classes_orders_the_offsets(seed, order):
    logits, labels = calibrated(seed, 100)
    order = np.array(order)
    plain = lh.tune(logits, labels, COUNTS)
    other = lh.tune(logits[:, order], np.argsort(order)[labels], COUNTS[order])
    np.testing.assert_allclose(other.adjustment.offset, plain.adjustment.offset[order], atol=1e-4)


@pytest.mark.parametrize("rule", ["offsets", "scales", "vector"])
@pytest.mark.parametrize("form", ["float32", "float16", "torch", "torch float32", "list", "memmap"])
def test_scores_in_any_form_have_the_same_fit(rule, form, tmp_path):
    logits, labels = calibrated(8, 500)
    logits = logits + 8
    wanted = lh.tune(logits, labels, COUNTS, rule=rule).adjustment
    given_logits = {
        "float32": lambda: logits.astype(np.float32),
        "float16": lambda: logits.astype(np.float16),
        "torch": lambda: torch.tensor(logits),
        "torch float32": lambda: torch.tensor(logits, dtype=torch.float32),
        "list": logits.tolist,
        "memmap": lambda: _memmap(tmp_path / "logits.npy", logits),
    }[form]()
    fitted = lh.tune(given_logits, labels, COUNTS, rule=rule).adjustment
    tolerance = 0.05 if form == "float16" else 1e-3
    np.testing.assert_allclose(fitted.scale, wanted.scale, rtol=tolerance)
    np.testing.assert_allclose(fitted.offset, wanted.offset, atol=8 * tolerance)


@pytest.mark.parametrize("rule", MASKS)
@pytest.mark.parametrize("tensor", [False, True])
def test_masks_change_no_fit_however_many_there_are(rule, tensor):
    """Of 8 classes 3 are allowed in a sample: at -60 the others have no probability, and at -inf no more."""
    rng = np.random.default_rng(0)
    counts = np.arange(900, 100, -100)
    labels = rng.integers(8, size=600)
    logits = 3 * np.eye(8)[labels] + rng.normal(size=(600, 8)) + np.log(counts / 1000)
    is_allowed = rng.random((600, 8)).argsort(axis=1) < 3
    is_allowed[np.arange(600), labels] = True

    def fit(mask):
        samples = samples_of(np.where(is_allowed, logits, mask), labels, counts)
        if tensor:  # as they are on a GPU
            samples = replace(samples, scores=torch.tensor(samples.scores))
        fits, _ = fit_per_class(samples, MASKS[rule])
        return np.where(is_allowed, fits.whole.scores(logits), -np.inf)

    np.testing.assert_allclose(log_softmax(fit(-np.inf)), log_softmax(fit(-60.0)), atol=0.3)


def _memmap(path, values):
    np.save(path, values)
    return np.load(path, mmap_mode="r")


def test_counts_matter_by_their_proportions_alone():
    logits, labels = calibrated(9, 300)
    one, other = (lh.tune(logits, labels, counts).adjustment for counts in (COUNTS, 7 * COUNTS))
    np.testing.assert_allclose(one.offset, other.offset, atol=1e-9)


# -- Classes that are rare or left out -----------------------------------------------------------


def test_a_class_without_samples_is_moved_by_its_count_alone():
    logits, labels = calibrated(10, 4000)
    rows = labels != 2
    tuned = lh.tune(logits[rows], labels[rows], COUNTS)
    assert np.isfinite(tuned.adjustment.offset).all()
    neighbors = tuned.adjustment.offset[[1, 3]]
    assert neighbors[0] < tuned.adjustment.offset[2] < neighbors[1]
    fits, temperature = fit_per_class(samples_of(logits[rows], labels[rows]), MASKS["offsets"])
    assert fits.whole.offset[2] == 0  # before what the goal asks for
    assert np.isfinite(temperature)


def test_a_class_with_one_sample_is_left_out_where_its_fold_is():
    logits, labels = calibrated(11, 100)
    single = np.append(np.flatnonzero(labels != 3), np.flatnonzero(labels == 3)[0])
    samples = samples_of(logits[single], labels[single])
    fits, _ = fit_per_class(samples, MASKS["offsets"])
    fold = int(samples.fold[samples.labels == 3][0])
    at = samples.folds.index(fold)
    assert fits.without[at].offset[3] == 0
    assert fits.whole.offset[3] != 0


def test_a_class_of_few_samples_is_held_near_the_counts_and_one_of_many_is_free():
    """A class whose scores are 2 too low: many samples bring them back, few hardly."""
    moved = []
    for n in (20, 20_000):
        logits, labels = calibrated(12, n, shares=np.full(4, 0.25))
        tuned = lh.tune(logits - [0, 0, 0, 2], labels, COUNTS)
        moved.append(tuned.adjustment.offset[3] - np.log(1000 / 30))
    assert moved[0] < 1.2
    assert moved[1] == pytest.approx(2, abs=0.3)


def test_a_scale_stays_above_the_least_even_for_scores_that_say_the_opposite():
    logits, labels = calibrated(13, 500)
    logits[:, 1] = -5 * logits[:, 1]
    for name in ("scales", "vector"):
        fits, _ = fit_per_class(samples_of(logits, labels), MASKS[name])
        assert min(fit.scale.min() for fit in (fits.whole, *fits.without)) >= 0.05 - 1e-9


def test_a_column_that_is_constant_is_left_as_it_is():
    logits, labels = calibrated(14, 300)
    logits[:, 2] = 1.0
    for rule in ("offsets", "scales", "vector"):
        tuned = lh.tune(logits, labels, COUNTS, rule=rule)
        assert np.isfinite(tuned.adjustment.scale).all()
        assert np.isfinite(tuned.adjustment.offset).all()


def test_the_background_is_where_all_offsets_are_measured_from():
    logits, labels = calibrated(15, 300)
    for metric in ("balanced_error", "macro_f1"):
        tuned = lh.tune(logits, labels, lh.counts.with_background(COUNTS, 2), metric=metric)
        plain = lh.tune(logits, labels, COUNTS, metric=metric)
        np.testing.assert_allclose(
            tuned.adjustment.offset, plain.adjustment.offset - plain.adjustment.offset[2], atol=1e-6
        )
        assert tuned.gain == plain.gain


def test_the_fit_goes_by_the_own_count_of_a_background():
    """As the model does that was trained on it: only where it is 0, the largest of the others stands in."""
    logits, labels = calibrated(15, 300)
    tuned = lh.tune(logits, labels, lh.counts.with_background(COUNTS, 0), metric="macro_f1")
    plain = lh.tune(logits, labels, COUNTS, metric="macro_f1")
    assert tuned.counts == (300, 300, 90, 30)
    np.testing.assert_array_equal(tuned.adjustment.offset, plain.adjustment.offset)
    unknown = lh.counts.with_background([0, *COUNTS[1:]], 0)
    stands_in = lh.tune(logits, labels, [300, *COUNTS[1:]], metric="macro_f1")
    tuned = lh.tune(logits, labels, unknown, metric="macro_f1")
    np.testing.assert_allclose(tuned.adjustment.offset, stands_in.adjustment.offset, atol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_the_temperature_is_that_of_the_scores_held_near_1(scale):
    samples = samples_of(scale * calibrated(16, 20_000)[0], calibrated(16, 20_000)[1])
    assert calibrate(samples) == pytest.approx(scale, rel=0.1)
    few = samples_of(scale * calibrated(16, 12)[0], calibrated(16, 12)[1])
    assert abs(np.log(calibrate(few))) < abs(np.log(scale)) + 0.7


@pytest.mark.parametrize("unit", [0.01, 30.0, 1000.0])
def test_scales_find_as_much_whatever_the_unit_of_the_scores(unit):
    rng = np.random.default_rng(0)
    shares = np.exp(-0.7 * np.arange(5))
    labels = rng.choice(5, p=shares / shares.sum(), size=2000)
    logits = (4 + 3 * np.eye(5)[labels] + rng.normal(size=(2000, 5))) * [1, 0.9, 0.7, 0.5, 0.35]
    plain, other = (lh.tune(scores, labels, rule="scales") for scores in (logits, unit * logits))
    assert plain.gain > 0.25
    assert other.gain == pytest.approx(plain.gain, abs=0.02)


@pytest.mark.parametrize("unit", [1e-4, 0.01, 100.0, 1e6])
@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1"])
def test_the_unit_of_the_scores_hardly_matters(unit, metric):
    counts = np.array([3000, 300, 30])
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [75, 15, 6])
    logits = 2 * np.eye(3)[labels] + rng.normal(size=(96, 3)) + np.log(counts)
    new_labels = np.repeat([0, 1, 2], 500)
    new = 2 * np.eye(3)[new_labels] + rng.normal(size=(1500, 3)) + np.log(counts)

    def recall(factor):
        tuned = lh.tune(factor * logits, labels, counts, metric=metric)
        return float((tuned.apply(factor * new).argmax(axis=1) == new_labels).mean())

    assert recall(unit) == pytest.approx(recall(1.0), abs=0.03)
