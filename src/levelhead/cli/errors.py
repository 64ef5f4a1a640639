"""Errors as commands report them: one line on stderr, in the words of the command line.

The library raises a `LevelheadError` that names a parameter of a function. `message_for` puts the
option of the command in its place, and does as much for errors of other kinds: those of the parser,
of the system, of a library that is not installed.

A parameter becomes an option by name (`options_of`): `chosen_on` is --chosen-on. So options are called
like parameters, and where they cannot be, `OTHER_NAMES` says it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from ..support.errors import LevelheadError, message_of, visible
from ..support.extras import message_for_missing

UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which typer does not export
# Reported in one line; any other error is a bug of ours, and its traceback is shown.
EXPECTED = (ValueError, OSError, ImportError, MemoryError, UsageError)
OTHER_NAMES = {"rng": "--seed", "floors": "--floor"}  # parameters whose option has another name
# A click command or group, whose classes typer does not export either.
Command = Any


class NothingToGain(Exception):
    """A choice that is not worthwhile, which nothing is done with: exit status 3."""


def check_words(words: Sequence[str]) -> None:
    """Raise LevelheadError if a word that was typed has a line break: the name of a file would forge a line.

    Checked once for all words, as names of files get into messages, pages and tuned.json.
    """
    for word in words:
        if word.splitlines() not in ([], [word]):
            expected = "expected names of files and values on one line each"
            raise LevelheadError(f"{expected}, got {visible(word)}; rename the file")


def message_for(error: BaseException, group: Command, words: Sequence[str]) -> str:
    """Return the line to print for an error.

    Args:
        error: what a command raised, one of `EXPECTED`.
        group: all commands.
        words: what was typed after `levelhead`.
    """
    # The command's own options say how its parameters are called; before one is named, there are none.
    name = next((word for word in words if word in group.commands), "")
    if isinstance(error, UsageError):
        return _usage_message(error, name)
    if isinstance(error, ModuleNotFoundError):
        message = message_for_missing(error)
        if message is not None:
            return message
    if isinstance(error, MemoryError):
        reason = ""
        if str(error):  # how much could not be had
            reason = f" ({error})"
        return f"not enough memory on this machine{reason}; give fewer samples, or free some memory"
    if isinstance(error, LevelheadError):
        options = {}
        if name:
            options = options_of(group.commands[name])
        return in_cli_words(error, options)
    return message_of(error)


def _usage_message(error: BaseException, name: str) -> str:
    """Return click's message as one of ours: it begins small and says where help is.

    Args:
        error: click's UsageError: an unknown option, a value that cannot be parsed, something missing.
        name: of the command; empty if none was named.
    """
    text = error.format_message().rstrip(".")  # pyright: ignore
    # typer 0.29 checks values by pydantic, whose sentences begin so.
    text = text.replace("Value error, ", "").replace(": Input should be ", ": expected ")
    command = f"levelhead {name}".strip()
    return f"{text[:1].lower()}{text[1:]} ({command} -h explains)"


def in_cli_words(error: LevelheadError, options: Mapping[str, str]) -> str:
    """Return the message of an error in the words of a command.

    Its advice is given only if the command has an option for it.

    Args:
        error: with a parameter of a function, and another that would help.
        options: {parameter: option}, as `options_of` returns them.
    """
    # A parameter that the command has no option for keeps its name.
    text = error.message
    if error.parameter is not None:
        text = f"{options.get(error.parameter, error.parameter)}: {text}"
    # Readers of samples put a file before their message, and this word where counts were typed.
    elif text.startswith("counts: ") and "counts" in options:
        text = text.replace("counts", options["counts"], 1)
    text = " ".join(text.split())
    if error.advice is None or error.advice.parameter not in options:
        return text
    parameter, value, effect = error.advice
    # The parameter itself without a word to type: in Python `rule` may be an object as well.
    if parameter == error.parameter and value is None:
        return text
    # "pass missing='neutral' to ..." as "pass --missing neutral to ...".
    option = options[parameter]
    if value is not None:
        option = f"{option} {value}"
    return f"{text}; pass {option} {effect}"


def options_of(command: Command) -> dict[str, str]:
    """Return {parameter: option} of a command, under the library's name for the parameter too.

    Arguments, which have no option, are left out: messages about them name the file.
    """
    options = {}
    for parameter in command.params:
        if parameter.opts[0].startswith("-"):
            options[parameter.name] = max(parameter.opts, key=len)  # --out, and not -o
    for name, option in OTHER_NAMES.items():
        if option in options.values():
            options[name] = option
    return options
