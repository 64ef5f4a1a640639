"""Stopping long work by Ctrl-C or SIGTERM: it ends with one line that says what is done and how to resume.

A terminal sends Ctrl-C to every process of a command. Only the first process acts on it. Its workers are started while
interrupts are blocked, and end when the first process tells them to, or with it.
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
    """Run a block that can be resumed; when told to stop, say what is done and exit with 130 or 143."""
    # Only the main thread receives signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise_interrupt)
    try:
        yield
    except KeyboardInterrupt as stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, before := signal.SIG_IGN)  # it is ending already
        say(f"levelhead: stopped; {summary()}; run the same command again to resume")
        raise SystemExit(128 + (stop.args[0] if stop.args else signal.SIGINT)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt(number)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C for the processes started in this block, from their first import on."""
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
    """Let this worker clean up and exit on SIGTERM, and exit at once when its parent is gone."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    def watch() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
