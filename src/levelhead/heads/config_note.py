"""The note that an adjustment leaves in the config of a transformers model, so that it outlasts saving and loading."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..core.adjust import RULE_TITLES

KEY = "levelhead"  # of the config, and so of config.json


def note_in_config(model: Any) -> Mapping[str, Any] | None:
    """Return what the config of a model says was done to its head, or None.

    Args:
        model: any; without a config, or with one that has something else under our key, there is no note.

    >>> note_in_config(object())
    """
    note = getattr(getattr(model, "config", None), KEY, None)
    if not isinstance(note, Mapping) or not isinstance(rule := note.get("rule"), str) or rule not in RULE_TITLES:
        return None
    return note if isinstance(note.get("gamma"), int | float) and isinstance(note.get("sha256"), str) else None


def leave_note(model: Any, note: Mapping[str, Any]) -> Callable[[], None]:
    """Write a note into the config of a transformers model, which `save_pretrained` saves; return the way back.

    Args:
        model: any; where it has no config that is saved with it, nothing is written.
        note: what was done, as JSON can hold it.

    Returns:
        A function that gives the config what it had.
    """
    config = getattr(model, "config", None)
    if not callable(getattr(config, "to_json_string", None)):
        return _do_nothing
    back = partial(_put, config, getattr(config, KEY, None))
    _put(config, dict(note))
    return back


def extend_note(model: Any, facts: Mapping[str, Any]) -> None:
    """Add facts to the note that an adjustment left in a model's config, if there is one.

    Args:
        model: whose head was adjusted.
        facts: as JSON can hold them.
    """
    if (note := note_in_config(model)) is not None:
        leave_note(model, {**note, **facts})


def drop_note(model: Any) -> None:
    """Take the note out of a model's config, as its head is about to be trained on.

    Args:
        model: any.
    """
    if note_in_config(model) is not None:
        _put(model.config, None)


def _put(config: Any, note: Any) -> None:
    if note is not None:
        setattr(config, KEY, note)
    elif hasattr(config, KEY):
        delattr(config, KEY)


def _do_nothing() -> None:
    return None
