"""What is asked of a `Head` before it is changed: do norms follow counts, can scaling or rounding flip anything.

Three questions, each answered from the head (and sometimes logits) alone:

- `norm_follows_count`: RS multiplies weight vectors by how rare their class is, which is right where plain
  training has left rare classes with short vectors. `doubts_of_head` says so in a warning where it has not.
- `can_flip`: a binary head whose two rows are opposite predicts the same whatever its rows are multiplied by.
- `rounding_flips`: scaled weights are stored in the head's own type. In float16 and bfloat16 that rounds, and
  predictions that were nearly ties may flip by rounding alone. `bias_flips` is the same for what is added.

`heads.apply` asks the last two when it changes a head, `files.inspect` and the doubts of `tune` the first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..support.arrays import Array, to_numpy, widen
from ..support.errors import LevelheadError, check_choice
from ..support.warnings import CountsWarning, LevelheadWarning, NormWarning
from .head import Head

# The largest relative error of rounding to each type: half the distance of 1 to the next number.
_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def norm_follows_count(head: Head, counts: np.ndarray) -> float:
    """Return Spearman's correlation of a head's norms with counts [K].

    It is high after plain training by SGD, where frequent classes have long vectors: that is the
    finding of the paper that RS undoes. By ranks, as norms grow with counts, but not in proportion.

    Returns:
        From -1 to 1; NaN if all norms are equal, as after WVN, or all counts.
    """
    norms = to_numpy(head.norms)
    # Norms that differ by rounding alone are equal.
    if counts.min() == counts.max() or np.ptp(norms) <= 1e-4 * norms.max():
        return float("nan")
    return rank_correlation(norms, counts)


def doubts_of_head(head: Head, counts: np.ndarray) -> Iterator[LevelheadWarning]:
    """Yield what speaks against scaling a head by counts [K], as the head alone shows it.

    No samples are needed, so whoever applies RS without `tune` is warned, too. A correlation that is
    not known (NaN) yields nothing.
    """
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

    Equal values share the mean of their ranks, as in `scipy.stats.spearmanr`.

    Args:
        a, b: vectors of the same length.

    >>> rank_correlation(np.array([1, 2, 3]), np.array([10, 1000, 100]))
    0.5
    """
    ranks_a = _ranks(to_numpy(a))
    ranks_b = _ranks(to_numpy(b))
    if np.ptp(ranks_a) == 0 or np.ptp(ranks_b) == 0:
        return float("nan")
    # Rounded, so that a perfect correlation is 1, and not 0.9999999999999998.
    return float(np.round(np.corrcoef(ranks_a, ranks_b)[0, 1], 12))


def _ranks(x: np.ndarray) -> np.ndarray:
    """Return the ranks of values, from 1; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    # A value that occurs c times has ranks up to the running sum, of which the mean is (c - 1) / 2 less.
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def can_flip(head: Head) -> bool:
    """Return whether scaling rows can change any prediction: not with one class, or two with opposite rows.

    Logits (-z, cz) with c > 0 keep their signs under positive factors, so the larger stays the larger.
    A single logit that is written out as two rows is such a head: RS would change its numbers, and
    none of its predictions.

    >>> can_flip(Head(np.array([[-1.0, 2.0], [1.0, -2.0]]))), can_flip(Head(np.eye(2)))
    (False, True)
    """
    if head.classes > 2:
        return True
    rows = to_numpy(widen(head.weight)).astype(np.float64)
    if head.bias is not None:
        # A bias is the weight of a constant feature, and is scaled like one.
        rows = np.column_stack([rows, to_numpy(widen(head.bias))])
    # Opposite rows have a cosine of -1, up to the rounding of trained weights.
    inner = float(rows[0] @ rows[-1])
    lengths = np.linalg.norm(rows, axis=1)
    return head.classes == 2 and not inner <= -(1 - 1e-6) * float(lengths[0] * lengths[1])


def rounding_flips(
    logits: Array,
    by: np.ndarray,
    dtype: object,
    *,
    head: Head | None = None,
    features: Array | None = None,
) -> int:
    """Count the predictions that could flip because scaled weights are rounded to a type.

    What `tune` measured holds for exact products. This tells how many predictions of the stored head
    may differ from that, without making it.

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

    Returns:
        A number of samples, from 0 to N.

    >>> logits = np.array([[1.0, 0.9999], [1.0, 0.5]])  # times (1, 1.0001) nearly a tie in the first row
    >>> rounding_flips(logits, np.array([1.0, 1.0001]), "float16")
    1
    """
    roundoff = _roundoff(dtype)
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
    # frexp writes a number as m 2^e with m from 1/2 on: m is 1/2 for powers of two, which only move the
    # exponent and round nothing.
    is_power_of_two = np.frexp(by)[0] == 0.5
    reach = roundoff * size * np.where(is_power_of_two, 0.0, by)

    # Which of the others come within reach of the largest.
    scores = scores * by
    top = scores.argmax(axis=1)[:, None]
    room = reach + np.take_along_axis(reach, top, axis=1)
    close = (np.take_along_axis(scores, top, axis=1) - scores <= room) & (room > 0)
    np.put_along_axis(close, top, False, axis=1)
    return int(close.any(axis=1).sum())


def bias_flips(
    logits: Array, offset: np.ndarray, bias: np.ndarray, new_bias: np.ndarray, dtype: object
) -> int:
    """Count the predictions that differ because a bias, to which something was added, is rounded.

    Logit k gets ``rounded(new b_k) - b_k`` in the place of its offset. Weights stay as they are, so that
    this is no estimate.

    Args:
        logits: [N, K] of the head as it is.
        offset: [K], what is added.
        bias, new_bias: [K], before and after.
        dtype: what the bias is kept in, as in `rounding_flips`.

    >>> logits = np.array([[1.386, 0.0], [1.38, 0.0]])
    >>> bias = np.array([0.0, 16.0])  # to which bfloat16 adds 1.375 of 1.385
    >>> bias_flips(logits, np.array([0.0, 1.385]), bias, bias + [0, 1.385], "bfloat16")
    1
    """
    scores = to_numpy(logits).astype(np.float64)
    added = rounded(new_bias, dtype) - bias
    return int(((scores + offset).argmax(axis=1) != (scores + added).argmax(axis=1)).sum())


def rounded(values: np.ndarray, dtype: object) -> np.ndarray:
    """Return numbers as a type would keep them, to nearest, ties to even; its range is not looked at.

    Args:
        values: in float64.
        dtype: as in `rounding_flips`.

    >>> rounded(np.array([16.06, 16.07]), "bfloat16")  # which has eight bits: steps of 0.125 from 16 on
    array([16.   , 16.125])
    """
    # A number is m 2^e with m from 1/2 on; rounding moves m by at most half a step of 2 u.
    roundoff = _roundoff(dtype)
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa / roundoff) * roundoff, exponent)


def _roundoff(dtype: object) -> float:
    """Return the largest relative error of rounding to a type, of numpy or torch, or its name."""
    name = str(dtype).removeprefix("torch.")
    if isinstance(dtype, np.dtype | type):
        name = np.dtype(dtype).name
    check_choice("dtype", name, _ROUNDOFF)
    return _ROUNDOFF[name]
