"""The way from a model as trained to one with a scale and an offset for each class, exact at every share of it.

``score_k(t) = ((1 - t) m + t scale_k) logit_k + t offset_k``, with m the geometric mean of the scales: at t = 0 the
predictions are those of the model as trained, at t = 1 those of what was chosen. Scores are straight lines in t, so
each sample's prediction follows the upper envelope of its row.
"""

import numpy as np

from ..core.array import Array
from ..core.choices import Kind
from ..path.chunks import read_chunks
from ..path.envelope import Envelope
from ..path.path import GammaPath
from ..rules.direction import Direction

LARGEST_SHARE = 1.5  # of the share


def parts_at(share: float, scale: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scale and the offset [K] at a share of the way."""
    return (1 - share) * _middle(scale) + share * scale, share * offset


def compute_share_envelope(
    logits: Array, scale: np.ndarray, offset: np.ndarray, *, kind: Kind = "logits", smoothing: float = 0.0
) -> Envelope:
    """Return every change of every prediction over the share, from 0 to 1.5.

    Args:
        logits: [N, K].
        scale, offset: [K] each, at share 1; scales are positive.
        kind: as in `tune`.
        smoothing: what is added to probabilities before their logarithm.
    """
    starts, samples, at, old, new = [], [], [], [], []
    for first, chunk in read_chunks(logits, kind=kind):
        rows = chunk.astype(np.float64)
        rows = np.logaddexp(rows, np.log(smoothing)) if smoothing else rows
        start, slope = rows * _middle(scale), rows * (scale - _middle(scale)) + offset
        now, live = start.argmax(axis=1), np.arange(len(rows))
        since = np.zeros(len(rows))
        starts.append(now.copy())
        while len(live):
            own, a, b = now[live, None], start[live], slope[live]
            lead = b - np.take_along_axis(b, own, 1)
            with np.errstate(divide="ignore", invalid="ignore"):
                when = np.where(lead > 0, (np.take_along_axis(a, own, 1) - a) / lead, np.inf)
            when = np.maximum(when, since[live, None])  # a crossing is never before the last one, but for rounding
            winner = when.argmin(axis=1)
            when = when[np.arange(len(live)), winner]
            on = when <= LARGEST_SHARE
            live, winner, when = live[on], winner[on], when[on]
            samples.append(live + first)
            at.append(when)
            old.append(now[live])
            new.append(winner)
            now[live], since[live] = winner, when
    gamma = np.concatenate(at)
    order = np.argsort(gamma, kind="stable")  # a sample's own changes were found in order
    return Envelope(
        start=np.concatenate(starts),
        sample=np.concatenate(samples)[order],
        gamma=gamma[order],
        new_class=np.concatenate(new)[order],
        old_class=np.concatenate(old)[order],
        classes=len(scale),
        range=(0.0, LARGEST_SHARE),
    )


def right_path(
    changes: Envelope, labels: np.ndarray, counts: np.ndarray, rule: str, target: np.ndarray | None
) -> GammaPath:
    """Return where each sample is right, from every change of its prediction."""
    order = np.lexsort((np.arange(len(changes.sample)), changes.sample))
    sample = np.concatenate([np.arange(len(labels)), changes.sample[order]])
    begin = np.concatenate([np.full(len(labels), changes.range[0]), changes.gamma[order]])
    predicted = np.concatenate([changes.start, changes.new_class[order]])
    order = np.argsort(sample, kind="stable")  # the stretches of a sample one after the other, its start first
    sample, begin, predicted = sample[order], begin[order], predicted[order]
    last = np.append(sample[1:] != sample[:-1], True)
    end = np.where(last, changes.range[1], np.nextafter(np.append(begin[1:], 0.0), -np.inf))
    right = (predicted == labels[sample]) & (begin <= end)
    made = Direction(rule, counts.max() / counts)
    return GammaPath(sample[right], begin[right], end[right], labels, counts, made, changes.range, target=target)


def _middle(scale: np.ndarray) -> float:
    return float(np.exp(np.log(scale).mean()))
