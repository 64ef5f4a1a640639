"""A head: the last linear layer of a classifier, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .array import Array, is_floating, is_torch, product, row_norms, to_numpy, widen
from .errors import LevelheadError
from .per_class import title


@dataclass(frozen=True, eq=False)
class Head:
    """The class weight vectors of a classifier, wherever they came from.

    Args:
        weight: [K, d], row i is the weight vector of class i; numpy or torch, any floating dtype.
        bias: [K] or None.
        names: the K class names, where they are known.

    >>> Head(np.array([[3.0, 4.0], [0.0, 1.0]])).norms
    array([5., 1.])
    """

    weight: Array
    bias: Array | None = None
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        weight, bias = _kind_and_shape(self.weight), _kind_and_shape(self.bias)
        if not _is_array(self.weight) or self.weight.ndim != 2:
            raise LevelheadError(f"expected weight [K, d], a numpy array or a tensor, got {weight}")
        if not is_floating(self.weight):
            raise LevelheadError(f"expected a floating-point weight, got {self.weight.dtype}; dequantize it first")
        if self.bias is not None:
            if tuple(getattr(self.bias, "shape", ())) != (self.classes,):
                raise LevelheadError(f"expected bias [{self.classes}], one per row of weight, got {bias}")
            if is_torch(self.bias) != is_torch(self.weight) or not is_floating(self.bias):
                raise LevelheadError(
                    f"expected a floating-point bias of the same kind as the weight, {weight}, got {bias}"
                )
        if self.names is not None and len(self.names) != self.classes:
            raise LevelheadError(f"expected {self.classes} class names, got {len(self.names)}")

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return self.weight.shape[0]

    @property
    def norms(self) -> Array:
        """Length of each weight vector, [K], in float32 or better."""
        return row_norms(self.weight)

    def logits(self, features: Array) -> Array:
        """Compute logits.

        Args:
            features: [N, d], numpy or torch as the weight is.

        Returns:
            [N, K], in float32 or better.

        >>> Head(np.array([[3.0, 4.0], [0.0, 1.0]])).logits([[1.0, 1.0]])
        array([[7., 1.]])
        """
        features = features if is_torch(features) else to_numpy(features)
        if is_torch(features) != is_torch(self.weight):
            raise LevelheadError(
                f"expected features of the same kind as the weight, {_kind_and_shape(self.weight)}, "
                f"got {_kind_and_shape(features)}; head.numpy() converts the head"
            )
        if features.ndim < 1 or features.shape[-1] != self.weight.shape[1]:
            raise LevelheadError(f"expected features [N, {self.weight.shape[1]}], got shape {list(features.shape)}")
        scores = product(features, self.weight)
        return scores if self.bias is None else scores + widen(self.bias)

    def name(self, i: int) -> str:
        """Return the number and the name of class i, for a message."""
        return title(i, self.names)

    def numpy(self) -> Head:
        """Return the same head in numpy, half precision widened to float32."""
        return replace(self, weight=to_numpy(self.weight), bias=None if self.bias is None else to_numpy(self.bias))


def check_finite(head: Head, where: str = "the head", *, advice: str = "") -> Head:
    """Return the head; raise LevelheadError if it is not one, or if a class has NaN or infinite values."""
    if not isinstance(head, Head):
        raise LevelheadError(
            f"expected a Head, got {type(head).__name__}; Head(weight, bias) makes one from arrays, "
            "and levelhead.rescale_ finds and scales that of a torch model"
        )
    for part, values in (("weight", head.weight), ("bias", head.bias)):
        if values is None:
            continue
        finite = values.isfinite() if is_torch(values) else np.isfinite(values)
        if not finite.all():
            name = head.name(int(np.argmin(to_numpy(finite).reshape(head.classes, -1).all(axis=1))))
            raise LevelheadError(f"{where} has NaN or infinite {part} values in {name}{advice}")
    return head


def _kind_and_shape(x: object) -> str:
    if not _is_array(x):
        return type(x).__name__
    return f"{'torch' if is_torch(x) else 'numpy'} {str(x.dtype).removeprefix('torch.')} {list(x.shape)}"  # type: ignore


def _is_array(x: object) -> bool:
    return is_torch(x) or isinstance(x, np.ndarray)
