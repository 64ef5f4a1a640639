"""Files that are read: the same from the first byte to the last, and regular.

A pipe or a device may never end, and a file that is written meanwhile gives the beginning of one
version and the end of another. `unchanged_while_read` guards against both; where reading goes on
after the call, as of a mapped file, keep the stamp of `check_regular_file` and compare it when all
is done (`check_unchanged`).
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import LevelheadError

Stamp = tuple[int, int, int, int]  # device, inode, size, time of the last change

_OTHER_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular_file(path: str | Path, wanted: str = "a file") -> Stamp:
    """Check that a path leads to a regular file, without opening it.

    To open a pipe may wait forever.

    Args:
        path: of the file; links are followed.
        wanted: what it should hold, for the messages.

    Returns:
        What identifies its content now.

    Raises:
        FileNotFoundError, IsADirectoryError: there is none, or a folder.
        LevelheadError: a pipe, a socket, a device, or no name of a file.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path}: no such file; expected {wanted}") from None
    except ValueError as error:  # a name with a null byte
        raise LevelheadError(f"{str(path)!r}: not the name of a file ({error})") from None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(f"{path}: a folder, and no file; expected {wanted}")
    if not stat.S_ISREG(status.st_mode):
        kind = _OTHER_KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")
        raise LevelheadError(f"{path}: {kind}; expected a regular file that holds {wanted}")
    return _stamp(status)


def check_unchanged(path: str | Path, stamp: Stamp) -> None:
    """Check that a file is still the one that `check_regular_file` returned this stamp of.

    Raises:
        LevelheadError: it has another size, time or inode, or cannot be asked.
    """
    with suppress(OSError):
        if _stamp(os.stat(path)) == stamp:
            return
    raise LevelheadError(f"{path}: changed while it was read; try again when nothing writes to it")


def bytes_at(path: str | Path, offset: int, length: int) -> bytes:
    """Return bytes of a file, fewer where it ends before."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(length)


@contextmanager
def unchanged_while_read(path: str | Path, wanted: str = "a file") -> Iterator[None]:
    """Check that a path is a regular file before the block, and still the same after it.

    If the block raises, that error stands.
    """
    stamp = check_regular_file(path, wanted)
    yield
    check_unchanged(path, stamp)


def _stamp(status: os.stat_result) -> Stamp:
    # By inode, a file that was replaced is seen even if it has the same size and time.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
