"""What is predicted along the path: classes, confusions and shares at any gamma, from the logits."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.array import Array
from ..core.choices import Kind
from ..core.curve import Curve
from ..core.errors import LevelheadError
from ..rules.checks import target_prior
from .chunks import read_chunks
from .envelope import Envelope, compute_envelope
from .path_curves import PathCurves


@dataclass(frozen=True, eq=False)
class PathPredictions(PathCurves):
    """Where each sample is right, and what is predicted for it. `GammaPath` adds metrics, and explains the fields."""

    logits: tuple[Array, ...] = ()
    kind: Kind = "logits"

    def predictions(self, gamma: float) -> np.ndarray:
        """Return the class predicted at gamma, [N], computed from the logits. Gamma may lie outside the range.

        >>> from levelhead import gamma_path
        >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100]).predictions(0.3)
        array([0, 1, 0])
        """
        if not np.isfinite(gamma):
            raise LevelheadError(f"expected a finite number, got {gamma}", parameter="gamma")
        return np.concatenate(
            [
                self.rule.scores(chunk, gamma).argmax(axis=1)
                for part in self.whole_logits()
                for _, chunk in read_chunks(part, kind=self.kind)
            ]
        )

    def confusion(self, gamma: float) -> np.ndarray:
        """Return the confusion matrix at gamma, [K, K], in counts or weights: true class by predicted class.

        >>> from levelhead import gamma_path
        >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100]).confusion(0.3)
        array([[1, 0], [1, 1]])
        """
        size = len(self.counts)
        return np.bincount(self.labels * size + self.predictions(gamma), self.weights, size**2).reshape(size, size)

    @cached_property
    def envelope(self) -> Envelope:
        """Every change of every prediction over the range."""
        parts = [compute_envelope(part, self.rule, self.range, kind=self.kind) for part in self.whole_logits()]
        return parts[0] if len(parts) == 1 else parts[0].joined(parts[1:])

    def shares(self, gamma: float) -> np.ndarray:
        """Return each class's predicted share at gamma, [K]: the `target`-weighted mean over y of ``P(predicted | y)``.

        >>> from levelhead import gamma_path
        >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100]).shares(0.3)
        array([0.75, 0.25])
        """
        return np.bincount(self.predictions(gamma), self._balanced_coefficients(self._weights), len(self.counts))

    def share_mismatch(self, target: Array | None = None) -> Curve:
        """Return the total variation between those shares and a target prior (uniform if not given), over gamma.

        >>> from levelhead import gamma_path
        >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100]).share_mismatch().at(0.3)
        0.25
        """
        prior = target_prior(target, len(self.counts))
        return self.envelope.mismatch(prior, self._balanced_coefficients(self._weights))

    def whole_logits(self) -> tuple[Array, ...]:
        """Return the logits, in parts [n, K]."""
        if not self.logits:
            raise LevelheadError(
                "this path has no logits: they are not pickled, nor kept when class shards or folds "
                "are merged; compute the path again"
            )
        return self.logits
