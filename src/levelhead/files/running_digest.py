"""The sha256 of what is copied, computed by another thread from the very blocks that are written."""

import hashlib
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import BinaryIO

from ..core.errors import LevelheadError
from ..show.progress import ByteProgress

BLOCK = 1 << 22  # bytes: large enough that threads seldom wait for each other
_SMALL = 1 << 24  # up to here, a thread is not worth its start
_BLOCKS = 4


class RunningDigest:
    """The sha256 of the blocks that it is given, one after another. Use it as a context.

    Args:
        size: how many bytes will come, about.

    >>> with RunningDigest(3) as digest:
    ...     digest.add(b"abc")
    ...     digest.hexdigest()[:8]
    'ba7816bf'
    """

    def __init__(self, size: int) -> None:
        threaded = size >= _SMALL
        self._sha = hashlib.sha256()
        self._free: SimpleQueue[bytearray] = SimpleQueue()
        self._full: SimpleQueue[tuple[bytes | bytearray, int] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, daemon=True) if threaded else None
        for _ in range(_BLOCKS if threaded else 1):
            self._free.put(bytearray(BLOCK if threaded else min(BLOCK, max(1, size))))

    def __enter__(self) -> "RunningDigest":
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._finish()

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self._give(data, len(data))

    def copy(self, source: BinaryIO, out: BinaryIO, length: int, progress: ByteProgress | None = None) -> None:
        """Copy bytes from where one open file stands to where another does, and add them."""
        while length:
            block = self._free.get()
            view = memoryview(block)[: min(length, len(block))]
            done = source.readinto(view)  # type: ignore[attr-defined]
            if not done:
                raise LevelheadError("the input became shorter while it was read; nothing was written")
            self._give(block, done)  # it comes back only to this thread, which first writes it
            out.write(view[:done])
            length -= done
            if progress:
                progress(done)

    def hexdigest(self) -> str:
        """Return the digest of all that was added; nothing more can be."""
        self._finish()
        return self._sha.hexdigest()

    def _give(self, block: bytes | bytearray, size: int) -> None:
        if self._thread is not None:
            self._full.put((block, size))
        else:
            self._hash(block, size)

    def _hash(self, block: bytes | bytearray, size: int) -> None:
        self._sha.update(memoryview(block)[:size])
        if isinstance(block, bytearray):
            self._free.put(block)

    def _work(self) -> None:
        while (given := self._full.get()) is not None:
            self._hash(*given)

    def _finish(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._full.put(None)
            self._thread.join()
