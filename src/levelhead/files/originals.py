"""FILE.original: the bytes that turn a written file back into the one it came from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..core.errors import LevelheadError
from ..core.regular_file import check_regular_file
from .blocks import LARGE, EditData, FileRange, blocks_of
from .edits import Edit


@dataclass(frozen=True)
class Original:
    """The way back from a written file: the old file's name and sha256, and the edits on the written one."""

    name: str
    sha256: str
    edits: tuple[Edit, ...]


def save_originals(path: Path, originals: Mapping[str, Original], bits: int = 0o600) -> None:
    """Write {written file's name: its original} to one file: a line of JSON, then the old bytes one after another.

    `bits` are the file's permissions: it holds some of the old files' numbers.
    """
    files = {
        name: {
            "name": one.name,
            "sha256": one.sha256,
            "edits": [[edit.offset, edit.length, len(edit.data)] for edit in one.edits],
        }
        for name, one in originals.items()
    }
    with path.open("wb") as file:
        file.write(json.dumps({"levelhead": "original", "files": files}).encode() + b"\n")
        file.writelines(block for one in originals.values() for edit in one.edits for block in blocks_of(edit.data))
    path.chmod(bits)


def load_originals(path: Path) -> dict[str, Original]:
    """Read what `save_originals` wrote."""
    check_regular_file(path, "what was kept for an undo")
    try:
        with path.open("rb") as file:
            facts = json.loads(file.readline())
            if facts["levelhead"] != "original":
                raise LevelheadError("another kind of file")
            found = {}
            for name, one in facts["files"].items():
                _check_edits(one["edits"], path.stat().st_size)
                edits = [Edit(offset, length, _take(file, path, size)) for offset, length, size in one["edits"]]
                if any(len(edit.data) != size for edit, (*_, size) in zip(edits, one["edits"], strict=True)):
                    raise LevelheadError("cut short")
                if not isinstance(one["sha256"], str) or Path(one["name"]).name != one["name"]:
                    raise LevelheadError(f"expected the name of a file in the same folder, got {one['name']!r}")
                found[name] = Original(one["name"], one["sha256"], tuple(edits))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"not a file that `levelhead rescale` kept ({error})"
        raise LevelheadError(f"{path}: {reason}; move it away to undo by division instead") from None
    return found


def _take(file: BinaryIO, path: Path, size: int) -> EditData:
    """Return the next bytes of an open file or, if they are many, what stands for them."""
    if size < LARGE:
        return file.read(size)
    at = file.tell()
    kept = FileRange(path, at, min(size, path.stat().st_size - at))
    file.seek(at + len(kept))
    return kept


def _check_edits(edits: list[list[int]], largest: int) -> None:
    """Check edits, each [offset, length, length of its data, at most `largest`]: no two may overlap."""
    end = 0
    for offset, length, size in sorted(edits):
        numbers = all(type(n) is int and n < 1 << 62 for n in (offset, length, size))
        if not numbers or offset < end or length < 0 or not 0 <= size <= largest:
            raise LevelheadError(f"invalid edit {[offset, length, size]}")
        end = offset + length
