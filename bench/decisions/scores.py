"""Scores of the study of decisions: every model on every split, trained once and kept in a folder.

Training takes hours, and what is done with scores takes minutes: `make_scores` trains what the
folder lacks, a file for each cell (a set and a model), and `load_scores` gives a `Scores` for each
split in it. The networks that come with the package are not trained: of them there are scores
already.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from levelhead.support import atomic

from .models import MODELS, TRAININGS, Job, fit_scores
from .sets import (
    TABLES,
    WHEELS,
    Split,
    read_set,
    split_long_tail,
    split_set,
    split_shipped,
)

SHIPPED = "CIFAR-10-LT, shipped"
# Balanced sets that are cut to a long tail: the largest class, and its ratio to the smallest.
LONG_TAILS = {
    "digits": (70, 20),
    "letter": (150, 50),
}
# Sets with a balanced test beside a long-tailed hold-out; the test of others has their own shares.
BALANCED_TEST = (SHIPPED, *LONG_TAILS)
# Below 700 samples: more splits.
SMALL = ("balance", "cleveland", "dermatology", "ecoli", "glass", "new-thyroid")
# The models of each set; what is shipped is trained already.
SETS = {SHIPPED: ("baseline", "wvn"), "digits": MODELS, **dict.fromkeys(TABLES, MODELS)}


class Seeds(NamedTuple):
    """How many splits are drawn of a set: of a small one more, as chance is larger there."""

    large: int
    small: int


@dataclass(frozen=True)
class Scores:
    """One model on one split, trained plainly, and what its other trainings predict."""

    counts: np.ndarray  # [K], of the training
    held_out: np.ndarray  # [N, K]
    held_out_labels: np.ndarray  # [N]
    test: np.ndarray  # [N, K]
    test_labels: np.ndarray  # [N]
    predicted: dict[str, np.ndarray]  # of the test, [N], by training
    weighted: tuple[np.ndarray, np.ndarray] | None = None  # hold-out and test, by class weights


def load_scores(folder: Path, name: str, model: str) -> Iterator[Scores]:
    """Return a model's scores of each split of a set, as `make_scores` left them."""
    with np.load(_file(folder, name, model)) as file:
        for seed in range(int(file["seeds"])):
            # The arrays of a split are named `<seed>/<what>`.
            arrays = {}
            for key in file.files:
                split, _, what = key.partition("/")
                if split == str(seed):
                    arrays[what] = file[key]
            weighted = None
            if "weighted_test" in arrays:
                weighted = (arrays["weighted_held_out"], arrays["weighted_test"])
            yield Scores(
                counts=arrays["counts"],
                held_out=arrays["held_out"],
                held_out_labels=arrays["held_out_labels"],
                test=arrays["test"],
                test_labels=arrays["test_labels"],
                predicted={key: arrays[key] for key in TRAININGS[1:] if key in arrays},
                weighted=weighted,
            )


def make_scores(
    root: Path, folder: Path, cells: list[tuple[str, str]], seeds: Seeds, jobs: int
) -> None:
    """Train on every split the cells, each a set and a model, of which the folder has no scores yet."""
    # A wheel that is missing or another one stops the study here, and not after an hour.
    for wheel in WHEELS:
        wheel.open(root).close()
    folder.mkdir(parents=True, exist_ok=True)
    # The quick ones first, so that much is kept if it is stopped.
    missing = sorted(
        (cell for cell in cells if not _file(folder, *cell).is_file()),
        key=lambda cell: _cost(cell[1]),
    )
    with ProcessPoolExecutor(jobs) as pool:
        started = [pool.submit(_make_cell, root, folder, *cell, seeds) for cell in missing]
        for cell, future in zip(missing, started, strict=True):
            future.result()
            print(*cell, "trained", flush=True)


def _cost(model: str) -> int:
    """Return the rank of a model by how long it trains."""
    if model not in MODELS:  # one that is there already
        return -1
    return MODELS.index(model)


def _make_cell(root: Path, folder: Path, name: str, model: str, seeds: Seeds) -> None:
    """Train a model on every split of a set, in every way, and keep its scores in one file."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of solvers that stop at their limit of steps, as in practice
    splits = _splits(root, name, model, seeds)
    kept = {"seeds": np.array(len(splits))}
    for seed, split in enumerate(splits):
        kept |= {
            f"{seed}/counts": split.counts,
            f"{seed}/held_out": split.held_out[0],
            f"{seed}/held_out_labels": split.held_out[1],
            f"{seed}/test": split.test[0],
            f"{seed}/test_labels": split.test[1],
        }
    jobs = []
    for seed, split in enumerate(splits):
        if split.train is None:  # of a network that is there, which is kept as it is
            continue
        for training in TRAININGS:
            jobs.append(Job(training, split.train, (split.held_out[0], split.test[0]), seed))
    scores = []
    if jobs:
        scores = fit_scores(model, jobs)
    for job, (held_out, test) in zip(jobs, scores, strict=True):
        seed = job.seed
        if job.training == "plain":
            kept |= {f"{seed}/held_out": held_out, f"{seed}/test": test}
        else:
            kept[f"{seed}/{job.training}"] = test.argmax(axis=1)
        if job.training == "class weights":
            kept |= {f"{seed}/weighted_held_out": held_out, f"{seed}/weighted_test": test}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **kept)
    atomic.write(_file(folder, name, model), buffer.getvalue())


def _splits(root: Path, name: str, model: str, numbers: Seeds) -> list[Split]:
    """Return the splits of a set; of a small one more."""
    seeds = numbers.large
    if name in SMALL:
        seeds = numbers.small
    if name == SHIPPED:
        return [split_shipped(model, seed) for seed in range(seeds)]
    features, labels = read_features(root, name)
    if name in LONG_TAILS:
        largest, ratio = LONG_TAILS[name]
        return [
            split_long_tail(features, labels, seed, largest=largest, ratio=ratio)
            for seed in range(seeds)
        ]
    return [split_set(features, labels, seed) for seed in range(seeds)]


def read_features(root: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features [N, d] and labels [N] of a set that models are trained on."""
    if name != "digits":
        return read_set(root, name)
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    return features.astype(np.float32), labels


def _file(folder: Path, name: str, model: str) -> Path:
    title = f"{name}+{model}".replace(", ", "-").replace(" ", "-").lower()
    return folder / f"{title}.npz"
