"""Tables that a thread uses again and again: fresh memory costs more than what is done with it."""

import math
import threading

import numpy as np


class _Scratch(threading.local):
    """The tables of each thread, by name."""

    def table(self, name: str, shape: tuple[int, ...], kind: type | np.dtype = np.float64) -> np.ndarray:
        """Return an array of that shape, with whatever it holds; the one of the same name before is lost."""
        size, known = math.prod(shape), self.__dict__.get(name)
        if known is None or len(known) < size or known.dtype != kind:
            known = self.__dict__[name] = np.empty(size, kind)
        return known[:size].reshape(shape)


SCRATCH = _Scratch()
