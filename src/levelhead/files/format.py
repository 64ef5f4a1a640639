"""A file format that heads live in: what all have in common, given the few things in which they differ."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from ..core.head import Head
from ..heads.notes import Note
from ..support.atomic import permissions
from ..support.errors import LevelheadError, in_file
from ..support.progress import ByteProgress
from ..support.regular_file import Stamp, check_unchanged
from .edits import UNKNOWN_SHA256, Edit, Original, copy, rewrite, save_originals, staged
from .spans import LocatedHead, ScaledRows, store


@dataclass(frozen=True)
class Output:
    """Where a model is written, and how."""

    path: Path
    original: bool = True  # keep the old bytes next to it
    force: bool = False  # replace files that exist
    progress: ByteProgress | None = None
    left_out: tuple[str, ...] = ()  # suffixes of what is not copied from a model's folder

    @contextmanager
    def staged(
        self, names: Mapping[Path, str], stamps: Mapping[Path, Stamp], folder: bool
    ) -> Iterator[Path]:
        """Yield where to write a model's files, {file: name}, with what else is in its folder; none may be an input."""
        for target in (self.path, *(self.path.parent / name for name in names.values())):
            if target.exists() and any(
                target.samefile(one) for file in stamps for one in (file, file.parent)
            ):
                raise LevelheadError(
                    f"{target} is the input itself, which is never overwritten; give another name"
                )
        with staged(self.path, force=self.force) as stage:
            if folder:
                around = next(iter(stamps)).parent
                out = stage / self.path.name
                out.mkdir(exist_ok=True)
                out.chmod(permissions(around) | 0o700)  # its owner may write to it
                for file in companion_files(around, list(stamps), self.left_out)[0]:
                    copy(file, out / file.name)
            yield stage
            for file, stamp in stamps.items():
                check_unchanged(file, stamp)


@dataclass(frozen=True)
class Format:
    """One row of the table of file formats."""

    name: str
    suffixes: tuple[str, ...]
    # (path, named=layer or None, classes=K or None), runs none of the file's code
    find: Callable[..., LocatedHead]
    note: Callable[[Path], Note | None]  # what an earlier adjustment recorded
    check: Callable[[Path], object]  # raises if a written model is not whole
    # All files of a model, what stands for it first.
    files: Callable[[Path], tuple[Path, ...]] = lambda path: (path,)
    # Whether a path means a folder of files: the folder itself, or the index in it.
    is_folder: Callable[[Path], bool] = lambda path: False

    def save(
        self,
        found: LocatedHead,
        heads: Sequence[Head],
        to: Output,
        note: Note | None,
        rows: ScaledRows | None = None,
    ) -> dict[str, Original]:
        """Write a model with other heads, one per layer, all or nothing; return the way back from each changed file."""
        edits: dict[Path, list[Edit]] = defaultdict(list)
        for layer, head in zip(found.layers, heads, strict=True):
            if layer.bias is None and head.bias is not None and found.add_bias is not None:
                edits[found.path] += found.add_bias(layer, head.bias)
                head = replace(head, bias=None)
            for file, edit in store(layer, head, rows):
                edits[file].append(edit)
        names = layout(found.files, to.path, changed=set(edits), folder=found.folder)
        originals: dict[str, Original] = {}

        @cache  # a note of many classes takes seconds: made once for each digest
        def complete(source: Path, digest: str) -> list[Edit]:
            return found.complete(
                source, edits[source], {"sha256": digest, **note} if note else note, names
            )

        with to.staged(names, found.stamps, found.folder) as stage:
            for source, name in names.items():
                if complete(source, UNKNOWN_SHA256):
                    digest, back = rewrite(
                        source, stage / name, partial(complete, source), to.progress
                    )
                    originals[Path(name).name] = Original(source.name, digest, back)
                else:
                    copy(source, stage / name, to.progress)
            with in_file(found.path):
                self._check_as_before(found.path, stage / names[found.path])
            if to.original:
                around = (found.path.parent,) if found.folder else ()
                save_originals(
                    stage / f"{to.path.name}.original",
                    originals,
                    permissions(*found.files, *around),
                )
        return originals

    def _check_as_before(self, path: Path, written: Path) -> None:
        """Raise if a written model is not whole, unless the model was wanting in the same way before."""
        try:
            self.check(written)
        except LevelheadError as error:
            try:
                self.check(path)
            except LevelheadError as before:
                if before.message == error.message:
                    return
            raise


def companion_files(
    folder: Path, files: Sequence[Path], left_out: tuple[str, ...]
) -> tuple[list[Path], list[str]]:
    """Return what belongs to a model in a folder besides its own files, and the names of what is left out."""
    own = {file.name for file in files}
    root = folder.resolve()
    # A link may lead anywhere, to what must not be given away; the cache of Hugging Face is a folder of links to blobs.
    places = [root, *([root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [])]
    others = [
        path
        for path in sorted(folder.iterdir())
        if path.name not in own and not path.name.startswith(".")
    ]
    # Unlike `resolve`, of a link to itself as well.
    ends = {path: Path(os.path.realpath(path)) for path in others}
    outside = [
        path for path, end in ends.items() if not any(end.is_relative_to(place) for place in places)
    ]
    copied = [
        one
        for one in others
        if one.is_file() and not one.name.lower().endswith(left_out) and one not in outside
    ]
    why = dict.fromkeys(outside, " (a link that leads out of the folder)")
    return copied, [f"{path.name}{why.get(path, '')}" for path in others if path not in copied]


def layout(
    files: Sequence[Path], out: Path, *, changed: set[Path], folder: bool
) -> dict[Path, str]:
    """Return where each file of a model goes, relative to out's folder: {source: name}."""
    # A folder keeps its files' names. Elsewhere the file that stands for the model becomes `out`, and those it refers
    # to keep their names. Within the same folder they stay where they are or, if they change, take a new name after
    # out's: model.onnx.data becomes adjusted.onnx.data with adjusted.onnx.
    main, *others = files
    if folder:
        return {file: f"{out.name}/{file.name}" for file in files}
    if out.parent.resolve() != main.parent.resolve():
        return {main: out.name} | {file: file.name for file in others}
    rest = {file: file.name.removeprefix(main.stem) for file in others if file in changed}
    return {main: out.name} | {
        file: f"{out.stem}{'.' if end == file.name else ''}{end}" for file, end in rest.items()
    }
