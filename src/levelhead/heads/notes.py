"""The note of an adjustment: what was done to which head.

Files have it in their metadata, models and adapters in their configs.

A note is a dict as JSON holds it: version, rule, strength, scale [K], offset [K], counts, head (the
names of its layers), and by where it is bias and before (files) or sha256 and rounded (configs).
Metadata of files holds texts alone, so that each field is an entry of its own (`note_entries`,
`note_from`). A config that `save_pretrained` writes has the note under a key, and that of a PEFT
adapter behind its version (`leave_note`). Whatever is read may have been written by somebody else,
and is checked (`check_note`, `is_note`).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from ..io.safetensors_file import ITEM_BYTES, read_header
from ..support.errors import LevelheadError
from ..support.regular_file import bytes_at
from ..support.text import parse_json

Note: TypeAlias = Mapping[str, Any]  # as JSON holds it
# A model of transformers or PEFT, or any other: its config is asked for by getattr.
LibraryModel: TypeAlias = Any
NOTE_KEY = "levelhead"  # of a config, and so of config.json
# PEFT warns of what its config does not know, but of a version "0.21.2@levelhead:{...}" it reads
# what precedes the @.
IN_VERSION = "@levelhead:"
# The fields of a note that are texts; the others are JSON where only texts can be.
TEXTS = ("version", "rule", "bias", "sha256")
# The entries of a note in a file's metadata: {name there: field}. A snapshot's entries have the
# same prefix; those are not a note's.
NOTE = {
    f"levelhead.{field}": field
    for field in (*TEXTS, "strength", "counts", "head", "scale", "offset", "along", "before")
}
# The adapter in the path of a head that PEFT copied, as
# base_model.model.score.modules_to_save.NAME.
_ADAPTER = re.compile(r"\.modules_to_save\.([^.]+)")


def note_entries(note: Note) -> dict[str, str]:
    """Return a note as the strings that metadata can hold.

    Texts stay as they are, everything else becomes JSON.
    """
    entries = {}
    for key, field in NOTE.items():
        if field in TEXTS and field in note:
            entries[key] = note[field]
        elif field in note:
            entries[key] = json.dumps(note[field])
    return entries


def note_from(entries: Mapping[str, str], file: Path) -> dict[str, Any] | None:
    """Return the note among a file's metadata, or None if there is none.

    Args:
        entries: the metadata; others than ours are passed over.
        file: for the message.

    Raises:
        LevelheadError: there is one, and it is damaged.
    """
    texts = {field: entries[key] for key, field in NOTE.items() if key in entries}
    if "rule" not in texts:
        return None
    note = {}
    for field, text in texts.items():
        if field in TEXTS:
            note[field] = text
        else:
            note[field] = _json(text)
    if None in note.values():  # an entry that is no JSON: damaged
        return check_note(None, file)
    return check_note(note, file)


def note_from_json(data: bytes | None, file: Path) -> dict[str, Any] | None:
    """Return the note that a file has as JSON, or None without data."""
    if data:
        return check_note(_json(data), file)
    return None


def _json(text: str | bytes) -> object:
    """Return what JSON says; None if it is none."""
    try:
        if isinstance(text, bytes):
            text = text.decode()
        return parse_json(text)
    except ValueError:
        return None


def check_note(note: object, file: Path) -> dict[str, Any]:
    """Return the note if an adjustment of a file can have written it.

    Others may write into its metadata too. A damaged note is refused, not ignored: without it a
    second adjustment would multiply what was multiplied already.

    Raises:
        LevelheadError: it is damaged.
    """
    if not _says_what_was_done(note) or note.get("bias") not in ("scale", "keep"):
        reason = "its record of an earlier adjustment is damaged"
        raise LevelheadError(f"{file}: {reason}; save the model again without it")
    if "before" in note:  # a head that was adjusted twice: the note of the first
        check_note(note["before"], file)
    return dict(note)


def is_note(note: object) -> TypeGuard[Note]:
    """Return whether something in a config is a note of ours, with the sha256 of what changed."""
    return _says_what_was_done(note) and isinstance(note.get("sha256"), str)


def _says_what_was_done(note: object) -> TypeGuard[Note]:
    """Return whether something has the entries of a note.

    These are version, rule, strength, head, scale and offset. Scales must be positive and
    everything finite, since `undo` may have to divide by them.
    """
    if not isinstance(note, Mapping):
        return False
    try:
        scale = np.array(note["scale"], np.float64)
        offset = np.array(note["offset"], np.float64)
        strength = float(note.get("strength", 0.0))
        texts = [note["version"], note["rule"], *note["head"]]
    except (KeyError, TypeError, ValueError, OverflowError):
        return False
    return bool(
        all(isinstance(text, str) for text in texts)
        and not isinstance(note.get("strength"), str)
        and np.isfinite(strength)
        and scale.ndim == 1
        and scale.shape == offset.shape
        and np.isfinite([scale, offset]).all()
        and (scale > 0).all()
    )


def multiplied(note: Note) -> bool:
    """Return whether the weights of the head were changed, or only its biases."""
    return "along" in note or any(factor != 1 for factor in note["scale"])


def done_text(rule: str, strength: float | None) -> str:
    """Return what was done in words: the rule and, where it has one, its strength.

    >>> done_text("rescale", 0.5), done_text("offsets", None)
    ('rescale, strength 0.5', 'offsets')
    """
    if strength is None:
        return rule
    return f"{rule}, strength {strength:g}"


def digests_in(note: Note) -> tuple[str, ...]:
    """Return every sha256 by which a note knows the head: as it is, and rounded to other dtypes."""
    rounded = note.get("rounded")
    if not isinstance(rounded, list):
        return (note["sha256"],)
    return note["sha256"], *(digest for digest in rounded if isinstance(digest, str))


def note_in_version(version: object) -> object:
    """Return what is noted behind the version in an adapter's config, or None.

    `is_note` tells whether it is a note.

    >>> note_in_version('0.18.0@levelhead:{"rule": "shift"}'), note_in_version("0.18.0")
    ({'rule': 'shift'}, None)
    """
    if isinstance(version, str):
        return _json(version.partition(IN_VERSION)[2])
    return None


def leave_note(model: LibraryModel, note: Note) -> Callable[[], None]:
    """Write a note into the config that `save_pretrained` saves with a model or an adapter.

    A config of transformers takes any attribute and writes it into config.json. A model of another
    library has none, and nothing is written.

    Args:
        model: in memory.
        note: what was done; its `head` has the paths of the layers.

    Returns:
        The way back.
    """
    back: list[Callable[[], None]] = []
    config = getattr(model, "config", None)
    # A config of transformers. What other models call so may be a dict, and is left alone.
    if callable(getattr(config, "to_json_string", None)):
        back.append(partial(_put, config, getattr(config, NOTE_KEY, None)))
        _put(config, dict(note))
    # An adapter has a head of its own, under its name in the paths of the head.
    adjusted_adapters = set[str]()
    for path in note.get("head", ()):
        adjusted_adapters.update(_ADAPTER.findall(f".{path}"))
    for name, adapter in _adapters(model).items():
        if name not in adjusted_adapters:
            continue
        back.append(partial(setattr, adapter, "peft_version", adapter.peft_version))
        version, *_ = adapter.peft_version.partition(IN_VERSION)
        adapter.peft_version = f"{version}{IN_VERSION}{json.dumps(note)}"
    return partial(run_all, back)


def extend_note(model: LibraryModel, facts: Note) -> None:
    """Add facts, as JSON can hold them, to the note in a model's config, if there is one.

    `AdjustCallback` adds the evidence of a choice, so that a saved model says why it was adjusted.
    """
    notes = notes_in_configs(model)
    if notes:
        leave_note(model, {**notes[0], **facts})


def drop_note(model: LibraryModel) -> None:
    """Take the notes out of the configs of a model and its active adapters.

    Its head is about to be trained on, and no longer what the notes tell of.
    """
    if is_note(getattr(getattr(model, "config", None), NOTE_KEY, None)):
        _put(model.config, None)
    for adapter in _adapters(model).values():
        if is_note(note_in_version(adapter.peft_version)):
            adapter.peft_version, *_ = adapter.peft_version.partition(IN_VERSION)


def run_all(steps: Sequence[Callable[[], None]]) -> None:
    """Call one function after the other."""
    for step in steps:
        step()


def notes_in_configs(model: LibraryModel) -> list[Note]:
    """Return what the configs of a model and its active adapters say was done."""
    candidates = [getattr(getattr(model, "config", None), NOTE_KEY, None)]
    for adapter in _adapters(model).values():
        candidates.append(note_in_version(adapter.peft_version))
    return [note for note in candidates if is_note(note)]


def notes_in_files(
    model: LibraryModel, digests: Callable[[bytes, str], tuple[str, ...]]
) -> Iterator[Note]:
    """Yield the notes in the safetensors files that a model was loaded from.

    Each has the sha256 of the head in its file.

    `levelhead adjust` leaves its note in the file alone; transformers does not keep it when it
    loads the model, but remembers the folder. The sha256 tells whether the head in memory is still
    the one in the file: after training it is not, and the note says nothing of it.

    Args:
        model: of transformers; others have no folder.
        digests: returns the sha256 of the bytes of a tensor in a dtype, as it is and rounded.
    """
    folder = getattr(getattr(model, "config", None), "_name_or_path", None)
    if not isinstance(folder, str) or not folder:
        return
    for file in sorted(Path(folder).glob("*.safetensors")):
        try:
            header = read_header(file)
            note = note_from(header.metadata, file)
            if note is None:
                continue
            # What was changed is what is compared.
            part = "weight" if multiplied(note) else "bias"
            tensor = header.tensors[f"{note['head'][0]}.{part}"]
            data = bytes_at(file, tensor.offset, ITEM_BYTES[tensor.dtype] * prod(tensor.shape))
            first, *others = digests(data, tensor.dtype)
            yield {**note, "sha256": first, "rounded": others}
        except (OSError, ValueError, LookupError, TypeError):
            continue  # not ours to complain about: the model is in memory


def _adapters(model: LibraryModel) -> dict[str, Any]:
    """Return the configs of a model's active adapters, by name.

    Only those with a version, which PEFT writes since 0.18.
    """
    configs = getattr(model, "peft_config", None)
    if not isinstance(configs, Mapping):
        return {}
    active = model.active_adapters  # a property in PEFT, a method in transformers
    if isinstance(active, Iterable):
        names = list(active)
    else:
        names = list(active())
    adapters = {}
    for name in names:
        if isinstance(getattr(configs[name], "peft_version", None), str):
            adapters[name] = configs[name]
    return adapters


def _put(config: object, note: object) -> None:
    """Set the note of a config; None takes it out."""
    if note is not None:
        setattr(config, NOTE_KEY, note)
    elif hasattr(config, NOTE_KEY):
        delattr(config, NOTE_KEY)
