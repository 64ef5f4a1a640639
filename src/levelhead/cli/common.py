"""The app, options of several commands, how commands print, checks of outputs, and errors in the words of a command."""

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from .._version import __version__
from ..support.errors import LevelheadError, visible
from ..support.extras import message_for_missing

GROUPS: dict[str, tuple[str, ...]] = {  # of commands, each in the order of their use
    "Your model": ("inspect", "adjust", "undo"),
    "Your scores": ("tune", "compare", "apply", "report"),
}
UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which typer does not export
# Reported in one line; any other error is a bug of ours.
EXPECTED = (ValueError, OSError, ImportError, MemoryError, UsageError)
OTHER_NAMES = {"rng": "--seed", "floors": "--floor"}  # parameters whose option has another name
STARTS = [  # what to type first: paragraphs of the help that click does not wrap
    """\b
With a model of your own, its logits on held-out samples, and their labels:
  levelhead tune --logits logits.npy --labels labels.npy -o tuned.json
  levelhead adjust model.safetensors --tuned tuned.json -o adjusted.safetensors
"""
]
MORE_HELP = "levelhead COMMAND --help explains each option and shows an example."


class NothingToGain(Exception):
    """A choice that is not worthwhile, which nothing is done with: exit status 3."""


def check_gain(tuned: Any, path: Path) -> None:
    """Raise NothingToGain if a choice, which is in a file, is known not to be worth applying."""
    if tuned.worthwhile is False:
        reason = f"{path}: nothing to gain: {tuned.change_text()}: {tuned.verdict_text()}"
        raise NothingToGain(f"{reason}; nothing is written; pass --anyway to go on")


class Grouped(TyperGroup):
    """The commands, listed in groups."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in GROUPS.values() for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        room = formatter.width - 6 - max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(room)) for name in names]
                )

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        self.epilog = "\n".join([*STARTS, MORE_HELP])
        super().format_epilog(ctx, formatter)


def add_group(title: str, names: tuple[str, ...], *, start: str) -> None:
    """List commands of another package in the help, as a last group.

    Args:
        title: of the group.
        names: of its commands, in the order of their use.
        start: a paragraph that says which of them to type first; it comes before ours.
    """
    GROUPS[title] = names
    STARTS.insert(0, start)


app = typer.Typer(
    name="levelhead",
    cls=Grouped,
    help="Level the head of a classifier trained on imbalanced data: during training (WVN), or in one line after it.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich takes longer to import than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"levelhead {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def example(*lines: str) -> str:
    """Return the end of a command's help, which click does not wrap: what to type, each on a line of its own."""
    return "\b\n" + "\n".join(["Example:", *(f"  levelhead {line}" for line in lines)])


def show(result: Any, text: str, as_json: bool) -> None:
    """Print the result of a command, a dict or a record: JSON for programs, text for people."""
    if as_json and not isinstance(result, dict):
        from ..support.fields import to_plain

        result = to_plain(result)
    echo(json.dumps(result, indent=2) if as_json else text)


def say(line: str) -> None:
    """Print a line on stderr, which leaves stdout to the result; a line break in it is written out."""
    echo(visible(f"levelhead: {line}"), err=True)


def echo(text: str, *, err: bool = False) -> None:
    """Print a text of one or several lines: all that commands print, with nothing in it that a terminal would obey."""
    typer.echo("\n".join(map(visible, text.split("\n"))), err=err)


def check_words(words: Sequence[str]) -> None:
    """Raise LevelheadError if a word that was typed has a line break: the name of a file would forge a line."""
    for word in words:
        if word.splitlines() not in ([], [word]):
            expected = "expected names of files and values on one line each"
            raise LevelheadError(f"{expected}, got {visible(word)}; rename the file")


def typed_command() -> str:
    """Return the command as it was typed, for the last lines of a page."""
    return shlex.join(["levelhead", *sys.argv[1:]])


def check_outputs(
    *,
    out: Path | None = None,
    labels_out: Path | None = None,
    plot: Path | None = None,
    page: Path | None = None,
    force: bool = False,
    inputs: Sequence[Path | None] = (),
) -> None:
    """Check that every output can be written and that none replaces an input, or another file without --force."""
    from ..io import arrays
    from ..show.plot import check_picture
    from ..support import atomic

    options = {"--out": out, "--labels-out": labels_out, "--plot": plot, "--report": page}
    outputs = {option: path for option, path in options.items() if path is not None}
    sources = []
    for source in inputs:
        if source is not None and arrays.has_known_suffix(source):
            sources.append(arrays.file_of(source))
    for path in outputs.values():
        atomic.check_plain(path)
        if path.exists() and any(file.exists() and path.samefile(file) for file in sources):
            reason = "an input, which is never overwritten; choose another name"
            raise LevelheadError(f"{path}: {reason}")
        if os.path.lexists(path) and not force:
            raise FileExistsError(f"{path} exists; pass --force to replace it")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path.parent}: no such folder to write {path.name} into")
    if len({path.resolve() for path in outputs.values()}) < len(outputs):
        first = next(iter(outputs.values()))
        raise LevelheadError(
            f"{first}: expected a different file for each of {' and '.join(outputs)}"
        )
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise LevelheadError(f"{page}: expected a page that ends in .html")
    if plot is not None:
        check_picture(plot)


def message_for(error: BaseException, group: Any, words: Sequence[str]) -> str:
    """Return the line to print for an error of a command of the group; words were typed after `levelhead`."""
    name = next((word for word in words if word in group.commands), "")
    if isinstance(error, UsageError):
        text = error.format_message().replace("Value error, ", "").rstrip(".")  # pyright: ignore
        # An older typer writes the names of arguments in capitals.
        text = re.sub("^Missing argument '[A-Z_]+'", lambda found: found[0].lower(), text)
        return f"{text[:1].lower()}{text[1:]} ({f'levelhead {name}'.strip()} -h explains)"
    if isinstance(error, ModuleNotFoundError):
        missing = message_for_missing(error)
        if missing is not None:
            return missing
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror.lower()
        if error.filename is None:
            return reason
        return f"{error.filename}: {reason}"
    if isinstance(error, MemoryError):
        reason = f" ({error})" if str(error) else ""
        return f"not enough memory on this machine{reason}; give fewer samples, or free some memory"
    if isinstance(error, LevelheadError):
        return in_cli_words(error, options_of(group.commands[name]) if name else {})
    return " ".join(str(error).split()) or type(error).__name__


def in_cli_words(error: LevelheadError, options: Mapping[str, str]) -> str:
    """Return the message of an error in the words of a command, with its advice only if the command has that option."""
    text = error.message
    if error.parameter is not None:
        text = f"{options.get(error.parameter, error.parameter)}: {text}"
    text = " ".join(text.split())
    if error.advice is None or error.advice.parameter not in options:
        return text
    parameter, value, effect = error.advice
    if value is None:
        option = options[parameter]
    else:
        option = f"{options[parameter]} {value}"
    return f"{text}; pass {option} {effect}"


def options_of(command: Any) -> dict[str, str]:
    """Return {parameter: option} of a command, under the library's name for the parameter too."""
    options = {
        each.name: max(each.opts, key=len)
        for each in command.params
        if each.opts[0].startswith("-")
    }
    for name, option in OTHER_NAMES.items():
        if option in options.values():
            options[name] = option
    return options
