"""Hugging Face trainers wearing WVN, RS and our losses: two thin callbacks and a `compute_loss_func`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..core.counts import Counts
from ..core.errors import LevelheadError
from ..heads.torch import Adjusted
from ..methods import Method, method_named
from ..methods.card import changes
from ._callback import RescaleOnce, attach
from .torch import WVN, Order

if TYPE_CHECKING:
    from ..methods.method import Loss

IGNORED = -100  # the label of what a batch holds but no loss counts


class WVNCallback(TrainerCallback):
    """Keep the head's weight vectors at unit length through `train`: Algorithm 1 at every optimizer step.

    ``w_i <- w_i / ||w_i||``, once when training starts (after a checkpoint was loaded) and then once per real step,
    accumulated batches and mixed precision included.

    Args:
        layer: path of the head, such as "classifier.out_proj", if it is not found or not unique.
        order: `algorithm` (after the step) or `released` (before it, as the authors' code does).

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020, Algorithm 1.
    """

    order: Order
    hook: WVN | None

    def __init__(self, layer: str | None = None, *, order: Order = "algorithm") -> None:
        self.layer, self.order, self.hook = layer, order, None

    def on_train_begin(  # type: ignore[override]
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
        model: Any, optimizer: Any, **_: Any,
    ) -> None:
        self._remove()
        self.hook = attach(model, [optimizer], layer=self.layer, order=self.order)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._remove()

    def _remove(self) -> None:
        if self.hook is not None:
            self.hook.remove()
        self.hook = None


class RescaleCallback(TrainerCallback):
    """Rescale the head once, when `train` has ended: ``w_i <- (n_1 / n_i)^gamma w_i``.

    It comes after every checkpoint of the training, and after `load_best_model_at_end` brought the best one back:
    checkpoints hold the head as it was trained, so that training can go on from them; the model in memory, and what
    `trainer.save_model` writes, has the leveled head. A next `train` starts from the head before RS. Counts or a layer
    that do not fit are an error before the first step.

    Args:
        counts: training samples of each class: a list, {class: n} (by name where the config has names), or labels.
        gamma: strength, chosen on held-out data (`levelhead.tune`), never on test data.
        layer: path of the head, if it is not found or not unique.

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """

    def __init__(self, counts: Counts, gamma: float, *, layer: str | None = None) -> None:
        self._once = RescaleOnce(counts, gamma, layer=layer)

    @property
    def adjusted(self) -> Adjusted | None:
        """What was done to the head, with `restore()`; None before the end of a training."""
        return self._once.adjusted

    def on_train_begin(  # type: ignore[override]
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any, **_: Any
    ) -> None:
        self._once.take_back()
        self._once.check(model)

    def on_train_end(  # type: ignore[override]
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any, **_: Any
    ) -> None:
        self._once.apply(model)


@dataclass(frozen=True, eq=False)
class TrainerLoss:
    """A loss as the Trainer calls it: a batch's sum over the number of items in all batches of the optimizer's step."""

    loss: Loss

    def __call__(self, outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        counted = labels != IGNORED
        values = self.loss(logits, labels.where(counted, 0)) * counted
        return values.sum() / (counted.sum() if num_items_in_batch is None else num_items_in_batch)


def compute_loss_func(method: str | Method, counts: Counts) -> TrainerLoss:
    """A method's loss, for `Trainer(compute_loss_func=...)`: right under gradient accumulation too.

    Args:
        method: one that changes the loss alone, by name ("class-balanced") or as a record.
        counts: training samples of each class: a list, or {index: n}; `levelhead.counts.of(labels)` counts labels.

    >>> loss = compute_loss_func("balanced-softmax", [500, 50, 5])
    >>> loss({"logits": torch.zeros(4, 3)}, torch.tensor([0, 1, 2, -100]), num_items_in_batch=3).shape
    torch.Size([])
    """
    method = method_named(method) if isinstance(method, str) else method
    other = [slot for slot in changes(method) if slot != "loss"]
    if other:
        raise LevelheadError(
            f"{method.name} does more than change the loss: {', '.join(other)}; use WVNCallback for project, "
            "RescaleCallback for adjust, and `levelhead train` for the rest"
        )
    if method.head != "linear":
        raise LevelheadError(f"{method.name} needs a {method.head} head, which pretrained models do not have")
    if method.stages:
        raise LevelheadError(f"{method.name} changes its loss in the middle of training, and the Trainer does not say when")
    return TrainerLoss(method.loss(counts))
