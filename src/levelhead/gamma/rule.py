"""A rule: how the scores of a row of logits move as its one knob is turned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.adjust import RULES, RuleName
from ..core.array import described, to_numpy
from ..core.errors import LevelheadError
from ..core.per_class import as_mapping, in_order


@dataclass(frozen=True, eq=False)
class Rule:
    """Scores of the K classes as a function of gamma.

    ========  ================================  =========================
    rescale   ``l_k r_k^gamma``                 ``r_k = n_max / n_k``
    tau       ``l_k r_k^gamma``                 ``r_k = 1 / ||w_k||``
    shift     ``l_k + gamma log r_k``           ``r_k = n_max / n_k``
    ========  ================================  =========================

    With a kept bias, the first two are ``(l_k - b_k) r_k^gamma + b_k``.

    Args:
        name: one of the three.
        ratios: r [K], positive.
        bias: b [K] if the bias stays as it is; None if it is scaled along or there is none.

    >>> rescaled = Rule("rescale", np.array([1.0, 4.0]))
    >>> rescaled.scores(np.array([[3.0, 2.0]]), 0.5)
    array([[3., 4.]])
    """

    name: RuleName
    ratios: np.ndarray
    bias: np.ndarray | None = None

    @property
    def multiplies(self) -> bool:
        """Whether it multiplies logits (rescale, tau) or adds to them (shift)."""
        return self.name != "shift"

    @property
    def slopes(self) -> np.ndarray:
        """``a_k = log r_k``, [K]: equal ratios have equal slopes, to the bit."""
        return np.log(self.ratios)

    def scores(self, logits: np.ndarray, gamma: float | np.ndarray) -> np.ndarray:
        """logits [N, K] -> scores [N, K] in float64, at one gamma or at one for each row ([N, 1])."""
        wide = logits.astype(np.float64)
        if not self.multiplies:
            return wide + gamma * self.slopes
        if self.bias is None:
            return wide * self.ratios**gamma
        return (wide - self.bias) * self.ratios**gamma + self.bias


def check_rule(name: str) -> None:
    """That there is a rule of that name."""
    if name not in RULES:
        raise LevelheadError(f"expected rule='rescale', 'tau' or 'shift', got {name!r}")


def make_rule(name: RuleName, counts: np.ndarray, *, norms: Any = None, bias: Any = None) -> Rule:
    """The rule of that name for checked counts [K]; weight norms [K] for tau, a kept bias [K] where it is meant."""
    check_rule(name)
    if (norms is None) == (name == "tau"):
        raise LevelheadError("rule='tau' needs the weight norms of the head (norms=head.norms)" if norms is None
                         else f"norms= belongs to rule='tau', got rule={name!r}")
    if bias is not None and name == "shift":
        raise LevelheadError("bias= is a bias kept while the weights are scaled; rule='shift' scales none: leave it out")
    size = len(counts)
    ratios = counts.max() / counts if norms is None else 1 / vector(norms, size, "norms", positive=True)
    return Rule(name, ratios, None if bias is None else vector(bias, size, "bias"))


def check_range(range: Any, *, holds_zero: bool = False) -> tuple[float, float]:
    """A range of gamma as two floats; a ValueError if it is none, or does not hold 0 and is to."""
    try:
        low, high = map(float, range)
    except (TypeError, ValueError):
        raise LevelheadError(f"expected a range (from, to) of finite gammas, such as (0, 2), got {range!r}") from None
    if holds_zero and not -np.inf < low <= 0 < high < np.inf:
        raise LevelheadError(f"expected a range of gamma that holds 0, such as (0, 2), got ({low:g}, {high:g})")
    if not -np.inf < low < high < np.inf:
        raise LevelheadError(f"expected a range (from, to) of finite gammas, such as (0, 2), got ({low:g}, {high:g})")
    return low, high


def prior(target: Any, size: int, names: Sequence[str] | None = None) -> np.ndarray:
    """A target [K], in class order or {class: share}, as shares that sum to 1; uniform if None."""
    if target is None:
        return np.full(size, 1 / size)
    mapping = as_mapping(target)
    shares = target if mapping is None else in_order(mapping, size, names, what="share", offers=["names"])
    values = vector(shares, size, "target shares")
    if (values < 0).any() or not values.any():
        raise LevelheadError("expected a target of finite shares, none negative, not all 0")
    return values / values.sum()


def vector(values: Sequence[float] | Any, size: int, name: str, *, positive: bool = False) -> np.ndarray:
    """Numbers [K], one per class and all finite, in float64."""
    found = to_numpy(values)
    if found.dtype.kind not in "fiu":
        raise LevelheadError(f"expected {name} as numbers, got {described(found)}")
    found = found.astype(np.float64)
    if found.shape != (size,):
        raise LevelheadError(f"expected {name} [{size}], one per class, got shape {list(found.shape)}")
    wrong = ~np.isfinite(found) | (positive & (found <= 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise LevelheadError(f"expected {'positive' if positive else 'finite'} {name}, got {found[at]:g} for class {at}")
    return found
