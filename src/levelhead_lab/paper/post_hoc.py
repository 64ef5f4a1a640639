"""The adjustments of one trained network, each with its strength chosen on the network's own hold-out."""

from dataclasses import replace
from typing import Any

import numpy as np

from levelhead.choice.gamma_path import GammaPath, gamma_path
from levelhead.choice.snapshot import Snapshot
from levelhead.choice.tune import match_prior, tune
from levelhead.core import adjust, measure
from levelhead.core.head import Head
from levelhead.core.rules import Auto, Rescale, Shift, Tau, find_path_rule, rule_with
from levelhead.heads.apply import adjust as apply_tuned
from levelhead.support.arrays import to_numpy
from levelhead.support.warnings import quiet

from ..runs.evaluate import held_out
from . import geometry

RANGES: dict[str, tuple[float, float]] = {
    Rescale.name: (0.0, 2.0),
    Tau.name: (0.0, 4.0),
    Shift.name: (0.0, 4.0),
}
SHIFTS = np.linspace(0.0, 4.0, 101)  # the strengths of every curve of a shift in a record
RESCALE_STRENGTHS = np.linspace(
    0.0, 1.0, 21
)  # the gammas of RS tried before a shift, and epoch by epoch


def chosen_on_hold_out(snapshot: Snapshot) -> dict[str, Any]:
    """Return each rule's strength, chosen on the split `held-out` alone, its test error, and the lowest of any."""
    found: dict[str, Any] = {"n": len(snapshot.labels["held-out"])}
    norms = to_numpy(snapshot.head.norms)
    for rule, reach in RANGES.items():
        tuned = tune(*held_out(snapshot), rule=rule_with(rule, norms=norms, range=reach))
        interval = None if tuned.interval is None else [round(end, 4) for end in tuned.interval]
        on_test = path_on_test(snapshot, rule)
        found[rule] = {
            **errors_at(on_test, tuned.gamma),
            "interval": interval,
            "best": errors_at(on_test, on_test.best("error").gamma),
        }
    return {
        **found,
        "rescale-then-shift": _rescale_then_shift(snapshot),
        "auto": _chosen_rule(snapshot),
    }


def shift_errors(snapshot: Snapshot) -> dict[str, Any]:
    path = path_on_test(snapshot, "shift")
    matched = match_prior(
        snapshot.logits("test"), snapshot.counts, rule=Shift(RANGES[Shift.name]), bootstrap=0
    ).gamma
    return {
        "best_on_test": errors_at(path, path.best("error").gamma),
        "match_prior": errors_at(path, matched),
        "curve": [round(path.at(float(strength)).error, 6) for strength in SHIFTS],
    }


def path_on_test(snapshot: Snapshot, rule: str = "rescale") -> GammaPath:
    named = find_path_rule(rule)
    made = replace(named, norms=to_numpy(snapshot.head.norms)) if named.needs_norms else named
    return gamma_path(
        snapshot.logits("test"),
        snapshot.labels["test"],
        snapshot.counts,
        rule=made,
        range=RANGES[rule],
    )


def errors_at(path: GammaPath, strength: float) -> dict[str, float]:
    point = path.at(float(strength))
    return {
        "gamma": round(float(strength), 4),
        "error": round(point.error, 6),
        "balanced_error": round(point.balanced_error, 6),
    }


def nearest_mean_error(snapshot: Snapshot) -> float:
    means = geometry.centers(
        snapshot.features["train"], snapshot.labels["train"], snapshot.head.classes
    )
    test = to_numpy(snapshot.features["test"]).astype(np.float64)
    return round(measure.error(Head(means).logits(test), snapshot.labels["test"]), 6)


def oracle_error(snapshot: Snapshot) -> dict[str, float] | None:
    """Return the test error of a head fitted to the test features; None if it has more weights than images."""
    if snapshot.head.weight.size > len(snapshot.labels["test"]):
        return None
    found = geometry.oracle_head(
        snapshot.features["test"], snapshot.labels["test"], snapshot.head.classes
    )
    return {
        "error": round(found.error, 6),
        "loss": round(found.loss, 6),
        "gradient": float(f"{found.gradient:.1e}"),
        "steps": found.steps,
    }


def _chosen_rule(snapshot: Snapshot) -> dict[str, Any]:
    """Return the rule that the split `held-out` chooses, its strengths, and the test errors of the adjusted head."""
    tuned = tune(*held_out(snapshot), rule=Auto(norms=to_numpy(snapshot.head.norms)), bootstrap=0)
    logits, labels = (
        snapshot.logits("test", apply_tuned(snapshot.head, tuned)),
        snapshot.labels["test"],
    )
    return {
        "rule": tuned.rule,
        "gamma": round(tuned.gamma, 4),
        "second": None if tuned.second is None else round(tuned.second, 4),
        "error": round(measure.error(logits, labels), 6),
        "balanced_error": round(measure.balanced_error(logits, labels), 6),
    }


def _rescale_then_shift(snapshot: Snapshot) -> dict[str, float]:
    """Choose gamma and tau of ``(n_1 / n_i)^gamma l_i - tau log n_i``: for each gamma tried, the best tau."""
    counts, labels = snapshot.counts, snapshot.labels
    held, test = (
        to_numpy(snapshot.logits(split)).astype(np.float64) for split in ("held-out", "test")
    )

    def tuned(gamma: float):
        scaled = held * adjust.factors(counts, gamma)
        with quiet():  # scores that RS has adjusted too far look as if the counts were in reverse
            return tune(
                scaled, labels["held-out"], counts, rule=Shift(RANGES[Shift.name]), bootstrap=0
            )

    gamma, found = min(
        ((gamma, tuned(float(gamma))) for gamma in RESCALE_STRENGTHS),
        key=lambda pair: pair[1].criterion_curve.values.min(),
    )
    shifted = gamma_path(
        test * adjust.factors(counts, float(gamma)),
        labels["test"],
        counts,
        rule="shift",
        range=RANGES[Shift.name],
    )
    chosen = errors_at(shifted, found.gamma)
    return {**chosen, "gamma": round(float(gamma), 4), Tau.name: chosen["gamma"]}
