"""What can be done to a head: four pure functions Head -> Head, one equation each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .array import Array, is_torch, narrow, row_norms, scale_rows, to_numpy, widen
from .choices import BiasPolicy, Missing, RuleName
from .counts import Counts, resolve
from .errors import LevelheadError
from .head import Head, check_finite

RULES: tuple[RuleName, ...] = ("rescale", "tau", "shift")
RULE_TITLES: dict[RuleName, str] = {"rescale": "RS", "tau": "tau-normalization", "shift": "logit shift"}
_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def factors(counts: Counts, gamma: float, *, missing: Missing = "error") -> np.ndarray:
    """What RS multiplies each weight vector by: ``(n_1 / n_i)^gamma``, [K], float64.

    >>> factors([100, 25, 1], 0.5)
    array([ 1.,  2., 10.])
    """
    n = resolve(counts, missing=missing)
    with np.errstate(over="ignore"):  # a factor that does not fit gives a weight that does not, and that is reported
        return (n.max() / n) ** _finite("gamma", gamma)


def rescale(
    head: Head, counts: Counts, *, gamma: float, bias: BiasPolicy = "scale", missing: Missing = "error"
) -> Head:
    """RS: scale each weight vector by how rare its class is.

    ``w_i <- (n_1 / n_i)^gamma w_i``, with n_1 the largest count.  gamma = 0 changes nothing, nor does a balanced set.

    Args:
        head: weight [K, d] and, where there is one, bias [K].
        counts: training samples of each class, all positive, in any order.
        gamma: strength; larger gives rare classes more of the space.
        bias: `scale` treats it as the weight of a constant feature, so that scaling the head is scaling the logits;
            `keep` leaves it alone.
        missing: what a class with no samples is: an `error`, or `neutral` (left as it is).

    >>> rescale(Head(np.eye(2)), [100, 25], gamma=0.5).norms
    array([1., 2.])

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    n = resolve(counts, check_finite(head).classes, names=head.names, missing=missing)
    return scale(head, factors(n, gamma), bias=bias)


def normalize(head: Head) -> Head:
    """WVN's projection: every weight vector to unit length, its direction kept.

    ``w_i <- w_i / ||w_i||``.  The bias is left alone: Algorithm 1 speaks of weight vectors only.

    >>> normalize(Head(np.array([[3.0, 4.0], [0.0, 2.0]]))).weight
    array([[0.6, 0.8], [0. , 1. ]])

    Reference: Kim and Kim, 2020, Algorithm 1.
    """
    _lengths(check_finite(head))
    return replace(head, weight=unit(head.weight))


def unit(weight: Array) -> Array:
    """The bare equation of WVN on weight [K, d]: no check, no host synchronization, for inside a training step."""
    wide = widen(weight)
    norms = row_norms(wide)
    return narrow(wide / (norms[:, None]), weight)


def tau_normalize(head: Head, tau: float, *, bias: BiasPolicy = "scale") -> Head:
    """Divide each weight vector by a power of its own length: ``w_i <- w_i / ||w_i||^tau``.

    tau = 0 changes nothing, tau = 1 gives unit length.

    >>> tau_normalize(Head(np.array([[3.0, 4.0], [0.0, 1.0]])), 0.5).norms
    array([2.23606798, 1. ])

    Reference: Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, 2020.
    """
    return scale(head, _lengths(check_finite(head)) ** -_finite("tau", tau), bias=bias)


def shift_logits(head: Head, counts: Counts, tau: float = 1.0, *, missing: Missing = "error") -> Head:
    """Post-hoc logit adjustment, as a bias: ``b_i <- b_i + tau log(n_1 / n_i)``.

    The same as subtracting ``tau log(prior_i)`` from every logit, up to one constant for all classes.

    >>> shift_logits(Head(np.eye(2)), [100, 1]).bias
    array([0.        , 4.60517019])

    Reference: Menon et al., Long-tail Learning via Logit Adjustment, 2021.
    """
    check_finite(head)
    n = resolve(counts, head.classes, names=head.names, missing=missing)
    shift = _finite("tau", tau) * np.log(n.max() / n)
    like_bias = head.weight[:, 0] if head.bias is None else head.bias
    wide = widen(like_bias) * 0 if head.bias is None else widen(head.bias)
    moved = scale_rows(wide * 0 + 1, shift) + wide
    return check_finite(replace(head, bias=narrow(moved, like_bias)), "the shifted head")


def scale(head: Head, by: np.ndarray, *, bias: BiasPolicy = "scale") -> Head:
    """Row i of the head times by[i]: what RS and tau-normalization share."""
    if bias not in ("scale", "keep"):
        raise LevelheadError(f"expected bias='scale' or 'keep', got {bias!r}")
    check_finite(head)
    scaled = None if head.bias is None else (scale_rows(head.bias, by) if bias == "scale" else head.bias)
    where = f"the scaled head (in {head.weight.dtype})"
    return check_finite(replace(head, weight=scale_rows(head.weight, by), bias=scaled), where,
                        advice="; use a strength nearer to 0")


def can_flip(head: Head) -> bool:
    """Whether scaling rows can change any prediction: not if there is one class, or two with opposite rows.

    Logits (-z, cz) with c > 0 keep their signs under positive factors, so the larger stays the larger.

    >>> can_flip(Head(np.array([[1.0, 2.0], [-2.0, -4.0]])))
    False
    """
    if head.classes > 2:
        return True
    rows = to_numpy(widen(head.weight)).astype(np.float64)
    if head.bias is not None:
        rows = np.column_stack([rows, to_numpy(widen(head.bias))])
    inner, lengths = float(rows[0] @ rows[-1]), np.linalg.norm(rows, axis=1)
    return head.classes == 2 and not inner <= -(1 - 1e-6) * float(lengths[0] * lengths[1])


def rounding_flips(
    logits: Array, by: np.ndarray, dtype: object, *, head: Head | None = None, features: Array | None = None
) -> int:
    """How many predictions could flip because the scaled weights are rounded to `dtype`.

    Rounding moves a scaled weight by at most u of its size (u = 2^-11 in float16, 2^-8 in bfloat16), not at all if its
    factor is a power of two. So logit i of x moves by at most ``u f_i sum_k |w_ik x_k|``, and a prediction is safe if
    the largest logit leads every other by more than the two can move. Without features the sum is not known and
    ``|l_i| = |sum_k w_ik x_k|`` stands in for it: an estimate, and a bound only where no terms cancel.

    Args:
        logits: [N, K], before scaling, in more than half precision if they are to be had.
        by: [K], the factors.
        dtype: of the stored weights: "float16", "bfloat16", or a numpy or torch dtype.
        head, features: the head before scaling and features [N, d], for the bound.

    >>> rounding_flips(np.array([[2.0, 1.002], [2.0, 1.5]]), np.array([1.0, 1.995]), "bfloat16")
    1
    """
    name = str(dtype).removeprefix("torch.") if not isinstance(dtype, np.dtype | type) else np.dtype(dtype).name
    if name not in _ROUNDOFF:
        raise LevelheadError(f"expected one of {', '.join(_ROUNDOFF)}, got {name}")
    scores = to_numpy(logits).astype(np.float64)
    if scores.ndim != 2 or scores.shape[1] != len(by):
        raise LevelheadError(f"expected logits [N, {len(by)}], one column per class, got shape {list(scores.shape)}")
    size = np.abs(scores)
    if head is not None and features is not None:
        whole = head.numpy()
        size = np.abs(to_numpy(features)) @ np.abs(whole.weight).T + (0 if whole.bias is None else np.abs(whole.bias))
    reach = _ROUNDOFF[name] * size * np.where(np.frexp(by)[0] == 0.5, 0.0, by)
    scores = scores * by
    top = scores.argmax(axis=1)[:, None]
    room = reach + np.take_along_axis(reach, top, axis=1)
    close = (np.take_along_axis(scores, top, axis=1) - scores <= room) & (room > 0)
    np.put_along_axis(close, top, False, axis=1)
    return int(close.any(axis=1).sum())


def _lengths(head: Head) -> np.ndarray:
    norms = to_numpy(head.norms).astype(np.float64)
    if not np.isfinite(norms).all():
        long = head.name(int(np.argmin(np.isfinite(norms))))
        raise LevelheadError(f"the weight vector of {long} is too long to measure in float32; convert the head to float64")
    if not norms.all():
        raise LevelheadError(f"the weight vector of {head.name(int(np.argmin(norms)))} is zero and has no direction; "
                         "rescale and shift need none")
    return norms


def _finite(name: str, value: float) -> float:
    if is_torch(value):
        value = float(value)
    if not (isinstance(value, int | float | np.floating | np.integer) and np.isfinite(value)):
        raise LevelheadError(f"expected a finite {name}, got {value!r}")
    return float(value)
