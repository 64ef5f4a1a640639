"""`Head`: the last linear layer of a classifier, as a value, and the projection of its weight vectors to unit length.

A head makes logits of features, ``logit_k = w_k'f + b_k``. `Head` holds the weights [K, d] and, where there is
one, the bias [K], in numpy or torch, in any floating type. It is the noun between the rooms: whoever reads a
head out of a module or a file (heads/, files/) makes this value, whoever changes one (`Adjustment.head`,
`normalize`) returns a new one, and whoever writes one back takes it apart again. So nothing here knows where a
head came from or where it goes.

Shapes and types are checked when it is made, numbers only when they are about to be used (`Head.checked`):
that reads all of the weights, which of a file may be gigabytes. What is asked of a head before it is changed
is in head_checks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..support.arrays import Array, is_torch, narrow, product, row_norms, to_numpy, widen
from ..support.errors import LevelheadError
from .class_names import title


@dataclass(frozen=True, eq=False)
class Head:
    """The class weight vectors of a classifier, wherever they came from.

    The arrays are kept by reference, in whatever type and on whatever device they are: a head of a
    torch module in bfloat16 on a GPU stays there. Arithmetic on it is done in float32 or better.

    Args:
        weight: [K, d], row k is the weight vector of class k; numpy or torch, any floating dtype. Two
            classes may share one row, [1, d], whose logit is that of the second.
        bias: [K], of the same library as the weight; None for a head without one.
        names: the K class names, where they are known; only messages use them.

    Raises:
        LevelheadError: parts of other shapes, a mix of numpy and torch, or weights that are no
            floats. Quantized weights are refused: scaling their whole numbers would not be RS.

    >>> head = Head(np.array([[3.0, 4.0], [0.0, 1.0]]), bias=np.array([0.0, 1.0]))
    >>> head.norms, head.logits(np.array([[1.0, 1.0]]))
    (array([5., 1.]), array([[7., 2.]]))
    """

    weight: Array
    bias: Array | None = None
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        # Shapes and types alone: numbers are not read here (`checked`).
        weight = _kind_and_shape(self.weight)
        bias = _kind_and_shape(self.bias)
        if not _is_array(self.weight) or self.weight.ndim != 2:
            raise LevelheadError(f"expected weight [K, d], a numpy array or a tensor, got {weight}")
        if not _is_floating(self.weight):
            raise LevelheadError(
                f"expected a floating-point weight, got {self.weight.dtype}; dequantize it first"
            )
        if self.bias is not None:
            if tuple(getattr(self.bias, "shape", ())) != (self.classes,):
                raise LevelheadError(
                    f"expected bias [{self.classes}], one per row of weight, got {bias}"
                )
            if is_torch(self.bias) != is_torch(self.weight) or not _is_floating(self.bias):
                same = f"expected a floating-point bias of the same kind as the weight, {weight}"
                raise LevelheadError(f"{same}, got {bias}")
        if self.names is not None and len(self.names) != self.classes:
            raise LevelheadError(f"expected {self.classes} class names, got {len(self.names)}")

    @property
    def classes(self) -> int:
        """K, the rows of the weight; 1 where two classes share one logit."""
        return self.weight.shape[0]

    @property
    def norms(self) -> Array:
        """Length of each weight vector, [K], in float32 or better."""
        return row_norms(self.weight)

    def logits(self, features: Array) -> Array:
        """Return the logits [N, K] of features [N, d], in float32 or better.

        ``logit_ik = w_k'f_i + b_k``. Half precision is widened before it is summed: in float16, a sum
        of ones stops growing at 2048.

        Args:
            features: what the head takes, numpy or torch as the weight is.

        Raises:
            LevelheadError: features of another width, or of the other library.
        """
        # Lists and data frames become arrays; a tensor is never taken for an array, nor copied to one.
        if not is_torch(features):
            features = to_numpy(features)
        if is_torch(features) != is_torch(self.weight):
            weight = _kind_and_shape(self.weight)
            expected = f"expected features of the same kind as the weight, {weight}"
            raise LevelheadError(
                f"{expected}, got {_kind_and_shape(features)}; head.numpy() converts the head"
            )
        if features.ndim < 1 or features.shape[-1] != self.weight.shape[1]:
            raise LevelheadError(
                f"expected features [N, {self.weight.shape[1]}], got shape {list(features.shape)}"
            )
        scores = product(features, self.weight)
        if self.bias is None:
            return scores
        return scores + widen(self.bias)

    def name(self, i: int) -> str:
        """Return the number and the name of class i, for a message."""
        return title(i, self.names)

    def checked(self, where: str = "the head", *, advice: str = "") -> Head:
        """Return the head; raise LevelheadError if a class has NaN or infinite values.

        It is asked before a head is changed, and again after: factors of a strength that is too large
        make infinities in float16, which must not reach a file.

        Args:
            where: what to call the head in the message, which names the first such class.
            advice: what to do, at the end of it.
        """
        for part, values in (("weight", self.weight), ("bias", self.bias)):
            if values is None:
                continue
            if is_torch(values):
                finite = values.isfinite()
            else:
                finite = np.isfinite(values)
            if not finite.all():
                # [K, d] or [K]: a row for each class either way.
                class_is_finite = to_numpy(finite).reshape(self.classes, -1).all(axis=1)
                name = self.name(int(np.argmin(class_is_finite)))
                raise LevelheadError(f"{where} has NaN or infinite {part} values in {name}{advice}")
        return self

    def numpy(self) -> Head:
        """Return the same head in numpy, on the host, half precision widened to float32."""
        bias = self.bias
        if bias is not None:
            bias = to_numpy(bias)
        return replace(self, weight=to_numpy(self.weight), bias=bias)


def check_finite(head: Head, where: str = "the head", *, advice: str = "") -> Head:
    """Return the head; raise LevelheadError if it is not one, or if it is not `checked`.

    For functions that users call: they may pass a module, or a bare weight. The message then says how
    to make a head of it. The arguments are those of `Head.checked`.
    """
    if not isinstance(head, Head):
        instead = "Head(weight, bias) makes one from arrays"
        instead += ", and levelhead.rescale_ finds and scales that of a torch model"
        raise LevelheadError(f"expected a Head, got {type(head).__name__}; {instead}")
    return head.checked(where, advice=advice)


def positive_norms(head: Head) -> np.ndarray:
    """Return the norms [K] of a head in float64, all finite and above 0.

    Raises:
        LevelheadError: a weight vector is zero, and so has no direction that a rule by norms could
            keep; or it is so long that its squares overflow float32.
    """
    # Weights are finite, but the squares of very long ones need not be.
    norms = to_numpy(head.norms).astype(np.float64)
    checks = {
        "too long to measure in float32; convert the head to float64": np.isfinite(norms),
        "zero and has no direction; rescale and shift do not need one": norms > 0,
    }
    for flaw, usable in checks.items():
        if not usable.all():
            name = head.name(int(np.argmin(usable)))
            raise LevelheadError(f"the weight vector of {name} is {flaw}")
    return norms


def normalize(head: Head) -> Head:
    """Scale every weight vector to unit length (the projection of WVN).

    ``w_i <- w_i / ||w_i||``.  The bias is left alone: Algorithm 1 speaks of weight vectors only.

    Args:
        head: weight [K, d], without a zero row.

    Returns:
        A new head, of the same type and on the same device.

    Raises:
        LevelheadError: no `Head`, numbers that are not finite, or a zero row.

    >>> normalize(Head(np.array([[3.0, 4.0], [0.0, 2.0]]))).weight
    array([[0.6, 0.8],
           [0. , 1. ]])

    Reference: Kim and Kim, 2020, Algorithm 1.
    """
    positive_norms(check_finite(head))
    return replace(head, weight=unit(head.weight))


def unit(weight: Array) -> Array:
    """Return weight [K, d] with rows of unit length.

    ``w_k / ||w_k||``, in float32 or better, rounded to the type of the weight. Nothing is checked: this
    is done after every training step, where a check would make the host wait for the GPU. A zero row
    becomes NaN.
    """
    wide = widen(weight)
    return narrow(wide / row_norms(wide)[:, None], weight)


def _kind_and_shape(x: Array) -> str:
    """Return what something is, for a message, such as `torch float16 [10, 64]`."""
    if not _is_array(x):
        return type(x).__name__
    library = "numpy"
    if is_torch(x):
        library = "torch"
    return f"{library} {str(x.dtype).removeprefix('torch.')} {list(x.shape)}"


def _is_floating(x: Array) -> bool:
    if is_torch(x):
        return x.is_floating_point()
    return np.issubdtype(np.asarray(x).dtype, np.floating)


def _is_array(x: object) -> bool:
    return is_torch(x) or isinstance(x, np.ndarray)
