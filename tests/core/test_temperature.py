"""The temperature of scores, against the zero of the loss's derivative that scipy finds."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import softmax

from levelhead.support.arrays import fit_scale, raise_masked


def problem(n: int, k: int, scale: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores that are the logits of their labels times a scale."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, k))
    labels = (logits + rng.gumbel(size=(n, k))).argmax(axis=1)
    return scale * (logits + 5), labels  # the same to each class, which no temperature may see


def slope(inverse: float, logits, labels, weights, offset) -> float:
    """The derivative of the weighted log loss by 1 / T, as it is written."""
    values = logits - logits.mean(axis=1, keepdims=True)
    shares = softmax(inverse * values + offset, axis=1)
    return float(weights @ ((shares * values).sum(axis=1) - values[np.arange(len(labels)), labels]))


def by_scipy(logits, labels, weights, offset) -> float:
    spread = np.sqrt(np.mean((logits - logits.mean(axis=1, keepdims=True)) ** 2))
    found = brentq(
        slope,
        0.02 / spread,
        50 / spread,
        (logits, labels, weights, offset),
        xtol=1e-300,
        rtol=1e-13,
    )
    return 1 / found


SCALES = (1e-6, 1.0, 30.0, 1e20)  # the last is beyond what float32 can square
CASES = [
    (n, scale) for n in (7, 300, 1400) for scale in SCALES
]  # of 1400, a few rows are looked at first
CASES += [(20_000, 1.0)]  # in threads


@pytest.mark.parametrize(("n", "scale"), CASES)
@pytest.mark.parametrize("added", ["nothing", "per class", "per sample"])
def test_the_temperature_is_where_the_derivative_is_zero(n, scale, added):
    logits, labels = problem(n, 10, scale)
    rng = np.random.default_rng(1)
    offset = {
        "nothing": 0.0,
        "per class": rng.normal(size=10),
        "per sample": rng.normal(size=(n, 10)),
    }[added]
    weights = rng.integers(0, 4, n) / 3
    expected = by_scipy(logits, labels, weights, offset)
    assert fit_scale(logits, labels, weights, offset) == pytest.approx(expected, rel=1e-8)


def test_scores_that_are_never_wrong_get_the_smallest_temperature_and_those_always_wrong_the_largest():
    logits, _ = problem(300, 4, 3.0)
    spread = np.sqrt(np.mean((logits - logits.mean(axis=1, keepdims=True)) ** 2))
    assert fit_scale(logits, logits.argmax(axis=1), np.ones(300)) == pytest.approx(spread / 50)
    assert fit_scale(logits, logits.argmin(axis=1), np.ones(300)) == pytest.approx(spread / 0.02)


@pytest.mark.parametrize("n", [7, 1400])
def test_scores_that_say_nothing_have_some_temperature(n):
    found = fit_scale(np.full((n, 3), 0.25), np.arange(n) % 3, np.ones(n))
    assert 0.02 <= found <= 50


def test_rows_that_weigh_nothing_change_nothing():
    logits, labels = problem(1400, 5, 1.0)
    weights = (np.arange(1400) % 2).astype(float)  # of the rows to begin with, every one or none
    kept = weights > 0
    alone = fit_scale(logits[kept], labels[kept], weights[kept])
    assert fit_scale(logits, labels, weights) == pytest.approx(alone, rel=1e-8)


def test_the_scores_are_left_as_they_are():
    logits, labels = problem(20_000, 10, 1.0)
    before = logits.copy()
    fit_scale(logits, labels, np.ones(20_000), np.zeros((20_000, 10)))
    np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize("n", [300, 1400, 20_000])
def test_scores_in_float32_have_the_same_temperature_to_a_few_millionths(n):
    logits, labels = problem(n, 10, 2.0)
    offset, weights = np.random.default_rng(1).normal(size=10), np.ones(n)
    found = fit_scale(logits.astype(np.float32), labels, weights, offset)
    assert found == pytest.approx(by_scipy(logits, labels, weights, offset), rel=1e-5)


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e20, "masked"])
def test_scores_of_a_tensor_have_the_temperature_of_the_array(dtype, scale):
    torch = pytest.importorskip("torch")
    logits, labels = problem(1400, 10, 2.0 if scale == "masked" else scale)
    logits = logits.astype(dtype)
    if scale == "masked":
        logits[::2, 3], labels = -np.inf, np.where(labels == 3, 4, labels)
    offset, weights = np.random.default_rng(1).normal(size=10), np.ones(1400)
    finite = np.where(np.isneginf(logits), np.finfo(dtype).min, logits)
    found = fit_scale(torch.from_numpy(logits), labels, weights, offset)
    assert found == pytest.approx(fit_scale(finite, labels, weights, offset), rel=1e-5)
