"""The note that an adjustment leaves in the config of a transformers model, so that it outlasts saving and loading.

An adapter of PEFT is saved with a config of its own. PEFT ignores, with a warning, what that config does not know, so
the note is in its `peft_version`: of "0.21.2@levelhead:{...}" PEFT reads what is in front of the @.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from ..core.adjust import RULE_TITLES

KEY = "levelhead"  # of the config, and so of config.json
_IN_ADAPTER = "@levelhead:"
_ADAPTER = re.compile(r"\.modules_to_save\.([^.]+)")


def notes_in_config(model: Any) -> list[Mapping[str, Any]]:
    """Return what the config of a model, and those of its active adapters, say was done to its head.

    Args:
        model: any; without a config, or with one that has something else under our key, there is no note.

    Returns:
        One note for the model and each active adapter that has one.

    >>> notes_in_config(object())
    []
    """
    found = [getattr(getattr(model, "config", None), KEY, None), *map(_note_of_adapter, _adapters(model).values())]
    return [note for note in found if _is_note(note)]


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
        back.append(partial(_put, config, getattr(config, KEY, None)))
        _put(config, dict(note))
    for adapter in _adapters_of(model, note):
        back.append(partial(setattr, adapter, "peft_version", adapter.peft_version))
        adapter.peft_version = f"{_version_of(adapter)}{_IN_ADAPTER}{json.dumps(note)}"
    return partial(_run_all, back)


def extend_note(model: Any, facts: Mapping[str, Any]) -> None:
    """Add facts to the note that an adjustment left in a model's config, if there is one.

    Args:
        model: whose head was adjusted.
        facts: as JSON can hold them.
    """
    if notes := notes_in_config(model):
        leave_note(model, {**notes[0], **facts})


def drop_note(model: Any) -> None:
    """Take the notes out of the configs of a model and its active adapters, as its head is about to be trained on.

    Args:
        model: any.
    """
    if _is_note(getattr(getattr(model, "config", None), KEY, None)):
        _put(model.config, None)
    for adapter in _adapters(model).values():
        if _is_note(_note_of_adapter(adapter)):
            adapter.peft_version = _version_of(adapter)


def _is_note(note: Any) -> bool:
    if not isinstance(note, Mapping) or not isinstance(rule := note.get("rule"), str) or rule not in RULE_TITLES:
        return False
    return isinstance(note.get("gamma"), int | float) and isinstance(note.get("sha256"), str)


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
    return adapter.peft_version.partition(_IN_ADAPTER)[0]


def _note_of_adapter(adapter: Any) -> Any:
    try:
        return json.loads(adapter.peft_version.partition(_IN_ADAPTER)[2])
    except (ValueError, RecursionError):
        return None


def _put(config: Any, note: Any) -> None:
    if note is not None:
        setattr(config, KEY, note)
    elif hasattr(config, KEY):
        delattr(config, KEY)


def _run_all(steps: list[Callable[[], None]]) -> None:
    for step in steps:
        step()
