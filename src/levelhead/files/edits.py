"""A changed file as the old one with a few byte ranges replaced: streamed, written all or nothing, and reversible.

Every file format we write comes down to this. What is not in an edit is copied by the kernel, byte for byte.
The edits turned around are all that is needed to get the old file back. A written file can be read only by those who
could read the file it was made from.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from ..core.atomic import named_errors, permissions, scratch
from ..core.errors import Advice, LevelheadError
from ..show.progress import ByteProgress
from .blocks import LARGE, Edit, FileRange, blocks_of
from .digest import Digest, digest_meanwhile

CHUNK = 1 << 24
UNKNOWN_SHA256 = "0" * 64  # stands for a digest that is still being computed: all have this length


class OutputExists(LevelheadError, FileExistsError):
    """A file that would be overwritten."""


def rewrite(
    source: Path, out: Path, edits: Callable[[str], list[Edit]], progress: ByteProgress | None = None
) -> tuple[str, tuple[Edit, ...]]:
    """Write source with its edits to out, another file; return source's sha256, and the edits that turn out into it.

    `edits` gives them from the source's sha256. Offsets and lengths may not depend on it: the bytes between them are
    copied while the digest is computed, and the edits are filled in when it is known.
    """
    layout = sorted(edits(UNKNOWN_SHA256), key=lambda edit: edit.offset)
    with digest_meanwhile(source) as digest, source.open("rb") as read, out.open("wb") as write:
        _copy_between(read, write, layout, source.stat().st_size, progress)
        _begin_writing(write, digest)
        final = sorted(edits(digest()), key=lambda edit: edit.offset)
        shift, back = 0, []
        for edit, planned in zip(final, layout, strict=True):
            assert (edit.offset, len(edit.data)) == (planned.offset, len(planned.data)), "edits moved"
            write.seek(edit.offset + shift)
            write.writelines(blocks_of(edit.data))
            read.seek(edit.offset)
            old = read.read(edit.length) if edit.length < LARGE else FileRange(source, edit.offset, edit.length)
            back.append(Edit(edit.offset + shift, len(edit.data), old))
            shift += len(edit.data) - edit.length
    out.chmod(permissions(source))
    return digest(), tuple(back)


def restore(source: Path, out: Path, edits: Sequence[Edit], progress: ByteProgress | None = None) -> str:
    """Write source with its edits to out, another file; return the sha256 that this gives.

    It is computed from the source and the edits while the bytes between these are copied.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     source, out = Path(folder, "a"), Path(folder, "b")
    ...     _ = source.write_bytes(b"aXXc")
    ...     digest = restore(source, out, [Edit(1, 2, b"b")])
    ...     out.read_bytes(), digest[:8]
    (b'abc', 'ba7816bf')
    """
    ordered = sorted(edits, key=lambda edit: edit.offset)
    with digest_meanwhile(source, ordered) as digest, source.open("rb") as read, out.open("wb") as write:
        _copy_between(read, write, ordered, source.stat().st_size, progress)
        _begin_writing(write, digest)
        shift = 0
        for edit in ordered:
            write.seek(edit.offset + shift)
            write.writelines(blocks_of(edit.data))
            shift += len(edit.data) - edit.length
    out.chmod(permissions(source))
    return digest()


def _copy_between(
    read: BinaryIO, write: BinaryIO, edits: Sequence[Edit], size: int, progress: ByteProgress | None
) -> None:
    """Copy what lies between edits, which are in order, to where it will lie after them."""
    at, shift = 0, 0
    for edit in [*edits, Edit(size, 0, b"")]:
        assert at <= edit.offset, "edits overlap"
        _copy_range(read, write, at, at + shift, edit.offset - at, progress)
        at, shift = edit.offset + edit.length, shift + len(edit.data) - edit.length


def _begin_writing(write: BinaryIO, digest: Digest) -> None:
    """Let the disk write while the digest is computed, if that is still so."""
    if digest.running and hasattr(os, "posix_fadvise"):
        write.flush()
        os.posix_fadvise(write.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copy(source: Path, out: Path, progress: ByteProgress | None = None) -> None:
    """Copy a file and its permissions."""
    with source.open("rb") as read, out.open("wb") as write:
        _copy_range(read, write, 0, 0, source.stat().st_size, progress)
    out.chmod(permissions(source))


def _copy_range(source: BinaryIO, out: BinaryIO, at: int, to: int, length: int, progress: ByteProgress | None) -> None:
    """Copy bytes at .. at + length of one open file to another, inside the kernel where it can."""
    inside = hasattr(os, "copy_file_range")
    while length:
        if inside:
            try:
                done = os.copy_file_range(source.fileno(), out.fileno(), min(length, CHUNK), at, to)
            except OSError:  # this file system cannot: read and write instead
                inside = False
                continue
        else:
            source.seek(at)
            out.seek(to)
            done = out.write(source.read(min(length, 1 << 20)))
        if not done:
            raise LevelheadError("the input became shorter while it was read; nothing was written")
        at, to, length = at + done, to + done, length - done
        if progress:
            progress(done)


@contextmanager
def staged(out: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden folder that stands for out's own: what is written into it appears there when the block ends well.

    Every file is whole before the first appears, and `out` appears last. An error or Ctrl-C before that leaves nothing
    behind. Files that exist are replaced only by `force`, after their successors were synced to disk. Neither a file
    that is replaced nor a new folder becomes more open than it was.
    """
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out.parent}: no such folder; expected one to write {out.name} into")
    _check_free(out, force)
    with named_errors(out), scratch(out, folder=True) as stage:
        yield stage
        moves = [(path, out.parent / path.relative_to(stage)) for path in sorted(stage.rglob("*")) if path.is_file()]
        for path, target in moves:
            _check_free(target, force)
            if target.is_dir():
                raise LevelheadError(f"{target}: a folder; expected the name of a file to write")
            if target.parent.is_file():
                raise LevelheadError(f"{target.parent}: a file; expected the name of a folder to write")
            if target.exists():
                writable = os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
                with path.open("rb+" if writable else "rb") as file:
                    os.fsync(file.fileno())
                path.chmod(permissions(path, target))
        _move_all(sorted(moves, key=lambda move: _stands_for_all(move[1], out)), stage)


def _stands_for_all(target: Path, out: Path) -> bool:
    return target == out or target.name.endswith(".index.json")


def _move_all(moves: list[tuple[Path, Path]], stage: Path) -> None:
    """Move every file to its target; after an error, put back what was there."""
    with ExitStack() as undo:
        for path, target in moves:
            if not target.parent.is_dir():
                target.parent.mkdir()
                undo.callback(target.parent.rmdir)
                target.parent.chmod(permissions(path.parent))
            kept = stage / os.urandom(8).hex()
            if target.exists():
                try:
                    os.link(target, kept)
                    undo.callback(os.replace, kept, target)
                except OSError:  # a file system without links: the old file is not kept
                    pass
            else:
                undo.callback(target.unlink, missing_ok=True)
            os.replace(path, target)
        undo.pop_all()


def _check_free(target: Path, force: bool) -> None:
    if os.path.lexists(target) and not force:
        raise OutputExists(f"{target} exists", advice=Advice("force", None, "to replace it"))


def make_folder(folder: Path, like: Path) -> None:
    """Make a folder with the permissions of another; its owner may write to it."""
    folder.mkdir(exist_ok=True)
    folder.chmod(permissions(like) | 0o700)
