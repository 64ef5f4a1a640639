"""Operations on which numpy and torch differ, torch only where the caller has it; threads and their tables."""

import math
import os
import sys
import threading
from dataclasses import asdict
from typing import Any

import numpy as np

from .errors import LevelheadError

Array = Any  # a numpy array or a torch tensor


def is_torch(x: Array) -> bool:
    """Return whether x is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def to_numpy(x: Array) -> np.ndarray:
    """Return the values of x on the host, half-precision tensors widened to float32 (numpy has no bfloat16)."""
    if is_torch(x):
        x = x.detach().cpu()
        return (x.float() if x.is_floating_point() and x.element_size() < 4 else x).numpy()
    if np.ma.is_masked(x):
        raise LevelheadError("some values are masked, and would be used all the same; fill them or leave them out")
    try:
        return np.asarray(x)
    except ValueError:
        raise LevelheadError("expected an array of one shape, got rows of different lengths") from None


def as_array(x: Array) -> Array:
    """Return a tensor or a memory-mapped file as it is, and anything else that holds numbers as a numpy array."""
    return x if is_torch(x) or isinstance(x, np.memmap) else to_numpy(x)


def check_finite_rows(values: np.ndarray, first: int = 0) -> None:
    """Check that logits [n, K] are finite. Rows are numbered from `first` in the message."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.einsum("ij->", values)):  # twice as fast as values.sum(), which rounds better
            return
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():  # a sum may overflow
        raise not_finite(first + int(np.argmin(finite)))


def not_finite(row: int) -> LevelheadError:
    """Return the error for logits that are not finite, first in a row."""
    return LevelheadError(
        f"the logits hold NaN or infinite values, first in row {row}; leave such rows out, or compute them in float32"
    )


def described(x: np.ndarray) -> str:
    """Return what an array holds, for a message: a dtype, with the first fraction where one is, or 'text'."""
    if x.dtype.kind == "f" and x.ndim == 1 and (x != np.floor(x)).any():
        at = int(np.argmax(x != np.floor(x)))
        return f"{x.dtype} ({x[at]:g} at position {at})"
    return {"U": "text", "S": "text", "O": "Python objects"}.get(x.dtype.kind, str(x.dtype))


def is_floating(x: Array) -> bool:
    """Return whether x has a floating-point dtype."""
    return x.is_floating_point() if is_torch(x) else np.issubdtype(np.asarray(x).dtype, np.floating)


def widen(x: Array) -> Array:
    """Return x in float32 or better."""
    if is_torch(x):
        import torch

        return x.to(torch.promote_types(x.dtype, torch.float32))
    return x.astype(np.promote_types(x.dtype, np.float32), copy=False)


def like(values: np.ndarray, x: Array) -> Array:
    """Return host values as an array of x's kind, dtype and device."""
    if is_torch(x):
        import torch

        return torch.as_tensor(values).to(dtype=x.dtype).to(device=x.device)
    return values.astype(x.dtype)


def product(a: Array, b: Array) -> Array:
    """Return a [N, d] times b [K, d], transposed, in float32 or better; for tensors in the better of their dtypes."""
    a, b = widen(a), widen(b)
    if is_torch(a) and a.dtype != b.dtype:
        import torch

        dtype = torch.promote_types(a.dtype, b.dtype)
        a, b = a.to(dtype), b.to(dtype)
    return a @ b.T


def narrow(x: Array, to: Array) -> Array:
    """Return x in the dtype of `to`."""
    return x.to(to.dtype) if is_torch(x) else x.astype(to.dtype, copy=False)


def scale_rows(x: Array, factors: np.ndarray) -> Array:
    """Return row i of x [K, ...] times factors[i], computed in float32 or better, in x's dtype."""
    wide = widen(x)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller names the class whose values do not fit
        return narrow(wide * like(factors, wide).reshape(-1, *[1] * (x.ndim - 1)), x)


def row_norms(x: Array) -> Array:
    """Return the length of each row of x [K, d], in float32 or better."""
    with np.errstate(over="ignore"):
        return widen(x).norm(dim=1) if is_torch(x) else np.linalg.norm(widen(x), axis=1)


def to_plain(record: Any) -> dict[str, Any]:
    """Return a dataclass as a dict that JSON can hold: arrays become lists."""
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in asdict(record).items()}


def usable_cores() -> int:
    """Return how many cores this process may use: fewer than there are if it is bound to some of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Scratch(threading.local):
    """Tables that a thread uses again and again, by name: fresh memory costs more than what is done with it."""

    def __init__(self) -> None:  # called once in each thread
        self.tables: dict[str, np.ndarray] = {}

    def table(self, name: str, shape: tuple[int, ...], kind: type | np.dtype = np.float64) -> np.ndarray:
        """Return an array of that shape, with whatever it holds; the one of the same name before is lost."""
        size, known = math.prod(shape), self.tables.get(name)
        if known is None or len(known) < size or known.dtype != kind:
            known = self.tables[name] = np.empty(size, kind)
        return known[:size].reshape(shape)


SCRATCH = _Scratch()
