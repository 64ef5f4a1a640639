"""One trained network as a compact record: everything the tables and figures read, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import adjust, geometry, measure
from .._array import to_numpy
from ..head import Head
from ..path import GammaPath, gamma_path
from ..rule import RuleName
from ..snapshot import Snapshot
from ..tune import match_prior, tune

GRID = np.linspace(0.0, 2.0, 201)
RULES: tuple[RuleName, ...] = ("rescale", "tau", "shift")


def record(
    snapshot: Snapshot, log: list[dict[str, Any]], facts: dict[str, Any], *, top: int | None = None
) -> dict[str, Any]:
    """The record of one run, at most 20 KB as JSON.

    Args:
        snapshot: with the splits `train` and `test`, and `held-out` for a companion run.
        log: per epoch, at least `epoch`, `test_error`, `norms`.
        facts: spec, seed, versions, hardware, seconds, as they are to be kept.
        top: also top-k errors, for this k.
    """
    head, labels = snapshot.head.numpy(), snapshot.labels["test"]
    logits = snapshot.logits("test")
    path = gamma_path(logits, labels, snapshot.counts)
    best, zero = path.best("error"), path.at(0.0)
    return {
        **facts,
        "n_train": int(snapshot.counts.sum()),
        "n_test": len(labels),
        "error": _share(zero.error),
        "balanced_error": _share(zero.balanced_error),
        "best_epoch": _best_epoch(log),
        "best_on_test": {"gamma": round(best.gamma, 4), "error": _share(best.error)},
        "match_prior": _chosen(path, match_prior(logits, snapshot.counts, bootstrap=0).gamma),
        "held_out": _held_out(snapshot) if "held-out" in snapshot.labels else None,
        "curve": [_share(path.at(float(g)).error) for g in GRID],
        "recall": _list(zero.class_accuracy),
        "recall_at_best": _list(best.class_accuracy),
        "negative_share": _share(measure.negative_share(logits, labels)),
        "norms": _list(to_numpy(head.norms)),
        "norms_over_epochs": _norms_over_epochs(log),
        "rules": {rule: _best_of(rule, logits, labels, snapshot) for rule in RULES},
        "nearest_mean_error": _nearest_mean_error(snapshot),
        "geometry": _geometry(snapshot),
        "top": None if top is None else _top(logits, labels, snapshot, top),
    }


def _chosen(path: GammaPath, gamma: float) -> dict[str, float]:
    return {"gamma": round(float(gamma), 4), "error": _share(path.at(float(gamma)).error)}


def _held_out(snapshot: Snapshot) -> dict[str, Any]:
    """What each rule's strength would be, chosen on the held-out part of the training set alone."""
    chosen: dict[str, Any] = {"n": len(snapshot.labels["held-out"])}
    held, labels, norms = snapshot.logits("held-out"), snapshot.labels["held-out"], to_numpy(snapshot.head.norms)
    for rule in RULES:
        tuned = tune(held, labels, snapshot.counts, rule=rule, norms=norms)
        path = _path(rule, snapshot.logits("test"), snapshot.labels["test"], snapshot)
        chosen[rule] = {"interval": _list(tuned.interval or []), **_chosen(path, tuned.gamma)}
    return chosen


def _path(rule: RuleName, logits: np.ndarray, labels: np.ndarray, snapshot: Snapshot) -> GammaPath:
    norms = to_numpy(snapshot.head.norms) if rule == "tau" else None
    return gamma_path(logits, labels, snapshot.counts, rule=rule, norms=norms)


def _best_of(rule: RuleName, logits: np.ndarray, labels: np.ndarray, snapshot: Snapshot) -> dict[str, float]:
    best = _path(rule, logits, labels, snapshot).best("error")
    return {"strength": round(best.gamma, 4), "error": _share(best.error)}


def _nearest_mean_error(snapshot: Snapshot) -> float | None:
    if "train" not in snapshot.labels:
        return None
    means = geometry.centers(snapshot.features["train"], snapshot.labels["train"], snapshot.head.classes)
    test = to_numpy(snapshot.features["test"]).astype(np.float64)
    return _share(measure.error(Head(means).logits(test), snapshot.labels["test"]))


def _geometry(snapshot: Snapshot) -> dict[str, Any]:
    classes = snapshot.head.classes
    there = [name for name in ("train", "test") if name in snapshot.labels]
    splits = {name: (snapshot.features[name], snapshot.labels[name]) for name in there}
    sigma = {name: geometry.angular_sigma(*split, classes) for name, split in splits.items()}
    found: dict[str, Any] = {f"sigma_{name}": _list(values, 2) for name, values in sigma.items()}
    if "train" in splits:
        found["center_gap"] = _list(geometry.center_gap(splits["train"], splits["test"], classes), 2)
    return found


def _top(logits: np.ndarray, labels: np.ndarray, snapshot: Snapshot, k: int) -> dict[str, Any]:
    def at(gamma: float) -> float:
        return _share(measure.error(logits * adjust.factors(snapshot.counts, gamma), labels, k=k))

    return {"k": k, "error": at(0.0), "curve": [at(float(g)) for g in GRID[:101:5]]}


def _best_epoch(log: list[dict[str, Any]]) -> dict[str, Any] | None:
    rows = [row for row in log if row.get("test_error") is not None]
    row = min(rows, key=lambda row: row["test_error"], default=None)
    return None if row is None else {"epoch": row["epoch"], "error": _share(row["test_error"])}


def _norms_over_epochs(log: list[dict[str, Any]], rows: int = 25) -> dict[str, list]:
    """At most `rows` epochs, spread evenly; of more than 20 classes, every fifth."""
    kept = [log[i] for i in sorted({round(i) for i in np.linspace(0, len(log) - 1, rows)})] if log else []
    kept = [row for row in kept if row.get("norms")]
    every = 5 if kept and len(kept[0]["norms"]) > 20 else 1
    return {"epochs": [row["epoch"] for row in kept], "norms": [_list(row["norms"][::every], 3) for row in kept]}


def _share(value: float) -> float:
    return round(float(value), 6)


def _list(values: Any, digits: int = 4) -> list[float | None]:
    return [None if np.isnan(x) else round(float(x), digits) for x in np.asarray(values)]
