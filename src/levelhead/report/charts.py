"""Charts as inline SVG: recall by class, errors over a strength, calibration, weight norms.

They are drawn once, here: the page needs no script for them, and they print. Colors are in page.css.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup, escape

from ..path.curve import Curve
from ..show.style import short
from ..support.arrays import log_softmax
from ..support.errors import LevelheadError
from ..support.read import read_chunks
from .subject import Subject
from .words import share_text

BINS = 15  # of confidence
MOST_NAMED = 40  # classes that are named in a chart; of more, there are dots and running means
MOST_LINES = 12  # classes whose norms are drawn over the epochs
_MOST_NUMBERS = 4_000_000  # of scores that calibration is shown on
TOO_LARGE = (
    "scores of this size have no probabilities to show; divide them by a number of their size, "
    "and tune again"
)


class Plane(NamedTuple):
    """The rectangle of a chart, and how values lie in it."""

    width: float
    height: float
    left: float
    bottom: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (value - low) / ((high - low) or 1.0) * (self.width - self.left - 12)

    def y(self, value: float) -> float:
        low, high = self.y_range
        room = self.height - self.bottom - 12
        return self.height - self.bottom - (value - low) / ((high - low) or 1.0) * room

    def grid(self, ticks: Sequence[float], text: Callable[[float], str]) -> Markup:
        """Return a line and a text at each tick of the vertical axis."""
        parts = []
        for tick in ticks:
            at = self.y(tick)
            parts.append(tag("line", x1=self.left, x2=self.width - 12, y1=at, y2=at, class_="grid"))
            parts.append(tag("text", text(tick), x=self.left - 6, y=at + 4, text_anchor="end"))
        return Markup("").join(parts)

    def below(self, value: float, text: str, *, down: float = 18) -> Markup:
        """Return a text below the horizontal axis."""
        return tag(
            "text",
            text,
            x=self.x(value),
            y=self.height - self.bottom + down,
            text_anchor="middle",
        )

    def titles(self, across: str, up: str) -> Markup:
        """Return the titles of both axes."""
        middle = (12 + self.height - self.bottom) / 2
        horizontal = tag(
            "text",
            across,
            x=(self.left + self.width - 12) / 2,
            y=self.height - 6,
            text_anchor="middle",
        )
        vertical = tag("text", up, x=-middle, y=13, transform="rotate(-90)", text_anchor="middle")
        return horizontal + vertical

    def picture(self, label: str, *parts: Markup) -> Markup:
        """Return all of it as one SVG."""
        box = f"0 0 {self.width:g} {self.height:g}"
        inside = Markup("").join(parts)
        return tag("svg", inside, viewBox=box, role="img", aria_label=label)


def tag(name: str, *children: str, **attributes: Any) -> Markup:
    """Return an element; text and attributes are escaped, numbers are short."""
    words = []
    for key, value in attributes.items():
        text = value
        if isinstance(value, float):
            text = f"{value:.2f}".rstrip("0").rstrip(".")
        plain = key
        if key != "viewBox":
            plain = key.rstrip("_").replace("_", "-")
        words.append(f' {plain}="{escape(text)}"')
    inside = Markup("").join(escape(child) for child in children)
    return Markup(f"<{name}{''.join(words)}>{inside}</{name}>")


# ---- Recall of each class ----------------------------------------------------------------------


def recall_chart(subject: Subject) -> Markup:
    """Return the recall of each class before and after, the most frequent class first."""
    rows = subject.rows[::-1]
    before, after = np.array([row.recall for row in rows]).reshape(-1, 2).T
    named = len(rows) <= MOST_NAMED
    titles = [short(row.name, 18) for row in rows]
    upright = named and max(map(len, titles)) * 7 < 880 / len(rows)
    room = 48.0
    if named and not upright:
        room = 40.0 + 6.5 * max(map(len, titles))
    plane = Plane(960, 260 + room, 52, room, (-0.5, len(rows) - 0.5), (0, 1))
    parts = [plane.grid((0, 0.25, 0.5, 0.75, 1), "{:.0%}".format)]
    if named:
        for i, title in enumerate(titles):
            parts.append(_name_below(plane, i, title, upright))
            parts.append(_recall_mark(plane, i, rows[i].name, before[i], after[i]))
    else:
        for values, when in ((before, "was"), (after, "now")):
            parts.append(_dots(plane, values, when))
            parts.append(_line(plane, np.arange(len(rows)), _running_mean(values), when))
    what = "label" if subject.tuned.multilabel else "class"
    parts.append(plane.titles(f"{what}, the most frequent first", "recall"))
    label = f"Recall of each {what} before and after"
    return plane.picture(label, *parts)


def _name_below(plane: Plane, i: int, title: str, upright: bool) -> Markup:
    if upright:
        return plane.below(i, title)
    x = plane.x(i) + 4
    y = plane.height - plane.bottom + 10
    place = f"translate({x:.1f} {y:.1f}) rotate(-90)"
    return tag("text", title, transform=place, text_anchor="end")


def _recall_mark(plane: Plane, i: int, name: str, before: float, after: float) -> Markup:
    """Return one class: a ring where it was, a dot where it is, and a line between."""
    if np.isnan(before) or np.isnan(after):
        return Markup("")
    x = plane.x(i)
    return tag(
        "g",
        tag("title", f"{name}: {share_text(before)} to {share_text(after)}"),
        tag("line", x1=x, x2=x, y1=plane.y(before), y2=plane.y(after), class_="change"),
        tag("circle", cx=x, cy=plane.y(before), r=5, class_="was"),
        tag("circle", cx=x, cy=plane.y(after), r=5, class_="now"),
    )


def _dots(plane: Plane, values: np.ndarray, when: str) -> Markup:
    """Return a dot for each value, as one path of squares."""
    known = np.flatnonzero(~np.isnan(values))
    places = [f"M{plane.x(float(i)):.1f} {plane.y(values[i]):.1f}h2v2h-2z" for i in known]
    return tag("path", d="".join(places), class_=f"dots {when}")


def _running_mean(values: np.ndarray) -> np.ndarray:
    """Return means over a tenth of the classes, fewer at the ends; unknown values are left out."""
    known = ~np.isnan(values)
    window = np.ones(max(1, len(values) // 10))
    sums = np.convolve(np.where(known, values, 0.0), window, "same")
    sizes = np.convolve(known, window, "same")
    return np.divide(sums, sizes, out=np.full(len(values), np.nan), where=sizes > 0)


def _line(plane: Plane, x: np.ndarray, y: np.ndarray, class_: str) -> Markup:
    known = ~np.isnan(y)
    points = zip(x[known], y[known], strict=True)
    places = " ".join(f"{plane.x(a):.1f},{plane.y(b):.1f}" for a, b in points)
    return tag("polyline", points=places, class_=f"line {class_}")


# ---- Over a strength ---------------------------------------------------------------------------


def strength_chart(subject: Subject) -> Markup | None:
    """Return both errors over the strength of a rule that has one; None for other rules."""
    path = subject.path
    if path is None:
        return None
    curves = {"balanced": path.balanced_error_curve, "plain": path.error_curve}
    low, high = path.range
    highest = max(float(curve.values.max()) for curve in curves.values())
    plane = Plane(960, 320, 52, 52, (low, high), (0.0, max(highest * 1.05, 0.01)))
    ticks = nice_ticks(0.0, plane.y_range[1])
    parts = [plane.grid(ticks, lambda tick: f"{tick:.3g}" if tick == 0 else f"{tick:.1%}")]
    for tick in nice_ticks(low, high):
        parts.append(plane.below(tick, f"{tick:g}"))
    for name, curve in curves.items():
        parts.append(_steps(plane, curve, name))
    strength = float(subject.tuned.strength or 0.0)
    x = plane.x(strength)
    parts.append(tag("line", x1=x, x2=x, y1=12.0, y2=plane.y(0.0), class_="chosen"))
    parts.append(tag("text", f"chosen: {strength:.3f}", x=x + 6, y=22))
    parts.append(plane.titles("strength", "error"))
    return plane.picture("Balanced error and error over the strength", *parts)


def _steps(plane: Plane, curve: Curve, name: str) -> Markup:
    """Return a step function at twice as many strengths as it has pixels."""
    low, high = plane.x_range
    at = np.linspace(low, high, 2 * int(plane.width))
    values = np.asarray(curve.at(at))
    kept = np.flatnonzero(np.diff(values, prepend=np.inf) != 0)
    path = ""
    for i in kept:
        path += (
            f"H{plane.x(at[i]):.1f}" if path else f"M{plane.x(at[i]):.1f} {plane.y(values[i]):.1f}"
        )
        path += f"V{plane.y(values[i]):.1f}"
    return tag("path", d=f"{path}H{plane.x(high):.1f}", class_=f"line {name}")


def nice_ticks(low: float, high: float) -> list[float]:
    """Return round numbers from low to high, three to eight of them.

    >>> nice_ticks(0.0, 0.42)
    [0.0, 0.1, 0.2, 0.3, 0.4]
    """
    span = (high - low) or 1.0
    unit = 10.0 ** np.floor(np.log10(span))
    step = next(unit * by for by in (0.1, 0.2, 0.5, 1.0) if span / (unit * by) <= 7 or by == 1.0)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


# ---- Calibration -------------------------------------------------------------------------------


class Reliability(NamedTuple):
    """How often a model is right at each level of its confidence, in bins of confidence."""

    title: str
    mass: np.ndarray  # [B], what samples weigh; they sum to 1
    confidence: np.ndarray  # [B], the mean
    right: np.ndarray  # [B], the share
    error: float  # the mean gap between both (ECE)
    log_loss: float


class Calibration(NamedTuple):
    """Reliability before, after, and after with the temperature of the choice."""

    diagrams: list[Reliability]
    shown: int  # samples that it is counted on
    of: int


def calibration(subject: Subject) -> Calibration | None:
    """Return how far confidence is justified; None if samples are not at hand."""
    tuned = subject.tuned
    if subject.logits is None or subject.labels is None or tuned.multilabel:
        return None
    labels = subject.labels
    most = max(1000, _MOST_NUMBERS // subject.classes)
    rows = np.arange(len(labels))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).choice(len(labels), most, replace=False))
    weights = sample_weights(subject)[rows]
    chunks = []
    for first, chunk in read_chunks(subject.logits, kind=subject.read_as):
        begin, end = np.searchsorted(rows, [first, first + len(chunk)])
        chunks.append(np.asarray(chunk[rows[begin:end] - first], np.float64))
    plain = np.concatenate(chunks)
    adjusted = tuned.adjustment.scores(plain)
    diagrams = [
        reliability("As trained", plain, labels[rows], weights),
        reliability("Adjusted", adjusted, labels[rows], weights),
    ]
    if tuned.temperature is not None:
        title = f"Adjusted, temperature {tuned.temperature:.2f}"
        tempered = adjusted / tuned.temperature
        diagrams.append(reliability(title, tempered, labels[rows], weights))
    return Calibration(diagrams, len(rows), len(labels))


def sample_weights(subject: Subject) -> np.ndarray:
    """Return what each sample weighs in the goal of the choice, [N]."""
    tuned, labels = subject.tuned, subject.labels
    assert labels is not None
    if tuned.target is None and tuned.evidence is not None and tuned.evidence.metric.as_they_come:
        return np.ones(len(labels))
    if tuned.target is None:
        shares = np.ones(subject.classes)
    else:
        shares = np.array(tuned.target)
    sizes = np.bincount(labels, minlength=subject.classes)
    return (shares / np.maximum(sizes, 1))[labels]


def reliability(
    title: str, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> Reliability:
    """Count how often predictions are right, in bins of their confidence.

    ``ECE = sum_b |sum over the bin of w_i (confidence_i - right_i)|``, weights summing to 1.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        logs = log_softmax(scores)
    if np.isnan(logs).any():
        raise LevelheadError(TOO_LARGE)
    weights = weights / weights.sum()
    confidence = np.exp(logs.max(axis=1))
    right = scores.argmax(axis=1) == labels
    where = np.minimum((confidence * BINS).astype(int), BINS - 1)
    mass = np.bincount(where, weights, BINS)
    sure = np.bincount(where, weights * confidence, BINS)
    hits = np.bincount(where, weights * right, BINS)
    least = np.where(mass > 0, mass, 1.0)
    losses = -np.take_along_axis(logs, labels[:, None], axis=1)[:, 0]
    return Reliability(
        title=title,
        mass=mass,
        confidence=sure / least,
        right=hits / least,
        error=float(np.abs(sure - hits).sum()),
        log_loss=float(weights @ losses),
    )


def reliability_chart(diagram: Reliability) -> Markup:
    """Return one reliability diagram."""
    plane = Plane(340, 320, 64, 48, (0, 1), (0, 1))
    parts = [plane.grid((0, 0.5, 1), "{:.0%}".format)]
    parts += [plane.below(tick, f"{tick:.0%}") for tick in (0, 0.5, 1)]
    for b in np.flatnonzero(diagram.mass > 0):
        x = plane.x(b / BINS) + 0.5
        width = plane.x(1 / BINS) - plane.x(0) - 1
        right = float(diagram.right[b])
        sure = float(diagram.confidence[b])
        top, low = max(right, sure), min(right, sure)
        parts.append(
            tag("rect", x=x, y=plane.y(right), width=width, height=plane.y(0) - plane.y(right))
        )
        gap = "over" if sure > right else "under"
        height = plane.y(low) - plane.y(top)
        parts.append(tag("rect", x=x, y=plane.y(top), width=width, height=height, class_=gap))
    parts.append(
        tag("line", x1=plane.x(0), y1=plane.y(0), x2=plane.x(1), y2=plane.y(1), class_="ideal")
    )
    parts.append(plane.titles("confidence", "right"))
    return plane.picture(f"{diagram.title}: calibration error {share_text(diagram.error)}", *parts)


# ---- The head ----------------------------------------------------------------------------------


def norms_chart(subject: Subject) -> Markup | None:
    """Return weight norms against counts, before and after; None if no norm changes."""
    head = subject.head
    adjustment = subject.tuned.adjustment
    if head is None or subject.counts is None or not adjustment.multiplies:
        return None
    if head.classes != subject.classes:
        return None
    counts = np.log10(subject.counts)
    before = np.asarray(head.norms, np.float64)
    after = before * adjustment.scale
    positive = np.concatenate([before, after])
    positive = positive[positive > 0]
    if not len(positive):
        return None
    low = np.log10(positive.min()) - 0.05
    high = np.log10(positive.max()) + 0.05
    reach = (float(counts.min()) - 0.05, float(counts.max()) + 0.05)
    plane = Plane(640, 320, 60, 52, reach, (float(low), float(high)))
    parts = [plane.grid(_decades(low, high), lambda tick: f"{10**tick:.3g}")]
    parts += [plane.below(tick, f"{10**tick:,.0f}") for tick in _decades(*reach)]
    for i in range(subject.classes):
        x = plane.x(counts[i])
        if before[i] <= 0:
            continue
        was = plane.y(np.log10(before[i]))
        now = plane.y(np.log10(after[i]))
        parts.append(
            tag(
                "g",
                tag("title", f"{subject.name(i)}: {before[i]:.3g} to {after[i]:.3g}"),
                tag("line", x1=x, x2=x, y1=was, y2=now, class_="change"),
                tag("circle", cx=x, cy=was, r=4, class_="was"),
                tag("circle", cx=x, cy=now, r=4, class_="now"),
            )
        )
    across = "training samples of the class; both axes logarithmic"
    parts.append(plane.titles(across, "norm of the weight vector"))
    return plane.picture("Norm of each weight vector against its count", *parts)


def _decades(low: float, high: float) -> list[float]:
    """Return logarithms of round numbers: 1, 2, 5, 10 or, over a wide range, powers of 10."""
    steps = (1,) if high - low > 2.2 else (1, 2, 5)
    if high - low < 0.25:
        steps = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    ticks = []
    for power in range(int(np.floor(low)), int(np.ceil(high)) + 1):
        for step in steps:
            tick = power + float(np.log10(step))
            if low <= tick <= high:
                ticks.append(tick)
    return ticks


class NormLine(NamedTuple):
    """The norm of one class over the epochs of training."""

    title: str
    color: str  # a class of page.css
    norms: np.ndarray


def norm_lines(subject: Subject) -> list[NormLine]:
    """Return the norms over the epochs of up to 12 classes, from the most frequent to the rarest."""
    log = [record for record in subject.log if record.get("norms") is not None]
    if len(log) < 2 or subject.counts is None:
        return []
    try:
        norms = np.array([record["norms"] for record in log], np.float64)
    except (TypeError, ValueError):
        norms = np.zeros(0)
    if norms.shape != (len(log), subject.classes) or not np.isfinite(norms).all():
        reason = f"expected {subject.classes} norms in each record of an epoch"
        raise LevelheadError(reason, parameter="log")
    order = np.argsort(-subject.counts, kind="stable")
    size = min(MOST_LINES, len(order))
    chosen = order[np.unique(np.linspace(0, len(order) - 1, size).round().astype(int))]
    lines = []
    for k, i in enumerate(chosen):
        title = f"{short(subject.name(i), 24)} ({subject.counts[i]:,.0f})"
        lines.append(NormLine(title, f"line-{k % 6} dash-{k // 6}", norms[:, i]))
    return lines


def training_chart(subject: Subject, lines: list[NormLine]) -> Markup:
    """Return the norms of some classes over the epochs."""
    epochs = [record for record in subject.log if record.get("norms") is not None]
    at = np.array([float(record.get("epoch", i + 1)) for i, record in enumerate(epochs)])
    highest = max(float(line.norms.max()) for line in lines)
    reach = (float(at.min()), float(at.max()))
    plane = Plane(960, 320, 52, 52, reach, (0.0, 1.05 * highest or 1.0))
    parts = [plane.grid(nice_ticks(*plane.y_range), "{:g}".format)]
    parts += [plane.below(tick, f"{tick:g}") for tick in nice_ticks(*reach)]
    parts += [_line(plane, at, line.norms, line.color) for line in lines]
    parts.append(plane.titles("epoch", "norm of the weight vector"))
    return plane.picture("Norms of the weight vectors over the epochs of training", *parts)
