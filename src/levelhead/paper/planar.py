"""Networks whose features are two numbers, so that their decision boundaries can be seen, not sketched."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ..lab.data import Data, Split, digits, imbalance
from ..lab.nets import Net, build
from ..lab.recipe import recipe
from ..lab.train import fit
from ..lab.view import View, snapshot
from ..methods import METHODS

CLASSES, RATIO, SEED = 4, 20.0, 0


def planar(*, classes: int = CLASSES, ratio: float = RATIO, seed: int = SEED) -> dict[str, Any]:
    """Train the baseline and WVN on the first few of scikit-learn's digits, cut to a long tail, through a plane.

    The body of the network `digits` is followed by a linear map to two features, and the head has no bias: class i gets
    the sector of the plane in which ``w_i . f`` is largest.

    Two classes would show nothing: cross entropy's gradients of the w_i add up to zero and weight decay shrinks their
    sum, so two weight vectors end as (-w, w), of one length at any imbalance.

    Returns:
        counts, and for `baseline` and `wvn` the weights [K, 2], test features [N, 2] and labels [N], rounded: JSON-able.
    """
    torch.set_num_threads(1)
    schedule, data = recipe("digits"), imbalance(_first(digits(), classes), "long-tail", ratio=ratio)
    found: dict[str, Any] = {"data": "digits", "ratio": ratio, "seed": seed, "counts": data.counts.tolist()}
    for name in ("baseline", "wvn"):
        wide = build("digits", classes, shape=data.shape, seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            net = Net(nn.Sequential(wide.body, nn.Linear(64, 2)), nn.Linear(2, classes, bias=False))
        fit(net, data, schedule, METHODS[name], seed=seed)
        kept = snapshot(net, data, View(schedule, data))
        found[name] = {"weight": np.round(kept.head.weight, 4).tolist(),
                       "features": np.round(kept.features["test"], 2).tolist(), "labels": kept.labels["test"].tolist()}
    return found


def _first(data: Data, classes: int) -> Data:
    """Only the first classes."""
    def keep(split: Split) -> Split:
        return split[np.flatnonzero(split.labels < classes)]

    return Data(data.name, data.names[:classes], keep(data.train), keep(data.test))
