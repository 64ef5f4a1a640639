"""Where an adjusted model is written: its files under their new names, and what lies beside them.

A model is one file, a file that refers to others (an ONNX model and its external weights), or a
folder (an index and its shards, with config and tokenizer). `layout` says where each of its own
files goes. `Output.staged` opens a hidden folder in which they are written, after a look that none
of them is an input, and copies along what a folder holds besides (`companion_files`). It knows
nothing of formats: which files are of the model is told by whoever found the head.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..support.atomic import permissions
from ..support.errors import LevelheadError
from ..support.progress import ByteProgress
from ..support.regular_file import Stamp, check_unchanged
from .edits import copy
from .staging import staged


@dataclass(frozen=True)
class Output:
    """Where a model is written, and how.

    Args:
        path: a file or, of a sharded model, a folder.
        original: whether the old bytes are kept next to it, for an exact undo.
        force: whether files that exist are replaced.
        progress: called with the bytes copied since the last call.
        left_out: suffixes of what is not copied from a model's folder, in lower case.
    """

    path: Path
    original: bool = True
    force: bool = False
    progress: ByteProgress | None = None
    left_out: tuple[str, ...] = ()

    @contextmanager
    def staged(
        self, names: Mapping[Path, str], stamps: Mapping[Path, Stamp], folder: bool
    ) -> Iterator[Path]:
        """Yield a folder to write a model's files into; they appear at their place after the block.

        Args:
            names: {file of the model: its new name}, as `layout` gives them.
            stamps: all files of the model as they were when they were read. None of them may be
                overwritten, and none may have changed when the block ends: what was written would
                be half of the old content and half of the new.
            folder: whether the model is a folder; then what belongs to it is copied along.

        Raises:
            LevelheadError: the output is the input, exists without `force`, or an input changed.
        """
        self._check_is_no_input(names, stamps)
        with staged(self.path, force=self.force) as stage:
            if folder:
                source_folder = next(iter(stamps)).parent
                new_folder = stage / self.path.name
                new_folder.mkdir(exist_ok=True)
                # As open as the model's own folder, but its owner may always write to it.
                new_folder.chmod(permissions(source_folder) | 0o700)
                companions = companion_files(source_folder, list(stamps), self.left_out)
                for file in companions.copied:
                    copy(file, new_folder / file.name)
            yield stage
            for file, stamp in stamps.items():
                check_unchanged(file, stamp)

    def _check_is_no_input(self, names: Mapping[Path, str], stamps: Mapping[Path, Stamp]) -> None:
        """Raise if the output, or one of its files, is a file of the model or the folder of one.

        Also with `force`: the input is the only copy of the model, and is read while the output is
        written. By `samefile`, as a link or another spelling of the path leads to the same file.
        """
        inputs = {place for file in stamps for place in (file, file.parent)}
        for target in (self.path, *(self.path.parent / name for name in names.values())):
            if target.exists() and any(target.samefile(place) for place in inputs):
                raise LevelheadError(
                    f"{target} is the input itself, which is never overwritten; give another name"
                )


class Companions(NamedTuple):
    """What else is in the folder of a model: its config, tokenizer and the like.

    Args:
        copied: what is written along with the model.
        left_out: names of the rest, with the reason where one is needed, for a note to the user.
    """

    copied: list[Path]
    left_out: list[str]


def companion_files(folder: Path, files: Sequence[Path], left_out: tuple[str, ...]) -> Companions:
    """Tell what in a model's folder is copied along with its own files, and what is not.

    Args:
        folder, files: the folder and the model's own files in it.
        left_out: suffixes of other weights, which would not be adjusted.

    Returns:
        Files to copy, in the order of their names. Folders, other weights and links that lead out
        of the folder stay behind and are named; hidden files stay behind without a word.
    """
    root = folder.resolve()
    # A link may lead anywhere, also to what must not be given away. Links are followed within the
    # folder and, in the cache of Hugging Face, to its blobs: there, a model's folder consists of
    # links to them.
    allowed = [root]
    if root.parent.name == "snapshots":
        allowed.append(root.parent.parent / "blobs")
    own_names = {file.name for file in files}
    copied = []
    others = []
    for path in sorted(folder.iterdir()):
        if path.name in own_names or path.name.startswith("."):
            continue
        # Unlike `resolve`, `realpath` ends for a link to itself as well.
        target = Path(os.path.realpath(path))
        if not any(target.is_relative_to(place) for place in allowed):
            others.append(f"{path.name} (a link that leads out of the folder)")
        elif path.is_file() and not path.name.lower().endswith(left_out):
            copied.append(path)
        else:
            others.append(path.name)
    return Companions(copied, others)


def layout(
    files: Sequence[Path], out: Path, *, changed: set[Path], folder: bool
) -> dict[Path, str]:
    """Return where each file of a model goes, relative to out's folder: {source: name}.

    A file that is left out of the answer stays where it is, and is shared by both models.

    Args:
        files: all files of the model; the first stands for it, and refers to the others.
        out: where the model is written.
        changed: the files whose content changes.
        folder: whether the model is a folder of files.

    >>> files = [Path("model.onnx"), Path("model.onnx.data")]
    >>> layout(files, Path("adjusted.onnx"), changed={files[1]}, folder=False)[files[1]]
    'adjusted.onnx.data'
    >>> layout(files, Path("elsewhere/adjusted.onnx"), changed={files[1]}, folder=False)[files[1]]
    'model.onnx.data'
    """
    main, *others = files
    # A folder keeps the names of its files.
    if folder:
        return {file: f"{out.name}/{file.name}" for file in files}
    # In another folder, the file that stands for the model becomes `out`, and those that it refers
    # to keep their names.
    if out.parent.resolve() != main.parent.resolve():
        return {main: out.name} | {file: file.name for file in others}
    # In the same folder, those that stay as they are stay where they are. Those that change take a
    # name after out's: model.onnx.data becomes adjusted.onnx.data with adjusted.onnx, and
    # weights.bin becomes adjusted.weights.bin.
    names = {main: out.name}
    for file in others:
        if file not in changed:
            continue
        ending = file.name.removeprefix(main.stem)
        if ending == file.name:
            ending = f".{ending}"
        names[file] = f"{out.stem}{ending}"
    return names
