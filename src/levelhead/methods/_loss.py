"""What the losses share: cross entropy, class weights, and constants that are on the device before they are needed.

Written with tensor methods alone, so that reading about methods loads no torch. The classes are the last dimension, so
that logits [..., B, K] with labels [..., B] are as good as [B, K] with [B]. No function here waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import LevelheadError

if TYPE_CHECKING:
    import torch

    from .method import Loss


@dataclass(frozen=True, eq=False)
class Constant:
    """Host values [K], one per class, made a tensor once per device and dtype.

    Made in a warm-up step, it is not copied again: a step may be captured as a CUDA graph.
    """

    values: np.ndarray
    _made: dict[tuple[torch.device, torch.dtype], torch.Tensor] = field(default_factory=dict, repr=False)

    def like(self, logits: torch.Tensor) -> torch.Tensor:
        """The values on the device of logits [..., K], in their dtype or float32, whichever is wider."""
        import torch

        if logits.shape[-1] != len(self.values):
            raise LevelheadError(f"expected logits of {len(self.values)} classes, one per count, got {logits.shape[-1]}")
        key = logits.device, torch.promote_types(logits.dtype, torch.float32)
        if key not in self._made:
            self._made[key] = torch.as_tensor(self.values, device=key[0], dtype=key[1])
        return self._made[key]

    def __reduce__(self) -> tuple:
        return Constant, (self.values,)  # a copy elsewhere may find another device


def check_labels(logits: torch.Tensor, labels: torch.Tensor) -> None:
    """That there is one label per row: fewer would be fewer losses. Shapes alone are looked at."""
    if labels.shape != logits.shape[:-1]:
        raise LevelheadError(f"expected labels {list(logits.shape[:-1])}, one class index per row of logits, got shape "
                         f"{list(labels.shape)}")


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``-log softmax(logits)_y``: one value per sample, in float32 or better."""
    check_labels(logits, labels)
    wide = logits if logits.dtype.itemsize >= 4 else logits.float()
    return -pick(wide.log_softmax(-1), labels)


def pick(values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``values_y``: of values [..., B, K], the one at each label [..., B]. A label that is no class is an error of the
    indexing itself, on the CPU, and only then looked for."""
    try:
        return values.gather(-1, labels[..., None]).squeeze(-1)
    except RuntimeError:
        wrong = labels[(labels < 0) | (labels >= values.shape[-1])] if labels.device.type == "cpu" else labels[:0]
        if not len(wrong):
            raise
        raise LevelheadError(f"expected labels from 0 to {values.shape[-1] - 1}, got {wrong[0]}; leave out samples that "
                         "are not to count") from None


@dataclass(frozen=True, eq=False)
class Weighted:
    """Any loss times its class's weight, from outside: ``w_y loss(logits, y)``.

    Weights inside would bend what is not linear in them: ``exp(-w ce)`` is no probability.
    """

    weights: Constant
    loss: Loss = cross_entropy

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        weights, values = self.weights.like(logits), self.loss(logits, labels)  # the loss checks the labels
        return weights[labels] * values


def mean_one(weights: np.ndarray) -> np.ndarray:
    """The same proportions with mean 1, so that the learning rate keeps its meaning; exactly 1 where all are equal.

    >>> mean_one(np.array([0.1, 0.3]))
    array([0.5, 1.5])
    """
    relative = weights / weights.max()
    return relative / relative.mean()
