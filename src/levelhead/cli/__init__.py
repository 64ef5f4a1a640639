"""The command line: parse, call one function, print. Heavy imports wait until a command needs them.

models: commands for a trained model: inspect, rescale, tune, undo, report
training: commands for training: methods, train, sweep, evaluate, reproduce, demo
common: the app, shared options, and how commands print
errors: errors in one line, in the words of the command
outputs: checks of the files that a command will write
tune_files: what `levelhead tune` does
demo: what `levelhead demo` does
"""

import os
import sys

import typer

from . import models, training  # noqa: F401  (they add their commands to the app, in this order)
from .common import app, say
from .errors import EXPECTED, message_for

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line and exit: 0 if it did what was asked, 2 after bad input, 130 if it was interrupted."""
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
