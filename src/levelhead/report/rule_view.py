"""Each rule that a page can show, with every change of every prediction over its strength.

A rule with a scale and an offset for each class has no strength of its own. Its slider is exact at every share t of the
way from the model as trained to what was chosen: ``score_k(t) = ((1 - t) m + t scale_k) logit_k + t offset_k``, with m
the geometric mean of the scales. These are straight lines in t, of which predictions follow the upper envelope.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..choice.paths import path_along
from ..core.array import Array, to_numpy
from ..core.choices import Kind
from ..path.engines import check_samples
from ..path.envelope import Envelope, compute_envelope, read_chunks
from ..path.path import GammaPath
from ..rules.adjustment import toward
from ..rules.direction import Direction
from ..rules.rule import RULES, RescaleThenShift, find_path_rule
from .subject import LEAST_END, ChoiceRecord, RuleView, middle_scale

LARGEST_SHARE = 1.5  # of the way to what was chosen
MOST_COMPARED = 8_000_000  # N times K, up to which other rules are shown besides the chosen one


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
    """Return the chosen rule, then the others that were tried, or else those of one strength, simplest first."""
    chosen = choice["rule"]
    tried = {one["rule"]: one for one in choice.get("candidates") or ()}

    def of_strength(rule: str, gamma: float | None, interval: Sequence[float] | None = None) -> RuleView:
        known = find_path_rule(rule)
        own = norms if known.needs_norms else None
        # A choice says by its offsets that it follows a target; an older one, or a gamma given, follows the counts.
        chose, moved = (choice.get("offset") or () if rule == first else ()), counts
        if known.follows_target and target is not None and (chose or (rule != first and rule in tried)):
            moved = toward(counts, target)
        elif known.follows_target and chose and gamma:
            moved = np.exp(-np.array(chose, np.float64) / gamma)
        made = known.direction(moved, norms=own, kind=kind)
        reach = (0.0, max(known.reach, 1.25 * (gamma or 0.0), *(interval or ())))
        if labels is None:
            path, changes = None, compute_envelope(logits, made, reach, kind=kind)
        else:
            truth, _ = check_samples(logits, labels, counts, None)
            path = path_along(replace(known, norms=own), logits, truth, moved, reach, kind=kind)
            path = replace(path, counts=counts, target=target)
            changes = path.envelope
        between, least = None if interval is None else (interval[0], interval[1]), LEAST_END
        if known.grows:  # where scores lie close together, so do the strengths that matter
            some = np.asarray(to_numpy(logits[:1000]), np.float64)
            least *= min(1.0, float(np.std(some - some.mean(axis=1, keepdims=True))) or 1.0)
        given = {"target": target, "interval": between, "least_end": least, "by_target": moved is not counts}
        return RuleView(rule, gamma, changes, path, made.ratios, **given)

    def of_classes(rule: str, scale: np.ndarray, offset: np.ndarray) -> RuleView:
        smoothing = float(choice.get("smoothing") or 0.0) if rule == chosen else 0.0
        changes = compute_share_envelope(logits, scale, offset, kind=kind, smoothing=smoothing)
        path = None if labels is None else right_path(changes, labels, counts, rule, target)
        return RuleView(rule, 1.0, changes, path, scale=scale, offset=offset, target=target, smoothing=smoothing)

    first = chosen if choice.get("scale") else RULES[chosen].path_name  # the model as it is has a path at 0
    if choice.get("scale"):
        views = [of_classes(chosen, np.array(choice["scale"], float), np.array(choice["offset"], float))]
    else:
        views = [of_strength(first, choice["gamma"], choice.get("interval"))]
    if len(logits) * len(counts) > MOST_COMPARED:
        return tuple(views)
    for rule, other in RULES.items():
        known = tried.get(rule)
        if rule == first or (tried and known is None) or not other.strengths:
            continue
        if other.has_path:
            fits = not other.needs_norms or norms is not None
            if fits and not (other.multiplies and kind == "probabilities"):
                views.append(of_strength(rule, None if known is None else float(known["gamma"])))
        elif known is not None and known.get("second") is not None:
            both = RescaleThenShift().adjustment(counts, known["gamma"], known["second"], toward(counts, target))
            assert both.scale is not None
            assert both.offset is not None
            views.append(of_classes(rule, both.scale, both.offset))
    return tuple(views)


def compute_share_envelope(
    logits: Array, scale: np.ndarray, offset: np.ndarray, *, kind: Kind = "logits", smoothing: float = 0.0
) -> Envelope:
    """Return every change of every prediction over the share, of logits [N, K]; scale and offset are those at 1."""
    starts, events = [], []
    for first, chunk in read_chunks(logits, kind=kind):
        rows = chunk.astype(np.float64)
        rows = np.logaddexp(rows, np.log(smoothing)) if smoothing else rows
        start, slope = rows * middle_scale(scale), rows * (scale - middle_scale(scale)) + offset
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
            events.append((live + first, when, winner, now[live]))
            now[live], since[live] = winner, when
    sample, gamma, new, old = (np.concatenate(parts) for parts in zip(*events, strict=True))
    order = np.argsort(gamma, kind="stable")  # a sample's own changes were found in order
    changes = (part[order] for part in (sample, gamma, new, old))
    return Envelope(np.concatenate(starts), *changes, classes=len(scale), range=(0.0, LARGEST_SHARE))


def right_path(
    changes: Envelope, labels: np.ndarray, counts: np.ndarray, rule: str, target: np.ndarray | None
) -> GammaPath:
    """Return where each sample is right, from every change of its prediction."""
    sample = np.concatenate([np.arange(len(labels)), changes.sample])
    begin = np.concatenate([np.full(len(labels), changes.range[0]), changes.gamma])
    predicted = np.concatenate([changes.start, changes.new_class])
    order = np.argsort(sample, kind="stable")  # the stretches of a sample one after the other, by gamma
    sample, begin, predicted = sample[order], begin[order], predicted[order]
    last = np.append(sample[1:] != sample[:-1], True)
    end = np.where(last, changes.range[1], np.nextafter(np.append(begin[1:], 0.0), -np.inf))
    right = (predicted == labels[sample]) & (begin <= end)
    made = Direction(rule, counts.max() / counts)
    return GammaPath(sample[right], begin[right], end[right], labels, counts, made, changes.range, target=target)
