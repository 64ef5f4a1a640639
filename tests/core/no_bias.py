"""Samples of a head without a bias, and a rule whose offsets are known. No test by itself.

Such a head takes an offset along the direction in its features that is nearest to constant, so that each sample
receives a part of it: what arrives can be computed by hand only if the rule always adds the same numbers.
"""

import numpy as np

import levelhead as lh
from levelhead.core.rules import Rule

DRAW = np.random.default_rng(0)
LABELS = np.repeat([0, 1, 2], [200, 60, 40])
LOGITS = 2 * np.eye(3)[LABELS] + DRAW.normal(size=(300, 3)) + np.log([1000, 200, 40])
FEATURES = np.maximum(DRAW.normal(size=(300, 6)) + 0.5, 0)  # as a ReLU gives them
OFFSETS = np.array([0.0, 1.5, 3.0])


class FixedOffsets(Rule):
    """Adds the same numbers whatever the samples and the fold, so that each prediction is known."""

    name = "offsets"
    adds = True

    def fit(self, samples, goal):
        chosen = lh.rules.Adjustment.adding(OFFSETS)
        return lh.rules.Fits([chosen] * len(samples.folds), chosen)
