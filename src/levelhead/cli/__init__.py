"""The command line: parse, call one function, print. Heavy imports wait until a command needs them.

`main` runs one command: it imports all of them, which is cheap, and has typer parse what was typed.
A command imports the library only when it is called. What it raises ends in one line and an exit
status.

A command is a function: its parameters are its options (options.py has those that several commands
share), its docstring is its help, which typer prints as it is. So what engineers need to know stands
in comments, and in the functions that commands call. Each has the same four steps:

1. check that every output can be written (`check_outputs`), before any work is done;
2. read files and words into what the library takes (scores.py, io/);
3. call one function of the library;
4. write what was asked for, and `show` the result: as text, or with --json as one object.

Results go to stdout, all else to stderr (`say`). The exit status is 0 only if all was done: 2 after bad
input, 3 where there is nothing to gain, 130 if interrupted.

models: commands for a model's file: inspect, adjust, undo
tune, compare, apply, report: commands for its scores, one each
options: what several commands take
scores, choosing: what the options of commands for scores say to the library; the ways to choose
common, errors, words: the app, and what all commands share; errors in their words; those of --metric and --rule
"""

import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .common import app

__all__ = ["app", "main"]

WRITERS = ("adjust", "undo")  # the commands that hash a whole file


def __getattr__(name: str) -> Any:
    """Return the app with all its commands, which are imported only now.

    `from levelhead.cli import app` works, and `import levelhead.cli`, as the entry point does it, costs
    nothing: `main` has something to do before typer is imported.
    """
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ..support.extras import from_the_study, has_the_study
    from . import apply, compare, models, report, tune  # noqa: F401  (they add their commands)
    from .common import app

    if has_the_study():
        from_the_study("cli")  # so does this: train, sweep, evaluate, reproduce, demo, methods
    return app


def main() -> None:
    """Run the command line and exit.

    Exit status: 0 if it did what was asked, 2 after bad input, 3 if there is nothing to gain, 130 if it was
    interrupted.
    """
    try:  # all is imported in here, so that Ctrl-C during an import ends it as at any other moment
        code = _run()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _run() -> int:
    """Run the command that was typed, report what it raises, and return the exit status.

    Imports stand where they are needed: those at the top of a module that is imported here would be
    paid for by `levelhead --version`, too.
    """
    if len(sys.argv) > 2 and sys.argv[1] in WRITERS:
        # Before anything else is imported, as it takes longest of all.
        begin_early_digest(*sys.argv[1:])
    import typer

    prepare_output()
    # A module does not find names by its own `__getattr__`, so it is called.
    app = __getattr__("app")
    from .common import say
    from .errors import EXPECTED, NothingToGain, check_words, message_for

    try:
        check_words(sys.argv[1:])
        # Not standalone, in which click would print errors of its own and end the process.
        code = app(standalone_mode=False)
        sys.stdout.flush()  # what was printed may not arrive
        return code
    except typer.Abort:
        return 130
    except NothingToGain as reason:
        say(str(reason))
        return 3
    except BrokenPipeError:  # whoever read the output has seen enough
        drop_output()
        return 1
    except EXPECTED as error:
        # Any other error is a bug, whose traceback is wanted; this one is, too, with LEVELHEAD_DEBUG=1.
        if os.environ.get("LEVELHEAD_DEBUG"):
            raise
        say(message_for(error, typer.main.get_command(app), sys.argv[1:]))
        drop_output()
        return 2


def prepare_output() -> None:
    """Let standard output take all that is printed: a pipe may not have every letter, and may not be there."""
    if sys.stdout is None:  # closed by whoever started this process
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        # On Windows a pipe has no letter for the bars of `inspect`, nor for many a name.
        sys.stdout.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Drop what standard output does not take, or Python tries again as it ends, and complains."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def begin_early_digest(command: str, *words: str) -> None:
    """Begin the sha256 that `adjust` or `undo` will need of the first large file among its arguments.

    It runs in a thread while the rest is imported. Whatever goes wrong here is left for the command
    itself to report. Words are not parsed, only looked at: where a file turns out not to be the model,
    it was read on another core for nothing.

    Args:
        command: `adjust` or `undo`.
        words: what was typed after it.
    """
    from contextlib import suppress
    from pathlib import Path

    from ..files.edits import LARGE_INPUT, begin_early
    from ..files.originals import load_originals

    for before, word in zip(("", *words), words, strict=False):
        path = Path(word)
        with suppress(OSError, ValueError):
            # What follows an option is not the model.
            if before.startswith("-") or not path.is_file() or path.stat().st_size < LARGE_INPUT:
                continue
            edits = []
            if command == "undo":  # by what was kept of the file, in order
                (original,) = load_originals(path.with_name(f"{path.name}.original")).values()
                edits = sorted(original.edits, key=lambda edit: edit.offset)
            begin_early(path, edits)
            return
