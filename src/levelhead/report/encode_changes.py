"""Every change of every prediction over gamma, small enough for a page and exact wherever the page can stop.

The slider stops at each 0.0001 from 0 to its end (finer or coarser on other scales of scores), and at a few other
gammas (the chosen one). A change is filed under
the first stop that is not below its gamma, compared in float64. So at each stop every prediction is the one that
`GammaPath.predictions` returns, and nothing finer needs to be kept.
"""

import base64
import zlib
from typing import Any

import numpy as np

from ..path.envelope import Envelope

STEP = 10_000  # stops per unit of gamma


def gamma_stops(end: float, special: tuple[float, ...] = (), step: int = STEP) -> np.ndarray:
    """Return the gammas that the slider can stop at, ascending; the page's script divides in the same way."""
    return np.union1d(np.arange(round(end * step) + 1) / step, special)


def encode_changes(changes: Envelope, labels: np.ndarray, classes: int, stops: np.ndarray) -> dict[str, Any]:
    """Return the changes for JSON, samples sorted by true class, changes by stop and then by sample.

    Args:
        changes, classes: the changes of the predictions, and the number of true classes.
        labels, stops: [N], true classes, all 0 if they are not known; [S], the gammas that the slider can stop at.

    Returns:
        samples: the number of each true class; events: the number of changes; data: base64 of a zlib stream of the
        first predictions [N], the number of changes at each stop [S], the sample of each change [E] (within a stop, the
        difference to the one before), and its new class [E].
    """
    order = np.argsort(labels, kind="stable")
    rank = np.argsort(order)
    stop = np.searchsorted(stops, changes.gamma, side="left")
    sample, new_class = rank[changes.sample], changes.new_class
    by = np.lexsort((np.arange(len(stop)), sample, stop))  # a sample's own changes stay in order of gamma
    stop, sample, new_class = stop[by], sample[by], new_class[by]
    last = np.append((stop[1:] != stop[:-1]) | (sample[1:] != sample[:-1]), True)[: len(stop)] & (stop < len(stops))
    stop, sample, new_class = stop[last], sample[last], new_class[last]
    first = np.append(True, stop[1:] != stop[:-1])[: len(stop)]
    delta = np.where(first, sample, np.diff(sample, prepend=0))
    parts = (changes.start[order], np.bincount(stop, minlength=len(stops)), delta, new_class)
    # whole numbers below 2^32 as all lowest bytes, then all next ones: the high bytes are nearly all 0
    planes = b"".join(part.astype("<u4").view(np.uint8).reshape(-1, 4).T.tobytes() for part in parts)
    return {
        "samples": np.bincount(labels, minlength=classes).tolist(),
        "events": len(stop),
        "data": base64.b64encode(zlib.compress(planes)).decode("ascii"),
    }
