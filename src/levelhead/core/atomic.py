"""Atomic file replacement: a file is there completely or not at all, and an interrupted write leaves the old one.

A file that replaces another keeps its permissions.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import LevelheadError
from .temporary import scratch


@contextmanager
def atomic_open(path: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary file to write to; it replaces `path` in one step when the block ends without an error."""
    path = Path(path)
    check_plain(path)
    with named_errors(path), scratch(path) as temporary:
        with temporary.open("wb") as file:
            if path.exists():
                temporary.chmod(permissions(path))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Put the name that the user knows into an OSError that names a temporary file next to it, or no file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or not (error.filename is None or _is_temporary(error.filename, path)):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from None


def _is_temporary(name: object, path: Path) -> bool:
    """Return whether a name is of a temporary file or folder next to a path, or of something in that folder."""
    here = os.path.relpath(os.fsdecode(name), path.parent) if isinstance(name, str | bytes | os.PathLike) else ""
    first = here.split(os.sep)[0]
    return first.lstrip(".").startswith(path.name.lstrip(".")) and first.endswith(".tmp")


def check_plain(path: Path) -> None:
    """Check that whatever exists at the path is a file that can be replaced: not a folder, not /dev/null."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device or a pipe"
        raise LevelheadError(f"{path}: {what}; expected the name of a file to write")


def permissions(*paths: Path) -> int:
    """Return the permission bits that all of these files have."""
    bits = 0o777
    for path in paths:
        bits &= stat.S_IMODE(path.stat().st_mode)
    return bits


def write(path: str | Path, content: str | bytes) -> None:
    """Write a file atomically; text as UTF-8."""
    with atomic_open(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
