"""What the callbacks of all trainers share of WVN: the optimizer that trains the head, and a hook on it.

`WVN` needs the head and the optimizer that steps it. A trainer makes the second, or several of them, after its
callbacks, and may load weights from a checkpoint before it starts. So `_attach` is called when training starts, finds
the head and what has its weight, mostly one optimizer, and puts a `WVN` on that; from then on no callback is involved,
and gradient accumulation, mixed precision and skipped steps are the optimizer's affair. `on_train_end` takes it off.
"""

from collections.abc import Iterable

import torch
from torch import nn

from ..heads.candidates import Example
from ..heads.torch_find import find_head
from ..support.errors import Advice, LevelheadError
from .torch import WVN, Order


class BaseWVNCallback:
    """WVN on the head of a model while it is trained.

    A trainer's own callback calls `_attach` when training starts, and `on_train_end` when it ends.

    Args:
        layer: path of the head, if it is not found or not unique.
        order: `algorithm` (after the step) or `released` (before it), as in `levelhead.WVN`.
        classes, example: K and an input of the model, which tell the head from other layers, as in `find_head`.

    Attributes:
        hooks: a `WVN` for each optimizer that trains the head; none before and after a training.
    """

    hooks: tuple[WVN, ...] = ()

    def __init__(
        self,
        layer: str | None = None,
        *,
        order: Order = "algorithm",
        classes: int | None = None,
        example: Example = None,
    ) -> None:
        self.layer = layer
        self.classes = classes
        self.example = example
        self.order: Order = order

    def _attach(self, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Attach WVN to the optimizer that trains the head. It normalizes at once.

        Args:
            model: to be trained, with its weights loaded.
            optimizers: all that the trainer has, wrapped or not.

        Raises:
            LevelheadError: no head is found, or several; or no optimizer has its weight (it is frozen).
        """
        self.on_train_end()  # of a training that was interrupted: two hooks would cost twice the time
        heads = find_head(model, layer=self.layer, classes=self.classes, example=self.example)
        if len(heads) > 1:
            advice = Advice("layer", None, "to name one")
            raise LevelheadError(
                f"the model has {len(heads)} heads: {', '.join(heads)}", advice=advice
            )
        path, head = next(iter(heads.items()))
        # Of several optimizers, such as those of a GAN, one has the weight of the head, or they take turns.
        for optimizer in optimizers:
            if any(p is head.weight for group in optimizer.param_groups for p in group["params"]):
                self.hooks += (WVN(optimizer, head, order=self.order),)
        if not self.hooks:
            raise LevelheadError(
                f"no optimizer trains {path or 'the head'}, so WVN has no step to follow"
            )

    def on_train_end(self, *_: object, **__: object) -> None:  # as the trainers call it
        """Take the hooks off the optimizers; the weights stay as they are."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = ()
