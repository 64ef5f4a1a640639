"""Files that are there whole, or not at all: what stops a program halfway leaves the old one as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its place at `path` when the block ends well: on the disk, in one step."""
    path = Path(path)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with scratch.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def write(path: str | Path, content: str | bytes) -> None:
    """Write a whole file; text as UTF-8."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
