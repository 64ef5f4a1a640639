"""What a page shows of one rule: its strength, and every change of every prediction over it.

A rule with a scale and an offset for each class has no strength of its own. Its slider goes from the model as trained
to what was chosen, and is exact at every share t of the way:
``score_k(t) = ((1 - t) m + t scale_k) logit_k + t offset_k``, with m the geometric mean of the scales: at t = 0 the
predictions are those of the model as trained, at t = 1 those of what was chosen. Scores are straight lines in t, so
each sample's prediction follows the upper envelope of its row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..core.array import Array, to_numpy
from ..core.choices import Kind
from ..core.curve import Curve
from ..path.chunks import read_chunks
from ..path.envelope import Envelope
from ..path.envelope_walk import compute_envelope
from ..path.path import GammaPath, gamma_path
from ..rules.direction import Direction
from ..rules.rule import RULES, RescaleThenShift, find_path_rule

ChoiceRecord = dict[str, Any]  # what Tuned.to_dict returns, or its first few entries
LARGEST_SHARE = 1.5  # of the way to what was chosen
MOST_COMPARED = 8_000_000  # N times K, up to which other rules are shown besides the chosen one
LEAST_END = 0.4  # of a slider; of the shift, less for scores of a smaller spread


@dataclass(frozen=True, eq=False)
class RuleView:
    """One rule on the samples of a page.

    Args:
        rule: which.
        gamma: the strength chosen for it; of a rule with numbers for each class, 1: its slider goes from the model as
            trained (0) to those numbers (1); None if none was chosen.
        changes: every change of a prediction over the strength.
        path: where each sample is right; None without labels.
        ratios, scale, offset: [K], of a rule of one strength; of one with numbers for each class.
        target, interval: [K], what each class weighs; of gamma.
        smoothing: what is added to probabilities before their logarithm.
        least_end: where the slider ends at least.
    """

    rule: str
    gamma: float | None
    changes: Envelope
    path: GammaPath | None = None
    ratios: np.ndarray | None = None
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None
    target: np.ndarray | None = None
    interval: tuple[float, float] | None = None
    smoothing: float = 0.0
    least_end: float = LEAST_END

    @property
    def title(self) -> str:
        """The rule's name for people."""
        return rule_title(self.rule)

    def smoothed(self, logits: np.ndarray) -> np.ndarray:
        """Return the logits [N, K] that scale and offset are for."""
        return np.logaddexp(logits, np.log(self.smoothing)) if self.smoothing else logits

    def parts(self, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """Return scale and offset [K] at a strength: ``score_k = scale_k logit_k + offset_k``."""
        if self.ratios is None:
            assert self.scale is not None
            assert self.offset is not None
            return parts_at(gamma, self.scale, self.offset)
        still = np.ones(len(self.ratios)), np.zeros(len(self.ratios))
        if RULES[self.rule].multiplies:
            return self.ratios**gamma, still[1]
        return still[0], gamma * np.log(self.ratios)

    @cached_property
    def curve(self) -> Curve:
        """The balanced error over the strength or, without labels, the mismatch of predicted shares."""
        return self.changes.mismatch(self.target) if self.path is None else self.path.balanced_error_curve

    @cached_property
    def best(self) -> float:
        """The middle of the strengths at which that is lowest on these samples."""
        return self.curve.middle(self.curve.plateau())

    @cached_property
    def end(self) -> float:
        """The end of the slider: past the choice, its interval, the best strength, and all that are no worse than 0."""
        if not RULES[self.rule].has_path:
            return self.changes.range[1]
        curve, between = self.curve, self.interval or (0.0, 0.0)
        useful = float(curve.gammas[curve.values <= float(curve.at(0.0))].max())
        wanted = max(self.gamma or 0.0, between[1], useful, self.best, self.least_end)
        unit = 10.0 ** min(-1, np.floor(np.log10(wanted)) - 1)  # of scores on a small scale, finer than 0.1
        return min(curve.end, float(f"{np.ceil(1.25 * wanted / unit) * unit:.10g}"))

    @cached_property
    def step(self) -> int:
        """How many strengths the slider can stop at per unit: 10,000, and fewer or more on other scales of scores."""
        over, under = np.ceil(np.log10(self.end / 6)), np.ceil(np.log10(0.4 / self.end))
        return 10 ** int(max(0, 4 - max(0, over) + max(0, under)))


def rule_title(rule: str) -> str:
    """Return a rule's name for people, as a title.

    >>> rule_title("shift")
    'Logit shift'
    """
    title = RULES[rule].title
    return f"{title[:1].upper()}{title[1:]}"


def _spread(logits: Array, most: int = 1000) -> float:
    """Return how far the scores of a sample lie apart, by some of the samples."""
    some = np.asarray(to_numpy(logits[: min(len(logits), most)]), np.float64)
    return float(np.std(some - some.mean(axis=1, keepdims=True))) or 1.0


def chosen_strength(choice: Mapping[str, Any]) -> float:
    """Return where on its rule's slider a choice is."""
    return float(choice["gamma"]) if RULES[choice["rule"]].has_path else 1.0


def make_views(
    logits: Array,
    labels: np.ndarray | None,
    counts: np.ndarray,
    choice: ChoiceRecord,
    *,
    norms: Array | None = None,
    kind: Kind = "logits",
    target: np.ndarray | None = None,
) -> tuple[RuleView, ...]:
    """Return the chosen rule and then the others that can be shown on these samples, simplest first.

    Others are those that were tried or, if nothing is known of that, the rules of one strength. Without its numbers for
    each class, a rule that was tried cannot be shown.

    Args:
        logits, labels: [N, K]; [N], or None.
        counts, target: [K] each; the target may be None.
        choice: what was chosen.
        norms, kind: as in `tune`.
    """
    chosen = choice["rule"]
    tried = {one["rule"]: one for one in choice.get("candidates") or ()}

    def of_strength(rule: str, gamma: float | None, interval: Sequence[float] | None = None) -> RuleView:
        known = find_path_rule(rule)
        known = replace(known, norms=norms if known.needs_norms else None)
        made = known.direction(counts, kind=kind)
        reach = (0.0, max(known.reach, 1.25 * (gamma or 0.0), *(interval or ())))
        path = None
        if labels is not None:
            path = gamma_path(logits, labels, counts, rule=known, range=reach, kind=kind, target=target)
        changes = compute_envelope(logits, made, reach, kind=kind) if path is None else path.envelope
        between = None if interval is None else (interval[0], interval[1])
        least = LEAST_END * (min(1.0, _spread(logits)) if known.grows else 1.0)
        return RuleView(rule, gamma, changes, path, made.ratios, target=target, interval=between, least_end=least)

    def of_classes(rule: str, scale: np.ndarray, offset: np.ndarray) -> RuleView:
        smoothing = float(choice.get("smoothing") or 0.0) if rule == chosen else 0.0
        changes = compute_share_envelope(logits, scale, offset, kind=kind, smoothing=smoothing)
        path = None if labels is None else right_path(changes, labels, counts, rule, target)
        return RuleView(rule, 1.0, changes, path, scale=scale, offset=offset, target=target, smoothing=smoothing)

    if RULES[chosen].has_path:
        views = [of_strength(chosen, choice["gamma"], choice.get("interval"))]
    else:
        views = [of_classes(chosen, np.array(choice["scale"], float), np.array(choice["offset"], float))]
    if len(logits) * len(counts) > MOST_COMPARED:
        return tuple(views)
    for rule, other in RULES.items():
        known = tried.get(rule)
        if rule == chosen or (tried and known is None) or not other.strengths:
            continue
        if other.has_path:
            fits = not other.needs_norms or norms is not None
            if fits and not (other.multiplies and kind == "probabilities"):
                views.append(of_strength(rule, None if known is None else float(known["gamma"])))
        elif known is not None and known.get("second") is not None:
            both = RescaleThenShift().adjustment(counts, known["gamma"], known["second"])
            assert both.scale is not None
            assert both.offset is not None
            views.append(of_classes(rule, both.scale, both.offset))
    return tuple(views)


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
