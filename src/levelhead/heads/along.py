"""Offsets in a head without a bias: in its weights, along a direction of the features.

The direction is that in which the features of held-out samples are nearest to 1.

``w_k + offset_k u`` adds about ``offset_k`` to each score of class k (`core.constant_direction`
says why), and only weights change, which every library saves and loads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core.adjustment import Adjustment
from ..core.constant_direction import MOST_SAMPLES, check_features, find_reach
from ..core.head import Head
from ..support.arrays import Array, like, narrow, to_numpy, widen


@dataclass(frozen=True, eq=False)
class Along:
    """How offsets were put into the weights of a head that has no bias: ``w_k + offset_k u``.

    Args:
        direction: u [d], for which ``f'u`` is near 1 for the features f of held-out samples.
        mean, spread: mean and standard deviation of ``f'u`` on samples that u has not seen: each
            logit of class k gets this much of its offset.
        samples: how many features there were.
        agrees: share of them that are predicted as the offsets themselves would.
    """

    direction: np.ndarray
    mean: float
    spread: float
    samples: int
    agrees: float

    @property
    def text(self) -> str:
        """What the result says of it."""
        reach = f"the logits get {self.mean:.2f} ± {self.spread:.2f} of each offset"
        return f"no bias: {reach}, and {self.agrees:.1%} of the predictions are those of a bias"


def put_along(head: Head, adjustment: Adjustment, features: Array) -> tuple[Head, Along]:
    """Return an adjusted head without a bias, and how the offsets are in its weights.

    Scales and offsets are as in `Adjustment.head`, but ``offset_k u`` goes into row k in place of
    ``offset_k`` into its bias.

    Args:
        head: weight [K, d], without a bias.
        adjustment: what is done to each class.
        features: [N, d], what the head takes, of held-out samples.

    Raises:
        LevelheadError: the features do not fit the head, or reach so little of 1 in any direction
            that most of an offset would be lost.
    """
    values = check_features(features, width=head.weight.shape[1])
    direction, reach = find_reach(values)
    by = adjustment.for_rows(head.classes)
    # Rows are scaled as ever; then the offsets go into them, in float32 at least.
    scaled = replace(by, offset=np.zeros(by.classes)).head(head)
    wide = widen(scaled.weight)
    shifted = wide + like(by.offset[:, None] * direction, wide)
    after = replace(scaled, weight=narrow(shifted, scaled.weight)).checked("the shifted head")
    agrees = _agreement(head, after, by, values)
    return after, Along(direction, float(reach.mean()), float(reach.std()), len(values), agrees)


def _agreement(before: Head, after: Head, by: Adjustment, features: np.ndarray) -> float:
    """Return the share of samples that a head predicts as the offsets themselves would.

    Of very many samples, some are enough. That share says more to a user than mean and spread do:
    the offsets arrive only about, but most predictions are not near a tie.
    """
    features = features[:: -(-len(features) // MOST_SAMPLES)]
    wanted = by.scores(features @ to_numpy(before.weight).astype(np.float64).T)
    arrived = features @ to_numpy(after.weight).astype(np.float64).T
    if by.classes == 1:
        return float(np.mean((wanted > 0) == (arrived > 0)))
    return float(np.mean(wanted.argmax(axis=1) == arrived.argmax(axis=1)))
