"""An error, told on the command line: in one line, and in the words of the command that was typed.

The library speaks of its arguments as Python does, `rule='shift'`. Where the command has an option of that name, that
is told, `--rule shift`. A parenthesis that speaks of an argument is a way out for whoever has it: where the command has
no such option it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import typer

Usage: Any = typer.BadParameter.__mro__[1]  # click's UsageError, which typer has under no name of its own
EXPECTED = (ValueError, OSError, ImportError, Usage)  # what is told; anything else is our mistake, and shown whole
EXTRAS = {"torch": "torch", "sklearn": "sklearn", "onnx": "onnx", "matplotlib": "plot", "ray": "ray", "numba": "fast",
          "pyarrow": "parquet"}  # module -> extra

_TEXT = r"'[^']*'"
_ARGUMENT = re.compile(rf"\b(\w+)=({_TEXT}(?:(?:, | or ){_TEXT})*|(?=[\s;,)]|$))")  # a file may be called rule=a.npy
_ASIDE = re.compile(r" \([^()]*\b\w+=[^()]*\)")
_VALUE = re.compile(r"(?<==)[\w.]+")  # in an aside, what Python would be given


def told(error: BaseException, group: Any, words: Sequence[str]) -> str:
    """What to print of an error.

    Args:
        error: what a command raised.
        group: all commands, as typer makes them of the app.
        words: what was typed after `levelhead`.
    """
    name = next((word for word in words if word in group.commands), "")
    if isinstance(error, Usage):
        text = error.format_message().rstrip(".")  # pyright: ignore[reportAttributeAccessIssue]
        return f"{text[:1].lower()}{text[1:]} ({f'levelhead {name}'.strip()} -h explains)"
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f"this needs {error.name}: pip install 'levelhead[{EXTRAS[error.name]}]'"
    if isinstance(error, OSError) and error.strerror:
        return ": ".join([*([str(error.filename)] if error.filename is not None else []), error.strerror.lower()])
    text = " ".join(str(error).split()) or type(error).__name__
    return spoken(text, _options(group.commands[name]) if name else {})


def spoken(text: str, options: Mapping[str, str]) -> str:
    """A message of the library in the words of a command.

    Args:
        text: the message, whose arguments are written `name='value'`, or `name=` alone; in an aside, `name=value` too.
        options: of the command, by the name of the argument they are.

    >>> spoken("expected rule='rescale', 'tau' or 'shift', got 'cosine'", {"rule": "--rule"})
    "expected --rule rescale, tau or shift, got 'cosine'"
    >>> message = "class 3 has no samples; leave it out (or pass missing='neutral')"
    >>> spoken(message, {"missing": "--missing"})
    'class 3 has no samples; leave it out (or pass --missing neutral)'
    >>> spoken(message, {})
    'class 3 has no samples; leave it out'
    """
    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in options:
            return found[0]
        return " ".join([options[name], *([value.replace("'", "")] if value.startswith("'") else [])])

    def aside(found: re.Match[str]) -> str:
        named = _VALUE.sub("", found[0])
        return named if all(one[1] in options for one in _ARGUMENT.finditer(named)) else ""

    return _ARGUMENT.sub(option, _ASIDE.sub(aside, text))


def _options(command: Any) -> dict[str, str]:
    """{argument of the function: how its option is typed}."""
    return {each.name: max(each.opts, key=len) for each in command.params if each.opts[0].startswith("-")}
