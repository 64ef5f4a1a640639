"""The command line: parse, call one function, print. Heavy imports wait until a command needs them.

models, logits: commands for a model's file: inspect, adjust, rescale, undo; for its logits: tune, compare, report
common, errors: the app, and what several commands share; errors in one line, in the words of the command
early: what is begun before anything else is imported
"""

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .common import app

__all__ = ["app", "main"]

WRITERS = ("rescale", "adjust", "undo")  # the commands that hash a whole file


def __getattr__(name: str) -> Any:
    """Return the app with all its commands, which are imported only now."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ..core.extras import from_the_study
    from . import logits, models  # noqa: F401  (they add their commands to the app)
    from .common import app

    from_the_study("cli")  # so does this: train, sweep, evaluate, reproduce, demo, methods
    return app


def main() -> None:
    """Run the command line and exit: 0 if it did what was asked, 2 after bad input, 130 if it was interrupted."""
    try:  # all is imported in here, so that Ctrl-C during an import ends it as at any other moment
        code = _run()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _run() -> int:
    if len(sys.argv) > 2 and sys.argv[1] in WRITERS:
        from .early import begin_early_digest

        begin_early_digest(*sys.argv[1:])

    import typer

    app = __getattr__("app")
    from .common import say
    from .errors import EXPECTED, message_for

    try:
        return app(standalone_mode=False)
    except typer.Abort:
        return 130
    except EXPECTED as error:
        if os.environ.get("LEVELHEAD_DEBUG"):
            raise
        say(message_for(error, typer.main.get_command(app), sys.argv[1:]))
        return 2
