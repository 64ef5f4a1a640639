"""The note about an adjustment in memory, as config.json keeps it for a model, and adapter_config.json for an adapter.

PEFT ignores, with a warning, what its config does not know. So an adapter's note is in its `peft_version`: of
"0.21.2@levelhead:{...}" PEFT reads what is in front of the @.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from ..rules.rule import RULES

NOTE_KEY = "levelhead"  # of the config, and so of config.json
IN_VERSION = "@levelhead:"


def is_note(note: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether something in a config is a note of ours.

    Args:
        note: any.

    Returns:
        Whether it has a rule, its strength, the sha256 of what the rule changed, and the version that did it.

    >>> is_note({"rule": "rescale", "gamma": 0.5, "sha256": "ab", "version": "0.1.0"}), is_note("yes")
    (True, False)
    """
    if not isinstance(note, Mapping) or not isinstance(rule := note.get("rule"), str) or rule not in RULES:
        return False
    return isinstance(note.get("gamma"), int | float) and all(
        isinstance(note.get(k), str) for k in ("sha256", "version")
    )


def note_digests(digests: Sequence[str]) -> dict[str, Any]:
    """Return how a note keeps the sha256 of what a rule changed: as it was, and rounded to other dtypes.

    Args:
        digests: at least one; the first is of the numbers as they were.

    >>> note_digests(["ab", "cd"])
    {'sha256': 'ab', 'rounded': ['cd']}
    """
    first, *others = digests
    return {"sha256": first, "rounded": others}


def digests_in(note: Mapping[str, Any]) -> tuple[str, ...]:
    """Return every sha256 by which a note knows the head: older ones have one.

    Args:
        note: what `is_note` calls one.

    >>> digests_in({"sha256": "ab", "rounded": ["cd"]}), digests_in({"sha256": "ab"})
    (('ab', 'cd'), ('ab',))
    """
    rounded = note.get("rounded")
    others = [one for one in rounded if isinstance(one, str)] if isinstance(rounded, list) else []
    return note["sha256"], *others


def note_in_version(version: Any) -> Any:
    """Return the note behind the version in an adapter's config, or None.

    Args:
        version: the `peft_version`.

    Returns:
        What is noted; `is_note` tells whether it is a note.

    >>> note_in_version('0.21.2@levelhead:{"rule": "shift"}'), note_in_version("0.21.2")
    ({'rule': 'shift'}, None)
    """
    try:
        return json.loads(version.partition(IN_VERSION)[2]) if isinstance(version, str) else None
    except (ValueError, RecursionError):
        return None
