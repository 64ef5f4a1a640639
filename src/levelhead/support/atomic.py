"""Files replaced in one step, by way of temporary ones next to them, which are removed once nobody uses them."""

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
    """Write a file atomically; text as UTF-8. A new one replaces none that another process wrote meanwhile."""
    with atomic_open(path, new=new) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_open(path: str | Path, *, new: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path`, with its permissions, when the block ends without an error."""
    path = Path(path)
    check_plain(path)
    with named_errors(path), scratch(path) as temporary:
        with temporary.open("wb") as file:
            if path.exists():
                temporary.chmod(permissions(path))
            yield file
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
        here = ""
        if isinstance(name, str | bytes | os.PathLike):
            here = os.path.relpath(os.fsdecode(name), path.parent)
        first = here.split(os.sep)[0]  # the temporary file, or the folder that the file is in
        temporary = first.lstrip(".").startswith(path.name.lstrip(".")) and first.endswith(".tmp")
        if error.errno is None or not (name is None or temporary):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from None


def check_plain(path: Path) -> None:
    """Check that whatever exists at the path is a file that can be replaced: not a folder, not /dev/null."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device or a pipe"
        raise LevelheadError(f"{path}: {what}; expected the name of a file to write")


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
    """Remove what killed processes of this user and machine left in a folder, which a process looks through once."""
    # A killed process leaves its temporary file behind, but not the lock on it.
    if fcntl is None:
        return
    with suppress(OSError):
        place = folder.stat()
        if (place.st_dev, place.st_ino) in _seen:
            return
        _seen.add((place.st_dev, place.st_ino))
        ours = re.compile(rf".+\.{_machine()}[0-9a-f]{{8}}\.tmp")
        for entry in list(os.scandir(folder)):
            if (
                not ours.fullmatch(entry.name)
                or entry.is_symlink()
                or entry.stat().st_uid != os.geteuid()
            ):
                continue
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
        place = path.with_name(f".{name}" if folder else name)
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
