"""Arrays, counts, shares and names from files.

`FILE:KEY` is one array of a file, or a table's column. No code in a file is run.

`read` gives one array of a file of any format (array_formats.py); `read_counts` and `read_names`
know what counts and names may look like besides (class_formats.py). All say what is wrong with a
file in one line that begins with its name.

What comes back is as the file has it, and not checked against anything else: how many classes there
are, and what they are called, is known only once the logits are read (samples_file.py). So counts
may come as a list, as {class: n} or as labels, and `core.counts.resolve` makes [K] of them.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core.class_names import check_names, in_order, without_repeats
from ..core.counts import Counts
from ..support import text
from ..support.errors import LevelheadError, in_file, named, reported_as
from ..support.regular_file import check_regular_file, unchanged_while_read
from ..support.text import is_number, number
from .array_formats import ARCHIVES, FORMATS
from .class_formats import (
    COUNTS_FORMATS,
    names_from_csv,
    names_from_json,
    separator_of,
    with_whole_numbers,
)

_KNOWN = ", ".join(FORMATS)  # for messages


def read(source: str | Path, *, wanted: str = "logits") -> np.ndarray:
    """Return one array of FILE or FILE:KEY; a large one is memory-mapped.

    Args:
        source: of a format in `FORMATS`.
        wanted: what it is, for messages; of several arrays the one called so is read, and of a
            table the columns that are logits or labels, if that is wanted.

    Returns:
        Numbers or texts, [N] or [N, K], in the precision that the file has. Beyond 64 MiB, an .npy
        or .safetensors file is a read-only `np.memmap`, whose pages `support.read` reads as they
        are used.

    Raises:
        LevelheadError: of an unknown format, damaged, without such an array, changed while it was
            read, or larger than the memory.
        FileNotFoundError: there is no such file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "labels.txt").write_text("0\\n2\\n1\\n")
    ...     read(f"{folder}/labels.txt", wanted="labels")
    array([0., 2., 1.])
    """
    path, key = split_key(source)
    reader = FORMATS.get(path.suffix.lower())
    if reader is None:
        got = path.suffix or "no suffix"
        if path.is_dir():
            got = "a folder"
        raise LevelheadError(f"{path}: expected {wanted} as {_KNOWN}, got {got}")
    # A file that is still being written gives numbers of two versions, so that it is refused.
    with in_file(path), unchanged_while_read(path, wanted):
        try:
            return reader(path, key, wanted)
        except MemoryError as error:
            aside = f"({error or 'out of memory'}); save it as .npy, which is not read at once"
            raise LevelheadError(f"too large for the memory of this machine {aside}") from None


def read_counts(source: str | Path, *, wanted: str = "counts") -> Counts:
    """Return counts, as a list, an array or {class: n}; or labels, to be counted.

    `counts.resolve` checks them once the classes are known: only then can it be told whether
    integers are K counts or N labels.

    Args:
        source: "4000,2000,500" or "cat=4000,dog=2000"; or FILE or FILE:KEY: .json (a list,
            {class: n}, or either under the name that is wanted), .csv, .tsv or .parquet (class and
            n, or one column), .txt, .npy, or an .npz, .safetensors or .pt with an array of that
            name. The file may also hold the labels of the training samples, in one column or under
            a title such as `label`.
        wanted: what the numbers are, for messages.

    Raises:
        LevelheadError: no number where one is expected, a class that is listed twice, or any reason
            that `read` has.

    >>> read_counts("4000, 2000, 500")
    [4000.0, 2000.0, 500.0]
    >>> read_counts("cat=4000,dog=2000")
    {'cat': 4000.0, 'dog': 2000.0}
    """
    # Given themselves: a list if no name is there; a pair without its name leaves nothing to go by.
    if is_inline(source):
        pairs = []
        for word in str(source).split(","):
            name, _, n = word.rpartition("=")
            pairs.append((name.strip(), number(n)))
        if all(name for name, _ in pairs):
            return without_repeats(pairs)
        return [n for _, n in pairs]
    path, key = split_key(source)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise LevelheadError(
            f"{path}: expected {wanted} as {_KNOWN}, or with commas, got {suffix or 'no suffix'}"
        )
    # In these formats counts may have names, or be labels; in the others they are an array.
    if key is None and suffix in COUNTS_FORMATS:
        check_regular_file(path, wanted)
        with in_file(path):
            return COUNTS_FORMATS[suffix](path, wanted)
    return with_whole_numbers(read(source, wanted=wanted))


def read_names(given: str | Path | None) -> list[str] | None:
    """Return class names, in class order; None if none are given.

    Args:
        given: names with commas between them; or FILE or FILE:KEY: .txt (one per line), .csv or
            .tsv (one column, or index,name), .json (a list, {index: name}, {name: index}, or a
            model's config, whose `id2label` has them), or an array of texts.

    Raises:
        LevelheadError: they are not texts, one of them is empty or there twice, or the indices are
            not 0 to K - 1.

    >>> read_names("cat, dog")
    ['cat', 'dog']
    """
    if given is None:
        return None
    # A comma alone does not tell, as the name of a file may have one: a known suffix does.
    if not has_known_suffix(given):
        if "," in str(given):
            return check_names([name.strip() for name in str(given).split(",")])
        raise LevelheadError(
            f"expected names with commas between them, or a file ({_KNOWN}), got {str(given)!r}"
        )
    path, key = split_key(given)
    suffix = path.suffix.lower()
    with in_file(path):
        if suffix == ".json" and key is None:
            names = names_from_json(text.parse_json(text.read(path, "class names")))
        elif suffix in (".csv", ".tsv") and key is None:
            names = names_from_csv(text.read(path, "class names"), separator_of(path))
        elif suffix == ".txt":
            names = [line.strip() for line in text.read(path, "class names").strip().splitlines()]
        else:
            names = read(given, wanted="names").tolist()
        # In JSON and in arrays, numbers are no names: they may be counts or labels by mistake.
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise LevelheadError("expected one name per class, as text")
        return check_names(names)


def target_shares(
    given: str | None, names: Sequence[str] | None, classes: int
) -> np.ndarray | None:
    """Return shares [K] from "0.5,0.3,0.2", or from a file.

    A file has a list or {class: share}. None if none are given. Whether they are positive and sum
    to 1 is checked where the target is used.

    Args:
        given: as the command line takes a target.
        names: of the classes, by which a file may call them.
        classes: K.

    Raises:
        LevelheadError: what is given is no list of numbers; or, by name, a class has no share or is
            not known.

    >>> target_shares("0.75,0.25", None, 2)
    array([0.75, 0.25])
    """
    if given is None:
        return None
    if has_known_suffix(given):
        shares = read_counts(given, wanted="shares")
    else:
        shares = given.split(",")
    # By name, in whatever order the file has them.
    if isinstance(shares, dict):
        with in_file(given):
            return in_order(shares, classes, names, what="share")
    expected = f"expected {classes} numbers with commas between them, or a file of them"
    with (
        named("target"),
        reported_as(f"{expected}, got {given!r}", TypeError, ValueError, OverflowError),
    ):
        return np.array([float(share) for share in shares])


def is_inline(source: str | Path) -> bool:
    """Return whether counts are given themselves, with commas, and not the name of a file.

    One number alone is taken for a file: a single class has nothing to adjust.

    >>> is_inline("4000,2000"), is_inline("counts.csv")
    (True, False)
    """
    words = [word.rpartition("=")[2] for word in str(source).split(",")]
    return len(words) > 1 and all(map(is_number, words))


def file_of(source: str | Path) -> Path:
    """Return the file of FILE or FILE:KEY."""
    return split_key(source)[0]


def has_known_suffix(source: str | Path) -> bool:
    """Return whether the suffix of FILE or FILE:KEY is one of `FORMATS`."""
    return file_of(source).suffix.lower() in FORMATS


def array_next_to(source: str | Path, wanted: str) -> Path | None:
    """Return FILE:wanted if FILE holds an array of that name and others, else None.

    That is how labels, counts and names in the file of the logits are found, without reading a
    number. FILE:KEY names an array already: None. A file with one array has nothing beside it, even
    if that one is called `labels`.
    """
    path, key = split_key(source)
    if key is not None or path.suffix.lower() not in ARCHIVES:
        return None
    check_regular_file(path, wanted)
    with in_file(path):
        names = ARCHIVES[path.suffix.lower()](path)
    if wanted in names and len(names) > 1:
        return Path(f"{path}:{wanted}")
    return None


def sha256(source: str | Path) -> str:
    """Return the sha256 of the whole file of FILE or FILE:KEY.

    It goes into `tuned.json`, so that it can be told later which data a choice was made on.
    """
    with file_of(source).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def split_key(source: str | Path) -> tuple[Path, str | None]:
    """Return file and key of FILE or FILE:KEY.

    A file whose own name holds the colon comes first: where `a.npz:b.npz` exists, it has no key.
    The file ends at the first part with a known suffix, and the key may hold further colons.

    >>> [str(part) for part in split_key("scores.npz:logits")]
    ['scores.npz', 'logits']
    """
    words = str(source).split(":")
    for i in range(1, len(words)):
        stem = Path(":".join(words[:i]))
        if stem.suffix.lower() in FORMATS and not os.path.exists(source):
            return stem, ":".join(words[i:])
    return Path(source), None
