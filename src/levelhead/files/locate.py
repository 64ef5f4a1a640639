"""The head in a file of any format, what was done to it before, and where the adjusted file goes."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from ..core.class_names import check_names
from ..heads.notes import NOTE_KEY, Note, digests_in, is_note, multiplied, note_in_version
from ..support.errors import LevelheadError
from .find import NoHead
from .formats import format_of, suffix_of
from .spans import LocatedHead, json_of


def locate_head(
    path: str | Path,
    *,
    head: str | None = None,
    classes: int | None = None,
    names: Sequence[str] | None = None,
) -> LocatedHead:
    """Find the head in a model's file. A likely number of classes helps to tell it apart; so does an earlier note."""
    path, one = Path(path), format_of(path)
    try:
        found = one.find(path, named=head, classes=classes)
    except ValueError as error:
        noted = None
        if head is None:
            noted = (one.note(path) or {}).get("head")
        if not noted and (classes is None or not isinstance(error, NoHead)):
            raise
        # Without a note, counts are wrong in number, or are labels: that is reported when K is known.
        found = one.find(path, named=",".join(noted) if noted else head)
    # One logit is of two classes.
    known = None
    if names is not None:
        known = check_names(names, max(2, found.classes))
    if known is not None and found.classes > 1:
        return replace(found, given_names=tuple(known))
    return found


def earlier_note(found: LocatedHead) -> Note | None:
    """Return what was done to a head before: in a file, by its note; in memory, by that of a config next to it."""
    version = json_of(found.path.parent / "adapter_config.json").get("peft_version")
    for note in (
        (found.config.get(NOTE_KEY), note_in_version(version)) if found.note is None else ()
    ):
        if is_note(note):  # it counts if the head is as that adjustment left it
            weights = multiplied(note)
            spans = [layer.weight if weights else layer.bias for layer in found.layers]
            if {sha256(span.bytes()).hexdigest() for span in spans if span is not None} & {
                *digests_in(note)
            }:
                return note
    return found.note


def output_path(path: Path, out: Path, folder: bool) -> Path:
    """Return where to write: a folder for a folder (or the index in it), a file of the same format for a file."""
    one = format_of(path)
    if folder:
        is_index = one.is_folder(out) and not out.is_dir()  # which stands for its folder
        return with_name(out.parent if is_index else out)
    if not out.name.lower().endswith(one.suffixes):
        raise LevelheadError(
            f"{out}: expected an output that ends in {suffix_of(path)}, as the input does"
        )
    return out


def with_name(folder: Path) -> Path:
    """Return the same folder by its name, which `.` and `..` do not have: a file next to it is called after it."""
    if folder.name in ("", ".."):
        return folder.resolve()
    return folder
