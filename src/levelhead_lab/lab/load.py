"""Whole data sets by name or path: CIFAR, Tiny ImageNet, digits, an image folder or an .npz file.

`load` finds out which it is. Official files are read by `cifar` and `image_folder`, folders by the
latter; digits and .npz files are read here. Whatever comes, `Data` holds uint8 images [N, C, H, W]
of one size and labels from 0 to K - 1, each class with at least one training image.
"""

from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import numpy as np

from levelhead.core.class_names import listed
from levelhead.core.counts import check_labels
from levelhead.io.numpy_file import names_in_npz, read_npz
from levelhead.support.errors import LevelheadError, in_file, named

from . import cifar, image_folder
from .data import Data, Split, train_and_test
from .downloads import where_to_get

# Classes as in its wnids.txt, or sorted, as torchvision has them.
TINY = (
    "tiny-imagenet",
    "tiny-imagenet-sorted",
)
OFFICIAL = ("cifar10", "cifar100", *TINY)  # read from official files, which do not change


def load(
    data: str,
    root: str | Path | None = None,
    *,
    size: int = image_folder.SIZE,
    skip_bad: bool = False,
    unofficial: bool = False,
) -> Data:
    """Read a whole data set, before any of it is left out.

    Args:
        data: `cifar10`, `cifar100`, `tiny-imagenet`, `tiny-imagenet-sorted`, `digits`, a folder of
            images, or an .npz.
        root: the folder of the official files of CIFAR and Tiny ImageNet.
        size: to which the images of a folder are resized.
        skip_bad: leave images of a folder out that cannot be read.
        unofficial: accept CIFAR files with another md5.

    Returns:
        All samples, with a test set: the official one, or a fifth of each class where there is
        none.

    Raises:
        LevelheadError: if the data cannot be used; the message says what was expected and what to
            do.
        FileNotFoundError: if there is nothing of that name, or the official files are not in root.
    """
    if not data:  # as a path it would be the current folder
        raise LevelheadError("expected a name or a path, got an empty text", parameter="data")
    path = Path(data).expanduser()
    # Another size for images that have one would be ignored without a word.
    if size != image_folder.SIZE and (data in (*OFFICIAL, "digits") or path.suffix == ".npz"):
        raise LevelheadError(
            f"only the images of a folder can be resized, not those of {data}", parameter="size"
        )
    if data == "digits":
        return digits()
    if data in OFFICIAL:
        if root is None:
            raise LevelheadError(
                f"expected the folder that holds the files of {data}, got none; {where_to_get([data])}, unpack it, "
                "and name the folder",
                parameter="root",
            )
        place = Path(root).expanduser()
        if data in TINY:
            return image_folder.tiny_imagenet(place, name=data, skip_bad=skip_bad)
        return cifar.load(data, place, unofficial=unofficial)
    if path.suffix == ".npz" and path.is_file():
        return npz(path)
    if path.is_dir():
        return image_folder.load(path, size=size, skip_bad=skip_bad)
    if path.exists():
        raise LevelheadError(f"{path}: expected a folder of images or an .npz file")
    raise FileNotFoundError(
        f"{path}: no such file or folder; expected a folder of images, an .npz file, or one of "
        f"{', '.join(OFFICIAL)}, digits"
    )


def digits() -> Data:
    """Return scikit-learn's 1,797 digits of 8x8; the last 50 of each class are the test set.

    Their 17 levels are spread over 0 to 255, as those of all images here.

    >>> digits().shape, len(digits().train), len(digits().test)
    ((1, 8, 8), 1297, 500)
    """
    table = _digits_table()
    images = table[:, :-1].reshape(-1, 1, 8, 8)  # levels from 0 to 16
    labels = table[:, -1]
    # To 0 to 255, as all other data are: 16 becomes 255.
    whole = Split(np.round(images * (255 / 16)).astype(np.uint8), labels.astype(np.int64))
    # In file order, as the training images are.
    last = np.sort(np.concatenate([np.flatnonzero(whole.labels == i)[-50:] for i in range(10)]))
    rest = np.setdiff1d(np.arange(len(whole)), last)
    return Data("digits", tuple("0123456789"), whole[rest], whole[last])


def _digits_table() -> np.ndarray:
    """Return scikit-learn's digits, [1797, 65]: 64 levels from 0 to 16 in rows of 8, and the label.

    From scikit-learn's own file, as to import its reader takes 1.5 s; by the reader, where the file
    has moved.
    """
    sklearn = find_spec("sklearn")
    if sklearn is not None:
        file = Path(sklearn.origin or "").parent / "datasets/data/digits.csv.gz"
        if file.is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn import datasets

    arrays = datasets.load_digits(return_X_y=True)
    images, labels = cast(tuple[np.ndarray, np.ndarray], arrays)
    return np.column_stack([images, labels])


def npz(path: Path) -> Data:
    """Read an .npz file.

    Its arrays are x_train, y_train, x_test, y_test; or images, labels, of which a fifth of each
    class becomes the test set. Images are uint8, [N, H, W], [N, H, W, C] or [N, C, H, W], with C of
    1 or 3; labels are integers from 0 on; `names` may list the classes.

    Raises:
        LevelheadError: if an array is missing, or has another form, or the file is damaged.
    """
    # Names are read first, and only these arrays: a file may hold others, of any size.
    wanted = {"x_train", "y_train", "x_test", "y_test", "images", "labels", "names"}
    try:
        held = names_in_npz(path)
        arrays = {}
        for key in wanted.intersection(held):  # nothing else is unpacked
            with named(key):
                arrays[key] = read_npz(path, key)
    except LevelheadError as error:
        raise LevelheadError(f"{path}: not a valid .npz file of plain arrays ({error})") from None
    with in_file(path):
        if {"x_train", "y_train", "x_test", "y_test"} <= arrays.keys():
            train = _samples(arrays["x_train"], arrays["y_train"])
            test = _samples(arrays["x_test"], arrays["y_test"])
            names = _class_names(arrays.get("names"), train.labels)
        elif {"images", "labels"} <= arrays.keys():
            whole = _samples(arrays["images"], arrays["labels"])
            if len(whole.images) != len(whole):
                raise LevelheadError(f"got {len(whole.images)} images but {len(whole)} labels")
            names = _class_names(arrays.get("names"), whole.labels)
            train, test = train_and_test(whole, path)
        else:
            raise LevelheadError(
                f"expected x_train, y_train, x_test, y_test, or images, labels; got {listed(sorted(held)) or 'nothing'}"
            )
    return Data(path.stem, names, train, test)


def _samples(images: np.ndarray, labels: np.ndarray) -> Split:
    """Return images as [N, C, H, W] and labels as integers [N], or raise LevelheadError.

    Where both the second and the last axis could be channels, as of images with 3 rows, it is the
    second: that is the form in which everything here is kept.

    Args:
        images: uint8, [N, H, W], [N, H, W, C] or [N, C, H, W].
        labels: [N] or [N, 1].

    >>> part = _samples(np.zeros((2, 5, 4, 3), np.uint8), np.array([[0], [1]]))
    >>> part.images.shape, part.labels
    ((2, 3, 5, 4), array([0, 1]))
    """
    if images.dtype != np.uint8:
        raise LevelheadError(
            f"expected images of uint8, 0 to 255, got {images.dtype}; scale them to that range (multiply values from 0 "
            "to 1 by 255), and save them with .astype(np.uint8)"
        )
    # Gray images get an axis of one channel; channels that come last come first.
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    elif images.ndim != 4 or images.shape[1] not in (1, 3):
        raise LevelheadError(
            f"expected images [N, H, W], [N, H, W, C] or [N, C, H, W] with C of 1 or 3, got {list(images.shape)}"
        )
    if labels.dtype.kind in "US":
        raise LevelheadError(
            "expected integer labels, got text; save the numbers of the classes as labels, and their names in `names`"
        )
    if labels.shape[1:] == (1,):  # a column, as Keras and R write them
        labels = labels[:, 0]
    return Split(images, check_labels(labels))


def _class_names(names: np.ndarray | None, labels: np.ndarray) -> tuple[str, ...]:
    """Return the names of the classes, or their numbers if there are none.

    Args:
        names: [K], as the file lists them; None if it does not.
        labels: [N], of the training samples.

    Raises:
        LevelheadError: if a name occurs twice, or a label has none.
    """
    if names is None:
        return _class_numbers(labels)
    if names.ndim != 1:
        raise LevelheadError(
            f"expected [K], one name per class, got shape {list(names.shape)}", parameter="names"
        )
    listed_names = [str(name) for name in names.tolist()]
    for name, n in Counter(listed_names).items():
        if n > 1:
            raise LevelheadError(
                f"got {name!r} {n} times; give each class a name of its own", parameter="names"
            )
    check_labels(labels, len(listed_names))
    return tuple(listed_names)


def _class_numbers(labels: np.ndarray) -> tuple[str, ...]:
    """Return "0" to "K - 1" as the names of the classes of training labels [N].

    K is not written anywhere then, so that a gap is taken for a mistake: labels that count from 1,
    or the numbers of something else.
    """
    last = int(labels.max(initial=0))
    if last > len(labels):  # before anything of that size is made
        largest_text = f"got {last} among {len(labels)} training labels"
        raise LevelheadError(
            f"expected labels from 0 to K - 1, {largest_text}; number the classes from 0 on, without gaps"
        )
    missing = np.flatnonzero(np.bincount(labels, minlength=last + 1) == 0)
    if len(labels) and len(missing):
        what_to_do = "number the classes from 0 on, without gaps"
        if missing.tolist() == [0]:
            what_to_do = "they seem to count from 1: subtract 1"
        span = f"labels go from {labels.min()} to {last}"
        raise LevelheadError(f"class {missing[0]} has no training image, and {span}; {what_to_do}")
    return tuple(map(str, range(last + 1)))
