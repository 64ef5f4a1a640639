"""Networks whose features are two numbers, so that their decision boundaries can be seen, not sketched."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ..lab.data import Data, Split, digits, imbalance
from ..lab.features import View, snapshot
from ..lab.nets import Net, build
from ..lab.recipe import recipe
from ..lab.train import fit
from ..methods import METHODS


def train_two_features(*, classes: int = 4, ratio: float = 20.0, seeds: int = 5, epochs: int | None = None) -> dict[str, Any]:
    """Train the baseline and WVN on the first few of scikit-learn's digits, cut to a long tail, through a plane.

    The body of the network `digits` is followed by a linear map to two features, and the head has no bias: class i
    gets the sector of the plane in which ``w_i . f`` is largest. Two classes would show nothing: cross entropy's
    gradients of the w_i add up to zero and weight decay shrinks their sum, so two weight vectors end as (-w, w), of
    one length at any imbalance.

    Returns:
        JSON-able: `counts`, and for `baseline` and `wvn` the `weights` [seeds, K, 2], and of the first seed the
        `features` [N, 2] and `labels` [N] of the test set, rounded.
    """
    torch.set_num_threads(1)
    schedule, data = recipe("digits").over(epochs), imbalance(_first_classes(digits(), classes), "long-tail", ratio=ratio)
    found: dict[str, Any] = {"data": "digits", "ratio": ratio, "seeds": seeds, "counts": data.counts.tolist()}
    for name in ("baseline", "wvn"):
        kept = []
        for seed in range(seeds):
            net = _network(data, seed)
            fit(net, data, schedule, METHODS[name], seed=seed)
            kept.append(snapshot(net, data, View(schedule, data)))
        found[name] = {"weights": [_rounded(one.head.weight, 4) for one in kept],
                       "features": _rounded(kept[0].features["test"], 2),
                       "labels": kept[0].labels["test"].tolist()}
    return found


def _rounded(values: Any, digits: int) -> list:
    return np.round(np.asarray(values, np.float64), digits).tolist()


def _network(data: Data, seed: int) -> Net:
    body = build("digits", data.classes, shape=data.shape, seed=seed).body
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Net(nn.Sequential(body, nn.Linear(64, 2)), nn.Linear(2, data.classes, bias=False))


def _first_classes(data: Data, classes: int) -> Data:
    """Only the first classes."""
    def keep(split: Split) -> Split:
        return split[np.flatnonzero(split.labels < classes)]

    return Data(data.name, data.names[:classes], keep(data.train), keep(data.test))
