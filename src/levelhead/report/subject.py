"""A subject: one model on one set of samples, what was chosen for it, and each rule that its page can show.

A rule with a scale and an offset for each class has no strength of its own. Its slider is exact at every share t of the
way from the model as trained to what was chosen: ``score_k(t) = ((1 - t) m + t scale_k) logit_k + t offset_k``, with m
the geometric mean of the scales. These are straight lines in t, of which predictions follow the upper envelope.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..choice.diagnostics import Verdict, is_worthwhile
from ..choice.gamma_path import GammaPath
from ..choice.path_metrics import gain_text
from ..core.adjustment import smooth_votes, toward
from ..core.counts import check_samples
from ..core.head import Head
from ..core.rules import RULES, RescaleThenShift, find_path_rule
from ..path.curve import Curve
from ..path.direction import Direction
from ..path.engines import find_changes
from ..path.envelope import Envelope, read_chunks
from ..support.arrays import Array, to_numpy
from ..support.types import Kind

ChoiceRecord = dict[str, Any]  # what Tuned.to_dict returns, or its first few entries
LARGEST_SHARE = 1.5  # of the way to what was chosen
MOST_COMPARED = 8_000_000  # N times K, up to which other rules are shown besides the chosen one
LEAST_END = 0.4  # of a slider; of the shift, less for scores of a smaller spread


@dataclass(frozen=True, eq=False)
class RuleView:
    """One rule on the samples of a page: of one strength (ratios), or with a scale and an offset for each class."""

    rule: str
    gamma: float | None  # the strength chosen for it; None if none was
    changes: Envelope  # every change of a prediction over the strength
    path: GammaPath | None = None  # where each sample is right; None without labels
    ratios: np.ndarray | None = None  # [K]
    scale: np.ndarray | None = None  # [K]
    offset: np.ndarray | None = None  # [K]
    target: np.ndarray | None = None  # [K], what each class weighs
    interval: tuple[float, float] | None = None  # of gamma
    smoothing: float = 0.0  # what is added to probabilities before their logarithm
    by_target: bool = False  # whether a target and not the counts alone decides where classes go
    least_end: float = LEAST_END  # where the slider ends at least

    def smoothed(self, logits: np.ndarray) -> np.ndarray:
        """Return the logits [N, K] that scale and offset are for."""
        return smooth_votes(logits, self.smoothing)[0]

    def parts(self, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """Return scale and offset [K] at a strength: ``score_k = scale_k logit_k + offset_k``."""
        if self.ratios is None:
            assert self.scale is not None
            assert self.offset is not None
            return (1 - gamma) * middle_scale(self.scale) + gamma * self.scale, gamma * self.offset
        if RULES[self.rule].multiplies:
            return self.ratios**gamma, np.zeros(len(self.ratios))
        return np.ones(len(self.ratios)), gamma * np.log(self.ratios)

    @cached_property
    def curve(self) -> Curve:
        """The balanced error over the strength or, without labels, the mismatch of predicted shares."""
        return (
            self.changes.mismatch(self.target)
            if self.path is None
            else self.path.balanced_error_curve
        )

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
        unit = 10.0 ** min(
            -1, np.floor(np.log10(wanted)) - 1
        )  # of scores on a small scale, finer than 0.1
        return min(curve.end, float(f"{np.ceil(1.25 * wanted / unit) * unit:.10g}"))

    @cached_property
    def step(self) -> float:
        """How many strengths the slider can stop at per unit: 10,000, and fewer or more on other scales of scores."""
        over, under = np.ceil(np.log10(self.end / 6)), np.ceil(np.log10(0.4 / self.end))
        return 10 ** int(
            4 - max(0, over) + max(0, under)
        )  # below 1 where scores are very large: then a float


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

    def of_strength(
        rule: str, gamma: float | None, interval: Sequence[float] | None = None
    ) -> RuleView:
        known = find_path_rule(rule)
        # A choice says by its offsets that it follows a target; an older one, or a gamma given, follows the counts.
        chose, moved = (choice.get("offset") or () if rule == first else ()), counts
        if (
            known.follows_target
            and target is not None
            and (chose or (rule != first and rule in tried))
        ):
            moved = toward(counts, target)
        elif known.follows_target and chose and gamma:
            moved = np.exp(-np.array(chose, np.float64) / gamma)
        made = known.direction(moved, norms=norms if known.needs_norms else None, kind=kind)
        reach = (0.0, max(known.reach, 1.25 * (gamma or 0.0), *(interval or ())))
        changes, path = find_changes(logits, made, reach, kind=kind), None
        if labels is not None:
            truth, more = (
                check_samples(logits, labels, counts, None)[0],
                {"logits": (logits,), "kind": kind},
            )
            path = GammaPath.of_changes(changes, truth, counts, made, target=target, **more)
        between, least = None if interval is None else (interval[0], interval[1]), LEAST_END
        if known.grows:  # where scores lie close together, so do the strengths that matter
            some = np.asarray(to_numpy(logits[:1000]), np.float64)
            least *= min(1.0, float(np.std(some - some.mean(axis=1, keepdims=True))) or 1.0)
        given = {
            "target": target,
            "interval": between,
            "least_end": least,
            "by_target": moved is not counts,
        }
        return RuleView(rule, gamma, changes, path, made.ratios, **given)

    def of_classes(rule: str, scale: np.ndarray, offset: np.ndarray) -> RuleView:
        smoothing = float(choice.get("smoothing") or 0.0) if rule == chosen else 0.0
        changes = compute_share_envelope(logits, scale, offset, kind=kind, smoothing=smoothing)
        made, path = Direction(rule, counts.max() / counts), None
        if labels is not None:
            path = GammaPath.of_changes(changes, labels, counts, made, target=target)
        return RuleView(
            rule, 1.0, changes, path, scale=scale, offset=offset, target=target, smoothing=smoothing
        )

    first = (
        chosen if choice.get("scale") else RULES[chosen].path_name
    )  # the model as it is has a path at 0
    if choice.get("scale"):
        views = [
            of_classes(chosen, np.array(choice["scale"], float), np.array(choice["offset"], float))
        ]
    else:
        views = [of_strength(first, choice["gamma"], choice.get("interval"))]
    if len(logits) * len(counts) > MOST_COMPARED:
        return tuple(views)
    for rule, other in RULES.items():
        known = tried.get(rule)
        if rule == first or (tried and known is None) or not other.strengths:
            continue
        if other.has_path:
            if (norms is not None or not other.needs_norms) and not (
                other.multiplies and kind == "probabilities"
            ):
                views.append(of_strength(rule, None if known is None else float(known["gamma"])))
        elif known is not None and known.get("second") is not None:
            both = RescaleThenShift().adjustment(
                counts, known["gamma"], known["second"], toward(counts, target)
            )
            assert both.scale is not None
            assert both.offset is not None
            views.append(of_classes(rule, both.scale, both.offset))
    return tuple(views)


def compute_share_envelope(
    logits: Array,
    scale: np.ndarray,
    offset: np.ndarray,
    *,
    kind: Kind = "logits",
    smoothing: float = 0.0,
) -> Envelope:
    """Return every change of every prediction over the share, of logits [N, K]; scale and offset are those at 1."""
    starts, events = [], []
    for first, chunk in read_chunks(logits, kind=kind):
        rows, _ = smooth_votes(chunk.astype(np.float64), smoothing)
        start, slope = rows * middle_scale(scale), rows * (scale - middle_scale(scale)) + offset
        now, live = start.argmax(axis=1), np.arange(len(rows))
        since = np.zeros(len(rows))
        starts.append(now.copy())
        while len(live):
            own, a, b = now[live, None], start[live], slope[live]
            lead = b - np.take_along_axis(b, own, 1)
            with np.errstate(divide="ignore", invalid="ignore"):
                when = np.where(lead > 0, (np.take_along_axis(a, own, 1) - a) / lead, np.inf)
            when = np.maximum(
                when, since[live, None]
            )  # a crossing is never before the last one, but for rounding
            winner = when.argmin(axis=1)
            when = when[np.arange(len(live)), winner]
            on = when <= LARGEST_SHARE
            live, winner, when = live[on], winner[on], when[on]
            events.append((live + first, when, winner, now[live]))
            now[live], since[live] = winner, when
    sample, gamma, new, old = (np.concatenate(parts) for parts in zip(*events, strict=True))
    order = np.argsort(gamma, kind="stable")  # a sample's own changes were found in order
    changes = (part[order] for part in (sample, gamma, new, old))
    return Envelope(
        np.concatenate(starts), *changes, classes=len(scale), range=(0.0, LARGEST_SHARE)
    )


class OfChoice:
    """What a choice says by itself, of a model with classes or with labels."""

    choice: ChoiceRecord

    @property
    def worthwhile(self) -> bool | None:
        """Whether the choice is to be applied, by its own metric; None if that is not known."""
        choice = self.choice
        return is_worthwhile(
            choice.get("gain"), choice.get("gain_interval"), choice.get("floors_met_at_zero")
        )

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the choice, by its own metric; None if no interval of its gain is known."""
        gain, between = self.choice.get("gain"), self.choice.get("gain_interval")
        return (
            None
            if gain is None or between is None
            else Verdict(gain, (between[0], between[1]), self.level)
        )

    @property
    def metric(self) -> str:
        """What the choice was to be good at."""
        return self.choice.get("metric") or "balanced_error"

    @property
    def level(self) -> float:
        """The confidence level of the intervals shown."""
        return self.choice.get("level") or 0.95


@dataclass(frozen=True, eq=False)
class Subject(OfChoice):
    """One model on one set of samples. What is not known of it is None, "" or {}."""

    title: str  #: what to call it
    counts: np.ndarray  #: [K], training samples of each class
    choice: ChoiceRecord  #: gamma and how it was chosen: Tuned.to_dict(), or at least `gamma`, `rule` and `chosen_on`
    views: tuple[
        RuleView, ...
    ] = ()  #: the chosen rule and others, with all that each predicts; () without logits
    logits: Array | None = None  #: [N, K], of the samples shown
    samples: str = "held-out"  #: what these are, in words: `test`, `held-out`
    apart: bool = False  #: whether they had no part in the choice
    names: Sequence[str] | None = None  #: of the classes
    target: np.ndarray | None = None  #: [K], what each class weighs; equal if None
    held_out: tuple[Array, np.ndarray] | None = (
        None  #: other logits and labels, to fit a temperature on
    )
    head: Head | None = None
    log: Sequence[
        dict[str, Any]
    ] = ()  #: a dict per epoch of its training, with at least `epoch` and `norms`
    facts: dict[str, str] = field(default_factory=dict)  #: where the subject comes from, by title
    model: str = ""  #: the model's file, in the commands to copy
    tuned_file: str = ""  #: the tuned.json that holds the choice, there
    files: dict[str, str] = field(
        default_factory=dict
    )  #: the files of logits, labels and counts, there
    fitted: str = ""  #: the estimator that does what was chosen already, in words; "" if it is still to be applied
    drawn: dict[str, Curve] = field(
        default_factory=dict
    )  #: {rule: curve} to draw of rules that have no view
    kind: Kind = "logits"  #: what `logits` are

    @property
    def gamma(self) -> float:
        """The strength that was chosen, where the slider of its rule shows it."""
        return 1.0 if self.choice.get("scale") else float(self.choice["gamma"])

    @property
    def path(self) -> GammaPath | None:
        """Where the samples shown are right over the chosen rule's strength; None if their labels are not known."""
        return self.views[0].path if self.views else None

    @property
    def classes_weighed(self) -> bool:
        """Whether the goal weighs classes, by the target or alike, and not samples as they come."""
        return self.target is not None or self.metric == "balanced_error"

    def weights(self, labels: np.ndarray) -> np.ndarray:
        """Return what samples of these labels [N] weigh in the goal; they sum to 1."""
        if not self.classes_weighed:
            return np.full(len(labels), 1 / len(labels))
        n = np.bincount(labels, minlength=self.classes)
        weights = ((1.0 if self.target is None else self.target) / np.maximum(n, 1))[labels]
        return weights / weights.sum()

    @property
    def classes(self) -> int:
        return len(self.counts)

    def name(self, i: int) -> str:
        return str(i) if self.names is None else str(self.names[i])

    @cached_property
    def present(self) -> np.ndarray:
        """The classes with a sample among those shown; all if labels are not known."""
        return np.arange(self.classes) if self.path is None else np.unique(self.path.labels)

    @cached_property
    def mass(self) -> np.ndarray:
        """What each class weighs in the balanced error, [K]; 0 for a class without a sample."""
        share = np.zeros(self.classes)
        share[self.present] = 1.0 if self.target is None else self.target[self.present]
        return share / share.sum()

    @cached_property
    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """The rarer and the more frequent half, by training counts, of the classes with samples."""
        order = self.present[np.argsort(self.counts[self.present], kind="stable")]
        size = max(1, len(order) // 2)
        return np.sort(order[:size]), np.sort(order[len(order) - size :])


@dataclass(frozen=True)
class LabelRow:
    """One label, before and after."""

    name: str
    count: float | None  # in training; None if that is not known
    positives: int  # among the samples shown
    threshold: float  # of the probability
    recall: tuple[float | None, float | None]
    precision: tuple[float | None, float | None]  # None where nothing is predicted
    gain: str = ""

    @property
    def frequency(self) -> float:
        """How frequent it is: in training or, if that is not known, here."""
        return self.positives if self.count is None else self.count


@dataclass(frozen=True, eq=False)
class LabelSubject(OfChoice):
    """One multi-label model on one set of samples, with what was chosen for it. Its attributes are as in `Subject`."""

    title: str
    choice: ChoiceRecord  #: what `TunedLabels.to_dict` returns, or its first few entries
    rows: tuple[LabelRow, ...]  #: one for each label
    n: int  #: how many samples are shown
    apart: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    model: str = ""
    tuned_file: str = ""


def rule_title(rule: str) -> str:
    """Return a rule's name for people, as a title."""
    title = RULES[rule].title
    return f"{title[:1].upper()}{title[1:]}"


def middle_scale(scale: np.ndarray) -> float:
    """Return the geometric mean of scales, which changes no prediction."""
    return float(np.exp(np.log(scale).mean()))


def label_rows(
    scores: np.ndarray, truth: np.ndarray, choice: ChoiceRecord, names: Sequence[str] | None
) -> tuple[LabelRow, ...]:
    """Return a row for each label, of logits and labels [N, K]."""
    offset = np.array(choice["offset"], np.float64)
    known = names or choice.get("names") or [str(k) for k in range(truth.shape[1])]
    each, metric = (
        choice.get("labels") or [{}] * truth.shape[1],
        choice.get("metric") or "balanced_error",
    )
    numbers = choice.get("counts") or [None] * truth.shape[1]
    if numbers == [
        one.get("positives") for one in each
    ]:  # without counts, those of the samples tuned on are kept
        numbers = [None] * truth.shape[1]
    rows = []
    for k in range(truth.shape[1]):
        before, after = (_rates(scores[:, k] + by > 0, truth[:, k]) for by in (0.0, offset[k]))
        between, positives = each[k].get("interval"), int(truth[:, k].sum())
        gain = (
            "" if between is None else gain_text(metric, each[k]["gain"], (between[0], between[1]))
        )
        threshold, recall, precision = (
            float(1 / (1 + np.exp(offset[k]))),
            (before[0], after[0]),
            (before[1], after[1]),
        )
        rows.append(
            LabelRow(str(known[k]), numbers[k], positives, threshold, recall, precision, gain)
        )
    return tuple(rows)


def _rates(predicted: np.ndarray, true: np.ndarray) -> tuple[float | None, float | None]:
    """Return recall and precision; None where there is no sample to tell."""
    hits, totals = (
        float((predicted & (true > 0)).sum()),
        (float((true > 0).sum()), float(predicted.sum())),
    )
    return hits / totals[0] if totals[0] else None, hits / totals[1] if totals[1] else None
