"""What numpy and torch do differently; logits checked, and their probabilities."""

import math
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from .columns import number_order, titles_of
from .errors import Advice, LevelheadError, check_choice
from .types import Kind

Array = Any  # a numpy array or a torch tensor
_PERCENTAGES = "got what looks like percentages: rows from 0 to 100 that sum to 100"
LARGEST_PROBABILITY = 1 + 1e-3  # a softmax in half precision rounds up


def is_torch(x: Array) -> bool:
    """Return whether x is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def are_on_gpu(parts: Sequence[Any]) -> bool:
    """Return whether these, of which there are some, are all tensors of CUDA."""
    return len(parts) > 0 and all(is_torch(part) and part.is_cuda for part in parts)


def to_numpy(x: Array) -> np.ndarray:
    """Return the values of x on the host.

    Half-precision tensors are widened to float32 (numpy has no bfloat16), and columns of a data
    frame that are numbered are put in the order of their numbers.
    """
    if is_torch(x):
        x = x.detach().cpu()
        return (x.float() if x.is_floating_point() and x.element_size() < 4 else x).numpy()
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
    titles = titles_of(x)
    if titles is None or values.ndim != 2:
        return values
    order = number_order(titles)
    if order is None:
        return values
    return np.ascontiguousarray(values[:, order])


def _refuse_containers(x: Any) -> None:
    """Raise LevelheadError for what holds an array, and is none for numpy."""
    if hasattr(x, "toarray") and hasattr(x, "nnz"):
        raise LevelheadError("expected an array, got a sparse matrix; pass x.toarray()")
    if isinstance(x, Mapping):
        keys = " or ".join(f"x[{key!r}]" for key in list(x)[:3])
        raise LevelheadError(f"expected an array, got a mapping; pass {keys or 'an array'}")


def as_array(x: Array) -> Array:
    """Return a tensor or a memory-mapped file as it is, and anything else that holds numbers as a numpy array."""
    if is_torch(x) or isinstance(x, np.memmap):
        return x
    return to_numpy(x)


def check_finite_rows(values: np.ndarray, first: int = 0) -> None:
    """Check that logits [n, K] are finite. Rows are numbered from `first` in the message."""
    with np.errstate(over="ignore", invalid="ignore"):
        # Twice as fast as values.sum(), which rounds better.
        if np.isfinite(np.einsum("ij->", values)):
            return
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():  # a sum may overflow
        raise not_finite(first + int(np.argmin(finite)))


def lower_masked(values: np.ndarray, first: int = 0) -> np.ndarray:
    """Return logits [n, K], checked as by `check_finite_rows`, but that -inf, a masked score, is the lowest number."""
    try:
        check_finite_rows(values, first)
    except LevelheadError:
        masked = np.isneginf(values)
        # Where all are, no class is left.
        refused = (~np.isfinite(values) & ~masked).any(axis=1) | masked.all(axis=1)
        if refused.any():
            raise not_finite(first + int(np.argmax(refused))) from None
        wide = widen(values)
        return np.where(masked, np.finfo(wide.dtype).min, wide)
    return values


def not_finite(row: int) -> LevelheadError:
    """Return the error for logits that are not finite, first in a row."""
    first = f"the logits hold NaN or infinite values, first in row {row}"
    return LevelheadError(f"{first}; leave such rows out, or compute them in float32")


class CheckedLogits(np.ndarray):
    """Logits [N, K] in memory that are checked already, by whoever made this view of them."""


def read_logits(logits: Array, kind: Kind = "logits") -> np.ndarray:
    """Return logits [N, K] in memory, checked unless they are already."""
    if isinstance(logits, CheckedLogits):
        return np.asarray(logits)
    return check_logits(to_numpy(logits), kind=kind)


def check_logits(logits: Array, *, kind: Kind = "logits", first: int = 0) -> np.ndarray:
    """Return logits [N, K], checked: floats, finite but for -inf, which masks. Probabilities become their logarithms.

    Args:
        logits, kind: [N, K]; what they are: probabilities given as `logits` are refused.
        first: the number of their first row, for messages, where they are part of a larger array.
    """
    check_choice("kind", kind, ("logits", "probabilities"))
    values = numeric_logits(logits)
    values = lower_masked(values if values.dtype.kind == "f" else values.astype(np.float64), first)
    if kind == "probabilities":
        for at in np.flatnonzero(((values < 0) | (values > LARGEST_PROBABILITY)).any(axis=1))[:1]:
            refuse_percentages(values)
            if values[at].min() < 0:
                worst = values[at].min()
            else:
                worst = values[at].max()
            outside = f"expected probabilities, from 0 to 1, got {worst:g} in row {first + at}"
            raise LevelheadError(outside, advice=Advice("kind", "logits", "if these are logits"))
        return np.log(np.maximum(values, np.finfo(values.dtype).tiny))
    if look_like_percentages(values):
        advice = Advice("kind", "probabilities", "after dividing them by 100")
        raise LevelheadError(f"expected logits, {_PERCENTAGES}", advice=advice)
    if looks_like_probabilities(values):
        got = "got what looks like probabilities: rows in [0, 1] that sum to 1"
        advice = Advice("kind", "probabilities", "with the rule shift, which uses their logarithms")
        raise LevelheadError(
            f"expected logits, {got}; save the values before the softmax", advice=advice
        )
    return values


def check_shape(shape: Sequence[int], labels: int | None = None) -> None:
    """Check that logits [N, K] have at least one sample and two classes.

    Args:
        shape, labels: of the logits; how many there are: logits of as many columns, and not as many rows, are refused.
    """
    if len(shape) != 2 or shape[0] < 1 or shape[1] < 2:
        one = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
        aside = ""
        if one:
            aside = "; for one score z per sample, stack (0, z) and use the rule shift"
        size = "[N, K] of at least 1 sample and 2 classes"
        raise LevelheadError(f"expected logits {size}, got shape {list(shape)}{aside}")
    if labels == shape[1] != shape[0]:
        got = f"got shape {list(shape)} and {labels} labels"
        raise LevelheadError(
            f"expected logits [N, K], one row per label, {got}; transpose the logits"
        )


def check_columns(logits: Array, classes: int, parameter: str, *, least: int = 0) -> None:
    """Check that other logits than those tuned on have a column for each class."""
    if logits.ndim != 2 or logits.shape[1] != classes or len(logits) < least:
        raise LevelheadError(
            f"expected logits [M, {classes}], got shape {list(logits.shape)}", parameter=parameter
        )


def looks_like_probabilities(values: np.ndarray, sample: int = 1000) -> bool:
    """Return whether rows lie within [0, 1] and each sum to 1, as after a softmax."""
    some = np.asarray(values[:sample], np.float64)
    return bool(
        (some >= 0).all() and (some <= 1).all() and np.allclose(some.sum(axis=1), 1, atol=2e-3)
    )


def look_like_percentages(values: Array, sample: int = 1000) -> bool:
    """Return whether rows lie within 0 and 100 and each sum to 100, to rounding."""
    some = to_numpy(values[:sample]).astype(np.float64)
    if some.ndim != 2 or not len(some) or not ((some >= 0).all() and (some <= 100).all()):
        return False
    off = 2.0 if (some == np.floor(some)).all() else 0.2
    return bool((np.abs(some.sum(axis=1) - 100) <= off).all())


def refuse_percentages(values: Array) -> None:
    """Raise LevelheadError if what should be probabilities are percentages."""
    if look_like_percentages(values):
        raise LevelheadError(f"expected probabilities, {_PERCENTAGES}; divide them by 100")


def numeric_logits(logits: Array) -> np.ndarray:
    """Return logits [N, K], checked to be numbers and of that shape."""
    values = to_numpy(logits)
    check_shape(values.shape)
    if values.dtype.kind not in "fiu":
        raise LevelheadError(f"expected logits as floating-point numbers, got {described(values)}")
    return values


def described(x: np.ndarray) -> str:
    """Return what an array holds, for a message: a dtype, with the first fraction where one is, or 'text'."""
    if x.dtype.kind == "f" and x.ndim == 1 and (x != np.floor(x)).any():
        at = int(np.argmax(x != np.floor(x)))
        return f"{x.dtype} ({x[at]:g} at position {at})"
    return {"U": "text", "S": "text", "O": "Python objects"}.get(x.dtype.kind, str(x.dtype))


def widen(x: Array) -> Array:
    """Return x in float32 or better."""
    if is_torch(x):
        if x.is_floating_point() and x.element_size() >= 4:
            return x
        return x.float()
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
    if is_torch(a) and a.dtype != b.dtype:  # one of them is float64
        a, b = a.double(), b.double()
    return a @ b.T


def narrow(x: Array, to: Array) -> Array:
    """Return x in the dtype of `to`."""
    if is_torch(x):
        return x.to(to.dtype)
    return x.astype(to.dtype, copy=False)


def scale_rows(x: Array, factors: np.ndarray) -> Array:
    """Return row i of x [K, ...] times factors[i], computed in float32 or better, in x's dtype."""
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


def to_plain(record: Any) -> dict[str, Any]:
    """Return a dataclass as a dict that JSON can hold: arrays and tuples become lists, in records inside it too."""
    return {key: _plain_value(value) for key, value in asdict(record).items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain_value(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return value


def usable_cores() -> int:
    """Return how many cores this process may use: fewer than there are if it is bound to some of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def few_threads() -> int:
    """Return how many threads to share small work between: more of them wait for Python's lock most of the time."""
    return min(4, usable_cores())  # on 16 cores, `tune` takes a tenth longer with 16 than with 4


class _Scratch(threading.local):
    """Tables that a thread uses again and again, by name: fresh memory costs more than what is done with it."""

    def __init__(self) -> None:  # called once in each thread
        self.tables: dict[str, np.ndarray] = {}

    def table(
        self, name: str, shape: tuple[int, ...], kind: type | np.dtype = np.float64
    ) -> np.ndarray:
        """Return an array of that shape, with whatever it holds; the one of the same name before is lost."""
        size = math.prod(shape)
        known = self.tables.get(name)
        if known is None or len(known) < size or known.dtype != kind:
            known = self.tables[name] = np.empty(size, kind)
        return known[:size].reshape(shape)


SCRATCH = _Scratch()


def log_softmax(logits: Array) -> np.ndarray:
    """Return log-probabilities [N, K], in float64."""
    scores = to_numpy(logits).astype(np.float64)
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def are_log_probabilities(logits: Array) -> bool:
    """Return whether scores [N, K] are logarithms of probabilities, whose sums are 1; 1000 rows are looked at.

    >>> are_log_probabilities(np.log([[0.7, 0.3], [0.5, 0.5]])), are_log_probabilities(np.array([[2.0, 1.0]]))
    (True, False)
    """
    most = max(10, min(1000, 4_000_000 // logits.shape[1]))  # some millions of numbers at most
    for few in (10, most):  # most often, a few rows tell
        some = to_numpy(logits[:few])
        if some.dtype.kind not in "fiu":  # `check_logits` says what is wrong with them
            return False
        some = some.astype(np.float64)
        possible = len(some) and (some <= LARGEST_PROBABILITY - 1).all()
        if not (possible and (np.abs(np.exp(some).sum(axis=1) - 1) < 0.02).all()):
            return False
    return True


def raise_masked(logits: np.ndarray) -> np.ndarray:
    """Return logits [N, K] without scores far below any that matter, as masks are: they would set the scale."""
    # Where one is 10^4 times further below the largest of its row than is usual, those 10 times further are raised to
    # that. They win nowhere, before or after. The usual is a median, sorted out only where it may be so small.
    step = max(1, len(logits) // 1000)
    with np.errstate(over="ignore"):
        largest = logits.max(axis=1, keepdims=True).astype(np.float64)
        widest = float((largest - logits.min(axis=1, keepdims=True)).max(initial=0.0))
        few = largest[::step] - logits[::step]
        if 3 * np.count_nonzero(few <= 2e-4 * widest) < few.size - 3:
            return logits
        few = few[few > 0]  # the largest of each row is not below itself
        if not len(few) or widest <= 1e4 * (usual := float(np.median(few))):
            return logits
        return largest - np.minimum(largest - logits, 10 * usual)
