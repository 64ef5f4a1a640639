"""A rule: how the scores of a row of logits move as its one knob is turned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ._array import to_numpy

RuleName = Literal["rescale", "tau", "shift"]
RULES: tuple[RuleName, ...] = ("rescale", "tau", "shift")


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


def make_rule(name: RuleName, counts: np.ndarray, *, norms: Any = None, bias: Any = None) -> Rule:
    """The rule of that name for checked counts [K]; weight norms [K] for tau, a kept bias [K] where it is meant."""
    if name not in RULES:
        raise ValueError(f"expected rule='rescale', 'tau' or 'shift', got {name!r}")
    if (norms is None) == (name == "tau"):
        raise ValueError("rule='tau' needs the weight norms of the head (norms=head.norms)" if norms is None
                         else f"norms= belongs to rule='tau', got rule={name!r}")
    if bias is not None and name == "shift":
        raise ValueError("bias= is a bias kept while the weights are scaled; rule='shift' scales none: leave it out")
    size = len(counts)
    ratios = counts.max() / counts if norms is None else 1 / _vector(norms, size, "norms", positive=True)
    return Rule(name, ratios, None if bias is None else _vector(bias, size, "bias"))


def _vector(values: Sequence[float] | Any, size: int, name: str, *, positive: bool = False) -> np.ndarray:
    vector = to_numpy(values)
    if vector.dtype.kind not in "fiu":
        raise ValueError(f"expected {name} as numbers, got {vector.dtype}")
    vector = vector.astype(np.float64)
    if vector.shape != (size,):
        raise ValueError(f"expected {name} [{size}], one per class, got shape {list(vector.shape)}")
    wrong = ~np.isfinite(vector) | (positive & (vector <= 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"expected {'positive' if positive else 'finite'} {name}, got {vector[at]:g} for class {at}")
    return vector
