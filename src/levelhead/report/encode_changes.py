"""Every change of every prediction over gamma, small enough for a page and exact wherever the page can look.

A page's gamma stands on one of its *stops*: each 0.0001 from 0 to the end of the slider, and some others that matter
(the chosen gamma). A change at gamma is filed under the first stop that is not below it, compared in float64: so at
each stop every prediction is the one that `GammaPath.predictions` gives, and nothing finer needs to be kept.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

from ..gamma.envelope import Envelope

STEP = 10_000  # stops per unit of gamma


def stops(end: float, special: tuple[float, ...] = ()) -> np.ndarray:
    """Where a page's gamma can stand, ascending. The page computes the same numbers by the same division.

    >>> stops(0.0003, (0.00015,))
    array([0.     , 0.0001 , 0.00015, 0.0002 , 0.0003 ])
    """
    return np.union1d(np.arange(round(end * STEP) + 1) / STEP, special)


def pack(changes: Envelope, labels: np.ndarray, classes: int, where: np.ndarray) -> dict[str, Any]:
    """The changes as JSON-able facts: samples sorted by true class, changes by stop and then by sample.

    Args:
        changes: of the predictions.
        labels: [N], true classes; all 0 if they are not known.
        classes: how many true classes there are.
        where: the stops.

    Returns:
        samples: how many there are of each true class; events: how many changes; data: base64 of a zlib stream of the
        first predictions [N], the number of changes at each stop [S], the sample of each change [E] (within a stop, the
        difference to the one before), and its new class [E].
    """
    order = np.argsort(labels, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    stop = np.searchsorted(where, changes.gamma, side="left")
    sample, klass = rank[changes.sample], changes.new_class
    by = np.lexsort((np.arange(len(stop)), sample, stop))  # a sample's own changes stay in order of gamma
    stop, sample, klass = stop[by], sample[by], klass[by]
    last = np.append((stop[1:] != stop[:-1]) | (sample[1:] != sample[:-1]), True)[: len(stop)] & (stop < len(where))
    stop, sample, klass = stop[last], sample[last], klass[last]
    first = np.append(True, stop[1:] != stop[:-1])[: len(stop)]
    delta = np.where(first, sample, np.diff(sample, prepend=0))
    parts = (changes.start[order], np.bincount(stop, minlength=len(where)), delta, klass)
    return {"samples": np.bincount(labels, minlength=classes).tolist(), "events": len(stop),
            "data": _text(b"".join(map(_planes, parts)))}


def _planes(values: np.ndarray) -> bytes:
    """Whole numbers below 2^32 as all their lowest bytes, then all the next: the high ones are nearly all 0."""
    return np.ascontiguousarray(values.astype("<u4").view(np.uint8).reshape(-1, 4).T).tobytes()


def _text(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw)).decode("ascii")
