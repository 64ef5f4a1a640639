"""The command line: parse, call one function, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any

import typer

from . import __version__

app = typer.Typer(
    name="levelhead",
    help="Level the head of a classifier trained on imbalanced data: during training (WVN), or in one line after it (RS).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def show(result: dict[str, Any], text: str, as_json: bool) -> None:
    """The one place a command prints its result: JSON for programs, text for people."""
    typer.echo(json.dumps(result, indent=2) if as_json else text)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"levelhead {__version__}")
        raise typer.Exit


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Print the card of one: ldam, wvn+rs, my.py:METHOD.")] = None,
    as_json: Json = False,
) -> None:
    """The methods `train` knows: what each changes, the head it needs, and its card."""
    from .methods import METHODS, method_named
    from .methods.card import card, facts, table

    if name is None:
        show({"methods": [facts(method) for method in METHODS.values()]}, table(METHODS.values()), as_json)
    else:
        show(facts(method_named(name)), card(method_named(name)), as_json)


def main() -> None:
    """Run the command line: 0 when what was asked was done, 2 with one line on bad input."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("LEVELHEAD_DEBUG"):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"levelhead: {message}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
