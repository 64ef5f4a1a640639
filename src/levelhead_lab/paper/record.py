"""One trained network as a compact record: what the tables and figures read, and nothing else.

`reproduce.keep_record` calls `make_record` for each network as soon as it is trained. What a record has is in
`record_fields`; adjustments of the network, and what its hold-out chooses, are computed in `post_hoc`.

Numbers are rounded before they are written (shares to six digits, norms and recalls to four), so that a record stays
small. `tests/paper/test_records.py` reads every one of results/records.
"""

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from levelhead.core import measure
from levelhead.core.rules import Rescale
from levelhead.core.unlabelled import tune_unlabelled
from levelhead.support.arrays import to_numpy

from ..lab.snapshot import Snapshot
from . import geometry, post_hoc
from .cells import GRID
from .record_fields import (
    BestEpoch,
    Geometry,
    LogRow,
    NormsOverEpochs,
    PerClass,
    Record,
    RunFacts,
    TopErrors,
)

SHIPPED_COLUMN = "cifar10:100"
_LOGGED_EPOCHS = 25  # whose norms a record keeps
_MOST_CLASSES = 20  # whose norms over epochs are all kept; of more, every fifth


def make_record(
    snapshot: Snapshot, log: Sequence[LogRow], facts: RunFacts, *, top: int | None = None
) -> Record:
    """Return the record of one run, at most 20 KB as JSON.

    Args:
        snapshot: the trained head, and the features of each split: `test` and, where they were kept, `train` and
            `held-out`. Without one of those two, the fields that need it are None.
        log: of the run, a row for each epoch.
        facts: what is known of the run without its numbers; they come first.
        top: a k for top-k errors; None for none.
    """
    labels = snapshot.labels["test"]
    logits = snapshot.logits("test")
    # Errors at every strength come from one exact path, so that those of the record cannot contradict each other.
    path = post_hoc.path_on_test(snapshot)
    best = path.best("error")
    zero = path.at(0.0)
    # Without labels: the gamma at which predicted shares are level, as those of a balanced test set should be.
    matched = tune_unlabelled(logits, counts=snapshot.counts, rule=Rescale.name)
    # What takes a split that not every run keeps, or that not every table asks for.
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
        "shift": post_hoc.shift_errors(snapshot),
        "held_out": held_out,
        "nearest_mean_error": nearest_mean,
        "oracle": post_hoc.oracle_error(snapshot),
        "curve": [_share(path.at(float(gamma)).error) for gamma in GRID],
        "recall": _per_class(zero.class_accuracy),
        "recall_at_best": _per_class(best.class_accuracy),
        "negative_share": _share(measure.negative_share(logits, labels)),
        "norms": _rounded(to_numpy(snapshot.head.norms), 4),
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
    """Return those of both networks that are in a folder, by method: those of results/networks are whole.

    Args:
        folder: with `cifar10-100-baseline.safetensors` and `cifar10-100-wvn.safetensors`; one that is missing is left
            out, as in an installed package, which has no results/.
    """
    snapshots = {}
    for method in ("baseline", "wvn"):
        path = Path(folder) / f"cifar10-100-{method}.safetensors"
        if path.is_file():
            snapshots[method] = Snapshot.load(path)
    return snapshots


def _geometry(snapshot: Snapshot) -> Geometry:
    """Return the spread of each class's features in each split and, with the training set, the angle of its centers.

    All in degrees, a number for each class: see `geometry.angular_sigma` and `geometry.center_gap`.
    """
    classes = snapshot.head.classes
    test = (snapshot.features["test"], snapshot.labels["test"])
    sigma_test = _per_class(geometry.angular_sigma(*test, classes), 2)
    if "train" not in snapshot.labels:
        return {"sigma_test": sigma_test}
    train = (snapshot.features["train"], snapshot.labels["train"])
    return {
        "sigma_train": _per_class(geometry.angular_sigma(*train, classes), 2),
        "sigma_test": sigma_test,
        "center_gap": _per_class(geometry.center_gap(train, test, classes), 2),
    }


def _top(logits: np.ndarray, labels: np.ndarray, snapshot: Snapshot, k: int) -> TopErrors:
    """Return the top-k error up to gamma = 1: the first 101 points of the grid.

    The exact path knows the first place of each image and no others, so that each point is computed by itself.

    Args:
        logits: [N, K], of the test images.
        labels: [N].
        snapshot: whose head and counts decide the scales of RS.
        k: an image counts as right if its class is among the k largest logits.
    """
    curve = []
    for gamma in GRID[:101]:
        scores = Rescale(float(gamma)).on_head(snapshot.head, snapshot.counts).scores(logits)
        curve.append(_share(measure.error(scores, labels, k=k)))
    return {"k": k, "curve": curve}


def _best_epoch(log: Sequence[LogRow]) -> BestEpoch | None:
    """Return the epoch whose test error is lowest, and that error; None if it was never measured.

    >>> _best_epoch([{"epoch": 1}, {"epoch": 2, "test_error": 0.31}, {"epoch": 3, "test_error": 0.29}])
    {'epoch': 3, 'error': 0.29}
    """
    best: BestEpoch | None = None
    for row in log:
        error = row.get("test_error")
        if error is None:
            continue
        # Of equal errors the first epoch counts.
        if best is None or error < best["error"]:
            best = {"epoch": row["epoch"], "error": error}
    if best is not None:
        best["error"] = _share(best["error"])
    return best


def _norms_over_epochs(log: Sequence[LogRow]) -> NormsOverEpochs:
    """Return the norms at a few epochs, evenly spaced from the first to the last, for Figure 1.

    All epochs of all classes would be most of a record: 180 x 100 numbers on CIFAR-100. Of a log of three epochs all
    are kept, of one of 180 every seventh or eighth.
    """
    # The first and the last epoch are among the places, and in a short log some places coincide.
    places: set[int] = set()
    if log:
        places = {round(place) for place in np.linspace(0, len(log) - 1, _LOGGED_EPOCHS)}
    epochs = []
    norms = []
    for place in sorted(places):
        of_classes = log[place].get("norms")
        if not of_classes:
            continue
        every = 1
        if len(of_classes) > _MOST_CLASSES:
            every = 5
        epochs.append(log[place]["epoch"])
        norms.append(_rounded(of_classes[::every], 3))
    return {"epochs": epochs, "norms": norms}


def _share(value: float) -> float:
    return round(float(value), 6)


def _rounded(values: ArrayLike, digits: int) -> list[float]:
    return [round(float(value), digits) for value in np.asarray(values)]


def _per_class(values: ArrayLike, digits: int = 4) -> PerClass:
    """Return numbers for JSON, which has no NaN: None for a class without samples.

    >>> _per_class([0.91234, float("nan")], digits=2)
    [0.91, None]
    """
    numbers: PerClass = []
    for value in _rounded(values, digits):
        if np.isnan(value):
            numbers.append(None)
        else:
            numbers.append(value)
    return numbers
