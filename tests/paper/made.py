"""Records made by hand: what a run would have left, with whatever is to be true of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from levelhead import counts as count
from levelhead_lab.paper.cells import GRID
from levelhead_lab.paper.tables import DATA_SIZES


def counts_of(column: str) -> np.ndarray:
    data, *profile, ratio = column.split(":")
    shape = count.step if profile == ["step"] else count.long_tail
    return shape(*DATA_SIZES[data], float(ratio))


def made(
    column: str = "cifar10:100",
    method: str = "baseline",
    seed: int = 0,
    *,
    error: float = 0.3,
    best: float = 0.2,
    width: float = 0.5,
    middle: float = 0.5,
    power: float = 0.15,
    early: float = 0.0,
    rarer: float = 1.0,
    oracle: float = 0.15,
    gamma: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A record.

    Args:
        error, best: at gamma = 0 and at `middle`.
        width: of the range of gammas that are within a point of the best.
        power: norms are counts to this power; `early`, at the first epoch.
        rarer: sigma-test and the angle between centers are 20 + 5 rarer times the logarithm of a class's rarity, and
            recall falls with it.
        gamma: chosen on a hold-out: the record is a companion's.
    """
    n = counts_of(column)
    rarity = np.log(n.max() / n)
    curve = best + 0.01 * ((GRID - middle) / (width / 2)) ** 2
    norms = n / n.max()
    chosen = (
        {} if gamma is None else {"gamma": gamma, "error": float(np.interp(gamma, GRID, curve))}
    )
    rules = ("rescale", "tau", "shift", "rescale-then-shift")
    held = {"n": 100, **dict.fromkeys(rules, chosen)} if chosen else None
    epochs = [1, 60, 120, 180]
    powers = np.linspace(early, power, len(epochs))
    return {
        "column": column,
        "method": method,
        "seed": seed,
        "hold_out": 0.0 if gamma is None else 0.1,
        "counts": n.tolist(),
        "error": error,
        "curve": np.round(curve, 6).tolist(),
        "held_out": held,
        "best_on_test": {"gamma": middle, "error": best},
        "match_prior": {"gamma": middle, "error": best},
        "best_epoch": {"epoch": 170, "error": error},
        "nearest_mean_error": error,
        "top": None,
        "device": "a GPU",
        "identity": {"recipe": {"epochs": 180, "milestones": [80, 150]}},
        "seconds": 90.0,
        "versions": {"torch": "2.13.0"},
        "oracle": {"error": oracle},
        "norms": (norms**power).tolist(),
        "norms_over_epochs": {
            "epochs": epochs,
            "norms": [(e / 100 + norms**p).tolist() for e, p in zip(epochs, powers, strict=True)],
        },
        "recall": (0.95 - 0.05 * rarer * rarity).tolist(),
        "geometry": {
            "sigma_train": (15 - rarity).tolist(),
            "sigma_test": (20 + 5 * rarer * rarity).tolist(),
            "center_gap": (2 + 5 * rarer * rarity).tolist(),
        },
        **more,
    }


EACH = ["reproduced", "partly", "not reproduced"]


def verdicts(claim, *cases) -> list[str]:
    """What a claim finds in each case; `nothing` where it lacks records."""
    return [finding.outcome if (finding := claim(records)) else "nothing" for records in cases]


def shuffled(records: list[dict], share: float, key: str, group: str | None = None) -> list[dict]:
    """The same records with the values of a share of the classes shuffled."""
    rng = np.random.default_rng(0)
    for record in records:
        values = record if group is None else record[group]
        mixed = np.array(values[key])
        places = rng.choice(len(mixed), round(share * len(mixed)), replace=False)
        mixed[places] = rng.permutation(mixed[places])
        values[key] = mixed.tolist()
    return records
