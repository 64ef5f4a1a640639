"""Adjustments of a head: pure functions Head -> Head, one equation each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from .array import Array, narrow, row_norms, scale_rows, to_numpy, widen
from .choices import BiasPolicy, Missing, PathRule, RuleName
from .counts import Counts, resolve
from .errors import LevelheadError, check_choice
from .head import Head, check_finite
from .strength import check_strength, finite_number

RULES: tuple[PathRule, ...] = get_args(PathRule)
RULE_TITLES: dict[RuleName, str] = {
    "rescale": "RS",
    "tau": "tau-normalization",
    "shift": "logit shift",
    "rescale+shift": "RS, then shift",
    "vector": "vector scaling",
}


@dataclass(frozen=True, eq=False)
class Amounts:
    """What an adjustment does to each class: ``score_k = scale_k logit_k + offset_k``.

    Args:
        scale, offset: [K] in float64; None where nothing is multiplied, or nothing added.

    >>> Amounts(offset=np.array([0.0, 2.0])).changes, Amounts(scale=np.ones(2)).changes
    (True, False)
    """

    scale: np.ndarray | None = None
    offset: np.ndarray | None = None

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        return bool(
            (self.scale is not None and (self.scale != 1).any()) or (self.offset is not None and self.offset.any())
        )

    @property
    def first(self) -> np.ndarray:
        """What each weight vector is multiplied by or, where none is, what is added to each bias, [K]."""
        found = self.offset if self.scale is None else self.scale
        assert found is not None
        return found


def factors(
    counts: Counts, gamma: float, *, missing: Missing = "error", background: int | str | None = None
) -> np.ndarray:
    """Return what RS multiplies each weight vector by: ``(n_1 / n_i)^gamma``, with n_1 the largest count.

    Args:
        counts: training samples of each class.
        gamma: strength.
        missing: a class without samples is an `error`, or `neutral` (its factor is 1).
        background: a class that is left alone, by index: its factor is 1, and its count is no n_1.

    Returns:
        Factors [K], float64.

    >>> factors([100, 25, 1], 0.5)
    array([ 1.,  2., 10.])
    """
    n = resolve(counts, missing=missing, background=background)
    return _factors(n, check_strength(gamma, "rescale", n))


def rescale(
    head: Head,
    counts: Counts,
    *,
    gamma: float,
    bias: BiasPolicy = "scale",
    missing: Missing = "error",
    background: int | str | None = None,
) -> Head:
    """Scale each weight vector by how rare its class is (RS).

    ``w_i <- (n_1 / n_i)^gamma w_i``, with n_1 the largest count.  gamma = 0 changes nothing, nor does a balanced set.

    Args:
        head: weight [K, d] and, where there is one, bias [K].
        counts: training samples of each class, all positive, in any order.
        gamma: strength; larger gives rare classes more of the space. Or what `tune` returned, if it is for this rule
            and counts of these proportions.
        bias: `scale` treats it as the weight of a constant feature, so that scaling the head is scaling the logits;
            `keep` leaves it alone.
        missing: a class without samples is an `error`, or `neutral` (left as it is).
        background: a class that is left alone, by index or name, such as "no object" in detection; its count is no n_1.

    Returns:
        A new head; the argument is left as it is.

    >>> rescale(Head(np.eye(2)), [100, 25], gamma=0.5).norms
    array([1., 2.])

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    n = resolve(counts, check_finite(head).classes, names=head.names, missing=missing, background=background)
    return scale(head, _factors(n, check_strength(gamma, "rescale", n)), bias=bias)


def normalize(head: Head) -> Head:
    """Scale every weight vector to unit length (the projection of WVN).

    ``w_i <- w_i / ||w_i||``.  The bias is left alone: Algorithm 1 speaks of weight vectors only.

    Args:
        head: weight [K, d], without a zero row.

    Returns:
        A new head.

    >>> normalize(Head(np.array([[3.0, 4.0], [0.0, 2.0]]))).weight
    array([[0.6, 0.8], [0. , 1. ]])

    Reference: Kim and Kim, 2020, Algorithm 1.
    """
    _positive_norms(check_finite(head))
    return replace(head, weight=unit(head.weight))


def unit(weight: Array) -> Array:
    """Return weight [K, d] with rows of unit length, without checks or host synchronization: for a training step."""
    wide = widen(weight)
    return narrow(wide / row_norms(wide)[:, None], weight)


def tau_normalize(head: Head, tau: float, *, bias: BiasPolicy = "scale") -> Head:
    """Divide each weight vector by a power of its own length: ``w_i <- w_i / ||w_i||^tau``.

    tau = 0 changes nothing, tau = 1 gives unit length.

    Args:
        head: weight [K, d], without a zero row, and, where there is one, bias [K].
        tau: strength.
        bias: `scale` divides it as its weight vector, `keep` leaves it alone.

    Returns:
        A new head.

    >>> tau_normalize(Head(np.array([[3.0, 4.0], [0.0, 1.0]])), 0.5).norms
    array([2.23606798, 1. ])

    Reference: Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, 2020.
    """
    by = rule_amounts(check_finite(head), "tau", None, check_strength(tau, "tau", name="tau"))
    return apply_amounts(head, by, bias=bias)


def shift_logits(
    head: Head, counts: Counts, tau: float = 1.0, *, missing: Missing = "error", background: int | str | None = None
) -> Head:
    """Adjust logits after training, by the bias: ``b_i <- b_i + tau log(n_1 / n_i)``.

    This is the same as subtracting ``tau log(prior_i)`` from every logit, up to one constant for all classes.

    Args:
        head: weight [K, d] and, where there is one, bias [K].
        counts: training samples of each class.
        tau: strength.
        missing: a class without samples is an `error`, or `neutral` (left as it is).
        background: a class that is left alone, as in `rescale`.

    Returns:
        A new head, with a bias.

    >>> shift_logits(Head(np.eye(2)), [100, 1]).bias
    array([0.        , 4.60517019])

    Reference: Menon et al., Long-tail Learning via Logit Adjustment, 2021.
    """
    n = resolve(counts, check_finite(head).classes, names=head.names, missing=missing, background=background)
    return apply_amounts(head, rule_amounts(head, "shift", n, check_strength(tau, "shift", n, name="tau")))


def rule_amounts(
    head: Head,
    rule: RuleName,
    counts: np.ndarray | None,
    strength: float,
    *,
    scale: Sequence[float] | np.ndarray = (),
    offset: Sequence[float] | np.ndarray = (),
) -> Amounts:
    """Return what a rule multiplies each row of a head by and what it adds to each bias.

    A head with one logit z, which is positive for the second of two classes, is shifted by ``log(n_0 / n_1)``: that is
    the shift of the logits (0, z). Scaling never moves its sign.

    Args:
        head: weight [K, d], finite.
        rule: of one strength (`rescale`, `tau`, `shift`), or another, which has numbers of its own.
        counts: [K], or [2] for a head with one logit; `tau` needs none.
        strength: gamma, a finite number.
        scale, offset: [K], for rules of more than one strength; `shift` with an offset adds that, whatever the counts.

    Returns:
        The factors and what is added, each None where there is none.

    >>> rule_amounts(Head(np.ones((1, 3))), "shift", np.array([900, 100]), 0.5).offset
    array([1.09861229])
    """
    if rule == "shift" and len(offset):  # several labels per sample, each with its own
        return Amounts(offset=_given_amounts(head, rule, np.ones(head.classes), offset).offset)
    one_logit = head.classes == 1 and counts is not None and len(counts) == 2
    if one_logit and rule != "shift":
        raise LevelheadError(
            f"a head with a single logit cannot be adjusted by the rule {rule}: scaling never moves "
            "its sign; use the rule shift"
        )
    if rule == "tau":
        return Amounts(scale=_positive_norms(head) ** -strength)
    if rule not in RULES:
        return _given_amounts(head, rule, scale, offset)
    assert counts is not None
    if rule == "rescale":
        return Amounts(scale=_factors(counts, strength))
    rarity = counts[:1] / counts[1:] if one_logit else counts.max() / counts
    return Amounts(offset=strength * np.log(rarity))


def apply_amounts(head: Head, by: Amounts, *, bias: BiasPolicy = "scale") -> Head:
    """Return the head multiplied and then moved by what `rule_amounts` gave."""
    if by.scale is not None:
        head = scale(head, by.scale, bias=bias)
    return head if by.offset is None else _shift(check_finite(head), by.offset)


def scale(head: Head, by: np.ndarray, *, bias: BiasPolicy = "scale") -> Head:
    """Multiply row i of the head by by[i]; raise LevelheadError if that is 0."""
    check_finite(head)
    if (vanished := np.flatnonzero(np.asarray(by) == 0)).size:
        name = head.name(int(vanished[0]))
        raise LevelheadError(f"the factor of {name} would be 0, which removes the class; use a strength nearer to 0")
    return _scale(head, by, bias)


def can_flip(head: Head) -> bool:
    """Return whether scaling rows can change any prediction: it cannot with one class, or two with opposite rows.

    Logits (-z, cz) with c > 0 keep their signs under positive factors, so the larger stays the larger.
    """
    if head.classes > 2:
        return True
    rows = to_numpy(widen(head.weight)).astype(np.float64)
    if head.bias is not None:
        rows = np.column_stack([rows, to_numpy(widen(head.bias))])
    inner, lengths = float(rows[0] @ rows[-1]), np.linalg.norm(rows, axis=1)
    return head.classes == 2 and not inner <= -(1 - 1e-6) * float(lengths[0] * lengths[1])


def _given_amounts(head: Head, rule: RuleName, scale: Any, offset: Any) -> Amounts:
    """Return numbers that were chosen for each class, checked."""
    found = [np.asarray(values, np.float64) for values in (scale, offset)]
    if any(values.shape != (head.classes,) or not np.isfinite(values).all() for values in found):
        raise LevelheadError(
            f"the rule {rule} needs a finite scale and offset for each of {head.classes} classes, got "
            f"{found[0].size} and {found[1].size}; tune again"
        )
    if not (found[0] > 0).all():
        raise LevelheadError(f"the rule {rule} needs positive scales, got {found[0].min():g}; tune again")
    return Amounts(*found)


def _factors(n: np.ndarray, gamma: float) -> np.ndarray:
    with np.errstate(over="ignore"):  # a factor that does not fit gives a weight that does not, which is reported
        return (n.max() / n) ** finite_number("gamma", gamma)


def _shift(head: Head, by: np.ndarray) -> Head:
    old = head.weight[:, 0] * 0 if head.bias is None else head.bias
    wide = widen(old)
    return check_finite(
        replace(head, bias=narrow(scale_rows(wide * 0 + 1, by) + wide, old)),
        "the shifted head",
        advice="; use a strength nearer to 0",
    )


def _scale(head: Head, by: np.ndarray, bias: BiasPolicy) -> Head:
    check_choice("bias", bias, ("scale", "keep"))
    scaled = scale_rows(head.bias, by) if head.bias is not None and bias == "scale" else head.bias
    return check_finite(
        replace(head, weight=scale_rows(head.weight, by), bias=scaled),
        f"the scaled head (in {head.weight.dtype})",
        advice="; use a strength nearer to 0",
    )


def _positive_norms(head: Head) -> np.ndarray:
    """Return the norms [K] of a head whose weight vectors all have a direction."""
    norms = to_numpy(head.norms).astype(np.float64)
    for usable, flaw in (
        (np.isfinite(norms), "too long to measure in float32; convert the head to float64"),
        (norms > 0, "zero and has no direction; rescale and shift do not need one"),
    ):
        if not usable.all():
            raise LevelheadError(f"the weight vector of {head.name(int(np.argmin(usable)))} is {flaw}")
    return norms
