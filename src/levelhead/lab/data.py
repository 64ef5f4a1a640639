"""Data sets as arrays: loaded whole, made imbalanced, and split. After `imbalance`, its counts are the only counts."""

from __future__ import annotations

import hashlib
from bisect import bisect
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..core import counts as count
from ..core.choices import Profile
from ..core.errors import LevelheadError

SIZE = 32  # to which an image folder's images are resized, unless said otherwise


@dataclass(frozen=True, eq=False)
class Split:
    """images [N, C, H, W], uint8, and labels [N]."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: np.ndarray) -> Split:
        return Split(self.images[indices], self.labels[indices])


@dataclass(frozen=True, eq=False)
class Data:
    """What a training sees, and what it is judged on.

    Args:
        name: `cifar10`, ..., or the folder's or file's own name.
        names: the K class names.
        train: what is trained on.
        test: what only the final numbers come from.
        held_out: taken from the training samples, for tuning; None if none were.
        largest: n_1 of the official training set, where there is one.
    """

    name: str
    names: tuple[str, ...]
    train: Split
    test: Split
    held_out: Split | None = None
    largest: int | None = None

    def __post_init__(self) -> None:
        if len(self.names) < 2:
            raise LevelheadError(f"{self.name}: expected at least 2 classes, got {', '.join(self.names) or 'none'}")
        for title, part in self.splits.items():
            if part.images.dtype != np.uint8 or part.images.ndim != 4 or 0 in part.images.shape[1:]:
                raise LevelheadError(f"{self.name}: expected {title} images [N, C, H, W] of uint8, got "
                                 f"{list(part.images.shape)} of {part.images.dtype}")
            if len(part.images) != len(part.labels):
                raise LevelheadError(f"{self.name}: {len(part.images)} {title} images but {len(part.labels)} labels")
            try:
                count.check_labels(part.labels, self.classes)
            except ValueError as error:
                raise LevelheadError(f"{self.name}, {title} labels of {self.classes} classes: {error}") from None
            if part.images.shape[1:] != self.train.images.shape[1:]:
                raise LevelheadError(f"{self.name}: {title} images of {list(part.images.shape[1:])}, those trained on are "
                                 f"{list(self.train.images.shape[1:])}, of channels, height and width")
        for i in np.flatnonzero(self.counts == 0):
            raise LevelheadError(f"{self.name}: class {i} ({self.names[i]}) has no training image")
        if not len(self.test):
            raise LevelheadError(f"{self.name}: no test image, and nothing else to judge by")

    @property
    def classes(self) -> int:
        """K."""
        return len(self.names)

    @property
    def counts(self) -> np.ndarray:
        """Samples of each class trained on, [K]."""
        return np.bincount(self.train.labels, minlength=self.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        c, h, w = self.train.images.shape[1:]
        return c, h, w

    @property
    def splits(self) -> dict[str, Split]:
        """`train`, `held-out` where there is one, and `test`."""
        parts = {"train": self.train, "held-out": self.held_out, "test": self.test}
        return {title: part for title, part in parts.items() if part is not None}

    @cached_property
    def sha256(self) -> str:
        """Of what is trained on and judged by: the images and labels of every split."""
        digest = hashlib.sha256()
        for title, part in self.splits.items():
            digest.update(f"{title} {part.images.shape}".encode())
            digest.update(np.ascontiguousarray(part.images).data)
            digest.update(part.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    @cached_property
    def mean_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Per channel, of the training pixels from 0 to 1; exact, from a histogram of the 256 values."""
        value = np.arange(256) / 255
        seen = np.stack([np.bincount(self.train.images[:, c].ravel(), minlength=256) for c in range(self.shape[0])])
        share = seen / seen.sum(axis=1, keepdims=True)
        mean = share @ value
        std = np.sqrt(share @ value**2 - mean**2)
        return tuple(mean.tolist()), tuple(np.maximum(std, 1 / 255).tolist())


def load(
    source: str, root: str | Path | None = None, *, size: int = SIZE, skip_bad: bool = False, unofficial: bool = False
) -> Data:
    """A whole data set.

    Args:
        source: `cifar10`, `cifar100`, `tiny-imagenet`, `digits`, or the path of an image folder or an .npz file.
        root: the folder that holds the official files of the first three.
        size: to which an image folder's images are resized.
        skip_bad: leave unreadable images of a folder out, instead of naming them and stopping.
        unofficial: take CIFAR's files even if their md5 is not the official one.
    """
    from . import cifar, image_folder

    path = Path(source).expanduser()
    if size != SIZE and (source in ("digits", "cifar10", "cifar100", "tiny-imagenet") or path.suffix == ".npz"):
        raise LevelheadError(f"size {size} is of a folder's images; {source} has its own")
    if source == "digits":
        return digits()
    if source in ("cifar10", "cifar100", "tiny-imagenet"):
        if root is None:
            raise LevelheadError(f"{source} is read from files: pass the folder that holds them (--root DIR)")
        if source == "tiny-imagenet":
            return image_folder.tiny_imagenet(Path(root), skip_bad=skip_bad)
        return cifar.load(source, Path(root), unofficial=unofficial)
    if path.suffix == ".npz" and path.is_file():
        return npz(path)
    if path.is_dir():
        return image_folder.load(path, size=size, skip_bad=skip_bad)
    raise LevelheadError(f"no data {source!r}: expected cifar10, cifar100, tiny-imagenet, digits, a folder of images "
                     f"or an .npz file that is there")


def imbalance(
    data: Data, profile: Profile = "given", *, ratio: float = 1.0, subset: str | int = "first",
    largest: int | None = None, wanted: count.Counts | None = None,
) -> Data:
    """The same data with fewer training samples: a profile of counts, cut out of each class.

    Args:
        profile: `long-tail` or `step`, at `ratio`; or `given`: as many as there are, or as `wanted` says.
        ratio: largest count over smallest.
        subset: `first` n of each class in file order, or the seed of a random choice.
        largest: n_1; the official one by default, else the largest that the data can fill.
        wanted: counts [K] or {class: n}, with the profile `given`.
    """
    if profile not in ("long-tail", "step", "given"):
        raise LevelheadError(f"expected the profile long-tail, step or given, got {profile!r}")
    if profile != "given" and wanted is not None:
        raise LevelheadError(f"expected either the profile {profile} or counts of your own, got both")
    if profile == "given" and wanted is None:
        return data
    if profile == "given":
        goal = count.resolve(wanted, data.classes, names=data.names)
    else:
        shape = count.long_tail if profile == "long-tail" else count.step
        if largest is not None and largest < 1:
            raise LevelheadError(f"expected a largest count of at least 1, got {largest}")
        top = largest or data.largest or _largest_that_fits(shape, data.counts, ratio)
        goal = shape(top, data.classes, ratio)
    return replace(data, train=data.train[choose(data.train.labels, goal, subset=subset, names=data.names)])


def choose(labels: np.ndarray, goal: np.ndarray, *, subset: str | int = "first", names: tuple[str, ...]) -> np.ndarray:
    """Indices, in file order, of goal[i] samples of each class i: the first ones, or chosen by a seed."""
    if subset != "first" and (not isinstance(subset, int) or subset < 0):
        raise LevelheadError(f"expected subset 'first' or a seed from 0 on, got {subset!r}")
    kept = []
    for i, n in enumerate(goal.tolist()):
        members = np.flatnonzero(labels == i)
        if n > len(members):
            raise LevelheadError(f"class {i} ({names[i]}) has {len(members)} training images, the profile asks for {n}; "
                             f"lower the largest count (--largest), or give the whole data set")
        if isinstance(subset, int):
            members = np.random.default_rng([subset, i]).permutation(members)
        kept.append(members[:n])
    return np.sort(np.concatenate(kept))


def hold_out(data: Data, share: float, *, seed: int = 0) -> Data:
    """Move a share of each class's training samples, at least one, to `held_out`: for choosing gamma."""
    if not 0 <= share < 1:
        raise LevelheadError(f"expected a held-out share from 0 to below 1, got {share}")
    if share == 0:
        return data
    if data.counts.min() < 2:
        i = int(data.counts.argmin())
        raise LevelheadError(f"class {i} ({data.names[i]}) has only one training image: none is left to hold out; lower "
                         f"the ratio, or pass --hold-out 0")
    rest, out = split(data.train.labels, share, seed=seed)
    return replace(data, train=data.train[rest], held_out=data.train[out])


def split(labels: np.ndarray, share: float, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Indices (rest, out), in order: out has `share` of each class, rounded, at least one, and leaves at least one."""
    out = [np.zeros(0, np.int64)]
    for i in np.unique(labels):
        members = np.random.default_rng([seed, int(i)]).permutation(np.flatnonzero(labels == i))
        out.append(members[:min(max(1, round(share * len(members))), len(members) - 1)])
    chosen = np.sort(np.concatenate(out))
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def digits(test_each: int = 50) -> Data:
    """scikit-learn's 8x8 digits, 1,797 images; the last 50 of each class are the test set."""
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    last = np.sort(np.concatenate([np.flatnonzero(labels == i)[-test_each:] for i in range(10)]))
    rest = np.setdiff1d(np.arange(len(labels)), last)
    return Data("digits", tuple("0123456789"), Split(images[rest], labels[rest]), Split(images[last], labels[last]))


def npz(path: Path, *, test_share: float = 0.2) -> Data:
    """An .npz file: x_train, y_train, x_test, y_test; or images, labels, of which a fifth becomes the test set.

    Images are uint8, [N, H, W], [N, H, W, C] or [N, C, H, W], C of 1 or 3; `names` may list the classes.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except OSError:
        raise
    except Exception as error:  # a torn archive can raise anything
        raise LevelheadError(f"{path}: not a whole .npz file of plain arrays ({error})") from None
    if {"x_train", "y_train", "x_test", "y_test"} <= arrays.keys():
        train, test = (Split(_planes(arrays[f"x_{part}"], path), _labels(arrays[f"y_{part}"], path))
                       for part in ("train", "test"))
    elif {"images", "labels"} <= arrays.keys():
        whole = Split(_planes(arrays["images"], path), _labels(arrays["labels"], path))
        if len(whole.images) != len(whole):
            raise LevelheadError(f"{path}: {len(whole.images)} images but {len(whole)} labels")
        for i in np.flatnonzero(np.bincount(whole.labels) == 1):
            raise LevelheadError(f"{path}: class {i} has only one image, none is left for a test set; add images, or give "
                             "x_train, y_train, x_test and y_test")
        train, test = (whole[part] for part in split(whole.labels, test_share))
    else:
        raise LevelheadError(f"{path}: expected x_train, y_train, x_test, y_test, or images, labels; got "
                         f"{', '.join(sorted(arrays)) or 'nothing'}")
    names = arrays["names"].tolist() if "names" in arrays else range(int(train.labels.max(initial=0)) + 1)
    return Data(path.stem, tuple(map(str, names)), train, test)


def _labels(labels: np.ndarray, path: Path) -> np.ndarray:
    try:
        return count.check_labels(labels.ravel())
    except ValueError as error:
        raise LevelheadError(f"{path}: {error}") from None


def _planes(images: np.ndarray, path: Path) -> np.ndarray:
    if images.dtype != np.uint8:
        raise LevelheadError(f"{path}: expected images of uint8, 0 to 255, got {images.dtype}")
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    raise LevelheadError(f"{path}: expected images [N, H, W], [N, H, W, C] or [N, C, H, W] with C of 1 or 3, got "
                     f"{list(images.shape)}")


def _largest_that_fits(shape, available: np.ndarray, ratio: float) -> int:
    def too_many(n: int) -> bool:
        return bool((shape(n, len(available), ratio) > available).any())

    return max(1, bisect(range(1, int(available.max()) + 1), False, key=too_many))
