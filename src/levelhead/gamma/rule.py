"""Rules: how the scores of a row of logits depend on gamma."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.adjust import RULES, RuleName
from ..core.array import described, to_numpy
from ..core.errors import Advice, LevelheadError, check_choice
from ..core.measure import Kind
from ..core.per_class import as_mapping, in_order


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule: the scores of the K classes as a function of gamma.

    ========  ================================  =========================
    rescale   ``l_k r_k^gamma``                 ``r_k = n_max / n_k``
    tau       ``l_k r_k^gamma``                 ``r_k = 1 / ||w_k||``
    shift     ``l_k + gamma log r_k``           ``r_k = n_max / n_k``
    ========  ================================  =========================

    With a kept bias, the first two are ``(l_k - b_k) r_k^gamma + b_k``; b is None if it is scaled too, or not there.

    >>> Rule("rescale", np.array([1.0, 4.0])).scores(np.array([[3.0, 2.0]]), 0.5)
    array([[3., 4.]])
    """

    name: RuleName
    ratios: np.ndarray
    bias: np.ndarray | None = None

    @property
    def multiplies(self) -> bool:
        """Whether the rule multiplies logits (rescale, tau) or adds to them (shift)."""
        return self.name != "shift"

    @property
    def slopes(self) -> np.ndarray:
        """Slopes ``a_k = log r_k``, [K]. Equal ratios have equal slopes, to the bit."""
        return np.log(self.ratios)

    def scores(self, logits: np.ndarray, gamma: float | np.ndarray) -> np.ndarray:
        """Return scores [N, K] of logits [N, K] in float64, at one gamma or at one per row ([N, 1])."""
        wide = logits.astype(np.float64)
        if not self.multiplies:
            return wide + gamma * self.slopes
        if self.bias is None:
            return wide * self.ratios**gamma
        return (wide - self.bias) * self.ratios**gamma + self.bias


def make_rule(
    name: RuleName, counts: np.ndarray, *, norms: Any = None, bias: Any = None, kind: Kind = "logits"
) -> Rule:
    """Return the rule of that name for checked counts [K], weight norms [K] (tau) and a kept bias [K], if any."""
    check_choice("rule", name, RULES)
    if kind == "probabilities" and name != "shift":
        raise LevelheadError(
            f"{name!r} multiplies logits, which has no meaning for probabilities; use 'shift'", parameter="rule"
        )
    if norms is None and name == "tau":
        raise LevelheadError(
            "'tau' needs the weight norms of the head", parameter="rule", advice=Advice("norms", None, "with them")
        )
    if norms is not None and name != "tau":
        raise LevelheadError(f"only the rule tau uses them, got {name!r}", parameter="norms")
    if bias is not None and name == "shift":
        raise LevelheadError(
            "a bias is kept while weights are scaled, and the rule shift scales none; leave it out", parameter="bias"
        )
    ratios = counts.max() / counts if norms is None else 1 / check_vector(norms, len(counts), "norms", positive=True)
    return Rule(name, ratios, None if bias is None else check_vector(bias, len(counts), "bias"))


def check_range(range: Any, *, holds_zero: bool = False) -> tuple[float, float]:
    """Return a range of gamma as two floats. With `holds_zero`, it must contain 0."""
    try:
        low, high = map(float, range)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not -np.inf < low < high < np.inf:
        raise LevelheadError(f"expected (from, to), two finite gammas such as (0, 2), got {range!r}", parameter="range")
    if holds_zero and not low <= 0 < high:
        raise LevelheadError(f"expected a range that holds 0, such as (0, 2), got {range!r}", parameter="range")
    return low, high


def target_prior(target: Any, size: int, names: Sequence[str] | None = None) -> np.ndarray:
    """Return a target [K], in class order or {class: share}, as shares that sum to 1; uniform if None."""
    if target is None:
        return np.full(size, 1 / size)
    mapping = as_mapping(target)
    values = check_vector(target if mapping is None else in_order(mapping, size, names, what="share"), size, "target")
    if (values < 0).any() or not values.any():
        raise LevelheadError("expected shares, none negative and not all 0", parameter="target")
    return values / values.sum()


def check_vector(values: Sequence[float] | Any, size: int, parameter: str, *, positive: bool = False) -> np.ndarray:
    """Return a parameter's numbers [K], one per class and all finite, in float64."""
    found = to_numpy(values)
    if found.dtype.kind not in "fiu":
        raise LevelheadError(f"expected numbers, got {described(found)}", parameter=parameter)
    found = found.astype(np.float64)
    if found.shape != (size,):
        raise LevelheadError(
            f"expected numbers [{size}], one per class, got shape {list(found.shape)}", parameter=parameter
        )
    wrong = ~np.isfinite(found) | (positive & (found <= 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise LevelheadError(
            f"expected {'positive' if np.isfinite(found[at]) else 'finite'} numbers, got {found[at]:g} for class {at}",
            parameter=parameter,
        )
    return found
