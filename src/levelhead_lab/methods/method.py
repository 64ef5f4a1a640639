"""A method: a record of what it does at the only points of a training where anything can be done; what losses share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from levelhead.core.head import Head
from levelhead.support.errors import LevelheadError, check_choice

if TYPE_CHECKING:
    import torch

Tensor: TypeAlias = "torch.Tensor"  # as text: reading about methods does not load torch
# Logits [B, K], labels [B] -> one value per sample.
Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
Sample = Callable[[np.ndarray, np.random.Generator, float], np.ndarray]


@dataclass(frozen=True)
class Retrain:
    """A second stage, which trains a new head on frozen features.

    Everything but the head is frozen and in evaluation mode (augmentation continues). The head gets new weights, as at
    the start of the run, and is trained for ``max(1, round(share * epochs))`` epochs by a new optimizer of the recipe's
    kind, whose learning rate falls to 0 by half a cosine. Progress counts from 0 to 1 over this stage.
    """

    share: float  #: epochs of this stage over epochs of the first
    loss: Callable[..., Loss]  #: as in `Method`
    sample: Sample | None = None  #: as in `Method`

    def __post_init__(self) -> None:
        if not self.share > 0:
            raise LevelheadError(
                f"expected a positive share of the epochs, got {self.share}", parameter="share"
            )


@dataclass(frozen=True)
class Method:
    """A training method, such as a row of Table 1.

    `loss` makes, of counts [K] and progress, a loss of logits [B, K] and labels [B], one value per sample; that of a
    batch is the plain mean. Progress is the share of the training that is over, from 0 to 1. `sample` gives, for labels
    [N], a generator and progress, the indices of an epoch. Both may only change with progress at one of `stages`.

    >>> from levelhead_lab.methods import METHODS
    >>> mine = Method("mine", "Mine", METHODS["focal"].loss, project=METHODS["wvn"].project)
    >>> mine.order, mine.head
    ('after', 'linear')
    """

    name: str  #: what the command line calls it
    title: str  #: what a table calls it
    loss: Callable[..., Loss]
    sample: Sample | None = None  #: None is a plain shuffle of all samples
    project: Callable[[Head], Head] | None = None  #: at every step; None leaves the head alone
    order: Literal["after", "before"] = (
        "after"  #: of the optimizer's step: Algorithm 1, or the released code
    )
    adjust: Callable[[Head, np.ndarray, float], Head] | None = (
        None  #: by counts and a strength, once, after training
    )
    head: Literal["linear", "cosine"] = (
        "linear"  #: without a bias; or unit weights and features: logits are cosines
    )
    stages: tuple[float, ...] = ()  #: shares of the training at which `loss` or `sample` change
    retrain: Retrain | None = None  #: a second stage for the head alone
    trained_as: str | None = (
        None  #: the method with the same training, if only `adjust` differs: it is no part of that
    )
    card: str | None = (
        None  #: for `levelhead methods NAME`; usually the docstring of the method's file
    )

    def __post_init__(self) -> None:
        check_choice("order", self.order, ("after", "before"))
        check_choice("head", self.head, ("linear", "cosine"))
        if any(not 0 < stage < 1 for stage in self.stages):
            raise LevelheadError(
                f"expected shares between 0 and 1, got {self.stages}", parameter="stages"
            )


@dataclass(frozen=True, eq=False)
class ClassConstant:
    """Host values [K], made into a tensor once per device and dtype, so that a step may be captured as a CUDA graph."""

    values: np.ndarray
    _tensors: dict[Any, "torch.Tensor"] = field(default_factory=dict, repr=False)

    def like(self, logits: Tensor) -> Tensor:
        """Return the values on the device of logits [..., K], in their dtype or float32, whichever is wider."""
        import torch

        if logits.shape[-1] != len(self.values):
            expected = f"expected {len(self.values)} classes, one per count"
            raise LevelheadError(f"{expected}, got {logits.shape[-1]}", parameter="logits")
        key = logits.device, torch.promote_types(logits.dtype, torch.float32)
        if key not in self._tensors:
            self._tensors[key] = torch.as_tensor(self.values, device=key[0], dtype=key[1])
        return self._tensors[key]

    def __reduce__(self) -> tuple:
        return ClassConstant, (self.values,)  # another process may use another device


def check_label_shape(logits: Tensor, labels: Tensor) -> None:
    """Check that there is one label per row of logits. Only shapes are read."""
    if labels.shape != logits.shape[:-1]:
        expected = f"expected shape {list(logits.shape[:-1])}, one class index per row of logits"
        raise LevelheadError(f"{expected}, got {list(labels.shape)}", parameter="labels")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return ``-log softmax(logits)_y``, one value per sample, in float32 or better."""
    check_label_shape(logits, labels)
    if logits.dtype.itemsize >= 4:
        wide = logits
    else:
        wide = logits.float()
    return -value_at_label(wide.log_softmax(-1), labels)


def value_at_label(values: Tensor, labels: Tensor) -> Tensor:
    """Return ``values_y``: of values [..., B, K] the one at each label [..., B]."""
    try:
        return values.gather(-1, labels[..., None]).squeeze(-1)
    except RuntimeError:  # on the CPU, for a label that is not a class; only then is it looked for
        if labels.device.type == "cpu":
            wrong = labels[(labels < 0) | (labels >= values.shape[-1])]
        else:
            wrong = labels[:0]
        if not len(wrong):
            raise
        expected = f"expected classes from 0 to {values.shape[-1] - 1}, got {wrong[0]}"
        raise LevelheadError(
            f"{expected}; leave out samples that should not count", parameter="labels"
        ) from None


@dataclass(frozen=True, eq=False)
class WeightedLoss:
    """Any loss multiplied by the weight of the true class from outside: inside, ``exp(-w ce)`` is no probability."""

    weights: ClassConstant
    loss: Loss = cross_entropy
    in_batch: bool = (
        False  # divide by the batch's mean weight: as the mean of ``F.cross_entropy(weight=...)``
    )

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        # The loss checks the labels.
        weights = self.weights.like(logits)
        values = self.loss(logits, labels)
        each = weights[labels]
        return values * (each / each.mean(-1, keepdim=True) if self.in_batch else each)


def scale_to_mean_one(weights: np.ndarray) -> np.ndarray:
    """Scale weights to a mean of 1, so that the learning rate keeps its meaning; equal weights become exactly 1."""
    relative = weights / weights.max()
    return relative / relative.mean()
