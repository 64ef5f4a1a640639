"""A file format that heads live in: its line of the table, and what all formats have in common.

A format is known by the ends of its files' names; `Format` holds those, and the module with the
rest, a `Reader`, which is loaded when a file of the format is opened. A reader finds the head in a
file, as byte ranges, reads the note of an earlier adjustment and checks a file that was written.
Writing is the same for all: `Format.save` turns new heads into edits of byte ranges, lets the
located head complete them (checksums, lengths, the note), and copies every other byte.
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
    """Find the head in a model's file: the layer of that name, or the one with so many classes."""

    def __call__(
        self, path: Path, *, named: str | None = None, classes: int | None = None
    ) -> LocatedHead: ...


@dataclass(frozen=True)
class Reader:
    """How files of a format are read. None of their code is run."""

    find: FindHead
    note: Callable[[Path], Note | None]  # what an earlier adjustment recorded in a file
    check: Callable[[Path], object]  # raises if a file that was written is not whole
    # All files of a model, the one that stands for it first.
    files: Callable[[Path], tuple[Path, ...]] = lambda path: (path,)


@dataclass(frozen=True)
class Format:
    """One line of the table of formats: how files of it are told, and what reads them.

    Args:
        name: for messages and help texts.
        suffixes: how names of its files end, in lower case.
        module: the module whose `READER` reads them.
        index: how the name of an index ends, of a format whose models may be folders of files.
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
            note: what to record in the file; {} takes a record out, None leaves it as it is.
            rows: the weights of a head too large to be held, in place of those of `heads`.

        Returns:
            The way back from each changed file, by its new name.
        """
        edits = _head_edits(located, heads, rows)
        names = layout(located.files, to.path, changed=set(edits), folder=located.folder)
        originals: dict[str, Original] = {}

        @cache  # a note of many classes takes seconds to encode: once for each digest
        def complete(source: Path, digest: str) -> list[Edit]:
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
        """Raise if a written model is not whole, unless the model was wanting in the same way before."""
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
    """Return, for each file of a model, the edits that put new heads into its layers."""
    edits: dict[Path, list[Edit]] = defaultdict(list)
    for layer, head in zip(located.layers, heads, strict=True):
        # A layer that gets a bias has no bytes for it yet: its file gets some, if it can.
        if layer.bias is None and head.bias is not None and located.add_bias is not None:
            edits[located.path] += located.add_bias(layer, head.bias)
            head = replace(head, bias=None)
        for file, edit in store(layer, head, rows):
            edits[file].append(edit)
    return edits
