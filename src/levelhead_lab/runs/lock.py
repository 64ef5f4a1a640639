"""The lock of a run's folder: one process trains a run at a time.

The system releases it when the process ends, however it ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

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
    lock = FileLock(path / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        reason = f"{path}: another process is training this run; wait for it, or stop it"
        raise BusyError(reason) from None
    try:
        yield
    finally:
        lock.release()
