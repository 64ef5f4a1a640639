"""Edits of a file, whose bytes are read or computed only while they are written, and the sha256 that they give."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from ..core.errors import LevelheadError
from ..core.regular_file import check_regular_file

BLOCK_BYTES = 1 << 22  # bytes at a time: each block takes the interpreter's lock twice, which others may hold
LARGE = 1 << 26  # from so many bytes on, a part of a file is not held in memory
LARGE_INPUT = 1 << 24  # bytes, from which on a thread is worth its start


@dataclass(frozen=True, eq=False)
class FileRange:
    """Bytes `offset` to `offset + length` of a file, which stays as it is until they are used."""

    path: Path
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes that are written, block by block."""
        yield from self.read(BLOCK_BYTES)

    def read(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of the file, so many at a time."""
        with self.path.open("rb") as file:  # read, not mapped: a mapped file that becomes shorter kills the process
            file.seek(self.offset)
            left = self.length
            while left:
                block = file.read(min(left, size))
                if len(block) != min(left, size):
                    raise LevelheadError(f"{self.path}: became shorter while it was read; nothing was written")
                left -= len(block)
                yield block


@dataclass(frozen=True)
class Edit:
    """Bytes `offset` to `offset + length` of a file become `data`."""

    offset: int
    length: int
    data: bytes | FileRange

    def blocks(self) -> Iterator[bytes]:
        """Return the new bytes, block by block."""
        return self.data.blocks() if isinstance(self.data, FileRange) else iter((self.data,))


def edited_blocks(path: Path, start: int, end: int, edits: Iterable[Edit]) -> Iterator[bytes]:
    """Yield bytes `start` to `end` of a file with edits in them, which are in order, block by block."""
    for edit in [*edits, Edit(end, 0, b"")]:
        yield from FileRange(path, start, edit.offset - start).blocks()
        yield from edit.blocks()
        start = edit.offset + edit.length


def file_sha256(path: Path, edits: Sequence[Edit] = ()) -> str:
    """Return the sha256 of a file with edits, which are in order. Other threads run meanwhile."""
    sha = hashlib.sha256()
    for block in edited_blocks(path, 0, path.stat().st_size, edits):
        sha.update(block)
    return sha.hexdigest()


class Digest:
    """The sha256 of a file with edits, in order; of a large file, a thread computes it from now on."""

    def __init__(self, path: Path, edits: Sequence[Edit] = ()) -> None:
        self.path, self.edits, self.stamp = path, tuple(edits), check_regular_file(path)
        self._found: str | None = None
        self.thread = Thread(target=self._compute, daemon=True)
        if self.stamp[2] >= LARGE_INPUT:
            self.thread.start()

    def __call__(self) -> str:
        """Return it, as soon as it is there."""
        self.wait()
        if self._found is None:  # not begun, or failed: then the error is raised here
            self._found = file_sha256(self.path, self.edits)
        return self._found

    def wait(self) -> None:
        """Wait until no thread computes it any more."""
        if self.thread.ident is not None:
            self.thread.join()

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
