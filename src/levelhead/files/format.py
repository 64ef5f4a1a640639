"""A file format that heads live in: what the three have in common, given the few things in which they differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..core.atomic import permissions
from ..core.errors import LevelheadError
from ..core.head import Head
from ..show.progress import ByteProgress
from .edits import UNKNOWN, Edit, Original, copy, make_folder, rewrite, save_originals, staged
from .spans import Found, load, store

Note = Mapping[str, Any]


class Find(Protocol):
    def __call__(self, path: Path, *, named: str | None = None, classes: int | None = None) -> Found: ...


class Complete(Protocol):
    def __call__(
        self, found: Found, source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
    ) -> list[Edit]: ...


@dataclass(frozen=True)
class Format:
    """One row of the table of file formats.

    Args:
        name: how a message calls it.
        suffixes: of its files.
        find: path -> where the head is, running none of the file's code.
        files: path -> all files of the model, the one that stands for it first.
        note: path -> what an earlier adjustment recorded, or None.
        complete: one file's edits -> the same with what else must change for them, and with the note.
        check: raise if a written model is not whole.
    """

    name: str
    suffixes: tuple[str, ...]
    find: Find
    files: Callable[[Path], tuple[Path, ...]]
    note: Callable[[Path], Note | None]
    complete: Complete
    check: Callable[[Path], None]

    def read(self, path: str | Path, key: str | None = None) -> Head:
        """The head in a file, in float32 or better, whatever the file has.

        Args:
            path: the model's file.
            key: the layer, such as `classifier`; found by name and shape if not given.
        """
        found = self.find(Path(path), named=key)
        place, *more = found.places
        if more:
            raise LevelheadError(
                f"{path}: {', '.join(place.key for place in found.places)} feed one output; read one by its key"
            )
        return load(place, found.names)

    def write(
        self, path: str | Path, out: str | Path, head: Head, key: str | None = None, *, force: bool = False
    ) -> None:
        """Copy a model with another head in it; everything else stays as it is, byte for byte."""
        found = self.find(Path(path), named=key)
        self.save(found, [head], Path(out), note=None, keep=False, force=force)

    def save(
        self,
        found: Found,
        heads: Sequence[Head],
        out: Path,
        *,
        note: Note | None,
        keep: bool,
        force: bool,
        progress: ByteProgress | None = None,
    ) -> dict[str, Original]:
        """Write a model with other heads at its places, all or nothing.

        Args:
            note: what to record in the file; an empty one takes an earlier one out, None leaves what is there.
            keep: write `out.original` too, the way back.
        """
        edits: dict[Path, list[Edit]] = defaultdict(list)
        for place, head in zip(found.places, heads, strict=True):
            for file, edit in store(place, head):
                edits[file].append(edit)
        names = layout(found.files, out, changed=set(edits), folder=found.folder)
        check_apart(found.files, [out, *(out.parent / name for name in names.values())])
        originals: dict[str, Original] = {}
        with staged(out, force=force) as stage:
            if found.folder:
                make_folder(stage / out.name, like=found.path.parent)
            for source, name in names.items():
                complete = self._completing(found, source, edits[source], note, names)
                if complete(UNKNOWN):
                    originals[Path(name).name] = rewrite(source, stage / name, complete, progress)
                else:
                    copy(source, stage / name, progress)
            self.check(stage / names[found.path])
            if keep:
                around = (found.path.parent,) if found.folder else ()
                save_originals(stage / f"{out.name}.original", originals, permissions(*found.files, *around))
        return originals

    def _completing(
        self, found: Found, source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
    ) -> Callable[[str], list[Edit]]:
        def complete(digest: str) -> list[Edit]:
            return self.complete(found, source, edits, {"sha256": digest, **note} if note else note, names)

        return complete


def layout(files: Sequence[Path], out: Path, *, changed: set[Path], folder: bool) -> dict[Path, str]:
    """Where each file of a model goes, relative to out's folder: {source: name}.

    A folder keeps its files' names. Elsewhere the file that stands for the model becomes `out`, and those it refers to
    keep their names; within the same folder they stay where they are or, if they change, take a new name after out's.
    """
    main, *others = files
    if folder:
        return {file: f"{out.name}/{file.name}" for file in files}
    if out.parent.resolve() != main.parent.resolve():
        return {main: out.name} | {file: file.name for file in others}
    return {main: out.name} | {file: _after(file.name, main.stem, out.stem) for file in others if file in changed}


def check_apart(sources: Sequence[Path], targets: Sequence[Path]) -> None:
    """Raise if a target is one of the sources, by whatever link."""
    for target in targets:
        if target.exists() and any(target.samefile(place) for source in sources for place in (source, source.parent)):
            raise LevelheadError(f"{target} is the input itself, which is never overwritten; give the output another name")


def _after(name: str, old: str, new: str) -> str:
    """`model.onnx.data`, when model.onnx becomes leveled.onnx: `leveled.onnx.data`."""
    return new + name.removeprefix(old) if name.startswith(old) else f"{new}.{name}"
