"""What rounding to half precision can flip, against heads that were really rounded; and what scaling cannot flip."""

import numpy as np
import pytest
import torch

from levelhead import Head
from levelhead.core.head_checks import can_flip, rounded, rounding_flips
from levelhead.core.rules import Rescale


@pytest.mark.parametrize(("dtype", "gamma"), [(torch.bfloat16, 0.5), (torch.float16, 0.31)])
def test_every_prediction_that_rounding_flips_was_counted(dtype, gamma):
    """Against the real thing: the same head scaled and rounded, and scaled in float64."""
    flipped, counted = 0, 0
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        head = Head(
            torch.randn(6, 12, generator=generator).to(dtype),
            torch.randn(6, generator=generator).to(dtype),
        )
        features, counts = (
            torch.randn(200, 12, generator=generator).double(),
            [900, 500, 70, 30, 11, 3],
        )
        exact = Head(head.weight.double(), head.bias.double())
        scaling = Rescale(gamma).on_head(exact, np.array(counts))
        rounded = scaling.head(head)
        wide = Head(rounded.weight.double(), rounded.bias.double()).logits(features)
        flipped += int((wide.argmax(1) != scaling.head(exact).logits(features).argmax(1)).sum())
        counted += rounding_flips(
            exact.logits(features), scaling.scale, dtype, head=head, features=features
        )
    assert 0 < flipped <= counted < 40 * 200 / 4


def test_rounding_flips_nothing_where_nothing_is_rounded():
    logits = np.array([[1.0, 1.0, 0.0], [2.0, 1.0, 0.5]])
    assert rounding_flips(logits, np.array([1.0, 1.0, 1.0]), "float16") == 0
    assert rounding_flips(logits, np.array([1.0, 2.0, 4.0]), np.float16) == 0  # powers of two
    assert rounding_flips(logits, np.array([1.0, 1.999, 1.0]), "bfloat16") == 1
    with pytest.raises(ValueError, match="dtype: expected 'float16', 'bfloat16'"):
        rounding_flips(logits, np.ones(3), "int8")
    with pytest.raises(ValueError, match=r"expected logits \[N, 2\]"):
        rounding_flips(logits, np.ones(2), "float16")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_are_rounded_as_torch_rounds_them(dtype):
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 30
    expected = values.to(dtype).double().numpy()
    np.testing.assert_array_equal(rounded(values.double().numpy(), dtype), expected)


@pytest.mark.parametrize(
    ("rows", "bias", "able"),
    [
        ([[1.0, 2.0], [-2.0, -4.0]], None, False),
        ([[1.0, 2.0], [-2.0, -4.0]], [1.0, -2.0], False),
        ([[1.0, 2.0], [-2.0, -4.0]], [1.0, 1.0], True),
        ([[1.0, 2.0], [-1.0, 2.0]], None, True),
        ([[1.0, 2.0]], None, False),
        ([[1.0], [-1.0], [0.5]], None, True),
    ],
)
def test_only_one_class_or_two_opposite_rows_cannot_be_flipped(rows, bias, able):
    assert can_flip(Head(np.array(rows), None if bias is None else np.array(bias))) is able
