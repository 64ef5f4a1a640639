"""Take an adjustment of a model's file back: exactly from the bytes that were kept, or by the recorded numbers."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.adjustment import Adjustment
from ..core.head import Head
from ..heads.notes import Note
from ..support.errors import LevelheadError
from ..support.progress import ByteProgress
from ..support.regular_file import check_regular_file
from .edits import copy, file_sha256, load_originals, restore
from .format import Output, layout
from .formats import format_of, left_out_suffixes
from .locate import output_path, with_name
from .spans import load


@dataclass(frozen=True)
class UndoResult:
    """What `undo_file` did; `exact` if the file is back bit for bit, else its head is right up to rounding."""

    path: str
    out: str
    exact: bool
    sha256: Mapping[str, str]


def undo_file(
    path: str | Path, out: str | Path, *, force: bool = False, progress: ByteProgress | None = None
) -> UndoResult:
    """Take an adjustment of a model's file back.

    With `path.original` next to it, out is the file that was adjusted, sha256 for sha256. Without,
    the recorded offsets are subtracted and the head is divided by the recorded scales: exact only up
    to rounding.

    Args:
        path: what `adjust_file` wrote.
        out, force, progress: as in `adjust_file`.

    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.numpy import save_file
    >>> from levelhead.core.rules import Rescale
    >>> from levelhead.files.model import adjust_file
    >>> with TemporaryDirectory() as folder:
    ...     model, adjusted, back = (Path(folder, f"{name}.safetensors") for name in ("model", "adjusted", "back"))
    ...     save_file({"fc.weight": np.eye(2, dtype=np.float32)}, model)
    ...     _ = adjust_file(model, adjusted, Rescale(0.5), [100, 25])
    ...     undo_file(adjusted, back).exact, back.read_bytes() == model.read_bytes()
    (True, True)
    """
    path, one = Path(path), format_of(path)
    folder = one.is_folder(path)
    root = with_name(path.parent if folder and not path.is_dir() else path)
    out = output_path(path, Path(out), folder)
    to = Output(out, False, force, progress, left_out_suffixes())
    kept = root.with_name(f"{root.name}.original")
    if kept.is_file():
        return UndoResult(str(path), str(to.path), True, _restore(path, to, kept, folder))
    if (note := one.note(path)) is None:
        raise LevelheadError(
            f"{path}: nothing to undo; expected a record of an adjustment in it, or {kept.name}"
        )
    found = one.find(path, named=",".join(note["head"]))
    heads = [_take_back(path, load(layer, found.names), note) for layer in found.layers]
    one.save(found, heads, to, note.get("before", {}))
    return UndoResult(str(path), str(to.path), False, {})


def _restore(path: Path, to: Output, kept: Path, folder: bool) -> dict[str, str]:
    """Apply the kept edits to a model's files, and check that each result is the file that was adjusted."""
    files = format_of(path).files(path)
    originals = load_originals(kept)
    stamps = {file: check_regular_file(file) for file in files}
    known = {file: originals[file.name] for file in files if file.name in originals}
    if len(files) == len(originals) == 1:  # the file may have been renamed
        known = {files[0]: next(iter(originals.values()))}
    if not originals or len(known) != len(originals):
        raise LevelheadError(
            f"{kept} belongs to {', '.join(originals) or 'no file'}, not to {files[0]}"
        )
    names = layout(files, to.path, changed=set(known), folder=folder)
    out = to.path
    for file, original in known.items():
        if folder or file != files[0]:
            names[file] = str(Path(names[file]).with_name(original.name))
    for file, name in names.items():
        if (
            not folder
            and file != files[0]
            and (out.parent / name).exists()
            and (out.parent / name).samefile(file)
        ):
            problem = f"{out.parent / name} is of {files[0].name}, and {out.name} needs another file of that name"
            raise LevelheadError(f"{problem}; write to another folder")
    # Files that the model refers to and that are still there as they were stay.
    others = {}
    if not folder:
        others = {file: out.parent / names[file] for file in known if file != files[0]}
    there = [
        file
        for file, at in others.items()
        if at.is_file() and file_sha256(at) == known[file].sha256
    ]
    with to.staged(names, stamps, folder) as stage:
        for file, name in names.items():
            if file in there:
                continue
            if file not in known:
                copy(file, stage / name, to.progress)
                continue
            original, size = known[file], file.stat().st_size
            inside = all(edit.offset + edit.length <= size for edit in original.edits)
            if (
                not inside
                or restore(file, stage / name, original.edits, to.progress) != original.sha256
            ):
                left = f"move {kept.name} away to undo by the recorded numbers instead"
                with suppress(ValueError):  # damaged, which an undo by its record would say
                    if format_of(path).note(path) is None:
                        lost = "it has no record of an adjustment left, to undo by that"
                        left = f"{lost}; use the model that it was made from"
                changed = (
                    f"{file} is not the file that {kept.name} was kept for, or was changed since"
                )
                raise LevelheadError(f"{changed}; {left}")
    return {names[file]: original.sha256 for file, original in known.items()}


def _take_back(path: Path, head: Head, note: Note) -> Head:
    """Return the head before the adjustment that a note tells of, up to rounding."""
    done = Adjustment(np.array(note["scale"]), np.array(note["offset"]), bias=note["bias"])
    if done.classes != head.classes:
        expected = f"expected a record of {head.classes} classes, as the head has"
        raise LevelheadError(f"{path}: {expected}, got {done.classes}")
    if "along" in note:
        reason = "its offsets are in the weights of a head without a bias"
        raise LevelheadError(
            f"{path}: {reason}; to undo that, keep {path.name}.original next to it"
        )
    if done.adds and head.bias is None:
        raise LevelheadError(f"{path}: its record adds to a bias, but its head has none")
    return done.inverse().head(head)


def undo_text(undone: UndoResult) -> str:
    """Return what was written, and whether it is exact."""
    if undone.exact:
        sums = "".join(f"\n  {name}: sha256 {digest}" for name, digest in undone.sha256.items())
        return f"{undone.path} -> {undone.out}: the file that was adjusted, byte for byte{sums}"
    how = (
        f"by the recorded numbers, exact only up to rounding (there was no {undone.path}.original)"
    )
    return f"{undone.path} -> {undone.out}: {how}"
