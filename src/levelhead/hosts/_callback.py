"""What the callbacks of every trainer share: attach WVN to the head's optimizer, rescale when training is over."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from ..core.counts import Counts
from ..core.errors import LevelheadError
from ..heads.torch import Adjusted, check_rescale, find_head, rescale_, unwrap
from .torch import WVN, Order


def attach(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer], *, layer: str | None, order: Order) -> WVN:
    """WVN on the model's head, at the optimizer that trains it. Normalizes at once."""
    found = find_head(model, layer=layer)
    if len(found) > 1:
        raise LevelheadError(f"the model has {len(found)} heads: {', '.join(found)}; name one with layer=...")
    path, head = next(iter(found.items()))
    for optimizer in optimizers:
        if any(p is head.weight for group in optimizer.param_groups for p in group["params"]):
            return WVN(optimizer, head, order=order)
    raise LevelheadError(f"no optimizer trains {path or 'the head'}; WVN keeps at unit length what an optimizer moves")


class RescaleOnce:
    """RS at the end of a training, taken back before the next one starts.

    Args:
        counts: training samples of each class: a list, {class: n}, or labels to be counted.
        gamma: strength, chosen on held-out data.
        layer: path of the head, if it is not found or not unique.
    """

    def __init__(self, counts: Counts, gamma: float, *, layer: str | None = None) -> None:
        self.counts, self.gamma, self.layer = counts, gamma, layer
        self.adjusted: Adjusted | None = None
        self._written: list[tuple[nn.Parameter, int]] = []

    def check(self, model: nn.Module) -> None:
        """What `apply` would refuse, refused before anything is trained. A model whose parameters the first batch has
        yet to make says too little: `apply` alone judges that."""
        if not any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
            check_rescale(model, self.counts, gamma=self.gamma, layer=self.layer)

    def apply(self, model: nn.Module) -> None:
        """Rescale the head; `adjusted` says what was done and can `restore()` it."""
        self.adjusted = rescale_(model, self.counts, gamma=self.gamma, layer=self.layer)
        heads = [unwrap(model).get_submodule(path) for path in self.adjusted.layers]
        self._written = [(p, p._version) for head in heads for p in head.parameters(recurse=False)]

    def take_back(self) -> None:
        """Restore the head, unless somebody wrote to it since: what a checkpoint has brought stays."""
        if self.adjusted is not None and all(p._version == version for p, version in self._written):
            self.adjusted.restore()
        self.adjusted, self._written = None, []
