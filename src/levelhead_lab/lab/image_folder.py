"""Images in folders: any FOLDER/class/*.jpg, and Tiny ImageNet in its own layout.

Both list (file, label) of every sample first, and check what can be checked without opening a file.
`_read` then decodes all of them in threads, to squares of one size; what took long is cached.
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
    """Read a folder of images, as square RGB images of a size.

    Args:
        path: FOLDER/train/class/* with FOLDER/test or FOLDER/val (test, where both are there), or
            FOLDER/class/*, of which a fifth of each class becomes the test set. Classes are
            numbered in the order of their folders' names.
        size: side in pixels, at least 4. Images are scaled to it and cut to a square in the middle.
        skip_bad: leave images out that cannot be read.

    Raises:
        LevelheadError: if the folders have another layout, a class has no image, or an image cannot
            be read.
    """
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
    """Read Tiny ImageNet: 200 classes of 500 images of 64x64.

    Its labeled val/ is the test set; gray becomes RGB.

    Classes come in the order of its wnids.txt; those of `tiny-imagenet-sorted` are sorted by their
    WordNet ids, as torchvision does: the first half of them are then mostly animals. The order
    matters, as a long tail takes the first classes for the frequent ones.

    Args:
        root: the unpacked folder, or the one that it is in.
        name: `tiny-imagenet` or `tiny-imagenet-sorted`.
        skip_bad: leave images out that cannot be read.

    Raises:
        FileNotFoundError: if it is not there; the message says what to download.
        LevelheadError: if its annotations or an image cannot be read.
    """
    place = _find_tiny_imagenet(root, name)
    ids = (place / "wnids.txt").read_text(encoding="utf-8").split()
    if name.endswith("-sorted"):
        ids = sorted(ids)
    index = {wnid: i for i, wnid in enumerate(ids)}
    train = []
    for wnid in ids:
        for file in _images(place / "train" / wnid / "images"):
            train.append((file, index[wnid]))
    test = _tiny_test_files(place, index)
    names = _tiny_names(place, ids)
    train_images = _read(train, 64, skip_bad)
    test_images = _read(test, 64, skip_bad)
    return Data(name, names, train_images, test_images, largest=500)


def _find_tiny_imagenet(root: Path, name: str) -> Path:
    """Return the folder with wnids.txt: as the archive unpacks it below root, or root itself."""
    for place in (root / "tiny-imagenet-200", root):
        if (place / "wnids.txt").is_file():
            return place
    raise FileNotFoundError(
        f"{root}: no Tiny ImageNet here; looked in {root.resolve()} for the folder tiny-imagenet-200 "
        f"with wnids.txt; {where_to_get([name])}, and unpack it there"
    )


def _tiny_test_files(place: Path, index: dict[str, int]) -> list[tuple[Path, int]]:
    """Return the images of val/ with their labels.

    They are in one folder. A line of the annotations has the file, its class and a box, with tabs
    between them. (The images of test/ have no labels, and nobody can use them.)

    Args:
        place: the folder with wnids.txt.
        index: the label of each WordNet id.
    """
    annotations = place / "val" / "val_annotations.txt"
    check_regular_file(annotations, "the labels of val/")
    samples = []
    for line in annotations.read_text(encoding="utf-8").splitlines():
        if not line:
            continue
        row = line.split("\t")
        if len(row) < 2 or row[1] not in index:
            raise LevelheadError(f"{annotations}: expected lines of file, wnid, ...; got {row[:2]}")
        samples.append((place / "val" / "images" / row[0], index[row[1]]))
    return samples


def _tiny_names(place: Path, ids: list[str]) -> tuple[str, ...]:
    """Return the first name of each WordNet id; words.txt has "n02124075<tab>Egyptian cat, ...".

    Without the file, or for an id that is not in it, the id is the name.
    """
    words_file = place / "words.txt"
    lines = []
    if words_file.is_file():
        lines = words_file.read_text(encoding="utf-8").splitlines()
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return tuple(words.get(wnid, wnid).split(",")[0] for wnid in ids)


def _subfolders(path: Path) -> tuple[str, ...]:
    """Return the names of the folders in a folder, sorted, without hidden ones."""
    folders = [place for place in path.iterdir() if place.is_dir()]
    names = tuple(sorted(place.name for place in folders if not place.name.startswith(".")))
    for name in names:
        # Python stands these in for bytes that are not UTF-8; no file of ours could hold such a
        # name.
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise LevelheadError(
                f"{path}: the class name {name!a} is not valid UTF-8; rename its folder"
            )
    return names


def _class_names(path: Path) -> tuple[str, ...]:
    """Return the classes of a folder, in their order: the sorted names of the folders in it.

    Raises:
        LevelheadError: if there are not at least two.
    """
    names = _subfolders(path)
    if len(names) < 2:
        raise LevelheadError(
            f"{path}: expected folders of at least 2 classes, got {', '.join(names) or 'none'}"
        )
    return names


def _check_not_split(path: Path) -> None:
    """Raise LevelheadError if the training images have a folder, but there is none for a test.

    A folder `train` with folders of classes in it is that; with images in it, it is a class of its
    own, such as one of vehicles.
    """
    train = path / "train"
    if not train.is_dir() or not _subfolders(train):
        return
    if not any(_is_image(file.name) for file in train.iterdir()):
        others = ", ".join(name for name in _subfolders(path) if name != "train") or "none"
        expected = f"{path}: expected a folder test or val next to train, got {others}"
        raise LevelheadError(
            f"{expected}; give one, or {train} itself, to test on a fifth of its images"
        )


def _check_one_folder_per_class(path: Path, names: tuple[str, ...]) -> None:
    """Raise LevelheadError if images are below the folder of a class.

    They would be left out without a word.
    """
    for of_class in (path / name for name in names):
        for place, below, files in os.walk(of_class):
            # In place, by which os.walk is told where to go on; sorted, so that the message is
            # stable.
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
            content_text = "but the folder is empty"
            if others:
                counted = [f"{n} of {suffix}" for suffix, n in others.most_common(3)]
                content_text = f"got {', '.join(counted)}"
            raise LevelheadError(
                f"{path}: {title(i, names)} has no training image; expected files such as "
                f"{', '.join(sorted(SUFFIXES))}, {content_text}"
            )


def _files(path: Path, names: tuple[str, ...]) -> list[tuple[Path, int]]:
    """Return every image with its label, class by class; a class may be missing in a test set.

    Args:
        path: the folder that holds those of the classes.
        names: of the classes; the position of a name is its label.
    """
    samples = []
    for i, name in enumerate(names):
        if (path / name).is_dir():
            samples += [(file, i) for file in _images(path / name)]
    return samples


def _images(path: Path) -> list[Path]:
    """Return the image files of a folder, sorted: their order decides which samples are kept."""
    return sorted(file for file in path.iterdir() if _is_image(file.name))


def _is_image(name: str) -> bool:
    """Say whether a file is one to be read, by its name alone; hidden ones are not.

    >>> _is_image("cat.JPG"), _is_image(".cat.jpg"), _is_image("labels.csv")
    (True, False, False)
    """
    return Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")


def _read(samples: list[tuple[Path, int]], size: int, skip_bad: bool) -> Split:
    """Return the decoded images of files, with their labels.

    Large sets are cached, decoded, in the folder LEVELHEAD_CACHE, and then mapped into memory. A
    set with bad images is not: the cache has images alone, and would not say of which files.

    Args:
        samples: file and label of each.
        size: side of the images.
        skip_bad: leave files out that cannot be decoded, instead of raising LevelheadError.
    """
    files = [file for file, _ in samples]
    labels = np.array([label for _, label in samples], np.int64)
    cached = _cache_file(files, size)
    # Where it is missing or damaged, it is made again.
    with suppress(OSError, ValueError, EOFError):
        return Split(np.load(cached, mmap_mode="c", allow_pickle=False), labels)
    images = []
    good = []  # positions in files
    reasons = {}  # of the others, why they cannot be read
    for i, image in enumerate(_decode_all(files, size)):
        if isinstance(image, str):
            reasons[i] = image
        else:
            images.append(image)
            good.append(i)
    if reasons and not skip_bad:
        names = listed([str(files[i]) for i in reasons], 5)
        first = next(iter(reasons.values()))
        raise LevelheadError(
            f"{len(reasons)} of {len(files)} images cannot be read: {names} ({first}); repair or remove them",
            advice=Advice("skip_bad", None, "to leave them out"),
        )
    if not images:
        return Split(np.zeros((0, 3, size, size), np.uint8), labels[good])
    stacked = np.stack(images)
    if not reasons and len(stacked) >= CACHED_FROM:
        with suppress(OSError):  # the cache only saves time
            cached.parent.mkdir(parents=True, exist_ok=True)
            with atomic_open(cached) as file:
                np.save(file, stacked)
    return Split(stacked, labels[good])


def _cache_file(files: list[Path], size: int) -> Path:
    """Return where the decoded images of files are cached, whether or not they are.

    It is named by what it was made of, so that it need never be checked: a file that changes has
    another stamp.
    """
    folder = Path(os.environ.get("LEVELHEAD_CACHE") or Path.home() / ".cache" / "levelhead")
    stamps = "\n".join(map(_stamp, files))
    digest = hashlib.sha256(os.fsencode(f"{size} {stamps}")).hexdigest()
    return folder / f"{digest[:24]}.npy"


def _decode_all(files: list[Path], size: int) -> list[np.ndarray | str]:
    """Decode files in threads, in their order; Pillow lets other threads run while it decodes.

    Returns:
        For each file what `_decode` returns: its image, or why it cannot be read.
    """
    with ThreadPoolExecutor() as pool:
        try:
            return list(pool.map(lambda file: _decode(file, size), files))
        except BaseException:  # told to stop: the images that are not begun need not be waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _stamp(file: Path) -> str:
    """Return what tells whether a file is the one that was decoded: its place, size and time."""
    try:
        status = file.stat()
    except OSError:  # such as a broken link, which decoding reports
        return f"{file.absolute()} -"
    return f"{file.absolute()} {status.st_size} {status.st_mtime_ns}"


def _decode(path: Path, size: int) -> np.ndarray | str:
    """Return the image [3, size, size] as uint8, or what is wrong with the file.

    A text, not an exception: of a folder with several bad files all are named at once.
    """
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
    except MemoryError:  # that says nothing of the image
        raise
    # Pillow lets through whatever a decoder raises: struct.error, RuntimeError, AttributeError.
    except Exception as error:
        return str(error).replace(str(path), path.name) or type(error).__name__
