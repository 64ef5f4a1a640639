"""The app, the options that several commands have, and how commands print."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .._version import __version__

# In the order of their use: first for a model that is trained, then for a training.
ORDER = ("demo", "inspect", "tune", "compare", "adjust", "undo", "rescale", "report")
ORDER += ("methods", "train", "evaluate", "sweep", "reproduce")
START = """
\b
To see what it does, with nothing at hand:
  levelhead demo
\b
With a model of your own, its logits on held-out samples, and their labels:
  levelhead tune --logits logits.npy --labels labels.npy \\
    --counts 5000,500,50 -o tuned.json
  levelhead adjust model.safetensors --tuned tuned.json -o leveled.safetensors

levelhead COMMAND --help explains each option and shows an example.
"""

app = typer.Typer(
    name="levelhead",
    epilog=START,
    help="Level the head of a classifier trained on imbalanced data: in training (WVN), or in one line after it (RS).",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich takes longer to import than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Page = Annotated[Path | None, typer.Option("--report", help="Write a page that shows the effect: page.html.")]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"levelhead {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def example(*lines: str) -> str:
    """Return the end of a command's help: what to type, each on a line of its own.

    Args:
        lines: commands, without `levelhead`.

    Returns:
        Text that click does not wrap.

    >>> print(example("demo").lstrip("\\b"))
    <BLANKLINE>
    Example:
      levelhead demo
    """
    return "\b\n" + "\n".join(["Example:", *(f"  levelhead {line}" for line in lines)])


def show(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print the result of a command: JSON for programs, text for people."""
    typer.echo(json.dumps(result, indent=2) if as_json else text)


def say(line: str) -> None:
    """Print a line on stderr, which leaves stdout to the result."""
    typer.echo(f"levelhead: {line}", err=True)


def typed_command() -> str:
    """Return the command as it was typed, for the last lines of a page."""
    return shlex.join(["levelhead", *sys.argv[1:]])
