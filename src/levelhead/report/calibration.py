"""Whether the confidence of a model is justified: reliability before and after, counted and drawn.

`calibration` counts on the samples of a subject, and `reliability_chart` draws one diagram of it.

Confidence is the largest probability of a sample, after the softmax. Samples are sorted into bins of
it; a model is calibrated if of those that it is 80 % sure of, 80 % are right. What weighs how much
is the goal's affair: a choice for balanced error is for a world where all classes are equally
frequent, and its confidence is judged in that world.

Reference: Guo et al., On Calibration of Modern Neural Networks, 2017, for the error (ECE), the
diagrams and the temperature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from ..support.errors import LevelheadError
from ..support.logits import log_softmax
from ..support.read import read_chunks
from .subject import Subject
from .svg import Plane, tag
from .words import share_text

BINS = 15  # of confidence, as Guo et al. have it
_MOST_NUMBERS = 4_000_000  # of the scores it is counted on, all of which are in memory
TOO_LARGE = (
    "scores of this size have no probabilities to show; divide them by a number of their size, "
    "and tune again"
)


class Reliability(NamedTuple):
    """How often a model is right at each level of its confidence, in B bins of confidence."""

    title: str
    mass: np.ndarray  # [B], what the samples of each bin weigh, of 1 in all
    confidence: np.ndarray  # [B], its mean
    right: np.ndarray  # [B], the share of predictions that are right
    error: float  # the mean gap between confidence and right (ECE)
    log_loss: float


class Calibration(NamedTuple):
    """Reliability before, after, and after with the temperature of the choice, if it has one."""

    diagrams: list[Reliability]
    shown: int  # samples that it is counted on
    of: int  # samples that there are


def calibration(subject: Subject) -> Calibration | None:
    """Count how far confidence is justified; None if there are no samples of one class each.

    Returns:
        Diagrams as trained, adjusted and, where a temperature was tuned, adjusted and divided by it.

    Raises:
        LevelheadError: scores so large that their softmax is not a number.
    """
    tuned = subject.tuned
    if subject.logits is None or subject.labels is None or tuned.multilabel:
        return None

    # Of many samples, a random part of fixed seed: the same page every time.
    most = max(1000, _MOST_NUMBERS // subject.classes)
    rows = np.arange(len(subject.labels))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))
    labels = subject.labels[rows]
    weights = sample_weights(subject)[rows]

    # Scores as the model gives them and as they are adjusted, in a head without a bias by what arrives.
    plain = _read_rows(subject, rows)
    reach = None
    if subject.reach is not None:
        reach = subject.reach[rows]
    adjusted = tuned.adjustment.scores(plain, reach)
    diagrams = [
        reliability("As trained", plain, labels, weights),
        reliability("Adjusted", adjusted, labels, weights),
    ]
    if tuned.temperature is not None:
        title = f"Adjusted, temperature {tuned.temperature:.3g}"
        with np.errstate(over="ignore"):  # of masked scores, which stay the lowest
            tempered = adjusted / tuned.temperature
        diagrams.append(reliability(title, tempered, labels, weights))
    return Calibration(diagrams, shown=len(rows), of=len(subject.labels))


def _read_rows(subject: Subject, rows: np.ndarray) -> np.ndarray:
    """Return logits [n, K] of these rows, which ascend; a file is read in chunks.

    Args:
        subject: has the logits; of probabilities, their logarithms are returned.
        rows: [n], positions in ascending order, so that each chunk has a run of them.
    """
    parts = []
    for first, chunk in read_chunks(subject.logits, kind=subject.read_as):
        begin, end = np.searchsorted(rows, [first, first + len(chunk)])
        parts.append(np.asarray(chunk[rows[begin:end] - first], np.float64))
    return np.concatenate(parts)


def sample_weights(subject: Subject) -> np.ndarray:
    """Return what each sample weighs in the goal of the choice, [N].

    Each weighs 1 for a metric that takes samples as they come. Else the samples of a class share
    what the target says the class weighs; without a target, all classes weigh the same.

    A class without samples here weighs nothing, and the others not more for it: weights need not
    sum to 1.
    """
    tuned = subject.tuned
    labels = subject.labels
    assert labels is not None
    if tuned.target is not None:
        shares = np.array(tuned.target)
    elif tuned.evidence is not None and tuned.evidence.metric.as_they_come:
        return np.ones(len(labels))
    else:
        shares = np.ones(subject.classes)
    sizes = np.bincount(labels, minlength=subject.classes)
    return (shares / np.maximum(sizes, 1))[labels]


def reliability(
    title: str, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> Reliability:
    """Count how often predictions are right, in bins of their confidence.

    ``ECE = sum_b |sum over the bin of w_i (confidence_i - right_i)|``, weights summing to 1.

    Args:
        title: of the diagram.
        scores: [n, K], before the softmax.
        labels, weights: [n] each; weights need not sum to 1.
    """
    # Scores near the end of float64 overflow in the softmax; that is said in our words.
    with np.errstate(over="ignore", invalid="ignore"):
        log_shares = log_softmax(scores)
    if np.isnan(log_shares).any():
        raise LevelheadError(TOO_LARGE)
    weights = weights / weights.sum()
    confidence = np.exp(log_shares.max(axis=1))
    is_right = scores.argmax(axis=1) == labels

    # Sums over each bin; a confidence of 1 belongs to the last.
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    mass = np.bincount(bins, weights, BINS)
    sum_confidence = np.bincount(bins, weights * confidence, BINS)
    sum_right = np.bincount(bins, weights * is_right, BINS)
    divisor = np.where(mass > 0, mass, 1.0)  # an empty bin is 0, not NaN
    losses = -np.take_along_axis(log_shares, labels[:, None], axis=1)[:, 0]
    return Reliability(
        title=title,
        mass=mass,
        confidence=sum_confidence / divisor,
        right=sum_right / divisor,
        error=float(np.abs(sum_confidence - sum_right).sum()),
        log_loss=float(weights @ losses),
    )


def reliability_chart(diagram: Reliability) -> Markup:
    """Draw one reliability diagram.

    A bar for each bin is as high as predictions there are right. An outline reaches from it to the
    mean confidence: above the bar where the model is overconfident.
    """
    # About square, as both axes are shares.
    plane = Plane(340, 320, 64, 48, (0, 1), (0, 1))
    parts = [plane.grid((0, 0.5, 1), "{:.0%}".format)]
    parts += [plane.below(tick, f"{tick:.0%}") for tick in (0, 0.5, 1)]
    width = plane.x(1 / BINS) - plane.x(0) - 1  # 1 apart from the next
    for b in np.flatnonzero(diagram.mass > 0):
        x = plane.x(b / BINS) + 0.5
        right = plane.y(float(diagram.right[b]))
        sure = plane.y(float(diagram.confidence[b]))
        bar = tag("rect", x=x, y=right, width=width, height=plane.y(0) - right)
        # Heights count downward, so the smaller one is on top.
        class_ = "over" if sure < right else "under"
        top = min(right, sure)
        gap = tag("rect", x=x, y=top, width=width, height=max(right, sure) - top, class_=class_)
        parts += [bar, gap]
    # The diagonal, where confidence is exactly justified.
    parts.append(
        tag("line", x1=plane.x(0), y1=plane.y(0), x2=plane.x(1), y2=plane.y(1), class_="ideal")
    )
    parts.append(plane.titles("confidence", "right"))
    return plane.picture(f"{diagram.title}: calibration error {share_text(diagram.error)}", *parts)
