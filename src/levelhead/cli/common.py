"""What all commands share: the app they add themselves to, how they print, and checks of their outputs.

A module of commands imports `app` and decorates its functions with ``@app.command``; importing it adds
them. `GROUPS` says in which order the help lists them, and another package adds its own by `add_group`.
Nothing of the library is imported at the top: `levelhead --help` must not wait for numpy.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option
from typer.core import TyperGroup

from .._version import __version__
from ..support.errors import LevelheadError, visible
from .errors import NothingToGain
from .words import Click

if TYPE_CHECKING:
    from ..core.tuned import Tuned

GROUPS: dict[str, tuple[str, ...]] = {  # of commands, each in the order of their use
    "Your model": ("inspect", "adjust", "undo"),
    "Your scores": ("tune", "compare", "apply", "report"),
}
STARTS = [  # what to type first: paragraphs of the help that click does not wrap
    """\b
With a model of your own, its logits on held-out samples, and their labels:
  levelhead tune --logits logits.npy --labels labels.npy -o tuned.json
  levelhead adjust model.safetensors --tuned tuned.json -o adjusted.safetensors
"""
]
MORE_HELP = "levelhead COMMAND --help explains each option and shows an example."


# ---- The app -----------------------------------------------------------------------------------


class Grouped(TyperGroup):
    """The commands, listed in groups, each in the order of their use, with what to type first at the end."""

    def list_commands(self, ctx: Click) -> list[str]:
        """Return the names of all commands in the order of the help; completion goes by it, too."""
        names = []
        for group in GROUPS.values():
            names += group
        return names

    def format_commands(self, ctx: Click, formatter: Click) -> None:
        """Write a section for each group: the first sentence of each command, cut to a line."""
        # The indent, the longest name, and the gap after it are not for the sentence.
        room = formatter.width - 6 - max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(room)) for name in names]
                )

    def format_epilog(self, ctx: Click, formatter: Click) -> None:
        """Write what to type first, now that all packages have added theirs."""
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
    # `levelhead` alone did nothing that was asked: the help goes to stderr, with the status of bad input.
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def example(*lines: str) -> str:
    """Return the end of a command's help, which click does not wrap: what to type, each on a line of its own.

    A test runs every example as it stands.

    Args:
        lines: without the word levelhead.
    """
    return "\b\n" + "\n".join(["Example:", *(f"  levelhead {line}" for line in lines)])


def typed_command() -> str:
    """Return the command as it was typed, quoted so that it can be pasted, for the last lines of a page."""
    return shlex.join(["levelhead", *sys.argv[1:]])


# ---- What is printed ---------------------------------------------------------------------------


def show(result: object, text: str, as_json: bool) -> None:
    """Print the result of a command on stdout.

    Args:
        result: a dict or a record (a dataclass), printed as JSON for programs.
        text: the same for people.
        as_json: which of the two to print.
    """
    # One object and nothing else, so that `levelhead ... --json | jq` always works.
    if as_json:
        if not isinstance(result, dict):
            from ..support.fields import to_plain

            result = to_plain(result)
        text = json.dumps(result, indent=2)
    echo(text)


def say(line: str) -> None:
    """Print a line on stderr, which leaves stdout to the result; a line break in it is written out.

    Names of files and classes are in it, and could else forge a second line.
    """
    echo(visible(f"levelhead: {line}"), err=True)


def echo(text: str, *, err: bool = False) -> None:
    """Print a text of one or several lines: all that commands print, with nothing in it that a terminal would obey."""
    typer.echo("\n".join(map(visible, text.split("\n"))), err=err)


def with_files(text: str, *written: Path | None) -> str:
    """Return a text with a last line that names the files that were written, None where there is none."""
    files = [str(path) for path in written if path is not None]
    if not files:
        return text
    return f"{text}\nwritten: {', '.join(files)}"


# ---- Before anything is done -------------------------------------------------------------------


def read_choice(path: Path, *, anyway: bool) -> Tuned:
    """Return the choice of a file; raise NothingToGain if it is known not to be worth applying.

    A choice without evidence (made without labels) is applied: nothing is known against it.

    Args:
        path: of what `levelhead tune` wrote.
        anyway: whether it is to be applied all the same.
    """
    from ..core.tuned import tuned_of

    # None is not False: of a choice made without labels nobody knows.
    tuned = tuned_of(path)
    if tuned.worthwhile is False and not anyway:
        reason = f"{path}: nothing to gain: {tuned.change_text()}: {tuned.verdict_text()}"
        raise NothingToGain(f"{reason}; nothing is written; pass --anyway to go on")
    return tuned


def say_not_judged(path: Path) -> None:
    """Say of a choice without labels, when it was applied, that nobody knows what it gains."""
    say(f"{path} was chosen without labels, so what it gains is not known")


def check_outputs(
    *,
    out: Path | None = None,
    labels_out: Path | None = None,
    plot: Path | None = None,
    page: Path | None = None,
    force: bool = False,
    inputs: Sequence[Path | str | None] = (),
) -> None:
    """Check that every output can be written, so that no work is done for nothing.

    And so that nothing is written if something cannot be: of a choice and a page, both appear or none.

    Args:
        out, labels_out, plot, page: what a command is asked to write.
        force: whether files that exist may be replaced.
        inputs: what it reads, which is never replaced, --force or not; words that are no files, such as
            counts with commas between them, are left out.

    Raises:
        LevelheadError: an output is an input, a device, or two outputs are one file; or its name has
            another ending than its format.
        OSError: it exists and may not be replaced, or its folder is missing or takes no file.
    """
    from ..show.plot import check_picture
    from ..support import atomic

    # By the options' names, which the messages have.
    options = {"--out": out, "--labels-out": labels_out, "--plot": plot, "--report": page}
    outputs = {option: path for option, path in options.items() if path is not None}
    for path in outputs.values():
        atomic.check_plain(path)
        check_no_input(path, inputs)
        # A link that leads nowhere is there, too, and would be replaced.
        if os.path.lexists(path) and not force:
            raise FileExistsError(f"{path} exists; pass --force to replace it")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path.parent}: no such folder to write {path.name} into")
        # A folder may exist and still take no file. Only trying tells; else the first of several outputs
        # would be written before the second fails.
        with atomic.named_errors(path), atomic.scratch(path):
            pass
    # One file by two names: the second would replace the first.
    if len({path.resolve() for path in outputs.values()}) < len(outputs):
        first = next(iter(outputs.values()))
        raise LevelheadError(
            f"{first}: expected a different file for each of {' and '.join(outputs)}"
        )
    # What the writers would say of a name, before the work is done.
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise LevelheadError(f"{page}: expected a page that ends in .html")
    if plot is not None:
        check_picture(plot)


def check_no_input(out: Path, inputs: Sequence[Path | str | None]) -> None:
    """Raise LevelheadError if an output is the file of an input, which may be FILE:KEY, or words instead."""
    from ..io import arrays

    if not out.exists():
        return
    for source in inputs:
        if source is None or not arrays.has_known_suffix(source):
            continue
        file = arrays.file_of(source)
        if file.exists() and out.samefile(file):
            reason = "an input, which is never overwritten; choose another name"
            raise LevelheadError(f"{out}: {reason}")
