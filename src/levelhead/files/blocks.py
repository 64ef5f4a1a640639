"""Bytes that are read, or computed, only while they are written: block by block, however many they are."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import LevelheadError

BLOCK_BYTES = 1 << 22  # bytes held at a time, about
LARGE = 1 << 26  # from so many bytes on, a part of a file is not held in memory

EditData = Any  # bytes, or a FileRange


@dataclass(frozen=True)
class Edit:
    """Bytes `offset` to `offset + length` of a file become `data`."""

    offset: int
    length: int
    data: EditData  # bytes, or what stands for many


@dataclass(frozen=True, eq=False)
class FileRange:
    """Bytes `offset` to `offset + length` of a file, which stays as it is until they are used.

    >>> len(FileRange(Path(__file__), 3, 5)), b"".join(FileRange(Path(__file__), 3, 5).blocks())
    (5, b'Bytes')
    """

    path: Path
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes, block by block."""
        yield from self.read(BLOCK_BYTES)

    def read(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of the file, so many at a time."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            left = self.length
            while left:
                block = file.read(min(left, size))
                if len(block) != min(left, size):
                    raise LevelheadError(f"{self.path}: became shorter while it was read; nothing was written")
                left -= len(block)
                yield block


def blocks_of(data: EditData) -> Iterator[bytes]:
    """Yield bytes, or what a FileRange stands for, block by block."""
    if isinstance(data, FileRange):
        yield from data.blocks()
    else:
        yield data
