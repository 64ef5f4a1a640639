"""The precisions of the fast engine: in what it stores activations, and how it multiplies them.

Weights, momentum, batch-norm statistics, sums, pooled features, heads and losses are float32 or
better in all of them. Activations, their gradients, images and the copy of the filters that a
convolution reads are in `storage`. That is rounded to 8 bits of mantissa in bfloat16, 11 in float16
and 24 in float32. A product of float32 numbers is made of three tf32 products, or of one, for which
its factors are rounded to 11 bits.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from levelhead.support.errors import check_choice


@dataclass(frozen=True)
class Precision:
    """What is rounded, and how.

    `largest_gradient` is for a storage with few exponents: gradients of features are multiplied,
    run by run and step by step, by the power of two that brings the largest of them near this
    number, and those of weights divided by it. It is loss scaling without a state: nothing to tune
    or to resume, and no step is left out.
    """

    name: str  # what the command line calls it
    storage: torch.dtype  # of activations
    products: Literal["tf32x3", "tf32"] = "tf32x3"  # of float32 numbers
    largest_gradient: float | None = None  # None: gradients are not scaled

    @property
    def weights(self) -> torch.dtype:
        """The dtype of weights and statistics."""
        return torch.promote_types(self.storage, torch.float32)

    @property
    def plain(self) -> bool:
        """Whether the plain loop computes so: it rounds nothing but the results of operations."""
        return self.storage == self.weights and self.products == "tf32x3"

    def gradient_scale(self, gradient: Tensor) -> Tensor:
        """Return the power of two for the gradient [R, B, d] of each run's features: [R, 1].

        A power of two, so that to multiply and to divide by it rounds nothing.

        >>> gradient = torch.tensor([[[0.001, -0.003]]])
        >>> PRECISIONS["float16"].gradient_scale(gradient)  # 65536 * 0.003 is 197, at most 256
        tensor([[65536.]])
        """
        assert self.largest_gradient is not None
        # A gradient of zeros has a scale, too: any finite one does.
        largest = gradient.abs().amax(dim=(1, 2))[:, None].clamp_min(1e-30)
        return (self.largest_gradient / largest).log2().floor().exp2()


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float32", torch.float32),
        Precision("float64", torch.float64),
        Precision("tf32", torch.float32, products="tf32"),
        Precision("float16", torch.float16, largest_gradient=256.0),
        Precision("bfloat16", torch.bfloat16),
    )
}


def find_precision(wanted: "str | torch.dtype | Precision") -> Precision:
    """Return the precision of that name, or the one that stores that dtype and rounds nothing else.

    Raises:
        LevelheadError: if there is none; the message lists them.

    >>> find_precision(torch.bfloat16).weights
    torch.float32
    """
    if isinstance(wanted, Precision):
        return wanted
    name = str(wanted).removeprefix("torch.")
    check_choice("dtype", name, PRECISIONS)
    return PRECISIONS[name]
