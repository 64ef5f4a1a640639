"""Where the official archives of the data sets are, and the md5 of each.

Nothing is downloaded by itself: errors of `load` and of the command line name what is missing, and
where to get it.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Archive(NamedTuple):
    """An official archive."""

    file: str  # name of the archive
    md5: str  # of the archive; those of the files in it are in `cifar`
    page: str  # from where to download it


CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
ARCHIVES = {
    "cifar10": Archive("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", CIFAR_PAGE),
    "cifar100": Archive("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", CIFAR_PAGE),
    "tiny-imagenet": Archive(
        "tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", "http://cs231n.stanford.edu"
    ),
}


def where_to_get(names: Iterable[str]) -> str:
    """Return what to download for data sets, from where, and its md5, as the part of a sentence.

    Args:
        names: of data sets, keys of `ARCHIVES`, with `-sorted` or without; an archive that several
            need is named once.

    >>> where_to_get(["tiny-imagenet-sorted"])
    'download tiny-imagenet-200.zip (md5 90528d7ca1a48142e341f4ef8d21d0de) from http://cs231n.stanford.edu'
    """
    # A dict keeps the order in which they are first named; a set would not.
    archives = dict.fromkeys(ARCHIVES[name.removesuffix("-sorted")] for name in names)
    parts = [f"{archive.file} (md5 {archive.md5}) from {archive.page}" for archive in archives]
    return f"download {' and '.join(parts)}"
