"""Networks with two features, whose decision boundaries can be drawn exactly: Figure 3.

python -m bench.paper.two_features results/figures/boundary.json      # two minutes of one core
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from levelhead_lab.lab.data import Data, imbalance
from levelhead_lab.lab.load import digits
from levelhead_lab.lab.nets import Net, build
from levelhead_lab.lab.preprocess import Preprocess, snapshot
from levelhead_lab.lab.recipe import find_recipe
from levelhead_lab.lab.train import fit
from levelhead_lab.methods import METHODS


def train_two_features(
    *, classes: int = 4, ratio: float = 20.0, seeds: int = 5, epochs: int | None = None
) -> dict[str, Any]:
    """Train the baseline and WVN with two features on a long tail of the first few of scikit-learn's digits.

    The body of the network `digits` is followed by a linear map to two features, and the head has no bias: class i
    gets the sector of the plane in which ``w_i . f`` is largest. Two classes would show nothing: the gradients of the
    cross entropy in the w_i add up to zero and weight decay shrinks their sum, so two weight vectors end as (-w, w),
    of equal length at any imbalance. Of the test set, the features of the first seed are returned.
    """
    torch.set_num_threads(1)
    schedule = find_recipe("digits").stretched_to(epochs)
    data = _long_tail(classes, ratio)
    networks: dict[str, Any] = {
        "data": "digits",
        "ratio": ratio,
        "seeds": seeds,
        "counts": data.counts.tolist(),
    }
    for name in ("baseline", "wvn"):
        snapshots = []
        for seed in range(seeds):
            body = build("digits", data.classes, shape=data.shape, seed=seed).body
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                net = Net(
                    nn.Sequential(body, nn.Linear(64, 2)), nn.Linear(2, data.classes, bias=False)
                )
            fit(net, data, schedule, METHODS[name], seed=seed)
            snapshots.append(snapshot(net, data, Preprocess(schedule, data)))
        networks[name] = {
            "weights": [_rounded(trained.head.weight, 4) for trained in snapshots],
            "features": _rounded(snapshots[0].features["test"], 2),
            "labels": snapshots[0].labels["test"].tolist(),
        }
    return networks


def _rounded(values: Any, digits: int) -> list:
    return np.round(np.asarray(values, np.float64), digits).tolist()


def _long_tail(classes: int, ratio: float) -> Data:
    """Return the first classes of the digits, cut to a long tail."""
    data = digits()
    train, test = (
        split[np.flatnonzero(split.labels < classes)] for split in (data.train, data.test)
    )
    return imbalance(Data(data.name, data.names[:classes], train, test), "long-tail", ratio=ratio)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="file of results")
    out = parser.parse_args().out
    out.write_text(json.dumps(train_two_features(), separators=(",", ":")) + "\n")
