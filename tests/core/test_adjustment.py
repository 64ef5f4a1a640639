"""Adjustments of a head as properties: identity, composition, permutation, invariance, numpy and torch alike."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import levelhead as lh
from levelhead import Adjustment, Head
from levelhead.core.head import normalize
from levelhead.core.rules import Rescale, Shift, Tau

DTYPES = {np.float16: torch.float16, np.float32: torch.float32, np.float64: torch.float64}
EPS = {np.float16: 2e-3, np.float32: 1e-5, np.float64: 1e-12}

strengths = st.floats(-1, 1.5)


def adjust(head: Head, rule, counts) -> Head:
    """Adjust a head by a rule at a strength of its own."""
    return rule.on_head(head, np.asarray(counts)).head(head)


@st.composite
def cases(draw, dtypes=(np.float32, np.float64)):
    """Return a head with entries of ordinary size, with or without a bias, and its counts."""
    dtype = draw(st.sampled_from(dtypes))
    classes, width = draw(st.integers(2, 6)), draw(st.integers(1, 5))
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
    bias = None if head.bias is None else torch.from_numpy(head.bias)
    return replace(head, weight=torch.from_numpy(head.weight), bias=bias)


@given(cases(tuple(DTYPES)))
@settings(max_examples=40)
def test_a_strength_of_0_changes_no_bit(case):
    head, counts = case
    for rule in (Rescale(0), Shift(0.0)):
        same(adjust(head, rule, counts), head)


@given(cases(tuple(DTYPES)), strengths, st.integers(1, 1000))
@settings(max_examples=40)
def test_a_balanced_set_changes_no_bit(case, strength, n):
    head, _ = case
    for rule in (Rescale(strength), Shift(strength)):
        same(adjust(head, rule, [n] * head.classes), head)


@given(cases(), strengths, strengths)
@settings(max_examples=40)
def test_two_strengths_compose_to_their_sum(case, first, second):
    head, counts = case
    for rule in (Rescale, Shift):
        twice = adjust(adjust(head, rule(first), counts), rule(second), counts)
        once = adjust(head, rule(first + second), counts)
        if (twice.bias is None) == (once.bias is None):  # sums that are 0 need no bias
            same(twice, once, 30 * EPS[head.weight.dtype.type])


@given(cases(), strengths, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_permuting_the_classes_permutes_the_result(case, strength, random):
    head, counts = case
    order = list(range(head.classes))
    random.shuffle(order)

    def permuted(h: Head) -> Head:
        return Head(h.weight[order], None if h.bias is None else h.bias[order])

    for rule in (Rescale(strength), Shift(strength)):
        same(adjust(permuted(head), rule, counts[order]), permuted(adjust(head, rule, counts)))


@given(cases(), strengths)
@settings(max_examples=40)
def test_adjusting_the_head_is_adjusting_the_logits(case, strength):
    head, counts = case
    features = np.random.default_rng(0).standard_normal((4, head.weight.shape[1]))
    ratio = counts.max() / counts
    logits = head.logits(features)
    for rule, wanted in (
        (Rescale(strength), logits * ratio**strength),
        (Shift(strength), logits + strength * np.log(ratio)),
    ):
        adjusted = adjust(head, rule, counts).logits(features)
        np.testing.assert_allclose(adjusted, wanted, rtol=1e-4, atol=1e-3)


@given(cases(), strengths)
@settings(max_examples=30)
def test_a_kept_bias_is_kept_bit_for_bit(case, strength):
    head, counts = case
    scaled = Rescale(strength).on_head(head, counts)
    kept = replace(scaled, bias="keep").head(head)
    assert kept.bias is head.bias
    np.testing.assert_array_equal(kept.weight, scaled.head(head).weight)


@given(cases(tuple(DTYPES)))
@settings(max_examples=40)
def test_normalizing_gives_unit_length_and_is_tau_of_1(case):
    head, counts = case
    assume((np.linalg.norm(head.weight.astype(np.float64), axis=1) > 1e-2).all())
    once, epsilon = normalize(head), EPS[head.weight.dtype.type]
    lengths = np.linalg.norm(once.weight.astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=epsilon)
    same(normalize(once), once, epsilon)
    tau = replace(Tau(1.0).on_head(head, counts), bias="keep").head(head)
    same(tau, once, epsilon)


@given(cases(), st.floats(0, 2))
@settings(max_examples=30)
def test_tau_normalization_gives_the_lengths_of_its_formula(case, strength):
    head, counts = case
    norms = np.linalg.norm(head.weight.astype(np.float64), axis=1)
    assume((norms > 1e-2).all())
    adjusted_norms = adjust(head, Tau(strength), counts).norms
    np.testing.assert_allclose(adjusted_norms, norms ** (1 - strength), rtol=1e-4)


@given(cases(tuple(DTYPES)), strengths)
@settings(max_examples=60)
def test_torch_and_numpy_agree_and_each_keeps_its_own_kind(case, strength):
    head, counts = case
    assume((np.linalg.norm(head.weight.astype(np.float64), axis=1) > 1e-2).all())
    dtype = head.weight.dtype.type
    for rule in (Rescale(strength / 2), Shift(strength), Tau(strength)):
        here, there = adjust(head, rule, counts), adjust(as_torch(head), rule, counts)
        assert isinstance(here.weight, np.ndarray)
        assert isinstance(there.weight, torch.Tensor)
        assert (here.weight.dtype, there.weight.dtype) == (dtype, DTYPES[dtype])
        for a, b in ((here.weight, there.weight), (here.bias, there.bias)):
            if a is not None:
                np.testing.assert_allclose(a, b.numpy(), rtol=EPS[dtype], atol=EPS[dtype] * 1e-2)


@given(cases(), st.integers(0, 1000))
@settings(max_examples=30)
def test_the_inverse_takes_a_head_back(case, seed):
    head, _ = case
    rng = np.random.default_rng(seed)
    adjustment = Adjustment(rng.uniform(0.5, 2, head.classes), rng.normal(size=head.classes))
    back = adjustment.inverse().head(adjustment.head(head))
    np.testing.assert_allclose(back.weight, head.weight, rtol=1e-5, atol=1e-5)
    bias = np.zeros(head.classes) if head.bias is None else head.bias
    np.testing.assert_allclose(back.bias, bias, atol=1e-4)


def test_half_precision_is_scaled_in_float32_and_rounded_once():
    for dtype in (torch.float16, torch.bfloat16):
        weight, counts = torch.randn(4, 50).to(dtype), [1000, 300, 70, 9]
        wide = weight.double() * (1000 / torch.tensor(counts).double())[:, None] ** 0.3
        assert torch.equal(adjust(Head(weight), Rescale(0.3), counts).weight, wide.to(dtype))


def test_the_argument_is_left_alone():
    weight, bias = np.ones((2, 2)), np.ones(2)
    for rule in (Rescale(1.0), Shift(1.0), Tau(1.0)):
        adjust(Head(weight, bias), rule, [9, 1])
    np.testing.assert_array_equal(weight, np.ones((2, 2)))
    np.testing.assert_array_equal(bias, np.ones(2))


def test_gradients_pass_through_an_adjustment():
    weight = torch.ones(2, 3, requires_grad=True)
    adjust(Head(weight), Rescale(0.5), [4, 1]).weight.sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, torch.tensor([[1.0] * 3, [2.0] * 3]))


def test_shifting_by_one_is_dividing_probabilities_by_the_prior():
    rng = np.random.default_rng(0)
    head, counts = Head(rng.standard_normal((3, 4))), np.array([80, 15, 5])
    features = rng.standard_normal((6, 4))
    odds = np.exp(head.logits(features)) / (counts / counts.sum())
    shifted = np.exp(adjust(head, Shift(1.0), counts).logits(features))
    np.testing.assert_allclose(
        shifted / shifted.sum(axis=1, keepdims=True), odds / odds.sum(axis=1, keepdims=True)
    )


def test_a_head_with_one_logit_is_moved_by_the_difference():
    head = Adjustment.adding([0.5, 2.0]).head(Head(np.ones((1, 2))))
    assert head.bias.tolist() == [1.5]
    with pytest.raises(lh.LevelheadError, match="single logit cannot be scaled"):
        Adjustment.scaling([1.0, 2.0]).head(Head(np.ones((1, 2))))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", True + 1j])
def test_a_strength_that_is_not_a_finite_number_is_refused(value):
    for rule in (Rescale, Shift, Tau):
        with pytest.raises(lh.LevelheadError, match="strength: expected a finite number, got"):
            rule(value)


@pytest.mark.parametrize("rule", [Rescale(), Shift()])
def test_a_rule_without_a_strength_cannot_act_on_a_head(rule):
    with pytest.raises(lh.LevelheadError, match=r"rule: expected a strength, such as lh\.rules\."):
        adjust(Head(np.eye(2)), rule, [2, 1])
    with pytest.raises(lh.LevelheadError, match=r"counts: the rule .* needs counts"):
        type(rule)(0.5).on_head(Head(np.eye(2)), None)


@pytest.mark.parametrize("name", ["offsets", "scales", "vector"])
def test_a_rule_with_a_number_for_each_class_cannot_act_on_a_head_by_itself(name):
    with pytest.raises(lh.LevelheadError, match=r"fitted on held-out samples; give what lh\.tune"):
        lh.rules.find_rule(name).on_head(Head(np.eye(2)), np.array([2, 1]))


@pytest.mark.parametrize("like", [np.asarray, torch.as_tensor])
def test_what_does_not_fit_the_dtype_is_reported_by_class(like):
    head = Head(like(np.full((3, 2), 1000, np.float16)))
    message = r"the scaled head \(in .*float16\) has NaN or infinite weight .* in class 2"
    with pytest.raises(lh.LevelheadError, match=message):
        adjust(head, Rescale(1.0), [1000, 1000, 1])
    with pytest.raises(lh.LevelheadError, match="has NaN or infinite weight values in class 1"):
        adjust(Head(like(np.eye(2))), Rescale(50.0), [10**9, 1])


@pytest.mark.parametrize("like", [np.asarray, torch.as_tensor])
def test_a_vector_without_direction_is_refused_by_name(like):
    head = Head(like(np.array([[1.0, 0.0], [0.0, 0.0]])), names=["ant", "cat"])
    for change in (normalize, lambda h: adjust(h, Tau(1.0), [2, 1])):
        with pytest.raises(
            lh.LevelheadError, match=r"class 1 \(cat\) is zero and has no direction"
        ):
            change(head)
    long = Head(like(np.full((2, 2), 1e25, np.float32)))
    with pytest.raises(lh.LevelheadError, match="class 0 is too long to measure in float32"):
        normalize(long)


@pytest.mark.parametrize("rule", [Tau(1e6), Rescale(-1e6)])
def test_a_strength_that_removes_a_class_is_refused(rule):
    with pytest.raises(lh.LevelheadError, match="would be 0, which removes the class; use a"):
        adjust(Head(np.array([[3.0, 4.0], [0.0, 5.0]])), rule, [9, 1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scores_are_adjusted_in_their_precision_and_within_what_it_holds(dtype):
    logits = (7 * np.random.default_rng(0).normal(size=(5000, 10))).astype(dtype)
    scale, offset = np.linspace(0.5, 2, 10), np.arange(10.0)
    logits[7, 9] = np.finfo(dtype).min  # a masked score
    kind = np.promote_types(dtype, np.float32)
    with np.errstate(over="ignore"):
        wide = logits * scale + offset
        expected = np.clip(wide, np.finfo(kind).min, np.finfo(kind).max).astype(kind)
    adjustment = Adjustment(scale, offset)
    of_array = adjustment.narrow_scores(logits)
    of_tensor = adjustment.narrow_scores(torch.from_numpy(logits)).numpy()
    for scores in (of_array, of_tensor):
        assert scores.dtype == kind
        np.testing.assert_allclose(scores, expected, rtol=4 * np.finfo(kind).eps, atol=1e-12)


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_what_is_predicted_is_the_first_of_the_largest_scores(seed):
    rng = np.random.default_rng(seed)
    logits = rng.integers(-3, 4, size=(200, 5)).astype(float)  # many ties
    adjustment = Adjustment(rng.choice([0.5, 1.0, 2.0], 5), rng.integers(-1, 2, 5).astype(float))
    wanted = (logits * adjustment.scale + adjustment.offset).argmax(axis=1)
    np.testing.assert_array_equal(adjustment.predict(logits), wanted)
    np.testing.assert_array_equal(adjustment.predict(torch.tensor(logits)), wanted)
