"""CIFAR-10 and CIFAR-100 from the official files: binary, or python without running pickle.

`load` looks for either version, reads the training and the test files one by one, checks the md5 of
each against the official one, and joins them in the order of their names: that is the order by
which `subset = "first"` keeps samples.

The formats (https://www.cs.toronto.edu/~kriz/cifar.html):

- binary: records of one label byte (CIFAR-100: coarse, then fine) and 3072 bytes of pixels: 1024 of
  red, then of green, then of blue, each row by row. That is [3, 32, 32] as it stands.
- python: a pickle, written by Python 2, of a dict with the same pixels as `data` [N, 3072], uint8,
  and `labels` or `fine_labels`. A pickle may run any code, so it is read by an unpickler that knows
  numpy arrays and nothing else.
"""

import hashlib
import io
import pickle
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from levelhead.support.errors import Advice, LevelheadError

from .data import Data, Split
from .downloads import where_to_get

CIFAR10_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

# Images [n, 3, 32, 32], uint8, and labels [n] of one file.
_Samples: TypeAlias = tuple[np.ndarray, np.ndarray]


class CifarFiles(NamedTuple):
    """Where the files of one version of a data set are."""

    folder: str  # as the archive unpacks it
    train: list[str]  # names of files, in the order of the samples
    test: list[str]


BINARY_FILES = {
    "cifar10": CifarFiles(
        "cifar-10-batches-bin",
        [f"data_batch_{i}.bin" for i in range(1, 6)],
        ["test_batch.bin"],
    ),
    "cifar100": CifarFiles("cifar-100-binary", ["train.bin"], ["test.bin"]),
}
PYTHON_FILES = {
    "cifar10": CifarFiles(
        "cifar-10-batches-py", [f"data_batch_{i}" for i in range(1, 6)], ["test_batch"]
    ),
    "cifar100": CifarFiles("cifar-100-python", ["train"], ["test"]),
}

# md5 of the official files: of the python version as torchvision lists them, of CIFAR-10's binary
# version as several other libraries do, of CIFAR-100's binary version as taken from the official
# files.
MD5 = {
    "cifar10": {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    "cifar100": {
        "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test.bin": "4499cfba6c016c1be1438163640a0898",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
}


def load(name: str, root: Path, *, unofficial: bool = False) -> Data:
    """Read a data set from its folder below root, or from root itself.

    Args:
        name: `cifar10` or `cifar100`.
        root: where the archives were unpacked; the binary version comes first where both are there.
        unofficial: accept files with another md5, such as a part of the official ones.

    Raises:
        FileNotFoundError: if neither version is there; the message says what to download.
        LevelheadError: if a file is damaged, or its md5 is another one.
    """
    classes = 10 if name == "cifar10" else 100
    for versions, read in ((BINARY_FILES, _read_binary), (PYTHON_FILES, _read_python)):
        version = versions[name]
        for place in (root / version.folder, root):
            # Of CIFAR-10's files the first is looked for; the others' absence is reported by name.
            if not (place / version.train[0]).is_file() or not (place / version.test[0]).is_file():
                continue
            train = _joined([read(place / file, name, unofficial) for file in version.train])
            test = _joined([read(place / file, name, unofficial) for file in version.test])
            names = _class_names(place, name, classes)
            return Data(name, names, train, test, largest=50_000 // classes)
    raise FileNotFoundError(
        f"{root}: no {name} here; looked in {root.resolve()} for the folder {BINARY_FILES[name].folder} (binary "
        f"version) or {PYTHON_FILES[name].folder} (python version); {where_to_get([name])}, and unpack it there"
    )


def _joined(parts: list[_Samples]) -> Split:
    """Return the samples of several files as one split, in the order of the files."""
    images = np.concatenate([images for images, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    return Split(images, labels)


def _read_binary(path: Path, name: str, unofficial: bool) -> _Samples:
    """Read one file of the binary version.

    Args:
        path: of the file.
        name: `cifar10` or `cifar100`, which has two label bytes.
        unofficial: accept a file with another md5.

    Raises:
        LevelheadError: if the size is no multiple of a record's, or the md5 is another one.
    """
    label_bytes = 1 if name == "cifar10" else 2  # the coarse label, then the fine one
    record = label_bytes + 3072
    content = np.fromfile(path, np.uint8)
    if content.size == 0 or content.size % record:
        raise LevelheadError(
            f"{path}: expected records of {record} bytes, got {content.size} bytes; the file is "
            "truncated, or not a CIFAR binary file"
        )
    rows = content.reshape(-1, record)
    _check_md5(path, name, content.tobytes(), unofficial)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64)


def _read_python(path: Path, name: str, unofficial: bool) -> _Samples:
    """Read one file of the python version; the md5 comes before the pickle is looked into.

    Arguments and result are as of `_read_binary`.

    Raises:
        LevelheadError: if the md5 is another one, or the pickle does not hold images and labels.
    """
    content = path.read_bytes()
    key = "labels" if name == "cifar10" else "fine_labels"
    _check_md5(path, name, content, unofficial)
    batch = unpickle(content, path)
    try:
        # The keys are bytes: Python 2 wrote them as its plain strings.
        images = np.asarray(batch[b"data"])  # type: ignore[index, reportIndexIssue]
        labels = np.asarray(batch[key.encode()])  # type: ignore[index, reportIndexIssue]
        return images.reshape(-1, 3, 32, 32), labels.astype(np.int64)
    except (KeyError, TypeError, ValueError) as error:
        raise LevelheadError(
            f"{path}: expected a dict with data [N, 3072] and {key} [N] ({error!r})"
        ) from None


def _check_md5(path: Path, name: str, content: bytes, unofficial: bool) -> None:
    """Raise LevelheadError if a file is not the official one, unless others are accepted.

    A file that is damaged but has the right size would train without a word, and its numbers could
    be compared with nobody's.
    """
    official = MD5[name].get(path.name)
    if official is None or unofficial:
        return
    md5 = hashlib.md5(content).hexdigest()
    if md5 != official:
        raise LevelheadError(
            f"{path}: the md5 is {md5}, but that of the official file is {official}; download it again",
            advice=Advice("unofficial", None, "if the file is meant to differ"),
        )


class _ArrayUnpickler(pickle.Unpickler):
    """A reader of numpy arrays and plain containers.

    A pickle runs code only by naming a function or class, which `find_class` looks up. It refuses
    every name but the three that an array consists of, so nothing can run.
    """

    # By (module, name). The function that makes an empty array lies in a private module of numpy,
    # whose name numpy 2 has changed; so it is taken from how an array of today is pickled.
    KNOWN: ClassVar[dict[tuple[str, str], object]] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        **{
            (module, "_reconstruct"): np.empty(0).__reduce__()[0]  # type: ignore[index]
            for module in ("numpy.core.multiarray", "numpy._core.multiarray")
        },
    }

    def find_class(self, module: str, name: str) -> object:
        """Return what a name in the pickle stands for; raise UnpicklingError if it is none of `KNOWN`."""
        if (module, name) not in self.KNOWN:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, but only numpy arrays are allowed"
            )
        return self.KNOWN[module, name]


def unpickle(content: bytes, path: Path) -> object:
    """Return the value of a pickle of containers, strings, numbers and numpy arrays alone.

    Args:
        content: of the file.
        path: of the file, for the message.

    Raises:
        LevelheadError: if the pickle names anything else, or is damaged.

    >>> unpickle(pickle.dumps({b"labels": [3, 1]}), Path("batch"))
    {b'labels': [3, 1]}
    >>> unpickle(pickle.dumps(print), Path("batch"))
    Traceback (most recent call last):
    levelhead.support.errors.LevelheadError: batch: not a CIFAR python file (it asks for ...
    """
    try:
        return _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a broken or hostile pickle can raise anything
        raise LevelheadError(f"{path}: not a CIFAR python file ({error})") from None


def _class_names(place: Path, name: str, classes: int) -> tuple[str, ...]:
    """Return the names of the classes, in the order of their labels.

    Those of CIFAR-100 are in a text beside the binary files, or in the pickle `meta` beside the
    others; numbers stand in for them where someone has left these out.
    """
    if name == "cifar10":
        return CIFAR10_NAMES
    text = place / "fine_label_names.txt"
    meta = place / "meta"
    if text.is_file():
        names = text.read_text(encoding="utf-8").split()
    elif meta.is_file():
        try:
            facts = unpickle(meta.read_bytes(), meta)
            encoded = facts[b"fine_label_names"]  # type: ignore[index, reportIndexIssue]
            names = [item.decode() for item in encoded]
        except (LookupError, TypeError, AttributeError) as error:
            raise LevelheadError(
                f"{meta}: expected a dict with fine_label_names as byte strings ({error!r})"
            ) from None
    else:
        names = [str(i) for i in range(classes)]
    if len(names) != classes:
        raise LevelheadError(f"{place}: expected {classes} class names, got {len(names)}")
    return tuple(names)
