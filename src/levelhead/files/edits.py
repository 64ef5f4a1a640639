"""A changed file as the old one with some byte ranges replaced: streamed, with its sha256 meanwhile, and reversible."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import BinaryIO, NamedTuple

from ..support.atomic import OutputExists, link_new, named_errors, permissions, scratch
from ..support.errors import Advice, LevelheadError
from ..support.progress import ByteProgress
from ..support.regular_file import check_regular_file

# Bytes at a time: each block takes the interpreter's lock twice, which others may hold.
BLOCK_BYTES = 1 << 22
LARGE = 1 << 26  # from so many bytes on, a part of a file is not held in memory
LARGE_INPUT = 1 << 24  # bytes, from which on a thread is worth its start
CHUNK = 1 << 24
UNKNOWN_SHA256 = "0" * 64  # stands for a digest that is still being computed: all have this length


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
        # Read, not mapped: a mapped file that becomes shorter kills the process.
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for done in range(0, self.length, size):
                wanted = min(size, self.length - done)
                if len(block := file.read(wanted)) != wanted:
                    raise LevelheadError(
                        f"{self.path}: became shorter while it was read; nothing was written"
                    )
                yield block


@dataclass(frozen=True)
class Edit:
    """Bytes `offset` to `offset + length` of a file become `data`."""

    offset: int
    length: int
    data: bytes | FileRange

    def blocks(self) -> Iterator[bytes]:
        """Return the new bytes, block by block."""
        if isinstance(self.data, FileRange):
            return self.data.blocks()
        return iter((self.data,))


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
        self.path = path
        self.edits = tuple(edits)
        self.stamp = check_regular_file(path)
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


def rewrite(
    source: Path,
    out: Path,
    edits: Callable[[str], list[Edit]],
    progress: ByteProgress | None = None,
) -> tuple[str, tuple[Edit, ...]]:
    """Write source with its edits to out, another file; return source's sha256, and the edits that turn out into it."""
    # `edits` gives them from the sha256. Their offsets and lengths may not depend on it: the bytes between are copied
    # while it is computed, and the edits are filled in when it is known.
    layout = sorted(edits(UNKNOWN_SHA256), key=lambda edit: edit.offset)
    with digest_meanwhile(source) as digest, source.open("rb") as read, out.open("wb") as write:
        _copy_between(read, write, layout, progress, digest)
        final = sorted(edits(digest()), key=lambda edit: edit.offset)
        sizes = [[(edit.offset, len(edit.data)) for edit in each] for each in (final, layout)]
        assert sizes[0] == sizes[1], "edits moved"
        places = zip(final, _write_edits(write, final), strict=True)
        back = tuple(
            Edit(at, len(edit.data), _held(read, source, edit.offset, edit.length))
            for edit, at in places
        )
    out.chmod(permissions(source))
    return digest(), back


def restore(
    source: Path, out: Path, edits: Sequence[Edit], progress: ByteProgress | None = None
) -> str:
    """Write source with its edits to out, another file; return the sha256 that this gives, computed meanwhile."""
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
    """Write the data of edits, which are in order; return where in the new file each lies."""
    shift, places = 0, []
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
    """Copy what lies between edits, which are in order, to where it will lie after them."""
    # Whether the kernel can copy from file to file.
    at = 0
    shift = 0
    inside = hasattr(os, "copy_file_range")
    for edit in [*edits, Edit(os.fstat(read.fileno()).st_size, 0, b"")]:
        assert at <= edit.offset, "edits overlap"
        while at < edit.offset:
            length = edit.offset - at
            if inside:
                try:
                    done = os.copy_file_range(
                        read.fileno(), write.fileno(), min(length, CHUNK), at, at + shift
                    )
                except OSError:  # this file system cannot: read and write instead
                    inside = False
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
        shift = shift + len(edit.data) - edit.length
    # Let the disk write meanwhile.
    if digest is not None and digest.thread.is_alive() and hasattr(os, "posix_fadvise"):
        write.flush()
        os.posix_fadvise(write.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copy(source: Path, out: Path, progress: ByteProgress | None = None) -> None:
    """Copy a file and its permissions."""
    with source.open("rb") as read, out.open("wb") as write:
        _copy_between(read, write, (), progress)
    out.chmod(permissions(source))


@contextmanager
def staged(out: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden folder that stands for out's own: what is written into it appears there after the block."""
    # Every file is whole before the first appears, and `out` appears last. An error or Ctrl-C before that leaves
    # nothing behind. Files that exist are replaced only by `force`, after their successors were synced to disk. Neither
    # a file that is replaced nor a new folder becomes more open than it was.
    if not out.parent.is_dir():
        raise FileNotFoundError(
            f"{out.parent}: no such folder; expected one to write {out.name} into"
        )
    _check_free(out, force)
    with named_errors(out), scratch(out, folder=True) as stage:
        yield stage
        moves = [
            (path, out.parent / path.relative_to(stage))
            for path in sorted(stage.rglob("*"))
            if path.is_file()
        ]
        for path, target in moves:
            _check_free(target, force)
            if target.is_dir():
                raise LevelheadError(f"{target}: a folder; expected the name of a file to write")
            if target.parent.is_file():
                raise LevelheadError(
                    f"{target.parent}: a file; expected the name of a folder to write"
                )
            if target.exists():
                writable = os.access(
                    path, os.W_OK, effective_ids=os.access in os.supports_effective_ids
                )
                with path.open("rb+" if writable else "rb") as file:
                    os.fsync(file.fileno())
                path.chmod(permissions(path, target))
        _move_all(
            sorted(moves, key=lambda move: move[1] == out or move[1].name.endswith(".index.json")),
            stage,
            force,
        )


def _move_all(moves: list[tuple[Path, Path]], stage: Path, force: bool) -> None:
    """Move every file to its target; after an error, put back what was there."""
    with ExitStack() as undo:
        for path, target in moves:
            if not target.parent.is_dir():
                target.parent.mkdir()
                undo.callback(target.parent.rmdir)
                target.parent.chmod(permissions(path.parent))
            kept = stage / os.urandom(8).hex()
            if not force and link_new(path, target):
                undo.callback(target.unlink, missing_ok=True)
                continue
            if target.exists():
                with suppress(OSError):  # a file system without links: the old file is not kept
                    os.link(target, kept)
                    undo.callback(os.replace, kept, target)
            else:
                undo.callback(target.unlink, missing_ok=True)
            os.replace(path, target)
        undo.pop_all()


def _check_free(target: Path, force: bool) -> None:
    if os.path.lexists(target) and not force:
        raise OutputExists(f"{target} exists", advice=Advice("force", None, "to replace it"))


class Original(NamedTuple):
    """The way back from a written file: the old file's name and sha256, and the edits on the written one."""

    name: str
    sha256: str
    edits: tuple[Edit, ...]


def save_originals(path: Path, originals: Mapping[str, Original], bits: int = 0o600) -> None:
    """Write {written file's name: its original} to one file: a line of JSON, then the old bytes one after another."""
    files = {}
    for name, one in originals.items():
        edits = [[edit.offset, edit.length, len(edit.data)] for edit in one.edits]
        files[name] = {"name": one.name, "sha256": one.sha256, "edits": edits}
    with path.open("wb") as file:
        file.write(json.dumps({"levelhead": "original", "files": files}).encode() + b"\n")
        file.writelines(
            block for one in originals.values() for edit in one.edits for block in edit.blocks()
        )
    path.chmod(bits)  # it holds some of the old files' numbers


def load_originals(path: Path) -> dict[str, Original]:
    """Read what `save_originals` wrote."""
    check_regular_file(path, "what was kept for an undo")
    try:
        with path.open("rb") as file:
            facts = json.loads(file.readline())
            at = file.tell()
            if facts["levelhead"] != "original":
                raise LevelheadError("another kind of file")
            found = {}
            for name, one in facts["files"].items():
                end = 0
                for offset, length, size in sorted(one["edits"]):  # no two may overlap
                    numbers = all(type(n) is int and n < 1 << 62 for n in (offset, length, size))
                    if (
                        not numbers
                        or offset < end
                        or length < 0
                        or not 0 <= size <= path.stat().st_size
                    ):
                        raise LevelheadError(f"invalid edit {[offset, length, size]}")
                    end = offset + length
                edits = []
                for offset, length, size in one["edits"]:
                    edits.append(Edit(offset, length, _held(file, path, at, size)))
                    at += size
                if at > path.stat().st_size:
                    raise LevelheadError("cut short")
                if not isinstance(one["sha256"], str) or Path(one["name"]).name != one["name"]:
                    raise LevelheadError(
                        f"expected the name of a file in the same folder, got {one['name']!r}"
                    )
                found[name] = Original(one["name"], one["sha256"], tuple(edits))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"not a file that `levelhead adjust` kept ({error})"
        raise LevelheadError(
            f"{path}: {reason}; move it away to undo by the recorded numbers instead"
        ) from None
    return found


def _held(file: BinaryIO, path: Path, at: int, size: int) -> bytes | FileRange:
    """Return bytes of an open file or, if they are many, what stands for them."""
    file.seek(at)
    if size < LARGE:
        return file.read(size)
    return FileRange(path, at, size)
