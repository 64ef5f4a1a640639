"""What is kept for an exact undo: the old bytes of what an adjustment changed, in `OUT.original`.

The file is a line of JSON and the old bytes one after another:

    {"levelhead": "original", "files": {written file: {
        "name", "sha256", "edits": [[offset, length, size], ...]}}}

Bytes `offset` to `offset + length` of the written file become the next `size` of the old bytes. So
the file is about as large as the head, not as the model. `save_originals` writes it,
`load_originals` reads it, and undo.py applies it.

It is read as any file of somebody else's: it may be damaged, or made to point anywhere. Every
number is checked before it is used, and no name in it may lead to another folder.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..support.errors import LevelheadError
from ..support.regular_file import check_regular_file
from .edits import Edit, held

LARGEST = 1 << 62  # more than any file has bytes, and sums of two fit 64 bits


class Original(NamedTuple):
    """The way back from a written file: what it was called, what it was, and how to get there."""

    name: str  # of the old file
    sha256: str  # of the old file
    edits: tuple[Edit, ...]  # that turn the written file into it


def save_originals(path: Path, originals: Mapping[str, Original], bits: int = 0o600) -> None:
    """Write what is kept for an undo.

    Args:
        path: where to write it.
        originals: {written file's name: its original}. Old bytes may be `FileRange`s of the input,
            which are copied here block by block.
        bits: the permissions of the file. It holds some of the old files' numbers, and should be no
            more open than they are.
    """
    # The line of JSON first, then the old bytes in the same order.
    files = {}
    for name, original in originals.items():
        edits = [[edit.offset, edit.length, len(edit.data)] for edit in original.edits]
        files[name] = {"name": original.name, "sha256": original.sha256, "edits": edits}
    with path.open("wb") as file:
        file.write(json.dumps({"levelhead": "original", "files": files}).encode() + b"\n")
        for original in originals.values():
            for edit in original.edits:
                file.writelines(edit.blocks())
    path.chmod(bits)


def load_originals(path: Path) -> dict[str, Original]:
    """Read what `save_originals` wrote: {written file's name: its original}.

    Large runs of old bytes are not read, but stand as ranges of `path`, which must stay until they
    are used.

    Raises:
        LevelheadError: the file is another, or damaged; the message says how to undo without it.
        FileNotFoundError: there is none.
    """
    check_regular_file(path, "what was kept for an undo")
    try:
        with path.open("rb") as file:
            facts = json.loads(file.readline())
            if facts["levelhead"] != "original":
                raise LevelheadError("another kind of file")
            originals = {}
            for name, entry in facts["files"].items():
                originals[name] = _original(file, path, entry)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"not a file that `levelhead adjust` kept ({error})"
        raise LevelheadError(
            f"{path}: {reason}; move it away to undo by the recorded numbers instead"
        ) from None
    return originals


def _original(file: BinaryIO, path: Path, entry: dict) -> Original:
    """Return one entry, whose old bytes begin where the file is open; leave it open where they end.

    Args:
        file, path: what was kept, open, and its path.
        entry: of the line of JSON, as somebody may have written it: a missing key, or a value of
            another type, raises, and `load_originals` says in words what that means.
    """
    at = file.tell()
    _check_edits(entry["edits"], path.stat().st_size)
    edits = []
    # Old bytes follow one another in the order of the edits.
    for offset, length, size in entry["edits"]:
        edits.append(Edit(offset, length, held(file, path, at, size)))
        at += size
    # The last of the old bytes may not be there any more.
    if at > path.stat().st_size:
        raise LevelheadError("cut short")
    file.seek(at)
    if not isinstance(entry["sha256"], str) or Path(entry["name"]).name != entry["name"]:
        raise LevelheadError(
            f"expected the name of a file in the same folder, got {entry['name']!r}"
        )
    return Original(entry["name"], entry["sha256"], tuple(edits))


def _check_edits(edits: list[list[int]], most: int) -> None:
    """Check that edits are whole numbers, do not overlap, and take no more bytes than `most` each.

    Sorted, each must begin where the one before it ends, or later. A bool is an int in Python and
    `true` in JSON, so that the type is asked for, and not `isinstance`.
    """
    end = 0  # of the edit before
    for offset, length, size in sorted(edits):
        numbers = all(type(n) is int and n < LARGEST for n in (offset, length, size))
        if not numbers or offset < end or length < 0 or not 0 <= size <= most:
            raise LevelheadError(f"invalid edit {[offset, length, size]}")
        end = offset + length
