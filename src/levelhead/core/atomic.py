"""Files that are there whole, or not at all: what stops a program halfway leaves the old one as it was.

One that takes the place of another keeps its permissions.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import LevelheadError


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its place at `path` when the block ends well: on the disk, in one step."""
    path = Path(path)
    check_plain(path)
    scratch = path.with_name(f"{path.name}.{os.urandom(8).hex()}.tmp")  # of no other thread, process or machine
    new = _new(scratch, path)
    try:
        with new as file:
            if path.exists():
                scratch.chmod(permissions(path))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from None  # a full disk has no name of its own
    finally:
        scratch.unlink(missing_ok=True)


def check_plain(path: Path) -> None:
    """That what is there, if anything, is a file, whose place another may take: not /dev/null."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device or a pipe"
        raise LevelheadError(f"{path}: {what}; expected the name of a file to write")


def _new(scratch: Path, path: Path) -> BinaryIO:
    try:
        return scratch.open("xb")
    except OSError as error:  # of a name that nobody gave
        raise type(error)(error.errno, error.strerror, str(path)) from None


def permissions(*paths: Path) -> int:
    """The permission bits that all of these files have."""
    bits = 0o777
    for path in paths:
        bits &= stat.S_IMODE(path.stat().st_mode)
    return bits


def write(path: str | Path, content: str | bytes) -> None:
    """Write a whole file; text as UTF-8."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
