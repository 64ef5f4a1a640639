"""A model's file: its format, the head in it, what was done to that before, and its output.

`adjust_file`, `inspect_file` and `undo_file` begin here: `ModelFile.at` tells the format,
`ModelFile.locate_head` has its reader find the head, `earlier_note` tells of an adjustment before,
and `ModelFile.output_path` where a model of this format may be written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from ..core.class_names import check_names
from ..heads.notes import NOTE_KEY, Note, digests_in, is_note, multiplied, note_in_version
from ..support.errors import LevelheadError
from .find import NoHead
from .format import Format
from .formats import format_of, suffix_of
from .located import LocatedHead, json_of


@dataclass(frozen=True)
class ModelFile:
    """A model's file, or the folder of a sharded one, with its format, which is told once.

    Args:
        path: as the caller named it; messages say the same.
        format: the line of the table of formats.
    """

    path: Path
    format: Format

    @staticmethod
    def at(path: str | Path) -> "ModelFile":
        """Return the model's file at a path, or raise as `format_of` does."""
        return ModelFile(Path(path), format_of(path))

    @property
    def is_folder(self) -> bool:
        """Whether the path means a folder of files: the folder itself, or the index in it."""
        return self.format.is_folder(self.path)

    def locate_head(
        self,
        *,
        head: str | None = None,
        classes: int | None = None,
        names: Sequence[str] | None = None,
    ) -> LocatedHead:
        """Find the head in the file.

        A head that the reader cannot tell from others is looked for again with what is known
        besides: the layer that an earlier adjustment noted or, if only the number of classes does
        not fit, without it.

        Args:
            head: the name of its layer; `a,b` where two feed one output.
            classes: how many classes it is likely to have, which tells it from other layers.
            names: of its classes, in order; for a head with one logit, of its two classes.

        Raises:
            LevelheadError: as the reader raises, or the names do not fit.
        """
        reader = self.format.reader
        try:
            located = reader.find(self.path, named=head, classes=classes)
        except ValueError as error:
            # The note of an earlier adjustment says which layer it was.
            noted = None
            if head is None:
                noted = (reader.note(self.path) or {}).get("head")
            if noted:
                located = reader.find(self.path, named=",".join(noted))
            # No layer has so many classes: counts are wrong in number, or are labels. Whoever asked
            # reports that, as soon as the real number is known.
            elif classes is not None and isinstance(error, NoHead):
                located = reader.find(self.path, named=head)
            else:
                raise
        if names is None:
            return located
        checked = check_names(names, max(2, located.classes))  # one logit is of two classes
        if located.classes == 1:
            return located
        return replace(located, given_names=tuple(checked))

    def output_path(self, out: Path) -> Path:
        """Return where to write: a folder for a folder, a file of the same format for a file.

        The index in a folder stands for the folder, in the input and in the output.

        Raises:
            LevelheadError: the output is called as another format would be: nothing is converted
                here.
        """
        if self.is_folder:
            is_index = (
                self.format.is_folder(out) and not out.is_dir()
            )  # which stands for its folder
            return with_name(out.parent if is_index else out)
        if not out.name.lower().endswith(self.format.suffixes):
            raise LevelheadError(
                f"{out}: expected an output that ends in {suffix_of(self.path)}, as the input does"
            )
        return out


def earlier_note(located: LocatedHead) -> Note | None:
    """Return what was done to a head before, or None.

    An adjustment of a file leaves its note in that file. One of a model in memory, which was saved
    afterwards, leaves it in the config next to the file; that counts if the head still is as the
    adjustment left it, which the note tells by digests. Else a model that was trained on, or other
    weights that somebody put beside the config, would pass for adjusted.
    """
    if located.note is not None:
        return located.note
    peft_version = json_of(located.path.parent / "adapter_config.json").get("peft_version")
    for note in (located.config.get(NOTE_KEY), note_in_version(peft_version)):
        if not is_note(note):
            continue
        # The digests are of what the adjustment changed: weights, or biases alone.
        if multiplied(note):
            changed = [layer.weight for layer in located.layers]
        else:
            changed = [layer.bias for layer in located.layers if layer.bias is not None]
        digests = {sha256(span.bytes()).hexdigest() for span in changed}
        if not digests.isdisjoint(digests_in(note)):
            return note
    return None


def with_name(folder: Path) -> Path:
    """Return the same folder by its name, which `.` and `..` do not have.

    What is kept for an undo of a folder lies next to it, and is called after it: `name.original`.
    """
    if folder.name in ("", ".."):
        return folder.resolve()
    return folder
