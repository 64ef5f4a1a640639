"""The sha256 of a file, or of what edits make of it, computed by a thread while the file is copied.

Of a large file it takes longer than all else. So the command line begins it before it imports the rest (`begin_early`).
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from ..core.errors import LevelheadError
from ..core.regular_file import check_regular_file
from .blocks import Edit, blocks_of

LARGE_INPUT = 1 << 24  # bytes, from which on a thread is worth its start
_BLOCK = 1 << 22  # so many bytes at a time: each takes the interpreter's lock twice, which others may hold


def file_sha256(path: Path, edits: Sequence[Edit] = ()) -> str:
    """Return the sha256 of a file with edits, which are in order. Other threads run meanwhile.

    The file is read, not mapped: a mapped file that becomes shorter kills the process.

    >>> file_sha256(Path(__file__)) == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    True
    """
    sha, size = hashlib.sha256(), path.stat().st_size
    block = bytearray(min(_BLOCK, max(size, 1)))
    with path.open("rb", buffering=0) as file:
        for edit in [*edits, Edit(size, 0, b"")]:
            length = edit.offset - file.tell()
            while length:
                done = file.readinto(memoryview(block)[: min(length, len(block))])
                if not done:
                    raise LevelheadError("the input became shorter while it was read; nothing was written")
                sha.update(memoryview(block)[:done])
                length -= done
            for part in blocks_of(edit.data):
                sha.update(part)
            file.seek(edit.offset + edit.length)
    return sha.hexdigest()


class Digest:
    """The sha256 of a file with edits, in order; of a large file, a thread computes it from now on."""

    def __init__(self, path: Path, edits: Sequence[Edit] = ()) -> None:
        self.path, self.edits, self.stamp = path, tuple(edits), check_regular_file(path)
        self._found: str | None = None
        self._thread = Thread(target=self._compute, daemon=True) if self.stamp[2] >= LARGE_INPUT else None
        if self._thread is not None:
            self._thread.start()

    @property
    def running(self) -> bool:
        """Whether a thread still computes it."""
        return self._thread is not None and self._thread.is_alive()

    def __call__(self) -> str:
        """Return it, as soon as it is there."""
        self.wait()
        if self._found is None:  # not begun, or failed: then the error is raised here
            self._found = file_sha256(self.path, self.edits)
        return self._found

    def wait(self) -> None:
        """Wait until no thread computes it any more."""
        if self._thread is not None:
            self._thread.join()

    def _compute(self) -> None:
        with suppress(OSError, LevelheadError):
            self._found = file_sha256(self.path, self.edits)


_early: dict[str, Digest] = {}  # by the path that it is of


def begin_early(path: Path, edits: Sequence[Edit] = ()) -> None:
    """Begin the digest of a file that will be asked for: `digest_meanwhile` then waits for this one."""
    _early[os.path.realpath(path)] = Digest(path, edits)


@contextmanager
def digest_meanwhile(path: Path, edits: Sequence[Edit] = ()) -> Iterator[Digest]:
    """Yield the digest of a file with edits, in order, which is computed meanwhile; at the end, wait for its thread."""
    digest = _early.pop(os.path.realpath(path), None)
    if digest is None or digest.stamp != check_regular_file(path) or digest.edits != tuple(edits):
        digest = Digest(path, edits)
    try:
        yield digest
    finally:
        digest.wait()
