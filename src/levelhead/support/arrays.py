"""What numpy and torch do differently; logits checked, their probabilities, and a temperature that calibrates them."""

import math
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .errors import Advice, LevelheadError, check_choice
from .types import Kind

Array = Any  # a numpy array or a torch tensor
LARGEST_PROBABILITY = 1 + 1e-3  # a softmax in half precision rounds up


def is_torch(x: Array) -> bool:
    """Return whether x is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def are_on_gpu(parts: Sequence[Any]) -> bool:
    """Return whether these, of which there are some, are all tensors of CUDA."""
    return len(parts) > 0 and all(is_torch(part) and part.is_cuda for part in parts)


def to_numpy(x: Array) -> np.ndarray:
    """Return the values of x on the host, half-precision tensors widened to float32 (numpy has no bfloat16)."""
    if is_torch(x):
        x = x.detach().cpu()
        return (x.float() if x.is_floating_point() and x.element_size() < 4 else x).numpy()
    if np.ma.is_masked(x):
        raise LevelheadError(
            "some values are masked, and would be used all the same; fill them or leave them out"
        )
    try:
        return np.asarray(x)
    except ValueError:
        raise LevelheadError(
            "expected an array of one shape, got rows of different lengths"
        ) from None


def as_array(x: Array) -> Array:
    """Return a tensor or a memory-mapped file as it is, and anything else that holds numbers as a numpy array."""
    return x if is_torch(x) or isinstance(x, np.memmap) else to_numpy(x)


def check_finite_rows(values: np.ndarray, first: int = 0) -> None:
    """Check that logits [n, K] are finite. Rows are numbered from `first` in the message."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(
            np.einsum("ij->", values)
        ):  # twice as fast as values.sum(), which rounds better
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
        refused = (~np.isfinite(values) & ~masked).any(axis=1) | masked.all(
            axis=1
        )  # where all are, no class is left
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
    return (
        np.asarray(logits)
        if isinstance(logits, CheckedLogits)
        else check_logits(to_numpy(logits), kind=kind)
    )


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
            worst = values[at].min() if values[at].min() < 0 else values[at].max()
            outside = f"expected probabilities, from 0 to 1, got {worst:g} in row {first + at}"
            raise LevelheadError(outside, advice=Advice("kind", "logits", "if these are logits"))
        return np.log(np.maximum(values, np.finfo(values.dtype).tiny))
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
        aside = "; for one score z per sample, stack (0, z) and use the rule shift" if one else ""
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
        return x if x.is_floating_point() and x.element_size() >= 4 else x.float()
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
    return x.to(to.dtype) if is_torch(x) else x.astype(to.dtype, copy=False)


def scale_rows(x: Array, factors: np.ndarray) -> Array:
    """Return row i of x [K, ...] times factors[i], computed in float32 or better, in x's dtype."""
    wide = widen(x)
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # the caller names the class whose values do not fit
        return narrow(wide * like(factors, wide).reshape(-1, *[1] * (x.ndim - 1)), x)


def row_norms(x: Array) -> Array:
    """Return the length of each row of x [K, d], in float32 or better."""
    with np.errstate(over="ignore"):
        return widen(x).norm(dim=1) if is_torch(x) else np.linalg.norm(widen(x), axis=1)


def to_plain(record: Any) -> dict[str, Any]:
    """Return a dataclass as a dict that JSON can hold: arrays and tuples become lists."""
    found = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in asdict(record).items()
    }
    return {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in found.items()
    }


def usable_cores() -> int:
    """Return how many cores this process may use: fewer than there are if it is bound to some of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        size, known = math.prod(shape), self.tables.get(name)
        if known is None or len(known) < size or known.dtype != kind:
            known = self.tables[name] = np.empty(size, kind)
        return known[:size].reshape(shape)


SCRATCH = _Scratch()
_MOST_ROWS, _MOST_NUMBERS = (
    20_000,
    1 << 21,
)  # that a temperature is fitted on: its error is then below any choice's
_LEAST_ROWS, _FIRST_ROWS = 200, 120
_BLOCK = 1 << 15  # numbers that fit in the cache
_FEW_BLOCKS = 4  # that are not worth threads
_POWERS = np.arange(1, 6)  # of the series of a derivative
_Fit = tuple[
    Any, np.ndarray, np.ndarray, Any
]  # logits [N, K], those of the labels and weights, [N] each; offset


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Logits [N, K] of which only some rows are kept. Where all of them are needed, it raises LevelheadError."""

    rows: np.ndarray  # [m], ascending, those that a temperature is fitted on; all, if there are few
    values: np.ndarray  # [m, K], their logits
    winners: np.ndarray  # [N], the class of the largest logit of every row
    true: np.ndarray  # [N], the logit of its own class

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return len(self.winners), self.values.shape[1]

    def __len__(self) -> int:
        return len(self.winners)

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, tuple):  # (rows, labels)
            return self.true
        if isinstance(index, slice) and index.start is None and index.step is None:
            return self.values[: index.stop]
        return self.__array__()

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise LevelheadError(
            "this needs all logits at once, and they were read in chunks and not kept"
        )


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
        some = to_numpy(logits[:few]).astype(np.float64)
        possible = len(some) and (some <= LARGEST_PROBABILITY - 1).all()
        if not (possible and (np.abs(np.exp(some).sum(axis=1) - 1) < 0.02).all()):
            return False
    return True


def fit_scale(logits: Array, labels: np.ndarray, weights: np.ndarray, offset: Array = 0.0) -> float:
    """Return the T at which ``logits / T + offset`` has the least weighted log loss, on the device of the logits."""
    # With ``z = logits / T`` calibrated, a model trained on counts n needs ``z_k + log(prior_k / n_k)`` where classes
    # occur as the prior says. That is a shift of the raw logits by T, whatever their units.
    if is_torch(logits) and not _is_usual(logits):
        logits = read_logits(logits)
    if is_torch(logits):
        values = widen(logits)
        values = values - values.mean(1, keepdim=True)
        spread = float(values.square().mean().sqrt())
    else:
        logits = raise_masked(
            np.ascontiguousarray(logits)
        )  # sums are then the same, however the numbers lie
        # What float32 rounds is some millionths of T, and T is known to a hundredth.
        kind = np.float32 if logits.dtype == np.float32 else np.float64
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.subtract(
                logits,
                logits.mean(axis=1, dtype=np.float64, keepdims=True).astype(kind),
                dtype=kind,
            )
            spread = float(np.sqrt(np.vdot(values, values) / values.size))
    # Squares of huge or tiny numbers overflow or vanish: a power of two is taken out, which changes no digit.
    spread = spread or float(abs(values).max()) or 1.0
    if not 1e-10 < spread < 1e15:
        largest = float(abs(values).max())
        unit = 2.0 ** (round(np.log2(largest)) if np.isfinite(largest) else 1000)
        return unit * fit_scale(to_numpy(logits).astype(np.float64) / unit, labels, weights, offset)
    inverse, own, added = (
        1 / spread,
        to_numpy(values[np.arange(len(labels)), labels]),
        like(np.asarray(offset), values),
    )
    # Of many rows, a few tell nearly as much, and eight times as many begin where these have led.
    levels = int(np.log2(max(1, len(labels) / _FIRST_ROWS)) / 3)
    for few in (slice(None, None, 8**level) for level in range(levels, 0, -1)):
        if weights[few].any():
            fit = values[few], own[few], weights[few], added[few] if added.ndim == 2 else added
            inverse = _minimize(fit, inverse, spread, 5e-3)
    return 1 / _minimize(
        (values, own, weights, added), inverse, spread, 1e-9 if values.itemsize > 4 else 1e-6
    )


def _is_usual(logits: Any) -> bool:
    """Return whether `raise_masked` would change nothing of a tensor."""
    largest, step = logits.amax(1, keepdim=True), max(1, len(logits) // 1000)
    widest, few = (largest - logits.amin(1, keepdim=True)).max(), largest[::step] - logits[::step]
    return bool(widest.isfinite() & (3 * (few <= 2e-4 * widest).sum() < few.numel() - 3))


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


def most_rows(classes: int) -> int:
    """Return how many rows are enough."""
    return min(_MOST_ROWS, max(_LEAST_ROWS, _MOST_NUMBERS // classes))


def pick_rows(n: int, classes: int) -> np.ndarray:
    """Return the rows of logits [n, K] that a temperature is fitted on, ascending: all, or a sample of many."""
    if n <= (most := most_rows(classes)):
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def some_rows(
    logits: Array, labels: np.ndarray, *, kind: Kind = "logits"
) -> tuple[Array, np.ndarray, np.ndarray]:
    """Return logits [n, K] and labels [n] of all samples or, of many, as many as are enough; and their rows, [n]."""
    if isinstance(logits, KeptRows):
        rows, some = logits.rows, logits.values
    else:
        rows = pick_rows(*logits.shape)
        some = logits[rows] if len(rows) < len(labels) else logits
    tensor: Any = some if is_torch(some) and kind == "logits" else None  # its path has checked it
    stays = tensor is not None and tensor.is_cuda and tensor.is_floating_point()
    return tensor if stays else read_logits(some, kind), labels[rows], rows


def _minimize(fit: _Fit, start: float, spread: float, enough: float) -> float:
    """Return the 1 / T of least loss, by steps till what they leave is less than `enough` of it."""
    # The steps stay within a bracket, which is halved (in logarithms) where a step leaves it.
    least, most = 0.02 / spread, 50 / spread
    low, high, inverse = least, most, start
    for _ in range(100):
        series = _slopes(fit, inverse)
        slope, bend = map(float, series[:2])
        if (inverse == most and slope <= 0) or (inverse == least and slope >= 0):
            break
        low, high = (
            (low, np.nextafter(inverse, 0)) if slope > 0 else (np.nextafter(inverse, np.inf), high)
        )
        step = -slope / bend if bend > 0 else np.inf if slope < 0 else -1.0
        sure = (
            bend > 1e-6 * (spread * inverse) ** 2 * fit[2].sum()
        )  # by the weights, and not rounding alone
        near = sure and abs(step) < 0.2
        if near:  # from Newton's step on to the zero of the whole series: what it leaves is about its last term
            for _ in range(5):
                step -= np.polyval(series[::-1], step) / np.polyval(
                    (series[1:] * _POWERS)[::-1], step
                )
            near = abs(series[-1] * step ** len(_POWERS)) <= enough * bend
        inverse, before = float(inverse * (1 + step)), inverse
        if not near and not low < inverse < high:
            untried = (inverse >= high == most) or (inverse <= low == least)
            inverse = (most if slope < 0 else least) if untried else math.sqrt(low * high)
        if near or abs(inverse - before) <= enough * before:
            break
    return inverse


@np.errstate(
    over="ignore", invalid="ignore"
)  # of high powers, without which a step is found as well
def _slopes(fit: _Fit, inverse: float) -> np.ndarray:
    """Return the series of the weighted log loss's derivative by t, where 1 / T is `inverse` times 1 + t."""
    values, own, weights, offset = fit
    moments = (_moments_on_device if is_torch(values) else _moments)(values, offset, inverse)
    # The derivatives of the logarithm of a sum of exponentials are the cumulants, which follow from the moments.
    found: list[np.ndarray] = []
    for n, each in enumerate(moments):
        found.append(each - sum(math.comb(n, i) * found[i] * moments[n - 1 - i] for i in range(n)))
    found[0] = found[0] - inverse * own.astype(np.float64)
    return np.array([weights @ each / math.factorial(i) for i, each in enumerate(found)])


def _moments_on_device(values: Any, offset: Any, inverse: float) -> np.ndarray:
    """Return what `_moments` does of tensors."""
    part = values * inverse
    scores = part + offset
    scores = (scores - scores.amax(1, keepdim=True)).exp_()
    total = scores.sum(1)
    found = total.double().repeat(len(_POWERS) + 1, 1)
    for each in found:
        scores *= part
        each.copy_(scores.sum(1) / total)
    return to_numpy(found)


def _moments(values: np.ndarray, offset: np.ndarray, inverse: float) -> np.ndarray:
    """Return the first moments of a row's logits, by the softmax of ``inverse * logits + offset``, [., N]."""
    step, moments = max(1, _BLOCK // values.shape[1]), np.empty((len(_POWERS) + 1, len(values)))

    @np.errstate(over="ignore", invalid="ignore")
    def look(firsts: range) -> None:
        for first in firsts:
            rows = slice(first, first + step)
            part = values[rows] * inverse
            scores = SCRATCH.table("scores" + part.dtype.name, part.shape, part.dtype)
            np.add(part, offset[rows] if offset.ndim == 2 else offset, out=scores)
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            total = scores.sum(axis=1)
            for each in moments[:, rows]:
                each[:] = np.einsum("ik,ik->i", scores, part) / total
                scores *= part

    firsts = range(0, len(values), step)
    if len(firsts) <= _FEW_BLOCKS:
        look(firsts)
    else:
        with ThreadPoolExecutor(few_threads()) as pool:
            list(pool.map(look, (firsts[i :: few_threads()] for i in range(few_threads()))))
    return moments
