"""Errors on the command line: one line each, with the library's parameters as options of the command typed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from ..core.errors import LevelheadError
from ..core.extras import message_for_missing

UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which typer does not export
# Reported in one line; any other error is a bug of ours.
EXPECTED = (ValueError, OSError, ImportError, MemoryError, UsageError)
OTHER_NAMES = {"range": "--max", "rng": "--seed", "floors": "--floor"}  # parameters whose option has another name


def message_for(error: BaseException, group: Any, words: Sequence[str]) -> str:
    """Return the line to print for an error of a command of the group; words were typed after `levelhead`."""
    name = next((word for word in words if word in group.commands), "")
    if isinstance(error, UsageError):
        text = error.format_message().replace("Value error, ", "").rstrip(".")  # pyright: ignore
        text = re.sub("^Missing argument '[A-Z_]+'", lambda found: found[0].lower(), text)  # so by an older typer
        return f"{text[:1].lower()}{text[1:]} ({f'levelhead {name}'.strip()} -h explains)"
    if isinstance(error, ModuleNotFoundError) and (missing := message_for_missing(error)) is not None:
        return missing
    if isinstance(error, OSError) and error.strerror:
        return ": ".join([*([str(error.filename)] if error.filename is not None else []), error.strerror.lower()])
    if isinstance(error, MemoryError):
        reason = f" ({error})" if str(error) else ""
        return f"not enough memory on this machine{reason}; give fewer samples, or free some memory"
    if isinstance(error, LevelheadError):
        return in_cli_words(error, options_of(group.commands[name]) if name else {})
    return " ".join(str(error).split()) or type(error).__name__


def in_cli_words(error: LevelheadError, options: Mapping[str, str]) -> str:
    """Return the message of an error in the words of a command, with its advice only if the command has that option."""
    subject = "" if error.parameter is None else f"{options.get(error.parameter, error.parameter)}: "
    text = " ".join(f"{subject}{error.message}".split())
    if error.advice is None or error.advice.parameter not in options:
        return text
    parameter, value, effect = error.advice
    return f"{text}; pass {options[parameter]}{'' if value is None else f' {value}'} {effect}"


def options_of(command: Any) -> dict[str, str]:
    """Return {parameter: option} of a command, under the library's name for the parameter too."""
    options = {each.name: max(each.opts, key=len) for each in command.params if each.opts[0].startswith("-")}
    return options | {name: option for name, option in OTHER_NAMES.items() if option in options.values()}
