"""Data sets as arrays: made imbalanced, split and hashed.

A data set is read whole (`load.load`), then `imbalance` keeps as many training samples of each
class as a profile says, then `hold_out` sets some of these aside, on which an adjustment is chosen.
Each step returns new `Data`. Past `imbalance`, all counts come from the training split:
`Data.counts` is their only source.

Which samples are kept or held out depends on a class's own seed, not on the other classes: another
ratio keeps more or fewer of the same ones. (`subset = "cao2019"` is the exception, as it repeats
what others have drawn.) The draws are part of published results: hashes of every column of the
tables are kept, and `Split.sha256` compares them with what a run was trained on.
"""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import get_args

import numpy as np

from levelhead.core import counts as profiles
from levelhead.core.class_names import title
from levelhead.support.errors import LevelheadError, check_choice, named

from .choices import Profile


@dataclass(frozen=True, eq=False)
class Split:
    """Samples: images as they are stored, with labels. Indexing by an array of positions gives a split of these."""

    images: np.ndarray  # [N, C, H, W], uint8
    labels: np.ndarray  # [N], int64

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: np.ndarray) -> Split:
        return Split(self.images[indices], self.labels[indices])

    @cached_property
    def sha256(self) -> str:
        """A hash of shape, images and labels, for records: equal for equal splits alone."""
        return _hash({str(self.images.shape): self})


@dataclass(frozen=True, eq=False)
class Data:
    """The samples of a training, and those that judge it.

    Raises:
        LevelheadError: if there are fewer than 2 classes, images or labels of a split have another
            shape or type than the others, a class has no training image, or there is no test image.

    >>> part = Split(np.zeros((6, 1, 4, 4), np.uint8), np.array([0, 0, 0, 0, 1, 1]))
    >>> toy = Data("toy", ("cat", "dog"), part, part)
    >>> toy.counts, toy.shape
    (array([4, 2]), (1, 4, 4))
    >>> halved = hold_out(toy, 0.5)
    >>> halved.counts, list(halved.splits)
    (array([2, 1]), ['train', 'held-out', 'test'])
    """

    name: str  # `cifar10`, ..., or the name of the folder or file
    names: tuple[str, ...]  # of the K classes
    train: Split
    test: Split  # only the final numbers come from it
    held_out: Split | None = None  # set aside from training, for tuning
    largest: int | None = None  # n_1 of the official training set, where there is one

    def __post_init__(self) -> None:
        if len(self.names) < 2:
            raise LevelheadError(
                f"{self.name}: expected at least 2 classes, got {', '.join(self.names) or 'none'}"
            )
        for part_name, part in self.splits.items():
            self._check_split(part_name, part)
        for i in np.flatnonzero(self.counts == 0).tolist():
            raise LevelheadError(f"{self.name}: {title(i, self.names)} has no training image")
        if not len(self.test):
            raise LevelheadError(f"{self.name}: there is no test image")

    def _check_split(self, part_name: str, part: Split) -> None:
        """Raise LevelheadError if images and labels do not fit together, or to the other splits.

        Args:
            part_name: of the split, for the message.
            part: the split.
        """
        if part.images.dtype != np.uint8 or part.images.ndim != 4 or 0 in part.images.shape[1:]:
            raise LevelheadError(
                f"{self.name}: expected {part_name} images [N, C, H, W] of uint8, got "
                f"{list(part.images.shape)} of {part.images.dtype}"
            )
        if len(part.images) != len(part.labels):
            raise LevelheadError(
                f"{self.name}: got {len(part.images)} {part_name} images but {len(part)} labels"
            )
        try:
            profiles.check_labels(part.labels, self.classes)
        except ValueError as error:
            raise LevelheadError(
                f"{self.name}, {part_name} labels of {self.classes} classes: {error}"
            ) from None
        if part.images.shape[1:] != self.shape:
            raise LevelheadError(
                f"{self.name}: {part_name} images have the shape {list(part.images.shape[1:])} "
                f"[C, H, W], but training images {list(self.shape)}"
            )

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return len(self.names)

    @property
    def counts(self) -> np.ndarray:
        """Training samples per class, [K]: of what is trained on, not of what was held out."""
        return np.bincount(self.train.labels, minlength=self.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of every image."""
        return self.train.images.shape[1:]  # type: ignore[return-value]

    @property
    def splits(self) -> dict[str, Split]:
        """`train`, `held-out` where there is one, and `test`."""
        parts = {"train": self.train, "held-out": self.held_out, "test": self.test}
        return {part_name: part for part_name, part in parts.items() if part is not None}

    @cached_property
    def sha256(self) -> str:
        """A hash of all splits, by which a run knows its data again."""
        return _hash(
            {f"{part_name} {part.images.shape}": part for part_name, part in self.splits.items()}
        )

    @cached_property
    def mean_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation per channel of the training pixels, from 0 to 1.

        They are exact, from the histogram of the 256 levels, whatever the number of pixels: a sum
        of all of them would round, and need a copy of the images as floats.
        """
        value = np.arange(256) / 255
        histograms = []  # [256] of each channel
        for channel in range(self.shape[0]):
            levels = self.train.images[:, channel].ravel()
            histograms.append(np.bincount(levels, minlength=256))
        seen = np.stack(histograms)
        share = seen / seen.sum(axis=1, keepdims=True)
        mean = share @ value
        # A channel of one level would be divided by 0: at least one level.
        std = np.maximum(np.sqrt(share @ value**2 - mean**2), 1 / 255)
        return tuple(mean.tolist()), tuple(std.tolist())


def imbalance(
    data: Data,
    profile: Profile = "given",
    *,
    ratio: float = 1.0,
    subset: str | int = "first",
    largest: int | None = None,
    counts: profiles.Counts | None = None,
) -> Data:
    """Return the data with as many training samples of each class as a profile, or `counts`, says.

    Args:
        data: whole, as it was loaded.
        profile: `long-tail` and `step` are those of the paper; `given` keeps all, or what `counts`
            says.
        ratio: largest count over smallest, of a profile.
        subset: which samples are kept, as in `subset_indices`.
        largest: n_1; None for that of the official training set, or else the largest that the data
            can fill.
        counts: [K] or {class: n}, for the profile `given`.

    Raises:
        LevelheadError: if both a profile and counts are given, or a class has fewer samples than
            are asked for.
    """
    check_choice("profile", profile, get_args(Profile))
    if profile == "given":
        if counts is None:
            return data
        with named("counts"):
            kept_counts = profiles.resolve(counts, data.classes, names=data.names)
            _check_whole(kept_counts, data.names)
    else:
        if counts is not None:
            raise LevelheadError(
                f"expected either the profile {profile} or counts, got both", parameter="counts"
            )
        if largest is not None and largest < 1:
            raise LevelheadError(
                f"expected a count of at least 1, got {largest}", parameter="largest"
            )
        if profile == "long-tail":
            make = profiles.long_tail
        else:
            make = profiles.step
        n_1 = largest or data.largest or _largest_that_fits(make, data.counts, ratio)
        kept_counts = make(n_1, data.classes, ratio)
    kept = subset_indices(data.train.labels, kept_counts, subset=subset, names=data.names)
    return replace(data, train=data.train[kept])


def _check_whole(counts: np.ndarray, names: tuple[str, ...]) -> None:
    """Raise LevelheadError unless counts [K] are whole: half a sample cannot be kept."""
    for i, n in enumerate(counts.tolist()):
        if n != int(n):
            got = f"got {n} for {title(i, names)}"
            raise LevelheadError(f"expected whole numbers of samples, {got}")


def subset_indices(
    labels: np.ndarray, counts: np.ndarray, *, subset: str | int = "first", names: tuple[str, ...]
) -> np.ndarray:
    """Return the indices, in file order, of counts[i] samples of each class i.

    Args:
        labels: [N], of the whole training set.
        counts: [K], how many to keep of each class.
        subset: `first` keeps the first of each class, a number those drawn by it as a seed.
            `cao2019` are the ones that the code of Cao et al. draws: one generator shuffles one
            class after another.
        names: of the classes, for messages.

    Raises:
        LevelheadError: if `subset` is something else, or a class has too few samples.

    >>> subset_indices(np.array([0, 1, 0, 0, 1]), np.array([2, 1]), names=("a", "b"))
    array([0, 1, 2])
    """
    if subset not in ("first", "cao2019") and (not isinstance(subset, int) or subset < 0):
        raise LevelheadError(
            f"expected 'first', 'cao2019' or a seed of at least 0, got {subset!r}",
            parameter="subset",
        )
    kept = []
    # Of cao2019, with numpy's generator of that time: drawn from by one class after another.
    theirs = np.random.RandomState(0)
    for i, n in enumerate(counts.tolist()):
        members = np.flatnonzero(labels == i)
        if n > len(members):
            raise LevelheadError(
                f"{title(i, names)} has {len(members)} training images, but {n} are asked for; lower "
                "the largest count, or use the whole data set"
            )
        if isinstance(subset, int):
            members = np.random.default_rng([subset, i]).permutation(members)
        elif subset == "cao2019":
            theirs.shuffle(members)
        kept.append(members[:n])
    return np.sort(np.concatenate(kept))


def hold_out(data: Data, share: float, *, seed: int = 0) -> Data:
    """Move a share of each class's training samples, at least one, to `held_out`.

    On these an adjustment is chosen, such as gamma.

    Args:
        data: made imbalanced already, so that the held-out samples are as imbalanced as those that
            are trained on.
        share: from 0, which holds nothing out, to below 1.
        seed: of which samples. Trainings leave it, so that runs with other seeds of theirs hold out
            the same ones.

    Raises:
        LevelheadError: if a class has a single sample, or the share is no share.
    """
    check_share(share)
    if share == 0:
        return data
    if data.counts.min() < 2:
        raise LevelheadError(
            f"{title(int(data.counts.argmin()), data.names)} has only one training image, so none can "
            "be held out; lower the ratio, or hold out nothing",
            parameter="hold_out",
        )
    rest, out = split(data.train.labels, share, seed=seed)
    return replace(data, train=data.train[rest], held_out=data.train[out])


def check_share(share: float) -> None:
    """Raise LevelheadError if a share of samples to hold out is not from 0 to below 1.

    NaN is refused too, since no comparison with it holds.
    """
    if not 0 <= share < 1:
        raise LevelheadError(
            f"expected a share from 0 to below 1, got {share}", parameter="hold_out"
        )


def split(labels: np.ndarray, share: float, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return indices (rest, out), each in file order.

    `out` has `share` of each class, rounded, but at least one sample and never all of them: neither
    part loses a class that has two samples.

    Args:
        labels: [N].
        share: of each class, from 0 to 1.
        seed: of the draw; the samples of a class do not depend on what other classes there are.

    >>> rest, out = split(np.array([0, 0, 0, 0, 1, 1]), 0.25)
    >>> len(rest), len(out)
    (4, 2)
    """
    out = [np.zeros(0, np.int64)]
    for i in np.unique(labels):
        members = np.random.default_rng([seed, int(i)]).permutation(np.flatnonzero(labels == i))
        size = max(1, round(share * len(members)))
        out.append(members[: min(size, len(members) - 1)])
    chosen = np.sort(np.concatenate(out))
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def train_and_test(
    whole: Split, path: Path, names: tuple[str, ...] | None = None
) -> tuple[Split, Split]:
    """Return four fifths of each class and one fifth, of data that come without a test set.

    Args:
        whole: all samples.
        path: of the data, for messages.
        names: of the classes, for messages.

    Raises:
        LevelheadError: if a class has a single sample.
    """
    for i in np.flatnonzero(np.bincount(whole.labels) == 1).tolist():
        raise LevelheadError(
            f"{path}: {title(i, names)} has only one image, so none is left for a test set; add "
            "images, or give training and test images separately"
        )
    rest, out = split(whole.labels, 0.2)
    return whole[rest], whole[out]


def _largest_that_fits(
    make: Callable[[int, int, float], np.ndarray], available: np.ndarray, ratio: float
) -> int:
    """Return the largest n_1 for which no class is asked for more than it has; 1 if there is none.

    Args:
        make: a profile: of n_1, K and the ratio, the counts [K].
        available: [K], samples of each class.
        ratio: largest count over smallest.

    The class in the middle decides here, which is asked for ``n_1 / sqrt(10)``, rounded down:

    >>> _largest_that_fits(profiles.long_tail, np.array([100, 30, 10]), 10.0)
    98
    """

    def too_many(n_1: int) -> bool:
        """Say whether the profile with this n_1 asks any class for more than it has."""
        return bool((make(n_1, len(available), ratio) > available).any())

    # Once a profile asks for too many, a larger one does too: the last that fits is found by
    # halving.
    tries = range(1, int(available.max()) + 1)
    return max(1, bisect(tries, False, key=too_many))


def _hash(parts: dict[str, Split]) -> str:
    """Return the sha256 of splits, each behind its heading: name and shape, then bytes.

    The shape is in it because the same bytes could be other images. Labels are hashed as 64-bit
    little-endian numbers, whatever the machine and their dtype.
    """
    digest = hashlib.sha256()
    for heading, part in parts.items():
        digest.update(heading.encode())
        digest.update(np.ascontiguousarray(part.images).data)
        digest.update(part.labels.astype("<i8").tobytes())
    return digest.hexdigest()
