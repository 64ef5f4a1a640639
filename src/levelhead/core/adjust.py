"""Adjustments of a head: pure functions Head -> Head, one equation each."""

from dataclasses import replace
from typing import Any

import numpy as np

from ..support.arrays import Array, narrow, row_norms, to_numpy, widen
from ..support.errors import LevelheadError, named
from ..support.types import BiasPolicy, Missing
from .adjustment import finite_number
from .class_names import proportional
from .counts import Counts, resolve
from .head import Head, check_finite
from .rules import RULES, Rescale, Shift, Strengths, Tau, positive_norms


def factors(
    counts: Counts, gamma: float, *, missing: Missing = "error", background: int | str | None = None
) -> np.ndarray:
    """Return what RS multiplies each weight vector by, [K]: ``(n_1 / n_i)^gamma``, with n_1 the largest count.

    Args:
        counts, gamma, missing, background: as in `rescale`; the factor of a class that is left alone is 1.

    >>> factors([100, 25, 1], 0.5)
    array([ 1.,  2., 10.])
    """
    n = resolve(counts, missing=missing, background=background)
    return Rescale().on_scores(n, Strengths(check_strength(gamma, "rescale", n))).first


def rescale(
    head: Head,
    counts: Counts,
    *,
    gamma: float,
    bias: BiasPolicy = "scale",
    missing: Missing = "error",
    background: int | str | None = None,
) -> Head:
    """Return a new head with each weight vector scaled by how rare its class is (RS).

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

    >>> rescale(Head(np.eye(2)), [100, 25], gamma=0.5).norms
    array([1., 2.])

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    n = resolve(
        counts, check_finite(head).classes, names=head.names, missing=missing, background=background
    )
    by = Rescale().amounts(head, n, Strengths(check_strength(gamma, "rescale", n)))
    return replace(by, bias=bias).head(head)


def normalize(head: Head) -> Head:
    """Scale every weight vector to unit length (the projection of WVN).

    ``w_i <- w_i / ||w_i||``.  The bias is left alone: Algorithm 1 speaks of weight vectors only.

    Args:
        head: weight [K, d], without a zero row.

    Reference: Kim and Kim, 2020, Algorithm 1.
    """
    positive_norms(check_finite(head))
    return replace(head, weight=unit(head.weight))


def unit(weight: Array) -> Array:
    """Return weight [K, d] with rows of unit length, without checks or host synchronization: for a training step."""
    wide = widen(weight)
    return narrow(wide / row_norms(wide)[:, None], weight)


def tau_normalize(head: Head, tau: float, *, bias: BiasPolicy = "scale") -> Head:
    """Divide each weight vector by a power of its own length: ``w_i <- w_i / ||w_i||^tau``.

    tau = 0 changes nothing, tau = 1 gives unit length.

    Args:
        head, tau: weight [K, d], without a zero row, and, where there is one, bias [K]; strength.
        bias: `scale` divides it as its weight vector, `keep` leaves it alone.

    Reference: Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, 2020.
    """
    by = Tau().amounts(check_finite(head), None, Strengths(check_strength(tau, "tau", name="tau")))
    return replace(by, bias=bias).head(head)


def shift_logits(
    head: Head,
    counts: Counts,
    tau: float = 1.0,
    *,
    missing: Missing = "error",
    background: int | str | None = None,
) -> Head:
    """Return a new head, whose bias adjusts logits after training: ``b_i <- b_i + tau log(n_1 / n_i)``.

    This is the same as subtracting ``tau log(prior_i)`` from every logit, up to one constant for all classes.

    Args:
        head, counts, missing, background: as in `rescale`.
        tau: strength.

    >>> shift_logits(Head(np.eye(2)), [100, 1]).bias
    array([0.        , 4.60517019])

    Reference: Menon et al., Long-tail Learning via Logit Adjustment, 2021.
    """
    n = resolve(
        counts, check_finite(head).classes, names=head.names, missing=missing, background=background
    )
    return (
        Shift().amounts(head, n, Strengths(check_strength(tau, "shift", n, name="tau"))).head(head)
    )


def check_strength(
    value: Any,
    rule: str,
    counts: Any = None,
    *,
    name: str = "gamma",
    instead: str = "lh.adjust(head, tuned)",
) -> float:
    """Return a strength as a finite float. A `Tuned` must have been chosen for this rule and counts like these."""
    with named(name):
        if getattr(value, "task", "") == "multilabel":
            raise LevelheadError(f"chosen for several labels per sample; use {instead}")
        if getattr(value, "rule", rule) != rule:  # of a `Tuned` or of its gamma
            raise LevelheadError(f"chosen for rule {value.rule!r}; use {instead}")
        if not hasattr(value, "gamma"):
            return finite_number(name, value)
        if len(getattr(value, "offset", ())):
            raise LevelheadError(
                f"chosen toward a target, which a strength alone does not say; use {instead}"
            )
        if (reason := RULES[rule].refuses_kind(getattr(value, "kind", None))) is not None:
            raise LevelheadError(reason)
        follows = RULES[rule].follows_counts and counts is not None and value.counts
        if follows and not proportional(value.counts, counts):
            raise LevelheadError(
                f"chosen with counts of other proportions; use {instead}, or tune again"
            )
    return finite_number(name, value.gamma)


def can_flip(head: Head) -> bool:
    """Return whether scaling rows can change any prediction: not with one class, or two with opposite rows."""
    # Logits (-z, cz) with c > 0 keep their signs under positive factors, so the larger stays the larger.
    if head.classes > 2:
        return True
    rows = to_numpy(widen(head.weight)).astype(np.float64)
    if head.bias is not None:
        rows = np.column_stack([rows, to_numpy(widen(head.bias))])
    inner, lengths = float(rows[0] @ rows[-1]), np.linalg.norm(rows, axis=1)
    return head.classes == 2 and not inner <= -(1 - 1e-6) * float(lengths[0] * lengths[1])
