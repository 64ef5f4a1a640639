"""Threads: how many to use, and memory that each keeps for itself.

numpy releases Python's lock in its loops, so that threads do share large work; small work is mostly
Python, which they do one after the other.
"""

import math
import os
import threading

import numpy as np


def usable_cores() -> int:
    """Return how many cores this process may use.

    That is fewer than there are where it is bound to some of them, as containers and schedulers do.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def few_threads() -> int:
    """Return how many threads to share small work between.

    With more of them, most wait for Python's lock most of the time.
    """
    return min(4, usable_cores())  # on 16 cores, `tune` takes a tenth longer with 16 than with 4


class _Scratch(threading.local):
    """Tables that a thread uses again and again, by name.

    Fresh memory costs more than what is done with it: the system hands out pages one by one, and
    clears each. `SCRATCH` is one object for all threads, with tables of its own in each
    (`threading.local`).
    """

    def __init__(self) -> None:  # called once in each thread
        self.tables: dict[str, np.ndarray] = {}

    def table(
        self, name: str, shape: tuple[int, ...], kind: type | np.dtype = np.float64
    ) -> np.ndarray:
        """Return an array of that shape, with whatever it holds.

        The one of the same name before is lost, as both are the same memory. A table only grows.

        Args:
            name: of the use; two tables that are needed at once have two names.
            shape: of the array.
            kind: of its numbers.
        """
        size = math.prod(shape)
        memory = self.tables.get(name)
        if memory is None or len(memory) < size or memory.dtype != kind:
            memory = self.tables[name] = np.empty(size, kind)
        return memory[:size].reshape(shape)


SCRATCH = _Scratch()
