"""Whether confidence can be believed, before and after: the reliability diagram, its ECE, and a temperature."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._array import Array
from ..measure import Kind, fit_temperature
from ..rule import Rule
from ..stream import chunks

BINS = 15
ENOUGH = 500_000  # numbers a temperature is fitted on: more would change it in no digit that is shown


def reliability(
    logits: Array, labels: np.ndarray, rule: Rule, gamma: float, *, kind: Kind = "logits", temperature: float = 1.0
) -> dict[str, Any]:
    """Samples, mean confidence and share right of each of 15 equal-width bins of confidence, and the ECE.

    ``ECE = sum_b |sum over the bin of (confidence - right)| / N``, as `measure.calibration_error` has it, a chunk of
    the logits at a time.
    """
    n, confidence, right = np.zeros(BINS), np.zeros(BINS), np.zeros(BINS)
    for first, chunk in chunks(logits, kind=kind):
        scores = rule.scores(chunk, gamma) / temperature
        top = scores.max(axis=1, keepdims=True)
        sure = 1 / np.exp(scores - top).sum(axis=1)
        hit = scores.argmax(axis=1) == labels[first : first + len(chunk)]
        where = np.minimum((sure * BINS).astype(int), BINS - 1)
        n += np.bincount(where, minlength=BINS)
        confidence += np.bincount(where, sure, BINS)
        right += np.bincount(where, hit, BINS)
    some = np.maximum(n, 1)
    return {"n": n.astype(int).tolist(), "confidence": (confidence / some).round(6).tolist(),
            "right": (right / some).round(6).tolist(), "error": float(np.abs(confidence - right).sum() / n.sum())}


def calibration(
    logits: Array, labels: np.ndarray, rule: Rule, gamma: float, *, kind: Kind = "logits",
    held_out: tuple[Array, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Before, after, and after with a temperature: fitted on held-out samples or, if there are none, on these."""
    source, known = held_out or (logits, labels)
    rows = np.arange(len(known))
    if len(rows) * source.shape[1] > ENOUGH:
        rows = np.sort(np.random.default_rng(0).choice(len(known), max(1, ENOUGH // source.shape[1]), replace=False))
    _, some = next(chunks(np.asarray(source[rows]), kind=kind, size=1 << 60))
    temperature = fit_temperature(rule.scores(some, gamma), known[rows])
    return {
        "before": reliability(logits, labels, rule, 0.0, kind=kind),
        "after": reliability(logits, labels, rule, gamma, kind=kind),
        "tempered": reliability(logits, labels, rule, gamma, kind=kind, temperature=temperature),
        "temperature": temperature, "fitted_on": len(rows), "fitted_apart": held_out is not None,
    }
