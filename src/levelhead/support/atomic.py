"""Files replaced in one step, by way of temporary ones next to them, removed once nobody uses them.

`atomic_open` writes into a temporary file in the same folder, and renames it when all is written: a
reader sees the old file or the new one, and never half of either. A process that is killed leaves
its temporary file behind. So each holds a lock on it while it writes, which ends with the process,
and the next one that writes into the folder removes what nobody holds (`remove_leftovers`).

A temporary file is called NAME.MMMMMMMMRRRRRRRR.tmp, with eight digits of the machine's name and
eight random ones. A lock is `flock` on the open file: the system drops it however the process ends.
Between making a file and locking it another process may take it for a leftover; whoever made it
then sees that what it has locked is no longer there, and makes another (`_make_locked`).

`write` is for what is in memory, `atomic_open` for what is written piece by piece, and `scratch`
for a folder of files that move together (files/staging.py).
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
from typing import TYPE_CHECKING, BinaryIO

from .errors import Advice, LevelheadError

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there, so nothing can be told to be left over
    fcntl = None

if TYPE_CHECKING:
    from multiprocessing.util import Finalize

# Folders that this process has looked through, by device and inode.
_seen: set[tuple[int, int]] = set()


class OutputExists(LevelheadError, FileExistsError):
    """A file that would be overwritten.

    It is a `FileExistsError`, too, for those who catch that.
    """


def write(path: str | Path, content: str | bytes, *, new: bool = False) -> None:
    """Write a file atomically.

    Args:
        path: of the file.
        content: bytes, or text, which is written as UTF-8.
        new: whether there must be none yet: then one that another process wrote meanwhile is not
            replaced, and `OutputExists` is raised.

    Raises:
        OutputExists: `new`, and the file is there.
        LevelheadError: at the path is a folder, a device or a pipe.
        OSError: as the system says, with the name of this file and not of a temporary one.
    """
    if isinstance(content, str):
        content = content.encode()
    with atomic_open(path, new=new) as file:
        file.write(content)


@contextmanager
def atomic_open(path: str | Path, *, new: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path`, with its permissions, when the block ends well.

    If the block raises, `path` stays as it was and the temporary file is removed. A link at `path`
    is replaced by a file, and not written through.

    Args:
        path: of the file that is to appear.
        new: whether there must be none yet, as in `write`.
    """
    path = Path(path)
    check_plain(path)
    with named_errors(path), scratch(path) as temporary:
        with temporary.open("wb") as file:
            # Before a byte is written: what replaces a private file is private all the while.
            if path.exists():
                temporary.chmod(permissions(path))
            yield file
            # On the disk before it has its name: else a power failure could leave an empty file.
            file.flush()
            os.fsync(file.fileno())
        if not new or not link_new(temporary, path):
            os.replace(temporary, path)


def link_new(path: Path, target: Path) -> bool:
    """Let a file appear where none is, whoever else writes there.

    A rename would replace what another process wrote after we looked. A hard link fails if the name
    is taken, in one step. Where there are no links (FAT, some network disks), the caller renames.

    Args:
        path: the file, whole.
        target: the name that it gets besides; its old name is for the caller to remove.

    Returns:
        Whether it appeared; False on a file system without links.

    Raises:
        OutputExists: the name is taken.
    """
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
    """Put the name that the user knows into an OSError that names a temporary file, or no file.

    "No space left on device: 'model.onnx.1f0c...tmp'" would send users looking for a file that is
    gone. Errors about any other file, such as one that is read meanwhile, are left as they are.
    """
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
    """Check that what exists at a path can be replaced: a file, no folder, not /dev/null."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device or a pipe"
        raise LevelheadError(f"{path}: {kind}; expected the name of a file to write")


def permissions(*paths: Path) -> int:
    """Return the permission bits that all of these files have.

    So a copy of a private model is never more open than the model.

    Args:
        paths: files that exist; without any, all bits are set.
    """
    return reduce(and_, (stat.S_IMODE(path.stat().st_mode) for path in paths), 0o777)


@contextmanager
def scratch(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Make a temporary file, or a hidden folder that nobody else may enter; remove it at the end.

    Args:
        path: next to which it is made, so that it can be renamed to that: a rename works within one
            file system only.
        folder: whether to make a folder.

    Yields:
        Its path. It is locked until the block ends, so that no other process takes it for a
        leftover.
    """
    remove_leftovers(path.parent)
    place, lock, at_exit = _make_locked(path, folder)
    try:
        yield place
    finally:
        _remove(place)  # it was renamed, if it was a file
        at_exit.cancel()
        os.close(lock)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes of this user and machine left in a folder.

    On a shared disk, another machine's locks may not be seen here: its files are left alone. So are
    those of other users, links, and whatever is locked. A process looks through a folder once. An
    error is no reason to stop anybody's work: what cannot be removed stays.
    """
    if fcntl is None:
        return
    with suppress(OSError):
        status = folder.stat()
        if (status.st_dev, status.st_ino) in _seen:
            return
        _seen.add((status.st_dev, status.st_ino))
        # Only what is certainly ours: by its name, its owner, and the lock that is missing.
        name_of_ours = re.compile(rf".+\.{_machine()}[0-9a-f]{{8}}\.tmp")
        for entry in list(os.scandir(folder)):
            if not name_of_ours.fullmatch(entry.name) or entry.is_symlink():
                continue
            if entry.stat().st_uid != os.geteuid():
                continue
            # A killed process leaves its temporary file behind, but not the lock on it.
            with suppress(OSError):  # it is locked, or gone
                # Without waiting: a pipe of such a name would wait for somebody to write.
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


def _make_locked(path: Path, folder: bool) -> "tuple[Path, int, Finalize]":
    """Make a file or folder with a name that no other has, and lock it.

    Ctrl-C may come between any two steps, before the caller's `try` is entered, too. So before it is
    made, it is put on the list of what this process removes when it exits.

    Returns:
        The file or folder; the descriptor that holds the lock, which the caller closes; and its
        entry in that list, which the caller cancels.
    """
    # Imported here: most processes write nothing.
    from multiprocessing.util import Finalize  # unlike atexit, for workers of a pool as well

    while True:
        # Until a name is free, and the file under it is still there once it is locked.
        name = f"{path.name}.{_machine()}{os.urandom(4).hex()}.tmp"
        if folder:
            name = f".{name}"
        place = path.with_name(name)
        at_exit = Finalize(None, _remove, (place,), exitpriority=0)
        try:
            if folder:
                place.mkdir(0o700)
            else:
                os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except OSError as error:
            at_exit.cancel()
            if isinstance(error, FileExistsError):
                continue
            raise
        try:
            lock = os.open(place if fcntl is not None else os.devnull, os.O_RDONLY)
        except FileNotFoundError:  # another process took it for a leftover before it was locked
            at_exit.cancel()
            continue
        if _lock(place, lock):
            return place, lock, at_exit
        at_exit.cancel()
        os.close(lock)


def _lock(place: Path, lock: int) -> bool:
    """Lock an open file; return whether it is still there.

    Another process may have taken it for a leftover before it was locked: then the path leads
    nowhere, or to a file of the same name that is not the one that is open.
    """
    if fcntl is None:
        return True
    try:
        # Never waiting: whoever holds it is about to remove the file.
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
