"""The adjustments of one trained network, for its record: chosen on its hold-out, on test, or without labels.

For rules of one strength everything is read from the exact path of the test error over that strength. In records the
strength is called gamma for every rule.

`record.make_record` calls `path_on_test`, `shift_errors`, `oracle_error` and, where the splits are there,
`chosen_on_hold_out` and `nearest_mean_error`. What is best on test and what the oracle head reaches takes test labels,
which nobody has in earnest: these numbers are there to be compared with.
"""

from dataclasses import replace

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
from .record_fields import (
    BothErrors,
    ChosenPair,
    ChosenStrength,
    ErrorsAtGamma,
    HoldOutChoices,
    OracleErrors,
    ShiftErrors,
)

# The strengths that records try, by rule. For tau and the shift 1 is what theory asks for, so that 4 is far enough.
RANGES: dict[str, tuple[float, float]] = {
    Rescale.name: (0.0, 2.0),
    Tau.name: (0.0, 4.0),
    Shift.name: (0.0, 4.0),
}
SHIFTS = np.linspace(0.0, 4.0, 101)  # the strengths of every curve of a shift in a record
# The gammas of RS tried before a shift, and epoch by epoch.
RESCALE_STRENGTHS = np.linspace(0.0, 1.0, 21)


def chosen_on_hold_out(snapshot: Snapshot) -> HoldOutChoices:
    """Return what the split `held-out` alone chooses by each rule, and its test errors.

    For rules of one strength `gamma` is that strength, and `best` the lowest error of any. The network was trained
    without these images, so that its logits on them are like those on test images; on its training images they are not.
    """
    return {
        "n": len(snapshot.labels["held-out"]),
        "rescale": _chosen_strength(snapshot, Rescale.name),
        "tau": _chosen_strength(snapshot, Tau.name),
        "shift": _chosen_strength(snapshot, Shift.name),
        "rescale-then-shift": _rescale_then_shift(snapshot),
        "offsets": _offsets(snapshot),
    }


def _chosen_strength(snapshot: Snapshot, rule: str) -> ChosenStrength:
    """Return the strength that the hold-out chooses for a rule, with the errors there and at the best on test.

    `tune` chooses by the balanced error, its default. `best` is by the error, as everything on test in a record.
    """
    tuned = tune(*held_out(snapshot), rule=rule_on(snapshot, rule))
    on_test = path_on_test(snapshot, rule)
    return {
        **errors_at(on_test, tuned.strength or 0.0),
        "best": errors_at(on_test, on_test.best("error").gamma),
    }


def shift_errors(snapshot: Snapshot) -> ShiftErrors:
    """Return what a record has of the shift: its best strength on test, that without labels, and the whole curve.

    The shift adds ``strength * log(n_1 / n_k)`` to each logit. It is not in the paper; pages show it beside RS.
    """
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
    """Return a rule of one strength with the norms of the head and the range of the records.

    Tau goes by the norms; the other rules take no notice of them. The range is held still, so that all records are
    comparable, whatever range the rule has by itself today.

    Args:
        snapshot: whose head the rule is for.
        name: of the rule, a key of `RANGES`.
    """
    rule = find_path_rule(name).with_norms(to_numpy(snapshot.head.norms))
    return replace(rule, range=RANGES[name])  # type: ignore[type-var, return-value]


def path_on_test(snapshot: Snapshot, rule: str = Rescale.name) -> GammaPath:
    """Return the exact path of the test error over the strength of a rule.

    The path has every strength at which a prediction changes, so that its best point is the best of all strengths and
    not of a grid; `path.at` reads the errors at any other.

    Args:
        snapshot: with the features of the split `test`.
        rule: the name of a rule of one strength, a key of `RANGES`.
    """
    return gamma_path(
        snapshot.logits("test"),
        snapshot.labels["test"],
        snapshot.counts,
        rule=rule_on(snapshot, rule),
    )


def errors_at(path: GammaPath, strength: float) -> ErrorsAtGamma:
    """Return a strength and both errors there, rounded as in all records.

    The errors are those at the strength before it is rounded: near a step of the path, they need not be those at the
    rounded one.

    Args:
        path: over the strength of one rule, from `path_on_test`.
        strength: any in the range of the path.
    """
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


def oracle_error(snapshot: Snapshot) -> OracleErrors | None:
    """Return the test error of a head fitted to the test features; None if it has more weights than images.

    Such a head could learn the test images by heart, and its error would say nothing of the features. So there is none
    for Tiny ImageNet.
    """
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


def _offsets(snapshot: Snapshot) -> BothErrors:
    """Return the test errors of the head with an offset for each class, fitted on `held-out`.

    Offsets are the default of `levelhead.tune`; they have no strength, and a record no curve of them.
    """
    tuned = tune(*held_out(snapshot), rule=Offsets.name)
    logits = snapshot.logits("test", tuned.adjustment.head(snapshot.head))
    labels = snapshot.labels["test"]
    return {
        "error": round(measure.error(logits, labels), 6),
        "balanced_error": round(measure.balanced_error(logits, labels), 6),
    }


def _rescale_then_shift(snapshot: Snapshot) -> ChosenPair:
    """Choose gamma and tau of ``(n_1 / n_i)^gamma l_i - tau log n_i`` by the balanced error.

    For each gamma tried, the best tau on `held-out` is found along the exact path. There is no exact path over two
    numbers, hence the grid `RESCALE_STRENGTHS` for the first.
    """

    def shift_path(gamma: float, split: str) -> GammaPath:
        """Return the path over tau of a split whose logits RS has scaled by this gamma."""
        by_gamma = Rescale(gamma).on_head(snapshot.head, snapshot.counts)
        return gamma_path(
            by_gamma.scores(to_numpy(snapshot.logits(split))),
            snapshot.labels[split],
            snapshot.counts,
            rule=rule_on(snapshot, Shift.name),
        )

    best = {}  # by gamma, the best point along the path over tau
    for strength in RESCALE_STRENGTHS:
        gamma = float(strength)
        best[gamma] = shift_path(gamma, "held-out").best()
    chosen_gamma = min(best, key=lambda gamma: best[gamma].value)
    chosen = errors_at(shift_path(chosen_gamma, "test"), best[chosen_gamma].gamma)
    # Along that path the strength is the one of the shift.
    return {**chosen, "gamma": round(chosen_gamma, 4), "tau": chosen["gamma"]}
