"""Images in folders: any FOLDER/class/*.jpg, and Tiny ImageNet in its own layout.

Both list (file, label) of every sample first, and check what can be checked without opening a file. `_read` then
decodes all of them in threads, to squares of one size; what took long is cached.
"""

import hashlib
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from levelhead.core.class_names import listed, title
from levelhead.support.atomic import atomic_open
from levelhead.support.errors import Advice, LevelheadError
from levelhead.support.extras import install_command
from levelhead.support.regular_file import check_regular_file

from .data import Data, Split, train_and_test
from .downloads import where_to_get

SUFFIXES = {
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".avif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
    ".pnm",
}  # fmt: skip
LAYOUTS = "FOLDER/class/*.jpg, or FOLDER/train/class/*.jpg with FOLDER/test or FOLDER/val"
SIZE = 32  # of the images of a folder, unless another is given
CACHED_FROM = 5000  # images; a smaller set is decoded each time


def load(path: Path, *, size: int = SIZE, skip_bad: bool = False) -> Data:
    """Read FOLDER/train/class/* with FOLDER/test or FOLDER/val, or FOLDER/class/*, as square RGB images of a size."""
    if size < 4:
        raise LevelheadError(f"expected at least 4 pixels, got {size}", parameter="size")
    test_folder = None
    for part in ("val", "test"):  # the second where both are there
        if (path / part).is_dir():
            test_folder = path / part
    if (path / "train").is_dir() and test_folder is not None:
        names = _class_names(path / "train")
        unknown = sorted(set(_subfolders(test_folder)) - set(names))
        if unknown:
            raise LevelheadError(f"{test_folder}: class {unknown[0]!r} is not in {path / 'train'}")
        for place in (path / "train", test_folder):
            _check_one_folder_per_class(place, names)
        _check_every_class_has_images(path / "train", names)
        train = _read(_files(path / "train", names), size, skip_bad)
        test = _read(_files(test_folder, names), size, skip_bad)
        return Data(path.absolute().name, names, train, test)
    _check_not_split(path)
    names = _class_names(path)
    _check_one_folder_per_class(path, names)
    _check_every_class_has_images(path, names)
    whole = _read(_files(path, names), size, skip_bad)
    train, test = train_and_test(whole, path, names)
    return Data(path.absolute().name, names, train, test)


def tiny_imagenet(root: Path, *, name: str = "tiny-imagenet", skip_bad: bool = False) -> Data:
    """Read Tiny ImageNet: 200 classes of 500 images of 64x64. Its labeled val/ is the test set; gray becomes RGB.

    `tiny-imagenet-sorted` has its classes sorted, as torchvision does: the first half of them are then mostly animals.
    """
    place = next(
        (p for p in (root / "tiny-imagenet-200", root) if (p / "wnids.txt").is_file()), None
    )
    if place is None:
        raise FileNotFoundError(
            f"{root}: no Tiny ImageNet here; looked in {root.resolve()} for the folder tiny-imagenet-200 "
            f"with wnids.txt; {where_to_get([name])}, and unpack it there"
        )
    ids = (place / "wnids.txt").read_text(encoding="utf-8").split()
    if name.endswith("-sorted"):
        ids = sorted(ids)
    index = {wnid: i for i, wnid in enumerate(ids)}
    train = []
    for wnid in ids:
        for file in _images(place / "train" / wnid / "images"):
            train.append((file, index[wnid]))
    # The test images are in one folder; a line of the annotations has the file, its class and a box.
    annotations = place / "val" / "val_annotations.txt"
    check_regular_file(annotations, "the labels of val/")
    rows = [
        line.split("\t") for line in annotations.read_text(encoding="utf-8").splitlines() if line
    ]
    for row in rows:
        if len(row) < 2 or row[1] not in index:
            raise LevelheadError(f"{annotations}: expected lines of file, wnid, ...; got {row[:2]}")
    test = [(place / "val" / "images" / row[0], index[row[1]]) for row in rows]
    # The names of WordNet's ids: "n02124075<tab>Egyptian cat, ..." Without the file, the ids are the names.
    words_file = place / "words.txt"
    lines = []
    if words_file.is_file():
        lines = words_file.read_text(encoding="utf-8").splitlines()
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    names = tuple(words.get(wnid, wnid).split(",")[0] for wnid in ids)
    train_images = _read(train, 64, skip_bad)
    test_images = _read(test, 64, skip_bad)
    return Data(name, names, train_images, test_images, largest=500)


def _subfolders(path: Path) -> tuple[str, ...]:
    """Return the names of the folders in a folder, sorted, without hidden ones."""
    folders = [place for place in path.iterdir() if place.is_dir()]
    names = tuple(sorted(place.name for place in folders if not place.name.startswith(".")))
    for name in names:
        # Python stands these in for bytes that are not UTF-8; no file of ours could hold such a name.
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise LevelheadError(
                f"{path}: the class name {name!a} is not valid UTF-8; rename its folder"
            )
    return names


def _class_names(path: Path) -> tuple[str, ...]:
    names = _subfolders(path)
    if len(names) < 2:
        raise LevelheadError(
            f"{path}: expected folders of at least 2 classes, got {', '.join(names) or 'none'}"
        )
    return names


def _check_not_split(path: Path) -> None:
    """Raise LevelheadError if the training images have a folder, with folders of classes, and there is no test."""
    train = path / "train"
    if (
        train.is_dir()
        and _subfolders(train)
        and not any(_is_image(p.name) for p in train.iterdir())
    ):
        others = ", ".join(name for name in _subfolders(path) if name != "train") or "none"
        expected = f"{path}: expected a folder test or val next to train, got {others}"
        raise LevelheadError(
            f"{expected}; give one, or {train} itself, to test on a fifth of its images"
        )


def _check_one_folder_per_class(path: Path, names: tuple[str, ...]) -> None:
    """Raise LevelheadError if images are below the folder of a class: they would be left out without a word."""
    for of_class in (path / name for name in names):
        for place, below, files in os.walk(of_class):
            below[:] = sorted(folder for folder in below if not folder.startswith("."))
            if place != str(of_class) and any(map(_is_image, files)):
                raise LevelheadError(
                    f"{of_class}: images are in a folder below it, {Path(place).relative_to(of_class).as_posix()}; "
                    f"expected {LAYOUTS}; move the images of a class into one folder"
                )


def _check_every_class_has_images(path: Path, names: tuple[str, ...]) -> None:
    """Raise LevelheadError if a class has none, and say what its folder holds instead."""
    for i, name in enumerate(names):
        if not _images(path / name):
            others = Counter(Path(file).suffix or file for file in sorted(os.listdir(path / name)))
            got = ", ".join(f"{n} of {suffix}" for suffix, n in others.most_common(3))
            raise LevelheadError(
                f"{path}: {title(i, names)} has no training image; expected files such as "
                f"{', '.join(sorted(SUFFIXES))}, {f'got {got}' if got else 'but the folder is empty'}"
            )


def _files(path: Path, names: tuple[str, ...]) -> list[tuple[Path, int]]:
    """Return every image with its label; a class may be missing in a test set."""
    samples = []
    for i, name in enumerate(names):
        if (path / name).is_dir():
            samples += [(file, i) for file in _images(path / name)]
    return samples


def _images(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if _is_image(p.name))


def _is_image(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")


def _read(samples: list[tuple[Path, int]], size: int, skip_bad: bool) -> Split:
    """Decode all files in parallel. Large sets are cached, decoded, in the folder LEVELHEAD_CACHE."""
    files = [file for file, _ in samples]
    labels = np.array([label for _, label in samples], np.int64)
    place = Path(os.environ.get("LEVELHEAD_CACHE") or Path.home() / ".cache" / "levelhead")
    # Named by what it was made of, so that it need never be checked: a file that changes has another stamp.
    stamps = "\n".join(map(_stamp, files))
    cached = place / f"{hashlib.sha256(os.fsencode(f'{size} {stamps}')).hexdigest()[:24]}.npy"
    # Where it is missing or damaged, it is made again.
    with suppress(OSError, ValueError, EOFError):
        return Split(np.load(cached, mmap_mode="c", allow_pickle=False), labels)
    with ThreadPoolExecutor() as pool:
        try:
            decoded = list(pool.map(lambda file: _decode(file, size), files))
        except BaseException:  # told to stop: the images that are not begun need not be waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    bad = [i for i, image in enumerate(decoded) if isinstance(image, str)]
    if bad and not skip_bad:
        names = listed([str(files[i]) for i in bad], 5)
        raise LevelheadError(
            f"{len(bad)} of {len(files)} images cannot be read: {names} ({decoded[bad[0]]}); repair or remove them",
            advice=Advice("skip_bad", None, "to leave them out"),
        )
    good = []
    images = np.zeros((0, 3, size, size), np.uint8)
    arrays = []
    for i, image in enumerate(decoded):
        if not isinstance(image, str):
            good.append(i)
            arrays.append(image)
    if arrays:
        images = np.stack(arrays)
    if not bad and len(images) >= CACHED_FROM:
        with suppress(OSError):  # the cache only saves time
            place.mkdir(parents=True, exist_ok=True)
            with atomic_open(cached) as file:
                np.save(file, images)
    return Split(images, labels[good])


def _stamp(file: Path) -> str:
    """Return what tells whether a file is still the one that was decoded: its place, size and time."""
    try:
        status = file.stat()
    except OSError:  # such as a broken link, which decoding reports
        return f"{file.absolute()} -"
    return f"{file.absolute()} {status.st_size} {status.st_mtime_ns}"


def _decode(path: Path, size: int) -> np.ndarray | str:
    """Return the image [3, size, size] as uint8, or what is wrong with the file."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ImportError(
            f"reading image files needs Pillow: {install_command('images')}"
        ) from None
    try:
        check_regular_file(path, "an image")  # a pipe would be waited for without end
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image)
            if upright.mode in ("I", "F"):
                return "it has 32 bits per pixel, and which value is white is not known"
            # Converted to RGB, all but the darkest 256 shades would be white.
            if upright.mode.startswith("I;16"):
                upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
            upright = upright.convert("RGB")
            if upright.size != (size, size):
                upright = ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC)
            return np.ascontiguousarray(np.asarray(upright).transpose(2, 0, 1))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return str(error).replace(str(path), path.name) or type(error).__name__
