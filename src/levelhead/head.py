"""A head: the last linear layer of a classifier, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ._array import Array, is_floating, is_torch, row_norms, to_numpy, widen


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
        if getattr(self.weight, "ndim", None) != 2:
            raise ValueError(f"expected weight [K, d], got {_describe(self.weight)}")
        if not is_floating(self.weight):
            raise ValueError(f"expected a floating-point weight, got {self.weight.dtype}; dequantize it first")
        if self.bias is not None and tuple(getattr(self.bias, "shape", ())) != (self.classes,):
            raise ValueError(f"expected bias [{self.classes}], one per row of weight, got {_describe(self.bias)}")
        if self.names is not None and len(self.names) != self.classes:
            raise ValueError(f"expected {self.classes} class names, got {len(self.names)}")

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return self.weight.shape[0]

    @property
    def norms(self) -> Array:
        """Length of each weight vector, [K], in float32 or better."""
        return row_norms(self.weight)

    def logits(self, features: Array) -> Array:
        """features [N, d] -> logits [N, K], in float32 or better."""
        scores = widen(features) @ widen(self.weight).T
        return scores if self.bias is None else scores + widen(self.bias)

    def name(self, i: int) -> str:
        """How to call class i in a message."""
        return f"class {i}" if self.names is None else f"class {i} ({self.names[i]})"

    def numpy(self) -> Head:
        """The same head on the host, half precision widened to float32."""
        return replace(self, weight=to_numpy(self.weight), bias=None if self.bias is None else to_numpy(self.bias))


def check_finite(head: Head, where: str = "the head") -> Head:
    """The same head; a ValueError that names the class if a weight or bias is NaN or infinite."""
    for part, values in (("weight", head.weight), ("bias", head.bias)):
        if values is None:
            continue
        finite = values.isfinite() if is_torch(values) else np.isfinite(values)
        if not finite.all():
            rows = to_numpy(finite).reshape(head.classes, -1).all(axis=1)
            raise ValueError(f"{where} has NaN or infinite {part} values in {head.name(int(np.argmin(rows)))}")
    return head


def _describe(x: object) -> str:
    return f"shape {list(x.shape)}" if hasattr(x, "shape") else type(x).__name__  # type: ignore[attr-defined]
