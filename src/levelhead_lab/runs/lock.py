"""The lock of a run's folder: one process trains a run at a time.

It is a lock of the operating system on the file `lock` in the folder, by `filelock`: on every system,
and without a process id in a file, which would have to be judged alive or dead. The system releases
it when the process ends, however it ends, so a run that was killed can be resumed at once. The file
itself may stay behind, and means nothing.
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
    """Make a run's folder and hold its lock while the block runs.

    Args:
        path: the folder.
        writes: False for a process that does not write, under torchrun all but the first: it needs
            no lock, and could not have it.

    Raises:
        BusyError: at once, if another process, or another block of this one, holds it.
    """
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
