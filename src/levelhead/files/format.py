"""A file format that heads live in: its line of the table, and what all formats have in common.

A format is known by the ends of its files' names. `Format` holds those, and the name of the module
with the rest, a `Reader`, which is loaded when a file of the format is opened: whoever adjusts a
safetensors file never imports onnx. A reader finds the head in a file, as byte ranges, reads the
note of an earlier adjustment and checks a file that was written.

Writing is the same for all formats, and is here:

    Format.save
        _head_edits: new heads -> edits of the head's byte ranges, by file
        layout (output.py): the files of the model -> their new names
        LocatedHead.complete: these edits -> with checksums, lengths and the note, by the reader
        rewrite (edits.py): old file + edits -> new file in a hidden folder, and the way back
        Reader.check: the written model, as its own library or reader sees it
        save_originals: the way back -> OUT.original

Every byte that no edit names is copied. Nothing appears at its place before all of that is done.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

from ..core.head import Head
from ..heads.notes import Note
from ..support.atomic import permissions
from ..support.errors import LevelheadError, in_file
from .edits import UNKNOWN_SHA256, Edit, copy, rewrite
from .large import ScaledRows
from .located import LocatedHead
from .numbers import store
from .originals import Original, save_originals
from .output import Output, layout


class FindHead(Protocol):
    """Find the head in a model's file: the layer of that name, or the one with so many classes.

    Args:
        path: the model's file, or the folder or index of one that has several.
        named: the layer, or several divided by commas; None to have it found.
        classes: K, where it is likely known; it tells the head from other layers.

    Raises:
        LevelheadError: there is no head, several layers could be it, something speaks against it,
            or the file is damaged. `NoHead`, a subclass, if no layer has a head's shape: perhaps
            the number of classes is wrong.
        OSError: the file cannot be read.
    """

    def __call__(
        self, path: Path, *, named: str | None = None, classes: int | None = None
    ) -> LocatedHead: ...


@dataclass(frozen=True)
class Reader:
    """How files of a format are read. None of their code is run.

    Args:
        find: finds the head, as byte ranges of the file.
        note: reads what an earlier adjustment recorded in a file, or None; raises if that is
            damaged.
        check: raises LevelheadError if a file that was written is not whole. What it returns is not
            looked at.
        files: all files of a model, the one that stands for it first; one, unless the format knows
            shards or external weights.
    """

    find: FindHead
    note: Callable[[Path], Note | None]
    check: Callable[[Path], object]
    files: Callable[[Path], tuple[Path, ...]] = lambda path: (path,)


@dataclass(frozen=True)
class Format:
    """One line of the table of formats: how files of it are told, and what reads them.

    Args:
        name: for messages and help texts.
        suffixes: how names of its files end, in lower case; an ending may have several dots.
        module: the module whose `READER` reads them.
        index: how the name of an index ends, of a format whose models may be folders of files; None
            for formats of single files.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    index: str | None = None

    @cached_property
    def reader(self) -> Reader:
        """What reads files of this format; its module is loaded when it is first needed."""
        return import_module(self.module).READER

    def is_folder(self, path: Path) -> bool:
        """Return whether a path means a folder of files: the folder itself, or the index in it."""
        return self.index is not None and (path.is_dir() or path.name.endswith(self.index))

    def save(
        self,
        located: LocatedHead,
        heads: Sequence[Head],
        to: Output,
        note: Note | None,
        rows: ScaledRows | None = None,
    ) -> dict[str, Original]:
        """Write a model with other heads, all or nothing.

        Args:
            located: the head in the file as it is.
            heads: the new heads, one for each layer of it.
            to: where to write.
            note: what to record in the file; {} takes a record out, None leaves it as it is. The
                sha256 of the file before is added to it.
            rows: the weights of a head too large to be held, in place of those of `heads`.

        Returns:
            The way back from each changed file, by its new name.

        Raises:
            LevelheadError: the new numbers do not fit the file, the output exists or is the input,
                an input changed meanwhile, or the written model is not whole. Nothing is left
                behind.
        """
        # What changes in the head, and how the files will be called: both must be known before the
        # first byte is written, as a model may refer to its other files by name.
        edits = _head_edits(located, heads, rows)
        names = layout(located.files, to.path, changed=set(edits), folder=located.folder)
        originals: dict[str, Original] = {}

        @cache  # a note of many classes takes seconds to encode: once for each digest
        def complete(source: Path, digest: str) -> list[Edit]:
            """Return all edits of a file, with the note, which names the file's sha256."""
            noted = note
            if note:
                noted = {"sha256": digest, **note}
            return located.complete(source, edits[source], noted, names)

        with to.staged(names, located.stamps, located.folder) as stage:
            for source, name in names.items():
                if complete(source, UNKNOWN_SHA256):
                    digest, back = rewrite(
                        source, stage / name, partial(complete, source), to.progress
                    )
                    originals[Path(name).name] = Original(source.name, digest, back)
                else:
                    copy(source, stage / name, to.progress)
            # Is what was written whole? An error names the input: the written file has no name of
            # its own yet.
            with in_file(located.path):
                self._check_as_before(located.path, stage / names[located.path])
            if to.original:
                # What was kept is no more open than the model that it is of.
                sources = [*located.files]
                if located.folder:
                    sources.append(located.path.parent)
                save_originals(stage / f"{to.path.name}.original", originals, permissions(*sources))
        return originals

    def _check_as_before(self, path: Path, written: Path) -> None:
        """Raise if a written model is not whole, unless the old one is wanting in the same way.

        Some exporters write models that onnx.checker dislikes and runtimes run all the same. Such a
        model may be adjusted: what is wrong with it is not ours, as equal messages before and after
        show.
        """
        try:
            self.reader.check(written)
        except LevelheadError as error:
            try:
                self.reader.check(path)
            except LevelheadError as before:
                if before.message == error.message:
                    return
            raise


def _head_edits(
    located: LocatedHead, heads: Sequence[Head], rows: ScaledRows | None
) -> dict[Path, list[Edit]]:
    """Return, for each file of a model, the edits that put new heads into its layers.

    Args:
        located: the head as it is, with its layers.
        heads: the new ones, in the order of the layers. A head with a bias for a layer that has
            none needs a format that can add one; `store` raises where that is not so.
        rows: the weights of a single large layer, in place of those of its head.
    """
    edits: dict[Path, list[Edit]] = defaultdict(list)
    for layer, head in zip(located.layers, heads, strict=True):
        # A layer that gets a bias has no bytes for it yet: its file gets some, if it can.
        if layer.bias is None and head.bias is not None and located.add_bias is not None:
            edits[located.path] += located.add_bias(layer, head.bias)
            head = replace(head, bias=None)
        for file, edit in store(layer, head, rows):
            edits[file].append(edit)
    return edits
