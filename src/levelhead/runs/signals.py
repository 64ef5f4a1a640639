"""Long work that is told to stop, by Ctrl-C or SIGTERM, ends with one line: what is done, and how to go on.

A terminal sends Ctrl-C to every process of a command. The first of them answers it; its workers, begun `deaf`, `follow`
it: they end when it tells them to, or is gone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def stoppable(done: Callable[[], str], say: Callable[[str], None]) -> Iterator[None]:
    """A block of a command that goes on where it was when given again.

    Told to stop, the process ends with a line: with status 130 or, if SIGTERM told it, 143.

    Args:
        done: what there is already; asked when the block has been left.
        say: called with the line.
    """
    if threading.current_thread() is not threading.main_thread():  # no other hears signals
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt as told:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # it is ending already
        say(f"levelhead: stopped; {done()}; the same command goes on")
        raise SystemExit(128 + (told.args[0] if told.args else signal.SIGINT)) from None
    except BaseException:
        signal.signal(signal.SIGTERM, before)
        raise
    signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt(number)


@contextmanager
def deaf() -> Iterator[None]:
    """Processes begun in this block do not hear Ctrl-C, not even while they import what they need.

    Where signals cannot be masked, as on Windows, they do.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # first, as it lets all signals through when it is begun
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow() -> None:
    """In a worker: leave what it is at in good order when told to, by SIGTERM; end at once when its parent is gone."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    def watch() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
