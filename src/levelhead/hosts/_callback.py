"""What the callbacks of all trainers share: WVN at the optimizer of the head, and leveling when training has ended."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.counts import Counts
from ..core.errors import Advice, LevelheadError
from ..gamma.tuned import Tuned
from ..heads.torch import Adjusted, adjust_, check_adjust, check_rescale, find_head, rescale_, unwrap
from .torch import WVN, Order


class BaseWVNCallback:
    """WVN on the head of a model while it is trained. `hook` is None before and after."""

    def __init__(
        self, layer: str | None = None, *, order: Order = "algorithm", classes: int | None = None, example: Any = None
    ) -> None:
        self.layer, self.classes, self.example, self.hook = layer, classes, example, None
        self.order: Order = order

    def _attach(self, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Attach WVN to the optimizer that trains the head. It normalizes at once."""
        self._remove()
        found = find_head(model, layer=self.layer, classes=self.classes, example=self.example)
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


class BaseLevelCallback:
    """A choice applied at the end of a training, undone before the next one starts. `adjusted` is None in between."""

    def __init__(self, tuned: Tuned | str | Path, *, layer: str | None = None) -> None:
        self.tuned, self.layer = tuned, layer
        self.adjusted: Adjusted | None = None
        self._written: list[tuple[nn.Parameter, int]] = []

    def _check(self, model: nn.Module) -> None:
        """Refuse early what `_apply` would refuse after training, unless a lazy layer has yet to make its weight."""
        if not any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
            self._check_head(model)

    def _check_head(self, model: nn.Module) -> None:
        check_adjust(model, self.tuned, layer=self.layer)

    def _adjust_head(self, model: nn.Module) -> Adjusted:
        return adjust_(model, self.tuned, layer=self.layer)

    def _apply(self, model: nn.Module) -> None:
        self.adjusted = self._adjust_head(model)
        heads = [unwrap(model).get_submodule(path) for path in self.adjusted.layers]
        self._written = [(p, p._version) for head in heads for p in head.parameters(recurse=False)]

    def _restore(self) -> None:
        """Restore the head, unless it was written to since: weights from a checkpoint stay."""
        if self.adjusted is not None and all(p._version == version for p, version in self._written):
            self.adjusted.restore()
        self.adjusted, self._written = None, []


class BaseRescaleCallback(BaseLevelCallback):
    """RS at a strength of one's own at the end of a training."""

    def __init__(self, counts: Counts, gamma: float | Tuned, *, layer: str | None = None) -> None:
        self.counts, self.gamma, self.layer = counts, gamma, layer
        self.adjusted, self._written = None, []

    def _check_head(self, model: nn.Module) -> None:
        check_rescale(model, self.counts, gamma=self.gamma, layer=self.layer)

    def _adjust_head(self, model: nn.Module) -> Adjusted:
        return rescale_(model, self.counts, gamma=self.gamma, layer=self.layer)
