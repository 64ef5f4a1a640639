"""How the scores of a row of logits depend on one strength: what an exact path is computed of."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Direction:
    """The scores of the K classes as a function of gamma: a rule of one strength, for given ratios.

    ============  ==========================
    multiplies    ``l_k r_k^gamma``
    adds          ``l_k + gamma log r_k``
    ============  ==========================

    With a kept bias, the first is ``(l_k - b_k) r_k^gamma + b_k``; b is None if it is scaled too, or not there.

    Args:
        name: of the rule.
        ratios: [K], r above.
        multiplies: whether logits are multiplied, or added to.
        bias: [K], b above.

    >>> Direction("rescale", np.array([1.0, 4.0])).scores(np.array([[3.0, 2.0]]), 0.5)
    array([[3., 4.]])
    """

    name: str
    ratios: np.ndarray
    multiplies: bool = True
    bias: np.ndarray | None = None

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
