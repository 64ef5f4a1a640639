"""Scores of the study of decisions: every model on every split, trained once and kept in a folder."""

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
LONG_TAILS = {
    "digits": (70, 20),
    "letter": (150, 50),
}  # balanced sets: the largest class, and its ratio to the smallest
BALANCED_TEST = (
    SHIPPED,
    *LONG_TAILS,
)  # long-tailed hold-out; the other sets' test has their own shares
SMALL = (
    "balance",
    "cleveland",
    "dermatology",
    "ecoli",
    "glass",
    "new-thyroid",
)  # below 700 samples: more splits
SETS = {SHIPPED: ("baseline", "wvn"), "digits": MODELS, **dict.fromkeys(TABLES, MODELS)}


class Seeds(NamedTuple):
    """How many splits are drawn of a set: of a small one more, as chance is larger there."""

    large: int
    small: int


@dataclass(frozen=True)
class Scores:
    """One model on one split: scores of hold-out and test, [N, K], and what the other trainings predict, [N]."""

    counts: np.ndarray
    held_out: np.ndarray
    held_out_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    predicted: dict[str, np.ndarray]
    weighted: tuple[np.ndarray, np.ndarray] | None = None  # hold-out and test, by class weights


def load_scores(folder: Path, name: str, model: str) -> Iterator[Scores]:
    """Return a model's scores of each split of a set, as `make_scores` left them."""
    with np.load(_file(folder, name, model)) as found:
        for seed in range(int(found["seeds"])):
            own = {
                key.split("/", 1)[1]: found[key]
                for key in found.files
                if key.startswith(f"{seed}/")
            }
            yield Scores(
                **{
                    key: own[key]
                    for key in ("counts", "held_out", "held_out_labels", "test", "test_labels")
                },
                predicted={key: own[key] for key in TRAININGS[1:] if key in own},
                weighted=_weighted(own),
            )


def _weighted(own: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    if "weighted_test" not in own:
        return None
    return own["weighted_held_out"], own["weighted_test"]


def make_scores(
    root: Path, folder: Path, cells: list[tuple[str, str]], seeds: Seeds, jobs: int
) -> None:
    """Train on every split the cells, each a set and a model, of which the folder has no scores yet."""
    for wheel in WHEELS:
        wheel.open(root).close()
    folder.mkdir(parents=True, exist_ok=True)
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
    return MODELS.index(model) if model in MODELS else -1


def _make_cell(root: Path, folder: Path, name: str, model: str, seeds: Seeds) -> None:
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
    work = [
        (seed, Job(training, split.train, (split.held_out[0], split.test[0]), seed))
        for seed, split in enumerate(splits)
        if split.train is not None
        for training in TRAININGS
    ]
    found = fit_scores(model, [job for _, job in work]) if work else []
    for (seed, job), (held_out, test) in zip(work, found, strict=True):
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
    seeds = numbers.small if name in SMALL else numbers.large
    if name == SHIPPED:
        return [split_shipped(model, seed) for seed in range(seeds)]
    features, labels = _read_digits() if name == "digits" else read_set(root, name)
    if name in LONG_TAILS:
        largest, ratio = LONG_TAILS[name]
        return [
            split_long_tail(features, labels, seed, largest=largest, ratio=ratio)
            for seed in range(seeds)
        ]
    return [split_set(features, labels, seed) for seed in range(seeds)]


def _read_digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    return features.astype(np.float32), labels


def _file(folder: Path, name: str, model: str) -> Path:
    plain = lambda text: text.replace(", ", "-").replace(" ", "-").lower()  # noqa: E731
    return folder / f"{plain(name)}+{plain(model)}.npz"
