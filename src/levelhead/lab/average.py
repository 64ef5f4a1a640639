"""Weights averaged over the last epochs of a training: what is kept where the recipe asks for it.

Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization, 2018, with the batch statistics
averaged too instead of measured again.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ..core.head import Head
from ..methods.method import Method
from .net_rows import NetRows
from .nets import Net
from .recipe import Recipe


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


class RowMeans:
    """The means of packed networks: matrices like their rows and statistics; none where the recipe averages nothing."""

    def __init__(self, nets: NetRows, recipe: Recipe):
        self.nets, self.recipe = nets, recipe
        self.matrices = tuple(torch.zeros_like(x) for x in (nets.rows, nets.statistics)) if recipe.average else ()

    def load(self, run: int, mean: dict[str, Tensor]) -> None:
        """Copy the mean that a run had to its row."""
        if self.matrices and mean:
            self.nets.load_means(run, self.matrices, mean)

    @torch.no_grad()
    def add(self, epoch: int) -> bool:
        """Take in the weights after an epoch, as far as the recipe asks; return whether their mean replaced them."""
        count, current = self.recipe.epochs_averaged(epoch), (self.nets.rows, self.nets.statistics)
        if not count:
            return False
        add_to_means_(self.matrices, current, count)
        if epoch + 1 < self.recipe.epochs:
            return False
        for x, mean in zip(current, self.matrices, strict=True):
            x.copy_(mean)
        return True

    def of_run(self, run: int, epoch: int, momentum: Tensor, copies: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the mean of one run by name, from copies of the matrices after an epoch; empty before there is one."""
        if not self.recipe.epochs_averaged(epoch):
            return {}
        learned, _, measured = self.nets.run_tensors(run, copies[0], momentum, copies[1])
        return learned | measured
