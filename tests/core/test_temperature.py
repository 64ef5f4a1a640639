"""The temperature of scores, against the zero of the loss's derivative that scipy finds."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import softmax

import levelhead as lh
from levelhead.core.calibration import fit_temperature, some_rows
from levelhead.support.logits import raise_masked


def problem(n: int, k: int, scale: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return scores that are the logits of their labels times a scale."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, k))
    labels = (logits + rng.gumbel(size=(n, k))).argmax(axis=1)
    return scale * (logits + 5), labels  # the same to each class, which no temperature may see


def by_scipy(logits, labels, weights, offset, held: float = 0.0) -> float:
    """Return the T at which the derivative of the loss by log T, as it is written, is 0."""
    values = logits - logits.max(axis=1, keepdims=True)
    rows = np.arange(len(labels))

    def slope(log_t):
        z = values * np.exp(-log_t)
        shares = softmax(z + offset, axis=1)
        return float(weights @ (z[rows, labels] - (shares * z).sum(axis=1))) + held * log_t

    middle = np.log(np.sqrt(np.mean(values**2)))
    low, high = middle - 6, middle + 6
    if held:
        low, high = min(low, -6), max(high, 6)
    return float(np.exp(brentq(slope, low, high, xtol=1e-12)))


@pytest.mark.parametrize("n", [20, 300, 1400])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 30.0, 1e10])
@pytest.mark.parametrize("added", [False, True])
def test_the_temperature_is_where_the_derivative_is_zero(n, scale, added):
    logits, labels = problem(n, 10, scale)
    rng = np.random.default_rng(1)
    offset = rng.normal(size=10) if added else 0.0
    weights = rng.integers(1, 4, n) / 2
    wanted = by_scipy(logits, labels, weights, offset)
    assert fit_temperature(logits, labels, weights, offset) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("scale", [0.3, 3.0, 10.0])
@pytest.mark.parametrize("held", [1.0, 100.0])
def test_a_temperature_that_is_held_is_drawn_to_1(scale, held):
    logits, labels = problem(200, 5, scale)
    temperature = fit_temperature(logits, labels, held=held)
    assert temperature == pytest.approx(by_scipy(logits, labels, np.ones(200), 0.0, held), rel=1e-3)
    assert abs(np.log(temperature)) < abs(np.log(fit_temperature(logits, labels)))


@pytest.mark.parametrize("small", [0.01, 0.0001])
def test_of_scores_that_are_no_logits_by_their_size_the_unit_does_not_matter(small):
    logits, labels = problem(30, 5, 1.0)
    for unit, larger in ((small, small / 10), (1000, 10_000)):
        held = [fit_temperature(factor * logits, labels, held=10.0) for factor in (unit, larger)]
        assert held[1] / held[0] == pytest.approx(larger / unit, rel=1e-3)


def test_scores_that_are_never_wrong_get_a_small_temperature_and_those_always_wrong_a_large_one():
    logits, _ = problem(300, 4, 3.0)
    never, always = (
        fit_temperature(logits, labels) for labels in (logits.argmax(axis=1), logits.argmin(axis=1))
    )
    assert 0 < never < 0.05
    assert 100 < always < np.inf
    assert 0.3 < fit_temperature(logits, logits.argmax(axis=1), held=1e4) < 1


@pytest.mark.parametrize("n", [7, 1400])
def test_scores_that_say_nothing_have_some_temperature(n):
    temperature = fit_temperature(np.full((n, 3), 0.25), np.arange(n) % 3)
    assert 0 < temperature < np.inf
    calm = fit_temperature(np.full((n, 3), 0.25), np.arange(n) % 3, held=10.0)
    assert calm == pytest.approx(1, rel=1e-3)


def test_rows_that_weigh_nothing_change_nothing():
    logits, labels = problem(400, 5, 1.0)
    weights = (np.arange(400) % 2).astype(float)
    kept = weights > 0
    alone = fit_temperature(logits[kept], labels[kept], weights[kept])
    assert fit_temperature(logits, labels, weights) == pytest.approx(alone, rel=1e-3)
    assert fit_temperature(logits, labels, np.zeros(400)) == 1


def test_of_many_samples_some_are_enough():
    logits, labels = problem(50_000, 10, 2.0)
    assert len(some_rows(50_000, 10)) <= 26_215
    assert len(some_rows(400, 100_000)) == 400
    assert fit_temperature(logits, labels) == pytest.approx(2, rel=0.05)


def test_the_scores_are_left_as_they_are():
    logits, labels = problem(2000, 10, 1.0)
    for scores in (logits, torch.tensor(logits)):
        before = scores.copy() if isinstance(scores, np.ndarray) else scores.clone()
        fit_temperature(scores, labels, np.ones(2000), np.zeros(10))
        assert (scores == before).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_only_scores_far_below_what_is_usual_are_raised(dtype):
    logits = problem(1400, 10, 1.0)[0].astype(dtype)
    assert raise_masked(logits) is logits
    masked = logits.copy()
    masked[7, 3] = np.finfo(dtype).min
    below = logits[7].max() - raise_masked(masked)[7, 3]
    assert 10 < below < 100  # ten times what is usual, which is about 3
    np.testing.assert_allclose(
        np.delete(raise_masked(masked), 7, axis=0), np.delete(logits, 7, axis=0), rtol=1e-6
    )


def masked(classes: int, allowed: float, signal: float) -> tuple[np.ndarray, ...]:
    """Return scores, labels, and which classes are allowed: so many a sample, or below 2, in so many samples."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, 1000)
    logits = signal * (3 * np.eye(classes)[labels] + rng.normal(size=(1000, classes)))
    most = np.full((1000, 1), allowed)
    if allowed < 2:  # only one class is allowed in the other samples
        most = np.where(rng.random((1000, 1)) < allowed, 5, 1)
    is_allowed = rng.random((1000, classes)).argsort(axis=1).argsort(axis=1) < most
    is_allowed[np.arange(1000), labels] = True
    return logits, labels, is_allowed


@pytest.mark.parametrize("mask", [-1e4, -65504.0, -1e9, np.finfo(np.float32).min])
@pytest.mark.parametrize(
    ("classes", "allowed", "signal"),
    [(20, 5, 1.0), (20, 5, 20.0), (20, 5, 0.01), (2, 0.3, 1.0), (20, 0.4, 1.0), (200, 20, 1.0)],
)
def test_masks_do_not_set_the_temperature_however_many_there_are(classes, allowed, signal, mask):
    logits, labels, is_allowed = masked(classes, allowed, signal)
    # Where they are as likely as not at all, how far they are plays no part.
    near = np.where(is_allowed, logits, -100 * signal)
    wanted = by_scipy(near, labels, np.ones(1000), 0.0)
    far = np.where(is_allowed, logits, mask).astype(np.float32)
    for scores in (far, far.astype(np.float64), torch.tensor(far)):
        assert fit_temperature(scores, labels) == pytest.approx(wanted, rel=1e-3)


def test_the_chosen_temperature_is_that_without_masks():
    logits, labels, is_allowed = masked(20, 5, 1.0)
    near, far = (lh.tune(np.where(is_allowed, logits, at), labels) for at in (-30, -np.inf))
    assert far.temperature == pytest.approx(near.temperature, rel=1e-3)


@pytest.mark.parametrize("weight", [1.0, 100.0])
def test_samples_whose_own_class_is_masked_say_nothing_of_the_temperature(weight):
    logits, labels = problem(1000, 10, 3.0)
    is_masked = labels == 4
    wanted = fit_temperature(logits[~is_masked], labels[~is_masked])
    logits[is_masked, 4] = np.finfo(np.float32).min
    weights = np.where(is_masked, weight, 1.0)
    for scores in (logits, torch.tensor(logits)):
        assert fit_temperature(scores, labels, weights) == pytest.approx(wanted, rel=1e-3)
    assert fit_temperature(logits[is_masked], labels[is_masked]) == 1


@pytest.mark.parametrize("classes", [2, 20])
def test_classes_that_are_nearly_alike_do_not_make_masks_of_the_others(classes):
    """In most samples the two largest scores are 1e-6 apart, as of two copies of a class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, 1000)
    logits = 3 * np.eye(classes)[labels] + 2 * rng.normal(size=(1000, classes))
    alike = rng.random(1000) < 0.7
    largest = logits[alike].max(axis=1)
    logits[alike, 0] = largest
    logits[alike, 1] = largest - 1e-6
    assert raise_masked(logits) is logits
    wanted = by_scipy(logits, labels, np.ones(1000), 0.0)
    assert fit_temperature(logits, labels) == pytest.approx(wanted, rel=1e-3)


def test_one_sample_of_huge_scores_does_not_set_the_temperature():
    logits, labels = problem(1000, 10, 1.0)
    wanted = fit_temperature(logits, labels)
    logits[5] = 1e6 * np.arange(10.0)
    assert fit_temperature(logits, labels) == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("masked", [False, True])
def test_scores_of_a_tensor_have_the_temperature_of_the_array(dtype, masked):
    logits, labels = problem(1400, 10, 2.0)
    logits = logits.astype(dtype)
    if masked:
        logits[::2, 3], labels = np.finfo(dtype).min, np.where(labels == 3, 4, labels)
    offset, weights = np.random.default_rng(1).normal(size=10), np.ones(1400)
    temperature = fit_temperature(torch.from_numpy(logits), labels, weights, offset)
    assert temperature == pytest.approx(fit_temperature(logits, labels, weights, offset), rel=2e-3)
