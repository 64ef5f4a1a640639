"""Atomic file replacement: a file is there completely or not at all, and an interrupted write leaves the old one.

A file that replaces another keeps its permissions.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .errors import LevelheadError


@contextmanager
def atomic_open(path: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary file to write to; it replaces `path` in one step when the block ends without an error."""
    path = Path(path)
    check_plain(path)
    scratch = path.with_name(f"{path.name}.{os.urandom(8).hex()}.tmp")  # unique across threads, processes, machines
    try:
        with scratch.open("xb") as file:
            if path.exists():
                scratch.chmod(permissions(path))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(scratch)):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from None  # name the file that the user knows
    finally:
        with suppress(OSError):  # it was renamed, or never made
            scratch.unlink()


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
