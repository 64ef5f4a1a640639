"""A head: the last linear layer of a classifier, as a value; what its norms say, and what rounding can change.

`Head` holds weights [K, d] and a bias [K], in numpy or torch, in any floating type. Whoever reads one from a
module or a file makes this value, and whoever changes one returns a new one. The functions after it answer
what is asked of a head before it is changed: whether its norms follow the counts, whether scaling can change
a prediction at all, and how many predictions rounding could change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..support.arrays import Array, is_torch, narrow, product, row_norms, to_numpy, widen
from ..support.errors import LevelheadError, check_choice
from ..support.warnings import CountsWarning, LevelheadWarning, NormWarning
from .class_names import title

# The largest relative error of rounding to each type: half the distance of 1 to the next number.
_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


@dataclass(frozen=True, eq=False)
class Head:
    """The class weight vectors of a classifier, wherever they came from.

    Args:
        weight: [K, d], row k is the weight vector of class k; numpy or torch, any floating dtype. Two
            classes may share one row, [1, d], whose logit is that of the second.
        bias: [K] or None.
        names: the K class names, where they are known.

    >>> Head(np.array([[3.0, 4.0], [0.0, 1.0]])).norms
    array([5., 1.])
    """

    weight: Array
    bias: Array | None = None
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
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
        """K, the number of classes."""
        return self.weight.shape[0]

    @property
    def norms(self) -> Array:
        """Length of each weight vector, [K], in float32 or better."""
        return row_norms(self.weight)

    def logits(self, features: Array) -> Array:
        """Return the logits [N, K] of features [N, d], in float32 or better.

        Args:
            features: what the head takes, numpy or torch as the weight is.
        """
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

        Args:
            where: what to call the head in the message.
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
                class_is_finite = to_numpy(finite).reshape(self.classes, -1).all(axis=1)
                name = self.name(int(np.argmin(class_is_finite)))
                raise LevelheadError(f"{where} has NaN or infinite {part} values in {name}{advice}")
        return self

    def numpy(self) -> Head:
        """Return the same head in numpy, half precision widened to float32."""
        bias = self.bias
        if bias is not None:
            bias = to_numpy(bias)
        return replace(self, weight=to_numpy(self.weight), bias=bias)


def check_finite(head: Head, where: str = "the head", *, advice: str = "") -> Head:
    """Return the head; raise LevelheadError if it is not one, or if it is not `checked`."""
    if not isinstance(head, Head):
        instead = "Head(weight, bias) makes one from arrays"
        instead += ", and levelhead.rescale_ finds and scales that of a torch model"
        raise LevelheadError(f"expected a Head, got {type(head).__name__}; {instead}")
    return head.checked(where, advice=advice)


def norm_follows_count(head: Head, counts: np.ndarray) -> float:
    """Return Spearman's correlation of a head's norms with counts [K].

    It is high after plain training by SGD, where frequent classes have long vectors, and NaN if all
    of either are equal, as norms are after WVN.
    """
    norms = to_numpy(head.norms)
    # Norms that differ by rounding alone are equal.
    if counts.min() == counts.max() or np.ptp(norms) <= 1e-4 * norms.max():
        return float("nan")
    return rank_correlation(norms, counts)


def doubts_of_head(head: Head, counts: np.ndarray) -> Iterator[LevelheadWarning]:
    """Yield what speaks against scaling a head by counts [K], as the head alone shows it."""
    correlation = norm_follows_count(head, counts)
    if correlation < 0.2:
        seen = "weight norms do not follow the counts"
        seen += f" (rank correlation {correlation:.2f}; typical of Adam)"
        yield NormWarning(
            f"{seen}: scaling by counts may not be what this head needs; compare with the rule shift"
        )
    if counts.min() == counts.max():
        yield CountsWarning("the counts are all equal: rescaling by them changes nothing")


def rank_correlation(a: Array, b: Array) -> float:
    """Return Spearman's correlation of two vectors; NaN if either has equal values only.

    Equal values share the mean of their ranks.

    >>> rank_correlation(np.array([1, 2, 3]), np.array([10, 1000, 100]))
    0.5
    """
    ranks_a = _ranks(to_numpy(a))
    ranks_b = _ranks(to_numpy(b))
    if np.ptp(ranks_a) == 0 or np.ptp(ranks_b) == 0:
        return float("nan")
    return float(np.round(np.corrcoef(ranks_a, ranks_b)[0, 1], 12))


def rounding_flips(
    logits: Array,
    by: np.ndarray,
    dtype: object,
    *,
    head: Head | None = None,
    features: Array | None = None,
) -> int:
    """Count the predictions that could flip because scaled weights are rounded to a type.

    Rounding moves a scaled weight by at most u of its size (u = 2^-11 in float16, 2^-8 in bfloat16),
    and not at all if its factor is a power of two. So logit i of x moves by at most
    ``u f_i sum_k |w_ik x_k|``, and a prediction is safe if the largest logit leads every other by more
    than the two can move.

    Args:
        logits: [N, K] of the head as it is.
        by: [K], the factors f.
        dtype: what the weights are kept in, of numpy or torch, or its name.
        head, features: the head and [N, d], for the sum above. Without them ``|l_i|`` stands for it:
            an estimate, which is a bound only where no terms cancel.
    """
    name = str(dtype).removeprefix("torch.")
    if isinstance(dtype, np.dtype | type):
        name = np.dtype(dtype).name
    check_choice("dtype", name, _ROUNDOFF)
    scores = to_numpy(logits).astype(np.float64)
    if scores.ndim != 2 or scores.shape[1] != len(by):
        raise LevelheadError(
            f"expected logits [N, {len(by)}], one column per class, got shape {list(scores.shape)}"
        )

    # How far each logit can move, [N, K].
    size = np.abs(scores)
    if head is not None and features is not None:
        wide = head.numpy()
        size = np.abs(to_numpy(features)) @ np.abs(wide.weight).T
        if wide.bias is not None:
            size = size + np.abs(wide.bias)
    is_power_of_two = np.frexp(by)[0] == 0.5
    reach = _ROUNDOFF[name] * size * np.where(is_power_of_two, 0.0, by)

    # Which of the others come within reach of the largest.
    scores = scores * by
    top = scores.argmax(axis=1)[:, None]
    room = reach + np.take_along_axis(reach, top, axis=1)
    close = (np.take_along_axis(scores, top, axis=1) - scores <= room) & (room > 0)
    np.put_along_axis(close, top, False, axis=1)
    return int(close.any(axis=1).sum())


def _ranks(x: np.ndarray) -> np.ndarray:
    """Return the ranks of values, from 1; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


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


def positive_norms(head: Head) -> np.ndarray:
    """Return the norms [K] of a head; raise LevelheadError if a weight vector has no direction."""
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

    >>> normalize(Head(np.array([[3.0, 4.0], [0.0, 2.0]]))).weight
    array([[0.6, 0.8],
           [0. , 1. ]])

    Reference: Kim and Kim, 2020, Algorithm 1.
    """
    positive_norms(check_finite(head))
    return replace(head, weight=unit(head.weight))


def unit(weight: Array) -> Array:
    """Return weight [K, d] with rows of unit length.

    Nothing is checked and no device has to wait: this is done after every training step.
    """
    wide = widen(weight)
    return narrow(wide / row_norms(wide)[:, None], weight)


def can_flip(head: Head) -> bool:
    """Return whether scaling rows can change any prediction: not with one class, or two with opposite rows.

    Logits (-z, cz) with c > 0 keep their signs under positive factors, so the larger stays the larger.
    """
    if head.classes > 2:
        return True
    rows = to_numpy(widen(head.weight)).astype(np.float64)
    if head.bias is not None:
        rows = np.column_stack([rows, to_numpy(widen(head.bias))])
    inner = float(rows[0] @ rows[-1])
    lengths = np.linalg.norm(rows, axis=1)
    return head.classes == 2 and not inner <= -(1 - 1e-6) * float(lengths[0] * lengths[1])
