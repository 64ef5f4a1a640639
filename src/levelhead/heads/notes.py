"""The note of an adjustment: what was done to which head. Files have it in metadata, models and adapters in configs."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ..io.safetensors_file import ITEM_BYTES, read_header
from ..support.errors import LevelheadError
from ..support.regular_file import bytes_at
from ..support.text import parse_json

Note = Mapping[str, Any]
NOTE_KEY = "levelhead"  # of a config, and so of config.json
# PEFT warns of what its config does not know, but of a version "0.21.2@levelhead:{...}" it reads what precedes the @.
IN_VERSION = "@levelhead:"
TEXTS = ("version", "rule", "bias", "sha256")
# The entries of a note in a file's metadata: {name there: field}. A snapshot's entries have the same prefix; those are
# not a note's.
NOTE = {
    f"levelhead.{field}": field
    for field in (*TEXTS, "strength", "counts", "head", "scale", "offset", "along", "before")
}
_ADAPTER = re.compile(r"\.modules_to_save\.([^.]+)")


def note_entries(note: Note) -> dict[str, str]:
    """Return a note as the strings that metadata can hold: texts as they are, everything else as JSON."""
    held = {key: (field, note[field]) for key, field in NOTE.items() if field in note}
    return {
        key: value if field in TEXTS else json.dumps(value) for key, (field, value) in held.items()
    }


def note_from(entries: Mapping[str, str], file: Path) -> dict[str, Any] | None:
    """Return the note among a file's metadata, or None."""
    ours = {field: entries[key] for key, field in NOTE.items() if key in entries}
    if "rule" not in ours:
        return None
    note = {field: text if field in TEXTS else _json(text) for field, text in ours.items()}
    return check_note(None if None in note.values() else note, file)


def note_from_json(data: bytes | None, file: Path) -> dict[str, Any] | None:
    """Return the note that a file has as JSON, or None without data."""
    if data:
        return check_note(_json(data), file)
    return None


def _json(text: str | bytes) -> Any:
    """Return what JSON says; None if it is none."""
    try:
        return parse_json(text if isinstance(text, str) else text.decode())
    except ValueError:
        return None


def check_note(note: Any, file: Path) -> dict[str, Any]:
    """Return the note if an adjustment of a file can have written it: others may write into its metadata too."""
    valid = _says_what_was_done(note) and note.get("bias") in ("scale", "keep")
    if valid and "before" in note:
        check_note(note["before"], file)
    if not valid:
        reason = "its record of an earlier adjustment is damaged"
        raise LevelheadError(f"{file}: {reason}; save the model again without it")
    return note


def is_note(note: Any) -> TypeGuard[Note]:
    """Return whether something in a config is a note of ours, with the sha256 of what changed."""
    return _says_what_was_done(note) and isinstance(note.get("sha256"), str)


def _says_what_was_done(note: Any) -> bool:
    """Return whether something has the entries of a note: version, rule, strength, head, scale and offset."""
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
    """Return what was done in words: the rule and, where it has one, its strength."""
    if strength is None:
        return rule
    return f"{rule}, strength {strength:g}"


def digests_in(note: Note) -> tuple[str, ...]:
    """Return every sha256 by which a note knows the head: as it is, and rounded to other dtypes."""
    rounded = note.get("rounded")
    others = []
    if isinstance(rounded, list):
        others = [one for one in rounded if isinstance(one, str)]
    return note["sha256"], *others


def note_in_version(version: Any) -> Any:
    """Return what is noted behind the version in an adapter's config, or None; `is_note` tells whether it is a note."""
    if isinstance(version, str):
        return _json(version.partition(IN_VERSION)[2])
    return None


def leave_note(model: Any, note: Note) -> Callable[[], None]:
    """Write a note into the config that `save_pretrained` saves with a model or an adapter; return the way back."""
    config, back = getattr(model, "config", None), []
    if callable(getattr(config, "to_json_string", None)):
        back.append(partial(_put, config, getattr(config, NOTE_KEY, None)))
        _put(config, dict(note))
    names = dict.fromkeys(
        name for path in note.get("head", ()) for name in _ADAPTER.findall(f".{path}")
    )
    # Whose own heads were adjusted.
    for adapter in [one for name, one in _adapters(model).items() if name in names]:
        back.append(partial(setattr, adapter, "peft_version", adapter.peft_version))
        version, *_ = adapter.peft_version.partition(IN_VERSION)
        adapter.peft_version = f"{version}{IN_VERSION}{json.dumps(note)}"
    return partial(run_all, back)


def extend_note(model: Any, facts: Note) -> None:
    """Add facts, as JSON can hold them, to the note that an adjustment left in a model's config, if there is one."""
    if notes := notes_in_configs(model):
        leave_note(model, {**notes[0], **facts})


def drop_note(model: Any) -> None:
    """Take the notes out of the configs of a model and its active adapters, as its head is about to be trained on."""
    if is_note(getattr(getattr(model, "config", None), NOTE_KEY, None)):
        _put(model.config, None)
    for adapter in _adapters(model).values():
        if is_note(note_in_version(adapter.peft_version)):
            adapter.peft_version, *_ = adapter.peft_version.partition(IN_VERSION)


def run_all(steps: Sequence[Callable[[], None]]) -> None:
    """Call one function after the other."""
    for step in steps:
        step()


def notes_in_configs(model: Any) -> list[Note]:
    """Return what the configs of a model and its active adapters say was done."""
    own = getattr(getattr(model, "config", None), NOTE_KEY, None)
    return [
        n
        for n in (own, *(note_in_version(a.peft_version) for a in _adapters(model).values()))
        if is_note(n)
    ]


def notes_in_files(model: Any, digests: Callable[[bytes, str], tuple[str, ...]]) -> Iterator[Note]:
    """Yield what the safetensors files of the folder that a model was loaded from say, with the sha256 of the head."""
    folder = getattr(getattr(model, "config", None), "_name_or_path", None)
    for file in (
        sorted(Path(folder).glob("*.safetensors")) if isinstance(folder, str) and folder else []
    ):
        try:
            header = read_header(file)
            if (note := note_from(header.metadata, file)) is None:
                continue
            part = "weight" if multiplied(note) else "bias"
            tensor = header.tensors[f"{note['head'][0]}.{part}"]
            data = bytes_at(file, tensor.offset, ITEM_BYTES[tensor.dtype] * prod(tensor.shape))
            first, *others = digests(data, tensor.dtype)
            yield {**note, "sha256": first, "rounded": others}
        except (OSError, ValueError, LookupError, TypeError):
            continue  # not ours to complain about: the model is in memory


def _adapters(model: Any) -> dict[str, Any]:
    """Return the configs of a model's active adapters that have a version (since PEFT 0.18), by name."""
    configs = getattr(model, "peft_config", None)
    if not isinstance(configs, Mapping):
        return {}
    active: Any = model.active_adapters  # a property in PEFT, a method in transformers
    names: Any = active() if callable(active) else active
    return {
        name: configs[name]
        for name in names
        if isinstance(getattr(configs[name], "peft_version", None), str)
    }


def _put(config: Any, note: Any) -> None:
    if note is not None:
        setattr(config, NOTE_KEY, note)
    elif hasattr(config, NOTE_KEY):
        delattr(config, NOTE_KEY)
