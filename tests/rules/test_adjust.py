"""The adjustments as properties: identity, composition, permutation, invariance, idempotence, numpy and torch alike."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import levelhead as lh
from levelhead import Head
from levelhead.core.adjustment import Adjustment

DTYPES = {np.float16: torch.float16, np.float32: torch.float32, np.float64: torch.float64}
EPS = {np.float16: 2e-3, np.float32: 1e-5, np.float64: 1e-12}

gammas = st.floats(-1, 1.5)


@st.composite
def cases(draw, dtypes=(np.float32, np.float64)):
    """A head with entries of ordinary size, with or without a bias, and its counts."""
    dtype = draw(st.sampled_from(dtypes))
    classes, width = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    entries = st.floats(-8, 8, width=16)
    weight = draw(hnp.arrays(dtype, (classes, width), elements=entries))
    bias = draw(st.none() | hnp.arrays(dtype, classes, elements=entries))
    return Head(weight, bias), draw(hnp.arrays(np.int64, classes, elements=st.integers(1, 5000)))


def same(a: Head, b: Head, tolerance: float = 0.0) -> None:
    assert (a.bias is None) == (b.bias is None)
    for left, right in ((a.weight, b.weight), (a.bias, b.bias)):
        if left is not None:
            assert left.dtype == right.dtype
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def as_torch(head: Head) -> Head:
    return replace(
        head,
        weight=torch.from_numpy(head.weight),
        bias=None if head.bias is None else torch.from_numpy(head.bias),
    )


@given(cases(tuple(DTYPES)))
@settings(max_examples=60, deadline=None)
def test_gamma_zero_changes_no_bit(case):
    head, counts = case
    same(lh.rescale(head, counts, gamma=0), head)
    biased = head if head.bias is not None else replace(head, bias=head.weight[:, 0] * 0)
    same(lh.shift_logits(head, counts, 0.0), biased)


@given(cases(tuple(DTYPES)), gammas, st.integers(1, 1000))
@settings(max_examples=60, deadline=None)
def test_a_balanced_set_changes_no_bit(case, gamma, n):
    head, _ = case
    same(lh.rescale(head, [n] * head.classes, gamma=gamma), head)


@given(cases(), gammas, gammas)
@settings(max_examples=60, deadline=None)
def test_two_gammas_compose_to_their_sum(case, first, second):
    head, counts = case
    twice = lh.rescale(lh.rescale(head, counts, gamma=first), counts, gamma=second)
    once = lh.rescale(head, counts, gamma=first + second)
    same(twice, once, EPS[head.weight.dtype.type])


@given(cases(), gammas, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_permuting_the_classes_permutes_the_result(case, gamma, random):
    head, counts = case
    order = list(range(head.classes))
    random.shuffle(order)

    def permuted(h: Head) -> Head:
        return Head(h.weight[order], None if h.bias is None else h.bias[order])

    same(
        lh.rescale(permuted(head), counts[order], gamma=gamma),
        permuted(lh.rescale(head, counts, gamma=gamma)),
    )
    same(
        lh.shift_logits(permuted(head), counts[order], gamma),
        permuted(lh.shift_logits(head, counts, gamma)),
    )


@given(cases(), gammas, st.integers(2, 1000))
@settings(max_examples=60, deadline=None)
def test_only_the_ratios_of_counts_matter(case, gamma, times):
    head, counts = case
    same(
        lh.rescale(head, counts * times, gamma=gamma),
        lh.rescale(head, counts, gamma=gamma),
        EPS[head.weight.dtype.type],
    )


@given(cases(), gammas)
@settings(max_examples=60, deadline=None)
def test_scaling_the_head_is_scaling_the_logits(case, gamma):
    head, counts = case
    features = np.random.default_rng(0).standard_normal((4, head.weight.shape[1]))
    np.testing.assert_allclose(
        lh.rescale(head, counts, gamma=gamma).logits(features),
        head.logits(features) * (counts.max() / counts) ** gamma,
        rtol=1e-4,
        atol=1e-3,
    )


@given(cases(), gammas)
@settings(max_examples=30, deadline=None)
def test_a_kept_bias_is_kept_bit_for_bit(case, gamma):
    head, counts = case
    kept = lh.rescale(head, counts, gamma=gamma, bias="keep")
    assert kept.bias is head.bias
    np.testing.assert_array_equal(kept.weight, lh.rescale(head, counts, gamma=gamma).weight)


@given(cases(tuple(DTYPES)))
@settings(max_examples=60, deadline=None)
def test_normalizing_gives_unit_length_and_twice_is_once(case):
    head, _ = case
    assume((np.linalg.norm(head.weight.astype(np.float64), axis=1) > 1e-2).all())
    once, epsilon = lh.normalize(head), EPS[head.weight.dtype.type]
    np.testing.assert_allclose(
        np.linalg.norm(once.weight.astype(np.float64), axis=1), 1, rtol=epsilon
    )
    same(lh.normalize(once), once, epsilon)
    same(lh.tau_normalize(head, 1.0, bias="keep"), once, epsilon)


@given(cases(), st.floats(0, 2))
@settings(max_examples=30, deadline=None)
def test_tau_normalization_gives_the_lengths_of_its_formula(case, tau):
    head, _ = case
    norms = np.linalg.norm(head.weight.astype(np.float64), axis=1)
    assume((norms > 1e-2).all())
    np.testing.assert_allclose(lh.tau_normalize(head, tau).norms, norms ** (1 - tau), rtol=1e-4)


@given(cases(tuple(DTYPES)), gammas)
@settings(max_examples=100, deadline=None)
def test_torch_and_numpy_agree_and_each_keeps_its_own_kind(case, gamma):
    head, counts = case
    assume((np.linalg.norm(head.weight.astype(np.float64), axis=1) > 1e-2).all())
    dtype = head.weight.dtype.type
    for change in (
        lambda h: lh.rescale(h, counts, gamma=gamma / 2),
        lambda h: lh.shift_logits(h, counts, gamma),
        lambda h: lh.tau_normalize(h, gamma),
        lh.normalize,
    ):
        here, there = change(head), change(as_torch(head))
        assert isinstance(here.weight, np.ndarray)
        assert isinstance(there.weight, torch.Tensor)
        assert (here.weight.dtype, there.weight.dtype) == (dtype, DTYPES[dtype])
        for a, b in ((here.weight, there.weight), (here.bias, there.bias)):
            if a is not None:
                np.testing.assert_allclose(a, b.numpy(), rtol=EPS[dtype], atol=EPS[dtype] * 1e-2)


def test_half_precision_is_scaled_in_float32_and_rounded_once():
    for dtype in (torch.float16, torch.bfloat16):
        weight, counts = torch.randn(4, 50).to(dtype), [1000, 300, 70, 9]
        wide = weight.double() * (1000 / torch.tensor(counts).double())[:, None] ** 0.3
        assert torch.equal(lh.rescale(Head(weight), counts, gamma=0.3).weight, wide.to(dtype))


def test_the_argument_is_left_alone():
    weight, bias = np.ones((2, 2)), np.ones(2)
    for change in (
        lambda h: lh.rescale(h, [9, 1], gamma=1.0),
        lh.normalize,
        lambda h: lh.shift_logits(h, [9, 1]),
    ):
        change(Head(weight, bias))
    np.testing.assert_array_equal(weight, np.ones((2, 2)))
    np.testing.assert_array_equal(bias, np.ones(2))


def test_gradients_pass_through_an_adjustment():
    weight = torch.ones(2, 3, requires_grad=True)
    lh.rescale(Head(weight), [4, 1], gamma=0.5).weight.sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, torch.tensor([[1.0] * 3, [2.0] * 3]))


def test_shifting_by_one_is_dividing_probabilities_by_the_prior():
    rng = np.random.default_rng(0)
    head, counts, x = (
        Head(rng.standard_normal((3, 4))),
        np.array([80, 15, 5]),
        rng.standard_normal((6, 4)),
    )
    odds = np.exp(head.logits(x)) / (counts / counts.sum())
    shifted = np.exp(lh.shift_logits(head, counts).logits(x))
    np.testing.assert_allclose(
        shifted / shifted.sum(axis=1, keepdims=True), odds / odds.sum(axis=1, keepdims=True)
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", None, True + 1j])
def test_a_strength_that_is_not_a_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="gamma: expected a finite number, got"):
        lh.rescale(Head(np.eye(2)), [2, 1], gamma=value)
    with pytest.raises(ValueError, match="tau: expected a finite number, got"):
        lh.tau_normalize(Head(np.eye(2)), value)


@pytest.mark.parametrize("like", [np.asarray, torch.as_tensor])
def test_what_does_not_fit_the_dtype_is_reported_by_class(like):
    head = Head(like(np.full((3, 2), 1000, np.float16)))
    with pytest.raises(
        ValueError,
        match=r"the scaled head \(in .*float16\) has NaN or infinite weight .* in class 2",
    ):
        lh.rescale(head, [1000, 1000, 1], gamma=1.0)
    with pytest.raises(ValueError, match="has NaN or infinite weight values in class 1"):
        lh.rescale(Head(like(np.eye(2))), [10**9, 1], gamma=50.0)


@pytest.mark.parametrize("like", [np.asarray, torch.as_tensor])
def test_a_vector_without_direction_is_refused_by_name(like):
    with pytest.raises(
        ValueError, match=r"the weight vector of class 1 \(cat\) is zero and has no direction"
    ):
        lh.normalize(Head(like(np.array([[1.0, 0.0], [0.0, 0.0]])), names=["ant", "cat"]))
    with pytest.raises(
        ValueError, match="the weight vector of class 0 is too long to measure in float32"
    ):
        lh.normalize(Head(like(np.full((2, 2), 1e25, np.float32))))


def test_wrong_policies_counts_and_values_are_refused_by_name():
    head = Head(np.eye(2), np.zeros(2), ["ant", "cat"])
    with pytest.raises(ValueError, match="bias: expected 'scale' or 'keep', got 'drop'"):
        lh.rescale(head, [2, 1], gamma=1.0, bias="drop")
    with pytest.raises(ValueError, match="expected 2 counts, one per class, got 3"):
        lh.rescale(head, [3, 2, 1], gamma=1.0)
    with pytest.raises(ValueError, match=r"class 1 \(cat\) has no samples"):
        lh.shift_logits(head, [3, 0])
    with pytest.raises(
        ValueError, match=r"the head has NaN or infinite weight values in class 0 \(ant\)"
    ):
        lh.shift_logits(replace(head, weight=np.full((2, 2), np.nan)), [2, 1])
    same(lh.rescale(head, {"cat": 1, "ant": 4}, gamma=1.0), lh.rescale(head, [4, 1], gamma=1.0))
    same(lh.rescale(head, [4, 0], gamma=1.0, missing="neutral"), head)


@pytest.mark.parametrize(
    "adjust",
    [lambda head: lh.tau_normalize(head, 1e6), lambda head: lh.rescale(head, [9, 1], gamma=-1e6)],
)
def test_a_strength_that_removes_a_class_is_refused(adjust):
    with pytest.raises(
        lh.LevelheadError, match="would be 0, which removes the class; use a strength nearer to 0"
    ):
        adjust(Head(np.array([[3.0, 4.0], [0.0, 5.0]])))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scores_are_adjusted_in_their_precision_and_within_what_it_holds(dtype):
    logits = (7 * np.random.default_rng(0).normal(size=(5000, 10))).astype(dtype)
    scale, offset = np.linspace(0.5, 2, 10), np.arange(10.0)
    logits[7, 9] = np.finfo(dtype).min  # a masked score
    kind = np.promote_types(dtype, np.float32)
    with np.errstate(over="ignore"):
        expected = np.clip(logits * scale + offset, np.finfo(kind).min, np.finfo(kind).max).astype(
            kind
        )
    adjustment = Adjustment(scale, offset)
    for found in (
        adjustment.narrow_scores(logits),
        adjustment.narrow_scores(torch.from_numpy(logits)).numpy(),
    ):
        assert found.dtype == kind
        np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(kind).eps, atol=1e-12)
