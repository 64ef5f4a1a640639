"""What the callbacks of all trainers share: WVN at the optimizer of the head, and RS when training has ended."""

from collections.abc import Iterable

import torch
from torch import nn

from ..core.counts import Counts
from ..core.errors import Advice, LevelheadError
from ..heads.torch import Adjusted, check_rescale, find_head, rescale_, unwrap
from .torch import WVN, Order


class BaseWVNCallback:
    """WVN on the head of a model while it is trained. `hook` is None before and after."""

    def __init__(self, layer: str | None = None, *, order: Order = "algorithm") -> None:
        self.layer, self.hook = layer, None
        self.order: Order = order

    def _attach(self, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Attach WVN to the optimizer that trains the head. It normalizes at once."""
        self._remove()
        found = find_head(model, layer=self.layer)
        if len(found) > 1:
            raise LevelheadError(
                f"the model has {len(found)} heads: {', '.join(found)}", advice=Advice("layer", None, "to name one")
            )
        path, head = next(iter(found.items()))
        for optimizer in optimizers:
            if any(p is head.weight for group in optimizer.param_groups for p in group["params"]):
                self.hook = WVN(optimizer, head, order=self.order)
                return
        raise LevelheadError(f"no optimizer trains {path or 'the head'}, so WVN has no step to follow")

    def _remove(self) -> None:
        if self.hook is not None:
            self.hook.remove()
        self.hook = None


class BaseRescaleCallback:
    """RS at the end of a training, undone before the next one starts. `adjusted` is None in between."""

    def __init__(self, counts: Counts, gamma: float, *, layer: str | None = None) -> None:
        self.counts, self.gamma, self.layer = counts, gamma, layer
        self.adjusted: Adjusted | None = None
        self._written: list[tuple[nn.Parameter, int]] = []

    def _check(self, model: nn.Module) -> None:
        """Refuse early what `_rescale` would refuse after training, unless a lazy layer has yet to make its weight."""
        if not any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
            check_rescale(model, self.counts, gamma=self.gamma, layer=self.layer)

    def _rescale(self, model: nn.Module) -> None:
        self.adjusted = rescale_(model, self.counts, gamma=self.gamma, layer=self.layer)
        heads = [unwrap(model).get_submodule(path) for path in self.adjusted.layers]
        self._written = [(p, p._version) for head in heads for p in head.parameters(recurse=False)]

    def _restore(self) -> None:
        """Restore the head, unless it was written to since: weights from a checkpoint stay."""
        if self.adjusted is not None and all(p._version == version for p, version in self._written):
            self.adjusted.restore()
        self.adjusted, self._written = None, []
