"""The lock of a run's folder: one process trains a run at a time, on every system.

Where the system has locks (`fcntl`, or `msvcrt` on Windows), it releases them when a process ends, however it ends.
Elsewhere a file names the process that holds the lock; if that process is gone, the file is taken over.
"""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from levelhead.support.errors import LevelheadError


class BusyError(LevelheadError):
    """Another process holds the run's lock."""


@contextmanager
def lock_folder(path: Path, *, writes: bool = True) -> Iterator[None]:
    """Make a run's folder and hold its lock; a process that does not write needs none."""
    path.mkdir(parents=True, exist_ok=True)
    if not writes:
        yield
        return
    with (path / "lock").open("a") as file:
        try:
            if (fcntl := _module("fcntl")) is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            elif (msvcrt := _module("msvcrt")) is not None:
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except (BlockingIOError, PermissionError):
            raise BusyError(
                f"{path}: another process is training this run; wait for it, or stop it"
            ) from None
        with nullcontext() if fcntl or msvcrt else _named_holder(path / "lock.holder"):
            yield


@contextmanager
def _named_holder(path: Path) -> Iterator[None]:
    """Hold a lock that is a file with the name of its holder: a machine and a process on it."""
    mine = f"{platform.node()} {os.getpid()}"
    while True:
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            break
        except FileExistsError:
            _take_over(path)
    os.write(file, mine.encode())
    os.close(file)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def _take_over(path: Path) -> None:
    """Remove a lock whose holder is gone; raise BusyError if it is not, or if that cannot be known."""
    try:
        holder = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return  # it has just been released
    machine, _, number = holder.rpartition(" ")
    if machine != platform.node() or not number.isdigit() or _is_running(int(number)):
        raise BusyError(
            f"{path.parent}: another process is training this run ({holder or 'not named yet'}); wait for it, or stop "
            f"it; if there is none, delete {path}"
        )
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):  # another process was first
        os.replace(path, aside)
        if aside.read_text(encoding="utf-8") != holder:  # and has the lock now: give it back
            os.replace(aside, path)
        else:
            aside.unlink()


def _is_running(process: int) -> bool:
    """Return whether a process of this machine is running, as far as that can be asked without ending it."""
    try:
        if os.name == "posix":  # elsewhere os.kill ends a process, whatever the signal
            os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None
