"""One trained network as a compact record: what the tables and figures read, and nothing else.

`reproduce.keep_record` calls `make_record` for each network as soon as it is trained. What a record has is in
`record_fields`; adjustments of the network, and what its hold-out chooses, are computed in `post_hoc`.
"""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

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
    """Return the record of one run, at most 20 KB as JSON.

    Args:
        snapshot: the trained head, and the features of each split.
        log: of the run, a row for each epoch.
        facts: what is known of the run without its numbers; they come first.
        top: a k for top-k errors; None for none.
    """
    labels = snapshot.labels["test"]
    logits = snapshot.logits("test")
    path = post_hoc.path_on_test(snapshot)
    best = path.best("error")
    zero = path.at(0.0)
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
    """Return those of both networks that are in a folder, by method."""
    snapshots = {}
    for method in ("baseline", "wvn"):
        path = Path(folder) / f"cifar10-100-{method}.safetensors"
        if path.is_file():
            snapshots[method] = Snapshot.load(path)
    return snapshots


def _geometry(snapshot: Snapshot) -> dict[str, Any]:
    """Return the spread of each class's features in each split and, with the training set, the angle of its centers."""
    classes = snapshot.head.classes
    angles: dict[str, Any] = {}
    splits = {}
    for name in ("train", "test"):
        if name in snapshot.labels:
            features = snapshot.features[name]
            labels = snapshot.labels[name]
            splits[name] = (features, labels)
            angles[f"sigma_{name}"] = _list(geometry.angular_sigma(features, labels, classes), 2)
    if "train" in splits:
        gap = geometry.center_gap(splits["train"], splits["test"], classes)
        angles["center_gap"] = _list(gap, 2)
    return angles


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


def _list(values: ArrayLike, digits: int = 4) -> list[float | None]:
    """Return numbers for JSON, which has no NaN: None for a class without samples."""
    numbers: list[float | None] = []
    for value in np.asarray(values):
        if np.isnan(value):
            numbers.append(None)
        else:
            numbers.append(round(float(value), digits))
    return numbers
