"""A head as a value: its shapes are checked once, its logits are the matrix product."""

import numpy as np
import pytest
import torch

from levelhead import Head
from levelhead.core.head import check_finite

rng = np.random.default_rng(0)


def test_logits_are_what_a_torch_linear_layer_gives():
    layer = torch.nn.Linear(5, 3)
    x = torch.randn(7, 5)
    torch.testing.assert_close(Head(layer.weight, layer.bias).logits(x), layer(x))
    host = Head(layer.weight, layer.bias).numpy()
    np.testing.assert_allclose(
        host.logits(x.numpy()), layer(x).detach().numpy(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_norms_agree_with_a_wide_computation_and_never_come_in_half(dtype):
    weight = rng.standard_normal((4, 300)).astype(dtype)
    norms = Head(weight).norms
    assert norms.dtype == np.promote_types(dtype, np.float32)
    np.testing.assert_allclose(
        norms, np.sqrt((weight.astype(np.float64) ** 2).sum(axis=1)), rtol=1e-6
    )


def test_half_precision_logits_are_summed_in_float32():
    weight, x = np.ones((2, 4096), np.float16), np.ones((1, 4096), np.float16)
    np.testing.assert_array_equal(
        Head(weight).logits(x), [[4096, 4096]]
    )  # in half, adding 1 stops at 2048


def test_bfloat16_goes_to_the_host_as_float32_with_the_same_values():
    weight = torch.randn(3, 4).bfloat16()
    host = Head(weight, weight[:, 0]).numpy()
    assert (host.weight.dtype, host.bias.dtype) == (np.float32, np.float32)
    np.testing.assert_array_equal(host.weight, weight.float().numpy())


def test_a_head_cannot_be_changed():
    with pytest.raises(AttributeError):
        Head(np.eye(2)).weight = np.ones((2, 2))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((np.ones(3),), r"expected weight \[K, d\], .* got numpy float64 \[3\]"),
        (([[1.0]],), r"expected weight \[K, d\], .* got list"),
        (
            (np.ones((2, 3), int),),
            "expected a floating-point weight, got int64; dequantize it first",
        ),
        ((torch.ones(2, 3, dtype=torch.int8),), "expected a floating-point weight, got torch.int8"),
        (
            (np.eye(2), np.ones(3)),
            r"expected bias \[2\], one per row of weight, got numpy float64 \[3\]",
        ),
        ((np.eye(2), 0.0), r"expected bias \[2\], one per row of weight, got float"),
        ((np.eye(2), None, ["a"]), "expected 2 class names, got 1"),
    ],
)
def test_a_wrong_part_is_named(parts, message):
    with pytest.raises(ValueError, match=message):
        Head(*parts)


@pytest.mark.parametrize("like", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_reported_with_its_class(like, bad):
    weight, bias = np.ones((3, 2)), np.ones(3)
    weight[1, 0] = bad
    with pytest.raises(
        ValueError, match=r"the head has NaN or infinite weight values in class 1 \(cat\)"
    ):
        check_finite(Head(like(weight), like(bias), ["ant", "cat", "elk"]))
    bias[2] = bad
    with pytest.raises(ValueError, match=r"a file has NaN or infinite bias values in class 2$"):
        check_finite(Head(like(np.ones((3, 2))), like(bias)), "a file")
