"""Take an adjustment of a model's file back: exactly from the bytes that were kept, or by dividing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.adjust import scale
from ..core.errors import LevelheadError
from ..core.head import Head
from ..show.progress import ByteProgress
from . import safetensors
from .edits import Original, copy, load_originals, make_folder, rewrite, sha256, staged
from .format import Note, check_apart, layout
from .rescale import format_of, named, target_of
from .spans import load


@dataclass(frozen=True)
class Undone:
    """What `undo_file` did; `exact` if the very file is back, else its head is right to rounding."""

    path: str
    out: str
    exact: bool
    sha256: Mapping[str, str]

    def json(self) -> dict[str, Any]:
        return asdict(self)


def undo_file(path: str | Path, out: str | Path, *, force: bool = False, progress: ByteProgress | None = None) -> Undone:
    """Take an adjustment back.

    With `path.original` beside it, out is the very file that was adjusted, sha256 for sha256. Without, the head is
    divided by the factors recorded in the file: exact only to rounding.
    """
    path, one = Path(path), format_of(path)
    folder = one is safetensors.FORMAT and safetensors.is_folder(path)
    root = named(path.parent if folder and not path.is_dir() else path)
    out = target_of(path, Path(out), folder)
    kept = root.with_name(f"{root.name}.original")
    if kept.is_file():
        back = _put_back(one.files(path), out, load_originals(kept), kept, folder, force, progress)
        return Undone(str(path), str(out), True, back)
    note = one.note(path)
    if note is None:
        raise LevelheadError(f"{path}: nothing to undo: it has no record of an adjustment, and no {kept.name} beside it")
    found = one.find(path, named=",".join(note["head"]))
    heads = [_divide(load(place, found.names), note) for place in found.places]
    one.save(found, heads, out, note=note.get("before", {}), keep=False, force=force, progress=progress)
    return Undone(str(path), str(out), False, {})


def _put_back(
    files: Sequence[Path],
    out: Path,
    originals: Mapping[str, Original],
    kept: Path,
    folder: bool,
    force: bool,
    progress: ByteProgress | None,
) -> dict[str, str]:
    """Apply the kept edits to a model's files, and check that the result is the file that was."""
    known = {file: originals[file.name] for file in files if file.name in originals}
    if len(files) == len(originals) == 1:  # whatever the file is called by now
        known = {files[0]: next(iter(originals.values()))}
    if not originals or len(known) != len(originals):
        raise LevelheadError(f"{kept} belongs to {', '.join(originals) or 'no file'}, not to {files[0]}")
    names = layout(files, out, changed=set(known), folder=folder)
    for file, one in known.items():
        if folder or file != files[0]:
            names[file] = str(Path(names[file]).with_name(one.name))
    check_apart(files, [out, *(out.parent / name for name in names.values())])
    with staged(out, force=force) as stage:
        if folder:
            make_folder(stage / out.name, like=files[0].parent)
        for file, name in names.items():
            if file not in known:
                copy(file, stage / name, progress)
                continue
            edits = known[file].edits
            fits = all(edit.offset + edit.length <= file.stat().st_size for edit in edits)
            if fits:
                rewrite(file, stage / name, lambda _, edits=list(edits): edits, progress)
            if not fits or sha256(stage / name) != known[file].sha256:
                raise LevelheadError(f"{file} is not the file that {kept.name} was kept for: it was changed since; move "
                                 f"{kept.name} away to undo by division instead")
    return {names[file]: one.sha256 for file, one in known.items()}


def _divide(head: Head, note: Note) -> Head:
    by = np.array(note["factors"])
    if len(by) != head.classes:
        raise LevelheadError(f"the record has {len(by)} factors and the head {head.classes} classes; it is of another head")
    if note["rule"] == "shift":
        if head.bias is None:
            raise LevelheadError("the record is of a shift, and the head has no bias; it is of another head")
        return replace(head, bias=(head.bias - by).astype(head.bias.dtype))
    return scale(head, 1 / by, bias=note["bias"])
