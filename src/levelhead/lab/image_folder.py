"""Images in folders: a user's own, FOLDER/class/*.jpg, and Tiny ImageNet in its own layout."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from ..core.atomic import replacing
from ..core.errors import LevelheadError
from .data import SIZE, Data, Split, split

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"}
WORTH_KEEPING = 5000  # images decoded, from which on they are cached


def load(path: Path, *, size: int = SIZE, skip_bad: bool = False, test_share: float = 0.2) -> Data:
    """FOLDER/train/class/* with FOLDER/test or FOLDER/val, or FOLDER/class/*, of which a fifth becomes the test set.

    Images become RGB, their shorter side `size`, and are cut to their middle.
    """
    if size < 4:
        raise LevelheadError(f"expected an image size of at least 4, got {size}")
    test_folder = next((path / part for part in ("test", "val") if (path / part).is_dir()), None)
    if (path / "train").is_dir() and test_folder is not None:
        names = _at_least_two(path / "train")
        unknown = sorted(set(_classes(test_folder)) - set(names))
        if unknown:
            raise LevelheadError(f"{test_folder}: class {unknown[0]!r} is not in {path / 'train'}")
        train, test = (_read(*_files(place, names), size, skip_bad) for place in (path / "train", test_folder))
        return Data(path.name, names, train, test)
    names = _at_least_two(path)
    whole = _read(*_files(path, names), size, skip_bad)
    alone = np.flatnonzero(np.bincount(whole.labels, minlength=len(names)) == 1)
    if len(alone):
        raise LevelheadError(f"{path / names[alone[0]]}: only one image, none is left for a test set; add images, or give "
                         f"{path / 'train'} and {path / 'test'} apart")
    rest, out = split(whole.labels, test_share)
    return Data(path.name, names, whole[rest], whole[out])


def tiny_imagenet(root: Path, *, skip_bad: bool = False) -> Data:
    """Tiny ImageNet: 200 classes of 500 images of 64x64; its labelled val/ is the test set. Grey images become RGB."""
    place = next((p for p in (root / "tiny-imagenet-200", root) if (p / "wnids.txt").is_file()), None)
    if place is None:
        raise LevelheadError(f"{root}: no Tiny ImageNet here; expected the folder tiny-imagenet-200 with wnids.txt, as "
                         f"unpacked from the official archive")
    ids = (place / "wnids.txt").read_text(encoding="utf-8").split()
    index = {wnid: i for i, wnid in enumerate(ids)}
    train = [(file, index[wnid]) for wnid in ids for file in _images(place / "train" / wnid / "images")]
    notes = (place / "val" / "val_annotations.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in notes if line]
    strange = next((row for row in rows if len(row) < 2 or row[1] not in index), None)
    if strange is not None:
        raise LevelheadError(f"{place / 'val/val_annotations.txt'}: expected lines of file, wnid, ...; got {strange[:2]}")
    test = [(place / "val" / "images" / row[0], index[row[1]]) for row in rows]
    sets = [_read([file for file, _ in part], [y for _, y in part], 64, skip_bad) for part in (train, test)]
    return Data("tiny-imagenet", _words(place, ids), sets[0], sets[1], largest=500)


def _words(place: Path, ids: Sequence[str]) -> tuple[str, ...]:
    if not (place / "words.txt").is_file():
        return tuple(ids)
    lines = (place / "words.txt").read_text(encoding="utf-8").splitlines()
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return tuple(words.get(wnid, wnid).split(",")[0] for wnid in ids)


def _classes(path: Path) -> tuple[str, ...]:
    names = tuple(sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")))
    for name in names:
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise LevelheadError(f"{path}: the name of class {name!a} is no text in UTF-8; rename its folder")
    return names


def _at_least_two(path: Path) -> tuple[str, ...]:
    names = _classes(path)
    if len(names) < 2:
        raise LevelheadError(f"{path}: expected a folder for each of at least 2 classes, got {', '.join(names) or 'none'}")
    return names


def _files(path: Path, names: Sequence[str]) -> tuple[list[Path], list[int]]:
    pairs = [(file, i) for i, name in enumerate(names) if (path / name).is_dir() for file in _images(path / name)]
    return [file for file, _ in pairs], [i for _, i in pairs]


def _images(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))


def _read(files: Sequence[Path], labels: Sequence[int], size: int, skip_bad: bool) -> Split:
    """Decode all files, in parallel; large sets are kept decoded in the cache folder (LEVELHEAD_CACHE)."""
    place = Path(os.environ.get("LEVELHEAD_CACHE") or Path.home() / ".cache" / "levelhead")
    facts = "\n".join(map(_facts, files))
    cached = place / f"{hashlib.sha256(os.fsencode(f'{size} {facts}')).hexdigest()[:24]}.npy"
    with suppress(OSError, ValueError, EOFError):  # not there, or damaged: made anew
        return Split(np.load(cached, mmap_mode="c", allow_pickle=False), np.array(labels, np.int64))
    with ThreadPoolExecutor() as pool:
        decoded = list(pool.map(lambda file: _decode(file, size), files))
    bad = [i for i, image in enumerate(decoded) if isinstance(image, str)]
    if bad and not skip_bad:
        raise LevelheadError(f"{len(bad)} of {len(files)} images cannot be read: {_listed([files[i] for i in bad])} "
                         f"({decoded[bad[0]]}); mend or remove them, or pass --skip-bad to leave them out")
    good = [i for i, image in enumerate(decoded) if not isinstance(image, str)]
    images = np.stack([decoded[i] for i in good]) if good else np.zeros((0, 3, size, size), np.uint8)  # type: ignore
    if not bad and len(images) >= WORTH_KEEPING:
        with suppress(OSError):  # it only saves time
            place.mkdir(parents=True, exist_ok=True)
            with replacing(cached) as file:
                np.save(file, images)
    return Split(images, np.array(labels, np.int64)[good] if good else np.zeros(0, np.int64))


def _facts(file: Path) -> str:
    """What a file is known by without being read."""
    try:
        found = file.stat()
    except OSError:  # a link to nothing, say: decoding it says so
        return f"{file.absolute()} -"
    return f"{file.absolute()} {found.st_size} {found.st_mtime_ns}"


def _decode(path: Path, size: int) -> np.ndarray | str:
    """[3, size, size] of uint8, or what is wrong with the file."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ImportError("reading image files needs Pillow: pip install pillow") from None
    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image)
            if upright.mode in ("I", "F"):
                return "32 bits a pixel, of which nothing says what is white"
            if upright.mode.startswith("I;16"):  # made RGB, all but the darkest 256 shades would be white
                upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
            upright = upright.convert("RGB")
            fits = upright.size == (size, size)
            fitted = upright if fits else ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC)
            return np.ascontiguousarray(np.asarray(fitted).transpose(2, 0, 1))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return str(error).replace(str(path), path.name) or type(error).__name__


def _listed(files: Sequence[Path], most: int = 5) -> str:
    return ", ".join(map(str, files[:most])) + (f", ... ({len(files) - most} more)" if len(files) > most else "")
