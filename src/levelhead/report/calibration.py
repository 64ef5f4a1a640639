"""Calibration before and after: reliability diagrams, their expected calibration error, and a temperature."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..core.array import Array
from ..core.choices import Kind
from ..core.measure import fit_temperature
from ..path.chunks import read_chunks
from .subject import RuleView

BINS = 15
_BLOCK = 1 << 17  # numbers worked on at a time, which fit in a cache
FITTED_NUMBERS = 500_000  # that a temperature is fitted on; more would not change a digit that is shown


def reliability(
    view: RuleView, logits: Array, gamma: float, temperature: float = 1.0, *, kind: Kind = "logits"
) -> dict[str, Any]:
    """Return samples, mean confidence and share right of 15 equal-width bins of confidence, and the ECE.

    ``ECE = sum_b |sum over the bin of (confidence - right)| / N``, as in `measure.calibration_error`, but a few rows of
    the logits at a time and on all cores. Confidence is ``1 / sum_k exp(l_k - max l)``, in single precision,
    of adjusted logits divided by the temperature.
    """
    assert view.path is not None
    right, (scale, shift) = view.path.right(gamma), view.parts(gamma)
    if gamma == 0:  # as trained, whatever unit the rule's numbers have
        scale, shift = np.ones(len(scale)), np.zeros(len(scale))
    scale, shift = np.float32(scale / temperature), np.float32(shift / temperature)

    def sums(first: int, rows: np.ndarray) -> np.ndarray:
        scores = np.multiply(view.smoothed(rows) if gamma else rows, scale, dtype=np.float32)
        scores += shift
        scores -= scores.max(axis=1, keepdims=True)
        sure = 1 / np.exp(scores, out=scores).sum(axis=1).astype(np.float64)
        where = np.minimum((sure * BINS).astype(int), BINS - 1)
        hit = right[first : first + len(rows)]
        return np.stack([np.bincount(where, x, BINS) for x in (np.ones(len(rows)), sure, hit)])

    parts = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for first, chunk in read_chunks(logits, kind=kind, check=False):  # the path checked them
            step = max(1, _BLOCK // chunk.shape[1])
            begins = range(0, len(chunk), step)
            parts += pool.map(sums, [first + i for i in begins], [chunk[i : i + step] for i in begins])
    n, confidence, found = np.sum(parts, axis=0)
    some = np.maximum(n, 1)
    return {
        "n": n.astype(int).tolist(),
        "confidence": (confidence / some).round(6).tolist(),
        "right": (found / some).round(6).tolist(),
        "error": float(np.abs(confidence - found).sum() / n.sum()),
    }


def calibration(
    view: RuleView,
    logits: Array,
    *,
    held_out: tuple[Array, np.ndarray] | None = None,
    temperature: float | None = None,
    kind: Kind = "logits",
) -> dict[str, Any]:
    """Return reliability before, after, and after with a temperature: the one of the choice, or else fitted here.

    Logits are [N, K], of the samples shown; `held_out` are others, with labels, to fit a temperature on.
    """
    assert view.path is not None
    assert view.gamma is not None
    own, fitted_on = temperature is not None, None
    if temperature is None:
        source, known = held_out or (logits, view.path.labels)
        fitted_on = min(len(known), max(1, FITTED_NUMBERS // source.shape[1]))
        rows = np.sort(np.random.default_rng(0).choice(len(known), fitted_on, replace=False))
        _, some = next(read_chunks(np.asarray(source[rows]), kind=kind, size=1 << 60))
        scale, offset = view.parts(view.gamma)
        temperature = fit_temperature(view.smoothed(some) * scale + offset, known[rows])
    return {
        "before": reliability(view, logits, 0.0, kind=kind),
        "after": reliability(view, logits, view.gamma, kind=kind),
        "tempered": reliability(view, logits, view.gamma, temperature, kind=kind),
        "temperature": temperature,
        "own": own,
        "fitted_on": fitted_on,
        "fitted_apart": held_out is not None,
    }
