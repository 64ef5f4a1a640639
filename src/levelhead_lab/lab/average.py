"""Weights averaged over the last epochs of a training: what is kept where the recipe asks for it.

Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization, 2018, with the batch statistics
averaged too instead of measured again.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from levelhead.core.head import Head
from levelhead.methods.method import Method

from .nets import Net


@torch.no_grad()
def add_to_means_(means: Iterable[Tensor], values: Iterable[Tensor], count: int) -> None:
    """Take another value into each mean, of which it is number `count`; the first replaces what is there.

    >>> mean = torch.zeros(1)
    >>> for count, value in enumerate((1.0, 2.0, 6.0), 1):
    ...     add_to_means_([mean], [torch.tensor([value])], count)
    >>> mean.item()
    3.0
    """
    for mean, value in zip(means, values, strict=True):
        mean.lerp_(value, 1 / count)


def numbers_of(net: Net) -> dict[str, Tensor]:
    """Return the parameters and statistics of a network by name, without its counters."""
    return {name: x for name, x in net.state_dict().items() if x.is_floating_point()}


@torch.no_grad()
def take_mean_(net: Net, mean: dict[str, Tensor], method: Method) -> None:
    """Copy the mean to the network; unit weight vectors, whose mean is shorter, are made unit vectors again."""
    net.load_state_dict({**net.state_dict(), **mean})
    if method.project is not None and method.order == "after":
        weight = net.get_parameter("head.weight")
        weight.copy_(method.project(Head(weight.detach())).weight)  # type: ignore[arg-type]
