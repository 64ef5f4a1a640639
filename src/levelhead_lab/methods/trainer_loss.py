"""A method's loss in the Hugging Face Trainer, as its `compute_loss_func`."""

from dataclasses import dataclass
from typing import Any

from levelhead.core.counts import Counts
from levelhead.support.errors import LevelheadError
from levelhead.support.extras import naming_what_is_missing

from .method import Loss, Method
from .table import changes, method_named

with naming_what_is_missing():
    import torch


@dataclass(frozen=True, eq=False)
class TrainerLoss:
    """A loss as the Trainer calls it: a batch's sum over the items in all batches of a step."""

    loss: Loss

    def __call__(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        if isinstance(outputs, dict):
            logits = outputs["logits"]
        else:
            logits = outputs[0]
        counted = labels != -100  # the label of positions in a batch that the loss leaves out
        values = self.loss(logits, labels.where(counted, 0)) * counted
        items = num_items_in_batch
        if num_items_in_batch is None:
            items = counted.sum()
        return values.sum() / items


def compute_loss_func(method: str | Method, counts: Counts) -> TrainerLoss:
    """Return a method's loss for `Trainer(compute_loss_func=...)`, right under accumulation too.

    Args:
        method: one that only changes the loss, by name ("class-balanced") or as a record.
        counts: training samples of each class: a list, or {index: n}; `levelhead.counts.of(labels)`
            counts labels.

    >>> loss = compute_loss_func("balanced-softmax", [500, 50, 5])
    >>> logits, labels = torch.zeros(4, 3), torch.tensor([0, 1, 2, -100])
    >>> loss({"logits": logits}, labels, num_items_in_batch=3).shape
    torch.Size([])
    """
    if isinstance(method, str):
        method = method_named(method)
    others = [slot for slot in changes(method) if slot != "loss"]
    if others:
        use = (
            "use WVNCallback for project, AdjustCallback for adjust, `levelhead train` for the rest"
        )
        reason = f"does more than change the loss: {', '.join(others)}; {use}"
    elif method.head != "linear":
        reason = f"needs a {method.head} head, which pretrained models do not have"
    elif method.stages:
        reason = "changes its loss in the middle of training, and the Trainer does not say when"
    else:
        return TrainerLoss(method.loss(counts))
    raise LevelheadError(f"{method.name} {reason}", parameter="method")
