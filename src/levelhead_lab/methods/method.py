"""A method: a record of what it does at the only points of a training where anything can be done.

The road through a training, and where a method may act on it (`lab.train.fit` calls them in this
order):

1. `sample` draws the indices of an epoch from the labels [N].
2. `loss` makes, of the counts [K] and the progress so far, the function that judges a batch of
   logits [B, K].
3. `project` maps the head to an allowed one, in every step, after the optimizer's update (or before
   it).
4. `retrain` repeats the first two for the head alone, on frozen features, after the training
   proper.
5. `adjust` changes the head once, when all training is over, and needs no gradient. It is no part
   of a run's identity: methods that differ in it alone share one training (`trained_as`).

A method knows neither the network nor the optimizer. Below the records are the parts of which
losses are made: `ClassConstant` for a number per class, `cross_entropy`, `WeightedLoss` around
another loss. They are classes and functions of a module, not closures, so that methods and losses
can be copied and pickled, as whoever trains in several processes does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from levelhead.core.head import Head
from levelhead.support.errors import LevelheadError, check_choice

if TYPE_CHECKING:
    import torch

Tensor: TypeAlias = "torch.Tensor"  # as text: reading about methods does not load torch
# Logits [B, K], labels [B] -> one value per sample.
Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
# Counts [K] and, with a default of 0, the progress -> a loss.
LossFactory = Callable[..., Loss]
# Labels [N], a generator and the progress -> the indices of an epoch.
Sample = Callable[[np.ndarray, np.random.Generator, float], np.ndarray]

# What a training calls each function of a method with.
ARGUMENTS = {
    "loss": ("counts", "progress"),
    "sample": ("labels", "generator", "progress"),
    "project": ("head",),
    "adjust": ("head", "counts", "gamma"),
}


@dataclass(frozen=True)
class Retrain:
    """A second stage, which trains a new head on frozen features.

    Everything but the head is frozen and in evaluation mode (augmentation continues). The head gets
    new weights, as at the start of the run, and is trained for ``max(1, round(share * epochs))``
    epochs by a new optimizer of the recipe's kind, whose learning rate falls to 0 by half a cosine.
    Progress counts from 0 to 1 over this stage.

    Raises:
        LevelheadError: if `share` is not above 0, or a function takes other arguments.

    >>> from levelhead_lab.methods import METHODS
    >>> retrain = METHODS["crt"].retrain
    >>> f"{retrain.share:.3f} of the epochs"
    '0.111 of the epochs'
    """

    #: Epochs of this stage over epochs of the first: 1/9 is 10 after 90.
    share: float
    #: As in `Method`.
    loss: LossFactory
    #: As in `Method`.
    sample: Sample | None = None

    def __post_init__(self) -> None:
        # Written so that NaN, which compares as neither, is refused too.
        if not self.share > 0:
            raise LevelheadError(
                f"expected a positive share of the epochs, got {self.share}", parameter="share"
            )
        check_arguments(self)


@dataclass(frozen=True)
class Method:
    """A training method, such as a row of Table 1.

    `loss` makes, of counts [K] and progress, a loss of logits [B, K] and labels [B], one value per
    sample; that of a batch is the plain mean. Progress is the share of the training that is over,
    from 0 to 1. `sample` gives, for labels [N], a generator and progress, the indices of an epoch.
    Both may only change with progress at one of `stages`: the fast engine captures an epoch as a
    graph, and captures it again there and nowhere else.

    All functions should be defined at the top level of a module, so that the method can be pickled.
    What one draws at random must come from the generator that it is given: then a
    resumed run draws the same.

    Raises:
        LevelheadError: if `order` or `head` is another word, a stage is not inside (0, 1), or a function takes other
            arguments.

    >>> from levelhead_lab.methods import METHODS
    >>> mine = Method("mine", "Mine", METHODS["focal"].loss, project=METHODS["wvn"].project)
    >>> mine.order, mine.head
    ('after', 'linear')
    """

    #: What the command line calls it.
    name: str
    #: What a table calls it.
    title: str
    #: Of counts and progress, a loss; see above.
    loss: LossFactory
    #: The indices of an epoch; None is a plain shuffle of all samples.
    sample: Sample | None = None
    #: At every step, from a head to an allowed one; None leaves the head alone.
    project: Callable[[Head], Head] | None = None
    #: Whether `project` comes after the optimizer's step, as in Algorithm 1, or before, as in the
    #: released code.
    order: Literal["after", "before"] = "after"
    #: By counts and a strength, once, after training.
    adjust: Callable[[Head, np.ndarray, float], Head] | None = None
    #: Without a bias; or `cosine`, unit weights and features, so that logits are cosines.
    head: Literal["linear", "cosine"] = "linear"
    #: Shares of the training, ascending, at which `loss` or `sample` change.
    stages: tuple[float, ...] = ()
    #: A second stage for the head alone.
    retrain: Retrain | None = None
    #: The method with the same training, if only `adjust` differs: it is no part of that.
    trained_as: str | None = None
    #: For `levelhead methods NAME`; usually the docstring of the method's file.
    card: str | None = None

    def __post_init__(self) -> None:
        check_choice("order", self.order, ("after", "before"))
        check_choice("head", self.head, ("linear", "cosine"))
        if any(not 0 < stage < 1 for stage in self.stages):
            raise LevelheadError(
                f"expected shares between 0 and 1, got {self.stages}", parameter="stages"
            )
        check_arguments(self)


def check_arguments(record: Method | Retrain) -> None:
    """Raise LevelheadError if a function of a record cannot be called as a training will.

    A loss without `progress` would else be noticed when the data are loaded and the network is built.
    """
    for name, arguments in ARGUMENTS.items():
        function = getattr(record, name, None)
        if function is None:
            continue
        try:
            signature(function).bind(*arguments)
        except TypeError:
            taken = signature(function) if callable(function) else type(function).__name__
            raise LevelheadError(
                f"expected a function of ({', '.join(arguments)}), got {taken}", parameter=name
            ) from None


@dataclass(frozen=True, eq=False)
class ClassConstant:
    """Host values [K], made into a tensor once per device and dtype.

    So a step may be captured as a CUDA graph. A copy from the host inside a capture would be an
    error; and outside of one, a wait in every step. The first call with logits of a new kind makes
    the copy, and every engine takes a step before it captures one.
    """

    values: np.ndarray  # [K], float64
    _tensors: "dict[tuple[torch.device, torch.dtype], torch.Tensor]" = field(
        default_factory=dict, repr=False
    )

    def like(self, logits: Tensor) -> Tensor:
        """Return the values [K] beside logits [..., K]: on their device, in their dtype or float32.

        The wider of the two: weights and margins are not rounded to 16 bits where the logits are.

        Raises:
            LevelheadError: if the logits have another number of classes than there are values.
        """
        import torch

        if logits.shape[-1] != len(self.values):
            expected = f"expected {len(self.values)} classes, one per count"
            raise LevelheadError(f"{expected}, got {logits.shape[-1]}", parameter="logits")
        device = logits.device
        dtype = torch.promote_types(logits.dtype, torch.float32)
        if (device, dtype) not in self._tensors:
            copied = torch.as_tensor(self.values, device=device, dtype=dtype)
            self._tensors[device, dtype] = copied
        return self._tensors[device, dtype]

    def __reduce__(self) -> tuple:
        return ClassConstant, (self.values,)  # another process may use another device


def check_label_shape(logits: Tensor, labels: Tensor) -> None:
    """Check that there is one label per row of logits.

    Only shapes are read, so nothing waits for the device.

    Raises:
        LevelheadError: if labels are not [...] where logits are [..., K], as with one-hot labels.
    """
    if labels.shape != logits.shape[:-1]:
        expected = f"expected shape {list(logits.shape[:-1])}, one class index per row of logits"
        raise LevelheadError(f"{expected}, got {list(labels.shape)}", parameter="labels")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return ``-log softmax(logits)_y``, one value per sample, in float32 or better.

    Args:
        logits: [..., K], any float dtype. Those of 16 bits are widened first: else the losses would
            be rounded to 16 bits too, and a batch's mean would be taken of rounded values.
        labels: [...], class indices.

    >>> import torch
    >>> cross_entropy(torch.zeros(2, 4, dtype=torch.bfloat16), torch.tensor([0, 3]))  # log 4, each
    tensor([1.3863, 1.3863])
    """
    check_label_shape(logits, labels)
    if logits.dtype.itemsize >= 4:
        wide = logits
    else:
        wide = logits.float()
    return -value_at_label(wide.log_softmax(-1), labels)


def value_at_label(values: Tensor, labels: Tensor) -> Tensor:
    """Return ``values_y``: of values [..., B, K] the one at each label [..., B].

    Raises:
        LevelheadError: on a CPU, if a label is not a class. To look before every batch would make
            CUDA wait; there, a wrong label ends in torch's own device-side assertion.
    """
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
    """Any loss, times the weight of the true class: ``w_y loss(logits, y)``.

    The weight multiplies from outside. A focal loss of an already weighted cross entropy would take
    ``exp(-w ce)`` for a probability, which it is not.
    """

    weights: ClassConstant  # [K]
    loss: Loss = cross_entropy
    # Divide by the batch's mean weight, so that the plain mean of the values is that of
    # ``F.cross_entropy(weight=...)``. Then a value depends on its whole batch, which must be in one
    # process.
    in_batch: bool = False

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return one value per sample, [..., B], of logits [..., B, K] and labels [..., B]."""
        # The order matters: the loss checks the labels, which then index the weights.
        weights = self.weights.like(logits)
        values = self.loss(logits, labels)
        of_samples = weights[labels]  # [..., B]
        if self.in_batch:
            of_samples = of_samples / of_samples.mean(-1, keepdim=True)
        return values * of_samples


def scale_to_mean_one(weights: np.ndarray) -> np.ndarray:
    """Scale weights to a mean of 1, so that the learning rate keeps its meaning.

    Equal weights become exactly 1. They are divided by the largest first, and equal ones are 1 from
    there on: divided by their mean alone, rounding could leave them beside it, and a method that
    reads counts would differ from plain training on a balanced set.

    Args:
        weights: [K], all positive.

    >>> scale_to_mean_one(np.array([0.1, 0.1, 0.4])).round(3)
    array([0.5, 0.5, 2. ])
    """
    relative = weights / weights.max()
    return relative / relative.mean()
