"""The command line: parse, call one function, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import os
import sys

import typer

from . import models, training  # noqa: F401  (their commands join the app, in this order)
from .common import app, say
from .errors import EXPECTED, message_for

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line: 0 when what was asked was done, 2 with one line on bad input, 130 when interrupted."""
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except EXPECTED as error:
        if os.environ.get("LEVELHEAD_DEBUG"):
            raise
        say(message_for(error, typer.main.get_command(app), sys.argv[1:]))
        code = 2
    sys.exit(code)
