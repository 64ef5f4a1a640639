"""Files replaced in one step, by way of temporary ones next to them, which are removed once nobody uses them.

`atomic_open` writes into a temporary file in the same folder, and renames it when all is written: a
reader sees the old file or the new one, and never half of either. A process that is killed leaves its
temporary file behind. So each holds a lock on it while it writes, which ends with the process, and
the next one that writes into the folder removes what nobody holds (`remove_leftovers`).
"""

import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from operator import and_
from pathlib import Path
from typing import BinaryIO

from .errors import Advice, LevelheadError

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there, so nothing can be told to be left over
    fcntl = None

# Folders that this process has looked through, by device and inode.
_seen: set[tuple[int, int]] = set()


class OutputExists(LevelheadError, FileExistsError):
    """A file that would be overwritten."""


def write(path: str | Path, content: str | bytes, *, new: bool = False) -> None:
    """Write a file atomically.

    Args:
        path: of the file.
        content: bytes, or text, which is written as UTF-8.
        new: whether there must be none yet: then one that another process wrote meanwhile is not
            replaced, and `OutputExists` is raised.
    """
    if isinstance(content, str):
        content = content.encode()
    with atomic_open(path, new=new) as file:
        file.write(content)


@contextmanager
def atomic_open(path: str | Path, *, new: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path`, with its permissions, when the block ends without an error.

    Args:
        path: of the file that is to appear.
        new: whether there must be none yet, as in `write`.
    """
    path = Path(path)
    check_plain(path)
    with named_errors(path), scratch(path) as temporary:
        with temporary.open("wb") as file:
            if path.exists():
                temporary.chmod(permissions(path))
            yield file
            # On the disk before it has its name: else a power failure could leave an empty file.
            file.flush()
            os.fsync(file.fileno())
        if not new or not link_new(temporary, path):
            os.replace(temporary, path)


def link_new(path: Path, target: Path) -> bool:
    """Let a file appear where none is, whoever else writes there; return False on a file system without links."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise OutputExists(
            f"{target} exists", advice=Advice("force", None, "to replace it")
        ) from None
    except OSError:
        return False
    return True


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Put the name that the user knows into an OSError that names a temporary file next to it, or no file."""
    try:
        yield
    except OSError as error:
        name = error.filename
        relative = ""
        if isinstance(name, str | bytes | os.PathLike):
            relative = os.path.relpath(os.fsdecode(name), path.parent)
        first = relative.split(os.sep)[0]  # the temporary file, or the folder that the file is in
        is_temporary = first.endswith(".tmp") and first.lstrip(".").startswith(
            path.name.lstrip(".")
        )
        if error.errno is None or not (name is None or is_temporary):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from None


def check_plain(path: Path) -> None:
    """Check that whatever exists at the path is a file that can be replaced: not a folder, not /dev/null."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device or a pipe"
        raise LevelheadError(f"{path}: {kind}; expected the name of a file to write")


def permissions(*paths: Path) -> int:
    """Return the permission bits that all of these files have."""
    return reduce(and_, (stat.S_IMODE(path.stat().st_mode) for path in paths), 0o777)


@contextmanager
def scratch(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Make a temporary file, or a hidden folder that nobody else may enter, next to a path; remove it at the end."""
    remove_leftovers(path.parent)
    place, lock = _make_locked(path, folder)
    try:
        yield place
    finally:
        _remove(place)  # it was renamed, if it was a file
        os.close(lock)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes of this user and machine left in a folder, which a process looks through once.

    On a shared disk, another machine's locks may not be seen here: its files are left alone.
    """
    if fcntl is None:
        return
    with suppress(OSError):
        status = folder.stat()
        if (status.st_dev, status.st_ino) in _seen:
            return
        _seen.add((status.st_dev, status.st_ino))
        name_of_ours = re.compile(rf".+\.{_machine()}[0-9a-f]{{8}}\.tmp")
        for entry in list(os.scandir(folder)):
            if not name_of_ours.fullmatch(entry.name) or entry.is_symlink():
                continue
            if entry.stat().st_uid != os.geteuid():
                continue
            # A killed process leaves its temporary file behind, but not the lock on it.
            with suppress(OSError):  # it is locked, or gone
                lock = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(Path(entry.path))
                finally:
                    os.close(lock)


def _remove(place: Path) -> None:
    if place.is_dir():
        # A folder that could not be listed once, as a disk failed, may well be the second time.
        for _ in range(2):
            shutil.rmtree(place, ignore_errors=True)
    else:
        with suppress(OSError):
            place.unlink()


def _make_locked(path: Path, folder: bool) -> tuple[Path, int]:
    """Make a file or folder with a name that no other has, and lock it; return it and what holds the lock."""
    while True:
        name = f"{path.name}.{_machine()}{os.urandom(4).hex()}.tmp"
        if folder:
            name = f".{name}"
        place = path.with_name(name)
        try:
            if folder:
                place.mkdir(0o700)
            else:
                os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            continue
        try:
            lock = os.open(place if fcntl is not None else os.devnull, os.O_RDONLY)
        except FileNotFoundError:  # another process took it for a leftover before it was locked
            continue
        if _lock(place, lock):
            return place, lock
        os.close(lock)


def _lock(place: Path, lock: int) -> bool:
    """Lock an open file; return whether it is still there: another process may have taken it for a leftover."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.stat(place), os.fstat(lock))
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # this file system has no locks
        return True


def _machine() -> str:
    """Return eight digits that stand for this machine's name."""
    if hasattr(os, "uname"):
        name = os.uname().nodename
    else:
        name = os.environ.get("COMPUTERNAME", "")
    return f"{zlib.crc32(name.encode()):08x}"
