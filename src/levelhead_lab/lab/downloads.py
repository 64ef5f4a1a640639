"""Where the official archives of the data sets are, and the md5 of each."""

from collections.abc import Iterable
from typing import NamedTuple


class Archive(NamedTuple):
    """An official archive."""

    file: str
    md5: str
    page: str


CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
ARCHIVES = {
    "cifar10": Archive("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", CIFAR_PAGE),
    "cifar100": Archive("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", CIFAR_PAGE),
    "tiny-imagenet": Archive(
        "tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", "http://cs231n.stanford.edu"
    ),
}


def where_to_get(names: Iterable[str]) -> str:
    """Return what to download for data sets, from where, and its md5.

    >>> where_to_get(["tiny-imagenet-sorted"])
    'download tiny-imagenet-200.zip (md5 90528d7ca1a48142e341f4ef8d21d0de) from http://cs231n.stanford.edu'
    """
    archives = dict.fromkeys(ARCHIVES[name.removesuffix("-sorted")] for name in names)
    parts = [f"{one.file} (md5 {one.md5}) from {one.page}" for one in archives]
    return f"download {' and '.join(parts)}"
