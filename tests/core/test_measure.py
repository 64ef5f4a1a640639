"""Measures against scikit-learn, scipy and plain loops."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn import metrics

from levelhead import measure as m

rng = np.random.default_rng(0)
N, K = 400, 6
LOGITS = rng.standard_normal((N, K)) * 2
LABELS = np.where(rng.random(N) < 0.5, LOGITS.argmax(axis=1), rng.integers(K, size=N))
TIED = np.round(LOGITS)  # many equal logits
LEFT_OUT = np.where(LABELS == 3, 4, LABELS)  # class 3 has no sample

CASES = pytest.mark.parametrize(
    ("logits", "labels"),
    [(LOGITS, LABELS), (TIED, LABELS), (LOGITS, LEFT_OUT)],
    ids=["plain", "tied", "a class left out"],
)


@CASES
def test_errors_agree_with_scikit_learn(logits, labels):
    predicted = logits.argmax(axis=1)
    assert m.error(logits, labels) == pytest.approx(1 - metrics.accuracy_score(labels, predicted))
    np.testing.assert_array_equal(m.predict(logits), predicted)
    recalls = metrics.recall_score(labels, predicted, labels=np.unique(labels), average=None)
    assert m.balanced_error(logits, labels) == pytest.approx(1 - recalls.mean())


@CASES
def test_recall_precision_and_confusion_agree_with_scikit_learn(logits, labels):
    predicted = logits.argmax(axis=1)
    expected = metrics.confusion_matrix(labels, predicted, labels=range(K))
    np.testing.assert_array_equal(m.confusion(logits, labels), expected)
    for ours, theirs in (
        (m.recall(logits, labels), metrics.recall_score),
        (m.precision(logits, labels), metrics.precision_score),
    ):
        expected = theirs(labels, predicted, labels=range(K), average=None, zero_division=np.nan)
        np.testing.assert_allclose(ours, expected)


@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_top_k_agrees_with_scikit_learn(k):
    if k < K:
        expected = 1 - metrics.top_k_accuracy_score(LABELS, LOGITS, k=k, labels=range(K))
        assert m.error(LOGITS, LABELS, k=k) == pytest.approx(expected)
    else:
        assert m.error(LOGITS, LABELS, k=k) == 0


def test_of_equal_logits_the_first_class_comes_first():
    level = np.zeros((3, 3))
    assert m.rank(level, [0, 1, 2]).tolist() == [0, 1, 2]
    assert m.error(level, [0, 1, 2], k=2) == pytest.approx(1 / 3)
    np.testing.assert_array_equal(m.rank(TIED, LABELS) == 0, TIED.argmax(axis=1) == LABELS)


def test_likelihood_agrees_with_scikit_learn_at_any_temperature():
    for t in (0.5, 1.0, 3.0):
        expected = metrics.log_loss(LABELS, softmax(LOGITS / t, axis=1), labels=range(K))
        assert m.negative_log_likelihood(LOGITS, LABELS, temperature=t) == pytest.approx(expected)


def test_log_softmax_agrees_with_scipy_even_for_huge_logits():
    huge = LOGITS * 1e4
    np.testing.assert_allclose(m.log_softmax(huge), log_softmax(huge, axis=1))


def test_the_fitted_temperature_is_the_one_scipy_finds():
    minimum = minimize_scalar(
        lambda t: metrics.log_loss(LABELS, softmax(LOGITS / t, axis=1), labels=range(K)),
        bounds=(0.05, 20),
        method="bounded",
        options={"xatol": 1e-8},
    )
    assert m.fit_temperature(LOGITS, LABELS) == pytest.approx(minimum.x, rel=1e-3)


def test_calibration_error_agrees_with_a_loop_over_bins():
    probability = softmax(LOGITS, axis=1)
    confidence, right = probability.max(axis=1), probability.argmax(axis=1) == LABELS
    total = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence >= low) & ((confidence < low + 1 / 15) | (low == 14 / 15))
        if inside.any():
            total += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert m.calibration_error(LOGITS, LABELS) == pytest.approx(total)


def test_a_calibrated_model_has_no_calibration_error_and_a_confident_wrong_one_has_all():
    generator = np.random.default_rng(1)
    logits = generator.standard_normal((50_000, 3))
    drawn = (softmax(logits, axis=1).cumsum(axis=1) < generator.random((50_000, 1))).sum(axis=1)
    assert m.calibration_error(logits, drawn) < 0.01
    assert m.fit_temperature(logits, drawn) == pytest.approx(1, abs=0.03)
    assert m.calibration_error(np.array([[50.0, 0.0]] * 4), [1, 1, 1, 1]) == pytest.approx(1)


def test_a_weight_counts_a_sample_so_often():
    times = np.arange(len(LABELS)) % 3 + 1
    repeated = m.fit_temperature(np.repeat(LOGITS, times, axis=0), np.repeat(LABELS, times))
    assert m.fit_temperature(LOGITS, LABELS, weights=times) == pytest.approx(repeated, rel=1e-3)
    expected = m.negative_log_likelihood(
        np.repeat(LOGITS, times, axis=0), np.repeat(LABELS, times), temperature=2.0
    )
    assert m.negative_log_likelihood(
        LOGITS, LABELS, temperature=2.0, weights=times
    ) == pytest.approx(expected)


def test_the_negative_share_is_that_of_true_classes():
    assert m.negative_share(
        np.array([[-1.0, 2.0], [3.0, -1.0], [-5.0, -1.0]]), [0, 0, 1]
    ) == pytest.approx(2 / 3)


def test_all_measures_at_once_agree_with_each_alone():
    counts = [500, 300, 100, 50, 19, 5]
    measures = m.measure(LOGITS, LABELS, counts)
    recalls = metrics.recall_score(LABELS, LOGITS.argmax(axis=1), average=None)
    assert measures.n == N
    assert measures.error == m.error(LOGITS, LABELS)
    assert measures.balanced_error == m.balanced_error(LOGITS, LABELS)
    assert measures.groups == pytest.approx(
        {"many": recalls[:2].mean(), "medium": recalls[2:4].mean(), "few": recalls[4:].mean()}
    )
    assert (measures.worst_class, measures.worst_recall) == (
        recalls.argmin(),
        pytest.approx(recalls.min()),
    )
    assert measures.calibration_error == m.calibration_error(LOGITS, LABELS)
    assert measures.negative_log_likelihood == m.negative_log_likelihood(LOGITS, LABELS)
    assert m.measure(LOGITS, LEFT_OUT).worst_class != 3
    assert m.measure(LOGITS, LABELS).groups == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_tensors_are_measured_as_their_values_are(dtype):
    logits = torch.from_numpy(LOGITS).to(dtype)
    same = logits.double().numpy()
    for name in (
        "error",
        "balanced_error",
        "negative_log_likelihood",
        "calibration_error",
        "negative_share",
    ):
        measure = getattr(m, name)
        assert measure(logits, torch.from_numpy(LABELS)) == pytest.approx(
            measure(same, LABELS), rel=1e-5
        )


@pytest.mark.parametrize(
    "name",
    [
        "rank",
        "error",
        "balanced_error",
        "recall",
        "precision",
        "confusion",
        "negative_share",
        "negative_log_likelihood",
        "calibration_error",
        "fit_temperature",
        "measure",
    ],
)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, -1], "expected labels from 0 to 1, got -1 at position 2"),
        ([0, 1, 2], "expected labels from 0 to 1, got 2 at position 2"),
        ([0, 1, 0.5], "expected integer labels, got float64"),
        ([0], "expected one label per row of logits, got 1 labels and 3 rows"),
    ],
)
def test_every_measure_refuses_a_label_that_is_not_a_class(name, labels, message):
    logits = np.array([[2.0, 1.0], [1.0, 3.0], [0.0, 4.0]])
    with pytest.raises(ValueError, match=message):
        getattr(m, name)(logits, labels)


def test_a_nan_is_never_right():
    logits = np.array([[np.nan, 1.0], [1.0, np.nan], [2.0, 1.0]])
    assert (m.rank(logits, [0, 0, 0]) == 0).tolist() == [False, False, True]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_probabilities_of_what_is_not_finite_are_refused(value):
    logits = np.array([[2.0, 1.0], [1.0, value]])
    for of in (m.calibration_error, m.negative_log_likelihood):
        with pytest.raises(ValueError, match="NaN or infinite values, first in row 1"):
            of(logits, [0, 1])
        masked = np.array([[2.0, -np.inf], [1.0, 2.0]])
        assert of(masked, [0, 1]) == pytest.approx(of(np.maximum(masked, -1000), [0, 1]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sample_whose_own_class_is_masked_has_an_infinite_loss(dtype):
    logits = np.array([[2.0, -np.inf, 1.0], [-np.inf, 2.0, 1.0], [2.0, 1.0, 0.0]], dtype)
    assert m.measure(logits, [1, 0, 2]).negative_log_likelihood == np.inf
    assert m.negative_log_likelihood(logits, [1, 0, 2]) == np.inf
    seen = m.measure(logits, [0, 1, 2]).negative_log_likelihood
    assert seen == pytest.approx(m.negative_log_likelihood(np.maximum(logits, -1000), [0, 1, 2]))


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (
            np.ones(3),
            r"expected logits \[N, K\] of at least 1 sample and 2 classes, got shape \[3\]",
        ),
        (
            np.ones((3, 1)),
            r"expected logits \[N, K\] of at least 1 sample and 2 classes, got shape \[3, 1\]",
        ),
        (
            np.ones((0, 3)),
            r"expected logits \[N, K\] of at least 1 sample and 2 classes, got shape \[0, 3\]",
        ),
        (np.array([["a", "b"]]), "expected logits as floating-point numbers"),
        (np.array([[1.0, 2.0], [np.inf, 0.0]]), "NaN or infinite values, first in row 1"),
        (softmax(LOGITS, axis=1), "expected logits, got what looks like probabilities"),
    ],
)
def test_values_that_are_not_logits_are_refused(logits, message):
    with pytest.raises(ValueError, match=message):
        m.check_logits(logits)


def test_probabilities_become_their_logarithms_on_request():
    probability = softmax(LOGITS, axis=1)
    np.testing.assert_allclose(
        m.check_logits(probability, kind="probabilities"), np.log(probability)
    )
    assert np.isfinite(m.check_logits(np.array([[0.0, 1.0]]), kind="probabilities")).all()
    with pytest.raises(ValueError, match=r"expected probabilities, from 0 to 1, got -0.5 in row 1"):
        m.check_logits(np.array([[0.2, 0.8], [-0.5, 0.9]]), kind="probabilities")
    with pytest.raises(ValueError, match=r"expected probabilities, from 0 to 1, got 7 in row 0"):
        m.check_logits(np.array([[7.0, 0.5]]), kind="probabilities")
    with pytest.raises(ValueError, match="kind: expected 'logits' or 'probabilities', got 'odds'"):
        m.check_logits(LOGITS, kind="odds")
    assert not m.looks_like_probabilities(LOGITS)


@pytest.mark.parametrize(
    ("classes", "decimals"), [(2, 1), (3, 1), (3, 2), (10, 2), (10, 3), (30, 2), (30, 3)]
)
def test_rounded_probabilities_look_like_such(classes, decimals):
    logits = np.random.default_rng(0).normal(size=(300, classes)) * 3
    assert m.looks_like_probabilities(softmax(logits, axis=1).round(decimals))
    assert not m.looks_like_probabilities(np.abs(logits).round(decimals) / 10)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_a_softmax_in_half_precision_looks_like_probabilities(classes):
    logits = 2 * torch.randn(1000, classes, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(ValueError, match="got what looks like probabilities"):
            m.check_logits(logits.to(dtype).softmax(dim=1))


def test_bfloat16_of_jax_and_keras_is_taken_for_numbers():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for rounded in (LOGITS.astype(ml_dtypes.bfloat16), torch.tensor(LOGITS).bfloat16()):
        values = m.check_logits(rounded)
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, LOGITS, rtol=2**-8)


def test_masked_values_are_not_used_as_if_they_were_not():
    logits = np.array([[2.0, 1.0], [0.0, 3.0], [5.0, 1.0]])
    for masked in (
        np.ma.masked_less(logits, 0.5),
        np.ma.masked_array(logits, [[0, 0], [0, 0], [1, 1]]),
    ):
        with pytest.raises(ValueError, match=r"masked.*fill"):
            m.measure(masked, [0, 1, 1])
    assert m.error(np.ma.masked_array(logits), [0, 1, 1]) == pytest.approx(1 / 3)
