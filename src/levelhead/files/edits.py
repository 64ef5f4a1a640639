"""A changed file as the old one with some byte ranges replaced.

An adjustment changes some kilobytes of a file that may have gigabytes. So a change is a list of
`Edit`s, each "these bytes become those", and everything else is streamed from the old file to the
new one, by the kernel where it can. Nothing here knows what the bytes mean.

    rewrite: old file + edits -> new file, the sha256 of the old one, the edits that lead back
    restore: new file + those edits -> old file, and its sha256
    copy: a file without edits

Both directions need the sha256 of a whole file: the note in the new file names that of the old one,
and an undo is checked by it. It takes longer than the copy (docs/speed.md has both times), so that
a thread computes it (`Digest`) while the bytes between the edits are copied, and the edits, which
may contain it, are filled in last. The command line begins a digest even before it loads the rest
of the package (`begin_early`).

Edits are given in any order; whatever walks through a file sorts them by offset first. No two of
them may overlap. Their offsets count in the old file, never in the new one.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import BinaryIO

from ..support.atomic import permissions
from ..support.errors import LevelheadError
from ..support.progress import ByteProgress
from ..support.regular_file import check_regular_file

# Bytes at a time: each block takes the interpreter's lock twice, which others may hold.
BLOCK_BYTES = 1 << 22
LARGE = 1 << 26  # from so many bytes on, a part of a file is not held in memory
LARGE_INPUT = 1 << 24  # bytes, from which on a thread is worth its start
CHUNK = 1 << 24  # bytes that the kernel copies at a time, between two reports of progress
UNKNOWN_SHA256 = "0" * 64  # stands for a digest that is still being computed: all have this length


@dataclass(frozen=True, eq=False)
class FileRange:
    """Bytes `offset` to `offset + length` of a file, which stays as it is until they are used.

    It stands in an `Edit` where bytes are too many to be held: those that an adjustment replaces
    and an undo needs, or (large.py) those that it computes anew from the file, block by block.
    """

    path: Path
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes that are written, block by block.

        A subclass may yield others than the file has, as long as they are `length` bytes in all.
        """
        yield from self.read(BLOCK_BYTES)

    def read(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of the file, `size` at a time; the last block may be shorter.

        Raises:
            LevelheadError: the file ends before the range does. Somebody cut it since its length
                was looked at, and what was written of it so far must not be taken for whole.
        """
        # Read, not mapped: a mapped file that becomes shorter kills the process.
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for done in range(0, self.length, size):
                wanted = min(size, self.length - done)
                block = file.read(wanted)
                if len(block) != wanted:
                    raise LevelheadError(
                        f"{self.path}: became shorter while it was read; nothing was written"
                    )
                yield block


@dataclass(frozen=True)
class Edit:
    """Bytes `offset` to `offset + length` of a file become `data`, which may be longer or shorter.

    A length of 0 inserts, empty data deletes. Edits compare by value: `digest_meanwhile` tells by
    that whether a digest that was begun early is the one that is asked for.
    """

    offset: int
    length: int
    data: bytes | FileRange

    def blocks(self) -> Iterator[bytes]:
        """Return the new bytes, block by block."""
        if isinstance(self.data, FileRange):
            return self.data.blocks()
        return iter((self.data,))


def edited_blocks(path: Path, start: int, end: int, edits: Iterable[Edit]) -> Iterator[bytes]:
    """Yield bytes `start` to `end` of a file with edits in them, block by block.

    Args:
        path: the file, which is not changed.
        start, end: offsets in the file as it is.
        edits: in order, each within the range.
    """
    # What is behind the last edit is before an empty one at the end.
    for edit in [*edits, Edit(end, 0, b"")]:
        yield from FileRange(path, start, edit.offset - start).blocks()
        yield from edit.blocks()
        start = edit.offset + edit.length


def file_sha256(path: Path, edits: Sequence[Edit] = ()) -> str:
    """Return the sha256 of a file with edits in it, as hexadecimal digits; the file is not changed.

    hashlib gives the interpreter's lock back while it works on a block, so that other threads run
    meanwhile.

    Args:
        path: the file.
        edits: in order.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     old, new = Path(folder, "old"), Path(folder, "new")
    ...     _ = old.write_bytes(b"level head"), new.write_bytes(b"bevel head")
    ...     file_sha256(old, [Edit(0, 1, b"b")]) == file_sha256(new)
    True
    """
    sha = hashlib.sha256()
    for block in edited_blocks(path, 0, path.stat().st_size, edits):
        sha.update(block)
    return sha.hexdigest()


class Digest:
    """The sha256 of a file with edits; of a large file, a thread computes it from now on.

    Call it to have the digest: it waits for the thread or, of a small file, computes it there and
    then.

    Args:
        path: the file, which must stay as it is until the digest is there; `stamp` is what it was.
        edits: in order. The digest is that of the file that they give, which is nowhere yet.
    """

    def __init__(self, path: Path, edits: Sequence[Edit] = ()) -> None:
        self.path = path
        self.edits = tuple(edits)
        self.stamp = check_regular_file(path)
        self._found: str | None = None
        self.thread = Thread(target=self._compute, daemon=True)
        if self.stamp[2] >= LARGE_INPUT:
            self.thread.start()

    def __call__(self) -> str:
        """Return the digest, as soon as it is there.

        Raises:
            OSError: the file cannot be read.
            LevelheadError: it became shorter meanwhile.
        """
        self.wait()
        if self._found is None:  # not begun, or failed: then the error is raised here
            self._found = file_sha256(self.path, self.edits)
        return self._found

    def wait(self) -> None:
        """Wait until no thread computes it any more."""
        if self.thread.ident is not None:
            self.thread.join()

    def _compute(self) -> None:
        # An error in a thread would be lost: it comes again where the digest is asked for.
        with suppress(OSError, LevelheadError):
            self._found = file_sha256(self.path, self.edits)


_early: dict[str, Digest] = {}  # by the path that it is of


def begin_early(path: Path, edits: Sequence[Edit] = ()) -> None:
    """Begin the digest of a file that will be asked for; `digest_meanwhile` then waits for it.

    The command line calls it as soon as it knows the file, so that a large one is read while numpy
    and the rest are imported. Nothing is lost if nobody asks: the thread is a daemon.
    """
    _early[os.path.realpath(path)] = Digest(path, edits)


@contextmanager
def digest_meanwhile(path: Path, edits: Sequence[Edit] = ()) -> Iterator[Digest]:
    """Yield the digest of a file with edits, in order, which is computed during the block.

    At the end of the block its thread has ended as well, also after an error: none reads a file
    that the caller may then move or remove.
    """
    digest = _early.pop(os.path.realpath(path), None)
    # One that was begun early counts if it is of the same content: the file is the same by its
    # stamp, and so are the edits.
    if digest is None or digest.stamp != check_regular_file(path) or digest.edits != tuple(edits):
        digest = Digest(path, edits)
    try:
        yield digest
    finally:
        digest.wait()


def rewrite(
    source: Path,
    out: Path,
    edits: Callable[[str], list[Edit]],
    progress: ByteProgress | None = None,
) -> tuple[str, tuple[Edit, ...]]:
    """Write a file with edits to another.

    Args:
        source, out: the two files; `out` gets the permissions of `source`.
        edits: gives the edits from source's sha256. It is called twice, first with
            `UNKNOWN_SHA256`. Offsets and lengths may not depend on the digest: the bytes between
            are copied while it is computed, and the edits are filled in when it is known.
        progress: called with the bytes copied since the last call.

    Returns:
        source's sha256, and the edits that turn out into source.

    Raises:
        LevelheadError: source became shorter while it was read.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     old, new = Path(folder, "old"), Path(folder, "new")
    ...     _ = old.write_bytes(b"a level head")
    ...     _, back = rewrite(old, new, lambda sha256: [Edit(2, 5, b"cool")])
    ...     new.read_bytes(), back
    (b'a cool head', (Edit(offset=2, length=4, data=b'level'),))
    """
    # A digest of zeros is as long as the real one: it tells where everything will lie.
    layout = sorted(edits(UNKNOWN_SHA256), key=lambda edit: edit.offset)
    with digest_meanwhile(source) as digest, source.open("rb") as read, out.open("wb") as write:
        _copy_between(read, write, layout, progress, digest)
        final = sorted(edits(digest()), key=lambda edit: edit.offset)
        assert _sizes(final) == _sizes(layout), "edits moved"
        places = _write_edits(write, final)
        # The way back puts the old bytes to where the new ones are now.
        back = []
        for edit, at in zip(final, places, strict=True):
            old = held(read, source, edit.offset, edit.length)
            back.append(Edit(at, len(edit.data), old))
    out.chmod(permissions(source))
    return digest(), tuple(back)


def _sizes(edits: Sequence[Edit]) -> list[tuple[int, int]]:
    return [(edit.offset, len(edit.data)) for edit in edits]


def restore(
    source: Path, out: Path, edits: Sequence[Edit], progress: ByteProgress | None = None
) -> str:
    """Write source with edits to out, another file, which gets source's permissions.

    Args:
        source, out: the two files.
        edits: in any order; those that `rewrite` returned lead back to the file before it.
        progress: called with the bytes copied since the last call.

    Returns:
        The sha256 that this gives, computed from source and the edits while the bytes are copied,
        so that out need not be read again.
    """
    ordered = sorted(edits, key=lambda edit: edit.offset)
    with (
        digest_meanwhile(source, ordered) as digest,
        source.open("rb") as read,
        out.open("wb") as write,
    ):
        _copy_between(read, write, ordered, progress, digest)
        _write_edits(write, ordered)
    out.chmod(permissions(source))
    return digest()


def _write_edits(write: BinaryIO, edits: Sequence[Edit]) -> list[int]:
    """Write the data of edits, which are in order; return where in the new file each lies.

    The bytes between them are there already, or come later: each edit is written at its own place.
    """
    shift = 0  # by how many bytes what follows lies further back than in the old file
    places = []
    for edit in edits:
        places.append(write.seek(edit.offset + shift))
        write.writelines(edit.blocks())
        shift += len(edit.data) - edit.length
    return places


def _copy_between(
    read: BinaryIO,
    write: BinaryIO,
    edits: Sequence[Edit],
    progress: ByteProgress | None,
    digest: Digest | None = None,
) -> None:
    """Copy what lies between edits, which are in order, to where it will lie after them.

    Args:
        read, write: the old file and the new one.
        edits: their bytes in the new file stay empty: a hole, which `_write_edits` fills.
        progress: called with the bytes copied since the last call.
        digest: of the old file, if one is being computed.

    Raises:
        LevelheadError: the old file became shorter meanwhile.
    """
    at = 0  # in the old file
    shift = 0  # by how many bytes what is copied lies further back in the new one
    in_kernel = hasattr(os, "copy_file_range")  # whether the kernel can copy from file to file
    # What is behind the last edit is before an empty one at the end.
    for edit in [*edits, Edit(os.fstat(read.fileno()).st_size, 0, b"")]:
        assert at <= edit.offset, "edits overlap"
        while at < edit.offset:
            length = edit.offset - at
            if in_kernel:
                try:
                    # Without a detour through this process; on file systems that share blocks,
                    # without a copy at all. It may copy fewer bytes than asked for, and says how
                    # many.
                    done = os.copy_file_range(
                        read.fileno(), write.fileno(), min(length, CHUNK), at, at + shift
                    )
                except OSError:  # this file system cannot: read and write instead
                    in_kernel = False
                    continue
            else:
                read.seek(at)
                write.seek(at + shift)
                done = write.write(read.read(min(length, 1 << 20)))
            if not done:
                raise LevelheadError(
                    "the input became shorter while it was read; nothing was written"
                )
            at += done
            if progress:
                progress(done)
        at = edit.offset + edit.length
        shift += len(edit.data) - edit.length
    # While the digest is still being computed, the disk may begin to write: this advice starts
    # that, and nobody has to wait.
    if digest is not None and digest.thread.is_alive() and hasattr(os, "posix_fadvise"):
        write.flush()
        os.posix_fadvise(write.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copy(source: Path, out: Path, progress: ByteProgress | None = None) -> None:
    """Copy a file and its permissions, as `rewrite` does without any edit, and without a digest."""
    with source.open("rb") as read, out.open("wb") as write:
        _copy_between(read, write, (), progress)
    out.chmod(permissions(source))


def held(file: BinaryIO, path: Path, at: int, size: int) -> bytes | FileRange:
    """Return bytes of an open file or, from `LARGE` on, a `FileRange` that stands for them.

    Args:
        file, path: the open file and its path.
        at, size: where the bytes begin, and how many they are.
    """
    file.seek(at)
    if size < LARGE:
        return file.read(size)
    return FileRange(path, at, size)
