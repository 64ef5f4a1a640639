"""A method's loss in the Hugging Face Trainer, as its `compute_loss_func`.

The Trainer has one place for a loss: a function of the model's outputs, the labels and the number
of items that a step has in all its batches. So only methods that change nothing but the loss fit
into it; `compute_loss_func` refuses the others, and says what does their part instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from levelhead.core.counts import Counts
from levelhead.support.errors import LevelheadError
from levelhead.support.extras import naming_what_is_missing

from .method import Loss, Method
from .table import changes, method_named

with naming_what_is_missing():
    import torch


@dataclass(frozen=True, eq=False)
class TrainerLoss:
    """A loss as the Trainer calls it: a batch's sum over the items in all batches of a step.

    The Trainer adds up the losses of the batches that it accumulates. Were each of them a mean, a
    short batch would count as much as a long one; divided by the items of all, their sum is the
    mean over the step.
    """

    loss: Loss

    def __call__(
        self,
        outputs: Mapping[str, torch.Tensor] | Sequence[torch.Tensor],
        labels: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """Return the loss of one batch.

        Args:
            outputs: of the model, without a loss: {"logits": [..., K]}, as a ModelOutput is, or a
                tuple that begins with them.
            labels: [...]; -100 marks what does not count.
            num_items_in_batch: labels that count in all batches of the step. The Trainer gives None
                where it does not know; then it is those of this batch, and the loss is its mean.
        """
        # A ModelOutput is a dict, too; with a plain tuple the logits come first.
        if isinstance(outputs, dict):
            logits = outputs["logits"]
        else:
            logits = outputs[0]  # type: ignore[index, reportArgumentType]
        # Labels that do not count become class 0, which the loss can take, and their values 0.
        counted = labels != -100  # the label of positions in a batch that the loss leaves out
        values = self.loss(logits, labels.where(counted, 0)) * counted
        if num_items_in_batch is None:
            num_items_in_batch = counted.sum()
        return values.sum() / num_items_in_batch


def compute_loss_func(method: str | Method, counts: Counts) -> TrainerLoss:
    """Return a method's loss for `Trainer(compute_loss_func=...)`, right under accumulation too.

    Args:
        method: one that only changes the loss, by name ("class-balanced") or as a record.
        counts: training samples of each class: a list, or {index: n}; `levelhead.counts.of(labels)`
            counts labels.

    Raises:
        LevelheadError: if the method does more than change the loss, needs a cosine head, or
            changes its loss in the middle of training; the message says what to use instead.

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
