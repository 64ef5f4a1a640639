"""Calibration before and after: reliability diagrams, their expected calibration error, and a temperature."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..core.array import Array
from ..core.measure import fit_temperature
from ..gamma.chunks import read_chunks
from ..gamma.path import GammaPath

BINS = 15
_BLOCK = 1 << 17  # numbers worked on at a time, which fit in a cache
FITTED_NUMBERS = 500_000  # that a temperature is fitted on; more would not change a digit that is shown


def reliability(path: GammaPath, logits: Array, gamma: float, temperature: float = 1.0) -> dict[str, Any]:
    """Return samples, mean confidence and share right of 15 equal-width bins of confidence, and the ECE.

    ``ECE = sum_b |sum over the bin of (confidence - right)| / N``, as in `measure.calibration_error`, but a few rows of
    the logits at a time and on all cores. Confidence is ``1 / sum_k exp(l_k - max l)``, in single precision,
    of adjusted logits divided by the temperature.
    """
    rule, right = path.rule, path.right(gamma)
    scale = np.float32((rule.ratios**gamma if rule.multiplies else np.ones(len(rule.ratios))) / temperature)
    shift = None if rule.multiplies else np.float32(gamma * rule.slopes / temperature)

    def sums(first: int, rows: np.ndarray) -> np.ndarray:
        scores = np.multiply(rows, scale, dtype=np.float32)
        if shift is not None:
            scores += shift
        scores -= scores.max(axis=1, keepdims=True)
        sure = 1 / np.exp(scores, out=scores).sum(axis=1).astype(np.float64)
        where = np.minimum((sure * BINS).astype(int), BINS - 1)
        hit = right[first : first + len(rows)]
        return np.stack([np.bincount(where, x, BINS) for x in (np.ones(len(rows)), sure, hit)])

    parts = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for first, chunk in read_chunks(logits, kind=path.kind, check=False):  # the path checked them
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
    path: GammaPath, logits: Array, gamma: float, *, held_out: tuple[Array, np.ndarray] | None = None
) -> dict[str, Any]:
    """Return reliability before, after, and after with a temperature, fitted on held-out samples or else on these."""
    source, known = held_out or (logits, path.labels)
    size = min(len(known), max(1, FITTED_NUMBERS // source.shape[1]))
    rows = np.sort(np.random.default_rng(0).choice(len(known), size, replace=False))
    _, some = next(read_chunks(np.asarray(source[rows]), kind=path.kind, size=1 << 60))
    temperature = fit_temperature(path.rule.scores(some, gamma), known[rows])
    return {
        "before": reliability(path, logits, 0.0),
        "after": reliability(path, logits, gamma),
        "tempered": reliability(path, logits, gamma, temperature),
        "temperature": temperature,
        "fitted_on": len(rows),
        "fitted_apart": held_out is not None,
    }
