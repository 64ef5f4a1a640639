"""Take an adjustment of a model's file back, exactly or by the recorded numbers.

`undo_file` looks for `model.original` next to the model.

    with it: _originals_of -> _restored_names -> restore: the kept bytes go back to where they were,
        and the result must have the sha256 of the file that was adjusted
    without: the note in the model says what was added and multiplied, and the inverse
        (`_take_back`) is written as any other head is

An exact undo needs no head: it moves bytes, whatever they mean.
"""

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
from .edits import copy, file_sha256, restore
from .formats import left_out_suffixes
from .locate import ModelFile, with_name
from .numbers import load
from .originals import Original, load_originals
from .output import Output, layout


@dataclass(frozen=True)
class UndoResult:
    """What `undo_file` did."""

    path: str  #: the adjusted model
    out: str  #: the file or folder that was written
    exact: bool  #: whether the file is back bit for bit; otherwise its head is right up to rounding
    sha256: Mapping[str, str]  #: of each file that is back, by name; empty if not exact


def undo_file(
    path: str | Path, out: str | Path, *, force: bool = False, progress: ByteProgress | None = None
) -> UndoResult:
    """Take an adjustment of a model's file back.

    With `path.original` next to it, out is the file that was adjusted, sha256 for sha256. Without,
    the recorded offsets are subtracted and the head is divided by the recorded scales: exact only
    up to rounding. Of a file that was adjusted twice, the last adjustment is taken back.

    Args:
        path: what `adjust_file` wrote.
        out, force, progress: as in `adjust_file`.

    Returns:
        Where it was written, and whether it is exact.

    Raises:
        LevelheadError: there is no record of an adjustment, the file was changed since, or what was
            kept is of another file. Nothing is written then.

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
    file = ModelFile.at(path)
    reader = file.format.reader
    # What an index of shards stands for is its folder.
    root = file.path
    if file.is_folder and not root.is_dir():
        root = root.parent
    root = with_name(root)
    to = Output(file.output_path(Path(out)), False, force, progress, left_out_suffixes())
    kept = root.with_name(f"{root.name}.original")
    if kept.is_file():
        return UndoResult(str(path), str(to.path), True, _restore(file, to, kept))
    note = reader.note(file.path)
    if note is None:
        raise LevelheadError(
            f"{path}: nothing to undo; expected a record of an adjustment in it, or {kept.name}"
        )
    # The layers by the names in the note: the head need not be guessed again, which a file without
    # a graph might not allow. The note of an adjustment before this one becomes the note again.
    located = reader.find(file.path, named=",".join(note["head"]))
    heads = [_take_back(file.path, load(layer, located.names), note) for layer in located.layers]
    file.format.save(located, heads, to, note.get("before", {}))
    return UndoResult(str(path), str(to.path), False, {})


def _restore(file: ModelFile, to: Output, kept: Path) -> dict[str, str]:
    """Apply the kept edits to a model's files; return the sha256 of each as it is again, by name.

    Args:
        file, to: the adjusted model, and where the old one goes.
        kept: what was kept for it.

    Raises:
        LevelheadError: a file does not become the one that was adjusted; the others do not appear
            either.
    """
    files = file.format.reader.files(file.path)
    stamps = {path: check_regular_file(path) for path in files}
    originals = _originals_of(files, kept)
    names = _restored_names(files, originals, to.path, file.is_folder)
    there = []
    # A folder is written as a whole.
    if not file.is_folder:
        there = _still_there(files, originals, names, to.path.parent)
    with to.staged(names, stamps, file.is_folder) as stage:
        for path, name in names.items():
            if path in there:
                continue
            original = originals.get(path)
            if original is None:
                copy(path, stage / name, to.progress)
                continue
            # `restore` relies on edits that lie within the file. One that reaches behind its end
            # shows that the file was cut since.
            size = path.stat().st_size
            inside = all(edit.offset + edit.length <= size for edit in original.edits)
            if (
                not inside
                or restore(path, stage / name, original.edits, to.progress) != original.sha256
            ):
                raise _not_the_file(file, path, kept)
    return {names[path]: original.sha256 for path, original in originals.items()}


def _originals_of(files: tuple[Path, ...], kept: Path) -> dict[Path, Original]:
    """Return what was kept for each of a model's files that had changed.

    Files are matched by name. A model of one file may have been renamed since: there is one file
    and one original, and the sha256 tells in the end whether they belong together.

    Raises:
        LevelheadError: something was kept for a file that the model does not have.
    """
    loaded = load_originals(kept)
    originals = {file: loaded[file.name] for file in files if file.name in loaded}
    if len(files) == len(loaded) == 1:  # the file may have been renamed
        originals = {files[0]: next(iter(loaded.values()))}
    if not loaded or len(originals) != len(loaded):
        owners = ", ".join(loaded) or "no file"
        raise LevelheadError(f"{kept} belongs to {owners}, not to {files[0]}")
    return originals


def _restored_names(
    files: tuple[Path, ...], originals: Mapping[Path, Original], out: Path, folder: bool
) -> dict[Path, str]:
    """Return where each file goes, {file: name}: all but `out` under the names that they had.

    The file that stands for the model, as it was, refers to its external weights by their old
    names; so they must be called that again.

    Args:
        files: of the adjusted model, the one that stands for it first.
        originals: the way back of those that had changed.
        out: where the model is written.
        folder: whether the model is a folder.

    Raises:
        LevelheadError: an old name is that of a file which the adjusted model still needs.
    """
    names = layout(files, out, changed=set(originals), folder=folder)
    for file, original in originals.items():
        if folder or file != files[0]:
            names[file] = str(Path(names[file]).with_name(original.name))
    if folder:
        return names
    for file, name in names.items():
        target = out.parent / name
        if file != files[0] and target.exists() and target.samefile(file):
            problem = (
                f"{target} is of {files[0].name}, and {out.name} needs another file of that name"
            )
            raise LevelheadError(f"{problem}; write to another folder")
    return names


def _still_there(
    files: tuple[Path, ...],
    originals: Mapping[Path, Original],
    names: Mapping[Path, str],
    folder: Path,
) -> list[Path]:
    """Return the changed files whose originals are still in the folder, and need not be written.

    External weights are often gigabytes, and the model that was adjusted usually lies beside them.
    Also, no `force` is needed then to "replace" a file by itself.
    """
    there = []
    for file, original in originals.items():
        target = folder / names[file]
        if file != files[0] and target.is_file() and file_sha256(target) == original.sha256:
            there.append(file)
    return there


def _not_the_file(file: ModelFile, path: Path, kept: Path) -> LevelheadError:
    """Return the error for a file that the kept bytes do not turn into the one that was adjusted.

    Whoever loads and saves an adjusted model often loses the note: then an undo by the recorded
    numbers is no way out either, and the message does not advise it.
    """
    advice = f"move {kept.name} away to undo by the recorded numbers instead"
    with suppress(ValueError):  # damaged, which an undo by its record would say
        if file.format.reader.note(file.path) is None:
            lost = "it has no record of an adjustment left, to undo by that"
            advice = f"{lost}; use the model that it was made from"
    changed = f"{path} is not the file that {kept.name} was kept for, or was changed since"
    return LevelheadError(f"{changed}; {advice}")


def _take_back(path: Path, head: Head, note: Note) -> Head:
    """Return the head before the adjustment that a note tells of, up to rounding.

    Args:
        path: of the file, for messages.
        head: as it is now.
        note: what was done: scale [K], offset [K], and whether the bias was scaled.

    Raises:
        LevelheadError: the note does not fit the head, or says too little: offsets that went into
            the weights along features are not recorded number by number.
    """
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
    inexact = "by the recorded numbers, exact only up to rounding"
    reason = f"there was no {undone.path}.original"
    return f"{undone.path} -> {undone.out}: {inexact} ({reason})"
