"""Weights of packed networks averaged over the last epochs, where the recipe asks for it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..lab.average import add_to_means_
from ..lab.recipe import Recipe
from .net_rows import NetRows


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
