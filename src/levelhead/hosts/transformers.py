"""WVN, leveling and our losses in the Hugging Face Trainer: callbacks and a `compute_loss_func`."""

from dataclasses import dataclass
from typing import Any

from ..core.counts import Counts
from ..core.errors import LevelheadError
from ..core.extras import naming_what_is_missing
from ..methods.card import changes
from ..methods.lookup import method_named
from ..methods.method import Loss, Method

with naming_what_is_missing():
    import torch
    from transformers import TrainerCallback

    from ._callback import BaseLevelCallback, BaseRescaleCallback, BaseWVNCallback


class WVNCallback(BaseWVNCallback, TrainerCallback):
    """Keep the head's weight vectors at unit length through `train`: Algorithm 1 at every optimizer step.

    ``w_i <- w_i / ||w_i||``, once when training starts (after a checkpoint was loaded) and then once per real step,
    also with accumulated batches and mixed precision.

    Args:
        layer: path of the head, such as "classifier.out_proj", if it is not found or not unique.
        order: `algorithm` (after the step) or `released` (before it, as the authors' code does).
        classes, example: K and an input of the model, on its device: they tell the head from other layers.

    >>> WVNCallback("classifier.out_proj").order
    'algorithm'

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020, Algorithm 1.
    """

    def on_train_begin(self, *_: Any, model: Any, optimizer: Any, **__: Any) -> None:  # type: ignore[override]
        self._attach(model, [optimizer])

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._remove()


class LevelCallback(BaseLevelCallback, TrainerCallback):
    """Adjust the head once, when `train` has ended, by what was tuned (rule, strength, counts), as `adjust_` does.

    It comes after every checkpoint of the training, and after `load_best_model_at_end` has loaded the best one.
    Checkpoints hold the head as it was trained, so that training can resume from them. The model in memory, and what
    `trainer.save_model` writes, has the leveled head. A head without a bias gets one where the rule needs it, which
    `from_pretrained` of its architecture does not expect: save `torch.nn.Module.state_dict` then, or export to ONNX.
    The next `train` starts from the head as trained. A choice or a layer that does not fit the model is an error before
    the first step.

    Args:
        tuned: what `levelhead.tune` returned for a model like this one, or the path of a tuned.json; of any rule.
        layer: path of the head, if it is not found or not unique.

    Attributes:
        adjusted: what was done to the head, with `restore()`; None before the end of a training.

    >>> LevelCallback("tuned.json", layer="classifier.out_proj").layer
    'classifier.out_proj'
    """

    def on_train_begin(self, *_: Any, model: Any, **__: Any) -> None:  # type: ignore[override]
        self._restore()
        self._check(model)

    def on_train_end(self, *_: Any, model: Any, **__: Any) -> None:  # type: ignore[override]
        self._apply(model)


class RescaleCallback(BaseRescaleCallback, LevelCallback):
    """Rescale the head once, when `train` has ended: ``w_i <- (n_1 / n_i)^gamma w_i``.

    RS comes after every checkpoint of the training, and after `load_best_model_at_end` has loaded the best one.
    Checkpoints hold the head as it was trained, so that training can resume from them. The model in memory, and what
    `trainer.save_model` writes, has the leveled head. The next `train` starts from the head before RS. Counts or a
    layer that do not fit the model are an error before the first step.

    Args:
        counts: training samples of each class: a list, {class: n} (by name where the config has names), or labels.
        gamma: strength, chosen on held-out data (`levelhead.tune`), never on test data.
        layer: path of the head, if it is not found or not unique.

    Attributes:
        adjusted: what was done to the head, with `restore()`; None before the end of a training.

    >>> RescaleCallback({"often": 500, "seldom": 50, "rare": 5}, gamma=0.5).gamma
    0.5

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """


@dataclass(frozen=True, eq=False)
class TrainerLoss:
    """A loss as the Trainer calls it: a batch's sum over the number of items in all batches of the optimizer's step."""

    loss: Loss

    def __call__(self, outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        counted = labels != -100  # the label of positions in a batch that the loss leaves out
        values = self.loss(logits, labels.where(counted, 0)) * counted
        return values.sum() / (counted.sum() if num_items_in_batch is None else num_items_in_batch)


def compute_loss_func(method: str | Method, counts: Counts) -> TrainerLoss:
    """Return a method's loss for `Trainer(compute_loss_func=...)`, correct under gradient accumulation too.

    Args:
        method: one that only changes the loss, by name ("class-balanced") or as a record.
        counts: training samples of each class: a list, or {index: n}; `levelhead.counts.of(labels)` counts labels.

    Returns:
        A function of the model's outputs, the labels and the number of items, which gives the mean loss.

    >>> loss = compute_loss_func("balanced-softmax", [500, 50, 5])
    >>> loss({"logits": torch.zeros(4, 3)}, torch.tensor([0, 1, 2, -100]), num_items_in_batch=3).shape
    torch.Size([])
    """
    method = method_named(method) if isinstance(method, str) else method
    other = [slot for slot in changes(method) if slot != "loss"]
    if other:
        reason = (
            f"does more than change the loss: {', '.join(other)}; use WVNCallback for project, RescaleCallback "
            "for adjust, and `levelhead train` for the rest"
        )
    elif method.head != "linear":
        reason = f"needs a {method.head} head, which pretrained models do not have"
    elif method.stages:
        reason = "changes its loss in the middle of training, and the Trainer does not say when"
    else:
        return TrainerLoss(method.loss(counts))
    raise LevelheadError(f"{method.name} {reason}", parameter="method")
