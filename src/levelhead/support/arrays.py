"""What numpy and torch do differently: an array is taken as it comes, and given back as it came.

`to_numpy` brings anything that holds numbers to the host. `like`, `narrow` and `widen` turn values
into another array's kind or precision, so that a function computes in float32 or better and
returns what it was given. Nothing here imports torch: whoever has a tensor has imported it.

The pattern of a function that takes either: ``wide = widen(x)``, arithmetic that both libraries
spell alike (or one of backend.py), ``narrow(result, x)``. Half precision is so a format to store
numbers in, and never one to compute in.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .columns import number_order, titles_of
from .errors import LevelheadError

# A numpy array or a torch tensor. Neither library knows the other's, and torch may not be
# installed, so no type of ours could say more.
Array = Any


def is_torch(x: object) -> bool:
    """Return whether x is a torch tensor.

    Without importing torch: as long as nobody has, nothing can be a tensor.
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def are_on_gpu(parts: Sequence[Array]) -> bool:
    """Return whether all of these are tensors of CUDA; False if there are none."""
    return len(parts) > 0 and all(is_torch(part) and part.is_cuda for part in parts)


def to_numpy(x: Array) -> np.ndarray:
    """Return the values of x on the host, of a data frame in the order of its columns' numbers.

    Where columns are not titled with numbers, they stay as they are.

    Args and raises: as `as_they_stand`.

    >>> to_numpy([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    values = as_they_stand(x)
    titles = titles_of(x)
    if titles is None or values.ndim != 2:
        return values
    order = number_order(titles)
    if order is None:
        return values
    return np.ascontiguousarray(values[:, order])


def as_they_stand(x: Array) -> np.ndarray:
    """Return the values of x on the host, columns of a data frame in the order that they have.

    Half-precision tensors are widened to float32, and so is bfloat16 of JAX and Keras, a type that
    numpy does not take for numbers.

    Args:
        x: an array, a tensor on any device, with or without a gradient, a list of tensors, a data frame,
            nested lists, or anything else that numpy takes.

    Returns:
        The values; of an array or a tensor on the host they may share memory with x.

    Raises:
        LevelheadError: x is sparse, a mapping, partly masked, or has rows of different lengths:
            numpy would make an array of objects of some of these, and drop the mask of another.
    """
    if _are_tensors(x):
        x = _stack(x)
    if is_torch(x):
        _refuse_sparse(x)
        # numpy takes no tensor that is on a device or has a gradient.
        x = x.detach().cpu()
        if x.is_floating_point() and x.element_size() < 4:
            x = x.float()
        return x.numpy()
    _refuse_containers(x)
    if np.ma.is_masked(x):
        raise LevelheadError(
            "some values are masked, and would be used all the same; fill them or leave them out"
        )
    try:
        values = np.asarray(x)
    except ValueError:
        raise LevelheadError(
            "expected an array of one shape, got rows of different lengths"
        ) from None
    except (TypeError, RuntimeError) as error:
        got = f"a {type(x).__name__} that numpy cannot read"
        raise LevelheadError(f"expected an array of numbers, got {got}") from error
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)
    # Of columns that may have missing numbers, pandas makes objects unless it is told otherwise.
    if values.dtype == object and values.ndim == 2:
        kinds = {getattr(dtype, "kind", "O") for dtype in getattr(x, "dtypes", ())}
        if kinds and kinds <= {"f", "i", "u", "b"}:
            values = x.to_numpy(np.float64, na_value=np.nan)
    return values


def _are_tensors(x: object) -> bool:
    """Return whether x is a list or a tuple of tensors."""
    return isinstance(x, list | tuple) and len(x) > 0 and all(map(is_torch, x))


def _stack(tensors: Sequence[Array]) -> Array:
    """Return tensors of one shape as one tensor, [N, ...]."""
    import torch

    try:
        return torch.stack([tensor.detach() for tensor in tensors])
    except RuntimeError:
        expected = "expected tensors of one shape, on one device"
        raise LevelheadError(f"{expected}; stack them first, as by torch.stack") from None


def _refuse_sparse(x: Array) -> None:
    """Raise LevelheadError for a sparse tensor, which has no rows to look at."""
    import torch

    if x.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        raise LevelheadError("expected an array, got a sparse tensor; pass x.to_dense()")


def _refuse_containers(x: Array) -> None:
    """Raise LevelheadError for what holds an array, but is none to numpy.

    A sparse matrix or a dict (what a transformers model returns is one) becomes an array of one
    object, and an error far from here would say so in numpy's words.
    """
    if hasattr(x, "toarray") and hasattr(x, "nnz"):
        raise LevelheadError("expected an array, got a sparse matrix; pass x.toarray()")
    if isinstance(x, Mapping):
        keys = " or ".join(f"x[{key!r}]" for key in list(x)[:3])
        raise LevelheadError(f"expected an array, got a mapping; pass {keys or 'an array'}")


def as_array(x: Array) -> Array:
    """Return a tensor or a memory-mapped file as it is, and anything else as a numpy array.

    What is large stays where it is: on its device, or on the disk.
    """
    if is_torch(x):
        _refuse_sparse(x)
        return x
    if isinstance(x, np.memmap):
        return x
    return to_numpy(x)


def described(x: np.ndarray) -> str:
    """Return what an array holds, for a message.

    Of floats that should be whole, the first that is not.

    >>> described(np.array([1.0, 2.5])), described(np.array(["cat"])), described(np.array([1]))
    ('float64 (2.5 at position 1)', 'text', 'int64')
    """
    if x.dtype.kind == "f" and x.ndim == 1 and (x != np.floor(x)).any():
        at = int(np.argmax(x != np.floor(x)))
        return f"{x.dtype} ({x[at]:g} at position {at})"
    return {"U": "text", "S": "text", "O": "Python objects"}.get(x.dtype.kind, str(x.dtype))


# ---- Precision and kind ------------------------------------------------------------------------


def widen(x: Array) -> Array:
    """Return x in float32 or better.

    Whole numbers become floats: of int64, numpy makes float64 and torch float32.
    """
    if is_torch(x):
        if x.is_floating_point() and x.element_size() >= 4:
            return x
        return x.float()
    return x.astype(np.promote_types(x.dtype, np.float32), copy=False)


def narrow(x: Array, to: Array) -> Array:
    """Return x in the dtype of `to`."""
    if is_torch(x):
        return x.to(to.dtype)
    return x.astype(to.dtype, copy=False)


def like(values: np.ndarray, x: Array) -> Array:
    """Return host values as an array of x's kind, dtype and device.

    The dtype first, while the values are on the host, whatever torch's default device: fewer bytes
    travel, and not every device has float64.
    """
    if is_torch(x):
        import torch

        return torch.as_tensor(values, device="cpu").to(dtype=x.dtype).to(device=x.device)
    return values.astype(x.dtype)


# ---- Rows --------------------------------------------------------------------------------------


def product(a: Array, b: Array) -> Array:
    """Return a [N, d] times b [K, d], transposed: [N, K], in float32 or better.

    Of two tensors, the less precise is widened to the other: torch multiplies only equal dtypes.
    """
    a = widen(a)
    b = widen(b)
    if is_torch(a) and a.dtype != b.dtype:  # one of them is float64
        a = a.double()
        b = b.double()
    return a @ b.T


def move_axis(x: Array, source: int, destination: int) -> Array:
    """Return an array or a tensor with one axis at another place, without a copy."""
    if is_torch(x):
        return x.movedim(source, destination)
    return np.moveaxis(x, source, destination)


def scale_rows(x: Array, factors: np.ndarray) -> Array:
    """Return row i of x [K, ...] times factors[i], computed in float32 or better, in x's dtype.

    Args:
        x: rows to scale; any number of axes may follow the first, as in a convolution.
        factors: [K], one for each row.
    """
    wide = widen(x)
    # The caller names the class whose values do not fit.
    with np.errstate(over="ignore", invalid="ignore"):
        return narrow(wide * like(factors, wide).reshape(-1, *[1] * (x.ndim - 1)), x)


def row_norms(x: Array) -> Array:
    """Return the length of each row of x [K, d], in float32 or better."""
    with np.errstate(over="ignore"):
        if is_torch(x):
            return widen(x).norm(dim=1)
        return np.linalg.norm(widen(x), axis=1)
