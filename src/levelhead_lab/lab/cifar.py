"""CIFAR-10 and CIFAR-100 from the official files: the binary version, or the python version without running pickle."""

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any, ClassVar

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

# For each version: the folder, the training files and the test files.
BINARY_FILES = {
    "cifar10": (
        "cifar-10-batches-bin",
        [f"data_batch_{i}.bin" for i in range(1, 6)],
        ["test_batch.bin"],
    ),
    "cifar100": ("cifar-100-binary", ["train.bin"], ["test.bin"]),
}
PYTHON_FILES = {
    "cifar10": ("cifar-10-batches-py", [f"data_batch_{i}" for i in range(1, 6)], ["test_batch"]),
    "cifar100": ("cifar-100-python", ["train"], ["test"]),
}

# md5 of the official files: of the python version as torchvision lists them, of CIFAR-10's binary version as several
# other libraries do, of CIFAR-100's binary version as taken from the official files.
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
    """Read `cifar10` or `cifar100` from its folder below root, or from root itself; the binary version comes first."""
    classes = 10 if name == "cifar10" else 100
    for versions, read in ((BINARY_FILES, _read_binary), (PYTHON_FILES, _read_python)):
        folder, train, test = versions[name]
        for place in (root / folder, root):
            if (place / train[0]).is_file() and (place / test[0]).is_file():
                parts = [
                    [read(place / file, name, unofficial) for file in files]
                    for files in (train, test)
                ]
                splits = (
                    Split(*(np.concatenate(arrays) for arrays in zip(*part, strict=True)))
                    for part in parts
                )
                return Data(
                    name, _class_names(place, name, classes), *splits, largest=50_000 // classes
                )
    raise FileNotFoundError(
        f"{root}: no {name} here; looked in {root.resolve()} for the folder {BINARY_FILES[name][0]} (binary "
        f"version) or {PYTHON_FILES[name][0]} (python version); {where_to_get([name])}, and unpack it there"
    )


def _read_binary(path: Path, name: str, unofficial: bool) -> tuple[np.ndarray, np.ndarray]:
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


def _read_python(path: Path, name: str, unofficial: bool) -> tuple[np.ndarray, np.ndarray]:
    content = path.read_bytes()
    key = "labels" if name == "cifar10" else "fine_labels"
    _check_md5(path, name, content, unofficial)
    batch = unpickle(content, path)
    try:
        images = np.asarray(batch[b"data"])
        labels = np.asarray(batch[key.encode()])
        return images.reshape(-1, 3, 32, 32), labels.astype(np.int64)
    except (KeyError, TypeError, ValueError) as error:
        raise LevelheadError(
            f"{path}: expected a dict with data [N, 3072] and {key} [N] ({error!r})"
        ) from None


def _check_md5(path: Path, name: str, content: bytes, unofficial: bool) -> None:
    official = MD5[name].get(path.name)
    if official and not unofficial and (found := hashlib.md5(content).hexdigest()) != official:
        raise LevelheadError(
            f"{path}: the md5 is {found}, but that of the official file is {official}; download it again",
            advice=Advice("unofficial", None, "if the file is meant to differ"),
        )


class _ArrayUnpickler(pickle.Unpickler):
    """A reader of numpy arrays and plain containers. It refuses any other name in a pickle, so nothing can run."""

    KNOWN: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        **{
            (module, "_reconstruct"): np.empty(0).__reduce__()[0]  # type: ignore[index]
            for module in ("numpy.core.multiarray", "numpy._core.multiarray")
        },
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.KNOWN:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, but only numpy arrays are allowed"
            )
        return self.KNOWN[module, name]


def unpickle(content: bytes, path: Path) -> Any:
    """Return the value of a pickle that holds nothing but containers, strings, numbers and numpy arrays."""
    try:
        return _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a broken or hostile pickle can raise anything
        raise LevelheadError(f"{path}: not a CIFAR python file ({error})") from None


def _class_names(place: Path, name: str, classes: int) -> tuple[str, ...]:
    if name == "cifar10":
        return CIFAR10_NAMES
    text = place / "fine_label_names.txt"
    meta = place / "meta"
    if text.is_file():
        names = text.read_text(encoding="utf-8").split()
    elif meta.is_file():
        try:
            names = [
                item.decode() for item in unpickle(meta.read_bytes(), meta)[b"fine_label_names"]
            ]
        except (LookupError, TypeError, AttributeError) as error:
            raise LevelheadError(
                f"{meta}: expected a dict with fine_label_names as byte strings ({error!r})"
            ) from None
    else:
        names = [str(i) for i in range(classes)]
    if len(names) != classes:
        raise LevelheadError(f"{place}: expected {classes} class names, got {len(names)}")
    return tuple(names)
