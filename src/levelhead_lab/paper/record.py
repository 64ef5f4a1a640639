"""One trained network as a compact record: what the tables and figures read, and nothing else."""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from levelhead.core import measure
from levelhead.core.rules import Rescale, Shift
from levelhead.core.unlabelled import tune_unlabelled
from levelhead.support.arrays import to_numpy

from ..lab.snapshot import Snapshot
from . import geometry, post_hoc
from .cells import GRID

SHIPPED_COLUMN = "cifar10:100"


def make_record(
    snapshot: Snapshot, log: list[dict[str, Any]], facts: dict[str, Any], *, top: int | None = None
) -> dict[str, Any]:
    """Return the record of one run, at most 20 KB as JSON, `facts` first; `top` is a k for top-k errors."""
    labels = snapshot.labels["test"]
    logits = snapshot.logits("test")
    path = post_hoc.path_on_test(snapshot)
    best, zero = path.best("error"), path.at(0.0)
    matched = tune_unlabelled(logits, counts=snapshot.counts, rule=Rescale.name)
    held_out = nearest_mean = top_errors = None
    if "held-out" in snapshot.labels:
        held_out = post_hoc.chosen_on_hold_out(snapshot)
    if "train" in snapshot.labels:
        nearest_mean = post_hoc.nearest_mean_error(snapshot)
    if top is not None:
        top_errors = _top(logits, labels, snapshot, top)
    return {
        **facts,
        "n_train": int(snapshot.counts.sum()),
        "n_test": len(labels),
        "error": _share(zero.error),
        "balanced_error": _share(zero.balanced_error),
        "best_epoch": _best_epoch(log),
        "best_on_test": post_hoc.errors_at(path, best.gamma),
        "match_prior": post_hoc.errors_at(path, matched.strength or 0.0),
        Shift.name: post_hoc.shift_errors(snapshot),
        "held_out": held_out,
        "nearest_mean_error": nearest_mean,
        "oracle": post_hoc.oracle_error(snapshot),
        "curve": [_share(path.at(float(gamma)).error) for gamma in GRID],
        "recall": _list(zero.class_accuracy),
        "recall_at_best": _list(best.class_accuracy),
        "negative_share": _share(measure.negative_share(logits, labels)),
        "norms": _list(to_numpy(snapshot.head.norms)),
        "norms_over_epochs": _norms_over_epochs(log),
        "geometry": _geometry(snapshot),
        "top": top_errors,
    }


def shipped_snapshots() -> dict[str, Snapshot]:
    """Return the two networks that come with the package by method: `baseline` and `wvn`, CIFAR-10 at ratio 100.

    Each has its head, the counts, and the features of the test images, as bench/paper/project_to_head.py makes them
    from the whole networks, which are in the repository (`whole_snapshots`).
    """
    with as_file(files("levelhead_lab.paper")) as folder:
        return whole_snapshots(folder)


def whole_snapshots(folder: str | Path) -> dict[str, Snapshot]:
    paths = {
        method: Path(folder) / f"cifar10-100-{method}.safetensors" for method in ("baseline", "wvn")
    }
    return {method: Snapshot.load(path) for method, path in paths.items() if path.is_file()}


def _geometry(snapshot: Snapshot) -> dict[str, Any]:
    """Return the spread of each class's features in each split and, with the training set, the angle of its centers."""
    classes = snapshot.head.classes
    found: dict[str, Any] = {}
    splits = {}
    for name in ("train", "test"):
        if name in snapshot.labels:
            features = snapshot.features[name]
            labels = snapshot.labels[name]
            splits[name] = (features, labels)
            found[f"sigma_{name}"] = _list(geometry.angular_sigma(features, labels, classes), 2)
    if "train" in splits:
        gap = geometry.center_gap(splits["train"], splits["test"], classes)
        found["center_gap"] = _list(gap, 2)
    return found


def _top(logits: np.ndarray, labels: np.ndarray, snapshot: Snapshot, k: int) -> dict[str, Any]:
    """Return the top-k error up to gamma = 1: the first 101 points of the grid."""
    curve = []
    for gamma in GRID[:101]:
        scores = Rescale(float(gamma)).on_head(snapshot.head, snapshot.counts).scores(logits)
        curve.append(_share(measure.error(scores, labels, k=k)))
    return {"k": k, "curve": curve}


def _best_epoch(log: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the epoch whose test error is lowest, and that error; None if it was never measured."""
    measured = [row for row in log if row.get("test_error") is not None]
    if not measured:
        return None
    best = min(measured, key=lambda row: row["test_error"])
    return {"epoch": best["epoch"], "error": _share(best["test_error"])}


def _norms_over_epochs(log: list[dict[str, Any]], rows: int = 25) -> dict[str, list]:
    """Return the norms at up to `rows` epochs, evenly spaced; of more than 20 classes, every fifth."""
    kept = []
    if log:
        places = {round(place) for place in np.linspace(0, len(log) - 1, rows)}
        kept = [log[place] for place in sorted(places) if log[place].get("norms")]
    every = 1
    if kept and len(kept[0]["norms"]) > 20:
        every = 5
    return {
        "epochs": [row["epoch"] for row in kept],
        "norms": [_list(row["norms"][::every], 3) for row in kept],
    }


def _share(value: float) -> float:
    return round(float(value), 6)


def _list(values: Any, digits: int = 4) -> list[float | None]:
    return [None if np.isnan(x) else round(float(x), digits) for x in np.asarray(values)]
