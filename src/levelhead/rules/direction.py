"""How the scores of a row of logits depend on one strength: what an exact path is computed of."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Direction:
    """The scores of the K classes as a function of gamma: ``l_k r_k^gamma`` or, if added, ``l_k + gamma log r_k``.

    With a kept bias, the first is ``(l_k - b_k) r_k^gamma + b_k``; b is None if it is scaled too, or not there.
    """

    name: str  # of the rule
    ratios: np.ndarray  # [K], r above
    multiplies: bool = True
    bias: np.ndarray | None = None  # [K], b above

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
