"""Stopping long work by Ctrl-C or SIGTERM: it ends with one line that says what is done and how to resume.

A terminal sends Ctrl-C to every process of a command. Only the first process acts on it. Its workers are started while
interrupts are blocked, and end when the first process tells them to, or with it.

`graceful_stop` is for the first process, `interrupts_blocked` for the moment in which it starts a
worker, and `exit_with_parent` is the first thing that a worker does. Without them, Ctrl-C would print
a traceback of every process, and a worker whose parent was killed would train on, holding its lock.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def graceful_stop(summary: Callable[[], str], say: Callable[[str], None]) -> Iterator[None]:
    """Run a block that can be resumed; when told to stop, say what is done and exit.

    The exit status is 128 plus the number of the signal, as shells expect it: 130 after Ctrl-C, 143
    after SIGTERM, which is how clusters and `kill` ask a process to end.

    Args:
        summary: called when stopped; returns what is done so far, such as `runs/a keeps 3 of 20 epochs`.
        say: called with the line for people.
    """
    # Only the main thread receives signals, and only it may set what they do.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise_interrupt)
    try:
        yield
    except KeyboardInterrupt as stop:
        # It is ending already: an impatient second signal must not cut the last line off. What
        # SIGTERM did before is not restored either.
        before = signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say(f"levelhead: stopped; {summary()}; run the same command again to resume")
        number = signal.SIGINT  # Python raises a KeyboardInterrupt without arguments for it
        if stop.args:
            number = stop.args[0]
        raise SystemExit(128 + number) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise_interrupt(number: int, frame: object) -> None:
    """Handle SIGTERM as Python handles Ctrl-C, so that one `except` ends both."""
    raise KeyboardInterrupt(number)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C for the processes started in this block, from their first import on.

    A process inherits which signals are blocked, and keeps that. To ignore them in the worker's own
    code would be too late: torch takes seconds to import, and an interrupt in them prints a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    resource_tracker.ensure_running()  # first, as starting it unblocks all signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def exit_with_parent() -> None:
    """Let this worker clean up and exit on SIGTERM, and exit at once when its parent is gone.

    To be called once, first of all, in a process that `multiprocessing` started.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    # A parent that is killed tells nobody: a thread waits for its end. It cannot raise in the main
    # thread, so it ends the process; what the run has written so far is whole.
    def watch() -> None:
        """Wait for the parent's end, then end this process."""
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
