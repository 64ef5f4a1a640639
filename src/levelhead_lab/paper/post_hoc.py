"""The adjustments of one trained network, for its record: chosen on its hold-out, on test, or without labels.

For rules of one strength everything is read from the exact path of the test error over that strength. In records the
strength is called gamma for every rule.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from levelhead.core import measure
from levelhead.core.gamma_path import GammaPath, find_path_rule, gamma_path
from levelhead.core.head import Head
from levelhead.core.rules import Offsets, OneStrength, Rescale, Shift, Tau
from levelhead.core.tune import tune
from levelhead.core.unlabelled import tune_unlabelled
from levelhead.support.arrays import to_numpy

from ..lab.snapshot import Snapshot
from ..runs.evaluate import held_out
from . import geometry

# The strengths that records try, by rule. For tau and the shift 1 is what theory asks for, so that 4 is far enough.
RANGES: dict[str, tuple[float, float]] = {
    Rescale.name: (0.0, 2.0),
    Tau.name: (0.0, 4.0),
    Shift.name: (0.0, 4.0),
}
SHIFTS = np.linspace(0.0, 4.0, 101)  # the strengths of every curve of a shift in a record
# The gammas of RS tried before a shift, and epoch by epoch.
RESCALE_STRENGTHS = np.linspace(0.0, 1.0, 21)


def chosen_on_hold_out(snapshot: Snapshot) -> dict[str, Any]:
    """Return what the split `held-out` alone chooses by each rule, and its test errors.

    For rules of one strength `gamma` is that strength, and `best` the lowest error of any.
    """
    chosen: dict[str, Any] = {"n": len(snapshot.labels["held-out"])}
    for name in RANGES:
        tuned = tune(*held_out(snapshot), rule=rule_on(snapshot, name))
        on_test = path_on_test(snapshot, name)
        chosen[name] = {
            **errors_at(on_test, tuned.strength or 0.0),
            "best": errors_at(on_test, on_test.best("error").gamma),
        }
    chosen["rescale-then-shift"] = _rescale_then_shift(snapshot)
    chosen[Offsets.name] = _offsets(snapshot)
    return chosen


def shift_errors(snapshot: Snapshot) -> dict[str, Any]:
    """Return what a record has of the shift: its best strength on test, that without labels, and the whole curve."""
    path = path_on_test(snapshot, Shift.name)
    matched = tune_unlabelled(
        snapshot.logits("test"), counts=snapshot.counts, rule=rule_on(snapshot, Shift.name)
    )
    return {
        "best_on_test": errors_at(path, path.best("error").gamma),
        "match_prior": errors_at(path, matched.strength or 0.0),
        "curve": [round(path.at(float(strength)).error, 6) for strength in SHIFTS],
    }


def rule_on(snapshot: Snapshot, name: str) -> OneStrength:
    """Return a rule of one strength with the norms of the head and the range of the records."""
    rule = find_path_rule(name).with_norms(to_numpy(snapshot.head.norms))
    return replace(rule, range=RANGES[name])  # type: ignore[type-var, return-value]


def path_on_test(snapshot: Snapshot, rule: str = Rescale.name) -> GammaPath:
    """Return the exact path of the test error over the strength of a rule."""
    return gamma_path(
        snapshot.logits("test"),
        snapshot.labels["test"],
        snapshot.counts,
        rule=rule_on(snapshot, rule),
    )


def errors_at(path: GammaPath, strength: float) -> dict[str, float]:
    """Return a strength and both errors there, rounded as in all records."""
    point = path.at(float(strength))
    return {
        "gamma": round(float(strength), 4),
        "error": round(point.error, 6),
        "balanced_error": round(point.balanced_error, 6),
    }


def nearest_mean_error(snapshot: Snapshot) -> float:
    """Return the test error of a head whose weight vectors are the directions of the training features' means.

    All have length 1, so that each sample goes to the class with the nearest direction.
    """
    means = geometry.centers(
        snapshot.features["train"], snapshot.labels["train"], snapshot.head.classes
    )
    test = to_numpy(snapshot.features["test"]).astype(np.float64)
    return round(measure.error(Head(means).logits(test), snapshot.labels["test"]), 6)


def oracle_error(snapshot: Snapshot) -> dict[str, float] | None:
    """Return the test error of a head fitted to the test features; None if it has more weights than images."""
    if snapshot.head.weight.size > len(snapshot.labels["test"]):
        return None
    oracle = geometry.oracle_head(
        snapshot.features["test"], snapshot.labels["test"], snapshot.head.classes
    )
    return {
        "error": round(oracle.error, 6),
        "loss": round(oracle.loss, 6),
        "gradient": float(f"{oracle.gradient:.1e}"),
        "steps": oracle.steps,
    }


def _offsets(snapshot: Snapshot) -> dict[str, float]:
    """Return the test errors of the head with an offset for each class, fitted on `held-out`."""
    tuned = tune(*held_out(snapshot), rule=Offsets.name)
    logits = snapshot.logits("test", tuned.adjustment.head(snapshot.head))
    labels = snapshot.labels["test"]
    return {
        "error": round(measure.error(logits, labels), 6),
        "balanced_error": round(measure.balanced_error(logits, labels), 6),
    }


def _rescale_then_shift(snapshot: Snapshot) -> dict[str, float]:
    """Choose gamma and tau of ``(n_1 / n_i)^gamma l_i - tau log n_i`` by the balanced error.

    For each gamma tried, the best tau on `held-out` is found along the exact path.
    """

    def shift_path(gamma: float, split: str) -> GammaPath:
        by_gamma = Rescale(gamma).on_head(snapshot.head, snapshot.counts)
        return gamma_path(
            by_gamma.scores(to_numpy(snapshot.logits(split))),
            snapshot.labels[split],
            snapshot.counts,
            rule=rule_on(snapshot, Shift.name),
        )

    best = {
        float(gamma): shift_path(float(gamma), "held-out").best() for gamma in RESCALE_STRENGTHS
    }
    gamma = min(best, key=lambda gamma: best[gamma].value)
    chosen = errors_at(shift_path(gamma, "test"), best[gamma].gamma)
    return {**chosen, "gamma": round(gamma, 4), Tau.name: chosen["gamma"]}
