"""Threads: how many to use, and memory that each keeps for itself."""

import math
import os
import threading

import numpy as np


def usable_cores() -> int:
    """Return how many cores this process may use: fewer than there are if it is bound to some of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def few_threads() -> int:
    """Return how many threads to share small work between: more of them wait for Python's lock most of the time."""
    return min(4, usable_cores())  # on 16 cores, `tune` takes a tenth longer with 16 than with 4


class _Scratch(threading.local):
    """Tables that a thread uses again and again, by name: fresh memory costs more than what is done with it."""

    def __init__(self) -> None:  # called once in each thread
        self.tables: dict[str, np.ndarray] = {}

    def table(
        self, name: str, shape: tuple[int, ...], kind: type | np.dtype = np.float64
    ) -> np.ndarray:
        """Return an array of that shape, with whatever it holds; the one of the same name before is lost."""
        size = math.prod(shape)
        memory = self.tables.get(name)
        if memory is None or len(memory) < size or memory.dtype != kind:
            memory = self.tables[name] = np.empty(size, kind)
        return memory[:size].reshape(shape)


SCRATCH = _Scratch()
