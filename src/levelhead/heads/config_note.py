"""The note that an adjustment leaves in the config of a transformers model, so that it outlasts saving and loading.

An adapter of PEFT is saved with a config of its own, which has the note too. A file that was adjusted has its note in
its metadata, and is found by the name that the config of a loaded model keeps.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from ..io.safetensors_file import ITEM_BYTES, read_header
from ..rules.rule import RULES
from .model_note import IN_VERSION, NOTE_KEY, is_note, note_digests, note_in_version

_ADAPTER = re.compile(r"\.modules_to_save\.([^.]+)")


def notes_about(model: Any) -> list[Mapping[str, Any]]:
    """Return what the config of a model, those of its active adapters, and the files it was loaded from say was done.

    Args:
        model: any; without a config, or with one that has something else under our key, there is no note.

    Returns:
        Notes, of which those hold whose sha256 is that of what the rule changes in the head.

    >>> notes_about(object())
    []
    """
    return [*_notes_in_configs(model), *_notes_in_files(model)]


def leave_note(model: Any, note: Mapping[str, Any]) -> Callable[[], None]:
    """Write a note into the config that `save_pretrained` saves with a model or an adapter; return the way back.

    Args:
        model: any; where it has no config that is saved with it, nothing is written.
        note: what was done, as JSON can hold it; `head` has the paths of the layers.

    Returns:
        A function that gives the configs what they had.
    """
    config, back = getattr(model, "config", None), []
    if callable(getattr(config, "to_json_string", None)):
        back.append(partial(_put, config, getattr(config, NOTE_KEY, None)))
        _put(config, dict(note))
    for adapter in _adapters_of(model, note):
        back.append(partial(setattr, adapter, "peft_version", adapter.peft_version))
        adapter.peft_version = f"{_version_of(adapter)}{IN_VERSION}{json.dumps(note)}"
    return partial(_run_all, back)


def extend_note(model: Any, facts: Mapping[str, Any]) -> None:
    """Add facts to the note that an adjustment left in a model's config, if there is one.

    Args:
        model: whose head was adjusted.
        facts: as JSON can hold them.
    """
    if notes := _notes_in_configs(model):
        leave_note(model, {**notes[0], **facts})


def drop_note(model: Any) -> None:
    """Take the notes out of the configs of a model and its active adapters, as its head is about to be trained on.

    Args:
        model: any.
    """
    if is_note(getattr(getattr(model, "config", None), NOTE_KEY, None)):
        _put(model.config, None)
    for adapter in _adapters(model).values():
        if is_note(note_in_version(adapter.peft_version)):
            adapter.peft_version = _version_of(adapter)


def _notes_in_configs(model: Any) -> list[Mapping[str, Any]]:
    own = getattr(getattr(model, "config", None), NOTE_KEY, None)
    return [n for n in (own, *(note_in_version(a.peft_version) for a in _adapters(model).values())) if is_note(n)]


def _notes_in_files(model: Any) -> Iterator[Mapping[str, Any]]:
    """Yield what the safetensors files of the folder that a model was loaded from say, with the sha256 of the head."""
    folder = getattr(getattr(model, "config", None), "_name_or_path", None)
    files = sorted(Path(folder).glob("*.safetensors")) if isinstance(folder, str) and folder else []
    if files:
        from .torch_model import as_tensor, tensor_digests  # where there are files, a torch model was loaded from them
    for file in files:
        try:
            header = read_header(file)
            known = {key.removeprefix("levelhead."): value for key, value in header.metadata.items()}
            [head, *_] = json.loads(known["head"])
            tensor = header.tensors[f"{head}.{'weight' if RULES[known['rule']].multiplies else 'bias'}"]
            with file.open("rb") as opened:
                opened.seek(tensor.offset)
                data = opened.read(ITEM_BYTES[tensor.dtype] * prod(tensor.shape))
            digests = tensor_digests(as_tensor(data, tensor.dtype))
            note = {**known, "gamma": json.loads(known["gamma"]), **note_digests(digests)}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue  # not adjusted, or not ours to complain about: the model is in memory
        if is_note(note):
            yield note


def _adapters(model: Any) -> dict[str, Any]:
    """Return the configs of a model's active adapters that have a version (since PEFT 0.18), by name."""
    configs = getattr(model, "peft_config", None)
    if not isinstance(configs, Mapping):
        return {}
    active: Any = model.active_adapters  # a property in PEFT, a method in transformers
    names: Any = active() if callable(active) else active
    return {name: configs[name] for name in names if isinstance(getattr(configs[name], "peft_version", None), str)}


def _adapters_of(model: Any, note: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the configs of the adapters whose own heads were adjusted."""
    adapters = _adapters(model)
    names = dict.fromkeys(name for path in note.get("head", ()) for name in _ADAPTER.findall(f".{path}"))
    return (adapters[name] for name in names if name in adapters)


def _version_of(adapter: Any) -> str:
    return adapter.peft_version.partition(IN_VERSION)[0]


def _put(config: Any, note: Any) -> None:
    if note is not None:
        setattr(config, NOTE_KEY, note)
    elif hasattr(config, NOTE_KEY):
        delattr(config, NOTE_KEY)


def _run_all(steps: list[Callable[[], None]]) -> None:
    for step in steps:
        step()
