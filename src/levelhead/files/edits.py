"""A changed file as the old one with a few byte ranges replaced: streamed, written all or nothing, and reversible.

Every file format we write comes down to this. What is not in an edit is copied by the kernel, byte for byte; turned
around, the edits are all that is needed to get the old file back. Nobody may read what is written who may not read
what it was made of.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..core.atomic import permissions
from ..core.errors import LevelheadError
from ..show.progress import ByteProgress

CHUNK = 1 << 24
# Linux maps all pages of a chunk at once, if asked to; elsewhere they come one by one.
MAPPED: dict[str, int] = (
    {"flags": mmap.MAP_SHARED | mmap.MAP_POPULATE, "prot": mmap.PROT_READ}
    if hasattr(mmap, "MAP_POPULATE")
    else {"access": mmap.ACCESS_READ}
)
UNKNOWN = "0" * 64  # stands for a sha256 that is still being computed: every digest has this length


@dataclass(frozen=True)
class Edit:
    """Bytes `offset` to `offset + length` of a file become `data`."""

    offset: int
    length: int
    data: bytes


@dataclass(frozen=True)
class Original:
    """What turns a written file back into the one it came from.

    Args:
        name: the name the old file had.
        sha256: of the old file.
        edits: on the written file.
    """

    name: str
    sha256: str
    edits: tuple[Edit, ...]


def sha256(path: Path) -> str:
    """Of a whole file, 16 MB of it mapped at a time. Other threads run meanwhile."""
    digest, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file:
        for at in range(0, size, CHUNK):
            with mmap.mmap(file.fileno(), min(CHUNK, size - at), offset=at, **MAPPED) as part:
                digest.update(part)
    return digest.hexdigest()


def rewrite(source: Path, out: Path, edits: Callable[[str], list[Edit]], progress: ByteProgress | None = None) -> Original:
    """Write source with its edits to out; return the way back.

    Args:
        edits: from the source's sha256 to the edits, whose places and lengths may not depend on it: the bytes between
            them are copied while the digest is computed, and the edits are filled in when it is known.
        progress: called with the number of bytes copied, again and again.
    """
    from concurrent.futures import ThreadPoolExecutor  # brings logging: not for those who only read

    layout = sorted(edits(UNKNOWN), key=lambda edit: edit.offset)
    with ThreadPoolExecutor(1) as pool, source.open("rb") as read, out.open("wb") as write:
        digest = pool.submit(sha256, source)
        at, shift = 0, 0
        for edit in [*layout, Edit(source.stat().st_size, 0, b"")]:
            assert at <= edit.offset, "edits overlap"
            _copy(read, write, at, at + shift, edit.offset - at, progress)
            at, shift = edit.offset + edit.length, shift + len(edit.data) - edit.length
        final = sorted(edits(digest.result()), key=lambda edit: edit.offset)
        shift, back = 0, []
        for edit, planned in zip(final, layout, strict=True):
            assert (edit.offset, len(edit.data)) == (planned.offset, len(planned.data)), "edits moved"
            write.seek(edit.offset + shift)
            write.write(edit.data)
            read.seek(edit.offset)
            back.append(Edit(edit.offset + shift, len(edit.data), read.read(edit.length)))
            shift += len(edit.data) - edit.length
    out.chmod(permissions(source))
    return Original(source.name, digest.result(), tuple(back))


def copy(source: Path, out: Path, progress: ByteProgress | None = None) -> None:
    """A plain copy."""
    with source.open("rb") as read, out.open("wb") as write:
        _copy(read, write, 0, 0, source.stat().st_size, progress)
    out.chmod(permissions(source))


def _copy(source: BinaryIO, out: BinaryIO, at: int, to: int, length: int, progress: ByteProgress | None) -> None:
    """Bytes at .. at + length of one open file, to a place in another; inside the kernel where it can."""
    inside = hasattr(os, "copy_file_range")
    while length:
        size = min(length, CHUNK)
        if inside:
            try:
                done = os.copy_file_range(source.fileno(), out.fileno(), size, at, to)
            except OSError:  # not on this file system: through our own hands instead
                inside = False
                continue
        else:
            source.seek(at)
            out.seek(to)
            done = out.write(source.read(min(size, 1 << 20)))
        if not done:
            raise LevelheadError("the input became shorter while it was read; nothing was written")
        at, to, length = at + done, to + done, length - done
        if progress:
            progress(done)


@contextmanager
def staged(out: Path, *, force: bool) -> Iterator[Path]:
    """A hidden folder that stands for out's own: what is written into it appears there when the block ends well.

    Every file is whole before the first appears; an error or Ctrl-C before that leaves nothing behind. Files that exist
    are replaced only by `force`, their successors synced to disk first: nothing old is lost for what is not yet there.
    A file that is replaced does not become more open, nor does a new folder that was made in the stage.
    """
    if not out.parent.is_dir():
        raise LevelheadError(f"{out.parent}: no such folder to write {out.name} into")
    _check_free(out, force)
    from tempfile import mkdtemp  # a name that no killed run of the same process number left behind

    try:
        stage = Path(mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent))  # which nobody else may enter
    except OSError as error:  # of a name that nobody gave
        raise type(error)(error.errno, error.strerror, str(out)) from None
    try:
        yield stage
        moves = [(path, out.parent / path.relative_to(stage)) for path in sorted(stage.rglob("*")) if path.is_file()]
        for path, target in moves:
            _check_free(target, force)
            if target.is_dir():
                raise LevelheadError(f"{target}: a folder; expected the name of a file to write")
            if target.parent.is_file():
                raise LevelheadError(f"{target.parent}: a file; expected the name of a folder to write")
            if target.exists():
                _sync(path)
                path.chmod(permissions(path, target))
        for path, target in moves:
            if not target.parent.is_dir():
                target.parent.mkdir()
                target.parent.chmod(permissions(path.parent))
            os.replace(path, target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _check_free(target: Path, force: bool) -> None:
    if os.path.lexists(target) and not force:
        raise LevelheadError(f"{target} exists; give another name, or --force to replace it")


def make_folder(folder: Path, like: Path) -> None:
    """A folder that others may enter only if they may enter the one it is like; its owner may write to it."""
    folder.mkdir(exist_ok=True)
    folder.chmod(permissions(like) | 0o700)


def _sync(path: Path) -> None:
    writable = os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    with path.open("rb+" if writable else "rb") as file:
        os.fsync(file.fileno())


def save_originals(path: Path, originals: Mapping[str, Original], bits: int = 0o600) -> None:
    """Keep {written file's name: its way back} in one file: a line of JSON, then the old bytes one after another.

    Args:
        bits: the file's permissions: it holds some of the old files' numbers.
    """
    facts = {
        "levelhead": "original",
        "files": {
            name: {"name": o.name, "sha256": o.sha256, "edits": [[e.offset, e.length, len(e.data)] for e in o.edits]}
            for name, o in originals.items()
        },
    }
    with path.open("wb") as file:
        file.write(json.dumps(facts).encode() + b"\n")
        for original in originals.values():
            for edit in original.edits:
                file.write(edit.data)
    path.chmod(bits)


def load_originals(path: Path) -> dict[str, Original]:
    """Read what `save_originals` wrote."""
    try:
        with path.open("rb") as file:
            facts = json.loads(file.readline())
            if facts["levelhead"] != "original":
                raise LevelheadError("another kind of file")
            found = {
                name: Original(
                    _plain(one["name"]),
                    one["sha256"],
                    tuple(Edit(at, size, _exactly(file.read(n), n)) for at, size, n in _apart(one["edits"])),
                )
                for name, one in facts["files"].items()
            }
    except (ValueError, KeyError, TypeError) as error:
        raise LevelheadError(
            f"{path}: not a file that `levelhead rescale` kept ({error}); move it away to undo by division instead"
        ) from None
    return found


def _apart(edits: list[list[int]]) -> list[list[int]]:
    """The same edits, each [offset, length, length of its data], if no two overlap."""
    end = 0
    for at, length, size in sorted(edits):
        if not all(isinstance(n, int) for n in (at, length, size)) or at < end or length < 0 or size < 0:
            raise LevelheadError(f"its edit {[at, length, size]} cannot be")
        end = at + length
    return edits


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise LevelheadError("it is cut short")
    return data


def _plain(name: str) -> str:
    if Path(name).name != name:
        raise LevelheadError(f"{name!r} is not the name of a file in the same folder")
    return name
